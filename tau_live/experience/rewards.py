"""Rewards of attempts: what their checks say, and how they rank within their group."""

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from tau_live.experience.records import AttemptReward

GT = "gt"
RELATIVE = "relative"
REQUIRED = (GT, RELATIVE)
"""The rewarders that every run has."""

CONTRAST = 1e-9
"""The least difference of scores from which a group says anything."""

CHEAPER = 1.2
"""How many times the cost of one attempt that of another with an equal score may be."""

NO_REWARD = AttemptReward(gt=None, relative=None, advantage=None)


class CheckResult(NamedTuple):
    """The result of a check.

    Attributes:
        name: The check.
        score: In ``[0, 1]``; 0 for one that was planned and did not run.
        is_hard: Whether the score of the attempt is 0 unless it passes.
        weight: Its weight among those that are not hard.
        note: Why it has its score; empty if there is nothing to say.
    """

    name: str
    score: float
    is_hard: bool
    weight: float
    note: str = ""


def ground_truth(checks: Sequence[CheckResult]) -> float:
    """Return the ground-truth score of an attempt, in ``[0, 1]``.

    It is the product of the hard checks, each 0 or 1, and the weighted mean of the others, which is
    1 without any.

    Args:
        checks: All planned checks, at least one.

    Raises:
        ValueError: There is none.
    """
    if not checks:
        raise ValueError("an attempt needs at least one check")
    if any(check.is_hard and check.score < 1.0 for check in checks):
        return 0.0
    soft = [check for check in checks if not check.is_hard]
    weight = sum(check.weight for check in soft)
    return sum(check.score * check.weight for check in soft) / weight if weight else 1.0


def rank_rewards(
    scores: Sequence[float | None], costs: Sequence[float | None] | None = None
) -> list[AttemptReward]:
    """Return the rewards of a group's members by their ground-truth scores.

    ``relative = (wins + 0.5 * ties) / (n - 1)`` and ``advantage = (gt - mean) / (sd + 1e-8)`` with
    the population's standard deviation, over the members that have a score; ``None`` where there is
    no other. Time never breaks a tie.

    Args:
        scores: One per member; ``None`` for an attempt without a score.
        costs: What each cost, in US dollars: of two equal scores one that costs a fifth less wins;
            ``None`` leaves them equal.

    Source:
        Shao et al. 2024, arXiv:2402.03300, section 4.1.2, for the advantage.
    """
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return [AttemptReward(gt=score, relative=None, advantage=None) for score in scores]
    mean, spread = fmean(known), pstdev(known) + 1e-8
    prices = costs or [None] * len(scores)
    members = [*zip(scores, prices, strict=True)]
    return [
        NO_REWARD
        if score is None
        else AttemptReward(
            gt=score,
            relative=sum(
                _points(member, other) for place, other in enumerate(members) if place != own
            )
            / (len(known) - 1),
            advantage=(score - mean) / spread,
        )
        for own, member in enumerate(members)
        for score in member[:1]
    ]


def _points(
    member: tuple[float | None, float | None], other: tuple[float | None, float | None]
) -> float:
    """Return 1 where a member beats another, 0.5 where they are equal, else 0."""
    (score, cost), (others, price) = member, other
    if score is None or others is None:
        return 0.0
    if score != others:
        return float(score > others)
    if cost is None or price is None:
        return 0.5
    return 1.0 if cost * CHEAPER < price else 0.0 if price * CHEAPER < cost else 0.5


def is_informative(rewards: Sequence[AttemptReward]) -> bool:
    """Return whether members of a group differ, so that something can be learned from it."""
    known = [reward.gt for reward in rewards if reward.gt is not None]
    return len(known) > 1 and max(known) - min(known) >= CONTRAST
