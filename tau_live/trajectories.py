"""Stored decisions become arrays; what is left out is listed with the reason, only here.

The steps of a trajectory are the decisions at one point, nothing else: telemetry is never a step.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tau_live.rl.batch import Trajectories
from tau_live.rl.features import Encoded, unpack
from tau_live.rollouts import Decision, Reason, Reward, Rollout
from tau_live.store.records import LearnableRollout

CUT_OFF = frozenset({Reason.INTERRUPTED, Reason.TIMEOUT, Reason.CANCELLED, Reason.ABANDONED})


class LeftOut(NamedTuple):
    """A rollout, or one decision of it, that is not learned from."""

    rollout_id: str
    decision_id: str | None
    reason: str


class Collected(NamedTuple):
    """What can be learned from, and what cannot.

    Attributes:
        trajectories: The usable rollouts; ``None`` when there is none.
        rollout_ids: Their ids, in the same order.
        left_out: Everything else.
    """

    trajectories: Trajectories | None
    rollout_ids: list[str]
    left_out: list[LeftOut]


class _Step(NamedTuple):
    decision: Decision
    encoded: Encoded


def trajectories_of(
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    versions: Sequence[int],
    discount: float,
    weights: Mapping[str, float],
) -> Collected:
    """Return the decisions at one point as trajectories.

    A rollout's reward comes after its last decision at the point; what a decision earned, at this
    point or another, after the last decision up to then. A decision that may not be learned from
    is no step: what it earned goes to the step before.

    A rollout that was cut off before anybody valued it as a whole goes on in the estimate of its
    last state (``bootstrap``); one that ended, or that was valued, does not.

    Args:
        rollouts: Finished and rewarded.
        point: The decision point.
        versions: Every version of the point in ascending order; the lag of a decision is counted
            in them.
        discount: The discount of one step, in ``[0, 1]``.
        weights: What a decision's own reward counts by name; 1 where it is not named.
    """
    rows = _Rows(weights)
    used: list[str] = []
    left_out: list[LeftOut] = []
    for learnable in rollouts:
        rollout_id = learnable.rollout.rollout_id
        steps = _steps_of(learnable, point, left_out)
        total = learnable.rollout.total_reward
        if total is None or not np.isfinite(total):
            left_out.append(LeftOut(rollout_id, None, "reward_not_finite"))
        elif not steps:
            left_out.append(LeftOut(rollout_id, None, "no_usable_decisions"))
        else:
            rows.add(steps, learnable, versions=versions, discount=discount)
            used.append(rollout_id)
    return Collected(rows.trajectories() if used else None, used, left_out)


def _steps_of(learnable: LearnableRollout, point: str, left_out: list[LeftOut]) -> list[_Step]:
    last_attempt = max((d.attempt for d in learnable.decisions), default=0)
    steps = []
    for decision in learnable.decisions:
        if decision.point != point:
            continue
        reason = why_not(decision)
        if reason is None and decision.attempt != last_attempt:
            reason = "earlier_attempt"
        if reason is None:
            try:
                encoded = unpack(decision.encoded)
            except ValueError:
                reason = "features_damaged"
            else:
                steps.append(_Step(decision, encoded))
        if reason is not None:
            left_out.append(LeftOut(decision.rollout_id, decision.decision_id, reason))
    return steps


def why_not(decision: Decision) -> str | None:
    """Return why a decision may not be learned from; ``None`` when it may."""
    if decision.applied is None or decision.applied not in decision.options:
        return "applied_unknown"
    if decision.applied != decision.chosen:
        return "applied_differs"
    if decision.propensity is None:
        return "no_propensity"
    if not 0.0 < decision.propensity <= 1.0:
        return "propensity_out_of_range"
    if not decision.encoded:
        return "no_features"
    return None


class _Rows:
    """Trajectories that grow rollout by rollout."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self.encoded: list[Encoded] = []
        self.chosen: list[int] = []
        self.default: list[int] = []
        self.propensity: list[float] = []
        self.value: list[float] = []
        self.reward: list[float] = []
        self.discount: list[float] = []
        self.lag: list[int] = []
        self.bootstrap: list[float] = []
        self.length: list[int] = []

    def add(
        self,
        steps: Sequence[_Step],
        learnable: LearnableRollout,
        *,
        versions: Sequence[int],
        discount: float,
    ) -> None:
        """Append one rollout."""
        for decision, encoded in steps:
            self.encoded.append(encoded)
            self.chosen.append(decision.options.index(decision.applied or ""))
            self.default.append(_index(decision.options, decision.default))
            self.propensity.append(decision.propensity or 0.0)
            self.value.append(decision.value or 0.0)
            newer = len(versions) - bisect_right(versions, decision.policy_version)
            self.lag.append(newer)
        self.reward.extend(_rewards(steps, learnable, self.weights))
        cut_off = _is_cut_off(learnable.rollout, learnable.rewards)
        self.discount.extend([discount] * (len(steps) - 1) + [discount if cut_off else 0.0])
        self.bootstrap.append(self.value[-1] if cut_off else 0.0)
        self.length.append(len(steps))

    def trajectories(self) -> Trajectories:
        """Return what was added, as arrays."""
        return Trajectories(
            encoded=tuple(self.encoded),
            chosen=np.array(self.chosen, dtype=np.int64),
            default=np.array(self.default, dtype=np.int64),
            allowed=None,
            propensity=np.array(self.propensity),
            value=np.array(self.value),
            reward=np.array(self.reward),
            discount=np.array(self.discount),
            bootstrap=np.array(self.bootstrap),
            length=np.array(self.length, dtype=np.int64),
            version_lag=np.array(self.lag, dtype=np.int64),
        )


def _index(options: Sequence[str], name: str | None) -> int:
    return options.index(name) if name is not None and name in options else -1


def _rewards(
    steps: Sequence[_Step], learnable: LearnableRollout, weights: Mapping[str, float]
) -> list[float]:
    """Return what came after each step: what its decision earned, and at the end the total."""
    rewards = [0.0] * len(steps)
    ordinals = [step.decision.ordinal for step in steps]
    ids = {d.decision_id: d for d in learnable.decisions}
    for reward in learnable.rewards:
        decision = ids.get(reward.decision_id or "")
        if decision is None or reward.value is None:
            continue
        place = bisect_right(ordinals, decision.ordinal) - 1
        if place >= 0:
            rewards[place] += weights.get(reward.name, 1.0) * reward.value
    rewards[-1] += learnable.rollout.total_reward or 0.0
    return rewards


def _is_cut_off(rollout: Rollout, rewards: Sequence[Reward]) -> bool:
    valued = any(
        reward.decision_id is None and reward.value is not None and reward.source != "default"
        for reward in rewards
    )
    return rollout.reason in CUT_OFF and not valued
