"""What follows decisions: rewards and costs to go, and rewards that are charged for costs."""

from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.batch import Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.ppo import Circumstances, update
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import (
    TrainingBatch,
    apply_cost,
    build_batch,
    costs_to_go,
    objective,
    rewards_to_go,
)
from tests.rl.tasks import Step, gathered

SMALL = PolicyConfig(width=64, cross_width=256, ridge_width=128)
UNKNOWN = float("nan")


def played(rewards: list[list[float]], costs: list[list[float]]) -> Trajectories:
    """Return rollouts with these rewards and costs; options are taken in turn."""
    encoded = encode({}, [("a", None), ("b", None)], width=64)
    return gathered(
        [
            [
                Step(encoded, (number + step) % 2, 0.5, 0.0, reward, cost)
                for step, (reward, cost) in enumerate(zip(some, paid, strict=True))
            ]
            for number, (some, paid) in enumerate(zip(rewards, costs, strict=True))
        ]
    )


THREE = played(
    [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]],
    [[0.5, 0.25], [2.0], [1.0, UNKNOWN, 3.0]],
)


def taught(trajectories: Trajectories) -> TrainingBatch:
    state = LearnerState.initial(SMALL)
    data = batch(state.policy, trajectories)
    new = len(trajectories.length)
    return build_batch(state, state, data, trajectories, config=PPOConfig(lambda_=1.0), new=new)


def test_costs_to_go_are_sums_of_what_follows_and_unknown_with_any_part() -> None:
    found = costs_to_go(THREE)

    np.testing.assert_array_equal(found, [0.75, 0.25, 2.0, UNKNOWN, UNKNOWN, UNKNOWN])


def test_costs_nobody_told_are_all_unknown() -> None:
    assert np.isnan(costs_to_go(replace(THREE, cost=None))).all()


def test_rewards_are_charged_for_costs_where_these_are_known() -> None:
    found = apply_cost(THREE, 2.0)

    np.testing.assert_array_equal(found.reward, [0.0, 1.5, -1.0, 4.0, 5.0, 6.0])
    expected = rewards_to_go(THREE, gamma=1.0)[:3] - 2.0 * costs_to_go(THREE)[:3]
    np.testing.assert_array_equal(rewards_to_go(found, gamma=1.0)[:3], expected)


def test_nothing_is_charged_without_a_multiplier_or_costs() -> None:
    untold = replace(THREE, cost=None)

    assert apply_cost(THREE, 0.0) is THREE
    assert apply_cost(untold, 2.0) is untold


@pytest.mark.parametrize("multiplier", [0.5, 3.0])
def test_advantages_and_values_are_of_the_reward_less_the_multiplied_cost(
    multiplier: float,
) -> None:
    costs = np.array([0.5, 0.25, 2.0, 0.0, 0.0, 0.0])
    net = replace(THREE, reward=THREE.reward - multiplier * costs, cost=None)

    found, expected = taught(apply_cost(THREE, multiplier)), taught(net)

    np.testing.assert_array_equal(found.targets.advantages, expected.targets.advantages)
    np.testing.assert_array_equal(found.returns, expected.returns)
    np.testing.assert_array_equal(found.returns, rewards_to_go(net, gamma=1.0))
    assert not np.array_equal(found.targets.advantages, taught(THREE).targets.advantages)


def test_the_gradient_turns_away_from_what_costs_more_than_it_earns() -> None:
    fresh = played([[1.0], [0.5]] * 4, [[1.0], [0.0]] * 4)  # a earns more, and costs

    slopes = []
    for multiplier in (0.0, 2.0):
        learned = taught(apply_cost(fresh, multiplier))
        policy = LearnerState.initial(SMALL).policy
        found = objective(
            learned.batch,
            learned.targets,
            policy.weights,
            policy.critic,
            net=policy.net,
            config=PPOConfig(entropy_coefficient=0.0),
        )
        step = learned.batch.options.dot(-found.weights)
        slopes.append(float(step[0] - step[1]))  # of the logit of a less that of b

    assert slopes[0] > 0.0 > slopes[1]


@pytest.mark.parametrize("multiplier", [0.0, 2.0])
def test_the_critic_expects_the_reward_less_the_multiplied_cost(multiplier: float) -> None:
    fresh = played([[1.0], [0.5]] * 40, [[1.0], [0.0]] * 40)

    found = update(
        LearnerState.initial(SMALL),
        fresh,
        config=PPOConfig(),
        now=Circumstances(multiplier),
        rng=np.random.default_rng(0),
    )

    expected = 0.75 - multiplier * 0.5
    assert found.state.policy.judge(fresh.encoded[0]).value == pytest.approx(expected, abs=0.02)


def test_equal_rewards_with_unequal_costs_are_something_to_learn_from() -> None:
    fresh = played([[1.0]] * 8, [[1.0], [0.0]] * 4)

    free, dear = (
        update(
            LearnerState.initial(SMALL),
            fresh,
            config=PPOConfig(),
            now=Circumstances(multiplier),
            rng=np.random.default_rng(0),
        )
        for multiplier in (0.0, 1.0)
    )

    assert free.skipped_reason == "fewer than two distinct rewards"
    assert dear.skipped_reason is None
    assert dear.state.policy.probabilities(fresh.encoded[0])[0] < 0.3
