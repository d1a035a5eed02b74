"""Spans: open and closed, known twice, as signs of life."""

import pytest
from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.core.records import AttemptStatus, RolloutStatus, Span
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, attempt, begun, rollout, span
from tests.writes import writes


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

    [found] = store.rollouts.spans(LIVE)
    assert stored
    assert found.seq > 0
    assert replace(found, seq=0) == given


def test_the_end_of_an_open_span_closes_it_and_keeps_its_start(store: Store) -> None:
    begun(store)
    writes(store).add_span(span(attributes={"a": 1, "b": {"c": 1}}, started_at=2.0))

    closed = writes(store).add_span(
        span(attributes={"b": 2, "d": None}, started_at=2.5, ended_at=3.0, status="ok")
    )

    [found] = store.rollouts.spans(LIVE)
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
    before = store.rollouts.spans(LIVE)

    stored = writes(store).add_span(second)

    assert not stored
    assert store.rollouts.spans(LIVE) == before
    assert store.counters.counts() == {"duplicate_spans": 1}


def test_a_start_that_comes_after_its_end_fills_it_in(store: Store) -> None:
    begun(store)
    writes(store).add_span(
        span(attributes={"a": "end"}, started_at=3.0, ended_at=3.0, status="error")
    )

    stored = writes(store).add_span(span(attributes={"a": "start", "b": 1}, started_at=2.0))

    [found] = store.rollouts.spans(LIVE)
    assert stored
    assert (found.started_at, found.ended_at, found.status) == (2.0, 3.0, "error")
    assert found.attributes == {"a": "end", "b": 1}


def test_an_end_that_comes_after_its_run_was_closed_still_counts(store: Store) -> None:
    begun(store)
    writes(store).add_span(span(started_at=2.0))
    writes(store).close_spans(LIVE, 1, status="cancelled", at=5.0)

    stored = writes(store).add_span(span(started_at=6.0, ended_at=6.0, status="ok"))

    [found] = store.rollouts.spans(LIVE)
    assert stored
    assert (found.started_at, found.ended_at, found.status) == (2.0, 6.0, "ok")


def test_the_same_span_id_in_another_attempt_is_another_span(store: Store) -> None:
    begun(store)
    writes(store).begin_attempt(attempt(number=2))

    stored = [writes(store).add_span(span(number=number)) for number in (1, 2)]

    assert stored == [True, True]
    assert [s.attempt for s in store.rollouts.spans(LIVE)] == [1, 2]
    assert [s.attempt for s in store.rollouts.spans(LIVE, 2)] == [2]


def test_spans_are_in_the_order_of_arrival(store: Store) -> None:
    begun(store)
    for at, span_id in enumerate(["z", "a", "m"]):
        writes(store).add_span(span(span_id, started_at=10.0 - at))

    found = store.rollouts.spans(LIVE)

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

    assert store.rollouts.spans(LIVE) == []


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
    assert [(s.span_id, s.status, s.ended_at) for s in store.rollouts.spans(LIVE)] == [
        ("open", "cancelled", 5.0),
        ("ahead", "cancelled", 9.0),
        ("closed", "ok", 3.0),
        ("other", "unknown", None),
    ]
