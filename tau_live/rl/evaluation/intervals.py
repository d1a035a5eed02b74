"""How far an estimate may be off: by resampling rollouts, and by a bound that always holds.

Both are for one look at a log of a size that was fixed beforehand. Whoever looks again and again,
and acts on what is seen, needs a confidence sequence instead.
"""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation.estimators import Ratios, of_totals

_HALVINGS = 100


class Interval(NamedTuple):
    """From ``low`` to ``high``, in units of reward."""

    low: float
    high: float


def bootstrap(
    estimates: list[Ratios],
    *,
    alpha: float,
    replicates: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> list[Interval]:
    """Return percentile intervals of estimates on the same rollouts, by drawing from those.

    All estimates see the same draws. Where a draw leaves one undefined (no weight at all), it
    counts as the lower limit for ``low`` and as the upper for ``high``. A reward model is taken as
    it is: what fitting it again would change is not in the interval (``report`` widens it).

    Args:
        estimates: Each of ``[R, K]``, ``R`` at least 1.
        alpha: In ``(0, 1)``; half of it is left out on either side.
        replicates: How often to draw ``R`` rollouts, at least 1.
        limits: The least and the largest value.
        rng: Draws.

    Source:
        Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3.
    """
    rollouts = len(estimates[0].numerators)
    columns = np.concatenate([table for one in estimates for table in one], axis=1)
    totals = np.empty((replicates, columns.shape[1]))
    for replicate in range(replicates):
        draws = rng.integers(rollouts, size=rollouts)
        totals[replicate] = np.bincount(draws, minlength=rollouts) @ columns
    intervals = []
    begin = 0
    for one in estimates:
        width = one.numerators.shape[1]
        middle, end = begin + width, begin + 2 * width
        values = of_totals(totals[:, begin:middle], totals[:, middle:end])
        begin = end
        undefined = np.isnan(values)
        low = np.quantile(np.where(undefined, limits[0], values), alpha / 2.0)
        high = np.quantile(np.where(undefined, limits[1], values), 1.0 - alpha / 2.0)
        intervals.append(Interval(float(low), float(high)))
    return intervals


def bernstein_radius(variance: float, samples: int, *, width: float, delta: float) -> float:
    """Return how far above the mean of samples their expectation may be, but for ``delta``.

    ``sqrt(2 * variance * log(2 / delta) / n) + 7 * width * log(2 / delta) / (3 * (n - 1))``

    Args:
        variance: Of the samples, divided by ``n - 1``.
        samples: How many, ``n``; infinite is the answer with fewer than 2.
        width: The largest less the least that a sample can be.
        delta: The probability of being wrong, in ``(0, 1)``.

    Source:
        Maurer and Pontil 2009, arXiv:0907.3740, theorem 4.
    """
    if samples < 2:
        return float("inf")
    logarithm = float(np.log(2.0 / delta))
    spread = float(np.sqrt(2.0 * variance * logarithm / samples))
    return spread + 7.0 * width * logarithm / (3.0 * (samples - 1))


def least_ratio(
    numerators: FloatArray,
    denominators: FloatArray,
    *,
    width: float,
    delta: float,
    limits: tuple[float, float],
) -> float:
    """Return what ``E[A] / E[B]`` is at least, but for a probability of ``delta``.

    The least ``x`` for which the mean of ``A - x * B`` is no further above 0 than
    ``bernstein_radius`` allows. Its distance from that is concave in ``x``, hence once it has
    fallen to 0 it stays below, and halving finds the place. With ``B`` all 1 it is the bound of
    the mean of ``A``.

    Args:
        numerators: ``[R]``, independent samples of ``A``.
        denominators: ``[R]``, of ``B``, at least 0.
        width: The largest less the least that ``A - x * B`` can be, at the true ``x``.
        delta: In ``(0, 1)``.
        limits: What the ratio is in any case.
    """

    def excess(x: float) -> float:
        differences = numerators - x * denominators
        variance = float(differences.var(ddof=1)) if len(differences) > 1 else 0.0
        radius = bernstein_radius(variance, len(differences), width=width, delta=delta)
        return float(differences.mean()) - radius

    low, high = limits
    if not excess(low) > 0.0:
        return low
    if excess(high) > 0.0:
        return high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return low
