"""Outcomes of rollouts assigned to an arm: their rewards and costs, once settled."""

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tau_live.deciding.arms import LEARNER
from tau_live.learning.usable import own_reward
from tau_live.rewards.cost import cost_of
from tau_live.rewards.settling import earned_by_decisions, is_outside
from tau_live.rl.verdict import Outcomes
from tau_live.rollouts import ROLLOUT_ENDS, Reward
from tau_live.settings import InferReward, Settings
from tau_live.store.records import Assigned, LearnableRollout

GRACE_S = 5.0
"""How long after its deadline a rollout may still be settled by the process that collects it."""

NEWEST = 1_024
"""How long rewards take is read from so many of the newest rollouts."""

MOST = 65_536
"""And from so many at most, where these do not reach back far enough."""

FEWEST_DELAYS = 100
"""Rewards before anything is concluded from how long they took."""

LATE_SHARE = 0.01
"""Of the rewards that come, so many may come after a rollout was given up."""

_FOLLOWED = 4.0  # times the wait; of a rollout less old it is not known whether it is late or lost
_LEAST_S = 1.0

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
        outside: Whether a reward was outside the range set for it.
        version: What the learner decided it with; ``None`` for the control.
    """

    place: int
    learner: bool
    share: float
    reward: float
    cost: float
    agreed: bool | None
    outside: bool = False
    version: int | None = None


def settled(
    page: Iterable[Assigned], settings: Settings, *, now: float, patience_s: float = math.inf
) -> list[Assigned]:
    """Return the first assignments of a page, up to one whose outcome is still open.

    They are taken strictly in their order: if failures were counted at once and successes late,
    the failures would be counted against whichever arm has more of them.

    Args:
        page: In their order.
        settings: Deadlines.
        now: Epoch seconds.
        patience_s: How long after its start a rollout without a reward is waited for at most.
    """
    wait_s = max([settings.reward_deadline_s, *_deadlines(settings)])

    def is_known(one: Assigned) -> bool:
        began = one.rollout.started_at
        given_up = began is not None and began + patience_s < now
        return given_up or is_settled(one, now=now, wait_s=wait_s)

    return list(takewhile(is_known, page))


def patience(
    delays: Sequence[tuple[float, float | None]], *, now: float, most_s: float
) -> float | None:
    """Return how long after its start a rollout is waited for, from how long rewards took.

    The shortest wait, of 1, 2, 4 and so on seconds, after which at most 1 % of the rewards came of
    rollouts that were followed for four times as long. Only these count: of younger ones the slow
    rewards are not there yet, so that rewards would seem to be quick (Kaplan and Meier 1958,
    "Nonparametric estimation from incomplete observations"). To count nothing that comes after a
    fixed wait, instead of waiting for all, is the censored feedback of Vernade, Cappe and Perchet
    2017, arXiv:1706.09186.

    It looks at both arms together, and never at what a reward was. So with two equal arms it says
    nothing about who decided a rollout that is given up, and the evidence stays what it is: with a
    fifth of the rewards never coming, and failures taking eight times as long as successes, 1 of
    1,000 A/A streams of 3,000 rollouts was promoted (``tests/trials/test_outcomes.py``). Where
    the arms lose different shares, the verdict is ``unequal_missing``.

    Args:
        delays: When rollouts began, and how long each reward took; ``None`` where none came.
        now: Epoch seconds.
        most_s: The longest wait, which needs no evidence.

    Returns:
        ``None`` while too little is known, or the longest wait is what it takes.
    """
    ages = np.array([now - began for began, _ in delays])
    took = np.array([math.inf if delay is None else delay for _, delay in delays])
    wait_s = _LEAST_S
    while wait_s < most_s:
        followed = took[ages >= _FOLLOWED * wait_s]
        came = int(np.isfinite(followed).sum())
        late = came - int((followed <= wait_s).sum())
        if came >= FEWEST_DELAYS and late <= LATE_SHARE * came:
            return wait_s
        wait_s *= 2.0
    return None


def may_give_up(settings: Settings) -> bool:
    """Say whether a rollout may be given up before its deadline.

    Not where the deadline gives it a reward, a default or an inferred one: then what did not come
    says what the rollout was worth, and without it the others look too good.
    """
    defaults = any(one.default is not None and not one.cost for one in settings.rewards)
    return not defaults and settings.infer_reward is not InferReward.DEADLINE


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
    found = LearnableRollout(rollout, [], list(rewards))
    if rollout.status in ROLLOUT_ENDS and own is not None:
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
        outside=is_outside(found, settings),
        version=one.version if one.arm == LEARNER else None,
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
