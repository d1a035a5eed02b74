"""The reward model of off-policy evaluation for many decisions, in bounded memory.

The models are cross-fitted: each predicts only for rollouts that it was not fitted on, since a
model that has seen a reward has fitted its noise, which would count as an effect of the policy
(Chernozhukov et al. 2018, arXiv:1608.00060, definition 3.2).

The pairs of all options of all decisions do not fit into memory, so they are computed for a chunk
of decisions at a time; the models are fitted on the options that were applied.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from tau_live.learn.evaluation.records import Record
from tau_live.rl import arrays
from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.crossing import Crossed, Moments, Scale, cross, numbers_of, rows
from tau_live.rl.evaluation.estimators import folds_of
from tau_live.rl.features import Encoded, unpack


class Sums(NamedTuple):
    """Sufficient statistics of a ridge regression; the bits do not depend on threads.

    Attributes:
        gram: ``[D, D]``, sum of the outer products of the features.
        products: ``[D]``, sum of features times target.
        features: ``[D]``, sum of features.
        samples: How many samples.
        mean: Mean of the targets.
    """

    gram: FloatArray
    products: FloatArray
    features: FloatArray
    samples: int
    mean: float

    @classmethod
    def empty(cls, width: int) -> "Sums":
        """Return the sums of no samples."""
        return cls(np.zeros((width, width)), np.zeros(width), np.zeros(width), 0, 0.0)

    def including(self, features: Crossed, targets: FloatArray) -> "Sums":
        """Return the sums with ``M`` more samples; slots are in ``[0, D)``, targets ``[M]``."""
        if not len(targets):
            return self
        dense = features.dense(len(self.products))
        return self.merge(
            Sums(
                arrays.gram(dense),
                arrays.product(dense.T, targets),
                np.add.reduce(dense, axis=0),
                len(targets),
                float(np.add.reduce(targets)) / len(targets),
            )
        )

    def merge(self, other: "Sums") -> "Sums":
        """Return the sums of the samples of both.

        Source:
            Chan, Golub and LeVeque 1979, equation 2.1 (pairwise merging).
        """
        if not self.samples or not other.samples:
            return self if self.samples else other
        samples = self.samples + other.samples
        return Sums(
            self.gram + other.gram,
            self.products + other.products,
            self.features + other.features,
            samples,
            self.mean + (other.mean - self.mean) * other.samples / samples,
        )

    def fit(self, penalty: float) -> tuple[FloatArray, float]:
        """Return ``[D]`` weights with this penalty on their squares, and the unpenalised mean.

        Source:
            Hoerl and Kennard 1970, equation 2.1, on targets less their mean.
        """
        seen = np.flatnonzero(np.diag(self.gram) > 0.0)
        products = (self.products - self.mean * self.features)[seen]
        penalised = self.gram[np.ix_(seen, seen)] + penalty * np.eye(len(seen))
        weights = np.zeros(len(self.products))
        weights[seen] = arrays.solve(arrays.cholesky(penalised), products)
        return weights, self.mean


FOLDS = 5
PENALTY = 1.0
CHUNK = 2_000
WIDTH = 512
"""Slots of the model, independent of the policy's width: its memory grows with their square."""

Tell = Callable[[int], None]


def predictions(
    records: Sequence[Record], rewards: FloatArray, *, reward_range: tuple[float, float], tell: Tell
) -> list[FloatArray]:
    """Return ``[N]`` of ``[A]``: cross-fitted predictions of the reward of each option.

    NaN where the other rollouts have nothing to learn from.

    Args:
        records: ``N`` decisions.
        rewards: ``[N]``, NaN where unknown; rewards outside the range are not learned from.
        reward_range: The least and the largest reward; predictions are clipped to it.
        tell: Called with the number of further decisions done, three times for each.
    """
    ids = np.array([record.rollout for record in records])
    fold = folds_of(ids, FOLDS) if len(records) else np.zeros(0, dtype=np.int64)
    scale = _scale(records, tell)
    low, high = reward_range
    usable = (rewards >= low) & (rewards <= high)
    usable &= np.array([record.applied >= 0 for record in records], dtype=np.bool_)
    models = _models(records, rewards, fold=fold, usable=usable, scale=scale, tell=tell)
    estimates: list[FloatArray] = []
    for begin, encoded in _chunks(records, tell):
        counts = [decision.options for decision in encoded]
        expected = np.full(sum(counts), np.nan)
        options = _cross(encoded, scale)
        owners = np.repeat(fold[begin : begin + len(encoded)], counts)
        for number, (weights, mean) in models.items():
            at = np.flatnonzero(owners == number)
            if len(at):
                expected[at] = np.clip(options.rows(at).dot(weights) + mean, low, high)
        estimates += np.split(expected, np.cumsum(counts)[:-1])
    return estimates


def _models(
    records: Sequence[Record],
    rewards: FloatArray,
    *,
    fold: IntArray,
    usable: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    scale: Scale,
    tell: Tell,
) -> dict[int, tuple[FloatArray, float]]:
    """Return by fold the model fitted on all other folds."""
    numbers = [int(number) for number in np.unique(fold)]
    sums = {number: Sums.empty(WIDTH) for number in numbers}
    for begin, encoded in _chunks(records, tell):
        here = slice(begin, begin + len(encoded))
        starts = np.cumsum([0, *(decision.options for decision in encoded)])[:-1]
        places = np.array([max(record.applied, 0) for record in records[here]], dtype=np.int64)
        applied = _cross(encoded, scale).rows(starts + places)
        for number in numbers:
            at = np.flatnonzero(usable[here] & (fold[here] == number))
            if len(at):
                sums[number] = sums[number].including(applied.rows(at), rewards[here][at])
    empty = Sums.empty(WIDTH)
    others = {
        number: reduce(Sums.merge, (part for other, part in sums.items() if other != number), empty)
        for number in numbers
    }
    return {number: rest.fit(PENALTY) for number, rest in others.items() if rest.samples}


def _scale(records: Sequence[Record], tell: Tell) -> Scale:
    moments, width = None, 0
    for _, encoded in _chunks(records, tell):
        width = encoded[0].width
        moments = Moments.empty(width) if moments is None else moments
        moments = moments.including(*numbers_of(encoded))
    untrained = Scale.initial(width)
    return untrained if moments is None else moments.scale(untrained, whole=True)


def _cross(encoded: Sequence[Encoded], scale: Scale) -> Crossed:
    features = rows(encoded, [None] * len(encoded), scale)
    return cross(*features, width=encoded[0].width, cross_width=WIDTH)


def _chunks(records: Sequence[Record], tell: Tell) -> Iterator[tuple[int, list[Encoded]]]:
    for begin in range(0, len(records), CHUNK):
        encoded = [unpack(record.packed) for record in records[begin : begin + CHUNK]]
        yield begin, encoded
        tell(len(encoded))
