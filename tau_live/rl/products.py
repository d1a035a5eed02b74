"""Products of matrices that no thread of the linear algebra library takes part in.

A product that is large enough is divided among threads, as many as there are cores, and where it
is cut decides how its last bits are rounded. Cut into parts below that size it gives the same bits
on any number of cores, and it leaves those of the host alone.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
"""Float32 or float64: whatever the parameters are."""

_LARGEST = 262_144
"""Multiplications up to which OpenBLAS does a matrix by itself: ``interface/gemm.c``,
``SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD``."""

_LARGEST_VECTOR = 8_192
"""The same for a matrix and a vector (``interface/gemv.c``: 9216) and two vectors (10000)."""


def multiply(left: Floats, right: Floats, *, out: Floats) -> None:
    """Write ``left @ right`` to ``out``, some rows at a time.

    Args:
        left: ``[M, K]`` or ``[B, M, K]``. Its rows are all that is cut, so ``K * N`` is at most
            262,144; ``linear.gram`` cuts ``K`` too.
        right: ``[K, N]`` or ``[B, K, N]``.
        out: ``[M, N]`` or ``[B, M, N]``.
    """
    inner, columns = right.shape[-2:]
    largest = _LARGEST_VECTOR if columns == 1 else _LARGEST
    at_once = max(largest // max(inner * columns, 1), 1)
    rows = left.shape[-2]
    if rows <= at_once:
        np.matmul(left, right, out=out)
        return
    for begin in range(0, rows, at_once):
        part = slice(begin, begin + at_once)
        np.matmul(left[..., part, :], right, out=out[..., part, :])


def squared_length(vector: Floats) -> float:
    """Return the sum of the squares of ``vector [S]``."""
    total = 0.0
    for begin in range(0, len(vector), _LARGEST_VECTOR):
        part = vector[begin : begin + _LARGEST_VECTOR]
        total += float(np.dot(part, part))
    return total
