"""Outcomes of rollouts assigned to an arm: their rewards and costs, once settled.

A decision in shadow is one for which the policy gave its probabilities and the host did what it
does without us. It has no propensity, so nothing is learned from it; it shows what the host does,
and whether the policy would do the same, before the policy is let act.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tau_live.core.records import ROLLOUT_ENDS, Assigned, LearnableRollout, Reward, Shadowed
from tau_live.core.settings import InferReward, Settings
from tau_live.decisions.decider import LEARNER
from tau_live.learn.trajectories import own_reward
from tau_live.record.reward_rules import cost_of
from tau_live.record.rewards import earned_by_decisions, is_outside
from tau_live.rl.verdict import Outcomes
from tau_live.store.roles import Store

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
    """The result of one rollout.

    Attributes:
        place: Its place among all assignments.
        learner: Whether the learner decided it.
        share: The probability with which it would.
        reward: Its reward with all of its decisions; NaN where no reward came in time.
        cost: Of safety; NaN if unknown.
        agreed: Whether the learner would have chosen what the host did; ``None`` if unknown.
        outside: Whether a reward was outside the range set for it.
        version: The learner's version; ``None`` for the control.
    """

    place: int
    learner: bool
    share: float
    reward: float
    cost: float
    agreed: bool | None
    outside: bool = False
    version: int | None = None


def settled_prefix(
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
    deadlines = (reward.deadline_s for reward in settings.rewards)
    wait_s = max(settings.reward_deadline_s, *(of or 0.0 for of in deadlines), 0.0)

    def is_known(assignment: Assigned) -> bool:
        began = assignment.rollout.started_at
        given_up = began is not None and began + patience_s < now
        return given_up or is_settled(assignment, now=now, wait_s=wait_s)

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
    1,000 A/A streams of 3,000 rollouts was promoted (``tests/learn/test_outcomes.py``). Where
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
    defaults = any(reward.default is not None and not reward.cost for reward in settings.rewards)
    return not defaults and settings.infer_reward is not InferReward.DEADLINE


def is_settled(assignment: Assigned, *, now: float, wait_s: float) -> bool:
    """Say whether what a rollout was worth is known, or is given up.

    Args:
        assignment: The rollout.
        now: Epoch seconds.
        wait_s: A rollout that is open for longer is given up.
    """
    rollout = assignment.rollout
    if rollout.status not in ROLLOUT_ENDS:
        return rollout.started_at is not None and rollout.started_at + wait_s < now
    if rollout.ready_seq is not None:
        return True
    return assignment.until is None or assignment.until + GRACE_S < now


def result_of(assignment: Assigned, rewards: Sequence[Reward], settings: Settings) -> Result:
    """Return what became of a settled rollout."""
    rollout = assignment.rollout
    worth = math.nan
    own = own_reward(rollout)
    learnable = LearnableRollout(rollout, [], list(rewards))
    if rollout.status in ROLLOUT_ENDS and own is not None:
        worth = own + math.fsum(earned_by_decisions(learnable, settings).values())
    cost = cost_of(
        rewards,
        settings.rewards,
        hard_gate=settings.safety.hard_gate_cost,
        ended_at=rollout.ended_at,
        deadline_s=settings.reward_deadline_s,
    ).value
    return Result(
        place=assignment.place,
        learner=assignment.arm == LEARNER,
        share=assignment.share,
        reward=worth,
        cost=math.nan if cost is None else cost,
        agreed=assignment.agreed,
        outside=is_outside(learnable, settings),
        version=assignment.version if assignment.arm == LEARNER else None,
    )


def outcomes_of(results: Sequence[Result], *, rewards: tuple[float, float]) -> Outcomes:
    """Return results as arrays; a reward or cost beyond its range counts as the range's end.

    What safety takes away may bring a total below what was declared; left out as missing, the
    worst rollouts would not count at all.
    """
    return Outcomes(
        rewards=np.clip(np.array([result.reward for result in results]), *rewards),
        costs=np.clip(np.array([result.cost for result in results]), *COSTS),
        learner=np.array([result.learner for result in results], dtype=np.bool_),
        shares=np.array([result.share for result in results]),
    )


WINDOW = 256
"""So many of the newest decisions of each point are looked at."""

HABITS = 8
"""So many of the options that the host takes most often are listed."""


class Agreement(NamedTuple):
    """How often a policy and its host would have done the same at one decision point.

    Attributes:
        decisions: How many decisions in shadow, of the newest ones.
        agreement: The share of them for which no option was more probable than the host's.
        probability: The mean probability that the policy gave to what the host did.
        host: The share of each option that the host took, the most frequent first.
    """

    decisions: int
    agreement: float
    probability: float
    host: dict[str, float]


def agreement(rows: Sequence[Shadowed]) -> Agreement | None:
    """Return how far policy and host agree; ``None`` where there was no choice to agree on."""
    given = [
        (row.applied, row.probabilities[row.options.index(row.applied)], max(row.probabilities))
        for row in rows
        if len(row.options) > 1
        and len(row.options) == len(row.probabilities)
        and row.applied in row.options
    ]
    if not given:
        return None
    taken = Counter(applied for applied, _, _ in given)
    habits = sorted(taken.items(), key=lambda habit: (-habit[1], habit[0]))[:HABITS]
    return Agreement(
        len(given),
        sum(own >= most for _, own, most in given) / len(given),
        sum(own for _, own, _ in given) / len(given),
        {option: count / len(given) for option, count in habits},
    )


def agreements(store: Store, *, window: int = WINDOW) -> dict[str, Agreement]:
    """Return the agreement at every decision point that has newest decisions in shadow."""
    by_point = {
        point: agreement(store.decisions.shadow_decisions(point, limit=window))
        for point in store.decisions.shadow_points()
    }
    return {point: known for point, known in by_point.items() if known is not None}
