"""The collector: events become rollouts, whatever order, repetition or silence they come in."""

from typing import Any

import pytest

from tau_live import collector as collecting
from tau_live import events as ev
from tau_live.errors import StoreError
from tau_live.rollouts import (
    AttemptStatus,
    Reason,
    Rollout,
    RolloutStatus,
    attempt_id_of,
    rollout_id_of,
)
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store
from tests.streams import HOST, ByReward, collected, collector_of, event

R = rollout_id_of(HOST, "r")
SUCCEEDED = (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
CANCELLED = (RolloutStatus.CANCELLED, Reason.CANCELLED)


def ended(store: Store, run: str = "r") -> tuple[RolloutStatus, Reason | None]:
    rollout = store.rollouts.rollout(rollout_id_of(HOST, run))
    return rollout.status, rollout.reason


def attempts(store: Store, run: str = "r") -> list[tuple[int, AttemptStatus, float | None]]:
    found = store.rollouts.attempts(rollout_id_of(HOST, run))
    return [(attempt.number, attempt.status, attempt.ended_at) for attempt in found]


def spans(store: Store, run: str = "r") -> list[tuple[int, str, str]]:
    found = store.rollouts.spans(rollout_id_of(HOST, run))
    return [(span.attempt, span.span_id, span.status) for span in found]


def start(at: float = 1.0, **fields: Any) -> ev.RunStart:
    return event(ev.RunStart, at=at, **fields)


def end(at: float = 9.0, status: ev.Status | None = ev.Status.OK, **fields: Any) -> ev.RunEnd:
    return event(ev.RunEnd, at=at, status=status, **fields)


def tool(at: float, call: str = "c", **fields: Any) -> ev.ToolStart:
    return event(ev.ToolStart, at=at, tool="grep", call_id=call, **fields)


def tool_end(at: float, call: str = "c", **fields: Any) -> ev.ToolEnd:
    return event(ev.ToolEnd, at=at, tool="grep", call_id=call, **fields)


def decision(at: float, ordinal: int = 1, **fields: Any) -> ev.Decision:
    known: dict[str, Any] = {"options": ("a", "b"), "chosen": "a", "applied": "a"}
    known |= {"propensity": 0.5} | fields
    return event(ev.Decision, at=at, ordinal=ordinal, point="model", **known)


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
    assert [span.ended_at for span in store.rollouts.spans(R)] == [9.0, 4.0]


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


EXECUTIONS = [
    pytest.param({"execution": "x"}, {"execution": "y"}, id="told apart by execution"),
    pytest.param({"attempt": 1}, {"attempt": 2}, id="counted"),
    pytest.param({}, {}, id="told apart by time alone"),
    pytest.param({"execution": "a/b"}, {"execution": "a/c"}, id="with a slash in the execution"),
    pytest.param(
        {"execution": "x", "attempt": 1}, {"execution": "y", "attempt": 1}, id="counted anew"
    ),
]


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

    for batch in [[one] for one in stream] if one_by_one else [stream]:
        collected(store, batch)

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
    store.rollouts.set_status(R, RolloutStatus.REQUEUING, at=2.0)

    with store.begin():
        collector_of(store).end_owned("dead:1:1", reason=Reason.ABANDONED, at=9.0)

    assert ended(store) == (RolloutStatus.FAILED, Reason.ABANDONED)


def test_no_start_ends_what_a_replay_left_open(store: Store) -> None:
    collected(store, [start()], owner=None)

    assert store.rollouts.owners() == []
    assert store.rollouts.rollout(R).owner is None


@pytest.mark.parametrize("at", [0.0, 5.0, 99.0])
def test_a_reward_is_joined_before_during_and_after_the_run(store: Store, at: float) -> None:
    given = event(ev.Reward, at=at, value=0.5)
    stream: list[ev.Event] = sorted([start(), end(), given], key=lambda one: one.at)

    collected(store, stream)

    rollout = store.rollouts.rollout(R)
    assert (rollout.total_reward, rollout.ready_seq) == (0.5, 1)


def test_a_reward_by_the_rollouts_id_needs_no_run(store: Store) -> None:
    given = ev.Reward(host="cli", run_id="", at=2.0, rollout_id=R, value=1.0)

    collected(store, [given, start(), end()])

    assert store.rollouts.rollout(R).total_reward == 1.0
    assert store.rollouts.query(RolloutQuery()).total == 1


def test_a_later_reward_changes_the_total(store: Store) -> None:
    first = event(ev.Reward, at=2.0, value=0.5)
    second = event(ev.Reward, at=99.0, value=1.0)

    collected(store, [start(), first, end(), second])

    assert store.rollouts.rollout(R).total_reward == 1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_is_refused_and_counted(store: Store, value: float) -> None:
    collected(store, [start(), event(ev.Reward, at=2.0, value=value), end()])

    assert store.rewards.rewards(R) == []
    assert store.counters.counts() == {"refused_rewards": 1}


def test_a_decision_with_numbers_that_are_none_can_be_read_again(store: Store) -> None:
    nan = float("nan")
    broken = decision(
        2, propensity=nan, value=nan, probabilities=(nan, 1.0), latency_us=float("inf")
    )

    collected(store, [start(), broken])

    found = store.decisions.decisions(R)[0]
    assert (found.propensity, found.value, found.probabilities) == (None, None, ())


def test_a_batch_says_what_finished_and_what_became_ready(store: Store) -> None:
    collector = collector_of(store)
    given = event(ev.Reward, at=2.0, value=0.5)

    with store.begin():
        first = collector.apply([start(), end()])
        second = collector.apply([given])
        third = collector.apply([given, end()])

    assert [tuple(first), tuple(second), tuple(third)] == [(1, 0), (0, 1), (0, 0)]


class Waiting(ByReward):
    """Lets rollouts without a reward wait until 20, and then takes 0 for it."""

    def rejects(self, rollout: Rollout, *, store: Store) -> bool:
        return False

    def settle(self, rollout: Rollout, *, store: Store, now: float) -> bool:
        if now >= 20.0:
            return store.rewards.mark_ready(rollout.rollout_id, total_reward=0.0)
        store.rewards.await_reward(rollout.rollout_id, until=20.0)
        return False


def test_a_wait_that_is_over_is_settled(store: Store) -> None:
    collector = collecting.Collector(store, rewarding=Waiting(), owner=None)
    with store.begin():
        collector.apply([start(), end()])

    with store.begin():
        counts = [collector.expire(19.0), collector.expire(20.0), collector.expire(21.0)]

    assert counts == [0, 1, 0]
    assert store.rollouts.rollout(R).total_reward == 0.0


def test_a_run_that_is_tried_again_meanwhile_is_not_settled(store: Store) -> None:
    collector = collecting.Collector(store, rewarding=Waiting(), owner=None)
    with store.begin():
        collector.apply([start(), end(3, ev.Status.ERROR), start(4)])

    with store.begin():
        collector.expire(20.0)

    assert store.rollouts.rollout(R).ready_seq is None


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
