"""Running means and variances of the numbers seen, and the frozen scale that a version uses."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import (
    Array,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    frozen,
    required,
)

LIMIT = 3.0  # in standard deviations; what is further out counts as this far
FEWEST = 8  # numbers seen before a slot is scaled for the first time; until then it counts as 0


class Scale(NamedTuple):
    """How the numbers of one version are scaled. Frozen.

    The context's slots come first, then the options', so that one name may stand on both sides.

    Attributes:
        mean: ``[2 * width]``.
        inverse: ``[2 * width]``, one over the standard deviation; 0 where that is not known yet.
        context: What every entry of a context but its constant is multiplied by.
        options: What every entry of an option but its own one is multiplied by.
        own: What an option's own entry is multiplied by if it has others: the more names there
            are, the less one of them says beside its features.
    """

    mean: FloatArray
    inverse: FloatArray
    context: float = 1.0
    options: float = 1.0
    own: float = 1.0

    @classmethod
    def untrained(cls, width: int) -> "Scale":
        """Return the scale that knows no number yet and takes all for 0."""
        return cls(frozen(np.zeros(2 * width)), frozen(np.zeros(2 * width)))

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return the scale by name."""
        return {
            f"{prefix}_mean": self.mean,
            f"{prefix}_inverse": self.inverse,
            f"{prefix}_lengths": np.array([self.context, self.options, self.own]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str, *, width: int) -> "Scale":
        """Return the scale that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        return cls(
            frozen(required(arrays, f"{prefix}_mean", (2 * width,))),
            frozen(required(arrays, f"{prefix}_inverse", (2 * width,))),
            *required(arrays, f"{prefix}_lengths", (3,)).tolist(),
        )

    def scaled(self, values: Float32Array, numeric: BoolArray, places: IntArray) -> FloatArray:
        """Return ``[E]`` the entries, numbers scaled; ``places`` are slots, options' plus width."""
        scaled = values.astype(np.float64)
        numbers = np.flatnonzero(numeric)
        if len(numbers):
            at = places[numbers]
            far = (scaled[numbers] - self.mean[at]) * self.inverse[at]
            scaled[numbers] = np.minimum(np.maximum(far, -LIMIT), LIMIT)
        return scaled


class Moments(NamedTuple):
    """Counts, means and sums of squared distances of the numbers in every slot, ``[2 * width]``."""

    counts: FloatArray
    means: FloatArray
    squares: FloatArray

    @classmethod
    def empty(cls, width: int) -> "Moments":
        """Return the moments of no numbers."""
        return cls(np.zeros(2 * width), np.zeros(2 * width), np.zeros(2 * width))

    def including(self, values: FloatArray, places: IntArray) -> "Moments":
        """Return the moments with more numbers, ``[E]`` each.

        Source:
            Chan, Golub and LeVeque 1979, equation 2.1 (pairwise merging).
        """
        size = len(self.counts)
        count = np.bincount(places, minlength=size).astype(np.float64)
        mean = np.bincount(places, weights=values, minlength=size) / np.maximum(count, 1.0)
        distances = (values - mean[places]) ** 2
        squares = np.bincount(places, weights=distances, minlength=size)
        total = self.counts + count
        gap = mean - self.means
        share = count / np.maximum(total, 1.0)
        return Moments(
            total, self.means + gap * share, self.squares + squares + gap**2 * self.counts * share
        )

    def scale(self, previous: Scale, *, whole: bool) -> Scale:
        """Return the scale to use from now on.

        A slot gets its scale once, as soon as ``FEWEST`` different-enough numbers were seen, and
        keeps it: weights and sums learned under one scale would mean something else under another.

        Args:
            previous: The scale in use.
            whole: Scale every slot anew, because all that was learned is about to be rebuilt.
        """
        deviation = np.sqrt(self.squares / np.maximum(self.counts, 1.0))
        known = (self.counts >= FEWEST) & (deviation > 1e-6 * np.maximum(np.abs(self.means), 1e-30))
        renewed = known if whole else known & (previous.inverse == 0.0)
        inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=known)
        return Scale(
            frozen(np.where(renewed, self.means, previous.mean)),
            frozen(np.where(renewed, inverse, previous.inverse)),
            previous.context,
            previous.options,
            previous.own,
        )

    def arrays(self) -> dict[str, Array]:
        """Return the moments by name."""
        return {f"moments_{name}": value for name, value in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], *, width: int) -> "Moments":
        """Return the moments that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        shape = (2 * width,)
        return cls(*(required(arrays, f"moments_{name}", shape) for name in cls._fields))


class AdvantageScale(NamedTuple):
    """Running mean and mean square of advantages, older updates weighing less.

    Attributes:
        weight: Decayed count.
        total: Decayed sum.
        squares: Decayed sum of squares.
    """

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def including(self, advantages: FloatArray, *, decay: float = 0.9) -> "AdvantageScale":
        """Return the scale after one more update's advantages, ``[N]``."""
        return AdvantageScale(
            decay * self.weight + len(advantages),
            decay * self.total + float(advantages.sum()),
            decay * self.squares + float((advantages**2).sum()),
        )

    def scaled(self, advantages: FloatArray) -> FloatArray:
        """Return ``[N]`` the advantages less the running mean, over the running deviation."""
        weight = max(self.weight, 1.0)
        mean = self.total / weight
        variance = max(self.squares / weight - mean**2, 0.0)
        scaled: FloatArray = (advantages - mean) / (np.sqrt(variance) + 1e-8)
        return scaled
