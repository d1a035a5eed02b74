"""What ``tau-live optimize`` prints, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.prompts import prompt_version
from tests.cli.conftest import Run
from tests.prompts.agents import FOLDER
from tests.prompts.stubs import PROMPT, REF, RULE, rows
from tests.prompts.test_policy import config as policy_config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path / "config.json")


def written(path: Path, editor: str = "rule_editor", **changes: Any) -> Path:
    search = {"rounds": 1, "critic_model": f"{REF}critic", "editor_model": f"{REF}{editor}"}
    config = {
        "optimize": rows(0, 10),
        "validate": rows(1000, 30),
        "resources": {"system_prompt": PROMPT},
        "model": f"{REF}task_model",
        "search": search,
    }
    path.write_text(json.dumps(config | changes))
    return path


@pytest.mark.slow
def test_a_run_is_reported_listed_and_shown(run: Run, config: Path) -> None:
    found = run("optimize", "--config", config, "--yes")

    assert found.exit_code == 0, found.output
    assert "validate finalist   1 on 30 rows" in found.output
    assert f"\n+ {RULE}\n" in found.output
    assert "prompt optimization complete: model=function/" in found.output
    assert "total=80 succeeded=80 failed=0 cancelled=0" in found.output
    assert "adopted" in run("optimize", "list").output
    shown = run("optimize", "show")
    assert shown.exit_code == 0
    assert "r1-p1-c1" in shown.output
    assert f"  {PROMPT}\n  {RULE}\n" in run("optimize", "prompts").output
    assert "is completed: final, 80 of 80 items" in run("optimize", "status").output


@pytest.mark.slow
def test_json_has_evidence_lineage_and_report(run: Run, config: Path) -> None:
    ran: Any = json.loads(run("optimize", "--config", config, "--json").stdout)
    shown: Any = json.loads(run("optimize", "show", "--json").stdout)
    listed: Any = json.loads(run("optimize", "list", "--json").stdout)

    assert ran["run_state"] == "completed"
    assert ran["adoption"] == shown["adoption"] == ran["report"]["adoption"]
    assert [candidate["label"] for candidate in shown["lineage"]] == ["incumbent", "r1-p1-c1"]
    assert listed["runs"][0]["run_id"] == ran["run_id"]


@pytest.mark.slow
def test_a_run_that_must_adopt_and_does_not_exits_with_4(run: Run, tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", "same_editor")

    found = run("optimize", "--config", config, "--yes", "--require-adoption")

    assert found.exit_code == 4
    assert "nothing: no_candidate" in found.output
    assert run("optimize", "--config", config, "--yes").exit_code == 0


@pytest.mark.slow
def test_the_errors_of_items_are_reported(run: Run, tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", agent="tests.prompts.stubs:failing_agent")

    found = run("optimize", "--config", config, "--yes")
    shown: Any = json.loads(run("optimize", "show", "--json").stdout)

    [failure] = shown["failures"]
    assert failure["error"] == "KeyError: 'customer'"
    assert f"{failure['items']} items failed" in found.output


@pytest.mark.slow
def test_a_config_that_puts_an_adopted_prompt_out_of_force_is_warned_of(
    run: Run, config: Path, tmp_path: Path
) -> None:
    assert run("optimize", "--config", config, "--yes").exit_code == 0
    without = written(tmp_path / "without.json", resources={})

    again = run("optimize", "--config", config, "--dry-run")
    goes_on = run("optimize", "--config", without, "--dry-run")

    version, instead = prompt_version(f"{PROMPT}\n{RULE}"), prompt_version(PROMPT)
    assert f"warning: 'resources' puts {instead} in force in place of {version}" in again.stderr
    assert "warning" not in goes_on.stderr


def test_a_dry_run_writes_nothing(run: Run, config: Path, tmp_path: Path) -> None:
    found = run("optimize", "--config", config, "--dry-run")

    assert found.exit_code == 0
    assert "candidates     at most 1" in found.output
    assert "search items   at most 20" in found.output
    assert run("optimize", "--demo", "--dry-run").exit_code == 0
    assert [*tmp_path.iterdir()] == [config]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--demo", "--resume", "latest"),
        ("--demo", "--config", "x"),
        ("--dry-run", "--resume", "x"),
    ],
)
def test_unclear_arguments_are_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("optimize", *arguments).exit_code == 2


def test_an_invalid_config_has_a_line_for_each_violation(run: Run, tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", worker_count=0, seeed=1)

    found = run("optimize", "--config", config)

    assert found.exit_code == 1
    lines = found.stderr.splitlines()
    assert len(lines) == 2
    assert "/seeed: is not a key of the config; did you mean 'seed'?" in lines[0]
    assert "/worker_count: training config field 'worker_count' must be greater" in lines[1]
    assert not (tmp_path / ".tau").exists()


@pytest.mark.parametrize(("old", "new"), [("train", "optimize"), ("val", "validate")])
def test_both_names_of_a_key_are_wrong_usage(run: Run, tmp_path: Path, old: str, new: str) -> None:
    again: dict[str, Any] = {old: rows(2000, 1)}
    config = written(tmp_path / "config.json", worker_count=0, **again)

    found = run("optimize", "--config", config)

    assert found.exit_code == 2
    lines = found.stderr.splitlines()
    assert lines[0].endswith(f"/{old}: '{old}' and '{new}' were both given")
    assert "/worker_count: " in lines[1]
    assert not (tmp_path / ".tau").exists()


@pytest.mark.slow
def test_a_policy_of_prompts_is_reported_and_put_back(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    path, store = tmp_path / "config.json", tmp_path / "store.sqlite"
    path.write_text(json.dumps(policy_config(16)))

    planned = run("optimize", "--config", path, "--dry-run", "--store", store)
    ran = run("optimize", "--config", path, "--yes", "--store", store)

    assert "policy items   16" in planned.output
    assert ran.exit_code == 0, ran.output
    line = "prompt optimization rl optimizer: executed=true trajectories=16 samples=16 "
    assert line in ran.output
    assert ran.output.rstrip().endswith("skipped_reason=none")
    status: Any = json.loads(run("optimize", "show", "--json", "--store", store).stdout)
    assert status["rl_optimizer"]["policy_version"] == 2
    point = f"prompt@{status['run_id']}"
    to = ("optimize", "rollback", "--reason", "worse", "--store", store, "--to")
    refused = run(*to, f"{point}:7")
    assert (refused.exit_code, refused.stderr) == (
        1, f"tau-live: failed to load rollback checkpoint '{point}:7'\n",
    )  # fmt: skip
    assert f"{point} is at version 1, which is " in run(*to, f"{point}:1").output
    again: Any = json.loads(run(*to, f"{point}:2", "--json").stdout)
    assert again == {"resource": point, "version": 2, "text": None}


def test_the_default_store_is_not_part_of_a_suggestion(run: Run) -> None:
    assert "`tau-live optimize --config FILE` makes one" in run("optimize", "show").stderr
    named = run("optimize", "show", "--store", "runs.sqlite").stderr
    assert "`tau-live optimize --config FILE --store runs.sqlite` makes one" in named
    assert "(see `tau-live optimize --help`)" in run("optimize", "--store", "runs.sqlite").stderr
