"""What one update learns from: decisions with advantages, weights and value targets."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, offsets
from tau_live.rl.batch import Batch, Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.gae import Steps, batched_vtrace
from tau_live.rl.scaling import AdvantageScale
from tau_live.rl.scan import reverse_scan
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import Targets, choices, said


class Lesson(NamedTuple):
    """The decisions of an update and what each should teach.

    Attributes:
        batch: ``[N]`` decisions under the policy at the start of the update.
        targets: The values less the regression's part, in units of the returns' deviation.
        acting: ``[N]``, which decisions teach the actor.
        effective_sample_size: Of those.
        window_rollouts: Older rollouts that teach the actor.
        advantage_scale: After the new decisions.
        returns: ``[N]``, value targets as they are.
    """

    batch: Batch
    targets: Targets
    acting: BoolArray
    effective_sample_size: float
    window_rollouts: int
    advantage_scale: AdvantageScale
    returns: FloatArray


def lesson(
    before: LearnerState,
    started: LearnerState,
    batch: Batch,
    everything: Trajectories,
    *,
    config: PPOConfig,
    new: int,
) -> Lesson:
    """Return what an update learns.

    Args:
        before: Holds the version before, whose critic did not know the new returns.
        started: Holds the policy at the start of the update.
        batch: ``[N]`` decisions under that policy.
        everything: The same decisions, new rollouts first, then older ones, the newest last.
        config: How to learn.
        new: How many rollouts are new.
    """
    policy = started.policy
    logprobs = choices(batch, policy.weights, policy.net, epsilon=policy.config.epsilon).logprobs
    known = np.isfinite(everything.propensity)
    propensities = np.where(known, everything.propensity, 1.0)
    traces = np.where(known, np.minimum(np.exp(logprobs) / propensities, 1.0), 1.0)
    steps = Steps(
        everything.reward,
        everything.discount * config.gamma,
        batch.contexts.dot(before.policy.critic) + said(batch, before.policy.net).values,
        everything.bootstrap,
        everything.length,
    )
    estimated = batched_vtrace(steps, traces, lambda_=config.lambda_)
    acting = known & (batch.counts > 1) & (everything.version_lag <= config.lag_bound)
    kept = _kept(traces * acting, acting, everything, share=config.effective_share, new=new)
    acting &= np.repeat(kept, everything.length)
    weights = traces * acting
    fresh = np.arange(len(weights)) < everything.length[:new].sum()
    scale = before.advantage_scale.including(estimated.advantages[acting & fresh])
    values = (estimated.returns - batch.contexts.dot(started.value_base)) / started.unit
    return Lesson(
        batch,
        Targets(logprobs, scale.scaled(estimated.advantages), weights, values),
        acting,
        _effective(weights),
        int(kept[new:].sum()),
        scale,
        estimated.returns,
    )


def rewards_to_go(trajectories: Trajectories, *, gamma: float) -> FloatArray:
    """Return ``[N]`` what followed each decision, the bootstrap included where one was cut off."""
    ends = offsets(trajectories.length)[1:] - 1
    factors = trajectories.discount * gamma
    terms = trajectories.reward.copy()
    terms[ends] += factors[ends] * trajectories.bootstrap
    factors[ends] = 0.0
    return reverse_scan(terms, factors, longest=int(trajectories.length.max()))


def charged(trajectories: Trajectories, multiplier: float) -> Trajectories:
    """Return the same with every reward less its multiplied cost where that is known.

    Args:
        trajectories: ``N`` decisions.
        multiplier: What one unit of cost weighs in units of reward.
    """
    if trajectories.cost is None or not multiplier:
        return trajectories
    counted = np.where(_untold(trajectories, trajectories.cost), 0.0, trajectories.cost)
    return replace(trajectories, reward=trajectories.reward - multiplier * counted)


def costs_to_go(trajectories: Trajectories) -> FloatArray:
    """Return ``[N]`` the cost of what followed each decision; NaN where nobody told."""
    if trajectories.cost is None:
        return np.full(len(trajectories.encoded), np.nan)
    ends = offsets(trajectories.length)[1:] - 1
    factors = np.ones(len(trajectories.cost))
    factors[ends] = 0.0
    unknown = _untold(trajectories, trajectories.cost)
    known = np.where(unknown, 0.0, trajectories.cost)
    sums = reverse_scan(known, factors, longest=int(trajectories.length.max()))
    return np.where(unknown, np.nan, sums)


def _untold(trajectories: Trajectories, costs: FloatArray) -> BoolArray:
    """Return ``[N]`` which decisions are of a rollout any cost of which is unknown."""
    unknown = np.logical_or.reduceat(np.isnan(costs), offsets(trajectories.length)[:-1])
    return np.repeat(unknown, trajectories.length)


def _kept(
    weights: FloatArray, acting: BoolArray, everything: Trajectories, *, share: float, new: int
) -> BoolArray:
    """Return ``[R]`` which rollouts teach the actor.

    All new ones, and as many of the newest older ones as leave the effective sample at least this
    share of the decisions.
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
