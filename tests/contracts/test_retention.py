"""What may be forgotten, and what must not be."""

import pytest

from tau_live.rollouts import RolloutStatus
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store
from tests.contracts.making import begun, decision, ready, reward, span, update


def _ids(store: Store) -> list[str]:
    return [r.rollout_id for r in store.rollouts.query(RolloutQuery()).rollouts]


def _ended(store: Store, rollout_id: str, *, at: float) -> None:
    begun(store, rollout_id)
    store.rollouts.set_status(rollout_id, RolloutStatus.FAILED, at=at)


def test_the_oldest_ends_are_forgotten_first_and_no_more_than_asked(store: Store) -> None:
    for number, at in [(1, 30.0), (2, 10.0), (3, 20.0), (4, 99.0)]:
        _ended(store, f"live-{number}", at=at)

    deleted = [store.retention.collect(before=50.0, limit=2) for _ in range(3)]

    assert deleted == [2, 1, 0]
    assert _ids(store) == ["live-4"]


def test_all_that_is_a_rollouts_own_goes_with_it(store: Store) -> None:
    for rollout_id in ("live-1", "live-2"):
        begun(store, rollout_id)
        store.rollouts.add_span(span(rollout_id=rollout_id))
        store.decisions.add_decision(decision(rollout_id=rollout_id))
        store.rewards.add_reward(reward(rollout_id=rollout_id))
        store.rewards.add_reward(reward(rollout_id=rollout_id, name="late", at=60.0))
    store.rollouts.set_status("live-1", RolloutStatus.SUCCEEDED, at=5.0)

    deleted = store.retention.collect(before=50.0, limit=9)

    assert deleted == 1
    for kept, rollout_id in [(0, "live-1"), (1, "live-2")]:
        assert len(store.rollouts.attempts(rollout_id)) == kept
        assert len(store.rollouts.spans(rollout_id)) == kept
        assert len(store.decisions.decisions(rollout_id)) == kept
        assert len(store.rewards.rewards(rollout_id)) == 2 * kept


def test_a_forgotten_rollout_may_come_again(store: Store) -> None:
    _ended(store, "live-1", at=5.0)
    store.retention.collect(before=50.0, limit=9)

    begun(store, "live-1")
    store.rollouts.add_span(span())

    assert [s.span_id for s in store.rollouts.spans("live-1")] == ["s-1"]


def test_what_is_open_is_kept(store: Store) -> None:
    for status in ("queuing", "preparing", "running", "requeuing"):
        begun(store, f"live-{status}")
    store.rollouts.set_status("live-requeuing", RolloutStatus.FAILED, at=2.0)
    store.rollouts.set_status("live-requeuing", RolloutStatus.REQUEUING, at=3.0)

    assert store.retention.collect(before=1e9, limit=9) == 0


def test_what_waits_for_its_reward_is_kept(store: Store) -> None:
    _ended(store, "live-1", at=5.0)
    store.rewards.await_reward("live-1", until=1e9)

    kept = store.retention.collect(before=50.0, limit=9)
    store.rewards.overdue(2e9, limit=9)
    let_go = store.retention.collect(before=50.0, limit=9)

    assert (kept, let_go) == (0, 1)


def test_what_some_point_has_not_learned_from_is_kept(store: Store) -> None:
    ready(store, "live-1", "model", "tools")
    ready(store, "live-2", "model")
    ready(store, "live-3", "model")

    nobody = store.retention.collect(before=50.0, limit=9)
    store.policies.add_update(update(2, "model"), None)
    first = store.retention.collect(before=50.0, limit=9)
    remaining = _ids(store)
    store.policies.add_update(update(1, "tools"), None)
    second = store.retention.collect(before=50.0, limit=9)

    assert (nobody, first, second) == (0, 1, 1)
    assert remaining == ["live-1", "live-3"]
    assert _ids(store) == ["live-3"]


def test_what_has_no_decision_need_not_be_learned_from(store: Store) -> None:
    ready(store, "live-1")

    assert store.retention.collect(before=50.0, limit=9) == 1


def test_rewards_of_rollouts_that_never_came_are_forgotten_with_their_age(store: Store) -> None:
    begun(store, "live-1")
    store.rewards.add_reward(reward(rollout_id="live-1", at=1.0))
    store.rewards.add_reward(reward(rollout_id="never", at=1.0))
    store.rewards.add_reward(reward(rollout_id="not yet", at=60.0))

    store.retention.collect(before=50.0, limit=9)

    kept = [len(store.rewards.rewards(rollout_id)) for rollout_id in ("live-1", "never", "not yet")]
    assert kept == [1, 0, 1]


@pytest.mark.parametrize("rows", [0, 3])
def test_giving_space_back_loses_nothing(store: Store, rows: int) -> None:
    for number in range(rows):
        _ended(store, f"live-{number}", at=float(number))
    store.retention.collect(before=1.0, limit=1)

    store.retention.vacuum()

    assert len(_ids(store)) == max(0, rows - 1)
