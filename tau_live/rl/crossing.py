"""Every context feature times every option feature, scaled and hashed.

With context and option merely side by side, the context would cancel in the softmax.

The value of a state seldom rises with a number without end: it is highest somewhere in the middle.
A sum over numbers cannot represent that, a sum over their products can.

Numbers are scaled by running means and variances; the scale that a version uses is frozen.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.arrays import (
    Array,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    frozen,
    lengths_of,
    offsets,
    required_array,
    spans,
)
from tau_live.rl.features import Encoded
from tau_live.rl.throttle import yield_gil

LIMIT = 3.0  # in standard deviations; numbers are clipped to it
FEWEST = 8  # numbers seen before a slot is scaled for the first time; until then it counts as 0


class Scale(NamedTuple):
    """How the numbers of one version are scaled. Frozen.

    The context's slots come first, then the options', so that one name may stand on both sides.

    Attributes:
        mean: ``[2 * width]``.
        inverse: ``[2 * width]``, one over the standard deviation; 0 where that is not known yet.
        context: Factor of every entry of a context but its constant.
        options: Factor of every entry of an option but the one for its name.
        own: Factor of the entry for an option's name if it has others: the more names there are,
            the less one of them tells beside its features.
    """

    mean: FloatArray
    inverse: FloatArray
    context: float = 1.0
    options: float = 1.0
    own: float = 1.0

    @classmethod
    def initial(cls, width: int) -> "Scale":
        """Return the scale before any number was seen, which maps all of them to 0."""
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
            frozen(required_array(arrays, f"{prefix}_mean", (2 * width,))),
            frozen(required_array(arrays, f"{prefix}_inverse", (2 * width,))),
            *required_array(arrays, f"{prefix}_lengths", (3,)).tolist(),
        )

    def apply(self, values: Float32Array, numeric: BoolArray, places: IntArray) -> FloatArray:
        """Return ``[E]`` the entries with numbers scaled, ``places`` as the function gives them."""
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

        A slot gets its scale once, as soon as ``FEWEST`` numbers that vary were seen, and keeps it:
        weights and sums learned under one scale would mean something else under another.

        Args:
            previous: The scale in use.
            whole: Whether to scale every slot anew, because all that was learned is about to be
                rebuilt.
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
        return cls(*(required_array(arrays, f"moments_{name}", shape) for name in cls._fields))


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

    def apply(self, advantages: FloatArray) -> FloatArray:
        """Return ``[N]`` the advantages less the running mean, over the running deviation."""
        weight = max(self.weight, 1.0)
        mean = self.total / weight
        variance = max(self.squares / weight - mean**2, 0.0)
        scaled: FloatArray = (advantages - mean) / (np.sqrt(variance) + 1e-8)
        return scaled


UInt32Array = npt.NDArray[np.uint32]
_ODD = np.uint32(0x9E3779B1)


class Crossed(NamedTuple):
    """Sparse crossed features of ``M`` options.

    Attributes:
        slots: ``[P]``, in ``[0, cross width)``.
        values: ``[P]``, signed products.
        starts: ``[M + 1]``, option ``m`` has the pairs ``starts[m]:starts[m + 1]``.
    """

    slots: IntArray
    values: FloatArray
    starts: IntArray

    def dot(self, weights: FloatArray) -> FloatArray:
        """Return ``[M]``, every option's inner product with ``weights``."""
        products = weights[self.slots] * self.values
        sums: FloatArray = np.add.reduceat(products, self.starts[:-1])
        return sums

    def transposed_dot(self, by_option: FloatArray, size: int) -> FloatArray:
        """Return ``[size]``, the sum of the options' features, each times ``by_option [M]``."""
        by_pair = self.values * np.repeat(by_option, lengths_of(self.starts))
        sums = np.bincount(self.slots, weights=by_pair, minlength=size)
        return sums.astype(np.float64, copy=False)

    def dense(self, width: int) -> FloatArray:
        """Return ``[M, width]``, the features of every option as a row."""
        options = len(self.starts) - 1
        at = np.repeat(np.arange(options) * width, lengths_of(self.starts)) + self.slots
        flat = np.bincount(at, weights=self.values, minlength=options * width)
        return flat.astype(np.float64, copy=False).reshape(options, width)

    def parts(self, at_once: int) -> Iterator[tuple[slice, slice, IntArray]]:
        """Yield chunks of options: their indices, their pairs, and where each option begins.

        Args:
            at_once: Most pairs of a chunk, above 0; a single option may have more.
        """
        begin, count = 0, len(self.starts) - 1
        while begin < count:
            most = np.searchsorted(self.starts, self.starts[begin] + at_once, side="right")
            end = max(int(most) - 1, begin + 1)
            first, last = int(self.starts[begin]), int(self.starts[end])
            yield slice(begin, end), slice(first, last), self.starts[begin:end] - first
            begin = end

    def rows(self, wanted: IntArray) -> "Crossed":
        """Return the crossed features of the options ``wanted`` alone, in that order."""
        lengths = self.starts[wanted + 1] - self.starts[wanted]
        at = spans(self.starts[wanted], lengths)
        return Crossed(self.slots[at], self.values[at], offsets(lengths))


def places(encoded: Encoded) -> IntArray:
    """Return ``[E]`` the slots of a decision's entries, those of options raised by the width."""
    shifted = encoded.indices.astype(np.int64)
    shifted[encoded.starts[1] :] += encoded.width
    return shifted


def numbers_of(encoded: Sequence[Encoded]) -> tuple[FloatArray, IntArray]:
    """Return the numbers among the entries of some decisions, and their ``places``."""
    numeric = np.concatenate([decision.numeric for decision in encoded])
    values = np.concatenate([decision.values for decision in encoded])
    at = np.concatenate([places(decision) for decision in encoded])
    return values[numeric].astype(np.float64), at[numeric]


def rows(
    encoded: Sequence[Encoded], allowed: Sequence[BoolArray | None], scale: Scale
) -> tuple[Crossed, Crossed, IntArray]:
    """Return the scaled features of ``N`` decisions, each with at least one allowed option.

    Returns:
        The ``N`` rows of contexts, the ``M`` rows of allowed options, and ``[N]``, how many options
        each decision was allowed.
    """
    yield_gil()
    slots = np.concatenate([decision.indices for decision in encoded]).astype(np.int64)
    values = np.concatenate([decision.values for decision in encoded])
    yield_gil()
    numeric = np.concatenate([decision.numeric for decision in encoded])
    options = np.array([decision.options for decision in encoded])
    edges = np.concatenate([decision.starts for decision in encoded])
    lengths = np.delete(lengths_of(edges), offsets(options + 2)[1:-1] - 1).astype(np.int64)
    yield_gil()
    starts, contexts = offsets(lengths), offsets(options + 1)[:-1]
    is_option = np.ones(len(lengths), dtype=np.bool_)
    is_option[contexts] = False
    is_kept = np.concatenate(
        [
            np.ones(decision.options, dtype=np.bool_) if mask is None else mask
            for decision, mask in zip(encoded, allowed, strict=True)
        ]
    )
    yield_gil()
    at_context = spans(starts[contexts], lengths[contexts])
    places = slots + encoded[0].width
    places[at_context] = slots[at_context]
    factors = np.full(len(values), scale.options)
    factors[at_context] = scale.context
    owned = is_option & (lengths > 1)
    factors[starts[:-1]] = np.where(owned, scale.own, 1.0)  # the first of a row is its constant
    yield_gil()
    whole = Crossed(slots, scale.apply(values, numeric, places) * factors, starts)
    yield_gil()
    return (
        whole.rows(contexts),
        whole.rows(np.flatnonzero(is_option)[is_kept]),
        np.add.reduceat(is_kept, offsets(options)[:-1], dtype=np.int64),
    )


def cross(
    contexts: Crossed, options: Crossed, counts: IntArray, *, width: int, cross_width: int
) -> Crossed:
    """Return every pair of a context's and an option's entry, hashed into ``cross_width`` slots.

    Args:
        contexts: ``N`` context rows, from ``rows``.
        options: ``M`` option rows, from ``rows``.
        counts: ``[N]``, allowed options of each decision, from ``rows``.
        width: Slots of features.
        cross_width: Slots of pairs.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    option_lengths, context_lengths = lengths_of(options.starts), lengths_of(contexts.starts)
    of_entries = np.repeat(owners, option_lengths)
    pairs = context_lengths[of_entries]
    left = spans(contexts.starts[of_entries], pairs)
    right = np.repeat(np.arange(len(options.slots)), pairs)
    yield_gil()
    slots, signs = hashed_pairs(
        contexts.slots[left], options.slots[right], width=width, cross_width=cross_width
    )
    yield_gil()
    values = contexts.values[left] * options.values[right] * signs
    yield_gil()
    return Crossed(slots, values, offsets(option_lengths * context_lengths[owners]))


def hashed_pairs(
    left: npt.NDArray[np.integer], right: npt.NDArray[np.integer], *, width: int, cross_width: int
) -> tuple[IntArray, FloatArray]:
    """Return the slot and the sign of every pair of a context's and an option's slot."""
    left_keys, right_keys = _keys(width)
    mixed = (left_keys[left] ^ right_keys[right]) * _ODD
    bits = cross_width.bit_length() - 1
    top = (mixed >> np.uint32(31 - bits)).astype(np.int64)  # the slot, then one bit for the sign
    return top >> 1, 1.0 - 2.0 * (top & 1)


@lru_cache(maxsize=16)
def _keys(width: int) -> tuple[UInt32Array, UInt32Array]:
    """Return a fixed, well-mixed 32-bit key for every slot of a context and of an option.

    Source:
        Steele, Lea and Flood 2014, the finalizer of SplitMix64.
    """
    mixed = np.arange(1, 2 * (width + 1) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys = (mixed ^ (mixed >> np.uint64(31))).astype(np.uint32)
    return keys[: width + 1], keys[width + 1 :]


PRODUCTS = 1_024
"""Slots for products of two features, behind those of the features themselves."""

MOST_MULTIPLIED = 16
"""Most features of a context that still has products: with more there would be too many."""

_ODD_STATE = 0x9E3779B1
_SHIFT = np.uint32(32 - (PRODUCTS - 1).bit_length())


def critic_width(width: int) -> int:
    """Return the number of slots of the critic: features, the constant, and products."""
    return width + 1 + PRODUCTS


def states(contexts: Crossed, *, width: int) -> Crossed:
    """Return the critic's features of ``N`` contexts.

    Args:
        contexts: Scaled context rows, the constant first.
        width: Slots of features.
    """
    lengths = lengths_of(contexts.starts)
    few = (lengths > 1) & (lengths <= MOST_MULTIPLIED + 1)
    pairs = np.where(few, (lengths - 1) * lengths // 2, 0)
    starts = offsets(lengths + pairs)
    slots = np.empty(int(starts[-1]), dtype=np.int64)
    values = np.empty(len(slots))
    own = np.repeat(starts[:-1] - contexts.starts[:-1], lengths) + np.arange(len(contexts.slots))
    slots[own], values[own] = contexts.slots, contexts.values
    for length in np.unique(lengths[few]).tolist():
        at = np.flatnonzero(few & (lengths == length))
        left, right = np.triu_indices(length - 1)
        begin = contexts.starts[at][:, None] + 1
        to = starts[at][:, None] + length + np.arange(len(left))
        first, second = begin + left, begin + right
        slots[to] = width + 1 + _pair_hash(contexts.slots[first], contexts.slots[second])
        values[to] = contexts.values[first] * contexts.values[second]
    return Crossed(slots, values, starts)


def state(slots: IntArray, values: FloatArray, *, width: int) -> Crossed:
    """Return the critic's features of one context: the same numbers as ``states``."""
    return states(Crossed(slots, values, np.array([0, len(slots)])), width=width)


def _pair_hash(first: IntArray, second: IntArray) -> IntArray:
    """Return a slot for every pair, in whichever order."""
    low, high = (
        np.minimum(first, second).astype(np.uint32),
        np.maximum(first, second).astype(np.uint32),
    )
    mixed = (low * np.uint32(0x85EBCA6B) ^ high * np.uint32(0xC2B2AE35)) * np.uint32(_ODD_STATE)
    return (mixed >> _SHIFT).astype(np.int64)
