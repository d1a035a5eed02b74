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


def ranked(scores: Sequence[float | None]) -> list[AttemptReward]:
    """Return the rewards of a group's members by their ground-truth scores.

    ``relative = (wins + 0.5 * ties) / (n - 1)`` and ``advantage = (gt - mean) / (sd + 1e-8)`` with
    the population's standard deviation, over the members that have a score; ``None`` where there is
    no other. Time never breaks a tie.

    Args:
        scores: One per member; ``None`` for an attempt without a score.

    Source:
        Shao et al. 2024, arXiv:2402.03300, section 4.1.2, for the advantage.
    """
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return [AttemptReward(gt=score, relative=None, advantage=None) for score in scores]
    mean, spread = fmean(known), pstdev(known) + 1e-8
    return [
        NO_REWARD
        if score is None
        else AttemptReward(
            gt=score,
            relative=(
                sum(score > other for other in known)
                + (sum(score == other for other in known) - 1) / 2
            )
            / (len(known) - 1),
            advantage=(score - mean) / spread,
        )
        for score in scores
    ]


def is_informative(rewards: Sequence[AttemptReward]) -> bool:
    """Return whether members of a group differ, so that something can be learned from it."""
    known = [reward.gt for reward in rewards if reward.gt is not None]
    return len(known) > 1 and max(known) - min(known) >= CONTRAST
