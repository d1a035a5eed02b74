import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper, ProcessReport
from tau_live.record.heartbeats import beat
from tau_live.store.opening import open_at
from tau_live.store.records import Topic
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold
from tests.core.gate.holding import holding
from tests.postgres import needs_postgres, server


def test_a_gate_that_passes_is_exit_code_0(filled: Path, run: Run) -> None:
    result = run("gate", "--store", filled)

    assert result.exit_code == 0
    assert "pass" in result.stdout


def test_a_gate_that_holds_is_exit_code_3_and_says_why(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("gate", "show", "--store", filled)

    assert result.exit_code == 3
    assert "reason             collection_failures\n" in result.stdout
    assert "last error         disk full\n" in result.stdout
    assert "tau-live gate reset --reason" in result.stdout


@needs_postgres
def test_the_next_step_is_printed_once_whoever_holds(run: Run) -> None:
    address = server().new_database()
    held = ProcessReport(revision=0, reason="decision_failures", detail="wrong")
    with closing(open_at(address)) as store:
        for number in range(2):
            beat(store, f"host-{number}:1:2", held)

    alone = run("gate", "--store", address)
    run("gate", "hold", "--reason", "audit", "--store", address)
    all_hold = run("gate", "--store", address)

    for shown, code in ((alone, 0), (all_hold, 3)):
        assert (shown.exit_code, shown.stdout.count("holds alone")) == (code, 2)
        assert shown.stdout.count("tau-live gate reset") == 1


def test_its_json_has_the_same_exit_code(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("gate", "--json", "--store", filled)

    assert result.exit_code == 3
    assert '"state": "hold"' in result.stdout


def test_a_reset_is_seen_by_a_store_that_is_open_elsewhere(filled: Path, run: Run) -> None:
    hold(filled)
    elsewhere = SqliteStore.open(filled)
    assert elsewhere.gate.load().state == "hold"
    elsewhere.changes()

    result = run("gate", "reset", "--reason", "new disk", "--store", filled)

    assert result.exit_code == 0
    assert Topic.GATE in elsewhere.changes()
    row = elsewhere.gate.load()
    assert (row.state, sum(row.streaks.values())) == ("pass", 0)
    elsewhere.close()


@pytest.mark.slow
@pytest.mark.parametrize("last", ["hold", "reset"])
def test_a_gate_whose_row_was_removed_holds_until_it_is_reset(
    last: str, filled: Path, run: Run
) -> None:
    run("gate", "hold", "--reason", "leaks", "--store", filled)
    if last == "reset":
        run("gate", "reset", "--reason", "over", "--store", filled)
    elsewhere = SqliteStore.open(filled)
    running = GateKeeper(limit=3, who="agent")
    running.refresh(elsewhere.gate)
    before = running.passes
    with closing(sqlite3.connect(filled)) as db, db:
        db.execute("delete from gate")

    running.refresh(elsewhere.gate)
    held, started = running.passes, GateKeeper(limit=3, who="new")
    started.refresh(elsewhere.gate)
    shown = run("gate", "--store", filled)
    run("gate", "reset", "--reason", "looked at it", "--store", filled)
    running.refresh(elsewhere.gate)

    assert (before, held, started.passes) == (last == "reset", False, False)
    assert (shown.exit_code, "gate_removed" in shown.stdout) == (3, True)
    assert "set by" not in shown.stdout
    assert running.passes
    assert run("verify", "--store", filled).exit_code == 0
    elsewhere.close()


@pytest.mark.parametrize("streaks", ["{", "[]", '{"updates": "x"}'])
def test_a_gate_whose_row_is_odd_holds_until_it_is_reset(
    streaks: str, filled: Path, run: Run
) -> None:
    with closing(sqlite3.connect(filled)) as database, database:
        database.execute(
            "insert or replace into gate values (1, 'pass', null, null, 0, ?, 1)", (streaks,)
        )

    odd = run("gate", "--store", filled)
    reset = run("gate", "reset", "--reason", "it was edited", "--store", filled)
    after = run("gate", "--store", filled)

    assert (odd.exit_code, reset.exit_code, after.exit_code) == (3, 0, 0)
    assert "the gate's row was edited, not by tau-live" in odd.stdout


def test_a_reset_writes_down_who_and_why_twice(filled: Path, read: Read) -> None:
    hold(filled)

    done = read("gate", "reset", "--reason", "new disk", "--store", filled)

    assert isinstance(done, dict)
    assert done["was"] == "hold"
    store = SqliteStore.open(filled, read_only=True)
    line, entry = store.gate.log(limit=1)[0], store.audit.entries(limit=1)[0]
    store.close()
    assert (line.event, line.reason, line.who) == ("reset", "new disk", done["who"])
    assert (entry.action, entry.reason, entry.who) == ("gate_reset", "new disk", done["who"])
    assert dict(entry.details) == {"was": "hold", "idempotent": False}


def test_a_gate_that_passes_may_be_reset_too(filled: Path, read: Read) -> None:
    done = read("gate", "reset", "--reason", "to be sure", "--store", filled)

    assert isinstance(done, dict)
    assert (done["was"], done["state"]) == ("pass", "pass")


def test_the_log_shows_the_newest_first(filled: Path, run: Run, read: Read) -> None:
    run("gate", "reset", "--reason", "again", "--store", filled)

    found = read("gate", "log", "--limit", "1", "--store", filled)

    assert isinstance(found, dict)
    assert [entry["reason"] for entry in found["entries"]] == ["again"]


def test_the_log_shows_what_an_operator_said_of_a_hold(filled: Path, run: Run, read: Read) -> None:
    run("gate", "hold", "--reason", "audit today", "--store", filled)

    found = read("gate", "log", "--limit", "1", "--store", filled)
    shown = run("gate", "log", "--store", filled)

    assert isinstance(found, dict)
    assert (found["entries"][0]["reason"], found["entries"][0]["detail"]) == (
        "operator",
        "audit today",
    )
    assert "operator: audit today" in shown.stdout


def test_failures_that_did_not_hold_it_do_not_date_it_to_1970(
    tmp_path: Path, run: Run, read: Read
) -> None:
    path = tmp_path / "new.sqlite"
    with closing(SqliteStore.open(path)) as store:
        keeper = GateKeeper(limit=3, who="p")
        keeper.record_failure(Kind.DECISION, "no such option", at=time.time())
        keeper.refresh(store.gate)
        assert store.gate.load().revision == 1

    result, shown = run("gate", "--store", path), read("gate", "--store", path)
    status, figures = read("status", "--store", path), run("metrics", "--store", path)

    assert isinstance(shown, dict)
    assert isinstance(status, dict)
    assert "decision 1" in result.stdout
    assert "since" not in result.stdout
    assert shown["since"] is status["gate"]["since"] is None
    assert "\ntau_live_gate_changed_timestamp_seconds" not in figures.stdout


def test_a_hold_in_the_memory_of_a_process_is_exit_code_3(filled: Path, run: Run) -> None:
    with holding(filled) as process:
        result = run("gate", "--store", filled)
        reset = run("gate", "reset", "--reason", "tried", "--store", filled)
        process.kill()

    assert result.exit_code == 3
    assert f"note: process {process.pid} holds in memory" in reset.stderr
    assert f"by process {process.pid} since 2027-01-15 08:00:00" in result.stdout
    assert result.stdout.endswith(f"tau-live doctor --store {filled}\n")
