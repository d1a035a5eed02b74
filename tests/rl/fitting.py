"""The reward model that ours is held against: every pair of every decision in memory at once."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tau_live.rl import arrays
from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, offsets
from tau_live.rl.crossing import Crossed
from tau_live.rl.evaluation.estimators import folds_of
from tau_live.rl.evaluation.log import Log, Offered

_CHUNK = 4_096  # rows made dense at once: 16 MB when 512 wide

WIDEST = 1_024
"""Slots of a model: its memory grows with their square, and its time with their cube."""


def cross_fitted(
    log: Log,
    features: FloatArray | Crossed,
    *,
    reward_range: tuple[float, float],
    folds: int = 5,
    penalty: float = 1.0,
) -> Log:
    """Return the log with the reward expected of every option, by ridge models.

    Each model is fitted without the rollouts that it speaks of: one that has seen a reward knows
    the noise in it, and would count that as if it were the policy's doing. Not learned from: a
    reward that is unknown or outside the range, and features that hold a NaN or an infinity, for
    which the expectation is NaN (and the decision then left out and counted).

    Args:
        log: ``N`` decisions with all ``M`` options that were offered.
        features: ``[M, D]``, or ``M`` sparse rows; give each decision's context crossed with the
            option, or the context says nothing about which option is better. Of more than
            ``WIDEST`` slots, those share one that leave the same remainder.
        reward_range: The least and the largest reward; expectations are cut to it.
        folds: At least 2; with fewer rollouts, as many as those.
        penalty: On squared weights, above 0; the mean is not penalised.

    Returns:
        The same log with predictions; NaN where the other folds have nothing to learn from.

    Raises:
        TypeError: The log has the applied option only.
        ValueError: A shape, a slot or a bound does not fit.

    Source:
        Chernozhukov et al. 2018, arXiv:1608.00060, definition 3.2 (cross-fitting).
    """
    if not isinstance(log.targets, Offered):
        raise TypeError("the log must have all options that were offered")
    if not 0.0 < penalty < np.inf:
        raise ValueError(f"penalty must be finite and above 0, got {penalty!r}")
    options, broken = _sparse(features, len(log.targets.targets))
    fold = folds_of(log.rollouts, folds)
    applied = offsets(log.targets.counts)[:-1] + log.targets.applied
    low, high = reward_range
    usable = (log.rewards >= low) & (log.rewards <= high)
    usable &= (log.targets.applied >= 0) & (log.targets.applied < log.targets.counts)
    usable[usable] = ~broken[applied[usable]]
    predictions = np.full(len(broken), np.nan)
    fold_of_option = np.repeat(fold, log.targets.counts)
    for number in np.unique(fold):
        others = np.flatnonzero(usable & (fold != number))
        held_out = np.flatnonzero((fold_of_option == number) & ~broken)
        if len(others) and len(held_out):
            model = _fit(options.rows(applied[others]), log.rewards[others], penalty)
            expected = model.of(options.rows(held_out))
            predictions[held_out] = np.minimum(np.maximum(expected, low), high)
    return replace(log, targets=log.targets._replace(predictions=predictions))


class _Model(NamedTuple):
    """A ridge regression around the mean."""

    slots: IntArray
    weights: FloatArray
    mean: float

    def of(self, options: Crossed) -> FloatArray:
        """Return ``[M]`` expected rewards; rows may be empty, and hold slots never seen before."""
        rows = len(options.starts) - 1
        known, columns = _columns(self.slots, options.slots)
        products = self.weights[columns] * options.values[known]
        owners = np.repeat(np.arange(rows), np.diff(options.starts))[known]
        sums = np.bincount(owners, weights=products, minlength=rows)
        return sums.astype(np.float64, copy=False) + self.mean


def _fit(applied: Crossed, rewards: FloatArray, penalty: float) -> _Model:
    """Return the regression on the slots seen, in bits that no number of threads changes.

    Source:
        Hoerl and Kennard 1970, equation 2.1, on targets less their mean.
    """
    slots, columns = np.unique(applied.slots, return_inverse=True)
    seen = applied._replace(slots=columns)
    mean = float(np.add.reduce(rewards)) / len(rewards)
    gram, products = penalty * np.eye(len(slots)), np.zeros(len(slots))
    for begin in range(0, len(rewards), _CHUNK):
        part = np.arange(begin, min(begin + _CHUNK, len(rewards)))
        dense = seen.rows(part).dense(len(slots))
        gram += arrays.gram(dense)
        products += arrays.product(dense.T, rewards[part] - mean)
    return _Model(slots, arrays.solve(arrays.cholesky(gram), products), mean)


def _columns(known: IntArray, slots: IntArray) -> tuple[IntArray, IntArray]:
    """Return which entries have a known slot, and the places of those among the known."""
    at = np.minimum(np.searchsorted(known, slots), max(len(known) - 1, 0))
    present = np.flatnonzero(known[at] == slots) if len(known) else np.zeros(0, dtype=np.int64)
    return present, at[present]


def _sparse(features: FloatArray | Crossed, options: int) -> tuple[Crossed, BoolArray]:
    """Return ``[M]`` sparse rows without what is not finite, and ``[M]`` which rows had that."""
    if not isinstance(features, Crossed):
        if features.ndim != 2 or len(features) != options:
            raise ValueError(f"features must be [{options}, D], got {features.shape}")
        rows, slots = np.nonzero(features)
        starts = offsets(np.bincount(rows, minlength=options))
        features = Crossed(slots, features[rows, slots].astype(np.float64), starts)
    starts = features.starts
    if len(starts) != options + 1 or starts[-1] != len(features.slots):
        raise ValueError(f"features must have {options} rows, got {len(starts) - 1}")
    if (features.slots < 0).any():
        raise ValueError("slots of features must be at least 0")
    strange = ~np.isfinite(features.values)
    owners = np.repeat(np.arange(options), np.diff(starts))
    broken = np.bincount(owners, weights=strange, minlength=options) > 0.0
    return _narrow(features._replace(values=np.where(strange, 0.0, features.values))), broken


def _narrow(features: Crossed) -> Crossed:
    """Return features of no more slots than a model may have; some share one if there are more."""
    if len(np.unique(features.slots)) <= WIDEST:
        return features
    return features._replace(slots=features.slots % WIDEST)
