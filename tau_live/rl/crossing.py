"""Every context feature times every option feature, hashed.

With context and option merely side by side, the context would cancel in the softmax.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, offsets, spans
from tau_live.rl.features import Encoded
from tau_live.rl.scaling import Scale

UInt32Array = npt.NDArray[np.uint32]
_ODD = np.uint32(0x9E3779B1)


class Rows(NamedTuple):
    """The scaled features of many decisions, options that are not allowed left out.

    Attributes:
        slots: ``[E]``, contexts and options laid end to end as they came.
        values: ``[E]``, scaled.
        context_starts: ``[N]`` and ``context_lengths`` ``[N]``: the context row of each decision.
        option_starts: ``[M]`` and ``option_lengths`` ``[M]``: the row of each allowed option.
        counts: ``[N]``, how many options were allowed; they sum to ``M``.
    """

    slots: IntArray
    values: FloatArray
    context_starts: IntArray
    context_lengths: IntArray
    option_starts: IntArray
    option_lengths: IntArray
    counts: IntArray


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
        by_pair = self.values * np.repeat(by_option, np.diff(self.starts))
        sums = np.bincount(self.slots, weights=by_pair, minlength=size)
        return sums.astype(np.float64, copy=False)

    def dense(self, width: int) -> FloatArray:
        """Return ``[M, width]``, the features of every option as a row."""
        options = len(self.starts) - 1
        at = np.repeat(np.arange(options) * width, np.diff(self.starts)) + self.slots
        flat = np.bincount(at, weights=self.values, minlength=options * width)
        return flat.astype(np.float64, copy=False).reshape(options, width)

    def rows(self, wanted: IntArray) -> "Crossed":
        """Return the crossed features of the options ``wanted`` alone, in that order."""
        lengths = self.starts[wanted + 1] - self.starts[wanted]
        at = spans(self.starts[wanted], lengths)
        return Crossed(self.slots[at], self.values[at], offsets(lengths))


def places(encoded: Encoded) -> IntArray:
    """Return ``[E]`` the slots of one decision with those of options moved behind the context's."""
    shifted = encoded.indices.astype(np.int64)
    shifted[encoded.starts[1] :] += encoded.width
    return shifted


def scaled_one(encoded: Encoded, scale: Scale) -> FloatArray:
    """Return ``[E]`` the scaled entries of one decision."""
    values = scale.scaled(encoded.values, encoded.numeric, places(encoded))
    split = encoded.starts[1]
    values[1:split] *= scale.context
    heads = encoded.starts[1:-1]
    own = values[heads] * np.where(np.diff(encoded.starts[1:]) > 1, scale.own, 1.0)
    values[split:] *= scale.options
    values[heads] = own
    return values


def rows(encoded: Sequence[Encoded], allowed: Sequence[BoolArray | None], scale: Scale) -> Rows:
    """Return the scaled features of ``N`` decisions, each with at least one option allowed."""
    slots = np.concatenate([one.indices for one in encoded]).astype(np.int64)
    values = np.concatenate([one.values for one in encoded])
    numeric = np.concatenate([one.numeric for one in encoded])
    begins = offsets(np.array([len(one.indices) for one in encoded]))
    options = np.array([one.options for one in encoded])
    edges = np.concatenate([one.starts for one in encoded]).astype(np.int64)
    edges += np.repeat(begins[:-1], options + 2)
    first = offsets(options + 2)[:-1]
    is_last = np.zeros(len(edges), dtype=np.bool_)
    is_last[first + options + 1] = True
    is_context = np.zeros(len(edges), dtype=np.bool_)
    is_context[first] = True
    lengths = np.diff(edges, append=edges[-1])
    kept = ~(is_last | is_context)
    is_kept = np.concatenate(
        [
            np.ones(one.options, dtype=np.bool_) if mask is None else mask
            for one, mask in zip(encoded, allowed, strict=True)
        ]
    )
    moved = slots + encoded[0].width
    at_context = spans(edges[is_context], lengths[is_context])
    moved[at_context] = slots[at_context]
    lengthened = np.full(len(values), scale.options)
    lengthened[at_context] = scale.context
    heads = edges[~is_last]
    owned = ~is_context[~is_last] & (lengths[~is_last] > 1)
    lengthened[heads] = np.where(owned, scale.own, 1.0)  # the first of a row is its constant
    return Rows(
        slots,
        scale.scaled(values, numeric, moved) * lengthened,
        edges[is_context],
        lengths[is_context],
        edges[kept][is_kept],
        lengths[kept][is_kept],
        np.add.reduceat(is_kept, offsets(options)[:-1], dtype=np.int64),
    )


def crossed(features: Rows, *, width: int, cross_width: int) -> Crossed:
    """Return every pair of a context's and an option's entry, hashed into ``cross_width`` slots."""
    entries = spans(features.option_starts, features.option_lengths)
    owners = np.repeat(np.arange(len(features.counts)), features.counts)
    contexts = np.repeat(owners, features.option_lengths)
    pairs = features.context_lengths[contexts]
    left = spans(features.context_starts[contexts], pairs)
    right = np.repeat(entries, pairs)
    lengths = features.option_lengths * features.context_lengths[owners]
    slots, signs = hashed_pairs(
        features.slots[left], features.slots[right], width=width, cross_width=cross_width
    )
    values = features.values[left] * features.values[right] * signs
    return Crossed(slots, values, offsets(lengths))


def crossed_one(
    encoded: Encoded, allowed: BoolArray | None, scale: Scale, *, cross_width: int
) -> Crossed:
    """Return what ``crossed`` gives for one decision: the same numbers, sooner."""
    values = scaled_one(encoded, scale)
    slots = encoded.indices
    split = encoded.starts[1]
    lengths = np.diff(encoded.starts[1:])
    right, right_values = slots[split:], values[split:]
    if allowed is not None:
        kept = np.repeat(allowed, lengths)
        right, right_values, lengths = right[kept], right_values[kept], lengths[allowed]
    hashed, signs = hashed_pairs(
        slots[None, :split], right[:, None], width=encoded.width, cross_width=cross_width
    )
    products = values[None, :split] * right_values[:, None] * signs
    return Crossed(hashed.ravel(), products.ravel(), offsets(lengths * int(split)))


def pair_slots(contexts: IntArray, options: IntArray, *, width: int, cross_width: int) -> IntArray:
    """Return the slots of every pair of a context's and an option's slot, each once."""
    found, _ = hashed_pairs(
        contexts[:, None], options[None, :], width=width, cross_width=cross_width
    )
    return np.unique(found)


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
    """Return a fixed, well mixed 32-bit key for every slot of a context and of an option.

    Source:
        Steele, Lea and Flood 2014, the finalizer of SplitMix64.
    """
    mixed = np.arange(1, 2 * (width + 1) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    keys = (mixed ^ (mixed >> np.uint64(31))).astype(np.uint32)
    return keys[: width + 1], keys[width + 1 :]
