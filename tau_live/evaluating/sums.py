"""Ridge regression from sums: of any number of decisions in the memory of its features alone."""

from typing import NamedTuple

import numpy as np

from tau_live.rl import linear
from tau_live.rl.arrays import FloatArray
from tau_live.rl.crossing import Crossed


class Fit(NamedTuple):
    """What a regression found: ``weights [D]``, to be added to the ``mean`` of the targets."""

    weights: FloatArray
    mean: float


class Sums(NamedTuple):
    """Everything a ridge regression needs of its samples, in bits that no thread changes.

    Attributes:
        gram: ``[D, D]``, sum of the outer products of the features.
        products: ``[D]``, sum of features times target.
        features: ``[D]``, sum of features.
        samples: How many.
        mean: Of the targets.
    """

    gram: FloatArray
    products: FloatArray
    features: FloatArray
    samples: int
    mean: float

    @classmethod
    def empty(cls, width: int) -> "Sums":
        """Return the sums of nothing."""
        return cls(np.zeros((width, width)), np.zeros(width), np.zeros(width), 0, 0.0)

    def including(self, features: Crossed, targets: FloatArray) -> "Sums":
        """Return the sums with ``M`` more samples; slots are in ``[0, D)``, targets ``[M]``."""
        if not len(targets):
            return self
        dense = features.dense(len(self.products))
        return self.merged(
            Sums(
                linear.gram(dense),
                linear.product(dense.T, targets),
                np.add.reduce(dense, axis=0),
                len(targets),
                float(np.add.reduce(targets)) / len(targets),
            )
        )

    def merged(self, other: "Sums") -> "Sums":
        """Return the sums of the samples of both, as if one had included them all.

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

    def fit(self, penalty: float) -> Fit:
        """Return the regression with this penalty on squared weights; the mean is not penalised.

        Source:
            Hoerl and Kennard 1970, equation 2.1, on targets less their mean.
        """
        seen = np.flatnonzero(np.diag(self.gram) > 0.0)
        products = (self.products - self.mean * self.features)[seen]
        penalised = self.gram[np.ix_(seen, seen)] + penalty * np.eye(len(seen))
        weights = np.zeros(len(self.products))
        weights[seen] = linear.solved(linear.cholesky(penalised), products)
        return Fit(weights, self.mean)
