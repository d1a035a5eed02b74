"""The steps of one update, taken until they would lead too far."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.adam import AdamState, FlatAdam
from tau_live.rl.arrays import FloatArray
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.config import PPOConfig
from tau_live.rl.lesson import Lesson
from tau_live.rl.net import Net
from tau_live.rl.products import squared_length
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import Coefficients, Objective, objective

_EPSILON = 1e-8  # of Adam


class Trained(NamedTuple):
    """Where the steps of an update led.

    Attributes:
        weights: ``[cross_width]``, the scorer.
        critic: ``[critic_width]``, what the critic adds to its regression, in units of the returns'
            deviation.
        net: The network, its values in the same units.
        adam: The optimiser's moments, of scorer and critic.
        net_adam: The same of the network.
        epochs: Passes begun.
        early_stop: Whether the divergence ended them.
        gradient_norm: Of the scorer, before it is cut, mean over the steps.
        changed: Whether any of the parameters is another than before.
    """

    weights: FloatArray
    critic: FloatArray
    net: Net
    adam: AdamState
    net_adam: AdamState
    epochs: int
    early_stop: bool
    gradient_norm: float
    changed: bool


def trained(
    state: LearnerState,
    lesson: Lesson,
    config: PPOConfig,
    *,
    epochs: int,
    rng: np.random.Generator,
    breathe: Breathe = at_once,
) -> Trained:
    """Return where the steps lead; none is taken once the divergence is above the target.

    Minibatches are of equal size but for one decision, so that none weighs more than another.

    Args:
        state: With the policy at the start of the update.
        lesson: What to learn.
        config: How to learn.
        epochs: How many passes over the decisions.
        rng: For the order of the decisions.
        breathe: Called between two steps.
    """
    decisions = len(lesson.batch.chosen)
    parts = -(-decisions // config.minibatch)
    going = _Going.on(state)
    weighted = coefficients(state, config)
    norms: list[float] = []
    for epoch in range(epochs):
        for part in np.array_split(rng.permutation(decisions), parts):
            found = objective(
                lesson.batch.select(part),
                lesson.targets.select(part),
                going.weights,
                going.critic,
                net=going.net,
                coefficients=weighted,
            )
            log_ratios = (found.logprobs - lesson.targets.logprobs[part])[lesson.acting[part]]
            if len(log_ratios) and k3(log_ratios) > config.target_kl:
                return going.ended(state, epoch + 1, True, norms)
            norms.append(going.step(found, config))
            breathe()
    return going.ended(state, epochs, False, norms)


class _Going(NamedTuple):
    """The parameters on their way, changed in place."""

    linear: FloatArray
    weights: FloatArray
    critic: FloatArray
    adam: FlatAdam
    net: Net
    net_adam: FlatAdam

    @classmethod
    def on(cls, state: LearnerState) -> "_Going":
        policy, unit = state.policy, state.unit
        linear = np.concatenate([policy.weights, (policy.critic - state.value_base) / unit])
        split = len(policy.weights)
        return cls(
            linear,
            linear[:split],
            linear[split:],
            state.adam.going_on(),
            policy.net.valued(1.0 / unit).going_on(),
            state.net_adam.going_on(),
        )

    def step(self, found: Objective, config: PPOConfig) -> float:
        """Take one step; return how long the scorer's gradient was."""
        norm = _cut(found.weights, config.gradient_norm)
        _cut(found.critic, config.gradient_norm)
        _cut(found.net, config.gradient_norm)
        self.adam.descend(
            self.linear,
            np.concatenate([found.weights, found.critic]),
            learning_rate=config.learning_rate,
            epsilon=_EPSILON,
        )
        self.net_adam.descend(
            self.net.flat, found.net, learning_rate=config.net_learning_rate, epsilon=_EPSILON
        )
        return norm

    def ended(self, started: LearnerState, epochs: int, early: bool, norms: list[float]) -> Trained:
        was = _Going.on(started)
        is_same = np.array_equal(self.linear, was.linear)
        return Trained(
            self.weights,
            self.critic,
            self.net.frozen(),
            AdamState.after(self.adam),
            AdamState.after(self.net_adam),
            epochs,
            early,
            float(np.mean(norms)) if norms else 0.0,
            not (is_same and np.array_equal(self.net.flat, was.net.flat)),
        )


def coefficients(state: LearnerState, config: PPOConfig) -> Coefficients:
    """Return how the parts of the loss are weighted."""
    return Coefficients(
        config.clip,
        config.value_coefficient,
        config.entropy_coefficient,
        state.policy.config.epsilon,
    )


def k3(log_ratios: FloatArray) -> float:
    """Return the mean of ``r - 1 - log r``, which estimates the divergence and is never negative.

    Source:
        Schulman 2020, "Approximating KL Divergence", estimator k3.
    """
    return float((np.expm1(log_ratios) - log_ratios).mean())


def _cut(gradient: FloatArray, longest: float) -> float:
    """Shorten a gradient that is too long, in place; return how long it was."""
    norm = float(np.sqrt(squared_length(gradient)))
    if norm > longest:
        gradient *= longest / norm
    return norm
