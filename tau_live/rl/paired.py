"""Tests of paired differences: whether one of two things is better on the same tasks."""

from collections.abc import Sequence
from math import atan, comb, cos, pi, sin, sqrt

import numpy as np

EXACT = 16
"""The most non-zero pairs whose signs are enumerated."""

DRAWS = 9_999
AT_ONCE = 100
"""Draws that are in memory together."""

_TIE = 1e-12


def sign_flip_p(differences: Sequence[float], *, seed: int) -> float:
    """Return the one-sided p-value of the sign-flip test of "the mean difference is above 0".

    Zeros are dropped. If all differences are of one size it is the binomial tail; up to 16 of them
    are enumerated exactly; of more, 9,999 signs are drawn, and ``p = (1 + hits) / (1 + draws)``.
    A sum equal to the observed one counts as a hit.

    Args:
        differences: One per pair, shape ``(n,)``, in units of score.
        seed: Of the draws, ``Generator(PCG64(seed))``.

    Source:
        R. A. Fisher, The Design of Experiments, section 21 (1935); for the draws, B. Phipson and
        G. K. Smyth, Permutation p-values should never be zero (2010).
    """
    values = np.asarray([d for d in differences if d != 0.0], dtype=np.float64)
    count = len(values)
    if not count:
        return 1.0
    sizes = np.abs(values)
    if np.ptp(sizes) <= _TIE * sizes.max():
        better = int((values > 0).sum())
        tail: int = sum(comb(count, k) for k in range(better, count + 1))
        return tail / float(2**count)
    least = values.sum() - _TIE * sizes.sum()
    if count <= EXACT:
        places = np.arange(count)
        signs = 2.0 * (np.arange(2**count)[:, None] >> places & 1) - 1.0
        return float((signs @ sizes >= least).mean())
    rng, hits = np.random.Generator(np.random.PCG64(seed)), 0
    for done in range(0, DRAWS, AT_ONCE):  # the draws of one array of all, in less memory
        size = (min(AT_ONCE, DRAWS - done), count)
        hits += int(((2.0 * rng.integers(0, 2, size=size) - 1.0) @ values >= least).sum())
    return (1 + hits) / (1 + DRAWS)


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
