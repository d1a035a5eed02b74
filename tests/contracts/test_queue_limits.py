"""Attempts over their limits, and those who come back too late."""

import pytest
from msgspec.structs import replace

from tau_live.core.records import AttemptStatus, Reason, RolloutConfig, RolloutStatus
from tau_live.store.roles import Store
from tests.contracts.making import attempt, claimed, queued, rollout, span, steps
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

    concerned = store.queue.expire(now=now)

    [attempt] = store.rollouts.attempts("q-1")
    assert concerned == (["q-1"] if end else [])
    assert attempt.status == (end or "preparing")
    assert store.rollouts.rollout("q-1").status == ("failed" if end else "preparing")


def test_a_span_keeps_an_attempt_alive(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(unresponsive_s=5.0)), at=5.0)
    claimed(store, at=10.0)

    writes(store).add_span(span(rollout_id="q-1", started_at=14.0))

    assert store.queue.expire(now=18.0) == []
    assert store.queue.expire(now=20.0) == ["q-1"]


def test_the_overdue_are_requeued_in_the_order_in_which_they_ran_out(store: Store) -> None:
    for name in ("q-1", "q-2", "q-3"):
        store.queue.enqueue(queued(name, RolloutConfig(max_attempts=2, timeout_s=5.0)), at=5.0)
    for worker, at in [("w-1", 12.0), ("w-2", 11.0), ("w-3", 10.0)]:
        claimed(store, worker, at=at)
    store.queue.finish("q-2", 1, AttemptStatus.SUCCEEDED, at=12.0)

    concerned = store.queue.expire(now=99.0)

    assert concerned == ["q-3", "q-1"]
    assert [claimed(store, at=99.0).rollout.rollout_id for _ in range(2)] == ["q-3", "q-1"]
    assert store.queue.expire(now=99.0) == []


@pytest.mark.parametrize("at_once", [True, False], ids=["still waiting", "claimed again"])
def test_a_late_result_of_an_attempt_that_timed_out_is_kept_and_changes_nothing(
    store: Store, at_once: bool
) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=2, timeout_s=1.0)), at=5.0)
    claimed(store, at=10.0)
    store.queue.expire(now=20.0)
    if not at_once:
        claimed(store, "w-2", at=21.0)
    before = store.rollouts.rollout("q-1")

    answer = store.queue.finish("q-1", 1, AttemptStatus.SUCCEEDED, at=22.0, output={"sum": 4})

    assert store.rollouts.rollout("q-1") == before
    assert answer is before.status
    assert store.rollouts.attempts("q-1")[0].status is AttemptStatus.TIMEOUT
    [late] = steps(store, "q-1")
    assert (late.kind, late.status, late.attributes) == (
        "result", "succeeded", {"output": {"sum": 4}}
    )  # fmt: skip
    assert store.counters.counts()["late_results"] == 1


def test_a_late_result_of_a_silent_attempt_counts_until_a_newer_one_begins(store: Store) -> None:
    for name in ("q-1", "q-2", "q-3"):
        config = RolloutConfig(max_attempts=1 if name == "q-3" else 2, unresponsive_s=1.0)
        store.queue.enqueue(queued(name, config), at=5.0)
    for _ in range(3):
        claimed(store, at=10.0)
    store.queue.expire(now=20.0)
    assert store.rollouts.rollout("q-3").status is RolloutStatus.FAILED
    assert claimed(store, "w-2", at=21.0).rollout.rollout_id == "q-1"

    answers = [
        store.queue.finish(name, 1, AttemptStatus.SUCCEEDED, at=22.0, output=name)
        for name in ("q-1", "q-2", "q-3")
    ]

    assert answers == ["preparing", "succeeded", "succeeded"]
    assert [store.rollouts.rollout(f"q-{n}").output for n in (1, 2, 3)] == [None, "q-2", "q-3"]
    assert store.queue.length() == 0
    assert store.counters.counts()["late_results"] == 1


def test_a_silent_attempt_that_shows_life_goes_on(store: Store) -> None:
    config = RolloutConfig(max_attempts=2, unresponsive_s=1.0)
    for name in ("q-1", "q-2"):
        store.queue.enqueue(queued(name, config), at=5.0)
        claimed(store, f"w-{name}", at=10.0)
    store.queue.expire(now=20.0)

    writes(store).add_spans([span(rollout_id="q-1", started_at=10.0)], at=20.5)
    lives = store.queue.heartbeat("w-q-2", "q-2", 1, at=20.5)

    assert lives
    assert store.queue.length() == 0
    assert [store.rollouts.rollout(name).status for name in ("q-1", "q-2")] == ["running"] * 2
    assert store.queue.expire(now=21.0) == []
    assert store.queue.expire(now=22.0) == ["q-1", "q-2"]


def test_life_is_when_a_span_arrived_not_the_time_that_it_gives(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(unresponsive_s=5.0)), at=5.0)
    claimed(store, at=10.0)

    writes(store).add_spans([span(rollout_id="q-1", started_at=1e9)], at=14.0)

    assert store.rollouts.attempts("q-1")[0].last_heartbeat_at == 14.0
    assert store.queue.expire(now=20.0) == ["q-1"]


def test_who_claims_finds_what_is_overdue(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=2, timeout_s=1.0)), at=5.0)
    claimed(store, "w-1", at=10.0)

    claim = claimed(store, "w-2", at=20.0)

    assert (claim.rollout.rollout_id, claim.attempt.number) == ("q-1", 2)


def test_who_waits_finds_what_is_overdue(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(timeout_s=1.0)), at=5.0)
    claimed(store, at=10.0)

    [ended] = store.queue.wait(["q-1"], timeout_s=5.0)

    assert (ended.status, ended.reason) == (RolloutStatus.FAILED, Reason.TIMEOUT)


def test_each_retry_waits_twice_as_long_as_the_one_before(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(max_attempts=4, backoff_s=10.0)), at=0.0)
    due = [0.0]
    for number in (1, 2, 3):
        assert store.queue.claim("w-1", at=due[-1] - 0.1) is None
        claimed(store, at=due[-1])
        retry_after_s = 3.0 if number == 3 else None
        store.queue.finish(
            "q-1", number, AttemptStatus.FAILED, at=due[-1], retry_after_s=retry_after_s
        )
        due.append(due[-1] + (10.0, 20.0, 3.0)[number - 1])

    assert store.queue.claim("w-1", at=due[-1] - 0.1) is None
    assert claimed(store, at=due[-1]).attempt.number == 4


def test_fault_16_a_live_rollout_over_its_limits_fails_and_is_not_queued(store: Store) -> None:
    limited = RolloutConfig(max_attempts=5, timeout_s=5.0)
    writes(store).begin_rollout(replace(rollout("live-1"), config=limited))
    writes(store).begin_attempt(attempt("live-1"))

    concerned = store.queue.expire(now=99.0)

    found = store.rollouts.rollout("live-1")
    assert concerned == ["live-1"]
    assert (found.status, found.reason) == (RolloutStatus.FAILED, Reason.TIMEOUT)
    assert store.queue.length() == 0


def test_an_attempt_of_a_rollout_that_waits_ends_alone(store: Store) -> None:
    store.queue.enqueue(queued(config=RolloutConfig(timeout_s=5.0)), at=0.0)
    writes(store).begin_attempt(attempt("q-1"))

    concerned = store.queue.expire(now=99.0)

    assert concerned == ["q-1"]
    assert store.rollouts.attempts("q-1")[0].status is AttemptStatus.TIMEOUT
    assert store.rollouts.rollout("q-1").status is RolloutStatus.QUEUING
