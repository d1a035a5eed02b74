"""Tasks that are ended by hand, whatever they wait for or run."""

from collections.abc import Callable
from threading import Barrier, Thread

import pytest
from msgspec.structs import replace

from tau_live.core.errors import InvalidTransitionError, UnknownError
from tau_live.core.records import (
    ROLLOUT_ENDS,
    AttemptStatus,
    Reason,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    WorkerStatus,
)
from tau_live.store.records import ItemCounts
from tau_live.store.roles import Store
from tests.contracts.making import claimed, queued, span
from tests.writes import writes

NO_ITEMS = ItemCounts(total=0, succeeded=0, failed=0, cancelled=0, requeued=0, missing=0)

OpenStore = Callable[[], Store]

OPEN = ("queuing", "preparing", "running", "requeuing")
ENDS = sorted(ROLLOUT_ENDS)


def _open(store: Store, status: str) -> None:
    """Enqueue a task, and bring it to a status in which it is open."""
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=3)), at=5.0)
    if status != "queuing":
        claimed(store)
    if status == "running":
        store.queue.heartbeat("w-1", "q-1", 1, at=11.0)
    if status == "requeuing":
        store.queue.finish("q-1", 1, AttemptStatus.TIMEOUT, at=11.0)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("status", OPEN)
def test_a_task_can_be_given_any_end_whatever_it_waits_for(
    store: Store, status: str, end: RolloutStatus
) -> None:
    _open(store, status)

    changed = store.queue.end("q-1", end, at=12.0, output={"sum": 4}, error_message="by hand")

    found = store.rollouts.rollout("q-1")
    attempts = [attempt.status for attempt in store.rollouts.attempts("q-1")]
    last = "succeeded" if end == "succeeded" else "failed"
    assert changed
    assert (found.status, found.ended_at, found.output) == (end, 12.0, {"sum": 4})
    assert found.reason is not None
    assert store.queue.length() == 0
    assert attempts == {"queuing": [], "requeuing": ["timeout"]}.get(status, [last])
    assert store.queue.claim("w-2", at=13.0) is None


def test_an_end_frees_the_worker_and_tells_it_to_stop(store: Store) -> None:
    _open(store, "running")

    store.queue.end("q-1", "failed", at=12.0, error_message="no longer needed")

    [attempt] = store.rollouts.attempts("q-1")
    [worker] = store.workers.workers()
    assert (attempt.ended_at, attempt.error_message) == (12.0, "no longer needed")
    assert (worker.status, worker.active_rollout_id, worker.idle_at) == (
        WorkerStatus.IDLE, None, 12.0
    )  # fmt: skip
    assert not store.queue.heartbeat("w-1", "q-1", 1, at=13.0)


@pytest.mark.parametrize("end", ENDS)
def test_what_has_ended_keeps_its_end(store: Store, end: RolloutStatus) -> None:
    _open(store, "running")
    store.queue.end("q-1", end, at=12.0, output=1)
    before = store.rollouts.rollout("q-1")

    for other in sorted(ROLLOUT_ENDS - {end, RolloutStatus.CANCELLED}):
        with pytest.raises(InvalidTransitionError, match=f"{end} -> {other}"):
            store.queue.end("q-1", other, at=13.0, output=2)
    again = store.queue.end("q-1", end, at=13.0, output=2)

    assert not again
    assert store.rollouts.rollout("q-1") == before


def test_a_failed_task_may_still_be_cancelled(store: Store) -> None:
    for name in ("q-1", "q-2"):
        store.queue.enqueue(queued(name), at=5.0)
    claimed(store).finish("failed")

    cancelled = [store.queue.cancel(name) for name in ("q-1", "q-2", "q-2")]

    assert cancelled == [True, True, False]
    assert store.queue.length() == 0


def test_a_late_sign_of_life_does_not_undo_an_end(store: Store) -> None:
    config = RolloutConfig(max_attempts=2, unresponsive_s=1.0)
    store.queue.enqueue(queued(config=config), at=5.0)
    claimed(store, at=10.0)
    store.queue.expire(now=20.0)
    store.queue.end("q-1", "failed", at=21.0)

    lives = store.queue.heartbeat("w-1", "q-1", 1, at=22.0)
    writes(store).add_spans([span(rollout_id="q-1")], at=22.0)
    answer = store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=22.0)

    found = store.rollouts.rollout("q-1")
    assert not lives
    assert answer is found.status is RolloutStatus.FAILED
    assert found.reason is Reason.ERROR


def test_an_end_may_be_for_one_attempt_alone(store: Store) -> None:
    _open(store, "requeuing")
    claimed(store, "w-2", at=12.0)

    old = store.queue.end("q-1", "succeeded", number=1, at=13.0)
    new = store.queue.end("q-1", "succeeded", number=2, at=13.0)

    assert (old, new) == (False, True)
    assert [a.status for a in store.rollouts.attempts("q-1")] == ["timeout", "succeeded"]


def test_ending_needs_an_end_and_a_task(store: Store) -> None:
    with pytest.raises(ValueError, match="end of a rollout"):
        store.queue.end("q-1", "running")
    with pytest.raises(UnknownError, match="rollout 'q-1' not found"):
        store.queue.end("q-1", "succeeded")


def test_of_two_who_end_a_task_at_once_one_has_the_last_word(opened: OpenStore) -> None:
    _open(opened(), "running")
    start = Barrier(2)
    said: list[str] = []

    def end(status: str) -> None:
        store = opened()
        start.wait(timeout=10)
        try:
            store.queue.end("q-1", status, output=status)
            said.append(status)
        except InvalidTransitionError:
            said.append("refused")

    threads = [Thread(target=end, args=(status,)) for status in ("succeeded", "failed")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    found = opened().rollouts.rollout("q-1")
    assert sorted(said) == sorted(["refused", found.status])
    assert found.output == found.status


def test_items_of_a_run_are_counted_by_what_became_of_them(store: Store) -> None:
    item = replace(queued(), mode=RolloutMode.TRAIN, queue="run-1")
    store.queue.enqueue(item, at=5.0)
    claim = store.queue.claim("w-1", at=10.0, queues=("run-1",))
    store.queue.cancel("q-1")

    assert claim is not None
    assert store.optimizations.items("run-1") == NO_ITEMS._replace(total=1, cancelled=1)
    assert store.optimizations.items("run-2") == NO_ITEMS
