"""Random Fourier features: a context as numbers in which smooth functions of it are linear.

Their inner product is on average the Gaussian kernel of two contexts, whatever the number of
features. The frequencies are hashed, so no version has to carry them.
"""

import numpy as np
import numpy.typing as npt

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.breathing import Breathe, at_once
from tau_live.rl.crossing import Crossed

_BANDWIDTH = 0.4  # deviation of a frequency, where a context is two long on average
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PHASES = np.uint64(2**40)  # behind every slot's own keys
_PARTS = np.arange(0, 64, 16, dtype=np.uint64)
_AT_ONCE = 2**16  # entries times features that are added up together: 512 KB


def frequencies(slots: IntArray, width: int, *, count: int) -> FloatArray:
    """Return ``[C, count]``, what each feature of a context is multiplied by.

    Args:
        slots: ``[C]``, in ``[0, width]``; the constant, in the slot ``width``, counts for nothing.
        width: Of the features.
        count: How many waves there are.

    Source:
        Steele, Lea and Flood 2014 (SplitMix64). Four even parts of a hash add up to what is nearly
        normal, with the same bits on every machine.
    """
    keys = slots.astype(np.int64)[:, None] * count + np.arange(count)
    hashed = _mixed(keys.astype(np.uint64))
    total = np.zeros(hashed.shape)
    for shift in _PARTS:
        total += ((hashed >> shift) & np.uint64(0xFFFF)).astype(np.float64)
    normal = (total / 65_535.0 - 2.0) * np.sqrt(3.0)
    found: FloatArray = np.where((slots == width)[:, None], 0.0, _BANDWIDTH * normal)
    return found


def phases(count: int) -> FloatArray:
    """Return ``[count]``, where each wave begins, in ``[0, 2 pi)``."""
    hashed = _mixed(_PHASES + np.arange(count, dtype=np.uint64))
    found: FloatArray = (hashed >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi / 2.0**53)
    return found


def waves(angles: FloatArray) -> FloatArray:
    """Return ``[..., count]`` features from ``angles [..., count]``; rows are about one long.

    Source:
        Rahimi and Recht 2007, "Random Features for Large-Scale Kernel Machines", algorithm 1.
    """
    found = np.cos(angles)
    found *= np.sqrt(2.0 / angles.shape[-1])
    return found


def features(
    contexts: Crossed, width: int, *, count: int, breathe: Breathe = at_once
) -> FloatArray:
    """Return ``[N, count]`` features of contexts.

    Args:
        contexts: ``N`` scaled contexts, each with at least one entry.
        width: Of their features.
        count: How many waves there are.
        breathe: Called between some of the contexts.
    """
    known, at = np.unique(contexts.slots, return_inverse=True)
    table, begin = frequencies(known, width, count=count), phases(count)
    starts, rows = contexts.starts, len(contexts.starts) - 1
    found = np.empty((rows, count))
    first = 0
    while first < rows:
        entries = starts[first] + _AT_ONCE // count
        last = max(int(np.searchsorted(starts, entries, side="right")) - 1, first + 1)
        part = slice(int(starts[first]), int(starts[last]))
        products = table[at[part]]
        products *= contexts.values[part, None]
        angles = np.add.reduceat(products, starts[first:last] - starts[first], axis=0)
        found[first:last] = waves(angles + begin)
        first = last
        breathe()
    return found


def _mixed(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = (keys + np.uint64(1)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
