"""Stored decisions become arrays; what is left out is listed with the reason, only here.

The steps of a trajectory are the decisions at one point, nothing else: telemetry is never a step.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from tau_live.event_rows import DROPPED
from tau_live.rl.batch import Trajectories
from tau_live.rl.features import WIDTH, Encoded, unpack
from tau_live.rollouts import ROLLOUT_ENDS, Decision, Reason, Reward, Rollout
from tau_live.store.records import LearnableRollout

LEAST_PROPENSITY = 1e-300
"""Below, an importance weight would not be finite."""

MOST_PROPENSITY = 1.0 + 1e-9
"""A certain choice may be above 1 by a rounding error."""

Earned = Callable[[LearnableRollout], Mapping[str, float]]
"""Returns what the decisions of a rollout are worth by id, as its rewards were joined."""

Incurred = Callable[[LearnableRollout], float | None]
"""Returns what a rollout cost in safety, ``None`` where that is not known."""

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
        decisions: ``[N]``, the decisions that the trajectories consist of.
        costs: ``[N]``, safety cost incurred after each: the rollout's after its last, NaN all along
            where it is not known.
    """

    trajectories: Trajectories | None
    rollout_ids: list[str]
    left_out: list[LeftOut]
    decisions: Sequence[Decision] = ()
    costs: Sequence[float] = ()


class _Step(NamedTuple):
    decision: Decision
    encoded: Encoded


def trajectories_of(  # noqa: PLR0913  # what it depends on, all keyword-only but the first two
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    versions: Sequence[int],
    discount: float,
    earned: Earned,
    cost: Incurred = lambda _learnable: None,
    born: Sequence[float] = (),
    width: int = WIDTH,
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
        earned: What each decision of a rollout earned besides the total, by its id.
        cost: What a rollout cost in safety.
        born: When each of ``versions`` was made, in epoch seconds. A replayed decision names a
            version of another store, so its lag is counted in those made after it.
        width: How wide the policy's features are; a decision encoded otherwise is left out.
    """
    rows = _Rows(earned, born, cost)
    used: list[str] = []
    left_out: list[LeftOut] = []
    for learnable in rollouts:
        rollout_id = learnable.rollout.rollout_id
        reason = why_not_all(learnable.rollout)
        steps = [] if reason else _steps_of(learnable, point, left_out, width=width)
        if reason is None:
            reason = rows.add(steps, learnable, versions=versions, discount=discount)
        if reason is None:
            used.append(rollout_id)
        else:
            left_out.append(LeftOut(rollout_id, None, reason))
    found = rows.trajectories() if used else None
    return Collected(found, used, left_out, rows.decisions, rows.cost)


def why_not_all(rollout: Rollout) -> str | None:
    """Return why a rollout may not be learned from at all; ``None`` when it may."""
    if rollout.status not in ROLLOUT_ENDS:
        return "tried_again"
    if rollout.metadata.get(DROPPED):
        return "events_dropped"
    if rollout.total_reward is None:
        return "no_reward"
    if not isfinite(rollout.total_reward):
        return "reward_not_finite"
    return None


def why_not(decision: Decision) -> str | None:
    """Return why a decision may not be learned from; ``None`` when it may."""
    propensity, options = decision.propensity, decision.options
    checks = (
        ("applied_unknown", decision.applied is None or decision.applied not in options),
        ("applied_differs", decision.applied != decision.chosen),
        ("options_repeated", len(set(options)) < len(options)),
        ("no_propensity", propensity is None),
        ("propensity_out_of_range", not LEAST_PROPENSITY <= (propensity or 0.0) <= MOST_PROPENSITY),
        ("value_not_finite", not isfinite(decision.value or 0.0)),
        ("no_features", not decision.encoded),
    )
    return next((reason for reason, fails in checks if fails), None)


def _steps_of(
    learnable: LearnableRollout, point: str, left_out: list[LeftOut], *, width: int
) -> list[_Step]:
    last = _last_attempt(learnable)
    steps = []
    for decision in learnable.decisions:
        if decision.point == point:
            found = _step_of(decision, last=last, width=width)
            if isinstance(found, str):
                left_out.append(LeftOut(decision.rollout_id, decision.decision_id, found))
            else:
                steps.append(found)
    return steps


def _step_of(decision: Decision, *, last: int, width: int) -> _Step | str:
    """Return a decision as a step, or why it is none."""
    reason = why_not(decision) or (None if decision.attempt == last else "earlier_attempt")
    if reason:
        return reason
    try:
        encoded = unpack(decision.encoded)
    except ValueError:
        return "features_damaged"
    if encoded.options != len(decision.options):
        return "features_damaged"
    return _Step(decision, encoded) if encoded.width == width else "features_of_another_width"


def _last_attempt(learnable: LearnableRollout) -> int:
    return max((decision.attempt for decision in learnable.decisions), default=0)


class _Rows:
    """Trajectories that grow rollout by rollout."""

    def __init__(self, earned: Earned, born: Sequence[float], incurred: Incurred) -> None:
        self.earned = earned
        self.incurred = incurred
        self.decisions: list[Decision] = []
        self.cost: list[float] = []
        self.born = sorted(born)
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
    ) -> str | None:
        """Append one rollout; return why not, if it cannot be."""
        if not steps:
            return "no_usable_decisions"
        rewards = _rewards(steps, learnable, self.earned(learnable))
        if not all(map(isfinite, rewards)):
            return "reward_not_finite"
        self.reward.extend(rewards)
        cost = self.incurred(learnable)
        self.cost.extend([nan if cost is None else 0.0] * (len(steps) - 1))
        self.cost.append(nan if cost is None else cost)
        for decision, encoded in steps:
            self.decisions.append(decision)
            self.encoded.append(encoded)
            self.chosen.append(decision.options.index(decision.applied or ""))
            self.default.append(_index(decision.options, decision.default))
            self.propensity.append(decision.propensity or 0.0)
            self.value.append(decision.value or 0.0)
            newer = self._newer(decision, learnable.rollout, versions)
            self.lag.append(newer)
        cut_off = _is_cut_off(learnable.rollout, learnable.rewards)
        self.discount.extend([discount] * (len(steps) - 1) + [discount if cut_off else 0.0])
        self.bootstrap.append(self.value[-1] if cut_off else 0.0)
        self.length.append(len(steps))
        return None

    def _newer(self, decision: Decision, rollout: Rollout, versions: Sequence[int]) -> int:
        if rollout.owner is None and self.born:
            return len(self.born) - bisect_right(self.born, decision.at)
        return len(versions) - bisect_right(versions, decision.policy_version)

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
    steps: Sequence[_Step], learnable: LearnableRollout, earned: Mapping[str, float]
) -> list[float]:
    """Return what came after each step: what its decision earned, and at the end the total."""
    rewards = [0.0] * len(steps)
    last = _last_attempt(learnable)
    ordinals = [step.decision.ordinal for step in steps]
    places = {
        decision.decision_id: bisect_right(ordinals, decision.ordinal) - 1
        for decision in learnable.decisions
        if decision.attempt == last
    }
    for decision_id, value in earned.items():
        place = places.get(decision_id, -1)
        if place >= 0:
            rewards[place] += value
    rewards[-1] += learnable.rollout.total_reward or 0.0
    return rewards


def _is_cut_off(rollout: Rollout, rewards: Sequence[Reward]) -> bool:
    valued = any(
        reward.decision_id is None and reward.value is not None and reward.source != "default"
        for reward in rewards
    )
    return rollout.reason in CUT_OFF and not valued
