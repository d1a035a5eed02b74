"""Outcomes of rollouts assigned to an arm: their rewards and costs, once settled.

In shadow, the policy computes its probabilities and the host makes its own choice. Such a decision
has no propensity, so nothing is learned from it; it shows what the host chooses, and whether the
policy would choose the same, before the policy may act.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from tau_live.core.records import ROLLOUT_ENDS, Assigned, LearnableRollout, Reward, Shadowed
from tau_live.core.reward_rules import cost_of
from tau_live.core.settings import InferReward, Settings
from tau_live.decisions.decider import LEARNER
from tau_live.learn.trajectories import own_reward
from tau_live.record.rewards import is_outside, outcome_of
from tau_live.rl.verdict import Outcomes
from tau_live.store.roles import Store

GRACE_S = 5.0
"""How long after its deadline a rollout may still be settled by the process that collects it."""

NEWEST = 1_024
"""How many of the newest rollouts the delays of rewards are read from."""

MOST = 65_536
"""The same at most, where ``NEWEST`` do not reach back far enough."""

FEWEST_DELAYS = 100
"""Rewards before anything is concluded from their delays."""

LATE_SHARE = 0.01
"""Largest share of the rewards that may come after their rollout was given up."""

_FOLLOWED = 4.0  # times the wait; a younger rollout without a reward may be late or lost
_LEAST_S = 1.0

COSTS = (0.0, 1.0)
"""Lowest and highest cost; one that is higher counts as the highest."""


class Result(NamedTuple):
    """The result of one rollout.

    Attributes:
        place: Its position among all assignments.
        learner: Whether the learner decided it.
        share: The probability of the learner's assignment, in ``[0, 1]``.
        reward: Its reward and those of its decisions; NaN where no reward came in time.
        cost: Its safety cost; NaN if unknown.
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

    They are taken strictly in order: if failures were counted at once and successes late, the
    failures would be counted against whichever arm has more of them.

    Args:
        page: Assignments, in order.
        settings: Deadlines.
        now: Epoch seconds.
        patience_s: Longest wait for a reward after the start of a rollout, in seconds.
    """
    deadlines = (reward.deadline_s or 0.0 for reward in settings.rewards)
    wait_s = max(settings.reward_deadline_s, *deadlines, 0.0)

    def is_closed(assignment: Assigned) -> bool:
        began = assignment.rollout.started_at
        given_up = began is not None and began + patience_s < now
        return given_up or is_settled(assignment, now=now, wait_s=wait_s)

    return list(takewhile(is_closed, page))


def patience(
    delays: Sequence[tuple[float, float | None]], *, now: float, most_s: float
) -> float | None:
    """Return how long to wait for a reward after the start of a rollout, in seconds.

    The shortest wait of 1, 2, 4 and so on seconds after which at most 1 % of the rewards came,
    among rollouts that were followed for four times as long. Only these count: slow rewards of
    younger ones have not come yet, which would make rewards seem quick (Kaplan and Meier 1958,
    "Nonparametric estimation from incomplete observations"). Ignoring rewards after a fixed wait,
    instead of waiting for all, is the censored feedback of Vernade, Cappe and Perchet 2017,
    arXiv:1706.09186.

    The wait depends on both arms together, and never on the value of a reward. So with two equal
    arms, giving up a rollout does not depend on its arm, and the evidence stays valid: with a fifth
    of the rewards never coming, and failures taking eight times as long as successes, 1 of 1,000
    A/A streams of 3,000 rollouts was promoted (``tests/learn/test_outcomes.py``). Where the arms
    lose different shares, the verdict is ``unequal_missing``.

    Args:
        delays: Start of each rollout in epoch seconds, and the delay of its reward in seconds,
            ``None`` where none came.
        now: Epoch seconds.
        most_s: The longest wait, in seconds.

    Returns:
        ``None`` while there are too few rewards, or where ``most_s`` is needed.
    """
    ages = np.array([now - began for began, _ in delays])
    lengths = np.array([math.inf if delay is None else delay for _, delay in delays])
    wait_s = _LEAST_S
    while wait_s < most_s:
        followed = lengths[ages >= _FOLLOWED * wait_s]
        came = int(np.isfinite(followed).sum())
        late = came - int((followed <= wait_s).sum())
        if came >= FEWEST_DELAYS and late <= LATE_SHARE * came:
            return wait_s
        wait_s *= 2.0
    return None


def may_give_up(settings: Settings) -> bool:
    """Whether a rollout may be given up before its deadline.

    Not where the deadline gives it a default or an inferred reward: then a missing reward has a
    value, and leaving it out would make the others look too good.
    """
    defaults = any(reward.default is not None and not reward.cost for reward in settings.rewards)
    return not defaults and settings.infer_reward is not InferReward.DEADLINE


def is_settled(assignment: Assigned, *, now: float, wait_s: float) -> bool:
    """Whether the reward of a rollout is known, or no longer waited for.

    Args:
        assignment: The rollout.
        now: Epoch seconds.
        wait_s: Seconds after which an open rollout is given up.
    """
    rollout = assignment.rollout
    if rollout.status not in ROLLOUT_ENDS:
        return rollout.started_at is not None and rollout.started_at + wait_s < now
    if rollout.ready_seq is not None:
        return True
    return assignment.until is None or assignment.until + GRACE_S < now


def result_of(assignment: Assigned, rewards: Sequence[Reward], settings: Settings) -> Result:
    """Return the result of a settled rollout."""
    rollout = assignment.rollout
    reward = math.nan
    own = own_reward(rollout)
    learnable = LearnableRollout(rollout, [], list(rewards))
    if rollout.status in ROLLOUT_ENDS and own is not None:
        reward = own + math.fsum(outcome_of(rewards, rollout, settings).decisions.values())
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
        reward=reward,
        cost=math.nan if cost is None else cost,
        agreed=assignment.agreed,
        outside=is_outside(learnable, settings),
        version=assignment.version if assignment.arm == LEARNER else None,
    )


def outcomes_of(results: Sequence[Result], *, rewards: tuple[float, float]) -> Outcomes:
    """Return results as arrays, rewards and costs clipped to their range.

    A safety penalty may bring a total below the declared range; left out as missing, the worst
    rollouts would not count at all.
    """
    return Outcomes(
        rewards=np.clip(np.array([result.reward for result in results]), *rewards),
        costs=np.clip(np.array([result.cost for result in results]), *COSTS),
        learner=np.array([result.learner for result in results], dtype=np.bool_),
        shares=np.array([result.share for result in results]),
    )


WINDOW = 256
"""How many of the newest decisions of each point count."""

HABITS = 8
"""How many of the host's most frequent options are listed."""


class Agreement(msgspec.Struct, frozen=True):
    """How often a policy agrees with its host at one decision point.

    Attributes:
        decisions: How many decisions in shadow count, the newest.
        agreement: The share of them for which no option was more probable than the host's.
        probability: The mean probability that the policy gave to the host's choice.
        host: The share of each option in the host's choices, the most frequent first.
    """

    decisions: int
    agreement: float
    probability: float
    host: dict[str, float]


def agreement(rows: Sequence[Shadowed]) -> Agreement | None:
    """Return how far policy and host agree; ``None`` without decisions that offer a choice."""
    choices = [
        (row.applied, row.probabilities[row.options.index(row.applied)], max(row.probabilities))
        for row in rows
        if len(row.options) > 1
        and len(row.options) == len(row.probabilities)
        and row.applied in row.options
    ]
    if not choices:
        return None
    counts = Counter(applied for applied, _, _ in choices)
    habits = sorted(counts.items(), key=lambda habit: (-habit[1], habit[0]))[:HABITS]
    return Agreement(
        len(choices),
        sum(own >= most for _, own, most in choices) / len(choices),
        sum(own for _, own, _ in choices) / len(choices),
        {option: count / len(choices) for option, count in habits},
    )


def agreements(store: Store, *, window: int = WINDOW) -> dict[str, Agreement]:
    """Return the agreement at every decision point with recent decisions in shadow."""
    by_point = {
        point: agreement(store.decisions.shadow_decisions(point, limit=window))
        for point in store.decisions.shadow_points()
    }
    return {point: known for point, known in by_point.items() if known is not None}
