"""A store that cannot be used for a while: what goes on, what waits, and what is said."""

import itertools
import json
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

import tau_live
from tau_live.core.errors import StoreBusyError, StoreUnavailableError
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.settings import Settings
from tau_live.record.inbox import Inbox
from tau_live.record.trouble import Trouble
from tau_live.runtime import build
from tests.faulty_vfs import FULL, Plan, faulty_disk
from tests.live.running import gate, opened, rollouts, rounds, until
from tests.streams import event


@pytest.fixture
def impatient(path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Attach with connections that wait for a lock for 0.05 s instead of 5."""
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    real = build.open_store
    monkeypatch.setattr(
        build, "open_store", lambda settings, **_: real(settings, busy_timeout_s=0.05)
    )
    assert tau_live.attach(settings) is not None
    return path


def trouble() -> dict[str, object]:
    found = tau_live.snapshot()["store_trouble"]
    return found if isinstance(found, dict) else {}


@pytest.mark.slow
def test_a_store_that_is_locked_for_long_holds_nothing_and_loses_nothing(
    impatient: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rounds(4)
    assert tau_live.flush(30)
    other = sqlite3.connect(impatient, isolation_level=None, timeout=30)
    other.execute("begin immediate")

    rounds(4, start=4)
    until(lambda: trouble().get("busy") is True)
    with tau_live.run("late", key="late") as run:
        choice = run.decide("model", ["a", "b"], default="b")
    said = [record.message for record in caplog.records if "store_busy" in record.message]
    until(lambda: len(caplog.records) >= 1)
    state = gate()["state"]
    other.execute("rollback")
    other.close()
    flushed = tau_live.flush(30)
    until(lambda: not trouble())
    tau_live.detach()

    assert (choice.source, state, flushed) == ("policy", "pass", True)
    assert len(said) == 1
    assert len(rollouts(impatient)) == 9
    with opened(impatient) as store:
        assert store.gate.log() == []


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_taken(
    path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    with faulty_disk() as disk:
        tau_live.attach(settings)
        rounds(4)
        assert tau_live.flush(30)
        disk.fail(Plan(at=1, lasting=True, calls=("write",), error=FULL))

        rounds(4, start=4)
        until(lambda: gate()["state"] == "hold")
        found, waited = trouble(), tau_live.flush(30)
        with tau_live.run("held", key="held") as run:
            choice = run.decide("model", ["a", "b"], default="b")
        disk.heal()
        until(lambda: gate()["state"] == "pass")
        rounds(4, start=8)
        flushed = tau_live.flush(30)
        tau_live.detach()

    assert waited is False
    assert "the disk is full" in str(found["error"])
    assert "free disk space" in str(found["todo"])
    assert (choice.option, choice.source, flushed) == ("b", "default", True)
    assert len(rollouts(path)) == 12
    with opened(path) as store:
        assert [line.event for line in store.gate.log()] == ["held_in_memory"]


def test_what_one_cause_says_is_said_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper = GateKeeper(limit=3, who="one")
    minutes = itertools.count(step=60)
    trouble = Trouble(keeper, limit=3, monotonic=lambda: float(next(minutes)))

    for _ in range(2):
        for _ in range(50):
            trouble.record_failure(StoreUnavailableError("full"))
            trouble.record_failure(StoreBusyError("locked"))
        trouble.record_success()

    words = [record.message.split()[0] for record in caplog.records]
    assert words == ["event='store_fails'", "event='store_busy'", "event='store_works_again'"] * 2
    assert keeper.passes


def test_a_store_that_others_keep_busy_never_holds() -> None:
    keeper = GateKeeper(limit=1, who="one")
    trouble = Trouble(keeper, limit=1)

    for _ in range(100):
        trouble.record_failure(StoreBusyError("locked"), opening=True)

    assert (keeper.passes, trouble.holds_gate, trouble.is_failing) == (True, False, True)
    assert json.dumps(trouble.to_dict())


def test_a_failure_is_another_threads_own_only_if_the_writer_writes_meanwhile() -> None:
    trouble = Trouble(GateKeeper(limit=3, who="one"), limit=3)
    error = StoreUnavailableError("full")

    found = [trouble.is_only_here(error), trouble.is_only_here(error)]
    trouble.record_write()
    found += [trouble.is_only_here(error), trouble.is_only_here(StoreBusyError("locked"))]
    trouble.record_failure(error)
    trouble.record_write()
    found.append(trouble.is_only_here(error))

    assert found == [True, False, True, False, False]


def test_while_nothing_can_be_stored_whole_runs_are_left_out() -> None:
    from tau_live.core import events as ev

    batches: list[int] = []
    inbox = Inbox(
        write=lambda batch: batches.append(len(batch)),
        tick=lambda: None,
        limit=20,
        takes=lambda: False,
    )
    inbox.start()

    taken = [
        [inbox.put(event(kind, f"run-{number}")) for kind in (ev.RunStart, ev.RunEnd)]
        for number in range(20)
    ]
    hopeless = inbox.flush(30.0, hopeless=lambda: True)

    assert hopeless is False
    assert batches == []
    assert {tuple(of) for of in taken} == {(True, True), (False, False)}
    assert inbox.close(30.0)
    assert sum(batches) == 2 * taken.count([True, True])


@pytest.mark.slow
def test_a_numbering_that_was_edited_holds_the_gate_and_refuses_no_run(
    impatient: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rounds(4)
    assert tau_live.flush(30)
    with closing(sqlite3.connect(impatient, timeout=30)) as db, db:
        db.execute("update sequences set value = 9223372036854775807 where name = 'ready'")

    numbers = count(4)

    def wrote() -> bool:
        rounds(1, start=next(numbers))  # a run that is ready has its number already
        return gate()["state"] == "hold"

    until(wrote)
    said = trouble()
    with closing(sqlite3.connect(impatient, timeout=30)) as db, db:
        db.execute("update sequences set value = 4 where name = 'ready'")
    until(lambda: not trouble())

    assert "its numbering 'ready' was edited or removed" in str(said["error"])
    assert tau_live.flush(30)
    assert not [record for record in caplog.records if "event_refused" in record.message]
