"""The collector: a run that is tried again, or interrupted and resumed, has attempts."""

from collections.abc import Sequence
from typing import Any

import pytest

from tau_live.core import events as ev
from tau_live.core.records import Attempt, AttemptStatus, Reason, RolloutStatus
from tau_live.record import collector
from tau_live.store.roles import Store
from tau_live.store.sql import batch, rows
from tests.collecting import SUCCEEDED, R, attempts, end, ended, spans, start, tool, tool_end
from tests.streams import collected, collector_of, event

EXECUTIONS = [
    pytest.param({"execution": "x"}, {"execution": "y"}, id="told apart by execution"),
    pytest.param({"attempt": 1}, {"attempt": 2}, id="counted"),
    pytest.param({}, {}, id="told apart by time alone"),
    pytest.param({"execution": "a/b"}, {"execution": "a/c"}, id="with a slash in the execution"),
    pytest.param(
        {"execution": "x", "attempt": 1}, {"execution": "y", "attempt": 1}, id="counted anew"
    ),
]


@pytest.fixture(autouse=True, params=[1, collector.NEWEST])
def _newest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read few of the attempts first, or all of these: nothing but the time may differ."""
    monkeypatch.setattr(collector, "NEWEST", request.param)


@pytest.mark.parametrize(("first", "second"), EXECUTIONS)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_that_failed_may_be_tried_again(
    store: Store, first: dict[str, Any], second: dict[str, Any], restarted: bool
) -> None:
    failed = [start(1, **first), tool(2, **first), end(3, ev.Status.ERROR, **first)]
    again = [start(4, **second), tool(5, **second), tool_end(6, **second), end(7, **second)]
    if restarted:
        collected(store, failed)
        for one in again:
            collected(store, [one])
    else:
        collected(store, failed + again)

    assert ended(store) == SUCCEEDED
    assert attempts(store) == [(1, AttemptStatus.FAILED, 3.0), (2, AttemptStatus.SUCCEEDED, 7.0)]
    assert spans(store) == [(1, "tool:c", "unknown"), (2, "tool:c", "ok")]
    assert store.rollouts.rollout(R).attempt_count == 2


@pytest.mark.parametrize(("first", "second"), EXECUTIONS)
def test_a_run_that_succeeded_stays_so_when_it_is_run_again(
    store: Store, first: dict[str, Any], second: dict[str, Any]
) -> None:
    failed = end(7, ev.Status.ERROR, **second)

    collected(store, [start(1, **first), end(3, **first), start(4, **second), failed])

    assert ended(store) == SUCCEEDED
    assert store.rollouts.rollout(R).ended_at == 3.0
    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 3.0), (2, AttemptStatus.FAILED, 7.0)]
    assert store.counters.counts() == {"reruns_after_end": 1}


def test_what_was_abandoned_may_be_tried_again(store: Store) -> None:
    collected(store, [start(1, execution="x")], owner="dead:1:1")
    with store.begin():
        collector_of(store).end_owned("dead:1:1", reason=Reason.ABANDONED, at=5.0)

    collected(store, [start(6, execution="y"), end(7, execution="y")])

    assert ended(store) == SUCCEEDED
    assert [status for _, status, _ in attempts(store)] == [
        AttemptStatus.UNRESPONSIVE,
        AttemptStatus.SUCCEEDED,
    ]


def test_the_end_of_an_earlier_attempt_does_not_end_the_rollout(store: Store) -> None:
    both = [start(1, execution="x"), start(2, execution="y")]

    collected(store, [*both, end(3, ev.Status.ERROR, execution="x")])

    assert ended(store) == (RolloutStatus.RUNNING, None)
    assert attempts(store) == [(1, AttemptStatus.FAILED, 3.0), (2, AttemptStatus.RUNNING, None)]


def test_an_attempt_that_never_ended_did_not_succeed_with_the_rollout(store: Store) -> None:
    silent = [start(1, execution="x"), tool(2, execution="x")]

    collected(store, [*silent, start(3, execution="y"), end(4, execution="y")])

    assert ended(store) == SUCCEEDED
    assert attempts(store) == [
        (1, AttemptStatus.UNRESPONSIVE, 4.0),
        (2, AttemptStatus.SUCCEEDED, 4.0),
    ]
    assert spans(store) == [(1, "tool:c", "unknown")]


def test_late_events_of_an_earlier_execution_go_to_its_attempt(store: Store) -> None:
    both = [start(1, execution="x"), end(2, ev.Status.ERROR, execution="x")]

    collected(store, [*both, start(3, execution="y"), tool(1.5, execution="x"), tool(4)])

    assert spans(store) == [(1, "tool:c", "unknown"), (2, "tool:c", "unknown")]


def test_events_from_before_an_end_do_not_open_a_rollout_again(store: Store) -> None:
    failed = [start(3, execution="y"), end(5, ev.Status.ERROR, execution="y")]

    collected(store, [*failed, tool(1, execution="x")])

    assert ended(store) == (RolloutStatus.FAILED, Reason.ERROR)


def interrupt(at: float, **fields: Any) -> ev.RunInterrupt:
    return event(ev.RunInterrupt, at=at, reason="approval", seq=int(at), **fields)


def resume(at: float, **fields: Any) -> ev.RunResume:
    return event(ev.RunResume, at=at, seq=int(at), **fields)


@pytest.mark.parametrize("execution", ["", "x", "a/resume-1"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_run_that_is_interrupted_and_resumed_has_an_attempt_for_each_part(
    store: Store, execution: str, one_by_one: bool
) -> None:
    known: dict[str, Any] = {"execution": execution}
    stream = [
        *(start(1, **known), tool(2, "a", **known), interrupt(3, **known)),
        *(resume(4, **known), tool(5, "b", **known), interrupt(6, **known)),
        *(resume(7, **known), tool(8, "c", **known), end(9, **known)),
    ]

    for part in [[one] for one in stream] if one_by_one else [stream]:
        collected(store, part)

    assert ended(store) == SUCCEEDED
    assert attempts(store) == [
        (1, AttemptStatus.SUCCEEDED, 3.0),
        (2, AttemptStatus.SUCCEEDED, 6.0),
        (3, AttemptStatus.SUCCEEDED, 9.0),
    ]
    assert [(number, span) for number, span, _ in spans(store) if "tool" in span] == [
        *((1, "tool:a"), (2, "tool:b"), (3, "tool:c")),
    ]


def test_an_interrupted_run_waits(store: Store) -> None:
    collected(store, [start(), tool(2), interrupt(3)])

    assert ended(store) == (RolloutStatus.RUNNING, None)
    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 3.0)]
    assert spans(store)[0] == (1, "tool:c", "interrupted")


def test_an_interrupted_run_that_ends_without_being_resumed_has_ended(store: Store) -> None:
    collected(store, [start(), interrupt(3), end(5, ev.Status.INTERRUPTED)])

    assert ended(store) == (RolloutStatus.FAILED, Reason.INTERRUPTED)
    assert store.rollouts.rollout(R).ended_at == 5.0


def test_a_run_that_ended_as_interrupted_may_be_resumed(store: Store) -> None:
    stopped = [start(), interrupt(3), end(4, ev.Status.INTERRUPTED)]

    collected(store, [*stopped, resume(5), end(9)])

    assert ended(store) == SUCCEEDED
    assert [number for number, _, _ in attempts(store)] == [1, 2]


def test_a_resumption_whose_run_nobody_saw_is_its_first_attempt(store: Store) -> None:
    collected(store, [resume(4), tool(5), end(9)])

    assert attempts(store) == [(1, AttemptStatus.SUCCEEDED, 9.0)]


def test_two_resumptions_that_are_not_counted_are_two(store: Store) -> None:
    first = event(ev.RunResume, at=2.0)
    second = event(ev.RunResume, at=4.0)

    collected(store, [start(), first, second, end()])

    assert [number for number, _, _ in attempts(store)] == [1, 2, 3]


@pytest.mark.parametrize("status", [ev.Status.OK, ev.Status.ERROR])
def test_a_key_used_for_every_run_costs_no_more_each_time(
    store: Store, status: ev.Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    of_row = rows.attempt_of

    def counted(values: Sequence[Any], rollout_id: str) -> Attempt:
        read.append(rollout_id)
        return of_row(values, rollout_id)

    def runs(first: int, last: int) -> int:
        before = len(read)
        for number in range(first, last):
            whose = {"execution": f"run-{number}"}
            collected(store, [start(4 * number, **whose), end(4 * number + 1, status, **whose)])
        return len(read) - before

    monkeypatch.setattr(batch, "attempt_of", counted)
    runs(1, 50)

    assert store.rollouts.rollout(R).attempt_count == 49
    assert 0 < runs(150, 200) <= 1.1 * runs(50, 100)
