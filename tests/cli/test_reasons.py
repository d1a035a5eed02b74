"""What operators say passes the scrubber and the installed redactors before it is written."""

import sys
from pathlib import Path

import pytest

from tau_live.cli import main
from tau_live.cli.commands import Commands
from tau_live.core.records import rollout_id_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.written import installed

REDACTOR = """
from threading import Event
from tau_live.core.hookspecs import hookimpl

@hookimpl
def redact_text(text):
    {does}
"""
HIDES = "return text.text.replace('Ada', f'[{text.event}.{text.field}]')"
SECRET = "sk-ant-api03-" + "x1Y2z3" * 16


@pytest.fixture
def redactor(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Install a package with a redactor, as pip would have."""
    assert isinstance(main, Commands)
    monkeypatch.setattr(main, "_has_plugins", False)
    monkeypatch.delitem(sys.modules, "ada_redactor", raising=False)
    site = installed(Path.cwd(), "ada-redactor", "1.0", "[tau_live]\nada = ada_redactor\n")
    does = str(getattr(request, "param", HIDES))
    (site / "ada_redactor.py").write_text(REDACTOR.format(does=does))
    monkeypatch.syspath_prepend(site)
    return does


def written(store: Path) -> tuple[str, bytes]:
    """Return the newest reason of the audit, and all that lies in the store's folder."""
    opened = SqliteStore.open(store, read_only=True)
    [entry] = opened.audit.entries(limit=1)
    opened.close()
    return entry.reason, b"".join(one.read_bytes() for one in store.parent.glob("store.sqlite*"))


@pytest.mark.usefixtures("redactor")
@pytest.mark.parametrize(
    "command",
    [
        ("gate", "hold"), ("gate", "reset"), ("pause", "learning"), ("resume", "learning"),
        ("kill",), ("unkill",), ("policy", "exposure", "model", "25%"), ("policy", "pin", "model"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_reason_passes_redactors(command: tuple[str, ...], filled: Path, run: Run) -> None:
    result = run(*command, "--store", filled, "--reason", f"Ada called about {SECRET}")

    reason, everything = written(filled)
    assert result.exit_code == 0
    assert reason.startswith("[audit.reason] called about [redacted:")
    assert b"Ada called" not in everything
    assert SECRET.encode() not in everything
    assert "Ada" not in result.stdout


@pytest.mark.parametrize(
    "redactor", ["raise RuntimeError('out of order')", "return 7", "return ' '"], indirect=True
)
def test_what_a_redactor_fails_at_is_left_out_and_what_was_said_is_done(
    redactor: str, filled: Path, run: Run
) -> None:
    result = run("kill", "--store", filled, "--reason", "Ada called")

    reason, everything = written(filled)
    assert (result.exit_code, reason) == (0, "[redacted:plugin]"), redactor
    assert b"Ada called" not in everything
    assert filled.with_name("store.sqlite.off").exists()


@pytest.mark.parametrize("redactor", ["Event().wait()"], indirect=True)
@pytest.mark.slow
def test_a_redactor_that_hangs_keeps_nobody_from_the_kill_switch(
    redactor: str, filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.cli.options.REDACTORS_S", 0.05)

    result = run("kill", "--store", filled, "--reason", "Ada called")

    assert (result.exit_code, written(filled)[0]) == (0, "[redacted:plugin]"), redactor


@pytest.mark.usefixtures("redactor")
def test_a_reward_said_at_the_command_line_passes_them_too(filled: Path, run: Run) -> None:
    asked = (
        "--run",
        rollout_id_of("test", "r1"),
        "--name",
        "Ada",
        "--comment",
        "Ada is glad",
        "--store",
        filled,
    )

    result = run("reward", "1", *asked)

    everything = b"".join(one.read_bytes() for one in filled.parent.glob("store.sqlite*"))
    assert result.exit_code == 0
    assert b"Ada is glad" not in everything
    assert b"[reward.comment] is glad" in everything
    assert b"[reward.name]" in everything


def test_without_a_redactor_a_reason_stays(filled: Path, run: Run) -> None:
    run("gate", "hold", "--store", filled, "--reason", "Ada called")

    assert written(filled)[0] == "Ada called"
