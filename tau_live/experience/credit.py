"""Credit: by how much a lesson changes the score of the groups whose prompt holds it."""

from collections.abc import Hashable, Iterable, Sequence
from math import sqrt
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

SHRINKING = 20
"""Exposures at which a difference is taken for half of what it seems to be."""

LEAST_EXPOSURES = 30
"""Exposures that it takes to prune a lesson."""

SURE = 0.9
"""The probability of harm from which a lesson is pruned, and may be deleted."""

BOUND = 1.2816
"""Standard deviations below the mean of the bound by which full pools are pruned: 10 %."""

_NORMAL = NormalDist()


class Uplift(NamedTuple):
    """The measured effect of a lesson.

    Attributes:
        exposures: Groups whose prompt held it.
        withheld: Groups that it was left out of.
        raw: The difference of their mean values, in units of score.
        mean: The same, shrunken towards 0.
        sd: Its standard deviation.
    """

    exposures: int = 0
    withheld: int = 0
    raw: float = 0.0
    mean: float = 0.0
    sd: float = 0.0

    @property
    def harm(self) -> float:
        """The probability that the effect is below 0."""
        if not self.sd:
            return 0.5 if not self.mean else float(self.mean < 0.0)
        return _NORMAL.cdf(-self.mean / self.sd)

    @property
    def lower(self) -> float:
        """The lower bound by which lessons are compared where there is no room for all."""
        return self.mean - BOUND * self.sd

    @property
    def is_harmful(self) -> bool:
        """Whether there is enough evidence to prune it."""
        return self.exposures >= LEAST_EXPOSURES and self.harm > SURE


def uplift(with_it: Sequence[float], without: Sequence[float]) -> Uplift:
    """Return the effect of a lesson.

    ``mean = shrink * (mean(with) - mean(without))`` with ``s = n_w * n_o / (n_w + n_o)`` and
    ``shrink = s / (s + 20)``, ``sd = shrink * sqrt(var_w / n_w + var_o / n_o)``. Without groups on
    both sides nothing is known, and it is 0. One group alone has the variance of the other side.

    Args:
        with_it: The values of the groups whose prompt held it, in units of score.
        without: Those of the groups that it was left out of.

    Source:
        C. N. Morris, Parametric empirical Bayes inference (1983), for the shrinking.
    """
    n_w, n_o = len(with_it), len(without)
    if not n_w or not n_o:
        return Uplift(n_w, n_o)
    raw = fmean(with_it) - fmean(without)
    size = n_w * n_o / (n_w + n_o)
    shrink = size / (size + SHRINKING)
    known = [variance(side) for side in (with_it, without) if len(side) > 1]
    var_w = variance(with_it) if n_w > 1 else max(known, default=0.0)
    var_o = variance(without) if n_o > 1 else max(known, default=0.0)
    return Uplift(n_w, n_o, raw, shrink * raw, shrink * sqrt(var_w / n_w + var_o / n_o))


class GroupScore(NamedTuple):
    """A group, as credit is computed from it.

    Attributes:
        epoch: Its run and epoch.
        query_id: Its task.
        score: The mean ground-truth score of its valid members.
        injected: The lessons in its prompt.
        withheld: The lessons that were left out of it by chance.
    """

    epoch: Hashable
    query_id: str
    score: float
    injected: Sequence[Hashable]
    withheld: Sequence[Hashable]


def credit(groups: Iterable[GroupScore]) -> dict[Hashable, Uplift]:
    """Return the effect of every lesson that was injected or withheld.

    The value of a group is its score less the mean of the other groups of its task, or less the
    mean of its epoch where there is no other.
    """
    known = [*groups]
    by_query: dict[str, list[float]] = {}
    by_epoch: dict[Hashable, list[float]] = {}
    for group in known:
        by_query.setdefault(group.query_id, []).append(group.score)
        by_epoch.setdefault(group.epoch, []).append(group.score)
    tasks = {query: (sum(scores), len(scores)) for query, scores in by_query.items()}
    epochs = {epoch: fmean(scores) for epoch, scores in by_epoch.items()}
    sides: dict[Hashable, tuple[list[float], list[float]]] = {}
    for group in known:
        total, count = tasks[group.query_id]
        others = (total - group.score) / (count - 1) if count > 1 else epochs[group.epoch]
        for side, lessons in enumerate((group.injected, group.withheld)):
            for lesson in lessons:
                sides.setdefault(lesson, ([], []))[side].append(group.score - others)
    return {lesson: uplift(*both) for lesson, both in sides.items()}
