"""Flags at the top level that stand for commands, and the report on deprecated ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from tau_live.cli.aliases import DEPRECATED_FLAGS, NAMES, translate
from tests.cli.conftest import Run
from tests.prompts.stubs import PROMPT, REF, rows

CONFIG = "--prompt-optimization-config"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    config = {
        "optimize": rows(0, 4),
        "validate": rows(1000, 20),
        "resources": {"system_prompt": PROMPT},
        "model": f"{REF}task_model",
        "search": {"algorithm": "none"},
    }
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(config))
    return path


def line(old: str) -> str:
    return f"deprecated CLI alias '{old}' detected; use '{DEPRECATED_FLAGS[old]}' instead."


def test_a_canonical_flag_is_the_command_and_silent(run: Run, tasks: Path) -> None:
    flag = run(CONFIG, tasks, "--dry-run")
    command = run("optimize", "--config", tasks, "--dry-run")

    assert flag.exit_code == command.exit_code == 0
    assert (flag.stdout, flag.stderr) == (command.stdout, "")


def test_deprecated_flags_are_reported_once_each_in_the_order_of_the_table(
    run: Run, tasks: Path, tmp_path: Path
) -> None:
    typed = ["--train-json", f"--train-store-sqlite={tmp_path / 's'}", "--train-json"]

    result = run(*typed, "--train-config", tasks, "--dry-run")

    old = ["--train-config", "--train-store-sqlite", "--train-json"]
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [line(name) for name in old]
    found: Any = json.loads(result.stdout)
    assert found["deprecations"] == [
        {"old": name, "new": DEPRECATED_FLAGS[name], "kind": "flag"} for name in old
    ]


def test_deprecated_keys_come_after_the_flags(run: Run, tasks: Path) -> None:
    config = json.loads(tasks.read_text())
    config["train"], config["val"] = config.pop("optimize"), config.pop("validate")
    tasks.write_text(json.dumps(config))

    result = run("--train-config", tasks, "--train-json", "--dry-run")

    assert [known["old"] for known in json.loads(result.stdout)["deprecations"]] == [
        "--train-config", "--train-json", "train", "val",
    ]  # fmt: skip
    assert result.stderr.splitlines()[2:] == [
        "deprecated config key 'train' detected; use 'optimize' instead.",
        "deprecated config key 'val' detected; use 'validate' instead.",
    ]


@pytest.mark.parametrize("old", DEPRECATED_FLAGS)
def test_an_old_and_a_new_name_together_are_wrong_usage(run: Run, old: str) -> None:
    new = DEPRECATED_FLAGS[old]
    for names in ((old, new), (new, old)):
        words = [f"{name}=x" if NAMES[new].has_value else name for name in names]

        result = run(*words)

        assert result.exit_code == 2
        assert f"'{old}' and '{new}' were both given" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--prompt-optimization-json=yes",),
        (CONFIG,),
        (f"{CONFIG}=",),
        ("--prompt-optimization-control-pause", "--prompt-optimization-control-cancel"),
        ("--prompt-optimization-json",),
    ],
)
def test_unclear_flags_are_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["--", "--train-json"], ["run", "--", "agent", "--train-json"], ["status"]]
)
def test_nothing_after_a_command_or_two_dashes_is_a_flag(arguments: list[str]) -> None:
    assert translate(arguments) == (arguments, {}, ())


def test_variables_stand_for_flags(run: Run, tasks: Path) -> None:
    flags = run(CONFIG, tasks, "--prompt-optimization-json", "--dry-run")

    environ = {"TAU_PROMPT_OPTIMIZATION_CONFIG": str(tasks), "TAU_PROMPT_OPTIMIZATION_JSON": "1"}
    assert run("optimize", "--dry-run", **environ).stdout == flags.stdout
    ran: Any = json.loads(run(**environ).stdout)
    assert ran["run_state"] == "completed"
    assert "Usage: tau-live" in run(TAU_PROMPT_OPTIMIZATION_JSON="1").stdout


def test_control_flags_act_on_the_store_of_a_state_folder(
    run: Run, tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL_PRINCIPAL", "nobody")  # so that it is put back
    monkeypatch.setenv("TAU_LIVE_RL_ACCESS", "")
    run("optimize", "--config", tasks, "--yes", "--store", "state/training/store.sqlite")
    folder = ["--prompt-optimization-control-state-dir", "state"]

    status = run("--prompt-optimization-control-status", *folder)
    canceled = run(
        "--prompt-optimization-control-cancel",
        "--prompt-optimization-control-json",
        "--prompt-optimization-control-principal=ops",
        *folder,
    )

    assert (
        status.stdout
        == run("optimize", "status", "--store", folder[1] + "/training/store.sqlite").stdout
    )
    found: Any = json.loads(canceled.stdout)
    assert found["lifecycle_state"] == "completed"
    assert found["principal"].endswith(" as ops")
    assert found["reason"] == "none given: `--prompt-optimization-control-cancel`"


def test_an_access_file_of_the_flags_denies(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL_ACCESS", "")

    result = run(
        "--prompt-optimization-control-pause",
        f"--prompt-optimization-control-rbac-policy={tmp_path / 'missing.json'}",
    )

    assert result.exit_code == 1
    assert "missing.json" in result.stderr


@pytest.mark.slow
def test_the_report_has_every_name_and_fails_for_one_that_does_not_work_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_json, as_table = tmp_path / "report.json", tmp_path / "report.md"

    whole = run("optimize", "aliases", "--output-json", as_json, "--output-md", as_table)
    (tmp_path / "sitecustomize.py").write_text(
        "from tau_live.cli import aliases\naliases.DEPRECATED_FLAGS.pop('--train-json')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    broken = run("optimize", "aliases")

    report, table = read_report(as_json), as_table.read_text()
    assert whole.exit_code == 0, whole.output
    assert report["summary"] == {"total": len(report["commands"]), "passed": 32, "failed": 0}
    assert all(command["cmd"].replace("|", "") in table for command in report["commands"])
    names = {command["name"] for command in report["commands"]}
    assert {"--train-config", "--train-config=", "--train-json", "train", "val"} <= names
    assert broken.exit_code == 1
    assert "1 of 32 names do not work" in broken.stderr
    again = read_report(Path("tasks/reports/m22-compatibility-alias-validation.json"))
    pairs = [*zip(report["commands"], again["commands"], strict=True)]
    # all others are the same twice
    assert [second["name"] for first, second in pairs if first != second] == ["--train-json"]
    assert [each["name"] for each in again["commands"] if each["status"] == "failed"] == [
        "--train-json"
    ]
    assert {**report, "commands": None, "summary": None} == {
        **again, "commands": None, "summary": None,
    }  # fmt: skip


def read_report(path: Path) -> Any:
    """Return a report without the time at which it was made."""
    report = json.loads(path.read_text())
    assert report.pop("generated_at")
    return report
