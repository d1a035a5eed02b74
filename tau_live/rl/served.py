"""What a version makes of decisions that look alike, worked out once and kept while it serves.

Decisions of one point mostly have the same names: which slots are crossed, how each entry is
scaled, and what the version knows of every pair stay the same, only the numbers differ. A layout
holds that. A logit is linear in every pair, and a pair is a product, so the context is summed over
first, once for all options that share a feature:

``sum(c, o) x[c] * a[o] * parts[c, o] = sum(o) a[o] * (sum(c) x[c] * parts[c, o])``.

What comes out never depends on whether a layout was kept. No sum here goes through BLAS, whose
last bits depend on the number of threads.
"""

from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.crossing import hashed_pairs, places
from tau_live.rl.features import Encoded, Frame, frame_of
from tau_live.rl.fourier import frequencies, phases, waves
from tau_live.rl.net import Wired
from tau_live.rl.scaling import LIMIT
from tau_live.rl.states import state

if TYPE_CHECKING:
    from tau_live.rl.policy import Policy

KEPT_BYTES = 8 * 2**20
"""What the layouts of one version may take in memory together."""

PREPARED = 16
"""How many layouts are worked out before a version serves: a millisecond each, with kernels."""

_AT_ONCE = 2**20  # parts of pairs that are worked out together: 8 MB
_DENSE = 4  # a table of options by features that is no larger than so many entries is summed whole

Key: TypeAlias = tuple[bytes, bytes, bytes]


class Sums(NamedTuple):
    """What the pairs of ``A`` options come to.

    Attributes:
        parts: ``[K, A]``, row 0 the scorer's and the network's, then as ``Base.parts`` gives them.
        unseen: ``[A]``, squares of pairs that the regression never saw.
        value: The critic's and the network's of the state.
    """

    parts: FloatArray
    unseen: FloatArray
    value: float


class Shape(NamedTuple):
    """Which features stand where in decisions that look alike.

    Attributes:
        contexts: ``[C]``, slots of the context's entries.
        options: ``[U]``, slots of the options' entries, each once.
        at: ``[E]``, which of those each entry of an option is.
        cells: ``[E]``, where it stands in a table ``[A, U]``.
        starts: ``[A]``, where each option's entries begin.
    """

    contexts: IntArray
    options: IntArray
    at: IntArray
    cells: IntArray
    starts: IntArray


class Scaling(NamedTuple):
    """How entries are scaled: ``clip((value - mean) * inverse, limit) * length``, ``[E]`` each."""

    mean: FloatArray
    inverse: FloatArray
    limit: FloatArray
    length: FloatArray


class Table(NamedTuple):
    """What a version knows of every pair of some contexts' entries with ``U`` entries of options.

    Attributes:
        parts: ``[C, K, U]``.
        unseen: ``[C, U]``, 1 where the regression never saw the pair; ``None`` where it saw all.
    """

    parts: FloatArray
    unseen: FloatArray | None


class Valuing(NamedTuple):
    """What the critic weighs.

    Attributes:
        weights: ``[C + Q]``, of the context's entries, then of their products.
        left: ``[Q]``, which entry each product is of.
        right: ``[Q]``, which other.
    """

    weights: FloatArray
    left: IntArray
    right: IntArray


class Heard(NamedTuple):
    """What kernels say of the options of decisions that look alike.

    Attributes:
        frequencies: ``[C, count]``, of the context's entries.
        phases: ``[count]``.
        gains: ``[A, count]``, weights times their trust; 0 for options not known.
        kept: ``[A]``, share of what slopes say.
    """

    frequencies: FloatArray
    phases: FloatArray
    gains: FloatArray
    kept: FloatArray

    def estimates(self, slopes: FloatArray, context: FloatArray) -> FloatArray:
        """Return ``[A]`` what is expected of the options, from what slopes expect ``[A]``."""
        angles = np.einsum("c,cw->w", context, self.frequencies)
        angles += self.phases
        more: FloatArray = np.einsum("w,aw->a", waves(angles), self.gains)
        more += self.kept * slopes
        return more


class Layout(NamedTuple):
    """What decisions that look alike share under one version.

    Attributes:
        shape: Which features stand where.
        scaling: How their entries are scaled.
        table: What is known of their pairs; ``None`` where that would be too large to hold.
        wired: The network; ``None`` where it adds nothing.
        heard: The kernels; ``None`` where they have no part.
        valuing: What the critic weighs.
        frame: How they are packed.
    """

    shape: Shape
    scaling: Scaling
    table: Table | None
    wired: Wired | None
    heard: Heard | None
    valuing: Valuing
    frame: Frame

    @property
    def size(self) -> int:
        """How many bytes its arrays take."""
        parts = [
            *self.shape, *self.scaling, *(self.table or ()), *(self.wired or ()),
            *(self.heard or ()), *self.valuing
        ]  # fmt: skip
        packed = len(self.frame.slots) + len(self.frame.numeric)
        return packed + sum(int(part.nbytes) for part in parts if part is not None)

    def scaled(self, encoded: Encoded) -> FloatArray:
        """Return ``[E]`` the scaled entries of a decision that looks so."""
        mean, inverse, limit, length = self.scaling
        values = encoded.values - mean
        values *= inverse
        np.minimum(values, limit, out=values)
        np.maximum(values, -limit, out=values)
        values *= length
        return values

    def value(self, context: FloatArray) -> float:
        """Return what the linear critic says of a context's scaled entries, ``[C]``."""
        weights, left, right = self.valuing
        count = len(context)
        found = float(np.add.reduce(weights[:count] * context))
        if len(left):
            products = context[left]
            products *= context[right]
            products *= weights[count:]
            found += float(np.add.reduce(products))
        return found


class Layouts:
    """The layouts of one version: those used last, within ``KEPT_BYTES``. Any thread may ask."""

    __slots__ = ("_kept", "_lock", "_recurring", "_size")

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Layout] = OrderedDict()
        self._recurring: set[Key] = set()
        self._size = 0
        self._lock = RLock()  # a signal or a finaliser may come back into the same thread

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return self._size

    def of(self, policy: "Policy", encoded: Encoded) -> Layout:
        """Return the layout of a decision under the version that these belong to."""
        key = (encoded.indices.tobytes(), encoded.numeric.tobytes(), encoded.starts.tobytes())
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self._recurring.add(key)
                return found
        made = layout_of(policy, encoded)
        self._keep(key, made)
        return made

    def prepare(self, policy: "Policy", before: "Layouts") -> None:
        """Work out the layouts that recurred under the version before, the newest of them.

        Otherwise the first decisions of a version work them out in the host's thread.
        """
        for key in before.recurring()[-PREPARED:]:
            self._keep(key, layout_of(policy, _valueless(key, policy.config.width)))

    def recurring(self) -> list[Key]:
        """Return the looks that were asked for more than once, those used last at the end."""
        with self._lock:
            return [key for key in self._kept if key in self._recurring]

    def _keep(self, key: Key, made: Layout) -> None:
        size = made.size + _size_of(key)
        if size > KEPT_BYTES:
            return
        with self._lock:
            if key in self._kept:  # another thread was sooner
                return
            self._kept[key] = made
            self._size += size
            while self._kept and self._size > KEPT_BYTES:
                oldest, gone = self._kept.popitem(last=False)
                self._recurring.discard(oldest)
                self._size -= gone.size + _size_of(oldest)


def layout_of(policy: "Policy", encoded: Encoded) -> Layout:
    """Return what decisions that look like this one share under a version."""
    shape = _shape(encoded)
    is_small = len(shape.contexts) * len(shape.options) * _depth(policy) <= _AT_ONCE
    return Layout(
        shape,
        _scaling(policy, encoded),
        _table(policy, shape.contexts, shape.options, width=encoded.width) if is_small else None,
        policy.net.wired(shape.contexts, shape.options),
        _heard(policy, shape),
        _valuing(policy, shape.contexts),
        frame_of(encoded),
    )


def sums(policy: "Policy", layout: Layout, values: FloatArray) -> Sums:
    """Return what the pairs of each option come to.

    Args:
        policy: The version that the layout is of.
        layout: Of the decision.
        values: ``[E]``, its scaled entries.
    """
    shape = layout.shape
    split = len(shape.contexts)
    context, options = values[:split], values[split:]
    inner, squares = _of_context(policy, layout, context)
    value = layout.value(context)
    if layout.wired is not None:
        entries, more = layout.wired.judged(context)
        inner[0] += entries
        value += more
    unseen = np.zeros(len(shape.starts))
    if squares is not None:
        unseen = _of_options(shape, squares[None, :], options * options)[0]
    parts = _of_options(shape, inner, options)
    if layout.heard is not None:
        parts[1] = layout.heard.estimates(parts[1], context)
    return Sums(parts, unseen, value)


def _of_context(
    policy: "Policy", layout: Layout, context: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    """Return ``[K, U]`` and ``[U]``: parts and squares, summed over the context's entries."""
    shape = layout.shape
    if layout.table is not None:
        return _summed(layout.table, context)
    inner = np.zeros((_depth(policy), len(shape.options)))
    unseen = np.zeros(len(shape.options))
    step = max(1, _AT_ONCE // inner.size)
    for begin in range(0, len(context), step):
        part = slice(begin, begin + step)
        table = _table(policy, shape.contexts[part], shape.options, width=policy.config.width)
        more, squares = _summed(table, context[part])
        inner += more
        if squares is not None:
            unseen += squares
    return inner, unseen


def _summed(table: Table, context: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    parts, unseen = table
    inner: FloatArray = np.einsum("c,cx->x", context, parts.reshape(len(parts), -1))
    squares = None if unseen is None else np.einsum("c,cu->u", context * context, unseen)
    return inner.reshape(parts.shape[1:]), squares


def _of_options(shape: Shape, inner: FloatArray, values: FloatArray) -> FloatArray:
    """Return ``[K, A]``, ``inner [K, U]`` times the entries of each option."""
    options, slots = len(shape.starts), len(shape.options)
    if options * slots > _DENSE * len(values):
        products: FloatArray = np.take(inner, shape.at, axis=1)
        products *= values
        return np.add.reduceat(products, shape.starts, axis=1)
    table = np.bincount(shape.cells, weights=values, minlength=options * slots)
    found: FloatArray = np.einsum("au,ku->ka", table.reshape(options, slots), inner)
    return found


def _shape(encoded: Encoded) -> Shape:
    split = int(encoded.starts[1])
    slots = encoded.indices.astype(np.int64)
    options, at = np.unique(slots[split:], return_inverse=True)
    starts = encoded.starts[1:].astype(np.int64) - split
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return Shape(slots[:split], options, at, owners * len(options) + at, starts[:-1])


def _scaling(policy: "Policy", encoded: Encoded) -> Scaling:
    scale, numeric, starts = policy.scale, encoded.numeric, encoded.starts
    at = np.where(numeric, places(encoded), 0)
    length = np.full(len(at), scale.options)
    length[: starts[1]] = scale.context
    length[0] = 1.0  # the constant
    length[starts[1:-1]] = np.where(np.diff(starts[1:]) > 1, scale.own, 1.0)
    return Scaling(
        np.where(numeric, scale.mean[at], 0.0),
        np.where(numeric, scale.inverse[at], 1.0),
        np.where(numeric, LIMIT, np.inf),
        length,
    )


def _table(policy: "Policy", contexts: IntArray, options: IntArray, *, width: int) -> Table:
    slots, signs = hashed_pairs(
        contexts[:, None], options[None, :], width=width, cross_width=policy.config.cross_width
    )
    parts = np.empty((len(contexts), _depth(policy), len(options)))
    parts[:, 0] = policy.weights[slots] * signs
    if not policy.has_base:
        return Table(parts, None)
    flat = slots.ravel()
    known = policy.base.parts(flat).reshape(-1, *slots.shape)
    np.multiply(known.transpose(1, 0, 2), signs[:, None, :], out=parts[:, 1:])
    unseen = policy.base.unseen(flat).reshape(slots.shape)
    return Table(parts, unseen if unseen.any() else None)


def _heard(policy: "Policy", shape: Shape) -> Heard | None:
    kernel = policy.base.kernel
    if not policy.has_base or not kernel.is_heard:
        return None
    at, known = kernel.places(shape.options[shape.at[shape.starts]])
    if not known.any():
        return None
    count, trust = kernel.width, np.where(known, kernel.trust[at], 0.0)
    return Heard(
        frequencies(shape.contexts, policy.config.width, count=count),
        phases(count),
        trust[:, None] * kernel.gains[at],
        1.0 - trust,
    )


def _valuing(policy: "Policy", contexts: IntArray) -> Valuing:
    seen = state(contexts, np.ones(len(contexts)), width=policy.config.width)
    few = len(seen.slots) > len(contexts)
    left, right = np.triu_indices(len(contexts) - 1 if few else 0)
    return Valuing(policy.critic[seen.slots], left + 1, right + 1)


def _depth(policy: "Policy") -> int:
    return 1 + (policy.base.depth if policy.has_base else 0)


def _valueless(key: Key, width: int) -> Encoded:
    """Return a decision that looks so; a layout does not depend on values."""
    indices, numeric, starts = key
    slots = np.frombuffer(indices, dtype=np.int32)
    return Encoded(
        slots,
        np.zeros(len(slots), dtype=np.float32),
        np.frombuffer(numeric, dtype=np.bool_),
        np.frombuffer(starts, dtype=np.int32),
        width,
        0,
    )


def _size_of(key: Key) -> int:
    return sum(map(len, key))
