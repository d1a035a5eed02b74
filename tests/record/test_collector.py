"""The collector: events become rollouts, whatever order, repetition or silence they come in."""

from pathlib import Path
from typing import Any

import pytest

from tau_live.core import events as ev
from tau_live.core.errors import StoreError, StoreUnavailableError
from tau_live.core.records import AttemptStatus, Reason, RolloutStatus, attempt_id_of, rollout_id_of
from tau_live.record import collector as collecting
from tau_live.store.roles import Store
from tau_live.store.sqlite.store import SqliteStore
from tests.collecting import (
    CANCELLED,
    SUCCEEDED,
    R,
    attempts,
    decision,
    end,
    ended,
    spans,
    start,
    tool,
    tool_end,
)
from tests.contracts.making import steps
from tests.streams import HOST, collected, collector_of, event
from tests.writes import writes


def test_a_run_is_a_rollout_with_an_attempt_and_its_spans(store: Store) -> None:
    collected(store, [start(name="triage"), tool(2), tool_end(3), decision(4), end()])

    rollout = store.rollouts.rollout(R)
    assert (rollout.name, rollout.host, rollout.run_id) == ("triage", HOST, "r")
    assert (rollout.started_at, rollout.ended_at, rollout.owner) == (1.0, 9.0, "here:1:1")
    assert ended(store) == SUCCEEDED
    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 9.0)]
    assert spans(store) == [(1, "tool:c", "ok")]
    assert [d.decision_id for d in store.decisions.decisions(R)] == [
        f"{attempt_id_of(R, 1)}:decision-1"
    ]


def test_a_start_tells_what_a_rollout_is(store: Store) -> None:
    told = start(
        session_id="s",
        model="m",
        tools=("grep",),
        trigger="user",
        host_version="1.2",
        input=ev.Content(text="hello", chars=5),
        metadata={"ticket": 7},
    )

    collected(store, [told])

    rollout = store.rollouts.rollout(R)
    assert rollout.session_id == "s"
    assert rollout.input == {"chars": 5, "text": "hello"}
    assert rollout.metadata == {
        "ticket": 7,
        "model": "m",
        "tools": ["grep"],
        "trigger": "user",
        "host_version": "1.2",
    }


def test_an_end_tells_what_a_run_took(store: Store) -> None:
    told = end(usage={"input": 3.0}, cost_usd=0.5, turns=2, output=ev.Content(chars=4), dropped=6)

    collected(store, [start(metadata={"turns": "mine"}), told])

    assert store.rollouts.rollout(R).metadata == {
        "turns": "mine",
        "usage": {"input": 3.0},
        "cost_usd": 0.5,
        "output": {"chars": 4},
        "dropped_events": 6,
    }


@pytest.mark.parametrize(
    ("fields", "expected", "attempt"),
    [
        ({"status": ev.Status.OK}, SUCCEEDED, AttemptStatus.SUCCEEDED),
        ({"status": None}, SUCCEEDED, AttemptStatus.SUCCEEDED),
        ({"status": ev.Status.ERROR}, (RolloutStatus.FAILED, Reason.ERROR), AttemptStatus.FAILED),
        (
            {"status": None, "error": ev.ErrorInfo(type="KeyError")},
            (RolloutStatus.FAILED, Reason.ERROR),
            AttemptStatus.FAILED,
        ),
        (
            {"status": ev.Status.ERROR, "reason": Reason.TIMEOUT},
            (RolloutStatus.FAILED, Reason.TIMEOUT),
            AttemptStatus.TIMEOUT,
        ),
        (
            {"status": None, "reason": Reason.TIMEOUT},
            (RolloutStatus.FAILED, Reason.TIMEOUT),
            AttemptStatus.TIMEOUT,
        ),
        ({"status": ev.Status.CANCELLED}, CANCELLED, AttemptStatus.FAILED),
        ({"status": None, "reason": Reason.CANCELLED}, CANCELLED, AttemptStatus.FAILED),
        ({"status": ev.Status.LIMIT}, (RolloutStatus.FAILED, Reason.LIMIT), AttemptStatus.FAILED),
        (
            {"status": ev.Status.VETOED},
            (RolloutStatus.FAILED, Reason.SAFETY_BLOCKED),
            AttemptStatus.FAILED,
        ),
        (
            {"status": ev.Status.INTERRUPTED},
            (RolloutStatus.FAILED, Reason.INTERRUPTED),
            AttemptStatus.FAILED,
        ),
        (
            {"status": ev.Status.UNKNOWN},
            (RolloutStatus.FAILED, Reason.ABANDONED),
            AttemptStatus.UNRESPONSIVE,
        ),
    ],
)
def test_every_end_is_told_as_it_was(
    store: Store,
    fields: dict[str, Any],
    expected: tuple[RolloutStatus, Reason],
    attempt: AttemptStatus,
) -> None:
    collected(store, [start(), end(**fields)])

    assert ended(store) == expected
    assert attempts(store) == [(1, attempt, 9.0)]


def test_a_failed_run_names_its_error(store: Store) -> None:
    failed = end(status=ev.Status.ERROR, error=ev.ErrorInfo(type="KeyError", message="secret"))

    collected(store, [start(), failed])

    assert store.rollouts.rollout(R).error_type == "KeyError"
    assert store.rollouts.attempts(R)[0].error_message == "KeyError"


def test_a_late_start_fills_in_what_it_tells(store: Store) -> None:
    collected(store, [tool(1), start(2, name="triage", session_id="s", parent_run_id="p"), end()])

    rollout = store.rollouts.rollout(R)
    assert (rollout.name, rollout.session_id) == ("triage", "s")
    assert rollout.parent_id == rollout_id_of(HOST, "p")
    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 9.0)]
    assert spans(store) == [(1, "tool:c", "unknown")]


def test_a_start_after_the_end_fills_in_what_it_tells(store: Store) -> None:
    collected(store, [end(), start(1, name="triage")])

    assert store.rollouts.rollout(R).name == "triage"
    assert ended(store) == SUCCEEDED
    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 9.0)]


def test_a_run_whose_start_never_came_is_a_rollout(store: Store) -> None:
    collected(store, [decision(3), end(agent="planner")])

    assert ended(store) == SUCCEEDED
    assert store.rollouts.rollout(R).name == "planner"
    assert len(store.decisions.decisions(R)) == 1


def test_a_run_whose_end_never_came_goes_on(store: Store) -> None:
    collected(store, [start(), tool(2)])

    assert ended(store) == (RolloutStatus.RUNNING, None)
    assert attempts(store) == [(1, AttemptStatus.RUNNING, None)]


def test_an_end_before_its_start_keeps_what_both_tell(store: Store) -> None:
    collected(store, [tool_end(3, result=ev.Content(chars=2)), tool(2), start(1), end()])

    assert spans(store) == [(1, "tool:c", "ok")]


def test_a_late_end_changes_nothing_and_is_counted(store: Store) -> None:
    collected(store, [start(), end(5), end(7, status=ev.Status.ERROR)])

    assert ended(store) == SUCCEEDED
    assert store.rollouts.rollout(R).ended_at == 5.0
    assert store.counters.counts() == {"late_ends": 1}


def test_the_same_end_again_is_not_late(store: Store) -> None:
    collected(store, [start(), end(5), end(5)])

    assert store.counters.counts() == {}


def test_a_cancellation_closes_what_is_open(store: Store) -> None:
    collected(store, [start(), tool(2, "a"), tool(3, "b"), tool_end(4, "b")])
    collected(store, [end(status=ev.Status.CANCELLED)])

    assert spans(store) == [(1, "tool:a", "cancelled"), (1, "tool:b", "ok")]
    assert [span.ended_at for span in steps(store, R)] == [9.0, 4.0]


def test_an_end_closes_what_is_open_without_saying_how(store: Store) -> None:
    collected(store, [start(), tool(2), end()])

    assert spans(store) == [(1, "tool:c", "unknown")]


def test_a_child_is_linked_by_id_before_its_parent_comes(store: Store) -> None:
    child = event(ev.RunStart, "child", 2.0, parent_run_id="r")
    child_end = event(ev.RunEnd, "child", 12.0, status=ev.Status.OK)

    collected(store, [child, start(1), end(9), child_end])

    assert store.rollouts.rollout(rollout_id_of(HOST, "child")).parent_id == R
    assert (ended(store, "r"), ended(store, "child")) == (SUCCEEDED, SUCCEEDED)


def test_a_parent_may_be_another_hosts(store: Store) -> None:
    collected(store, [start(parent_run_id="p", parent_host="other")])

    assert store.rollouts.rollout(R).parent_id == rollout_id_of("other", "p")


def test_what_is_open_is_ended_with_its_reason(store: Store) -> None:
    collected(store, [start(), tool(2)])

    with store.begin():
        count = collector_of(store).end_open(reason=Reason.INTERRUPTED, at=5.0)

    assert count == 1
    assert ended(store) == (RolloutStatus.FAILED, Reason.INTERRUPTED)
    assert attempts(store) == [(1, AttemptStatus.FAILED, 5.0)]
    assert spans(store) == [(1, "tool:c", "unknown")]


def test_what_has_ended_is_not_ended_again(store: Store) -> None:
    collector = collector_of(store)
    with store.begin():
        collector.apply([start(), end(5), tool(6)])

    with store.begin():
        count = collector.end_open(reason=Reason.INTERRUPTED, at=9.0)

    assert count == 0
    assert ended(store) == SUCCEEDED


def test_a_forgotten_transaction_does_not_hide_what_is_open(store: Store) -> None:
    collector = collector_of(store)
    with store.begin():
        collector.apply([start()])
    collector.forget()

    with store.begin():
        count = collector.end_open(reason=Reason.INTERRUPTED, at=9.0)

    assert count == 1


def test_what_was_never_stored_is_not_ended(store: Store) -> None:
    collector = collector_of(store)
    with pytest.raises(KeyError), store.begin():
        collector.apply([start()])
        raise KeyError
    collector.forget()

    with store.begin():
        count = collector.end_open(reason=Reason.INTERRUPTED, at=9.0)

    assert count == 0


def test_only_what_the_dead_process_left_is_abandoned(store: Store) -> None:
    mine = event(ev.RunStart, "mine", 1.0)
    collected(store, [mine])
    collected(store, [start(2), event(ev.RunStart, "done", 2.0)], owner="dead:1:1")
    collected(store, [event(ev.RunEnd, "done", 3.0, status=ev.Status.OK)], owner="dead:1:1")

    with store.begin():
        count = collector_of(store).end_owned("dead:1:1", reason=Reason.ABANDONED, at=9.0)

    assert count == 1
    assert ended(store) == (RolloutStatus.FAILED, Reason.ABANDONED)
    assert ended(store, "mine") == (RolloutStatus.RUNNING, None)
    assert ended(store, "done") == SUCCEEDED


def test_what_waits_to_be_run_again_is_abandoned_too(store: Store) -> None:
    collected(store, [start()], owner="dead:1:1")
    writes(store).set_status(R, RolloutStatus.REQUEUING, at=2.0)

    with store.begin():
        collector_of(store).end_owned("dead:1:1", reason=Reason.ABANDONED, at=9.0)

    assert ended(store) == (RolloutStatus.FAILED, Reason.ABANDONED)


def test_no_start_ends_what_a_replay_left_open(store: Store) -> None:
    collected(store, [start()], owner=None)

    assert store.rollouts.owners() == []
    assert store.rollouts.rollout(R).owner is None


def test_an_event_that_cannot_be_stored_is_a_store_error(store: Store) -> None:
    with pytest.raises(StoreError), store.begin():
        collector_of(store).apply([start(at=float("nan"))])


def test_what_is_remembered_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "KNOWN_LIMIT", 10)
    collector = collector_of(store)

    with store.begin():
        for number in range(50):
            collector.apply([event(ev.RunStart, f"run-{number}", 1.0)])

    assert len(collector._known) == 10
    assert len(collector._open) == 10
    with store.begin():
        assert collector.end_open(reason=Reason.INTERRUPTED, at=2.0) == 50


def test_what_was_forgotten_is_found_again_in_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "KNOWN_LIMIT", 1)

    collected(store, [start(), event(ev.RunStart, "other", 2.0), tool(3), end()])

    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 9.0)]


def test_a_store_that_fails_as_a_batch_begins_is_a_failure_of_the_store(path: Path) -> None:
    store = SqliteStore.open(path)
    collector = collector_of(store)
    store.close()

    with pytest.raises(StoreUnavailableError):
        collector.apply([event(ev.RunStart)])
