"""PPO's clipped surrogate with its exact gradient, and the batch that it is taken over."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, offsets
from tau_live.rl.batch import Batch, Trajectories
from tau_live.rl.config import Normalization, PPOConfig
from tau_live.rl.crossing import AdvantageScale
from tau_live.rl.gae import Steps, batched_vtrace, reverse_scan
from tau_live.rl.net import Forward, Net
from tau_live.rl.policy import exploration_floor
from tau_live.rl.state import LearnerState

_TINY = float(np.finfo(np.float64).tiny)  # a probability may underflow where there is no floor


class Targets(NamedTuple):
    """Targets of ``N`` decisions.

    Attributes:
        logprobs: ``[N]``, log-probability of the choice at the start of the update.
        advantages: ``[N]``, scaled.
        weights: ``[N]``, importance weight of each decision for the actor; 0 leaves it out.
        returns: ``[N]``, targets of the critic.
        logged: ``[N]``, log-probability of the choice when it was made; 0 where unknown.
    """

    logprobs: FloatArray
    advantages: FloatArray
    weights: FloatArray
    returns: FloatArray
    logged: FloatArray

    def select(self, decisions: IntArray) -> "Targets":
        """Return the decisions at these indices alone, in that order."""
        return Targets(*(array[decisions] for array in self))


class Choices(NamedTuple):
    """A policy's probabilities for ``N`` decisions with ``M`` allowed options in all.

    Attributes:
        softmax: ``[M]``, before exploration is mixed in.
        probabilities: ``[M]``.
        logprobs: ``[N]``, of the choices.
        entropies: ``[N]``, in nats.
        kept: Share of the softmax beside exploration, ``[M]`` or ``[1]``.
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
        divergence: From the logged probabilities, ``mean(log(ratio)**2) / 2`` over the same.
        total: ``policy + c_v * value - c_e * entropy + c_kl * divergence``, by the coefficients.
        weights: ``[cross_width]``, gradient of ``total``.
        critic: ``[critic_width]``, gradient of ``total``.
        net: Gradient of ``total`` by the network's parameters.
        logprobs: ``[N]``, of the choices.
    """

    policy: float
    value: float
    entropy: float
    divergence: float
    total: float
    weights: FloatArray
    critic: FloatArray
    net: FloatArray
    logprobs: FloatArray


def choices(batch: Batch, weights: FloatArray, net: Net) -> Choices:
    """Return the probabilities under these weights and this network, with logs and entropies."""
    return _choices_from(batch, weights, forward(batch, net).scores)


def forward(batch: Batch, net: Net) -> Forward:
    """Return the network's forward pass of these decisions."""
    return net.forward(batch.contexts, batch.rows, batch.starts)


def _choices_from(batch: Batch, weights: FloatArray, scores: FloatArray) -> Choices:
    starts, counts = batch.starts[:-1], batch.counts
    logits = batch.options.dot(weights) + scores + batch.base
    shares = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), counts))
    softmax = shares / np.repeat(np.add.reduceat(shares, starts), counts)
    kept, least = exploration_floor(counts, batch.explored, epsilon=batch.epsilon)
    probabilities = kept * softmax + least
    logs = _logs(probabilities)
    return Choices(
        softmax,
        probabilities,
        logs[starts + batch.chosen],
        -np.add.reduceat(probabilities * logs, starts),
        kept,
    )


def objective(
    batch: Batch,
    targets: Targets,
    weights: FloatArray,
    critic: FloatArray,
    *,
    net: Net,
    config: PPOConfig,
) -> Objective:
    """Return the loss of a batch and its exact gradient.

    ``-mean(w * min(rho * A, clip(rho) * A)) - c_e * mean(H) + c_v * mean((v - R)**2) / 2``, where
    ``rho`` is the current probability over that at the start of the update; besides it
    ``c_kl * mean(log(pi / mu)**2) / 2``, where ``mu`` is the probability that was logged.

    Source:
        Schulman et al. 2017, arXiv:1707.06347, equation 9; the weights of decisions of an older
        policy are those of Hilton et al. 2022, arXiv:2110.00641, equation 3 (decoupled clip), cut
        at 1.
    """
    output = forward(batch, net)
    policy_choices = _choices_from(batch, weights, output.scores)
    acting = targets.weights > 0.0
    actors = max(int(acting.sum()), 1)
    ratios = np.exp(policy_choices.logprobs - targets.logprobs)
    plain = ratios * targets.advantages
    cut = np.clip(ratios, 1.0 - config.clip, 1.0 + config.clip) * targets.advantages
    policy = -float((targets.weights * np.minimum(plain, cut)).sum()) / actors
    entropy = float(policy_choices.entropies[acting].sum()) / actors
    errors = batch.contexts.dot(critic) + output.values - targets.returns
    value = 0.5 * float((errors**2).mean())

    moved = np.where(acting, policy_choices.logprobs - targets.logged, 0.0)
    divergence = 0.5 * float((moved**2).sum()) / actors
    slopes = np.where(plain <= cut, -targets.weights * plain / actors, 0.0)
    if config.kl_coefficient:
        slopes += config.kl_coefficient * moved / actors
    surprises = acting.astype(np.float64) * (config.entropy_coefficient / actors)
    by_logit = _logit_gradient(batch, policy_choices, slopes=slopes, surprises=surprises)
    by_value = errors * (config.value_coefficient / len(errors))
    return Objective(
        policy,
        value,
        entropy,
        divergence,
        policy
        + config.value_coefficient * value
        - config.entropy_coefficient * entropy
        + config.kl_coefficient * divergence,
        batch.options.transposed_dot(by_logit, len(weights)),
        batch.contexts.transposed_dot(by_value, len(critic)),
        net.gradient(output, by_logit, by_value),
        policy_choices.logprobs,
    )


def _logit_gradient(
    batch: Batch,
    choices: Choices,
    *,
    slopes: FloatArray,
    surprises: FloatArray,
) -> FloatArray:
    """Return ``[M]``, the gradient by the logits, through the floor and the softmax.

    Args:
        batch: The decisions.
        choices: The policy's probabilities.
        slopes: ``[N]``, derivative of the loss by the log-probability of the choice.
        surprises: ``[N]``, minus the derivative of the loss by the entropy.
    """
    starts, counts = batch.starts[:-1], batch.counts
    by_probability = np.repeat(surprises, counts) * (_logs(choices.probabilities) + 1.0)
    at = starts + batch.chosen
    by_probability[at] += slopes / np.maximum(choices.probabilities[at], _TINY)
    by_softmax = choices.kept * by_probability
    means = np.add.reduceat(choices.softmax * by_softmax, starts)
    gradient: FloatArray = choices.softmax * (by_softmax - np.repeat(means, counts))
    return gradient


def _logs(probabilities: FloatArray) -> FloatArray:
    logs: FloatArray = np.log(np.maximum(probabilities, _TINY))
    return logs


class TrainingBatch(NamedTuple):
    """The decisions of an update and their targets.

    Attributes:
        batch: ``[N]`` decisions under the policy at the start of the update.
        targets: Targets; returns are less the regression's part, in units of their deviation.
        acting: ``[N]``, which decisions teach the actor.
        fresh: ``[N]``, which of those are new.
        effective_sample_size: Effective sample size of those decisions.
        window_rollouts: Older rollouts that teach the actor.
        advantage_scale: The running scale after the new decisions.
        returns: ``[N]``, value targets in units of reward.
    """

    batch: Batch
    targets: Targets
    acting: BoolArray
    fresh: BoolArray
    effective_sample_size: float
    window_rollouts: int
    advantage_scale: AdvantageScale
    returns: FloatArray


def build_batch(
    before: LearnerState,
    after_base: LearnerState,
    batch: Batch,
    everything: Trajectories,
    *,
    config: PPOConfig,
    new: int,
) -> TrainingBatch:
    """Return the training batch of an update.

    Args:
        before: State with the version before, whose critic has not learned the new returns.
        after_base: State with the policy at the start of PPO's steps.
        batch: ``[N]`` decisions under that policy.
        everything: The same decisions, new rollouts first, then older ones, the newest last.
        config: How to learn.
        new: How many rollouts are new.
    """
    policy = after_base.policy
    logprobs = choices(batch, policy.weights, policy.net).logprobs
    known = np.isfinite(everything.propensity)
    propensities = np.where(known, everything.propensity, 1.0)
    traces = np.where(known, np.minimum(np.exp(logprobs) / propensities, 1.0), 1.0)
    steps = Steps(
        everything.reward,
        everything.discount * config.gamma,
        batch.contexts.dot(before.policy.critic) + forward(batch, before.policy.net).values,
        everything.bootstrap,
        everything.length,
    )
    estimated = batched_vtrace(steps, traces, lambda_=config.lambda_)
    # the policy has just learned from these returns: bad luck would weigh less in a weighted target
    returns = batched_vtrace(steps, np.ones_like(traces), lambda_=config.lambda_).returns
    acting = known & (batch.counts > 1) & (everything.version_lag <= config.lag_bound)
    kept = _window_mask(traces * acting, acting, everything, share=config.effective_share, new=new)
    acting &= np.repeat(kept, everything.length)
    weights = traces * acting
    fresh = np.arange(len(weights)) < everything.length[:new].sum()
    scale = before.advantage_scale.including(estimated.advantages[acting & fresh])
    advantages = scale.apply(estimated.advantages)
    values = (returns - batch.contexts.dot(after_base.value_base)) / after_base.unit
    own = config.normalization
    if own is not None:
        lengths = everything.length
        advantages = _clip(
            standardize(estimated.advantages, acting, lengths, own)
            if own.advantages
            else estimated.advantages,
            own.clip_advantages,
        )
        everywhere = np.ones_like(acting)
        values = _clip(
            standardize(values, everywhere, lengths, own) if own.returns else values,
            own.clip_returns,
        )
    return TrainingBatch(
        batch,
        Targets(logprobs, advantages, weights, values, np.log(propensities)),
        acting,
        acting & fresh,
        _effective(weights),
        int(kept[new:].sum()),
        scale,
        returns,
    )


def standardize(
    values: FloatArray, counted: BoolArray, lengths: IntArray, normalization: Normalization
) -> FloatArray:
    """Return ``[N]``, ``(value - mean) / sqrt(variance + epsilon)``.

    Args:
        values: ``[N]``, of ``R`` rollouts laid end to end.
        counted: ``[N]``, which of them mean and variance are taken over.
        lengths: ``[R]``, decisions of each rollout.
        normalization: Whether that is over each rollout by itself, and ``epsilon``.
    """
    parts = lengths if normalization.per_rollout else np.array([len(values)], dtype=np.int64)
    starts = offsets(parts)[:-1]
    counts = np.maximum(np.add.reduceat(counted.astype(np.float64), starts), 1.0)
    means = np.add.reduceat(np.where(counted, values, 0.0), starts) / counts
    centred = values - np.repeat(means, parts)
    squares = np.add.reduceat(np.where(counted, centred**2, 0.0), starts) / counts
    scaled: FloatArray = centred / np.sqrt(np.repeat(squares, parts) + normalization.epsilon)
    return scaled


def _clip(values: FloatArray, size: float) -> FloatArray:
    return np.clip(values, -size, size)


def rewards_to_go(trajectories: Trajectories, *, gamma: float) -> FloatArray:
    """Return ``[N]``, the return after each decision, with the bootstrap of rollouts cut off."""
    ends = offsets(trajectories.length)[1:] - 1
    factors = trajectories.discount * gamma
    terms = trajectories.reward.copy()
    terms[ends] += factors[ends] * trajectories.bootstrap
    return _sums_to_go(terms, factors, trajectories.length)


def _sums_to_go(terms: FloatArray, factors: FloatArray, lengths: IntArray) -> FloatArray:
    factors[offsets(lengths)[1:] - 1] = 0.0
    return reverse_scan(terms, factors, longest=int(lengths.max()))


def apply_cost(trajectories: Trajectories, multiplier: float) -> Trajectories:
    """Return the same with every reward less its priced cost, where the cost is known.

    Args:
        trajectories: ``N`` decisions.
        multiplier: Price of one unit of cost in units of reward.
    """
    if trajectories.cost is None or not multiplier:
        return trajectories
    counted = np.where(_unknown_costs(trajectories, trajectories.cost), 0.0, trajectories.cost)
    return replace(trajectories, reward=trajectories.reward - multiplier * counted)


def costs_to_go(trajectories: Trajectories) -> FloatArray:
    """Return ``[N]``, the sum of costs after each decision; NaN where unknown."""
    if trajectories.cost is None:
        return np.full(len(trajectories.encoded), np.nan)
    unknown = _unknown_costs(trajectories, trajectories.cost)
    known = np.where(unknown, 0.0, trajectories.cost)
    sums = _sums_to_go(known, np.ones(len(known)), trajectories.length)
    return np.where(unknown, np.nan, sums)


def _unknown_costs(trajectories: Trajectories, costs: FloatArray) -> BoolArray:
    """Return ``[N]`` which decisions belong to a rollout with an unknown cost."""
    unknown = np.logical_or.reduceat(np.isnan(costs), offsets(trajectories.length)[:-1])
    return np.repeat(unknown, trajectories.length)


def _window_mask(
    weights: FloatArray, acting: BoolArray, everything: Trajectories, *, share: float, new: int
) -> BoolArray:
    """Return ``[R]`` which rollouts teach the actor.

    All new ones, and as many of the most recent older ones as keep the effective sample at or above
    this share of the decisions.
    """
    starts = offsets(everything.length)[:-1]
    rollouts = len(starts)
    order = np.concatenate([np.arange(new), np.arange(rollouts - 1, new - 1, -1)])
    sums, squares, actors = (
        np.cumsum(np.add.reduceat(array, starts)[order])
        for array in (weights, weights**2, acting.astype(np.float64))
    )
    enough = sums**2 >= share * actors * squares
    enough[: new - 1] = False
    last = np.flatnonzero(enough)
    kept = np.zeros(rollouts, dtype=np.bool_)
    kept[order[: last[-1] + 1 if len(last) else new]] = True
    return kept


def _effective(weights: FloatArray) -> float:
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0
