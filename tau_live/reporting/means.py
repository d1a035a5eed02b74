"""Means with their 95 percent intervals, and the middle and the end of what was seen."""

import math
from collections.abc import Sequence

import numpy as np

from tau_live.reporting.facts import Mean, Spread
from tau_live.rl.arrays import FloatArray

Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""

FEWEST = 5
"""Of fewer numbers no interval is given: it would say more of itself than of them."""

HIGH = 0.95


def mean_of(
    values: Sequence[float] | FloatArray, *, within: tuple[float, float] | None = None
) -> Mean:
    """Return the mean of finite numbers with Student's interval; others are left out.

    Numbers that are all the same have no interval: how far others would be is not known.

    Args:
        values: ``[N]``.
        within: The least and the largest that a number should be, which bound the interval too,
            unless one is beyond them: whoever declared them meant another store.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    count = len(known)
    if not count:
        return Mean()
    mean = float(known.mean())
    deviation = float(known.std(ddof=1)) if count >= FEWEST else 0.0
    if deviation == 0.0:
        return Mean(count=count, mean=mean)
    reach = _t(count - 1) * deviation / math.sqrt(count)
    low, high = within or (-math.inf, math.inf)
    if known.min() < low or known.max() > high:
        low, high = -math.inf, math.inf
    return Mean(count=count, mean=mean, lower=max(mean - reach, low), upper=min(mean + reach, high))


def share_of(count: int, total: int) -> Mean:
    """Return a share with Wilson's interval.

    Source:
        Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not total:
        return Mean()
    share, squared = count / total, Z * Z / total
    middle = (share + squared / 2.0) / (1.0 + squared)
    reach = Z * math.sqrt(share * (1.0 - share) / total + squared / (4.0 * total)) / (1.0 + squared)
    lower, upper = max(0.0, middle - reach), min(1.0, middle + reach)
    return Mean(count=total, mean=share, lower=min(share, lower), upper=max(share, upper))


def thirds_of(means: Sequence[Mean]) -> tuple[Mean, Mean] | None:
    """Return the first and the last third of stretches, each as one mean; ``None`` below two.

    What rose or fell is said of these everywhere, so that no two places differ.
    """
    known = [one for one in means if one.mean is not None]
    third = max(1, len(known) // 3)
    return None if len(known) < 2 else (_pooled(known[:third]), _pooled(known[-third:]))


def _pooled(means: Sequence[Mean]) -> Mean:
    """Return the mean of several stretches together."""
    total = sum(one.count for one in means)
    mean = sum(one.count * (one.mean or 0.0) for one in means) / total
    reach = 0.0
    for one in means:
        if one.lower is None or one.upper is None:
            return Mean(count=total, mean=mean)
        reach = math.hypot(reach, one.count / total * (one.upper - one.lower) / 2.0)
    return Mean(count=total, mean=mean, lower=mean - reach, upper=mean + reach)


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median and the 95 % point of finite numbers; others are left out."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Spread()
    median, high = np.quantile(known, [0.5, HIGH]).tolist()
    return Spread(count=len(known), median=median, high=high)


def _t(freedom: int) -> float:
    """Return the 97.5 % point of Student's distribution, within 0.04 % from 4 degrees on.

    Source:
        Abramowitz and Stegun 1964, equation 26.7.5.
    """
    terms = (
        (Z**3 + Z) / 4.0,
        (5.0 * Z**5 + 16.0 * Z**3 + 3.0 * Z) / 96.0,
        (3.0 * Z**7 + 19.0 * Z**5 + 17.0 * Z**3 - 15.0 * Z) / 384.0,
        (79.0 * Z**9 + 776.0 * Z**7 + 1482.0 * Z**5 - 1920.0 * Z**3 - 945.0 * Z) / 92160.0,
    )
    return Z + math.fsum(term / float(freedom**power) for power, term in enumerate(terms, start=1))
