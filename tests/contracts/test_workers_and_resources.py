"""Workers, and the resources that runs are made with."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from tau_live.core.errors import ConflictError, UnknownError
from tau_live.core.records import AttemptStatus, Resource, RolloutConfig, Worker, WorkerStatus
from tau_live.store.roles import Store
from tests.contracts.making import queued


def test_a_worker_registers_once_and_then_lives(store: Store) -> None:
    store.workers.register("w-2", at=1.0)
    store.workers.register("w-1", at=2.0)

    again = store.workers.register("w-2", at=5.0)

    assert again == Worker(worker_id="w-2", registered_at=1.0, last_heartbeat_at=5.0)
    assert [worker.worker_id for worker in store.workers.workers()] == ["w-1", "w-2"]


def test_a_worker_reports_of_itself_and_keeps_what_it_reported(store: Store) -> None:
    store.workers.register("w-1", at=1.0, owner="machine:1:2", stats={"cpu": 0.5})

    again = store.workers.register("w-1", at=2.0)

    assert (again.owner, again.stats) == ("machine:1:2", {"cpu": 0.5})


def test_a_worker_is_idle_busy_and_idle_again(store: Store) -> None:
    store.queue.enqueue(queued("q-1"), at=1.0)

    store.queue.claim("w-1", at=2.0)
    [busy] = store.workers.workers()
    store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=3.0)
    store.queue.claim("w-1", at=4.0)
    [idle] = store.workers.workers()

    assert (busy.status, busy.claimed_at, busy.busy_at) == (WorkerStatus.BUSY, 2.0, 2.0)
    assert (busy.active_rollout_id, busy.active_attempt, busy.idle_at) == ("q-1", 1, None)
    assert (idle.status, idle.claimed_at, idle.busy_at, idle.idle_at) == (
        WorkerStatus.IDLE, 4.0, 2.0, 3.0
    )  # fmt: skip
    assert idle.active_rollout_id is None


WORKER = """
import sys
from tau_live.store import open_store

queue = open_store(sys.argv[1]).queue
claim = queue.claim("w-1")
queue.claim("w-1")
print(claim.rollout.rollout_id, flush=True)
input()
"""


def test_a_worker_whose_process_is_killed_is_gone_and_its_rollout_waits_again(
    store: Store, opened: Callable[[], Store], address: str
) -> None:
    for name in ("q-1", "q-2"):  # both of one worker
        store.queue.enqueue(queued(name, RolloutConfig(max_attempts=2)))
    command = [sys.executable, "-c", WORKER, address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "q-1\n"
        while_alive = store.queue.expire()
        child.kill()
    other_store = opened()  # each looks at processes once a second
    again = other_store.queue.claim("w-2")

    gone, busy = store.workers.workers()
    attempt, _ = store.rollouts.attempts("q-1")
    [other] = store.rollouts.attempts("q-2")
    assert while_alive == []
    assert other.status == "unresponsive"
    assert (gone.worker_id, gone.status, gone.active_rollout_id) == ("w-1", WorkerStatus.GONE, None)
    assert (attempt.status, attempt.error_message) == ("unresponsive", "its process is gone")
    assert again is not None
    assert other_store.queue.claim("w-2") is not None
    assert (again.attempt.number, busy.status) == (2, WorkerStatus.BUSY)
    assert store.workers.register("w-1").status is WorkerStatus.IDLE


def test_there_are_no_resources_at_first(store: Store) -> None:
    assert store.resources.latest() == {}
    assert store.resources.versions("prompt") == []
    with pytest.raises(UnknownError, match="resource 'prompt@1' not found"):
        store.resources.resource("prompt", 1)


def test_each_resource_has_versions_of_its_own_and_none_changes(store: Store) -> None:
    first = store.resources.publish({"prompt": "be brief", "temperature": 0.5}, at=1.0)

    second = store.resources.publish({"prompt": "be kind", "temperature": 0.5}, at=2.0)

    brief = Resource(name="prompt", version=1, content="be brief", created_at=1.0)
    kind = Resource(name="prompt", version=2, content="be kind", created_at=2.0)
    assert first["prompt"] == brief
    assert second == {"prompt": kind, "temperature": first["temperature"]}
    assert store.resources.latest() == second
    assert store.resources.versions("prompt") == [kind, brief]
    assert store.resources.resource("prompt", 1) == brief


def test_a_version_that_another_published_meanwhile_is_a_conflict(store: Store) -> None:
    store.resources.publish({"prompt": "be brief"}, at=1.0, expected={"prompt": 0})

    with pytest.raises(ConflictError, match="resource 'prompt' is at version 1, not 0"):
        store.resources.publish({"other": 1, "prompt": "be kind"}, at=2.0, expected={"prompt": 0})

    assert store.resources.publish({"prompt": "be kind"}, at=3.0, expected={"prompt": 1})
    assert set(store.resources.latest()) == {"prompt"}
