"""Workers, and the resources that runs are made with."""

import pytest

from tau_live.core.errors import UnknownError
from tau_live.core.records import ResourcesVersion, Worker
from tau_live.store.roles import Store


def test_a_worker_registers_once_and_then_lives(store: Store) -> None:
    store.workers.register("w-2", at=1.0)
    store.workers.register("w-1", at=2.0)

    again = store.workers.register("w-2", at=5.0)

    assert again == Worker(worker_id="w-2", registered_at=1.0, last_heartbeat_at=5.0)
    assert [worker.worker_id for worker in store.workers.workers()] == ["w-1", "w-2"]


def test_there_are_no_resources_at_first(store: Store) -> None:
    assert store.resources.latest() is None
    with pytest.raises(UnknownError, match="resources '1' not found"):
        store.resources.version(1)


def test_each_version_replaces_the_whole_of_the_last_and_none_changes(store: Store) -> None:
    first = store.resources.publish({"prompt": "be brief", "temperature": 0.5}, at=1.0)

    second = store.resources.publish({"prompt": "be kind"}, at=2.0)

    assert first == ResourcesVersion(
        version=1, resources={"prompt": "be brief", "temperature": 0.5}, created_at=1.0
    )
    assert (second.version, second.resources_id) == (2, "resources-2")
    assert store.resources.latest() == second
    assert store.resources.version(1) == first
    assert second.resources == {"prompt": "be kind"}
