"""Paired differences: whether one of two things is better on the same tasks, and by how much."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import atan, ceil, cos, pi, sin, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, product

EXACT = 16
"""The most non-zero pairs whose signs are enumerated."""

DRAWS = 9_999
RESAMPLES = 10_000

AT_ONCE = 2**17
"""Random numbers that are in memory together: 1 MB of them."""

DIGITS = 10
"""Digits after the point of a difference of means; what follows is the error of floats."""

_TIE = 1e-12
_NORMAL = NormalDist()


def case_means(episodes: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the mean reward of each case, in the order in which the cases come first.

    Episodes of one case are no independent evidence; its mean is one number of one pair.

    Args:
        episodes: The case and the known reward of each.
    """
    rewards: dict[str, list[float]] = {}
    for case, reward in episodes:
        rewards.setdefault(case, []).append(reward)
    return {case: sum(own) / len(own) for case, own in rewards.items()}


def case_differences(
    baseline: Mapping[str, float], trained: Mapping[str, float]
) -> dict[str, float]:
    """Return trained minus baseline of the cases that both have, in the baseline's order.

    They are rounded to 10 digits: ``0.3 - 0.2`` is ``0.2 - 0.1``, and two means that are equal but
    for the order in which they were summed differ by 0, which the sign-flip test drops.

    Args:
        baseline: The mean reward of each case.
        trained: The same.
    """
    return {
        case: round(trained[case] - reward, DIGITS)
        for case, reward in baseline.items()
        if case in trained
    }


class SignFlip(NamedTuple):
    """The result of a sign-flip test.

    Attributes:
        p_value: Two-sided, of "the mean difference is 0".
        p_one_sided: Of "the mean difference is at most 0".
        exact: Whether it counts all signs; otherwise they were drawn.
        draws: How many were drawn; ``None`` if exact.
        zero_pairs: How many differences are 0. They say nothing and are dropped.
    """

    p_value: float
    p_one_sided: float
    exact: bool
    draws: int | None
    zero_pairs: int


def sign_flip(differences: Sequence[float], *, seed: int) -> SignFlip:
    """Return the p-values of the sign-flip test of a mean difference.

    Zeros are dropped. If all others are of one size, p is a binomial tail; up to 16 of them are
    enumerated; of more, 9,999 signs are drawn, and ``p = (1 + hits) / (1 + draws)``.
    A hit is a sum of at least the observed one; for two sides, both without their sign. Sums that
    differ by less than ``1e-12 * max(1, sum(abs(differences)))`` are equal.

    Args:
        differences: ``[N]``, one per pair, in units of score; of none, p is 1.
        seed: Of the draws, ``Generator(PCG64(seed))``.

    Raises:
        ValueError: A difference is not finite.

    Source:
        R. A. Fisher, The Design of Experiments, section 21 (1935); for the draws, B. Phipson and
        G. K. Smyth, Permutation p-values should never be zero (2010).
    """
    known = _finite(differences)
    values = known[known != 0.0]
    count, zero_pairs = len(values), len(known) - len(values)
    if not count:
        return SignFlip(1.0, 1.0, True, None, zero_pairs)
    sizes = np.abs(values)
    if _are_equal(sizes):
        better = int((values > 0).sum())
        one_sided = _binomial_tail(better, count)
        two_sided = min(1.0, 2.0 * min(one_sided, _binomial_tail(count - better, count)))
        return SignFlip(two_sided, one_sided, True, None, zero_pairs)
    observed, tie = float(values.sum()), _TIE * max(1.0, float(sizes.sum()))
    if count <= EXACT:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate((sums + size, sums - size))
        two_sided, one_sided = _hits(sums, observed, tie=tie) / len(sums)
        return SignFlip(float(two_sided), float(one_sided), True, None, zero_pairs)
    two_sided, one_sided = (1 + _drawn_hits(values, tie=tie, seed=seed)) / (1 + DRAWS)
    return SignFlip(float(two_sided), float(one_sided), False, DRAWS, zero_pairs)


def sign_flip_p(differences: Sequence[float], *, seed: int) -> float:
    """Return the one-sided p-value of the sign-flip test of "the mean difference is above 0".

    Args:
        differences: One per pair, shape ``(n,)``, in units of score.
        seed: Of the draws, ``Generator(PCG64(seed))``.

    Raises:
        ValueError: A difference is not finite.
    """
    return sign_flip(differences, seed=seed).p_one_sided


def _drawn_hits(values: FloatArray, *, tie: float, seed: int) -> FloatArray:
    """Return ``[2]``, the two-sided and the one-sided hits of 9,999 drawn signs of ``values``."""
    rng, observed, hits = np.random.Generator(np.random.PCG64(seed)), values.sum(), np.zeros(2)
    for rows in _blocks(DRAWS, len(values)):
        positive = rng.integers(0, 2, size=(rows, len(values))).astype(np.float64)
        sums = 2.0 * product(positive, values) - observed  # signs are 2 * positive - 1
        hits += _hits(sums, float(observed), tie=tie)
    return hits


def _hits(sums: FloatArray, observed: float, *, tie: float) -> FloatArray:
    """Return ``[2]``, how many sums are as far from 0 as the observed one, and at least it."""
    far = np.abs(sums) >= abs(observed) - tie
    return np.array([far.sum(), (sums >= observed - tie).sum()], dtype=np.float64)


def _binomial_tail(least: int, count: int) -> float:
    """Return the probability of at least ``least`` heads of ``count`` fair coins."""
    ways, total = 1, 0
    for heads in range(count, least - 1, -1):
        total += ways
        ways = ways * heads // (count - heads + 1)
    return total / (1 << count)


def _blocks(rows: int, width: int) -> Iterator[int]:
    """Yield how many rows of ``width`` random numbers to draw next, until there are ``rows``.

    A generator fills the rows of several arrays with the numbers of one array of all of them.
    """
    most = max(1, AT_ONCE // width)
    for done in range(0, rows, most):
        yield min(most, rows - done)


def _finite(numbers: Sequence[float]) -> FloatArray:
    values = np.asarray(numbers, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise ValueError(f"expected finite numbers [N], got {bad} others in {values.shape}")
    return values


def _are_equal(values: FloatArray) -> bool:
    """Whether values, of which there is at least one, are the same but for the error of floats."""
    return bool(np.ptp(values) <= _TIE * np.abs(values).max())


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being several, in the given order.

    Source:
        S. Holm, A simple sequentially rejective multiple test procedure (1979).
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


class BcaInterval(NamedTuple):
    """A bootstrap interval, bias-corrected and accelerated.

    Attributes:
        low: Its lower end, in units of the differences.
        high: Its upper end.
        bias: ``z0``, by how much the resamples' median is off the mean, in standard deviations.
        acceleration: ``a``, how fast the mean's spread changes with the mean.
    """

    low: float
    high: float
    bias: float
    acceleration: float


def bca_interval(differences: Sequence[float], *, seed: int, level: float = 0.95) -> BcaInterval:
    """Return the two-sided BCa bootstrap interval of the mean of paired differences.

    ``z0 = probit(share of resampled means below the mean + half the share equal to it)`` and
    ``a = sum(u**3) / (6 * sum(u**2)**1.5)`` with ``u = d - mean(d)``, which is the jackknife's for
    a mean. The ends are the resampled means' quantiles, interpolated linearly, at
    ``cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))`` for ``z = probit((1 -+ level) / 2)``.
    Means that differ by less than ``1e-12 * max(1, max(abs(d)))`` are equal.

    Args:
        differences: ``[N]``, at least one; if all are equal, both ends are that value.
        seed: Of the resamples, see ``bootstrap_means``.
        level: The confidence, in ``(0, 1)``.

    Raises:
        ValueError: A difference is not finite, there is none, or ``level`` is not in ``(0, 1)``.

    Source:
        B. Efron, Better bootstrap confidence intervals (1987); B. Efron and R. J. Tibshirani, An
        Introduction to the Bootstrap (1993), equations 14.9, 14.10, 14.14 and 14.15.
    """
    values = _finite(differences)
    if not len(values) or not 0.0 < level < 1.0:
        raise ValueError(f"expected differences and a level in (0, 1), got {level!r}")
    if _are_equal(values):
        return BcaInterval(float(values[0]), float(values[0]), 0.0, 0.0)
    means, mean = bootstrap_means(differences, seed=seed), float(values.mean())
    tie = _TIE * max(1.0, float(np.abs(values).max()))
    below, equal = (means < mean - tie).mean(), (np.abs(means - mean) <= tie).mean()
    bias = _NORMAL.inv_cdf(float(below + equal / 2))
    deviations = values - mean
    acceleration = float((deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5))

    def end(share: float) -> float:
        z = bias + _NORMAL.inv_cdf(share)
        adjusted = _NORMAL.cdf(bias + z / max(1.0 - acceleration * z, _TIE))
        return float(np.quantile(means, adjusted))

    return BcaInterval(end((1.0 - level) / 2), end((1.0 + level) / 2), bias, acceleration)


def bootstrap_means(differences: Sequence[float], *, seed: int) -> FloatArray:
    """Return the means of 10,000 resamples of pairs, ``[10000]``.

    Args:
        differences: ``[N]``, one per pair, at least one.
        seed: Of the resamples, ``Generator(PCG64(seed)).integers(0, N, size=(10000, N))``.

    Raises:
        ValueError: A difference is not finite.

    Source:
        B. Efron, Bootstrap methods: another look at the jackknife (1979).
    """
    values, rng = _finite(differences), np.random.Generator(np.random.PCG64(seed))
    count = len(values)
    return np.concatenate(
        [
            values[rng.integers(0, count, size=(rows, count))].mean(axis=1)
            for rows in _blocks(RESAMPLES, count)
        ]
    )


def cohen_dz(differences: Sequence[float]) -> float | None:
    """Return the mean of paired differences in units of their own standard deviation.

    Args:
        differences: ``[N]``, one per pair.

    Returns:
        The effect; ``None`` of fewer than two, and where they do not differ.

    Raises:
        ValueError: A difference is not finite.

    Source:
        J. Cohen, Statistical Power Analysis (1988), section 2.3; D. Lakens, Calculating and
        reporting effect sizes (2013), equation 6.
    """
    values = _finite(differences)
    if len(values) < 2 or _are_equal(values):
        return None
    return float(values.mean() / values.std(ddof=1))


def cohen_d(baseline: Sequence[float], trained: Sequence[float]) -> float | None:
    """Return trained's mean minus baseline's in units of their pooled standard deviation.

    Args:
        baseline: ``[N]`` scores.
        trained: ``[M]`` scores.

    Returns:
        The effect; ``None`` if a side has fewer than two, and where neither side varies.

    Raises:
        ValueError: A score is not finite.

    Source:
        J. Cohen, Statistical Power Analysis (1988), section 2.5.
    """
    sides = [_finite(baseline), _finite(trained)]
    if min(map(len, sides)) < 2 or all(map(_are_equal, sides)):
        return None
    squares = sum(float(side.var()) * len(side) for side in sides)
    pooled = sqrt(squares / (len(sides[0]) + len(sides[1]) - 2))
    return float(sides[1].mean() - sides[0].mean()) / pooled


def planned_pairs(difference: float, discordant_share: float) -> int:
    """Return how many pairs of binary outcomes find a difference with a power of 80 %, at 5 %.

    ``n = (z(.975) * sqrt(q) + z(.8) * sqrt(q - D**2))**2 / D**2``, rounded up; two-sided.

    Args:
        difference: ``D``, of the two shares of successes, above 0.
        discordant_share: ``q``, the share of pairs whose outcomes differ, from ``D`` to 1.

    Raises:
        ValueError: Not ``0 < difference <= discordant_share <= 1``.

    Source:
        R. J. Connor, Sample size for testing differences in proportions for the paired-sample
        design (1987).
    """
    if not 0.0 < difference <= discordant_share <= 1.0:
        raise ValueError(
            f"expected 0 < difference <= discordant_share <= 1, "
            f"got {difference!r} and {discordant_share!r}"
        )
    chance = _NORMAL.inv_cdf(0.975) * sqrt(discordant_share)
    power = _NORMAL.inv_cdf(0.8) * sqrt(discordant_share - difference**2)
    return ceil((chance + power) ** 2 / difference**2)


def t_upper_bound(differences: Sequence[float], *, level: float = 0.95) -> float:
    """Return the one-sided upper bound of the mean of paired differences, by Student's t.

    Args:
        differences: One per pair, shape ``(n,)``; of fewer than two the bound is infinite.
        level: The confidence.
    """
    count = len(differences)
    if count < 2:
        return float("inf")
    values = np.asarray(differences, dtype=np.float64)
    spread = float(values.std(ddof=1)) / count**0.5
    return float(values.mean()) + (t_quantile(level, count - 1) * spread if spread else 0.0)


def t_interval(differences: Sequence[float], *, level: float = 0.95) -> tuple[float, float]:
    """Return the two-sided interval of the mean of paired differences, by Student's t."""
    values = np.asarray(differences, dtype=np.float64)
    half = t_upper_bound(differences, level=(1.0 + level) / 2) - float(values.mean())
    return float(values.mean()) - half, float(values.mean()) + half


def t_quantile(level: float, df: int) -> float:
    """Return a quantile of Student's t distribution, by bisection.

    Args:
        level: In ``[0.5, 1)``.
        df: Degrees of freedom, at least 1.
    """
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < level:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if _t_cdf(middle, df) < level else (low, middle)
    return high


def _t_cdf(t: float, df: int) -> float:
    """Return the probability of at most ``t``, which is at least 0.

    Source:
        M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(df))
    cosine, sine = cos(angle), sin(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = 0.0
    for place in range(1 + odd, df, 2):  # the power of the next cosine, and its factor
        total += term
        term *= cosine**2 * place / (place + 1)
    share = 2 / pi * (angle + sine * total) if odd else sine * total
    return 0.5 + share / 2
