"""Whatever a store holds, no command lets it steer the terminal."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.filled import FAILED, SOLVED

EVIL = "\x1b[2J\x9b31m\u202e\x07\r<b>{{x}}';--=1+1"
TEXTS = {
    "rollouts": ["host", "run_id", "session_id", "name", "error_type"],
    "attempts": ["execution", "error_message"],
    "recorded_spans": ["kind", "name", "status"],
    "decisions": ["why_not", "default_option", "chosen", "applied", "point"],
    "rewards": ["name", "label", "comment", "source"],
    "policies": ["algorithm"],
    "updates": ["skipped_reason"],
    "gate": ["reason", "detail"],
    "gate_log": ["event", "reason", "who"],
    "audit": ["who", "action", "reason"],
    "leases": ["holder"],
    "counters": ["name"],
    "alerts": ["kind", "severity", "sentence", "todo"],
}


@pytest.fixture
def evil(filled: Path) -> Path:
    """A store in which everything that is text tries to steer the terminal."""
    with closing(sqlite3.connect(filled)) as db, db:
        for table, columns in TEXTS.items():
            for column in columns:
                db.execute(f"update {table} set {column} = coalesce({column}, '') || ?", (EVIL,))
        options = json.dumps([f"small{EVIL}", "large"])
        db.execute("update decisions set options = ?", (options,))
        db.execute("update decisions set chosen = ?, applied = ?", (f"small{EVIL}",) * 2)
        db.execute("update rollouts set metadata = ?", (json.dumps({EVIL: EVIL}),))
    return filled


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ["status"],
        ["status", "--all"],
        ["top", "--frames", "1"],
        ["top", "--frames", "1", "--json"],
        ["gate", "show"],
        ["gate", "log"],
        ["rollouts"],
        ["show", SOLVED],
        ["show", FAILED],
        ["why", f"{SOLVED}:attempt-1:decision-1"],
        ["updates"],
        ["updates", "1"],
        ["policy"],
        ["doctor"],
        ["alerts"],
        ["metrics"],
        ["export"],
        ["status", "--json"],
        ["show", SOLVED, "--json"],
        ["show", f"nobody{EVIL}"],
        ["rollouts", "--session", EVIL],
    ],
    ids=lambda call: " ".join(call[:2]).encode("ascii", "backslashreplace").decode(),
)
def test_nothing_that_is_stored_steers_the_terminal(
    call: Sequence[str], evil: Path, run: Run
) -> None:
    told = run(*call, "--store", evil)

    steering = {c for c in told.stdout + told.stderr if not c.isprintable() and c != "\n"}
    assert steering == set()
    assert "internal error" not in told.stderr
