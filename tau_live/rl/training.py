"""The steps of one update, taken until they would lead too far."""

from typing import NamedTuple

import numpy as np

from tau_live.rl import linear
from tau_live.rl.adam import AdamState, adam_step
from tau_live.rl.arrays import FloatArray
from tau_live.rl.config import PPOConfig
from tau_live.rl.lesson import Lesson
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import Coefficients, objective


class Trained(NamedTuple):
    """Where the steps of an update led.

    Attributes:
        weights: ``[cross_width]``, the scorer.
        critic: ``[critic_width]``, what the critic adds to its regression, in units of the returns'
            deviation.
        adam: The optimiser's moments.
        epochs: Passes begun.
        early_stop: Whether the divergence ended them.
        gradient_norm: Of the scorer, before it is cut, mean over the steps.
    """

    weights: FloatArray
    critic: FloatArray
    adam: AdamState
    epochs: int
    early_stop: bool
    gradient_norm: float


def trained(
    state: LearnerState,
    lesson: Lesson,
    config: PPOConfig,
    *,
    epochs: int,
    rng: np.random.Generator,
) -> Trained:
    """Return where the steps lead; none is taken once the divergence is above the target.

    Minibatches are of equal size but for one decision, so that none weighs more than another.

    Args:
        state: With the policy at the start of the update.
        lesson: What to learn.
        config: How to learn.
        epochs: How many passes over the decisions.
        rng: For the order of the decisions.
    """
    decisions = len(lesson.batch.chosen)
    parts = -(-decisions // config.minibatch)
    split = len(state.policy.weights)
    residual = (state.policy.critic - state.value_base) / state.unit
    parameters = np.concatenate([state.policy.weights, residual])
    adam = state.adam
    norms: list[float] = []
    for epoch in range(epochs):
        for part in np.array_split(rng.permutation(decisions), parts):
            found = objective(
                lesson.batch.select(part),
                lesson.targets.select(part),
                parameters[:split],
                parameters[split:],
                coefficients=coefficients(state, config),
            )
            log_ratios = (found.logprobs - lesson.targets.logprobs[part])[lesson.acting[part]]
            if len(log_ratios) and k3(log_ratios) > config.target_kl:
                return Trained(*_split(parameters, split), adam, epoch + 1, True, _mean(norms))
            norms.append(linear.norm(found.weights))
            gradient = np.concatenate(
                [
                    _cut(found.weights, config.gradient_norm),
                    _cut(found.critic, config.gradient_norm),
                ]
            )
            parameters, adam = adam_step(
                parameters, gradient, adam, learning_rate=config.learning_rate
            )
    return Trained(*_split(parameters, split), adam, epochs, False, _mean(norms))


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


def _split(parameters: FloatArray, at: int) -> tuple[FloatArray, FloatArray]:
    return parameters[:at], parameters[at:]


def _mean(norms: list[float]) -> float:
    return float(np.mean(norms)) if norms else 0.0


def _cut(gradient: FloatArray, longest: float) -> FloatArray:
    norm = linear.norm(gradient)
    return gradient * (longest / norm) if norm > longest else gradient
