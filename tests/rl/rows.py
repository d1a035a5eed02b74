"""Rows of features made up for tests, and what is known of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray, frozen, offsets
from tau_live.rl.base import Base
from tau_live.rl.crossing import Crossed, Scale, cross, rows
from tau_live.rl.features import Encoded, encode
from tau_live.rl.kernel import Kernel, KernelInput
from tau_live.rl.net import Net
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.recursive import LEFT_OUT

WIDTH = 12


def sparse(dense: FloatArray) -> Crossed:
    """Return rows as sparse features, every row with at least one entry."""
    rows, slots = np.nonzero(dense)
    return Crossed(slots, dense[rows, slots], offsets(np.bincount(rows, minlength=len(dense))))


def crossed(
    encoded: Encoded, allowed: BoolArray | None, scale: Scale, *, cross_width: int
) -> Crossed:
    """Return the pairs of one decision."""
    rows_of = rows([encoded], [allowed], scale)
    return cross(*rows_of, width=encoded.width, cross_width=cross_width)


def added(
    base: Base, options: Crossed, starts: IntArray, seen: KernelInput | None = None
) -> FloatArray:
    """Return what a base adds to the logit of each option."""
    if not base.sharpness:
        return np.zeros(len(options.starts) - 1)
    return base.logits(base.estimates(options, seen), starts)


def samples(seed: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Return ``[count, WIDTH]`` half empty rows, slot 3 never seen, and targets around 5."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(count, WIDTH)) * (rng.random((count, WIDTH)) < 0.5)
    dense[:, 3] = 0.0
    dense[:, -1] = 1.0
    return dense, dense @ rng.normal(size=WIDTH) + rng.normal(size=count) + 5.0


def known(
    rng: np.random.Generator, slots: int, columns: int, *, kernel: Kernel | None = None
) -> Base:
    """Return a base that knows so many of the slots, left some out and never saw the others.

    Its kernels know nothing unless they are given.
    """
    of = rng.integers(LEFT_OUT, 0, size=slots).astype(np.int32)
    of[rng.permutation(slots)[:columns]] = np.arange(columns)
    draws = rng.normal(size=(columns, 4)).astype(np.float32) * np.float32(0.3)
    return Base(
        of,
        frozen(rng.normal(size=columns)),
        draws,
        Kernel.none(PolicyConfig().kernels) if kernel is None else kernel,
        0.8,
        50.0,
        2.0,
        0.7,
        20.0,
        1.0,
    )


def networked(rng: np.random.Generator, config: PolicyConfig) -> Net:
    """Return a network that knows half of the slots, and has learned something about each."""
    of = rng.permutation(config.width)[: config.width // 2].astype(np.int64)
    net = Net.initial(config.net_width, slots=config.width).including(of, of[::-1])
    return replace(net, flat=frozen(net.flat + 0.3 * rng.normal(size=len(net.flat))))


def heard(
    rng: np.random.Generator, width: int, options: Sequence[str], *, trust: float = 0.4
) -> Kernel:
    """Return a kernel that has learned something about each of these options."""
    rows = encode({}, [(name, None) for name in options], width=width)
    names = np.unique(rows.indices[rows.starts[1:-1]]).astype(np.int64)
    gains = rng.normal(size=(len(names), PolicyConfig().kernels))
    return Kernel(names, frozen(gains), frozen(np.full(len(names), trust)))
