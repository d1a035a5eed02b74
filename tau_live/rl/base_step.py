"""The first step of an update: new rollouts into the sums, the base a bounded way after them."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, frozen
from tau_live.rl.base import Base, Estimates, Parted, base_of
from tau_live.rl.batch import Batch, Trajectories, batch, unbased
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.config import PPOConfig
from tau_live.rl.exploring import added
from tau_live.rl.lesson import costs_to_go, rewards_to_go
from tau_live.rl.policy import Policy
from tau_live.rl.state import LearnerState, Returns
from tau_live.rl.surrogate import choices

_TRIES = 12
_LOOKED_AT = 64  # decisions, for how much contexts differ


class Circumstances(NamedTuple):
    """What of the world an update has to know beside the rollouts.

    Attributes:
        price: What one unit of safety cost weighs in units of reward, at least 0.
        doubted: ``[N]``, which new decisions chose an option that is not what it was; ``None`` if
            none did.
    """

    price: float = 0.0
    doubted: BoolArray | None = None


AS_EVER = Circumstances()


class BaseStep(NamedTuple):
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


def base_step(  # noqa: PLR0913  # its data, and who may interrupt, all keyword-only
    state: LearnerState,
    fresh: Trajectories,
    everything: Trajectories,
    *,
    config: PPOConfig,
    now: Circumstances,
    rng: np.random.Generator,
    breathe: Breathe = at_once,
) -> BaseStep:
    """Return the state that has learned from the returns of new rollouts, but not by PPO yet.

    Args:
        state: From the update before.
        fresh: Rollouts never seen before.
        everything: The same, and older ones after them.
        config: How to learn.
        now: What of the world is not in the rollouts.
        rng: Draws the noise of the regressions' posteriors.
        breathe: Called between the parts.
    """
    counted = _judged(state, fresh, config)
    breathe()
    counted = counted.counting(fresh, everything)
    breathe()
    changed = now.doubted is not None and bool(now.doubted.any())
    if now.doubted is not None and changed:
        options = _chosen(fresh, np.flatnonzero(now.doubted))
        counted = counted.forgetting(options, penalty=config.penalty, rng=rng)
    policy = replace(counted.policy, scale=counted.scale, rollouts=counted.counts.rollouts)
    breathe()
    data = unbased(policy, everything)
    breathe()
    new = len((fresh if counted.action_fit.samples else everything).encoded)
    counted = counted.learning(
        data.select(np.arange(new)),
        _returns(everything, config, first=new),
        chosen=np.isfinite(everything.propensity[:new]),
        penalty=config.penalty,
        rng=rng,
        breathe=breathe,
    )
    goal = _goal(counted, data, config, price=now.price, new=len(fresh.encoded), breathe=breathe)
    breathe()
    policy, base_kl = _moved(
        policy,
        data,
        goal,
        before=state.policy,
        fresh=fresh,
        bound=inf if changed else config.base_kl,
    )
    breathe()
    moved = data.under(policy, breathe)
    breathe()
    value_base = counted.expectation(now.price)
    policy = replace(policy, critic=frozen(policy.critic - state.value_base + value_base))
    started = replace(counted, policy=policy, value_base=frozen(value_base))
    started = started.knowing(data.contexts.slots, data.rows.slots)
    return BaseStep(counted, started, moved, base_kl)


def _returns(rollouts: Trajectories, config: PPOConfig, *, first: int) -> Returns:
    """Return what followed the first of these decisions, in reward and in safety cost."""
    rewards = rewards_to_go(rollouts, gamma=config.gamma)
    return Returns(rewards[:first], costs_to_go(rollouts)[:first])


def _goal(
    counted: LearnerState,
    data: Batch,
    config: PPOConfig,
    *,
    price: float,
    new: int,
    breathe: Breathe,
) -> Base:
    """Return the base that the sums ask for, which tries what is in doubt in these contexts.

    Args:
        counted: Has learned from the new rollouts.
        data: All decisions, the new ones first.
        config: How to learn.
        price: What one unit of safety cost weighs.
        new: How many decisions are new.
        breathe: Called between the parts.
    """
    goal = base_of(
        counted.action_fit,
        sharpness=config.sharpness,
        exploration=config.exploration,
        penalty=config.penalty,
        multiplier=price,
        together=counted.counts.decisions / max(counted.counts.rollouts, 1),
        kernels=counted.kernels,
    )
    breathe()
    return goal._replace(exploration=goal.exploration / _variety(goal, data, new=new))


def _judged(state: LearnerState, fresh: Trajectories, config: PPOConfig) -> LearnerState:
    """Return the state that knows how well it foresaw what followed new decisions of its own."""
    if not state.kernels.fits:
        return state
    policy = replace(state.policy, scale=state.scale)
    data = batch(policy, fresh)
    ours = np.flatnonzero(np.isfinite(fresh.propensity))
    some = data.select(ours)
    likely = choices(some, policy.weights, policy.net, epsilon=policy.config.epsilon).probabilities
    return state.judging(some, rewards_to_go(fresh, gamma=config.gamma)[ours], likely)


def _variety(goal: Base, data: Batch, *, new: int) -> float:
    """Return by how much less needs to be tried on purpose, because contexts differ.

    What an option is worth here or there is found out anyway as contexts come by; what it is worth
    at all is not.

    Args:
        goal: What is doubted.
        data: Decisions, the new ones first, the newest of the others last.
        new: How many are new.

    Source:
        Bastani, Bayati and Khosravi 2021, "Mostly exploration-free algorithms for contextual
        bandits": where contexts vary enough, even no exploration is enough.
    """
    decisions = len(data.chosen)
    older = min(decisions - new, max(_LOOKED_AT - new, 0))
    some = data.select(
        np.concatenate([np.arange(min(new, _LOOKED_AT)), np.arange(decisions - older, decisions)])
    )
    return goal.variety(some.options, some.rows.slots[some.rows.starts[:-1]])


def _chosen(fresh: Trajectories, decisions: IntArray) -> IntArray:
    """Return the slots of the entries of the options that these decisions chose, each once."""
    found = []
    for n in decisions.tolist():
        encoded, row = fresh.encoded[n], int(fresh.chosen[n]) + 1
        found.append(encoded.indices[encoded.starts[row] : encoded.starts[row + 1]])
    return np.unique(np.concatenate(found)).astype(np.int64)


def _moved(
    policy: Policy, data: Batch, goal: Base, *, before: Policy, fresh: Trajectories, bound: float
) -> tuple[Policy, float]:
    """Return the policy with its base as far toward the goal as the bound allows, and how far.

    Args:
        policy: With the scale to come.
        data: All decisions under that scale, the new ones first.
        goal: Where to.
        before: The version before.
        fresh: The new decisions, which the divergence is measured on.
        bound: In nats.
    """
    epsilon = policy.config.epsilon
    then = choices(batch(before, fresh), before.weights, before.net, epsilon=epsilon).probabilities
    new = data.select(np.arange(len(fresh.encoded)))
    if before.base.kernel.is_heard or goal.kernel.is_heard:
        new = new.heard_by(policy)
    near, far = (base.parted(new.options, new.seen) for base in (before.base, goal))
    preferred = policy.default_bonus * new.preferred
    divergence, share = 0.0, 1.0
    for _ in range(_TRIES):
        found = _between(near, far, share)
        bonus = (1.0 - share) * before.base.exploration + share * goal.exploration
        part = goal._replace(exploration=bonus)
        ridge = added(part, found, new.starts, new.explored)
        now = choices(
            new._replace(base=preferred + ridge), policy.weights, policy.net, epsilon=epsilon
        )
        divergence = _divergence(then, now.probabilities) / len(new.chosen)
        if divergence <= bound:
            break
        share *= min(0.7, float(np.sqrt(bound / divergence)))  # near 0 it grows with its square
    moved = goal if share == 1.0 else goal.near(before.base, share)
    return replace(policy, base=moved), divergence


def _between(near: Parted, far: Parted, share: float) -> Estimates:
    """Return what the base says that is this share of the way, as sure as at its end."""
    gains = (1.0 - share) * near.slopes.gains + share * far.slopes.gains
    before = np.where(near.known, near.kernels, far.kernels)  # as ``Kernel.near``
    return Parted(
        far.slopes._replace(gains=gains),
        (1.0 - share) * before + share * far.kernels,
        far.known,
        (1.0 - share) * near.trust + share * far.trust,
    ).joined()


def _divergence(then: FloatArray, now: FloatArray) -> float:
    tiny = float(np.finfo(np.float64).tiny)
    return float((then * np.log(np.maximum(then, tiny) / np.maximum(now, tiny))).sum())
