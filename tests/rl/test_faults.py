"""Faults 7, 8 and 9 of the reference's learner: none of them may come along."""

from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.config import PPOConfig
from tau_live.rl.gae import Steps, batched_vtrace
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.ppo import update
from tau_live.rl.state import LearnerState
from tests.rl.digests import digest_of
from tests.rl.tasks import Tile, TwoSteps, gathered, lived, played

SMALL = PolicyConfig(width=64, cross_width=256, ridge_width=128)


def first_update(
    *, seed: int = 0, count: int = 8, order: int = 0, **changes: float
) -> LearnerState:
    state = LearnerState.initial(SMALL)
    rng = np.random.default_rng(seed)
    task = Tile()
    fresh = gathered([played(task, state, rng) for _ in range(count)])
    alone = PPOConfig(target_kl=10.0, max_kl=10.0, sharpness=0.0)  # with no base to go ahead
    config = replace(alone, **changes)  # type: ignore[arg-type]  # whole numbers come as such
    return update(state, fresh, config=config, rng=np.random.default_rng(order)).state


@pytest.mark.slow
def test_fault_7_weights_really_move_and_ratios_leave_1() -> None:
    life = lived(TwoSteps(), rollouts=64, seed=0, policy_config=SMALL)

    assert life.state.policy.weights.any()
    taken = [one.diagnostics for one in life.updates if one.diagnostics.epochs_run]
    assert max(one.kl_k3 or 0.0 for one in taken) > 0.0
    assert any(one.mean_ratio != 1.0 for one in taken)


def test_fault_7_rollouts_of_one_step_have_advantages() -> None:
    state = first_update()

    assert np.abs(state.policy.weights).max() > 0.0
    assert state.advantage_scale.squares > 0.0


def test_fault_8_advantages_are_not_normalised_rollout_by_rollout() -> None:
    rewards = np.array([1.0, 1.0, 0.0, 0.0])

    steps = Steps(rewards, np.zeros(4), np.zeros(4), np.zeros(2), np.array([2, 2]))
    found = batched_vtrace(steps, np.ones(4), lambda_=0.95)

    assert found.advantages.tolist() == rewards.tolist()


def test_fault_8_being_interrupted_does_not_count_as_failing() -> None:
    rewards, values, lengths = np.zeros(2), np.full(2, 0.8), np.array([1, 1])

    steps = Steps(rewards, np.array([0.0, 1.0]), values, np.array([0.8, 0.8]), lengths)
    found = batched_vtrace(steps, np.ones(2), lambda_=0.95)

    assert found.advantages.tolist() == [-0.8, 0.0]


def test_fault_9_epochs_go_on_from_where_the_last_one_ended() -> None:
    once, twice = first_update(epochs=1), first_update(epochs=2)

    assert twice.adam.steps == 2 * once.adam.steps
    assert digest_of(once.policy) != digest_of(twice.policy)


def test_fault_9_minibatches_are_shuffled() -> None:
    one, other = (first_update(count=16, minibatch=4, order=order) for order in (0, 1))

    assert digest_of(one.policy) != digest_of(other.policy)


def test_fault_9_early_stop_stops_inside_the_epochs() -> None:
    free = first_update(epochs=10, learning_rate=0.1)
    stopped = first_update(epochs=10, learning_rate=0.1, target_kl=0.01)

    assert 0 < stopped.adam.steps < free.adam.steps == 10


def test_fault_9_no_minibatch_weighs_more_than_its_size() -> None:
    """Nine decisions in minibatches of at most eight are five and four, not eight and one."""
    state = LearnerState.initial(SMALL)
    rng = np.random.default_rng(0)
    task = TwoSteps()
    rollouts = [played(task, state, rng) for _ in range(5)]
    fresh = gathered([*rollouts[:4], rollouts[4][:1]])
    config = PPOConfig(minibatch=8, epochs=1, target_kl=10.0, max_kl=10.0)

    found = update(state, fresh, config=config, rng=rng)

    if found.skipped_reason is None:
        assert found.state.adam.steps == 2
