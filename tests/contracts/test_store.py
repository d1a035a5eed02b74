"""What belongs to no single role: transactions, changes seen, counters, the audit."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tau_live.core.errors import StoreError
from tau_live.core.gate import GateRow
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry, RolloutQuery, RolloutStatus, Trial
from tau_live.store.records import Topic
from tau_live.store.roles import Store
from tests.contracts.making import (
    LIVE,
    begun,
    change_heard,
    decision,
    ready,
    reward,
    rollout,
    span,
    steps,
)
from tests.writes import writes

OpenStore = Callable[[], Store]


class _Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, _Interrupted])
def test_a_transaction_that_fails_leaves_nothing(store: Store, error: type[BaseException]) -> None:
    with pytest.raises(error), store.begin():
        begun(store)
        raise error

    assert store.rollouts.query(RolloutQuery()).total == 0
    begun(store)


def test_a_transaction_inside_another_fails_alone(store: Store) -> None:
    with store.begin():
        begun(store, "live-1")
        with pytest.raises(ValueError, match="inner"), store.begin():
            begun(store, "live-2")
            with store.begin():
                begun(store, "live-3")
            raise ValueError("inner")
        begun(store, "live-4")

    found = [r.rollout_id for r in store.rollouts.query(RolloutQuery()).rollouts]
    assert found == ["live-1", "live-4"]


def test_an_operation_that_fails_within_a_transaction_takes_only_itself_back(store: Store) -> None:
    with store.begin():
        begun(store)
        with pytest.raises(StoreError):
            writes(store).add_spans([span("a"), span("b", number=2)])
        writes(store).add_span(span("c"))

    assert [s.span_id for s in steps(store)] == ["c"]


def test_others_see_a_transaction_whole_or_not_at_all(opened: OpenStore) -> None:
    writer, reader = opened(), opened()

    with writer.begin():
        begun(writer)
        meanwhile = reader.rollouts.find_rollout(LIVE)

    assert meanwhile is None
    assert reader.rollouts.rollout(LIVE) == writer.rollouts.rollout(LIVE)


def test_reading_before_writing_in_a_transaction_is_safe_from_others(opened: OpenStore) -> None:
    one, other = opened(), opened()
    begun(one)

    with one.begin():
        status = one.rollouts.rollout(LIVE).status
        writes(one).set_status(LIVE, RolloutStatus.SUCCEEDED, at=2.0)
    other.counters.add({"x": 1})
    with one.begin():
        counted = one.counters.counts()
        one.counters.add({"x": 1})

    assert (status, counted) == (RolloutStatus.RUNNING, {"x": 1})
    assert other.counters.counts() == {"x": 2}


PAUSE = Pause(part=Part.LEARNING, reason="odd", who="me@here", at=5.0)
PASS = GateRow(state="pass", reason=None, detail=None, since=0.0, streaks={}, revision=1)


@pytest.mark.parametrize(
    ("change", "topic"),
    [
        (lambda store: store.pauses.begin(PAUSE), Topic.PAUSES),
        (lambda store: store.gate.save(PASS, entry=None), Topic.GATE),
        (lambda store: store.policies.put_in_service("m", 0, pinned=True, at=1.0), Topic.POLICIES),
        (lambda store: store.trials.save(Trial(point="m", revision=1)), Topic.TRIALS),
        (lambda store: store.resources.publish({"prompt": "Be brief."}), Topic.PROMPTS),
    ],
)
def test_a_change_by_another_is_seen_once_and_by_its_topic(
    opened: OpenStore, change: Callable[[Store], object], topic: Topic
) -> None:
    mine, other = opened(), opened()
    other.counters.add({"x": 1})
    first = mine.changes()

    begun(mine)
    own = mine.changes()
    begun(other, "r-2")
    ingested = mine.changes()
    change(other)
    theirs, after = change_heard(mine), mine.changes()

    assert first == set(Topic)
    assert [*map(set, (own, ingested, theirs, after))] == [set(), set(), {topic}, set()]


def test_whatever_is_written_by_whomever_changes_the_stamp(opened: OpenStore) -> None:
    mine, other = opened(), opened()
    stamps = [mine.stamp()]

    begun(mine)
    stamps.append(mine.stamp())
    other.counters.add({"x": 1})
    stamps.append(mine.stamp())

    assert [after != before for before, after in pairwise(stamps)] == [True, True]
    assert any(mine.stamp() == mine.stamp() for _ in range(50))  # a server may write by itself


def test_what_is_closed_is_still_there(opened: OpenStore) -> None:
    first = opened()
    begun(first)
    first.close()
    first.close()

    assert opened().rollouts.rollout(LIVE).status is RolloutStatus.RUNNING


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()

    with pytest.raises(StoreError):
        store.rollouts.find_rollout(LIVE)


def test_counters_add_up(opened: OpenStore) -> None:
    opened().counters.add({"b": 2, "a": 1})

    opened().counters.add({"b": 3, "c": -1})

    assert opened().counters.counts() == {"a": 1, "b": 5, "c": -1}


def test_the_audit_is_told_newest_first(store: Store) -> None:
    for at in (1.0, 2.0):
        store.audit.add(
            AuditEntry(at=at, who="ada", action="gate_reset", reason="fixed", details={"x": [at]})
        )

    entries = store.audit.entries()

    assert [(e.at, e.who, e.action, e.reason, e.details) for e in entries] == [
        (2.0, "ada", "gate_reset", "fixed", {"x": [2.0]}),
        (1.0, "ada", "gate_reset", "fixed", {"x": [1.0]}),
    ]
    assert [e.at for e in store.audit.entries(limit=1)] == [2.0]


def test_fault_14_every_row_of_a_rollout_is_counted_once_however_often_it_is_told(
    store: Store,
) -> None:
    for _ in range(2):
        writes(store).begin_rollout(rollout())
        ready(store, "live-2", "model")
        writes(store).add_span(span(rollout_id="live-2", ended_at=3.0))
        writes(store).add_reward(reward(rollout_id="live-2"))
        writes(store).add_decision(decision(2, "live-2"))

    assert store.rollouts.query(RolloutQuery()).total == 2
    assert len(steps(store, "live-2")) == 1
    assert len(store.decisions.decisions("live-2")) == 2
    assert len(store.rewards.rewards("live-2")) == 1


def test_the_history_of_a_store_stays_what_it_is(opened: OpenStore) -> None:
    assert opened().history() == opened().history()
