"""The clipped surrogate, entropy and value loss of a policy, with their exact gradient."""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.batch import Batch
from tau_live.rl.exploring import floor_of
from tau_live.rl.net import Net, Said

_TINY = float(np.finfo(np.float64).tiny)  # a probability may underflow where there is no floor


class Targets(NamedTuple):
    """What each of ``N`` decisions should teach.

    Attributes:
        logprobs: ``[N]``, log-probability of the choice at the start of the update.
        advantages: ``[N]``, scaled.
        weights: ``[N]``, importance of each decision for the actor; 0 leaves it out.
        returns: ``[N]``, what the critic should say.
    """

    logprobs: FloatArray
    advantages: FloatArray
    weights: FloatArray
    returns: FloatArray

    def select(self, decisions: IntArray) -> "Targets":
        """Return the decisions at these indices alone, in that order."""
        return Targets(*(array[decisions] for array in self))


class Coefficients(NamedTuple):
    """How the parts of the loss are weighted, and how the policy explores.

    Attributes:
        clip: How far a ratio may be from 1 and still be rewarded.
        value: Weight of the critic's loss.
        entropy: Weight of the entropy.
        epsilon: The policy's share of uniform exploration.
    """

    clip: float
    value: float
    entropy: float
    epsilon: float


class Choices(NamedTuple):
    """What a policy says about ``N`` decisions with ``M`` allowed options in all.

    Attributes:
        softmax: ``[M]``, before exploration is mixed in.
        probabilities: ``[M]``.
        logprobs: ``[N]``, of the choices.
        entropies: ``[N]``, in nats.
        kept: What of the softmax exploration leaves, ``[M]`` or ``[1]``.
    """

    softmax: FloatArray
    probabilities: FloatArray
    logprobs: FloatArray
    entropies: FloatArray
    kept: FloatArray


class Objective(NamedTuple):
    """The loss of a batch and its gradient.

    Attributes:
        policy: The clipped surrogate, weighted mean over the decisions of the actor.
        value: Half the mean squared error of the critic.
        entropy: Mean entropy over the decisions of the actor.
        total: ``policy + value coefficient * value - entropy coefficient * entropy``.
        weights: ``[cross_width]``, gradient of ``total``.
        critic: ``[critic_width]``, gradient of ``total``.
        net: Gradient of ``total`` by the network's parameters.
        logprobs: ``[N]``, of the choices.
    """

    policy: float
    value: float
    entropy: float
    total: float
    weights: FloatArray
    critic: FloatArray
    net: FloatArray
    logprobs: FloatArray


def choices(batch: Batch, weights: FloatArray, net: Net, *, epsilon: float) -> Choices:
    """Return the probabilities that these weights and this network give, and what follows."""
    return _chosen(batch, weights, said(batch, net).scores, epsilon=epsilon)


def said(batch: Batch, net: Net) -> Said:
    """Return what the network makes of these decisions."""
    return net.said(batch.contexts, batch.rows, batch.starts)


def _chosen(batch: Batch, weights: FloatArray, scores: FloatArray, *, epsilon: float) -> Choices:
    starts, counts = batch.starts[:-1], batch.counts
    logits = batch.options.dot(weights) + scores + batch.base
    shares = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), counts))
    softmax = shares / np.repeat(np.add.reduceat(shares, starts), counts)
    floor = floor_of(counts, batch.explored, epsilon=epsilon)
    probabilities = floor.kept * softmax + floor.least
    logs = _logs(probabilities)
    return Choices(
        softmax,
        probabilities,
        logs[starts + batch.chosen],
        -np.add.reduceat(probabilities * logs, starts),
        floor.kept,
    )


def objective(
    batch: Batch,
    targets: Targets,
    weights: FloatArray,
    critic: FloatArray,
    *,
    net: Net,
    coefficients: Coefficients,
) -> Objective:
    """Return the loss of a batch and its exact gradient.

    ``-mean(w * min(rho * A, clip(rho) * A)) - c_e * mean(H) + c_v * mean((v - R)**2) / 2``, where
    ``rho`` is the probability now over that at the start of the update.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, equation 9; the weight of what an older policy did
        is that of Hilton et al. 2022, arXiv:2110.00641, equation 3 (decoupled clip), cut at 1.
    """
    heard = said(batch, net)
    found = _chosen(batch, weights, heard.scores, epsilon=coefficients.epsilon)
    acting = targets.weights > 0.0
    actors = max(int(acting.sum()), 1)
    ratios = np.exp(found.logprobs - targets.logprobs)
    plain = ratios * targets.advantages
    cut = np.clip(ratios, 1.0 - coefficients.clip, 1.0 + coefficients.clip) * targets.advantages
    policy = -float((targets.weights * np.minimum(plain, cut)).sum()) / actors
    entropy = float(found.entropies[acting].sum()) / actors
    errors = batch.contexts.dot(critic) + heard.values - targets.returns
    value = 0.5 * float((errors**2).mean())

    slopes = np.where(plain <= cut, -targets.weights * plain / actors, 0.0)
    surprises = acting.astype(np.float64) * (coefficients.entropy / actors)
    by_logit = _logit_gradient(batch, found, slopes=slopes, surprises=surprises)
    by_value = errors * (coefficients.value / len(errors))
    return Objective(
        policy,
        value,
        entropy,
        policy + coefficients.value * value - coefficients.entropy * entropy,
        batch.options.transposed_dot(by_logit, len(weights)),
        batch.contexts.transposed_dot(by_value, len(critic)),
        net.gradient(heard, by_logit, by_value),
        found.logprobs,
    )


def _logit_gradient(
    batch: Batch,
    found: Choices,
    *,
    slopes: FloatArray,
    surprises: FloatArray,
) -> FloatArray:
    """Return ``[M]`` the gradient by the logits, through the floor and the softmax.

    Args:
        batch: The decisions.
        found: What the policy says about them.
        slopes: ``[N]``, derivative of the loss by the log-probability of the choice.
        surprises: ``[N]``, minus the derivative of the loss by the entropy.
    """
    starts, counts = batch.starts[:-1], batch.counts
    by_probability = np.repeat(surprises, counts) * (_logs(found.probabilities) + 1.0)
    at = starts + batch.chosen
    by_probability[at] += slopes / np.maximum(found.probabilities[at], _TINY)
    by_softmax = found.kept * by_probability
    means = np.add.reduceat(found.softmax * by_softmax, starts)
    gradient: FloatArray = found.softmax * (by_softmax - np.repeat(means, counts))
    return gradient


def _logs(probabilities: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(probabilities, _TINY))
    return logs
