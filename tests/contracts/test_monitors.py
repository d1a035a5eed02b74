"""What the monitors of a decision point remember."""

import pytest

from tau_live.core.records import CostsSeen, Monitor
from tau_live.store.roles import Store
from tests.contracts.making import policy, ready, reward, update
from tests.writes import writes

SEEN = Monitor(
    point="model",
    watermark=8,
    since=3,
    numbers={"drift": {"option:a": {"mean": 0.1}}, "held": 0},
    alarms=(
        {
            "option": "a",
            "direction": "worse",
            "seen": 90,
            "since": 30,
            "shift": -0.8,
            "ready_seq": 7,
        },
    ),
)


def test_nothing_is_remembered_at_first(store: Store) -> None:
    assert store.monitors.monitors() == {}
    assert store.monitors.monitor("model") == Monitor(point="model")


def test_what_was_saved_is_remembered_by_point(store: Store) -> None:
    other = Monitor(point="tools", watermark=1)

    saved = store.monitors.save(SEEN), store.monitors.save(other)

    assert saved == (True, True)
    assert store.monitors.monitor("model") == SEEN
    assert store.monitors.monitors() == {"model": SEEN, "tools": other}


def test_who_has_seen_no_more_is_not_saved(store: Store) -> None:
    store.monitors.save(SEEN)

    again = store.monitors.save(Monitor(point="model", watermark=8, since=7))
    older = store.monitors.save(Monitor(point="model", watermark=7))
    newer = store.monitors.save(Monitor(point="model", watermark=9))

    assert (again, older, newer) == (False, False, True)
    assert store.monitors.monitor("model") == Monitor(point="model", watermark=9)


def test_rollouts_are_charged_anew_for_a_new_reward_or_when_a_wait_is_over(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        ready(store, name, "model")
    ready(store, "elsewhere", "tools")
    writes(store).add_reward(reward(1.0, "a"))
    seen = CostsSeen(ready=3, rewarded=store.trials.newest_reward(), at=10.0)
    store.monitors.save(Monitor(point="model", watermark=3), {2: 0.5})
    for name in ("b", "d", "elsewhere"):
        writes(store).add_reward(reward(0.0, name))

    rewarded = store.monitors.cost_candidates("model", seen, at=20.0, waits=[])
    waited = store.monitors.cost_candidates("model", seen, at=20.0, waits=[7.0, 15.0])
    over = store.monitors.cost_candidates("model", seen._replace(at=20.0), at=99.0, waits=[15.0])

    assert [(one.rollout.rollout_id, one.counted) for one in rewarded] == [("b", 0.5)]
    assert [[kept.value for kept in one.rewards] for one in rewarded] == [[0.0]]
    assert [one.rollout.rollout_id for one in waited] == ["a", "b", "c"]
    assert [one.rollout.rollout_id for one in over] == ["b"]


def test_costs_are_kept_only_with_the_monitor_that_counted_them(store: Store) -> None:
    ready(store, "a", "model")
    store.monitors.save(Monitor(point="model", watermark=1), {1: 0.5})
    store.monitors.save(Monitor(point="model", watermark=1), {1: 0.9})
    writes(store).add_reward(reward(1.0, "a"))

    [found] = store.monitors.cost_candidates("model", CostsSeen(8, 0, 0.0), at=1.0, waits=[])

    assert found.counted == 0.5


def test_it_is_stored_with_the_update_or_not_at_all(store: Store) -> None:
    with pytest.raises(RuntimeError), store.begin():
        store.policies.add_update(update(8), policy(1))
        store.monitors.save(SEEN)
        raise RuntimeError("the process is killed")

    assert store.policies.updates() == []
    assert store.monitors.monitor("model") == Monitor(point="model")
