"""What of exploration each option gets: a share of the uniform floor, a bonus for being unknown.

An option that is unsafe to explore gets neither: it is chosen on its estimate alone, and the others
share the floor. Where no option may be explored there is no floor.
"""

from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray
from tau_live.rl.base import Base, Estimates


class Floor(NamedTuple):
    """How exploration is mixed in: ``probability = kept * softmax + least``.

    Attributes:
        kept: ``[M]``, or ``[1]`` where it is the same for all.
        least: ``[M]``, the share of uniform exploration that each option has.
    """

    kept: FloatArray
    least: FloatArray


def floor_of(counts: IntArray, explored: BoolArray | None, *, epsilon: float) -> Floor:
    """Return how exploration is mixed in.

    Args:
        counts: ``[N]``, how many options each decision has; they sum to ``M``.
        explored: ``[M]``, false where an option is unsafe to explore; ``None`` explores all.
        epsilon: The share of uniform exploration, in ``[0, 1]``.
    """
    if explored is None:
        return Floor(np.array([1.0 - epsilon]), np.repeat(epsilon / counts, counts))
    starts = np.cumsum(counts) - counts
    sharers = np.add.reduceat(explored.astype(np.int64), starts)
    kept = np.where(sharers > 0, 1.0 - epsilon, 1.0)
    least = epsilon / np.maximum(sharers, 1)
    return Floor(np.repeat(kept, counts), np.where(explored, np.repeat(least, counts), 0.0))


def added(base: Base, found: Estimates, starts: IntArray, explored: BoolArray | None) -> FloatArray:
    """Return ``[M]`` what estimates add to the logits.

    Args:
        base: How sharp, and what doubt is worth.
        found: What is known of the options.
        starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
        explored: ``[M]``, false where doubt is worth nothing; ``None`` explores all.
    """
    logits = base.logits(found, starts)
    if explored is None:
        return logits
    betas = np.repeat(base.betas(found.doubts, starts), np.diff(starts))
    return np.where(explored, logits, betas * found.gains)
