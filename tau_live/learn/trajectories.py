"""Stored decisions as arrays; the only place that leaves decisions out, each with its reason.

The steps of a trajectory are the decisions at one point, nothing else: telemetry is never a step.

Rewards were checked before, when they were joined (``record.rewards``), with the same reasons.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf, nan
from typing import NamedTuple

import numpy as np

from tau_live.core.reasons import CRITIC_ONLY, LEFT_OUT, WhyNot
from tau_live.core.records import (
    IMPORTED,
    ROLLOUT_ENDS,
    Decision,
    LearnableRollout,
    Reason,
    Reward,
    Rollout,
)
from tau_live.record.rewards import Outcome
from tau_live.record.spans import DROPPED
from tau_live.rl.arrays import BoolArray, FloatArray, offsets
from tau_live.rl.batch import Trajectories
from tau_live.rl.bounds import Limits, is_usable
from tau_live.rl.features import WIDTH, Encoded, unpack
from tau_live.rl.throttle import yield_gil

LEAST_PROPENSITY = 1e-300
"""Below, an importance weight would not be finite."""

MOST_PROPENSITY = 1.0 + 1e-9
"""The propensity of a certain choice may be above 1 by a rounding error."""

HOSTS_OWN = frozenset({WhyNot.APPLIED_DIFFERS, WhyNot.NO_PROPENSITY})
"""Reasons that mark a host's own choice; with a setting it may teach the critic all the same."""


class Step(NamedTuple):
    """A decision that may be learned from.

    Attributes:
        decision: The stored decision.
        encoded: Its features.
        allowed: ``[A]``, which options were allowed; ``None`` if all were.
        explored: ``[A]``, false where an option was unsafe to explore; ``None`` if none was.
        propensity: Probability of the applied option; NaN where it teaches the critic only.
        critic_only: Why it teaches the critic only; ``None`` where it teaches the actor too.
    """

    decision: Decision
    encoded: Encoded
    allowed: BoolArray | None
    explored: BoolArray | None
    propensity: float
    critic_only: WhyNot | None


def own_reward(rollout: Rollout) -> float | None:
    """Return the reward of the run itself; ``None`` before it is ready."""
    return rollout.total_reward if rollout.run_reward is None else rollout.run_reward


def why_not_all(rollout: Rollout) -> WhyNot | None:
    """Return why a rollout may not be learned from at all; ``None`` when it may."""
    if rollout.status not in ROLLOUT_ENDS:
        return WhyNot.TRIED_AGAIN
    if rollout.metadata.get(DROPPED):
        return WhyNot.EVENTS_DROPPED
    if rollout.total_reward is None:
        return WhyNot.NO_REWARD
    if not is_usable(rollout.total_reward):
        return WhyNot.REWARD_NOT_FINITE
    return None


def step_of(
    decision: Decision, *, last_attempt: int, width: int, learn_from_host: bool = False
) -> Step | WhyNot:
    """Return a decision as a step, or why it is none.

    Args:
        decision: The stored decision.
        last_attempt: The attempt of its rollout that counts.
        width: Width of the policy's features.
        learn_from_host: Whether a host's own choice may teach the critic.
    """
    reasons = why_not(decision)
    critic_only = (
        reasons[0] if reasons and learn_from_host and HOSTS_OWN.issuperset(reasons) else None
    )
    if reasons and critic_only is None:
        return reasons[0]
    if decision.attempt != last_attempt:
        return WhyNot.EARLIER_ATTEMPT
    mask = mask_of(decision)
    if (len(decision.options) if mask is None else int(mask.sum())) == 1:
        return WhyNot.ONE_OPTION
    encoded = encoded_of(decision, width=width)
    if isinstance(encoded, WhyNot):
        return encoded
    propensity = nan if critic_only else decision.propensity or 0.0
    return Step(decision, encoded, mask, explored_of(decision), propensity, critic_only)


def why_not(decision: Decision) -> list[WhyNot]:
    """Return every reason for which a decision by itself may not be learned from."""
    propensity, options, allowed = decision.propensity, decision.options, decision.allowed
    applied = decision.applied
    checks = (
        (WhyNot.MASK_MISSING, _lacks_mask(decision)),
        (WhyNot.MASK_DAMAGED, allowed is not None and not {*allowed} <= {*options}),
        (WhyNot.APPLIED_UNKNOWN, applied is None or applied not in options),
        (WhyNot.APPLIED_MASKED, allowed is not None and applied not in allowed),
        (WhyNot.OPTIONS_REPEATED, len(set(options)) < len(options)),
        (WhyNot.VALUE_NOT_FINITE, not is_usable(decision.value or 0.0)),
        (WhyNot.NO_FEATURES, not decision.encoded),
        (WhyNot.APPLIED_DIFFERS, applied != decision.chosen),
        (WhyNot.NO_PROPENSITY, propensity is None),
        (WhyNot.ZERO_PROPENSITY, propensity == 0.0),
        (
            WhyNot.PROPENSITY_OUT_OF_RANGE,
            propensity is not None and not LEAST_PROPENSITY <= propensity <= MOST_PROPENSITY,
        ),
    )
    return [reason for reason, fails in checks if fails]


def mask_of(decision: Decision) -> BoolArray | None:
    """Return ``[A]`` which options were allowed; ``None`` if all were."""
    if decision.allowed is None:
        return None
    names = {*decision.allowed}
    return np.array([name in names for name in decision.options], dtype=np.bool_)


def explored_of(decision: Decision) -> BoolArray | None:
    """Return ``[A]`` which options were explored; ``None`` if none was unsafe to explore."""
    if decision.exploit_only is None:
        return None
    names = {*decision.exploit_only}
    return np.array([name not in names for name in decision.options], dtype=np.bool_)


def encoded_of(decision: Decision, *, width: int) -> Encoded | WhyNot:
    """Return the features of a decision, or why they are unknown."""
    if not decision.encoded:
        return WhyNot.NO_FEATURES
    try:
        encoded = unpack(decision.encoded)
    except ValueError:
        return WhyNot.FEATURES_DAMAGED
    if encoded.options != len(decision.options):
        return WhyNot.FEATURES_DAMAGED
    return encoded if encoded.width == width else WhyNot.FEATURES_OF_ANOTHER_WIDTH


def last_attempt(decisions: Sequence[Decision]) -> int:
    """Return the attempt that counts: the last with a decision at any point."""
    return max((decision.attempt for decision in decisions), default=0)


def _lacks_mask(decision: Decision) -> bool:
    if not decision.options:
        return True
    if decision.allowed is not None or len(decision.probabilities) != len(decision.options):
        return False
    if 0.0 not in decision.probabilities:  # the usual case
        return False
    exploit_only = decision.exploit_only or ()  # without a floor theirs may have underflowed to 0
    by_option = zip(decision.options, decision.probabilities, strict=True)
    return any(probability == 0.0 and name not in exploit_only for name, probability in by_option)


Incurred = Callable[[LearnableRollout], float | None]
"""Returns the safety cost of a rollout; ``None`` where unknown."""

Taken = Callable[[LearnableRollout], tuple[float, float]]
"""Returns the safety penalty on a rollout's reward, at most 0, and the cap on that reward."""

CUT_OFF = frozenset({Reason.INTERRUPTED, Reason.TIMEOUT, Reason.CANCELLED, Reason.ABANDONED})


class LeftOut(NamedTuple):
    """A rollout, or one decision of it, that is not learned from."""

    rollout_id: str
    decision_id: str | None
    reason: WhyNot


class CollectedRollouts(NamedTuple):
    """The usable part of some rollouts, and the parts left out.

    Attributes:
        trajectories: The usable rollouts; ``None`` when there is none.
        rollout_ids: Their ids, in the same order.
        left_out: All others, each with its reason.
        critic_only: The decisions among them that teach the critic, but not the actor.
        decisions: ``[N]``, the decisions that the trajectories consist of.
        safety: ``[R, 2]``, the safety penalty on each rollout's reward, and the cap on it.
    """

    trajectories: Trajectories | None
    rollout_ids: list[str]
    left_out: list[LeftOut]
    critic_only: list[LeftOut]
    decisions: Sequence[Decision] = ()
    safety: Sequence[tuple[float, float]] = ()

    def extremes(self) -> list[tuple[float, float]]:
        """Return ``[R, 2]`` the lowest and the highest reward after a decision of each rollout.

        Safety penalties are excluded. A reward of 0 counts only after the last decision.
        """
        if self.trajectories is None:
            return []
        rewards = self._raw_rewards(self.trajectories)
        starts = offsets(self.trajectories.length)
        counts = rewards != 0.0
        counts[starts[1:] - 1] = True
        lowest = np.minimum.reduceat(np.where(counts, rewards, inf), starts[:-1])
        highest = np.maximum.reduceat(np.where(counts, rewards, -inf), starts[:-1])
        return list(zip(lowest.tolist(), highest.tolist(), strict=True))

    def within(self, limits: Limits) -> tuple["CollectedRollouts", list[str]]:
        """Return the same with every reward clipped to limits, and the rollouts that had others.

        A safety penalty is set by the operator, and is no outlier.

        Args:
            limits: The lowest and the highest that a reward counts as.
        """
        known = self.trajectories
        if known is None:
            return self, []
        raw = self._raw_rewards(known)
        beyond = (raw < limits.low) | (raw > limits.high)
        if not beyond.any():
            return self, []
        ends = offsets(known.length)[1:] - 1
        bounded = np.clip(raw, limits.low, limits.high)
        for end, (penalty, cap) in zip(ends.tolist(), self.safety, strict=True):
            bounded[end] = min(bounded[end] + penalty, cap)
        reward = np.where(beyond, bounded, known.reward)
        rollouts = np.repeat(np.arange(len(ends)), known.length)[beyond]
        ids = [self.rollout_ids[at] for at in np.unique(rollouts).tolist()]
        return self._replace(trajectories=replace(known, reward=reward)), ids

    def _raw_rewards(self, known: Trajectories) -> FloatArray:
        """Return ``[N]`` the rewards without safety penalties."""
        rewards = known.reward.copy()
        rewards[offsets(known.length)[1:] - 1] -= [penalty for penalty, _ in self.safety]
        return rewards


def trajectories_of(  # noqa: PLR0913  # keyword-only but for the first two
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    versions: Sequence[int],
    discount: float,
    outcome: Callable[[LearnableRollout], Outcome],
    cost: Incurred = lambda _: None,
    taken: Taken = lambda _: (0.0, inf),
    version_times: Sequence[float] = (),
    width: int = WIDTH,
    lag_bound: int | None = None,
    learn_from_host: bool = False,
) -> CollectedRollouts:
    """Return the decisions at one point as trajectories.

    A rollout's reward comes after its last decision at the point; the reward of a decision, at this
    point or another, after the last decision up to then. A decision that may not be learned from
    is no step: its reward goes to the step before.

    A rollout that was cut off without a reward as a whole is bootstrapped with the estimate of its
    last state; one that ended, or that was rewarded, is not.

    Args:
        rollouts: Finished and rewarded rollouts.
        point: The decision point.
        versions: Every version of the point in ascending order; the lag of a decision is counted
            in them.
        discount: The discount of one step, in ``[0, 1]``.
        outcome: The reward of a rollout. Its decisions' rewards count besides the total; no later
            decision can have earned a part of the total that was given early.
        cost: The safety cost of a rollout.
        taken: The safety penalty on its reward, and the cap on it.
        version_times: When each of ``versions`` was made, in epoch seconds. A replayed decision
            names a version of another store, so its lag is counted in those made after it. An
            imported one was made by no version of ours, so it never grows old.
        width: Width of the policy's features; a decision of another width is left out.
        lag_bound: Decisions that lag by more versions are too old for the actor; ``None`` sets no
            bound.
        learn_from_host: Whether a host's own choices may teach the critic.
    """
    kept: list[_Rollout] = []
    left_out: list[LeftOut] = []
    for learnable in rollouts:
        yield_gil()
        rollout = learnable.rollout
        steps, rewards, reason = [], [], why_not_all(rollout)
        if reason is None:
            steps = _steps_of(
                learnable, point, left_out, width=width, learn_from_host=learn_from_host
            )
            reason = None if steps else WhyNot.NO_USABLE_DECISIONS
        if reason is None:
            rewards = _rewards(steps, learnable, outcome(learnable))
            reason = None if all(map(is_usable, rewards)) else WhyNot.REWARD_NOT_FINITE
        if reason is None:
            kept.append(_Rollout(learnable, steps, rewards, cost(learnable)))
        else:
            left_out.append(LeftOut(rollout.rollout_id, None, reason))
    version_times = sorted(version_times)
    decided = [(step, part.learnable.rollout) for part in kept for step in part.steps]
    lags = [_lag(step.decision, rollout, versions, version_times) for step, rollout in decided]
    critic_only = []
    for (step, _), lag in zip(decided, lags, strict=True):
        too_old = lag_bound is not None and lag > lag_bound
        why = step.critic_only or (WhyNot.TOO_OLD if too_old else None)
        if why:
            critic_only.append(LeftOut(step.decision.rollout_id, step.decision.decision_id, why))
    return CollectedRollouts(
        _arrays(kept, lags, point=point, discount=discount) if kept else None,
        [part.learnable.rollout.rollout_id for part in kept],
        left_out,
        critic_only,
        [step.decision for step, _ in decided],
        [taken(part.learnable) for part in kept],
    )


def counts_of(collected: CollectedRollouts | None, rollout_ids: Collection[str]) -> dict[str, int]:
    """Return, by counter, how many entries of these rollouts were left out or critic-only."""
    if collected is None:
        return {}
    named = ((LEFT_OUT, collected.left_out), (CRITIC_ONLY, collected.critic_only))
    return Counter(
        f"{prefix}{entry.reason}"
        for prefix, entries in named
        for entry in entries
        if entry.rollout_id in rollout_ids
    )


def _steps_of(
    learnable: LearnableRollout,
    point: str,
    left_out: list[LeftOut],
    *,
    width: int,
    learn_from_host: bool,
) -> list[Step]:
    last = last_attempt(learnable.decisions)
    steps = []
    for decision in learnable.decisions:
        if decision.point != point:
            continue
        step = step_of(decision, last_attempt=last, width=width, learn_from_host=learn_from_host)
        if isinstance(step, Step):
            steps.append(step)
        else:
            left_out.append(LeftOut(decision.rollout_id, decision.decision_id, step))
    return steps


def _choices(rollout: "_Rollout", point: str) -> int:
    """Return how many decisions of a run may be learned from, those at other points included."""
    decisions = rollout.learnable.decisions
    last = last_attempt(decisions)
    return len(rollout.steps) + sum(
        decision.point != point
        and decision.attempt == last
        and len(decision.options) > 1
        and not why_not(decision)
        for decision in decisions
    )


class _Rollout(NamedTuple):
    """A usable rollout: its steps, the reward after each, and its safety cost."""

    learnable: LearnableRollout
    steps: Sequence[Step]
    rewards: Sequence[float]
    cost: float | None


def _lag(
    decision: Decision, rollout: Rollout, versions: Sequence[int], version_times: Sequence[float]
) -> int:
    """Return how many versions are newer than the one that decided."""
    if decision.source == IMPORTED:
        return 0
    if rollout.owner is None and version_times:
        return len(version_times) - bisect_right(version_times, decision.at)
    return len(versions) - bisect_right(versions, decision.policy_version)


def _arrays(
    kept: Sequence[_Rollout], lags: Sequence[int], *, point: str, discount: float
) -> Trajectories:
    steps = [step for rollout in kept for step in rollout.steps]
    decisions = [step.decision for step in steps]
    masks, flags = [step.allowed for step in steps], [step.explored for step in steps]
    length = np.array([len(rollout.steps) for rollout in kept], dtype=np.int64)
    ends = np.cumsum(length) - 1
    value = np.array([decision.value or 0.0 for decision in decisions])
    cut_off = np.array(
        [_is_cut_off(part.learnable.rollout, part.learnable.rewards) for part in kept]
    )
    discounts = np.full(len(steps), discount)
    discounts[ends] = np.where(cut_off, discount, 0.0)
    costs = np.array([nan if rollout.cost is None else rollout.cost for rollout in kept])
    cost = np.repeat(0.0 * costs, length)  # NaN in all of a rollout whose cost is unknown
    cost[ends] = costs
    return Trajectories(
        encoded=tuple(step.encoded for step in steps),
        chosen=np.array(
            [decision.options.index(decision.applied or "") for decision in decisions],
            dtype=np.int64,
        ),
        default=np.array(
            [_index(decision.options, decision.default) for decision in decisions], dtype=np.int64
        ),
        allowed=None if all(mask is None for mask in masks) else masks,
        explored=None if all(flag is None for flag in flags) else flags,
        run_decisions=np.array([_choices(part, point) for part in kept], dtype=np.int64),
        propensity=np.array([step.propensity for step in steps]),
        value=value,
        reward=np.array([reward for rollout in kept for reward in rollout.rewards]),
        discount=discounts,
        bootstrap=np.where(cut_off, value[ends], 0.0),
        length=length,
        version_lag=np.array(lags, dtype=np.int64),
        cost=None if np.isnan(costs).all() else cost,
    )


def _index(options: Sequence[str], name: str | None) -> int:
    return options.index(name) if name is not None and name in options else -1


def _rewards(steps: Sequence[Step], learnable: LearnableRollout, outcome: Outcome) -> list[float]:
    """Return the reward after each step: that of its decision, and at the end the total.

    A reward given early comes after the last step until then; in a rollout with several attempts
    the attempt of such a reward is unknown, so it stays in the total.
    """
    rewards = [0.0] * len(steps)
    last = last_attempt(learnable.decisions)
    ordinals = [step.decision.ordinal for step in steps]
    places = {
        decision.decision_id: bisect_right(ordinals, decision.ordinal) - 1
        for decision in learnable.decisions
        if decision.attempt == last
    }
    for decision_id, value in outcome.decisions.items():
        place = places.get(decision_id, -1)
        if place >= 0:
            rewards[place] += value
    rewards[-1] += own_reward(learnable.rollout) or 0.0
    for before, value in outcome.early.items() if last == 1 else ():
        place = bisect_right(ordinals, before) - 1
        if place < len(steps) - 1:  # else it is where the total is
            rewards[-1] -= value
            if place >= 0:
                rewards[place] += value
    return rewards


def _is_cut_off(rollout: Rollout, rewards: Sequence[Reward]) -> bool:
    valued = any(
        reward.decision_id is None and reward.value is not None and reward.source != "default"
        for reward in rewards
    )
    return rollout.reason in CUT_OFF and not valued
