"""What became of rollouts that were assigned to an arm: their rewards and costs, once settled."""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tau_live.deciding.arms import LEARNER
from tau_live.learning.usable import own_reward
from tau_live.rewards.cost import cost_of
from tau_live.rewards.settling import earned_by_decisions
from tau_live.rl.verdict import Outcomes
from tau_live.rollouts import ROLLOUT_ENDS, Reward
from tau_live.settings import Settings
from tau_live.store.records import Assigned, LearnableRollout

GRACE_S = 5.0
"""How long after its deadline a rollout may still be settled by the process that collects it."""

COSTS = (0.0, 1.0)
"""Lowest and highest cost; one that is higher counts as the highest."""


class Result(NamedTuple):
    """What became of one rollout.

    Attributes:
        place: Its place among all assignments.
        learner: Whether the learner decided it.
        share: The probability with which it would.
        reward: What it was worth with all of its decisions; NaN where no reward came in time.
        cost: Of safety; NaN if unknown.
        agreed: Whether the learner would have chosen what the host did; ``None`` if unknown.
    """

    place: int
    learner: bool
    share: float
    reward: float
    cost: float
    agreed: bool | None


def settled(page: Iterable[Assigned], settings: Settings, *, now: float) -> list[Assigned]:
    """Return the first assignments of a page, up to one whose outcome is still open.

    They are taken strictly in their order: if failures were counted at once and successes late,
    the failures would be counted against whichever arm has more of them.
    """
    wait_s = max([settings.reward_deadline_s, *_deadlines(settings)])
    return list(takewhile(lambda one: is_settled(one, now=now, wait_s=wait_s), page))


def is_settled(one: Assigned, *, now: float, wait_s: float) -> bool:
    """Say whether what a rollout was worth is known, or is given up.

    Args:
        one: The rollout.
        now: Epoch seconds.
        wait_s: A rollout that is open for longer is given up.
    """
    rollout = one.rollout
    if rollout.status not in ROLLOUT_ENDS:
        return rollout.started_at is not None and rollout.started_at + wait_s < now
    if rollout.ready_seq is not None:
        return True
    return one.until is None or one.until + GRACE_S < now


def result_of(one: Assigned, rewards: Sequence[Reward], settings: Settings) -> Result:
    """Return what became of a settled rollout."""
    rollout = one.rollout
    worth = math.nan
    own = own_reward(rollout)
    if rollout.status in ROLLOUT_ENDS and own is not None:
        found = LearnableRollout(rollout, [], list(rewards))
        worth = own + math.fsum(earned_by_decisions(found, settings).values())
    cost = cost_of(
        rewards,
        settings.rewards,
        hard_gate=settings.safety.hard_gate_cost,
        ended_at=rollout.ended_at,
        deadline_s=settings.reward_deadline_s,
    ).value
    return Result(
        place=one.place,
        learner=one.arm == LEARNER,
        share=one.share,
        reward=worth,
        cost=math.nan if cost is None else cost,
        agreed=one.agreed,
    )


def outcomes_of(results: Sequence[Result], *, rewards: tuple[float, float]) -> Outcomes:
    """Return results as arrays; a reward or cost beyond its range counts as the range's end.

    What safety takes away may bring a total below what was declared; left out as missing, the
    worst rollouts would not count at all.
    """
    return Outcomes(
        rewards=np.clip(np.array([one.reward for one in results]), *rewards),
        costs=np.clip(np.array([one.cost for one in results]), *COSTS),
        learner=np.array([one.learner for one in results], dtype=np.bool_),
        shares=np.array([one.share for one in results]),
    )


def _deadlines(settings: Settings) -> list[float]:
    return [one.deadline_s for one in settings.rewards if one.deadline_s is not None]
