"""Kernels for tests: on twelve waves, of options with some samples each."""

from collections.abc import Sequence

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.kernel import Kernel, Kernels, waves

WAVES = 12


def rows(rng: np.random.Generator, count: int, *, width: int = WAVES) -> FloatArray:
    """Return features of contexts."""
    return waves(rng.uniform(0.0, 2.0 * np.pi, size=(count, width)))


def slots(*names: int) -> IntArray:
    return np.array(names, dtype=np.int64)


def learned(
    names: Sequence[int], *, seed: int = 0, each: int = 5, into: Kernels | None = None
) -> Kernels:
    """Return the regressions on some samples of each of these options."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.array(names, dtype=np.int64), each)
    targets = rng.normal(size=(2, len(of)))
    return (into or Kernels.empty(WAVES)).including(of, rows(rng, len(of)), *targets)


def kernel_of(names: Sequence[int], gains: FloatArray, trust: float) -> Kernel:
    return Kernel(np.array(names, dtype=np.int64), gains, np.full(len(names), trust))
