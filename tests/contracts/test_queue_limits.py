"""Attempts over their limits, and those who come back too late."""

import pytest
from msgspec.structs import replace

from tau_live.core.errors import InvalidTransitionError
from tau_live.core.records import AttemptStatus, Reason, RolloutConfig, RolloutStatus
from tau_live.store.roles import Store
from tests.contracts.making import attempt, claimed, queued, rollout, span
from tests.writes import writes


@pytest.mark.parametrize(
    ("config", "now", "end"),
    [
        (RolloutConfig(timeout_s=5.0), 15.0, None),
        (RolloutConfig(timeout_s=5.0), 15.1, "timeout"),
        (RolloutConfig(unresponsive_s=5.0), 15.0, None),
        (RolloutConfig(unresponsive_s=5.0), 15.1, "unresponsive"),
        (RolloutConfig(timeout_s=5.0, unresponsive_s=8.0), 99.0, "timeout"),
        (RolloutConfig(timeout_s=8.0, unresponsive_s=5.0), 99.0, "unresponsive"),
        (RolloutConfig(timeout_s=5.0, unresponsive_s=5.0), 99.0, "timeout"),
        (RolloutConfig(), 1e12, None),
    ],
)
def test_an_attempt_over_its_limits_is_ended_as_what_it_was_first(
    store: Store, config: RolloutConfig, now: float, end: str | None
) -> None:
    store.queue.enqueue(queued(config=config), at=5.0)
    claimed(store, at=10.0)

    concerned = store.queue.requeue_overdue(now=now)

    [attempt] = store.rollouts.attempts("q-1")
    assert concerned == (["q-1"] if end else [])
    assert attempt.status == (end or "preparing")
    assert store.rollouts.rollout("q-1").status == ("failed" if end else "running")


def test_a_span_keeps_an_attempt_alive(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(unresponsive_s=5.0)), at=5.0)
    claimed(store, at=10.0)

    writes(store).add_span(span(rollout_id="q-1", started_at=14.0))

    assert store.queue.requeue_overdue(now=18.0) == []
    assert store.queue.requeue_overdue(now=20.0) == ["q-1"]


def test_the_overdue_are_requeued_in_the_order_in_which_they_ran_out(store: Store) -> None:
    for name in ("q-1", "q-2", "q-3"):
        store.queue.enqueue(queued(name, RolloutConfig(max_attempts=2, timeout_s=5.0)), at=5.0)
    for worker, at in [("w-1", 12.0), ("w-2", 11.0), ("w-3", 10.0)]:
        claimed(store, worker, at=at)
    store.queue.finish("q-2", 1, AttemptStatus.SUCCEEDED, at=12.0)

    concerned = store.queue.requeue_overdue(now=99.0)

    assert concerned == ["q-3", "q-1"]
    assert [claimed(store, at=98.0).rollout.rollout_id for _ in range(2)] == ["q-3", "q-1"]
    assert store.queue.requeue_overdue(now=99.0) == []


@pytest.mark.parametrize("at_once", [True, False], ids=["still waiting", "claimed again"])
def test_a_late_finish_of_an_attempt_that_timed_out_is_refused(store: Store, at_once: bool) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=2, timeout_s=1.0)), at=5.0)
    claimed(store, at=10.0)
    store.queue.requeue_overdue(now=20.0)
    if not at_once:
        claimed(store, "w-2", at=21.0)
    before = store.rollouts.rollout("q-1")

    with pytest.raises(InvalidTransitionError, match="timeout -> succeeded"):
        store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=22.0)

    assert store.rollouts.rollout("q-1") == before
    assert store.rollouts.attempts("q-1")[0].status is AttemptStatus.TIMEOUT


def test_fault_16_a_live_rollout_over_its_limits_fails_and_is_not_queued(store: Store) -> None:
    limited = RolloutConfig(max_attempts=5, timeout_s=5.0)
    writes(store).begin_rollout(replace(rollout("live-1"), config=limited))
    writes(store).begin_attempt(attempt("live-1"))

    concerned = store.queue.requeue_overdue(now=99.0)

    found = store.rollouts.rollout("live-1")
    assert concerned == ["live-1"]
    assert (found.status, found.reason) == (RolloutStatus.FAILED, Reason.TIMEOUT)
    assert store.queue.length() == 0


def test_an_attempt_of_a_rollout_that_waits_ends_alone(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(timeout_s=5.0)), at=0.0)
    writes(store).begin_attempt(attempt("q-1"))

    concerned = store.queue.requeue_overdue(now=99.0)

    assert concerned == ["q-1"]
    assert store.rollouts.attempts("q-1")[0].status is AttemptStatus.TIMEOUT
    assert store.rollouts.rollout("q-1").status is RolloutStatus.QUEUING
