"""Updates learn what there is to learn, in few rollouts."""

import numpy as np
import pytest

from tau_live.rl.config import PPOConfig
from tests.rl.tasks import Scaled, Tile, TwoSteps, lived


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_trivially_learnable_task_is_learned_in_80_rollouts(seed: int) -> None:
    life = lived(Tile(), rollouts=240, seed=seed)

    assert np.mean(life.rewards[80:]) > 0.9  # chance is 1/3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_credit_reaches_the_first_of_two_steps_in_80_rollouts(seed: int) -> None:
    life = lived(TwoSteps(), rollouts=240, seed=seed)

    assert np.mean(life.rewards[80:]) > 0.9  # chance is 1/4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_without_its_base_ppo_learns_credit_too_but_slower(seed: int) -> None:
    life = lived(TwoSteps(), rollouts=800, seed=seed, config=PPOConfig(sharpness=0.0))

    assert np.mean(life.rewards[640:]) > 0.85


@pytest.mark.slow
def test_the_unit_of_reward_does_not_matter() -> None:
    lives = [lived(Scaled(factor), rollouts=160, seed=1) for factor in (1.0, 1_024.0)]

    first, second = (life.state.policy for life in lives)
    np.testing.assert_allclose(second.weights, first.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(second.base.gains, 1_024.0 * first.base.gains, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(second.critic, 1_024.0 * first.critic, rtol=1e-6, atol=1e-6)
