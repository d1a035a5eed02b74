"""What ``tau-live optimize`` prints, and its exit codes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.prompts import prompt_version
from tau_live.prompts.budget import Prices
from tau_live.prompts.config import read_config
from tau_live.prompts.models import lacks_key
from tau_live.prompts.optimizer import begin
from tau_live.store.records import Candidate, Optimization, OptimizationState
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
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


def test_a_dry_run_says_where_the_budget_ends_it(run: Run, tmp_path: Path) -> None:
    bounded = written(
        tmp_path / "config.json", budget={"calls": 50, "tokens": 10**9, "rollouts": 1}
    )

    found = run("optimize", "--config", bounded, "--dry-run").output

    assert "budget         the budget ends it at 50 calls or 1 items\n" in found


def test_the_calls_of_an_agent_are_shown_as_its_own(run: Run, tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", agent="tests.prompts.stubs:seed_agent")

    found = run("optimize", "--config", config, "--dry-run").output

    assert "model calls    the agent's own\n" in found


def test_a_dry_run_looks_for_the_package_of_the_provider(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    config = written(tmp_path / "config.json", model="openai/gpt-5")

    found = run("optimize", "--config", config, "--dry-run")

    assert found.exit_code == 1
    assert "model 'openai/gpt-5' cannot be used: Please install" in found.stderr


@pytest.mark.parametrize(
    ("cause", "lacks"),
    [
        (ImportError("Please install the `openai` package: api_key"), False),
        (RuntimeError("Set the `OPENAI_API_KEY` environment variable"), True),
        (RuntimeError("Unknown model: nope:x"), False),
    ],
)
def test_a_key_that_is_not_there_is_no_other_failure(cause: Exception, lacks: bool) -> None:
    error = TauLiveError("model 'a/b' cannot be used")
    error.__cause__ = cause

    assert lacks_key(error) is lacks


def test_an_empty_prompt_to_begin_with_is_a_warning(run: Run, tmp_path: Path) -> None:
    config = written(tmp_path / "config.json", resources={"systemprompt": PROMPT})

    found = run("optimize", "--config", config, "--dry-run", "--json")

    warning = (
        "resource 'system_prompt' is empty: the search begins with an empty prompt; "
        "did you mean 'systemprompt'?"
    )
    assert f"warning: {warning}\n" in found.stderr
    assert warning in json.loads(found.stdout)["warnings"]


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
    assert (again["resource"], again["version"], again["text"]) == (point, 2, None)
    assert (again["action"], again["reason"], again["run_id"]) == (
        "rollback", "worse", status["run_id"],
    )  # fmt: skip


def test_the_default_store_is_not_part_of_a_suggestion(run: Run) -> None:
    assert "`tau-live optimize --config FILE` makes one" in run("optimize", "show").stderr
    named = run("optimize", "show", "--store", "runs.sqlite").stderr
    assert "`tau-live optimize --config FILE --store runs.sqlite` makes one" in named
    assert "(see `tau-live optimize --help`)" in run("optimize", "--store", "runs.sqlite").stderr


BEST = f"{PROMPT}\n  - {RULE} {RULE}"


@pytest.fixture
def stored(store: SqliteStore, config: Path) -> Optimization:
    """A run with a candidate, and the same again."""
    run = begin(
        store,
        read_config(config, model=None),
        config,
        store_path=str(store.path),
        prices=Prices(known=False),
    )
    version = prompt_version(BEST)
    for label, state, why in [
        ("r1-p1-c1", "screened", None),
        ("r2-p1-c1", "duplicate", f"{version} is known"),
    ]:
        store.optimizations.keep(
            Candidate(
                run_id=run.run_id,
                label=label,
                version=version,
                text=BEST,
                state=state,
                why=why,
                parent=run.incumbent,
                details={"search_score": 1.0},
                made_at=1.0,
            )
        )
    return run


@pytest.mark.parametrize(
    ("state", "why", "word", "shown"),
    [
        ("completed", None, "complete", "completed"),
        ("cancelled", "cancelled", "cancelled", "cancelled"),
        ("failed", "interrupted", "failed", "failed: interrupted"),
    ],
)
def test_the_last_line_has_the_state_of_the_run(
    run: Run, store: SqliteStore, stored: Optimization, state: str, why: str | None, word: str,
    shown: str,
) -> None:  # fmt: skip
    changed = OptimizationState(state)
    store.optimizations.change(stored.run_id, state=changed, reason_code=why)

    output = run("optimize", "show", "--store", store.path).output

    assert f"\nprompt optimization {word}: model=function/" in output
    assert f"\nstate  {shown}\n" in output.replace("       ", "  ")


def test_unknown_dollars_are_not_zero(run: Run, store: SqliteStore, stored: Optimization) -> None:
    unknown = run("optimize", "show", "--store", store.path).output
    store.optimizations.settle(stored.run_id, tokens=5, usd=0.25, tokens_reserved=0, usd_reserved=0)
    part = run("optimize", "show", "--store", store.path).output

    assert "0 calls, 0 tokens, US dollars unknown, " in unknown
    assert "5 tokens, at least $0.2500, " in part


def test_a_prompt_is_listed_once_with_its_place_in_the_resources(
    run: Run, read: Read, store: SqliteStore, stored: Optimization
) -> None:
    store.resources.publish({"system_prompt": BEST})

    text = run("optimize", "prompts", "--store", store.path).output
    found: Any = read("optimize", "prompts", "--store", store.path)

    version, run_id = prompt_version(BEST), stored.run_id
    assert [prompt["version"] for prompt in found["prompts"]] == [stored.incumbent, version]
    assert [prompt["in_force"] for prompt in found["prompts"]] == [False, True]
    assert [prompt["resource"] for prompt in found["prompts"]] == [
        "system_prompt@1", "system_prompt@2",
    ]  # fmt: skip
    assert found["prompts"][1]["also"] == [{"run_id": run_id, "label": "r2-p1-c1"}]
    assert text.count(version) == 1
    assert f"prompt    {version} (in force)\nresource  system_prompt@2\n" in text
    assert f"also      {run_id} r2-p1-c1\n" in text
    assert "score     1\n" in text


def test_in_a_narrow_terminal_names_stay_whole_and_lines_keep_their_indent(
    run: Run, store: SqliteStore, stored: Optimization
) -> None:
    shown = run("optimize", "show", "--store", store.path, COLUMNS="60").output
    listed = run("optimize", "prompts", "--store", store.path, COLUMNS="60").output
    wide = run("optimize", "show", "--store", store.path, COLUMNS="90").output

    version = prompt_version(BEST)
    assert f"label  r1-p1-c1\nprompt  {version}\nparent  {stored.incumbent}\n" in shown
    assert f"why  {version} is known\n" in shown
    assert (
        "\n    - Put every marked number into brackets. Put every\n    marked number into" in listed
    )
    assert f"r2-p1-c1   {version}  {stored.incumbent}      1  duplicate  " in wide
    assert max(map(len, listed.splitlines())) <= 60


def test_a_rollback_takes_the_beginning_of_a_version_or_says_what_there_is(
    run: Run, store: SqliteStore, stored: Optimization
) -> None:
    version = prompt_version(BEST)
    to = ("optimize", "rollback", "--reason", "worse", "--store", store.path, "--to")

    unknown = run(*to, "p-none").stderr
    elsewhere = run(*to, version, "--resource", "tone").stderr
    put_back = run(*to, version[:6]).output

    assert unknown == (
        "tau-live: failed to load rollback checkpoint 'p-none': there are system_prompt@1 "
        f"({stored.incumbent}, in force); of runs: {version}\n"
    )
    assert "there is no resource 'tone', only system_prompt\n" in elsewhere
    assert put_back == f"system_prompt is at version 2, which is {version}\n"
