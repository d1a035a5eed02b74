"""What the monitors of a decision point remember."""

import pytest

from tau_live.store.records import Monitor
from tau_live.store.roles import Store
from tests.contracts.making import policy, update

SEEN = Monitor(
    point="model",
    watermark=8,
    since=3,
    numbers={"drift": {"option:a": {"mean": 0.1}}, "held": 0},
    alarms=({"option": "a", "direction": "worse"},),
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


def test_it_is_stored_with_the_update_or_not_at_all(store: Store) -> None:
    with pytest.raises(RuntimeError), store.begin():
        store.policies.add_update(update(8), policy(1))
        store.monitors.save(SEEN)
        raise RuntimeError("the process is killed")

    assert store.policies.updates() == []
    assert store.monitors.monitor("model") == Monitor(point="model")
