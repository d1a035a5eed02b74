"""Runs of rollouts that were claimed from a queue: one rollout, one attempt, one life."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import tau_live
from tau_live.cli import main
from tau_live.store import (
    AttemptStatus,
    Claim,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    open_store,
)
from tau_live.store.roles import Store

TWICE = RolloutConfig(max_attempts=2)


@pytest.fixture
def store(live: Path) -> Iterator[Store]:
    tau_live.flush()
    store = open_store(live)
    yield store
    store.close()


def claimed(
    store: Store, config: RolloutConfig = TWICE, *, mode: RolloutMode | None = None
) -> Claim:
    if store.rollouts.find_rollout("sum-1") is None:
        store.queue.enqueue(Rollout(rollout_id="sum-1", name="sum", config=config, mode=mode))
    claim = store.queue.claim("w-1")
    assert claim is not None
    return claim


def is_recorded() -> bool:
    with tau_live.run("probe") as run:
        return run.id != ""


def test_a_claimed_run_is_the_attempt_that_was_claimed(store: Store) -> None:
    claim = claimed(store)

    with tau_live.run(claim=claim) as run:
        choice = run.decide("model", ["small", "large"], default="small")
        run.reward(0.5)
        assert tau_live.flush()
        begun = store.rollouts.rollout("sum-1").status
    assert tau_live.flush()

    [attempt] = store.rollouts.attempts("sum-1")
    ended = store.rollouts.rollout("sum-1")
    [decision] = store.decisions.decisions("sum-1")
    [worker] = store.workers.workers()
    assert (run.id, run.name, begun) == ("sum-1", "sum", RolloutStatus.RUNNING)
    assert (attempt.number, attempt.status, attempt.worker_id) == (1, "succeeded", "w-1")
    assert (ended.status, ended.total_reward) == (RolloutStatus.SUCCEEDED, 0.5)
    assert decision.decision_id == choice.id == "sum-1:attempt-1:decision-1"
    assert worker.active_rollout_id is None


def test_finish_and_the_end_of_the_run_agree_whichever_comes_first(store: Store) -> None:
    for name, is_finished_first in [("a", True), ("b", False)]:
        store.queue.enqueue(Rollout(rollout_id=name, config=TWICE))
        claim = store.queue.claim("w-1")
        with tau_live.run(claim=claim):
            if is_finished_first:
                assert store.queue.finish(name, 1, AttemptStatus.SUCCEEDED, output=1) == "succeeded"
        assert tau_live.flush()
        assert store.queue.finish(name, 1, AttemptStatus.SUCCEEDED, output=1) == "succeeded"

    for name in ("a", "b"):
        assert store.rollouts.rollout(name).output == 1
        assert [attempt.status for attempt in store.rollouts.attempts(name)] == ["succeeded"]
    assert "late_results" not in store.counters.counts()


def test_a_claimed_run_that_raises_is_tried_again_as_its_config_allows(store: Store) -> None:
    statuses = []
    for number in (1, 2):
        claim = claimed(store)
        assert claim.attempt.number == number
        with pytest.raises(ValueError, match="no sum"), tau_live.run(claim=claim) as run:
            run.decide("model", ["small", "large"], default="small")
            raise ValueError("no sum")
        assert tau_live.flush()
        statuses.append(store.rollouts.rollout("sum-1").status)

    assert statuses == [RolloutStatus.REQUEUING, RolloutStatus.FAILED]
    ids = [decision.decision_id for decision in store.decisions.decisions("sum-1")]
    assert ids == ["sum-1:attempt-1:decision-1", "sum-1:attempt-2:decision-1"]
    assert store.queue.length() == 0


def test_a_claimed_run_that_is_cancelled_is_not_tried_again(store: Store) -> None:
    claim = claimed(store)

    with pytest.raises(asyncio.CancelledError), tau_live.run(claim=claim):
        raise asyncio.CancelledError
    assert tau_live.flush()

    assert store.rollouts.rollout("sum-1").status is RolloutStatus.CANCELLED
    assert store.queue.claim("w-2") is None


def test_the_end_of_a_run_that_another_took_over_changes_nothing_of_the_task(store: Store) -> None:
    claim = claimed(store, RolloutConfig(max_attempts=2, unresponsive_s=60.0))

    with tau_live.run(claim=claim):
        assert tau_live.flush()
        began = store.rollouts.attempts("sum-1")[0].started_at
        store.queue.expire(now=began + 1_000.0)
        again = store.queue.claim("w-2", at=began + 1_000.0)
    assert tau_live.flush()

    assert again is not None
    assert [attempt.status for attempt in store.rollouts.attempts("sum-1")] == [
        "succeeded", "preparing"
    ]  # fmt: skip
    assert store.rollouts.rollout("sum-1").status is RolloutStatus.PREPARING
    assert store.counters.counts()["late_results"] == 1


@pytest.mark.parametrize("mode", [None, *RolloutMode])
def test_the_learner_takes_no_rollout_with_a_mode(store: Store, mode: RolloutMode | None) -> None:
    claim = claimed(store, mode=mode)

    with tau_live.run(claim=claim) as run:
        run.decide("model", ["small", "large"], default="small")
        run.reward(1.0)
    assert tau_live.flush()

    ended = store.rollouts.rollout("sum-1")
    assert ended.total_reward == 1.0
    assert (ended.ready_seq is None) == (mode is not None)
    assert store.rewards.ready_points() == ([] if mode else ["model"])


def test_nothing_that_is_no_claim_hurts_the_host(store: Store) -> None:
    with tau_live.run("sum", claim="sum-1") as run:  # type: ignore[arg-type]  # the test's point
        choice = run.decide("model", ["small", "large"], default="small")

    assert choice.option == "small"
    assert run.id == ""
    assert store.rollouts.find_rollout("sum-1") is None


def test_no_event_can_take_a_live_rollout_for_a_queued_one(store: Store) -> None:
    with tau_live.run("live", key=1) as run:
        pass
    with pytest.raises(ValueError, match="must not begin with 'live-'"):
        store.queue.enqueue(Rollout(rollout_id=run.id))


@pytest.mark.slow
def test_rewards_are_joined_whoever_ends_the_attempt(store: Store) -> None:
    claim = claimed(store)

    with tau_live.run(claim=claim) as run:
        run.decide("model", ["small", "large"], default="small")
        run.reward(0.25)
        assert tau_live.flush()
        store.queue.finish("sum-1", 1, AttemptStatus.SUCCEEDED)
    assert tau_live.flush()
    store.queue.enqueue(Rollout(rollout_id="sum-2"))
    store.queue.claim("w-1")
    tau_live.reward(0.75, run="sum-2")
    assert tau_live.flush()
    store.queue.finish("sum-2", 1, AttemptStatus.SUCCEEDED)

    assert store.rollouts.rollout("sum-1").total_reward == 0.25
    deadline = time.monotonic() + 30.0
    while store.rollouts.rollout("sum-2").total_reward is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.rollouts.rollout("sum-2").total_reward == 0.75


def test_runs_inside_a_task_with_a_mode_are_no_evidence_either(store: Store) -> None:
    claim = claimed(store, mode=RolloutMode.TEST)

    with tau_live.run(claim=claim):
        with tau_live.run("agent") as inner:
            inner.decide("model", ["small", "large"], default="small")
            inner.reward(1.0)
    assert tau_live.flush()

    assert store.rollouts.rollout(inner.id).mode is RolloutMode.TEST
    assert store.rewards.ready_points() == []


@pytest.mark.parametrize("stop", ["off", "hold", "pause"])
def test_a_task_ends_with_its_run_also_while_nothing_is_recorded(
    store: Store, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(store)
    if stop == "off":
        monkeypatch.delenv("TAU_LIVE_RL")
    else:
        command = ["gate", "hold"] if stop == "hold" else ["pause", "collection"]
        words = [*command, "--store", str(store.path), "--reason", "test"]
        assert CliRunner().invoke(main, words).exit_code == 0
        deadline = time.monotonic() + 30.0
        while is_recorded() and time.monotonic() < deadline:
            time.sleep(0.02)

    with pytest.raises(ValueError, match="no sum"), tau_live.run(claim=claim) as run:
        raise ValueError("no sum")

    [attempt] = store.rollouts.attempts("sum-1")
    assert run.id == ""
    assert (attempt.status, attempt.error_message) == (AttemptStatus.FAILED, "ValueError")
    assert store.rollouts.rollout("sum-1").status is RolloutStatus.REQUEUING


def test_a_claim_of_another_store_is_worked_on_and_recorded_nowhere(
    store: Store, tmp_path: Path
) -> None:
    other = open_store(tmp_path / "other.sqlite")
    store.queue.enqueue(Rollout(rollout_id="sum-1"))
    claim = claimed(other)

    with tau_live.run(claim=claim) as run:
        run.decide("model", ["small", "large"], default="small")
    assert tau_live.flush()

    assert (run.id, store.queue.length()) == ("", 1)
    assert other.rollouts.rollout("sum-1").status is RolloutStatus.SUCCEEDED
    other.close()


def test_decisions_are_signs_of_life(store: Store) -> None:
    claim = claimed(store, RolloutConfig(unresponsive_s=60.0))

    with tau_live.run(claim=claim) as run:
        assert tau_live.flush()
        before = store.rollouts.attempts("sum-1")[0].last_heartbeat_at
        time.sleep(0.01)
        run.decide("model", ["small", "large"], default="small")
        assert tau_live.flush()

    assert store.rollouts.attempts("sum-1")[0].last_heartbeat_at > before


def test_a_claim_made_by_hand_hurts_nobody(store: Store) -> None:
    real = claimed(store)
    made = Claim(real.rollout, real.attempt, None)  # type: ignore[arg-type]  # the test's point

    with tau_live.run(claim=made) as run:
        choice = run.decide("model", ["small", "large"], default="small")

    assert (choice.option, run.id) == ("small", "")
