"""The reference's PPO loss, to the letter: what ours is held against."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray


class PPOSamples(NamedTuple):
    """``[N]`` each; log-probabilities and entropies in nats."""

    old_logprobs: FloatArray
    new_logprobs: FloatArray
    advantages: FloatArray
    returns: FloatArray
    values: FloatArray
    entropies: FloatArray


class PPOLoss(NamedTuple):
    """The parts of the loss, means over the samples."""

    policy: float
    value: float
    entropy: float
    total: float
    mean_ratio: float
    clipped_fraction: float
    approx_kl: float
    early_stop: bool


class PPOCoefficients(NamedTuple):
    """The reference's defaults."""

    clip: float = 0.2
    value: float = 0.5
    entropy: float = 0.01
    kl: float = 0.0


def ppo_loss(
    samples: PPOSamples,
    coefficients: PPOCoefficients,
    *,
    max_kl: float | None = None,
) -> PPOLoss:
    """Return the loss of ``N`` samples.

    Source:
        ``contracts/reference-live-loop.md``; Schulman et al. 2017, arXiv:1707.06347, equations 7
        and 9.
    """
    with np.errstate(over="ignore"):
        difference = samples.new_logprobs - samples.old_logprobs
        ratios = np.exp(difference)
    clipped = np.clip(ratios, 1.0 - coefficients.clip, 1.0 + coefficients.clip)
    advantages = samples.advantages
    policy = float(np.mean(-np.minimum(ratios * advantages, clipped * advantages)))
    value = float(np.mean(0.5 * (samples.values - samples.returns) ** 2))
    entropy = float(np.mean(samples.entropies))
    approx_kl = float(np.mean(0.5 * difference**2))
    return PPOLoss(
        policy,
        value,
        entropy,
        policy
        + coefficients.value * value
        - coefficients.entropy * entropy
        + coefficients.kl * approx_kl,
        float(np.mean(ratios)),
        float(np.mean(np.abs(ratios - clipped) > np.finfo(np.float64).eps)),
        approx_kl,
        max_kl is not None and approx_kl > max_kl,
    )
