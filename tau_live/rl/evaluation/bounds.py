"""Intervals that hold for every distribution of rewards in a declared range, at any size."""

import numpy as np

from tau_live.rl.evaluation.estimators import Estimator, Ratios, dr, sndr, snips
from tau_live.rl.evaluation.intervals import Interval, least_ratio
from tau_live.rl.evaluation.log import Samples

_WEIGHTED = frozenset({Estimator.SNIPS, Estimator.DR, Estimator.SNDR})


def bounds(
    name: Estimator,
    samples: Samples,
    reward_range: tuple[float, float],
    *,
    cap: float,
    alpha: float,
) -> Interval | None:
    """Return an empirical-Bernstein interval of what the target policy earns, or ``None``.

    - ``ips``, ``pdis``: from ``w * (r - low)`` and ``w * (high - r)``, which are at least 0.
      Cutting them, or never having logged what the target does, only makes them smaller, so this
      interval holds in spite of both. That of ``pdis`` is the trajectory-wise one.
    - ``snips``, ``dr``, ``sndr``: if no weight can be above the cap, as with a floor under the
      propensities (``cap = 1 / floor``); ``None`` when one was. A model must expect rewards in the
      range (else ``None``), and is taken as fixed: with ``cross_fitted`` that is nearly so.
    - ``dm``, ``wpdis``: ``None``. The error of a model is not seen in the log it was made from, and
      the ratios of all steps would need a bound each.

    Rollouts are taken for independent, and none for longer than the longest of the log. ``None``
    also where the two ends contradict each other, which they do when the propensities are wrong.

    Args:
        name: The formula.
        samples: Before the cap, at least one; over several steps as ``accumulated`` gives them.
        reward_range: The least and the largest reward (over several steps, sum of rewards).
        cap: Of the weights, at least 1; ``None`` is the answer where it is infinite.
        alpha: In ``(0, 1)``, half for either side.

    Source:
        Maurer and Pontil 2009, arXiv:0907.3740, theorem 4; Thomas, Theocharous and Ghavamzadeh
        2015, "High-Confidence Off-Policy Evaluation" (cutting what is at least 0).
    """
    if not np.isfinite(cap):
        return None
    cut = samples._replace(weights=np.minimum(samples.weights, cap))
    delta = alpha / 2.0
    found = None
    if name is Estimator.IPS:
        found = _of_gains(cut, reward_range, cap=cap, delta=delta)
    elif name is Estimator.PDIS:
        last = cut.last
        returns = cut.totals(cut.rewards)
        final = Samples(cut.rollouts[last], cut.weights[last], returns)
        found = _of_gains(final, reward_range, cap=cap, delta=delta)
    elif name in _WEIGHTED and not (samples.weights > cap).any():
        found = _of_weighted(name, cut, reward_range, cap=cap, delta=delta)
    return found if found is not None and found.low <= found.high else None


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
