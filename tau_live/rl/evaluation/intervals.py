"""Intervals of estimates: by bootstrap, and by bounds that hold for every distribution.

Both are for one look at a log of a size fixed beforehand. To look repeatedly and act on the result
takes a confidence sequence instead.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, multiply
from tau_live.rl.engine import Engine
from tau_live.rl.evaluation.estimators import Estimator, Ratios, dr, of_totals, sndr, snips
from tau_live.rl.evaluation.log import Samples

_BISECTIONS = 100
_AT_ONCE = 10  # replicates of a shard, for which a log is read once
_BLOCK = 32_768  # rollouts whose counts and columns stay in a core's cache


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
    engine: Engine,
) -> list[Interval]:
    """Return percentile bootstrap intervals of estimates on the same rollouts.

    All estimates use the same draws. An estimate that a draw leaves undefined (no weight at all)
    counts as the lower limit for ``low`` and as the upper for ``high``. A reward model is taken as
    fixed: the variance of fitting it is not in the interval (``report`` widens it).

    Args:
        estimates: Each of ``[R, K]``, ``R`` at least 1.
        alpha: In ``(0, 1)``; half of it is left out on either side.
        replicates: How often to draw ``R`` rollouts, at least 1.
        limits: The least and the largest value.
        rng: Source of the seed of the draws.
        engine: Draws the replicates.

    Source:
        Efron and Tibshirani 1993, "An Introduction to the Bootstrap", section 13.3.
    """
    columns = np.concatenate([table for estimate in estimates for table in estimate], axis=1)
    draw = partial(_resampled_totals, columns, int(rng.integers(2**63)))
    shards = [
        range(start, min(start + _AT_ONCE, replicates)) for start in range(0, replicates, _AT_ONCE)
    ]
    totals = np.concatenate(list(engine.map(draw, shards)))
    intervals = []
    begin = 0
    for estimate in estimates:
        width = estimate.numerators.shape[1]
        middle, end = begin + width, begin + 2 * width
        values = of_totals(totals[:, begin:middle], totals[:, middle:end])
        begin = end
        undefined = np.isnan(values)
        low = np.quantile(np.where(undefined, limits[0], values), alpha / 2.0)
        high = np.quantile(np.where(undefined, limits[1], values), 1.0 - alpha / 2.0)
        intervals.append(Interval(float(low), float(high)))
    return intervals


def _resampled_totals(columns: FloatArray, seed: int, shard: range) -> FloatArray:
    """Return ``[B, C]``, the sums of ``columns [R, C]`` over ``B`` draws of ``R`` rollouts.

    How many of the draws fall into each block of rollouts is drawn first, then which: that is the
    same distribution, and each block is gone through once, from the cache.

    Args:
        columns: One row for each rollout.
        seed: Of all draws.
        shard: Which of them these are; they have a generator of their own.
    """
    rng, rollouts = np.random.default_rng([seed, shard.start]), len(columns)
    blocks = [columns[start : start + _BLOCK] for start in range(0, rollouts, _BLOCK)]
    shares = np.array([len(block) for block in blocks]) / rollouts
    draws = rng.multinomial(rollouts, shares, size=len(shard))
    totals = np.zeros((len(shard), columns.shape[1]))
    part = np.empty_like(totals)
    for block, sizes in zip(blocks, draws.T, strict=True):
        counts = np.empty((len(shard), len(block)))
        for row, size in zip(counts, sizes, strict=True):
            row[:] = np.bincount(rng.integers(len(block), size=size), minlength=len(block))
        multiply(counts, block, out=part)
        totals += part
    return totals


def bernstein_radius(variance: float, samples: int, *, width: float, delta: float) -> float:
    """Return the bound that an expectation's excess over the sample mean passes with ``delta``.

    ``sqrt(2 * variance * log(2 / delta) / n) + 7 * width * log(2 / delta) / (3 * (n - 1))``

    Args:
        variance: Sample variance, divided by ``n - 1``.
        samples: How many, ``n``; with fewer than 2 the radius is infinite.
        width: Width of the range of a sample.
        delta: Probability of error, in ``(0, 1)``.

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
    """Return a lower bound of ``E[A] / E[B]`` that fails with probability at most ``delta``.

    The least ``x`` for which the mean of ``A - x * B`` is no further above 0 than
    ``bernstein_radius`` allows. The excess is concave in ``x``, so once it has fallen to 0 it stays
    below, and bisection finds the root. With ``B`` all 1 it is the bound of the mean of ``A``.

    Args:
        numerators: ``[R]``, independent samples of ``A``.
        denominators: ``[R]``, of ``B``, at least 0.
        width: Width of the range of ``A - x * B``, at the true ``x``.
        delta: Probability of error, in ``(0, 1)``.
        limits: Limits of the ratio in any case.
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
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return low


_WEIGHTED = frozenset({Estimator.SNIPS, Estimator.DR, Estimator.SNDR})


def bounds(
    name: Estimator,
    samples: Samples,
    reward_range: tuple[float, float],
    *,
    cap: float,
    alpha: float,
) -> Interval | None:
    """Return an empirical-Bernstein interval of the target policy's value, or ``None``.

    - ``ips``, ``pdis``: from ``w * (r - low)`` and ``w * (high - r)``, which are at least 0.
      Capped weights, and actions of the target that were never logged, only make them smaller, so
      this interval holds in spite of both. That of ``pdis`` is the trajectory-wise one.
    - ``snips``, ``dr``, ``sndr``: if no weight can exceed the cap, as with a floor under the
      propensities (``cap = 1 / floor``); ``None`` when one did. A model must predict rewards in the
      range (else ``None``), and is taken as fixed: where it is cross-fitted that is nearly so.
    - ``dm``, ``wpdis``: ``None``. The error of a model does not show in the log it was fitted to,
      and the ratios of all steps would need a bound each.

    Rollouts are assumed independent, and none longer than the longest of the log. ``None`` also
    where the two ends contradict each other, as they do when the propensities are wrong.

    Args:
        name: The formula.
        samples: Before the cap, at least one; over several steps from ``accumulate_weights``.
        reward_range: The least and the largest reward (over several steps, sum of rewards).
        cap: Cap of the weights, at least 1; an infinite one gives ``None``.
        alpha: Probability of error, in ``(0, 1)``, half for either side.

    Source:
        Maurer and Pontil 2009, arXiv:0907.3740, theorem 4; Thomas, Theocharous and Ghavamzadeh
        2015, "High-Confidence Off-Policy Evaluation" (capping terms of at least 0).
    """
    if not np.isfinite(cap):
        return None
    cut = samples._replace(weights=np.minimum(samples.weights, cap))
    delta = alpha / 2.0
    interval = None
    if name is Estimator.IPS:
        interval = _of_gains(cut, reward_range, cap=cap, delta=delta)
    elif name is Estimator.PDIS:
        last = cut.last
        returns = cut.totals(cut.rewards)
        final = Samples(cut.rollouts[last], cut.weights[last], returns)
        interval = _of_gains(final, reward_range, cap=cap, delta=delta)
    elif name in _WEIGHTED and not (samples.weights > cap).any():
        interval = _of_weighted(name, cut, reward_range, cap=cap, delta=delta)
    return interval if interval is not None and interval.low <= interval.high else None


def _of_gains(
    cut: Samples, reward_range: tuple[float, float], *, cap: float, delta: float
) -> Interval:
    low, high = reward_range
    lengths = cut.lengths.astype(np.float64)
    width = float(lengths.max()) * cap * (high - low)
    gained, missed = (
        least_ratio(
            cut.totals(cut.weights * terms),
            lengths,
            width=width,
            delta=delta,
            limits=(0.0, high - low),
        )
        for terms in (cut.rewards - low, high - cut.rewards)
    )
    return Interval(low + gained, high - missed)


def _of_weighted(
    name: Estimator,
    cut: Samples,
    reward_range: tuple[float, float],
    *,
    cap: float,
    delta: float,
) -> Interval | None:
    low, high = reward_range
    unit = float(cut.lengths.max()) * (high - low)
    if name is Estimator.SNIPS:
        return _both_ends(snips(cut), 0, width=unit * cap, delta=delta, limits=reward_range)
    if not _in_range(cut, reward_range):
        return None
    if name is Estimator.DR:
        width = unit * (1.0 + 2.0 * cap)
        return _both_ends(dr(cut), 0, width=width, delta=delta, limits=reward_range)
    parts, residuals = sndr(cut), (low - high, high - low)
    model = _both_ends(parts, 0, width=unit, delta=delta / 2.0, limits=reward_range)
    error = _both_ends(parts, 1, width=2.0 * unit * cap, delta=delta / 2.0, limits=residuals)
    return Interval(max(low, model.low + error.low), min(high, model.high + error.high))


def _both_ends(
    ratios: Ratios, column: int, *, width: float, delta: float, limits: tuple[float, float]
) -> Interval:
    above, below = ratios.numerators[:, column], ratios.denominators[:, column]
    low, high = limits
    return Interval(
        least_ratio(above, below, width=width, delta=delta, limits=limits),
        -least_ratio(-above, below, width=width, delta=delta, limits=(-high, -low)),
    )


def _in_range(samples: Samples, reward_range: tuple[float, float]) -> bool:
    low, high = reward_range
    if samples.predictions is None or samples.expectations is None:
        return False
    both = np.concatenate([samples.predictions, samples.expectations])
    slack = 1e-6 * (high - low)  # the probabilities of all options may miss 1 by as much
    return bool(((both >= low - slack) & (both <= high + slack)).all())
