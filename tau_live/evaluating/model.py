"""The reward model of ``rl.evaluation.cross_fitted`` for many decisions, in bounded memory.

The pairs of all options of all decisions do not fit into memory at once, so they are made anew for
some decisions at a time; the models are fitted on the options that were applied.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import numpy as np

from tau_live.evaluating.records import Record
from tau_live.evaluating.sums import Fit, Sums
from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.crossing import Crossed, crossed, places, rows
from tau_live.rl.evaluation import folds_of
from tau_live.rl.features import Encoded, unpack
from tau_live.rl.scaling import Moments, Scale

FOLDS = 5
PENALTY = 1.0
CHUNK = 2_000
WIDTH = 512
"""Slots of the model's own, however wide the policy is: its memory grows with their square."""

Tell = Callable[[int], None]


def predictions(
    records: Sequence[Record], rewards: FloatArray, *, reward_range: tuple[float, float], tell: Tell
) -> list[FloatArray]:
    """Return ``[N]`` of ``[A]``: what models that have not seen its rollout expect of each option.

    NaN where the other rollouts have nothing to learn from.

    Args:
        records: ``N`` decisions.
        rewards: ``[N]``, NaN where unknown; what is outside the range is not learned from.
        reward_range: The least and the largest; expectations are cut to it.
        tell: Told how many more decisions are done, three times for each.
    """
    ids = np.array([record.rollout for record in records])
    fold = folds_of(ids, FOLDS) if len(records) else np.zeros(0, dtype=np.int64)
    scale = _scale(records, tell)
    low, high = reward_range
    usable = (rewards >= low) & (rewards <= high)
    usable &= np.array([record.applied >= 0 for record in records], dtype=np.bool_)
    models = _models(records, rewards, fold=fold, usable=usable, scale=scale, tell=tell)
    found: list[FloatArray] = []
    for begin, encoded in _chunks(records, tell):
        counts = [one.options for one in encoded]
        expected = np.full(sum(counts), np.nan)
        options = _crossed(encoded, scale)
        owners = np.repeat(fold[begin : begin + len(encoded)], counts)
        for number, (weights, mean) in models.items():
            at = np.flatnonzero(owners == number)
            if len(at):
                expected[at] = np.clip(options.rows(at).dot(weights) + mean, low, high)
        found += np.split(expected, np.cumsum(counts)[:-1])
    return found


def _models(
    records: Sequence[Record],
    rewards: FloatArray,
    *,
    fold: IntArray,
    usable: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    scale: Scale,
    tell: Tell,
) -> dict[int, Fit]:
    """Return by fold the model fitted on all other folds."""
    numbers = [int(number) for number in np.unique(fold)]
    sums = {number: Sums.empty(WIDTH) for number in numbers}
    for begin, encoded in _chunks(records, tell):
        applied = _crossed(encoded, scale).rows(_places_applied(records, encoded, begin))
        here = slice(begin, begin + len(encoded))
        for number in numbers:
            at = np.flatnonzero(usable[here] & (fold[here] == number))
            if len(at):
                sums[number] = sums[number].including(applied.rows(at), rewards[here][at])
    nothing = Sums.empty(WIDTH)
    others = {
        number: reduce(
            Sums.merged, (one for other, one in sums.items() if other != number), nothing
        )
        for number in numbers
    }
    return {number: one.fit(PENALTY) for number, one in others.items() if one.samples}


def _places_applied(records: Sequence[Record], encoded: Sequence[Encoded], begin: int) -> IntArray:
    starts = np.cumsum([0, *(one.options for one in encoded)])[:-1]
    return np.array(
        [start + max(records[begin + n].applied, 0) for n, start in enumerate(starts)],
        dtype=np.int64,
    )


def _scale(records: Sequence[Record], tell: Tell) -> Scale:
    moments, width = None, 0
    for _, encoded in _chunks(records, tell):
        width = encoded[0].width
        moments = Moments.empty(width) if moments is None else moments
        numeric = np.concatenate([one.numeric for one in encoded])
        values = np.concatenate([one.values for one in encoded])[numeric]
        at = np.concatenate([places(one) for one in encoded])[numeric]
        moments = moments.including(values.astype(np.float64), at)
    untrained = Scale.untrained(width)
    return untrained if moments is None else moments.scale(untrained, whole=True)


def _crossed(encoded: Sequence[Encoded], scale: Scale) -> Crossed:
    features = rows(encoded, [None] * len(encoded), scale)
    return crossed(features, width=encoded[0].width, cross_width=WIDTH)


def _chunks(records: Sequence[Record], tell: Tell) -> Iterator[tuple[int, list[Encoded]]]:
    for begin in range(0, len(records), CHUNK):
        encoded = [unpack(record.packed) for record in records[begin : begin + CHUNK]]
        yield begin, encoded
        tell(len(encoded))
