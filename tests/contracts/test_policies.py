"""Versions of policies, the updates that make them, and what serves."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from msgspec.structs import replace

from tau_live.core.errors import DuplicateError, StoreError, UnknownError
from tau_live.core.records import InService
from tau_live.store.roles import Store
from tests.contracts.making import policy, update

OpenStore = Callable[[], Store]


def test_nothing_was_learned_at_first(store: Store) -> None:
    assert store.policies.next_version() == 1
    assert store.policies.watermark("model") == 0
    assert store.policies.updates() == []
    assert store.policies.versions() == []
    assert store.policies.in_service() == {}


def test_an_update_brings_its_version_into_service(store: Store) -> None:
    stored = store.policies.add_update(update(8), policy(1))

    assert stored == replace(update(8), update=1)
    assert store.policies.updates() == [stored]
    assert store.policies.version(1) == policy(1)
    assert store.policies.watermark("model") == 8
    assert store.policies.next_version() == 2
    assert store.policies.in_service() == {
        "model": InService(point="model", version=1, pinned=False, changed_at=100.0, revision=1)
    }


def test_a_skipped_update_moves_the_schedule_and_nothing_else(store: Store) -> None:
    store.policies.add_update(update(8), policy(1))

    skipped = store.policies.add_update(update(16, executed=False), None)

    assert (skipped.executed, skipped.skipped_reason, skipped.version) == (
        False,
        "one_reward",
        None,
    )
    assert store.policies.watermark("model") == 16
    assert store.policies.watermark("model", executed=True) == 8
    assert (store.policies.newest_update("model"), store.policies.newest_update("other")) == (2, 0)
    assert store.policies.in_service()["model"].version == 1


@pytest.mark.parametrize("last_ready", [8, 7, 0, -1])
def test_rollouts_are_learned_from_once(store: Store, last_ready: int) -> None:
    store.policies.add_update(update(8), policy(1))

    with pytest.raises(StoreError, match="already been learned from"):
        store.policies.add_update(update(last_ready), policy(2))

    assert store.policies.next_version() == 2
    assert len(store.policies.updates()) == 1


def test_of_many_who_learn_from_the_same_rollouts_one_does(opened: OpenStore) -> None:
    opened()
    start = Barrier(6)
    done: list[int] = []
    refused: list[StoreError] = []

    def learn() -> None:
        policies = opened().policies
        start.wait(timeout=10)
        try:
            done.append(policies.add_update(update(8), policy(1)).update)
        except StoreError as error:
            refused.append(error)

    threads = [Thread(target=learn) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)

    assert (done, len(refused)) == ([1], 5)
    assert len(opened().policies.versions()) == 1


def test_each_point_has_a_watermark_of_its_own(store: Store) -> None:
    store.policies.add_update(update(8, "model"), None)
    store.policies.add_update(update(5, "tools"), None)
    store.policies.add_update(update(3, ""), None)

    marks = [store.policies.watermark(point) for point in ("model", "tools", "", "other")]

    assert marks == [8, 5, 3, 0]


def test_a_version_that_is_taken_takes_its_update_back(store: Store) -> None:
    store.policies.add_update(update(8, "model"), policy(1, "model"))

    with pytest.raises(DuplicateError, match="policy '1' already exists"):
        store.policies.add_update(update(8, "tools"), policy(1, "tools"))

    assert store.policies.watermark("tools") == 0
    assert store.policies.version(1).point == "model"


def test_updates_are_told_newest_first(store: Store) -> None:
    for last, point in [(8, "model"), (5, "tools"), (16, "model")]:
        store.policies.add_update(update(last, point), None)

    assert [u.update for u in store.policies.updates()] == [3, 2, 1]
    assert [u.update for u in store.policies.updates(limit=2)] == [3, 2]
    assert [u.update for u in store.policies.updates(point="model")] == [3, 1]
    assert [u.update for u in store.policies.updates(point="model", limit=1)] == [3]


def test_versions_are_told_by_number(store: Store) -> None:
    store.policies.add_update(update(8, "model"), policy(1, "model"))
    store.policies.add_update(update(8, "tools"), policy(2, "tools"))
    store.policies.add_update(update(16, "model"), policy(5, "model", parent=1))

    assert [v.version for v in store.policies.versions()] == [1, 2, 5]
    assert [v.version for v in store.policies.versions("model")] == [1, 5]
    assert store.policies.next_version() == 6
    with pytest.raises(UnknownError, match="policy '3' not found"):
        store.policies.version(3)


def test_a_pinned_point_is_left_alone_by_updates(store: Store) -> None:
    store.policies.add_update(update(8), policy(1))
    pinned = store.policies.put_in_service("model", 0, pinned=True, at=200.0)

    store.policies.add_update(update(16), policy(2))

    assert pinned == InService(point="model", version=0, pinned=True, changed_at=200.0, revision=2)
    assert store.policies.in_service() == {"model": pinned}


def test_a_point_that_is_let_go_is_served_by_the_next_update(store: Store) -> None:
    store.policies.add_update(update(8), policy(1))
    store.policies.put_in_service("model", 1, pinned=True, at=200.0)
    store.policies.put_in_service("model", 1, pinned=False, at=201.0)

    store.policies.add_update(update(16), policy(2))

    serving = store.policies.in_service()["model"]
    assert (serving.version, serving.pinned, serving.revision) == (2, False, 4)


@pytest.mark.parametrize("version", [2, 9])
def test_only_a_version_of_the_point_may_serve_it(store: Store, version: int) -> None:
    store.policies.add_update(update(8, "model"), policy(1, "model"))
    store.policies.add_update(update(8, "tools"), policy(2, "tools"))

    with pytest.raises(UnknownError, match=f"policy '{version}' not found"):
        store.policies.put_in_service("model", version, pinned=True, at=200.0)

    assert store.policies.in_service()["model"].version == 1
