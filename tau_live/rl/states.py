"""What the critic sees of a state: its features and, where they are few, their products.

How good a state is seldom rises with a number without end: it is best somewhere in the middle. A
sum over numbers cannot say so, a sum over their products can.
"""

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray, offsets
from tau_live.rl.crossing import Crossed

PRODUCTS = 1_024
"""Slots for products of two features, behind those of the features themselves."""

MOST_MULTIPLIED = 16
"""With more features than this, a context has no products: there would be too many of them."""

_ODD = 0x9E3779B1
_SHIFT = np.uint32(32 - (PRODUCTS - 1).bit_length())


def critic_width(width: int) -> int:
    """Return how many slots the critic has: one a feature, the constant, and the products."""
    return width + 1 + PRODUCTS


def states(contexts: Crossed, *, width: int) -> Crossed:
    """Return what the critic sees of ``N`` contexts.

    Args:
        contexts: Scaled context rows, the constant first.
        width: Slots of features.
    """
    lengths = np.diff(contexts.starts)
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
        one, other = begin + left, begin + right
        slots[to] = width + 1 + _hashed(contexts.slots[one], contexts.slots[other])
        values[to] = contexts.values[one] * contexts.values[other]
    return Crossed(slots, values, starts)


def state(slots: IntArray, values: FloatArray, *, width: int) -> Crossed:
    """Return what the critic sees of one context: the same numbers as ``states``."""
    return states(Crossed(slots, values, np.array([0, len(slots)])), width=width)


def _hashed(one: IntArray, other: IntArray) -> IntArray:
    """Return a slot for every pair, whichever of the two comes first."""
    low, high = np.minimum(one, other).astype(np.uint32), np.maximum(one, other).astype(np.uint32)
    mixed = (low * np.uint32(0x85EBCA6B) ^ high * np.uint32(0xC2B2AE35)) * np.uint32(_ODD)
    return (mixed >> _SHIFT).astype(np.int64)
