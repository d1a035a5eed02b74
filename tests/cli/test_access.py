"""Every command that changes something asks first who may do it."""

import json
from pathlib import Path

import click
import pytest

from tau_live.cli.commands import COMMANDS
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import CHILD
from tests.cli.test_commands import EVERY

CHANGING = {
    "gate hold": ["gate", "hold", "--reason", "why"],
    "gate reset": ["gate", "reset", "--reason", "why"],
    "pause": ["pause", "learning", "--reason", "why"],
    "resume": ["resume", "learning", "--reason", "why"],
    "kill": ["kill", "--reason", "why"],
    "unkill": ["unkill", "--reason", "why"],
    "reward": ["reward", "1", "--run", CHILD],
    "proxy": ["proxy", "--upstream-url", "http://127.0.0.1:1/v1", "--bind", "127.0.0.1:0"],
    "policy use": ["policy", "use", "1", "--point", "model", "--reason", "why"],
    "policy exposure": ["policy", "exposure", "model", "25%", "--reason", "why"],
    **{
        f"policy {verb}": ["policy", verb, "model", "--reason", "why"]
        for verb in ("promote", "reset", "freeze", "rollback", "pin", "unpin", "undo", "stop")
    },
    "replay": ["replay", __file__],
    "ingest": ["ingest", __file__],
    "ship": ["ship"],
    "import-log": ["import-log", __file__],
    "learn": ["learn", "--once"],
    "restore": ["restore", __file__],
    "store migrate": ["store", "migrate"],
    "store create": ["store", "create"],
    "store copy": ["store", "copy", "other.sqlite"],
    "gc": ["gc", "--older-than", "30d"],
    "forget": ["forget", "live-1", "--reason", "why"],
    "set-aside": ["set-aside", "--reason", "why"],
    **{
        f"optimize {verb}": ["optimize", verb, "--reason", "why"]
        for verb in ("pause", "resume", "cancel", "rollback")
    },
    "bench publish": ["bench", "publish", __file__],
    "bench archive": ["bench", "archive"],
    "bench gc": ["bench", "gc"],
    "start": ["start", "--pipeline", "tfgrpo-learning"],
    "experience run": ["experience", "run"],
    "experience eval": ["experience", "eval"],
    "experience import": ["experience", "import", "."],
    "experience prune": ["experience", "prune", "x-000001", "--reason", "why"],
    "experience rollback": ["experience", "rollback", "--to", "E-1", "--reason", "why"],
    "experience withdraw": ["experience", "withdraw", "E-1", "--reason", "why"],
    **{
        f"experience {verb}": ["experience", verb, "--reason", "why"]
        for verb in ("pause", "resume", "cancel", "ship")
    },
    **{
        f"experience quarantine {verb}": ["experience", "quarantine", verb, "1", "--reason", "why"]
        for verb in ("drop", "restamp")
    },
    "optimize status": ["optimize", "status"],
    "optimize worker": ["optimize", "worker"],
}
ONLY_READING = {
    "demo", "run", "autostart enable", "autostart disable", "autostart status", "status",
    "top", "dashboard", "otlp",
    "gate show", "gate log", "rollouts", "show", "why", "updates", "policy list", "policy show",
    "evaluate", "power", "export", "config", "verify", "doctor", "report", "init",
    "alerts list", "alerts test", "metrics", "completion", "store check", "store cost",
    *(f"experience {verb}" for verb in (
        "status", "list", "show", "history", "diff", "verify", "quarantine list", "export",
        "pack init", "pack stamp", "pack check", "demo",
    )),
    "optimize list", "optimize show", "optimize prompts", "optimize aliases",
    *(f"bench {verb}" for verb in (
        "suite list", "suite check", "freeze", "run", "compare", "prove", "demo", "validate",
        "template", "report", "summary", "repeatability", "index", "drill", "ops", "gate",
    )),
}  # fmt: skip
"""What changes nothing, or nothing of a store (`autostart`, `init`, `run`, `demo`)."""


@pytest.fixture
def denying(tmp_path: Path) -> Path:
    """Return a file that lets nobody do anything."""
    path = tmp_path / "access.json"
    path.write_text('{"schema_version": 1, "team_mode": true}')
    return path


@pytest.mark.parametrize("command", CHANGING)
def test_what_nobody_may_do_is_refused_and_changes_nothing(
    command: str, filled: Path, run: Run, denying: Path
) -> None:
    before = filled.read_bytes(), sorted(path.name for path in filled.parent.iterdir())

    result = run(
        *CHANGING[command],
        *([filled] if command == "store copy" else ["--store", filled]),
        TAU_LIVE_RL="1", TAU_LIVE_RL_ACCESS=str(denying), TAU_LIVE_RL_PRINCIPAL="team:night",
        FEATURE_TFGRPO_GROUP="1",
    )  # fmt: skip

    assert result.exit_code == 1
    assert result.stderr.startswith(
        "tau-live: unauthorized rl lifecycle action: principal=team:night "
        f"action=control:rl:{command.rsplit(maxsplit=1)[-1]} reason_code=deny_unbound_principal"
    )
    assert (filled.read_bytes(), sorted(path.name for path in filled.parent.iterdir())) == before


def test_every_command_is_known_to_change_something_or_not() -> None:
    commands = {
        path.removeprefix("tau-live ")
        for path, command in EVERY.items()
        if not isinstance(command, click.Group)
    }

    assert commands == CHANGING.keys() | ONLY_READING
    assert set(COMMANDS) == {name.split()[0] for name in commands}


def test_what_a_role_allows_is_done_and_written_down_with_who(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "access.json"
    path.write_text(
        json.dumps(
            {
                "schema_version": 1,
                "team_mode": True,
                "bindings": [{"principal": "team:night", "roles": ["night"]}],
                "roles": {"night": {"allow": ["control:rl:pause"]}},
            }
        )
    )
    environ = {"TAU_LIVE_RL_ACCESS": str(path), "TAU_LIVE_RL_PRINCIPAL": "team:night"}

    allowed = run("pause", "learning", "--reason", "why", "--store", filled, **environ)
    denied = run("resume", "learning", "--reason", "why", "--store", filled, **environ)

    assert (allowed.exit_code, denied.exit_code) == (0, 1)
    assert "reason_code=deny_no_matching_allow" in denied.stderr
    store = SqliteStore.open(filled, read_only=True)
    entry = store.audit.entries(limit=1)[0]
    store.close()
    assert entry.action == "pause"
    assert entry.who.endswith(" as team:night")


def test_a_broken_file_refuses_what_changes_and_lets_everybody_look(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "access.json").write_text("{")
    environ = {"TAU_LIVE_RL_ACCESS": str(tmp_path / "access.json")}

    changes = run("pause", "learning", "--reason", "why", "--store", filled, **environ)
    looks = run("status", "--store", filled, **environ)

    assert (changes.exit_code, looks.exit_code) == (1, 0)
    assert "cannot be read, so nothing may be changed: " in changes.stderr


def test_doctor_says_that_nobody_can_change_anything(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "access.json").write_text("{")

    result = run("doctor", "--store", filled, TAU_LIVE_RL_ACCESS=str(tmp_path / "access.json"))

    assert result.exit_code == 1
    assert "so nothing may be changed" in " ".join(result.stdout.split())
