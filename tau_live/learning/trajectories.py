"""Stored decisions become arrays; what is left out is listed with the reason, only here.

The steps of a trajectory are the decisions at one point, nothing else: telemetry is never a step.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tau_live.breath import Breathe, at_once
from tau_live.learning.usable import Step, last_attempt, own_reward, step_of, why_not_all
from tau_live.reasons import CRITIC_ONLY, LEFT_OUT, WhyNot
from tau_live.rl.arrays import FloatArray, offsets
from tau_live.rl.batch import Trajectories
from tau_live.rl.bounds import Limits, is_usable
from tau_live.rl.features import WIDTH, Encoded
from tau_live.rollouts import IMPORTED, Decision, Reason, Reward, Rollout
from tau_live.store.records import LearnableRollout

if TYPE_CHECKING:
    from tau_live.rl.arrays import BoolArray

Earned = Callable[[LearnableRollout], Mapping[str, float]]
"""Returns what the decisions of a rollout are worth by id, as its rewards were joined."""

Incurred = Callable[[LearnableRollout], float | None]
"""Returns what a rollout cost in safety, ``None`` where that is not known."""
Early = Callable[[LearnableRollout], Mapping[int, float]]
"""Returns what of a rollout's total was given before its end, by its decisions until then."""

Taken = Callable[[LearnableRollout], tuple[float, float]]
"""Returns what safety took from a rollout's reward, at most 0, and the most it may be worth."""

CUT_OFF = frozenset({Reason.INTERRUPTED, Reason.TIMEOUT, Reason.CANCELLED, Reason.ABANDONED})


class LeftOut(NamedTuple):
    """A rollout, or one decision of it, that is not learned from."""

    rollout_id: str
    decision_id: str | None
    reason: WhyNot


class Collected(NamedTuple):
    """What can be learned from, and what cannot.

    Attributes:
        trajectories: The usable rollouts; ``None`` when there is none.
        rollout_ids: Their ids, in the same order.
        left_out: Everything else.
        critic_only: The decisions among them that teach the critic, but not the actor.
        decisions: ``[N]``, the decisions that the trajectories consist of.
        safety: ``[R, 2]``, what safety took from each rollout, and the most it may be worth.
    """

    trajectories: Trajectories | None
    rollout_ids: list[str]
    left_out: list[LeftOut]
    critic_only: list[LeftOut]
    decisions: Sequence[Decision] = ()
    safety: Sequence[tuple[float, float]] = ()

    def extremes(self) -> list[tuple[float, float]]:
        """Return ``[R, 2]`` the lowest and the highest reward that came after a decision of each.

        Without what safety took. Where nothing came there is no reward, but at the end there is.
        """
        if self.trajectories is None:
            return []
        given = self._given(self.trajectories)
        starts = offsets(self.trajectories.length)
        came = given != 0.0
        came[starts[1:] - 1] = True
        lowest = np.minimum.reduceat(np.where(came, given, inf), starts[:-1])
        highest = np.maximum.reduceat(np.where(came, given, -inf), starts[:-1])
        return list(zip(lowest.tolist(), highest.tolist(), strict=True))

    def within(self, limits: Limits) -> tuple["Collected", list[str]]:
        """Return the same with every reward within limits, and which rollouts had others.

        What safety takes away is the operator's word, and no outlier.

        Args:
            limits: The lowest and the highest that a reward counts as.
        """
        found = self.trajectories
        if found is None:
            return self, []
        given = self._given(found)
        beyond = (given < limits.low) | (given > limits.high)
        if not beyond.any():
            return self, []
        ends = offsets(found.length)[1:] - 1
        bounded = np.clip(given, limits.low, limits.high)
        for end, (taken, most) in zip(ends.tolist(), self.safety, strict=True):
            bounded[end] = min(bounded[end] + taken, most)
        reward = np.where(beyond, bounded, found.reward)
        rollouts = np.repeat(np.arange(len(ends)), found.length)[beyond]
        ids = [self.rollout_ids[at] for at in np.unique(rollouts).tolist()]
        return self._replace(trajectories=replace(found, reward=reward)), ids

    def _given(self, found: Trajectories) -> FloatArray:
        """Return ``[N]`` the rewards before safety took any of them."""
        given = found.reward.copy()
        given[offsets(found.length)[1:] - 1] -= [taken for taken, _ in self.safety]
        return given


def trajectories_of(  # noqa: PLR0913  # what it depends on, all keyword-only but the first two
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    versions: Sequence[int],
    discount: float,
    earned: Earned,
    early: Early = lambda _: {},
    cost: Incurred = lambda _: None,
    taken: Taken = lambda _: (0.0, inf),
    born: Sequence[float] = (),
    width: int = WIDTH,
    lag_bound: int | None = None,
    learn_from_host: bool = False,
    breathe: Breathe = at_once,
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
        early: What of the total was given while the run went on, by how many decisions it had made
            by then: no later decision can have earned it.
        cost: What a rollout cost in safety.
        taken: What safety took from its reward.
        born: When each of ``versions`` was made, in epoch seconds. A replayed decision names a
            version of another store, so its lag is counted in those made after it. An imported
            one was made by no version of ours, so it never grows old.
        width: How wide the policy's features are; a decision encoded otherwise is left out.
        lag_bound: What is older by more versions is counted as too old; ``None`` counts none.
        learn_from_host: Whether a host's own choices may teach the critic.
        breathe: Called between two rollouts.
    """
    rows = _Rows(earned, early, cost, born, lag_bound=lag_bound)
    safety: list[tuple[float, float]] = []
    used: list[str] = []
    left_out: list[LeftOut] = []
    for learnable in rollouts:
        breathe()
        rollout_id = learnable.rollout.rollout_id
        reason = why_not_all(learnable.rollout)
        if reason is None:
            steps = _steps_of(
                learnable, point, left_out, width=width, learn_from_host=learn_from_host
            )
            reason = rows.add(steps, learnable, versions=versions, discount=discount)
        if reason is None:
            used.append(rollout_id)
            safety.append(taken(learnable))
        else:
            left_out.append(LeftOut(rollout_id, None, reason))
    found = rows.trajectories() if used else None
    return Collected(found, used, left_out, rows.critic_only, rows.decisions, safety)


def counts_of(found: Collected | None, rollout_ids: Collection[str]) -> dict[str, int]:
    """Return by counter how often something of these rollouts was not learned from."""
    if found is None:
        return {}
    named = ((LEFT_OUT, found.left_out), (CRITIC_ONLY, found.critic_only))
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
        found = step_of(decision, last_attempt=last, width=width, learn_from_host=learn_from_host)
        if isinstance(found, Step):
            steps.append(found)
        else:
            left_out.append(LeftOut(decision.rollout_id, decision.decision_id, found))
    return steps


class _Rows:
    """Trajectories that grow rollout by rollout."""

    def __init__(
        self,
        earned: Earned,
        early: Early,
        incurred: Incurred,
        born: Sequence[float],
        *,
        lag_bound: int | None,
    ) -> None:
        self.earned = earned
        self.early = early
        self.incurred = incurred
        self.lag_bound = lag_bound
        self.critic_only: list[LeftOut] = []
        self.allowed: list[BoolArray | None] = []
        self.explored: list[BoolArray | None] = []
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
        steps: Sequence[Step],
        learnable: LearnableRollout,
        *,
        versions: Sequence[int],
        discount: float,
    ) -> WhyNot | None:
        """Append one rollout; return why not, if it cannot be."""
        if not steps:
            return WhyNot.NO_USABLE_DECISIONS
        rewards = _rewards(steps, learnable, self.earned(learnable), early=self.early(learnable))
        if not all(map(is_usable, rewards)):
            return WhyNot.REWARD_NOT_FINITE
        self.reward.extend(rewards)
        cost = self.incurred(learnable)
        self.cost.extend([nan if cost is None else 0.0] * (len(steps) - 1))
        self.cost.append(nan if cost is None else cost)
        for decision, encoded, allowed, explored, propensity, critic_only in steps:
            self.decisions.append(decision)
            self.encoded.append(encoded)
            self.allowed.append(allowed)
            self.explored.append(explored)
            self.chosen.append(decision.options.index(decision.applied or ""))
            self.default.append(_index(decision.options, decision.default))
            self.propensity.append(propensity)
            self.value.append(decision.value or 0.0)
            newer = self._newer(decision, learnable.rollout, versions)
            self.lag.append(newer)
            too_old = self.lag_bound is not None and newer > self.lag_bound
            why = critic_only or (WhyNot.TOO_OLD if too_old else None)
            if why:
                self.critic_only.append(LeftOut(decision.rollout_id, decision.decision_id, why))
        cut_off = _is_cut_off(learnable.rollout, learnable.rewards)
        self.discount.extend([discount] * (len(steps) - 1) + [discount if cut_off else 0.0])
        self.bootstrap.append(self.value[-1] if cut_off else 0.0)
        self.length.append(len(steps))
        return None

    def _newer(self, decision: Decision, rollout: Rollout, versions: Sequence[int]) -> int:
        if decision.source == IMPORTED:
            return 0
        if rollout.owner is None and self.born:
            return len(self.born) - bisect_right(self.born, decision.at)
        return len(versions) - bisect_right(versions, decision.policy_version)

    def trajectories(self) -> Trajectories:
        """Return what was added, as arrays."""
        return Trajectories(
            encoded=tuple(self.encoded),
            chosen=np.array(self.chosen, dtype=np.int64),
            default=np.array(self.default, dtype=np.int64),
            allowed=self.allowed if any(one is not None for one in self.allowed) else None,
            explored=self.explored if any(one is not None for one in self.explored) else None,
            propensity=np.array(self.propensity),
            value=np.array(self.value),
            reward=np.array(self.reward),
            discount=np.array(self.discount),
            bootstrap=np.array(self.bootstrap),
            length=np.array(self.length, dtype=np.int64),
            version_lag=np.array(self.lag, dtype=np.int64),
            cost=None if all(map(isnan, self.cost)) else np.array(self.cost),
        )


def _index(options: Sequence[str], name: str | None) -> int:
    return options.index(name) if name is not None and name in options else -1


def _rewards(
    steps: Sequence[Step],
    learnable: LearnableRollout,
    earned: Mapping[str, float],
    *,
    early: Mapping[int, float],
) -> list[float]:
    """Return what came after each step: what its decision earned, and at the end the total.

    What was given early comes after the last step until then; in a rollout that was tried again
    it is not known in which attempt that was.
    """
    rewards = [0.0] * len(steps)
    last = last_attempt(learnable.decisions)
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
    rewards[-1] += own_reward(learnable.rollout) or 0.0
    for before, value in early.items() if last == 1 else ():
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
