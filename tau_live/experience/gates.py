"""Gates: a pool is kept if it is no worse, and ships if it is better, on tasks it has not seen."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from tau_live.rl.paired import case_differences, sign_flip_p, t_interval, t_upper_bound

LEAST_VALIDATION = 100
LEAST_TEST = 200
"""Tasks with a score on both sides; with fewer the result is a smoke test, and nothing ships."""

ACCEPT_LEVEL = 0.9
SHIP_LEVEL = 0.95

Decision = Literal["accepted", "rejected", "shipped", "unproven", "smoke"]


class Verdict(NamedTuple):
    """What a gate decided, and why.

    Attributes:
        decision: Of a pool that is kept: ``accepted`` or ``rejected``; of one that is to ship:
            ``shipped`` or ``unproven``, and ``smoke`` with too few tasks.
        tasks: Tasks with a score on both sides.
        mean: The mean difference, in units of score.
        bound: Its one-sided lower bound, at 90 % to keep a pool and at 95 % to ship it.
        interval: Its two-sided interval at 95 %; ``None`` of fewer than two tasks.
        p_value: One-sided; ``None`` where no test is made.
    """

    decision: Decision
    tasks: int
    mean: float | None
    bound: float | None
    interval: tuple[float, float] | None
    p_value: float | None


def lower_bound(differences: Sequence[float], *, level: float) -> float:
    """Return the one-sided lower bound of the mean of paired differences, by Student's t."""
    return -t_upper_bound([-value for value in differences], level=level)


def accept(best: Mapping[str, float], candidate: Mapping[str, float], *, margin: float) -> Verdict:
    """Return whether a pool is no worse than the best so far.

    Its mean difference is at least 0, and the lower bound above ``-margin``. With fewer than 100
    tasks the verdict stands all the same, but is no evidence: only shipping needs any.

    Args:
        best: The mean score of each validation task with the best pool, by query id.
        candidate: The same with the new pool.
        margin: In units of score.
    """
    differences = [*case_differences(best, candidate).values()]
    if not differences:
        return Verdict("rejected", 0, None, None, None, None)
    mean, bound = fmean(differences), lower_bound(differences, level=ACCEPT_LEVEL)
    is_kept = mean >= 0.0 and bound > -margin
    return Verdict(
        "accepted" if is_kept else "rejected", len(differences), mean, bound,
        _interval(differences), None,
    )  # fmt: skip


def ship(without: Mapping[str, float], with_it: Mapping[str, float], *, seed: int) -> Verdict:
    """Return whether a pool is proven to be better than none.

    The one-sided sign-flip test has ``p <= 0.05``, and the lower bound is above 0.

    Args:
        without: The mean score of each test task with the empty pool, by query id.
        with_it: The same with the pool.
        seed: Of the signs that are drawn.
    """
    differences = [*case_differences(without, with_it).values()]
    if not differences:
        return Verdict("smoke", 0, None, None, None, None)
    bound, p_value = lower_bound(differences, level=SHIP_LEVEL), sign_flip_p(differences, seed=seed)
    is_proven = p_value <= 1.0 - SHIP_LEVEL + 1e-12 and bound > 0.0
    decision: Decision = "shipped" if is_proven else "unproven"
    return Verdict(
        "smoke" if len(differences) < LEAST_TEST else decision, len(differences),
        fmean(differences), bound, _interval(differences), p_value,
    )  # fmt: skip


def _interval(differences: Sequence[float]) -> tuple[float, float] | None:
    return t_interval(differences) if len(differences) > 1 else None
