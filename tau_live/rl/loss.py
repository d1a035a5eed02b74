"""The PPO loss in its reference form: log-probabilities in, numbers out."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray


class PPOSamples(NamedTuple):
    """What the loss is computed from, ``[N]`` each.

    Attributes:
        old_logprobs: Natural log of the probability when the action was chosen.
        new_logprobs: Natural log of the probability now.
        advantages: How much better the action was than expected.
        returns: What the critic should have said.
        values: What the critic says.
        entropies: Entropy of the policy in that state, in nats.
    """

    old_logprobs: FloatArray
    new_logprobs: FloatArray
    advantages: FloatArray
    returns: FloatArray
    values: FloatArray
    entropies: FloatArray


class PPOLoss(NamedTuple):
    """The parts of the loss, means over the samples.

    Attributes:
        policy: The clipped surrogate, to be made small.
        value: Half the squared error of the critic.
        entropy: Mean entropy.
        total: The parts, weighted and summed; entropy counts against the loss.
        mean_ratio: Mean of new over old probability.
        clipped_fraction: Share of samples whose ratio was cut.
        approx_kl: The k2 estimate, half the mean squared difference of log-probabilities.
        early_stop: Whether ``approx_kl`` is above ``max_kl``.
    """

    policy: float
    value: float
    entropy: float
    total: float
    mean_ratio: float
    clipped_fraction: float
    approx_kl: float
    early_stop: bool


class PPOCoefficients(NamedTuple):
    """How the parts of the loss are weighted; the reference's defaults."""

    clip: float = 0.2
    value: float = 0.5
    entropy: float = 0.01
    kl: float = 0.0


def ppo_loss(
    samples: PPOSamples,
    coefficients: PPOCoefficients = PPOCoefficients(),  # noqa: B008  # immutable
    *,
    max_kl: float | None = None,
) -> PPOLoss:
    """Return the clipped PPO loss of ``N`` samples.

    ``rho = exp(new - old)``, ``policy = mean(-min(rho * A, clip(rho, 1 - c, 1 + c) * A))``.

    Args:
        samples: At least one.
        coefficients: Each finite and at least 0.
        max_kl: Above this ``approx_kl`` an update should stop; ``None`` never does.

    Raises:
        ValueError: There is no sample, a coefficient is out of range, or a number that goes in or
            comes out is not finite; the message names the field.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, equations 7 and 9.
    """
    _check(samples, coefficients, max_kl)
    with np.errstate(over="ignore", invalid="ignore"):  # what comes out is checked below
        difference = samples.new_logprobs - samples.old_logprobs
        ratios = np.exp(difference)
        clipped = np.clip(ratios, 1.0 - coefficients.clip, 1.0 + coefficients.clip)
        advantages = samples.advantages
        policy = float(np.mean(-np.minimum(ratios * advantages, clipped * advantages)))
        value = float(np.mean(0.5 * (samples.values - samples.returns) ** 2))
        entropy = float(np.mean(samples.entropies))
        approx_kl = float(np.mean(0.5 * difference**2))
        total = (
            policy
            + coefficients.value * value
            - coefficients.entropy * entropy
            + coefficients.kl * approx_kl
        )
        found = PPOLoss(
            policy,
            value,
            entropy,
            total,
            float(np.mean(ratios)),
            float(np.mean(np.abs(ratios - clipped) > np.finfo(np.float64).eps)),
            approx_kl,
            max_kl is not None and approx_kl > max_kl,
        )
    for name in (*(name for name in found._fields if name != "total"), "total"):  # cause first
        if not np.isfinite(getattr(found, name)):
            raise ValueError(f"non-finite ppo loss field '{name}'")
    return found


def _check(samples: PPOSamples, coefficients: PPOCoefficients, max_kl: float | None) -> None:
    bounds = {f"{name}_coefficient": value for name, value in coefficients._asdict().items()}
    bounds["clip"] = bounds.pop("clip_coefficient")
    bounds["max_kl"] = 0.0 if max_kl is None else max_kl
    for name, bound in bounds.items():
        if not 0.0 <= bound < np.inf:
            raise ValueError(
                f"invalid ppo config: {name} must be finite and >= 0.0, found {bound!r}"
            )
    if not len(samples.old_logprobs):
        raise ValueError("ppo loss requires at least one sample")
    for name, array in samples._asdict().items():
        if array.shape != samples.old_logprobs.shape or array.ndim != 1:
            raise ValueError(
                f"expected six [N] arrays, got {name} {array.shape} "
                f"beside old_logprobs {samples.old_logprobs.shape}"
            )
        if not np.isfinite(array).all():
            index = int(np.flatnonzero(~np.isfinite(array))[0])
            raise ValueError(f"non-finite PPO sample field '{name}' at index {index}")
