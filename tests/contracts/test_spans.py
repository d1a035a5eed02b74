"""Spans: open and closed, known twice, as signs of life."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.core.records import AttemptStatus, RolloutStatus, Span
from tau_live.store.records import Condition
from tau_live.store.roles import Store
from tests.contracts.making import (
    LIVE,
    attempt,
    begun,
    claimed,
    decision,
    queued,
    rollout,
    span,
    steps,
)
from tests.writes import forget_old, writes

OpenStore = Callable[[], Store]


def test_a_span_comes_back_as_it_was_given(store: Store) -> None:
    begun(store)
    given = Span(
        rollout_id=LIVE,
        attempt=1,
        span_id="host's own \u2603",
        parent_span_id="not stored",
        kind="model",
        name="gpt",
        status="error",
        attributes={"deep": {"list": [1, None, "x"]}},
        started_at=2.0,
        ended_at=2.5,
    )

    stored = writes(store).add_span(given)

    [found] = steps(store)
    assert stored
    assert found.seq > 0
    assert replace(found, seq=0) == given


def test_the_end_of_an_open_span_closes_it_and_keeps_its_start(store: Store) -> None:
    begun(store)
    writes(store).add_span(span(attributes={"a": 1, "b": {"c": 1}}, started_at=2.0))

    closed = writes(store).add_span(
        span(attributes={"b": 2, "d": None}, started_at=2.5, ended_at=3.0, status="ok")
    )

    [found] = steps(store)
    assert closed
    assert (found.started_at, found.ended_at, found.status) == (2.0, 3.0, "ok")
    assert found.attributes == {"a": 1, "b": 2, "d": None}
    assert store.counters.counts() == {}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(span(), span(attributes={"x": 1}), id="open twice"),
        pytest.param(span(ended_at=3.0), span(ended_at=4.0, status="error"), id="closed twice"),
    ],
)
def test_fault_15_the_same_span_again_is_ignored_and_counted(
    store: Store, first: Span, second: Span
) -> None:
    begun(store)
    writes(store).add_span(first)
    before = steps(store)

    stored = writes(store).add_span(second)

    assert not stored
    assert steps(store) == before
    assert store.counters.counts() == {"duplicate_spans": 1}


def test_a_start_that_comes_after_its_end_fills_it_in(store: Store) -> None:
    begun(store)
    writes(store).add_span(
        span(attributes={"a": "end"}, started_at=3.0, ended_at=3.0, status="error")
    )

    stored = writes(store).add_span(span(attributes={"a": "start", "b": 1}, started_at=2.0))

    [found] = steps(store)
    assert stored
    assert (found.started_at, found.ended_at, found.status) == (2.0, 3.0, "error")
    assert found.attributes == {"a": "end", "b": 1}


def test_an_end_that_comes_after_its_run_was_closed_still_counts(store: Store) -> None:
    begun(store)
    writes(store).add_span(span(started_at=2.0))
    writes(store).close_spans(LIVE, 1, status="cancelled", at=5.0)

    stored = writes(store).add_span(span(started_at=6.0, ended_at=6.0, status="ok"))

    [found] = steps(store)
    assert stored
    assert (found.started_at, found.ended_at, found.status) == (2.0, 6.0, "ok")


def test_the_same_span_id_in_another_attempt_is_another_span(store: Store) -> None:
    begun(store)
    writes(store).begin_attempt(attempt(number=2))

    stored = [writes(store).add_span(span(number=number)) for number in (1, 2)]

    assert stored == [True, True]
    assert [s.attempt for s in steps(store)] == [1, 2]
    assert [s.attempt for s in steps(store, LIVE, 2)] == [2]


def test_spans_are_in_the_order_of_arrival(store: Store) -> None:
    begun(store)
    for at, span_id in enumerate(["z", "a", "m"]):
        writes(store).add_span(span(span_id, started_at=10.0 - at))

    found = steps(store)

    assert [s.span_id for s in found] == ["z", "a", "m"]
    assert [s.seq for s in found] == sorted(s.seq for s in found)


def test_fault_15_a_span_needs_its_attempt(store: Store) -> None:
    writes(store).begin_rollout(rollout())

    with pytest.raises(UnknownError, match="attempt 'live-1:attempt-1' not found"):
        writes(store).add_span(span())


def test_a_batch_does_what_its_spans_would_do_one_by_one(store: Store) -> None:
    for rollout_id in ("live-1", "live-2"):
        writes(store).begin_rollout(rollout(rollout_id, RolloutStatus.PREPARING))
        writes(store).begin_attempt(attempt(rollout_id, status=AttemptStatus.PREPARING))
    batch = [
        span("a", "live-1", started_at=4.0),
        span("a", "live-2", started_at=5.0, ended_at=6.0),
        span("a", "live-1", started_at=4.0, ended_at=7.0, attributes={"x": 1}),
        span("a", "live-2", started_at=5.0, ended_at=6.5),
    ]

    added = writes(store).add_spans(batch)

    assert added == 3
    assert store.counters.counts() == {"duplicate_spans": 1}
    for rollout_id, at in (("live-1", 7.0), ("live-2", 6.5)):
        [found] = store.rollouts.attempts(rollout_id)
        assert (found.status, found.last_heartbeat_at) == (AttemptStatus.RUNNING, at)
        assert store.rollouts.rollout(rollout_id).status is RolloutStatus.RUNNING


def test_an_empty_batch_is_nothing(store: Store) -> None:
    assert writes(store).add_spans([]) == 0


def test_of_a_batch_with_an_unknown_attempt_nothing_is_stored(store: Store) -> None:
    begun(store)

    with pytest.raises(UnknownError):
        writes(store).add_spans([span("a"), span("b", number=2)])

    assert steps(store) == []


def test_a_span_is_a_sign_of_life_and_begins_what_was_preparing(store: Store) -> None:
    writes(store).begin_rollout(rollout(status=RolloutStatus.PREPARING))
    writes(store).begin_attempt(attempt(status=AttemptStatus.PREPARING))

    writes(store).add_span(span(started_at=4.0))

    [found] = store.rollouts.attempts(LIVE)
    assert (found.status, found.last_heartbeat_at) == (AttemptStatus.RUNNING, 4.0)
    assert store.rollouts.rollout(LIVE).status is RolloutStatus.RUNNING


@pytest.mark.parametrize("at", [0.5, 1.0], ids=["before", "at the last sign of life"])
@pytest.mark.parametrize("status", [AttemptStatus.PREPARING, AttemptStatus.RUNNING])
def test_a_span_that_is_not_newer_begins_what_was_preparing(
    store: Store, status: AttemptStatus, at: float
) -> None:
    writes(store).begin_rollout(rollout(status=RolloutStatus.PREPARING))
    writes(store).begin_attempt(attempt(status=status))

    writes(store).add_span(span(started_at=at))

    [found] = store.rollouts.attempts(LIVE)
    assert (found.status, found.last_heartbeat_at) == (AttemptStatus.RUNNING, 1.0)
    assert store.rollouts.rollout(LIVE).status is RolloutStatus.RUNNING


def test_an_older_span_does_not_turn_back_the_last_sign_of_life(store: Store) -> None:
    begun(store)
    writes(store).add_span(span("a", started_at=4.0, ended_at=8.0))

    writes(store).add_span(span("b", started_at=5.0))

    assert store.rollouts.attempts(LIVE)[0].last_heartbeat_at == 8.0


def test_a_late_span_is_stored_and_revives_nothing(store: Store) -> None:
    begun(store)
    writes(store).set_attempt_status(LIVE, 1, AttemptStatus.TIMEOUT, at=5.0)
    before = store.rollouts.attempts(LIVE)

    stored = writes(store).add_span(span(started_at=9.0))

    assert stored
    assert store.rollouts.attempts(LIVE) == before


def test_open_spans_are_closed_and_closed_ones_left_alone(store: Store) -> None:
    begun(store)
    writes(store).begin_attempt(attempt(number=2))
    writes(store).add_spans(
        [
            span("open", started_at=2.0),
            span("ahead", started_at=9.0),
            span("closed", ended_at=3.0, status="ok"),
            span("other", number=2),
        ]
    )

    closed = writes(store).close_spans(LIVE, 1, status="cancelled", at=5.0)

    assert closed == 2
    assert [(s.span_id, s.status, s.ended_at) for s in steps(store)] == [
        ("open", "cancelled", 5.0),
        ("ahead", "cancelled", 9.0),
        ("closed", "ok", 3.0),
        ("other", "unknown", None),
    ]


RUN = "live-1:attempt-1"


def test_a_run_that_only_decides_has_a_span_and_so_has_each_decision(store: Store) -> None:
    writes(store).begin_rollout(replace(rollout(), name="triage"))
    writes(store).begin_attempt(attempt())
    writes(store).add_decision(decision(1))
    writes(store).add_decision(
        replace(decision(10), point="tools", source="default", propensity=None, why_not="deadline")
    )
    writes(store).set_attempt_status(LIVE, 1, AttemptStatus.SUCCEEDED, at=5.0)

    run, first, second = store.rollouts.spans(LIVE)

    assert run == Span(
        rollout_id=LIVE,
        attempt=1,
        span_id=RUN,
        kind="run",
        name="triage",
        status="ok",
        attributes={"attempt_status": "succeeded"},
        started_at=1.0,
        ended_at=5.0,
    )
    assert first == Span(
        rollout_id=LIVE,
        attempt=1,
        span_id=decision(1).decision_id,
        parent_span_id=RUN,
        kind="decision",
        name="model",
        status="ok",
        attributes={
            "applied": "small",
            "chosen": "small",
            "default": "large",
            "source": "policy",
            "propensity": 0.25,
            "policy_version": 3,
            "arm": "control",
        },
        started_at=2.0 - 12.5 / 1e6,
        ended_at=2.0,
    )
    assert (second.name, second.attributes["why_not"]) == ("tools", "deadline")
    assert "propensity" not in second.attributes


@pytest.mark.parametrize(
    ("moves", "status", "attributes"),
    [
        pytest.param([], "unknown", {"attempt_status": "running"}, id="open"),
        pytest.param(
            [("set_attempt_status", (LIVE, 1, AttemptStatus.TIMEOUT), {"error_message": "late"})],
            "error",
            {"attempt_status": "timeout", "error": {"message": "late"}},
            id="timed out",
        ),
        pytest.param(
            [("set_status", (LIVE, RolloutStatus.CANCELLED), {})],
            "cancelled",
            {"attempt_status": "failed", "error": {"message": "cancelled"}},
            id="cancelled",
        ),
    ],
)
def test_the_span_of_a_run_is_as_its_attempt(
    store: Store,
    moves: list[tuple[str, tuple[object, ...], dict[str, object]]],
    status: str,
    attributes: dict[str, object],
) -> None:
    begun(store)
    for name, arguments, options in moves:
        getattr(writes(store), name)(*arguments, at=5.0, **options)

    [run] = store.rollouts.spans(LIVE)

    assert (run.name, run.status, run.attributes) == ("run", status, attributes)
    assert run.ended_at == (5.0 if moves else None)


def test_each_attempt_has_one_root_and_its_spans_follow_it(store: Store) -> None:
    begun(store)
    writes(store).begin_attempt(attempt(number=2))
    writes(store).add_spans(
        [span("b", number=2), span("a"), replace(span("c"), parent_span_id="a")]
    )
    writes(store).add_decision(decision(1, number=2))

    found = store.rollouts.spans(LIVE)

    assert [(s.span_id, s.parent_span_id) for s in found] == [
        (RUN, None),
        ("a", RUN),
        ("c", "a"),
        ("live-1:attempt-2", None),
        ("live-1:attempt-2:decision-1", "live-1:attempt-2"),
        ("b", "live-1:attempt-2"),
    ]


def test_spans_of_runs_and_decisions_are_found_by_their_fields(store: Store) -> None:
    for rollout_id in ("live-1", "live-2"):
        begun(store, rollout_id)
        writes(store).add_span(span("s", rollout_id))
        writes(store).add_decision(decision(1, rollout_id))

    every = store.find(Span)
    newest = store.find(Span, descending=True, limit=1)
    decisions = store.find(Span, Condition("kind", "is", "decision"))
    of_second = store.find(Span, Condition("rollout_id", "in", ["live-2"]), order_by="kind")

    assert [(s.rollout_id, s.kind) for s in every.records] == [
        (rollout_id, kind)
        for rollout_id in ("live-1", "live-2")
        for kind in ("run", "decision", "tool")
    ]
    assert ([s.span_id for s in newest.records], newest.total) == (["s"], 6)
    assert newest.records[0].rollout_id == "live-2"
    assert ([s.rollout_id for s in decisions.records], decisions.total) == (["live-1", "live-2"], 2)
    assert ([s.kind for s in of_second.records], of_second.total) == (
        ["decision", "run", "tool"],
        3,
    )


def test_spans_are_added_by_one_call_and_show_life(store: Store) -> None:
    store.queue.enqueue(queued(), at=5.0)
    claimed(store, at=10.0)

    added = store.rollouts.add_spans(
        [span("a", "q-1"), span("b", "q-1"), span("a", "q-1")], at=12.0
    )

    [attempt] = store.rollouts.attempts("q-1")
    assert added == 2
    assert [found.span_id for found in steps(store, "q-1")] == ["a", "b"]
    assert (attempt.status, attempt.last_heartbeat_at) == (AttemptStatus.RUNNING, 12.0)


def test_of_spans_with_an_unknown_attempt_none_is_added(store: Store) -> None:
    begun(store)

    with pytest.raises(UnknownError, match="attempt 'live-1:attempt-2' not found"):
        store.rollouts.add_spans([span("a"), span("b", number=2)])

    assert steps(store) == []


def test_numbers_of_spans_count_up_in_each_rollout(store: Store) -> None:
    begun(store, "live-1")
    begun(store, "live-2")

    reserved = [
        [*store.rollouts.next_span_numbers(rollout_id, count)]
        for rollout_id, count in [("live-1", 1), ("live-2", 1), ("live-1", 3), ("live-1", 0)]
    ]

    assert reserved == [[1], [1], [2, 3, 4], []]


def test_numbers_of_spans_go_on_after_one_that_was_given_elsewhere(store: Store) -> None:
    begun(store)

    store.rollouts.next_span_numbers(LIVE, 0, after=100)
    store.rollouts.next_span_numbers(LIVE, 0, after=7)

    assert [*store.rollouts.next_span_numbers(LIVE)] == [101]


@pytest.mark.parametrize(("count", "after"), [(-1, 0), (1, -1), (1, 2**63), (2**64, 0)])
def test_a_count_of_spans_that_is_none_is_refused(store: Store, count: int, after: int) -> None:
    begun(store)

    with pytest.raises(ValueError, match="count and after"):
        store.rollouts.next_span_numbers(LIVE, count, after=after)


def test_numbers_are_for_spans_of_a_stored_rollout_and_forgotten_with_it(store: Store) -> None:
    with pytest.raises(UnknownError, match="rollout 'live-1' not found"):
        store.rollouts.next_span_numbers(LIVE)
    begun(store)
    store.rollouts.next_span_numbers(LIVE, 5)
    writes(store).set_status(LIVE, RolloutStatus.FAILED, at=5.0)
    forget_old(store, before=9.0, limit=9)

    begun(store)

    assert [*store.rollouts.next_span_numbers(LIVE)] == [1]


def test_no_two_processes_get_the_same_number(opened: OpenStore) -> None:
    begun(opened())
    start = Barrier(4)
    reserved: list[list[int]] = []

    def reserve() -> None:
        rollouts = opened().rollouts
        start.wait(timeout=10)
        reserved.append([number for _ in range(8) for number in rollouts.next_span_numbers(LIVE)])

    threads = [Thread(target=reserve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert sorted(number for numbers in reserved for number in numbers) == [*range(1, 33)]
    assert all(numbers == sorted(numbers) for numbers in reserved)
