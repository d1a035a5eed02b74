"""What new rollouts say, before PPO takes a step: the sums, and the base that follows from them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, frozen
from tau_live.rl.batch import Batch, Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.lesson import rewards_to_go
from tau_live.rl.policy import Policy
from tau_live.rl.ridge import Base, base
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import choices

_TRIES = 12


class Evidence(NamedTuple):
    """Where an update starts.

    Attributes:
        counted: The new rollouts are in the sums; the policy is still the version before.
        started: The same with the policy whose base follows the sums; PPO goes on from there.
        batch: ``[N]`` decisions under that policy.
        base_kl: Mean divergence (in nats) of that policy from the version before.
    """

    counted: LearnerState
    started: LearnerState
    batch: Batch
    base_kl: float


def evidence(
    state: LearnerState,
    fresh: Trajectories,
    everything: Trajectories,
    *,
    config: PPOConfig,
) -> Evidence:
    """Return the state that has learned from the returns of new rollouts, but not by PPO yet.

    Args:
        state: From the update before.
        fresh: Rollouts never seen before.
        everything: The same, and older ones after them.
        config: How to learn.
    """
    counted = state.counting(fresh, at_hand=len(everything.length))
    policy = replace(state.policy, scale=counted.scale, rollouts=counted.counts.rollouts)
    data = batch(policy, everything)
    decisions = len((fresh if counted.action_sums.samples else everything).encoded)
    counted = counted.learning(
        data.select(np.arange(decisions)),
        rewards_to_go(everything, gamma=config.gamma)[:decisions],
        chosen=np.isfinite(everything.propensity[:decisions]),
    )
    goal = base(
        counted.action_sums,
        data.options.narrowed(policy.config.halvings),
        penalty=config.penalty,
        sharpness=config.sharpness,
        exploration=config.exploration,
    )
    same = all(map(np.array_equal, state.policy.scale, counted.scale))
    before = data.under(state.policy) if same else batch(state.policy, everything)
    policy, base_kl = _moved(policy, goal, data, before, bound=config.base_kl)
    value_base = counted.value_sums.expectation(config.penalty)
    started = replace(
        counted,
        policy=replace(policy, critic=frozen(policy.critic - state.value_base + value_base)),
        value_base=frozen(value_base),
    )
    return Evidence(counted, started, data.under(policy), base_kl)


def _moved(
    policy: Policy, goal: Base, data: Batch, before: Batch, *, bound: float
) -> tuple[Policy, float]:
    """Return the policy with its base as far toward the goal as the bound allows, and how far."""
    epsilon = policy.config.epsilon
    then = choices(before, policy.weights, epsilon=epsilon).probabilities
    options = data.options.narrowed(policy.config.halvings)
    near, far = options.dot(policy.base.weights), options.dot(goal.weights)
    errors = goal.uncertainty(options)
    preferred = policy.default_bonus * data.preferred
    moved, divergence, share = policy.base, 0.0, 1.0
    for _ in range(_TRIES):
        moved = policy.base.toward(goal, share)
        ridge = (1.0 - share) * near + share * far + moved.bonus * errors
        now = choices(data._replace(base=preferred + ridge), policy.weights, epsilon=epsilon)
        divergence = _divergence(then, now.probabilities) / len(data.chosen)
        if divergence <= bound:
            break
        share *= min(0.7, float(np.sqrt(bound / divergence)))  # near 0 it grows with its square
    return replace(policy, base=moved), divergence


def _divergence(then: FloatArray, now: FloatArray) -> float:
    tiny = float(np.finfo(np.float64).tiny)
    return float((then * np.log(np.maximum(then, tiny) / np.maximum(now, tiny))).sum())
