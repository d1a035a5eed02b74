"""The frozen policy of one decision point, with a cache of what its decisions have in common.

Decisions of one point mostly have the same names: which slots are crossed, how each entry is
scaled, and the weights of every pair stay the same, only the numbers differ. A layout caches these.
A logit is linear in every pair, and a pair is a product, so the context is summed over first, once
for all options that share a feature:

``sum(c, o) x[c] * a[o] * parts[c, o] = sum(o) a[o] * (sum(c) x[c] * parts[c, o])``.

The result never depends on whether a layout was cached. No sum here goes through BLAS, whose last
bits depend on the number of threads.

An option that is unsafe to explore gets neither exploration nor its bonus: it is chosen on its
estimate alone, and the others share the floor. Where no option may be explored there is no floor.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from threading import RLock
from typing import NamedTuple, TypeAlias

import numpy as np

from tau_live.rl.arrays import (
    Array,
    BoolArray,
    FloatArray,
    IntArray,
    frozen,
    lengths_of,
    required_array,
)
from tau_live.rl.base import Base
from tau_live.rl.crossing import (
    LIMIT,
    Scale,
    critic_width,
    cross,
    hashed_pairs,
    places,
    rows,
    state,
)
from tau_live.rl.features import MAX_WIDTH, WIDTH, Encoded, Frame, frame_of, pack_values
from tau_live.rl.kernel import KernelInput, features, frequencies, phases, waves
from tau_live.rl.net import Net, WiredNet

KEPT_BYTES = 8 * 2**20
"""Most bytes of memory that the layouts of one version take together."""

PREPARED = 16
"""Most layouts that are built before a version serves: a millisecond each, with kernels."""

_CHUNK = 2**20  # parts of pairs that are computed together: 8 MB
_DENSE = 4  # a table of options by features with at most this many cells per entry is summed whole

Key: TypeAlias = tuple[bytes, bytes, bytes]


class KernelTerms(NamedTuple):
    """Kernel weights for the options of decisions of one layout.

    Attributes:
        frequencies: ``[C, count]``, of the context's entries.
        phases: ``[count]``.
        gains: ``[A, count]``, weights times their trust; 0 for unknown options.
        kept: ``[A]``, the share of slopes in the estimates, one less the trust.
    """

    frequencies: FloatArray
    phases: FloatArray
    gains: FloatArray
    kept: FloatArray

    def estimates(self, slopes: FloatArray, context: FloatArray) -> FloatArray:
        """Return ``[A]`` the estimates of slopes ``[A]`` and kernels together."""
        angles = np.einsum("c,cw->w", context, self.frequencies)
        angles += self.phases
        estimates: FloatArray = np.einsum("w,aw->a", waves(angles), self.gains)
        estimates += self.kept * slopes
        return estimates


class Layout(NamedTuple):
    """State shared by decisions of the same names and types under one version.

    An entry is scaled as ``clip((value - mean) * inverse, limit) * length``, ``[E]`` each.

    Attributes:
        contexts: ``[C]``, slots of the context's entries.
        options: ``[U]``, distinct slots of the options' entries.
        at: ``[E]``, index among those of each entry of an option.
        cells: ``[E]``, its flat index in a table ``[A, U]``.
        starts: ``[A]``, where each option's entries begin.
        mean: ``[E]``.
        inverse: ``[E]``.
        limit: ``[E]``.
        length: ``[E]``.
        weights: ``[C + Q]``, the critic's, of the context's entries, then of their products.
        left: ``[Q]``, first entry of each product.
        right: ``[Q]``, second entry of each product.
        parts: ``[C, K, U]``, weights of every pair of a context's and an option's entry; ``None``
            where that would be too large to hold.
        unseen: ``[C, U]``, 1 where the regression never saw the pair; ``None`` where it saw all.
        net: The network; ``None`` where it adds nothing.
        kernel: The kernels; ``None`` where they have no share.
        frame: The packed form of its decisions.
    """

    contexts: IntArray
    options: IntArray
    at: IntArray
    cells: IntArray
    starts: IntArray
    mean: FloatArray
    inverse: FloatArray
    limit: FloatArray
    length: FloatArray
    weights: FloatArray
    left: IntArray
    right: IntArray
    parts: FloatArray | None
    unseen: FloatArray | None
    net: WiredNet | None
    kernel: KernelTerms | None
    frame: Frame

    @property
    def size(self) -> int:
        """How many bytes its arrays take."""
        *arrays, net, kernel, frame = self
        parts = [part for part in (*arrays, *(net or ()), *(kernel or ())) if part is not None]
        return len(frame.slots) + len(frame.numeric) + sum(int(part.nbytes) for part in parts)

    def scale(self, encoded: Encoded) -> FloatArray:
        """Return ``[E]`` the scaled entries of a decision of this layout."""
        values = encoded.values - self.mean
        values *= self.inverse
        np.minimum(values, self.limit, out=values)
        np.maximum(values, -self.limit, out=values)
        values *= self.length
        return values

    def value(self, context: FloatArray) -> float:
        """Return the linear critic's value of a context's scaled entries, ``[C]``."""
        count = len(context)
        value = float(np.add.reduce(self.weights[:count] * context))
        if len(self.left):
            products = context[self.left]
            products *= context[self.right]
            products *= self.weights[count:]
            value += float(np.add.reduce(products))
        return value


class Layouts:
    """The most recently used layouts of one version, within ``KEPT_BYTES``. Thread-safe."""

    __slots__ = ("_kept", "_lock", "_recurring", "_size")

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Layout] = OrderedDict()
        self._recurring: set[Key] = set()
        self._size = 0
        self._lock = RLock()  # a signal handler or a finaliser may re-enter in the same thread

    @property
    def size(self) -> int:
        """How many bytes they take."""
        return self._size

    def of(self, policy: "Policy", encoded: Encoded) -> Layout:
        """Return the layout of a decision under the version that these belong to."""
        key = (encoded.indices.tobytes(), encoded.numeric.tobytes(), encoded.starts.tobytes())
        with self._lock:
            layout = self._kept.get(key)
            if layout is not None:
                self._kept.move_to_end(key)
                self._recurring.add(key)
                return layout
        layout = layout_of(policy, encoded)
        self._keep(key, layout)
        return layout

    def prepare(self, policy: "Policy", before: "Layouts") -> None:
        """Build the most recent of the layouts that recurred under the version before.

        Otherwise the first decisions of a version build them in the host's thread.
        """
        for key in before.recurring_keys()[-PREPARED:]:
            self._keep(key, layout_of(policy, _without_values(key, policy.config.width)))

    def recurring_keys(self) -> list[Key]:
        """Return the keys of layouts used more than once, the most recent last."""
        with self._lock:
            return [key for key in self._kept if key in self._recurring]

    def _keep(self, key: Key, layout: Layout) -> None:
        size = layout.size + _size_of(key)
        if size > KEPT_BYTES:
            return
        with self._lock:
            if key in self._kept:  # another thread was sooner
                return
            self._kept[key] = layout
            self._size += size
            while self._kept and self._size > KEPT_BYTES:
                oldest, evicted = self._kept.popitem(last=False)
                self._recurring.discard(oldest)
                self._size -= evicted.size + _size_of(oldest)


def layout_of(policy: "Policy", encoded: Encoded) -> Layout:
    """Return the layout that decisions like this one share under a version."""
    scale, numeric, split = policy.scale, encoded.numeric, int(encoded.starts[1])
    slots = encoded.indices.astype(np.int64)
    contexts = slots[:split]
    options, at = np.unique(slots[split:], return_inverse=True)
    starts = encoded.starts[1:].astype(np.int64) - split
    owners = np.repeat(np.arange(len(starts) - 1), lengths_of(starts))
    numbers = np.where(numeric, places(encoded), 0)
    length = np.full(len(slots), scale.options)
    length[:split] = scale.context
    length[0] = 1.0  # the constant
    length[encoded.starts[1:-1]] = np.where(lengths_of(starts) > 1, scale.own, 1.0)
    critic_input = state(contexts, np.ones(split), width=policy.config.width)
    left, right = np.triu_indices(split - 1 if len(critic_input.slots) > split else 0)
    is_small = split * len(options) * _depth(policy) <= _CHUNK
    parts, unseen = _table(policy, contexts, options) if is_small else (None, None)
    return Layout(
        contexts,
        options,
        at,
        owners * len(options) + at,
        starts[:-1],
        np.where(numeric, scale.mean[numbers], 0.0),
        np.where(numeric, scale.inverse[numbers], 1.0),
        np.where(numeric, LIMIT, np.inf),
        length,
        policy.critic[critic_input.slots],
        left + 1,
        right + 1,
        parts,
        unseen,
        policy.net.wire(contexts, options),
        _kernel_rows(policy, options[at[starts[:-1]]], contexts),
        frame_of(encoded),
    )


def sums(
    policy: "Policy", layout: Layout, values: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return the sums over the pairs of each option.

    Args:
        policy: The version that the layout belongs to.
        layout: The decision's layout.
        values: ``[E]``, its scaled entries.

    Returns:
        ``[K, A]``, row 0 the scorer's and the network's, then as ``Base.parts`` gives them;
        ``[A]``, squares of pairs that the regression never saw; and the value of the state, the
        critic's and the network's.
    """
    split = len(layout.contexts)
    context, options = values[:split], values[split:]
    if layout.parts is None:
        inner, squares = _sum_context(policy, layout, context)
    else:
        inner, squares = _sum_pairs(layout.parts, layout.unseen, context)
    value = layout.value(context)
    if layout.net is not None:
        entries, more = layout.net.judge(context)
        inner[0] += entries
        value += more
    unseen = np.zeros(len(layout.starts))
    if squares is not None:
        unseen = _sum_options(layout, squares[None, :], options * options)[0]
    parts = _sum_options(layout, inner, options)
    if layout.kernel is not None:
        parts[1] = layout.kernel.estimates(parts[1], context)
    return parts, unseen, value


def _sum_context(
    policy: "Policy", layout: Layout, context: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    """Return ``[K, U]`` and ``[U]``: parts and squares, summed over the context in chunks."""
    inner = np.zeros((_depth(policy), len(layout.options)))
    unseen = np.zeros(len(layout.options))
    step = max(1, _CHUNK // inner.size)
    for begin in range(0, len(context), step):
        part = slice(begin, begin + step)
        table = _table(policy, layout.contexts[part], layout.options)
        more, squares = _sum_pairs(*table, context[part])
        inner += more
        if squares is not None:
            unseen += squares
    return inner, unseen


def _sum_pairs(
    parts: FloatArray, unseen: FloatArray | None, context: FloatArray
) -> tuple[FloatArray, FloatArray | None]:
    inner: FloatArray = np.einsum("c,cx->x", context, parts.reshape(len(parts), -1))
    squares = None if unseen is None else np.einsum("c,cu->u", context * context, unseen)
    return inner.reshape(parts.shape[1:]), squares


def _sum_options(layout: Layout, inner: FloatArray, values: FloatArray) -> FloatArray:
    """Return ``[K, A]``, ``inner [K, U]`` times the entries of each option."""
    options, slots = len(layout.starts), len(layout.options)
    if options * slots > _DENSE * len(values):
        products: FloatArray = np.take(inner, layout.at, axis=1)
        products *= values
        return np.add.reduceat(products, layout.starts, axis=1)
    table = np.bincount(layout.cells, weights=values, minlength=options * slots)
    totals: FloatArray = np.einsum("au,ku->ka", table.reshape(options, slots), inner)
    return totals


def _table(
    policy: "Policy", contexts: IntArray, options: IntArray
) -> tuple[FloatArray, FloatArray | None]:
    """Return ``parts`` and ``unseen`` of a layout, for some of the context's entries."""
    width, cross_width = policy.config.width, policy.config.cross_width
    slots, signs = hashed_pairs(
        contexts[:, None], options[None, :], width=width, cross_width=cross_width
    )
    parts = np.empty((len(contexts), _depth(policy), len(options)))
    parts[:, 0] = policy.weights[slots] * signs
    if not policy.has_base:
        return parts, None
    flat = slots.ravel()
    known = policy.base.parts(flat).reshape(-1, *slots.shape)
    np.multiply(known.transpose(1, 0, 2), signs[:, None, :], out=parts[:, 1:])
    unseen = policy.base.unseen(flat).reshape(slots.shape)
    return parts, unseen if unseen.any() else None


def _kernel_rows(policy: "Policy", names: IntArray, contexts: IntArray) -> KernelTerms | None:
    kernel = policy.base.kernel
    if not policy.has_base or not kernel.is_trusted:
        return None
    at, known = kernel.places(names)
    if not known.any():
        return None
    count, trust = kernel.width, np.where(known, kernel.trust[at], 0.0)
    return KernelTerms(
        frequencies(contexts, policy.config.width, count=count),
        phases(count),
        trust[:, None] * kernel.gains[at],
        1.0 - trust,
    )


def _depth(policy: "Policy") -> int:
    return 1 + (policy.base.depth if policy.has_base else 0)


def _without_values(key: Key, width: int) -> Encoded:
    """Return a decision of this key, with values of 0; a layout does not depend on them."""
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


def exploration_floor(
    counts: IntArray, explored: BoolArray | None, *, epsilon: float
) -> tuple[FloatArray, FloatArray]:
    """Return the terms of the exploration floor: ``probability = kept * softmax + least``.

    Args:
        counts: ``[N]``, how many options each decision has; they sum to ``M``.
        explored: ``[M]``, false where an option is unsafe to explore; ``None`` explores all.
        epsilon: The share of uniform exploration, in ``[0, 1]``.

    Returns:
        ``kept``, ``[M]``, or ``[1]`` where it is the same for all; and ``least``, ``[M]``, the
        share of uniform exploration that each option has.
    """
    if explored is None:
        return np.array([1.0 - epsilon]), np.repeat(epsilon / counts, counts)
    starts = np.cumsum(counts) - counts
    sharers = np.add.reduceat(explored.astype(np.int64), starts)
    kept = np.where(sharers > 0, 1.0 - epsilon, 1.0)
    least = epsilon / np.maximum(sharers, 1)
    return np.repeat(kept, counts), np.where(explored, np.repeat(least, counts), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """The shape of a policy, the same for all its versions.

    Attributes:
        width: Slots that feature names are hashed into, in ``[1, 65535]``.
        cross_width: Slots for pairs of features; a power of two in ``[16, 2**20]``.
        ridge_width: Columns of the regression that have covariances; a power of two in
            ``[16, cross_width]``.
        epsilon: Share of uniform exploration in a rollout, in ``[0, 1]``.
        default_bonus: Initial bonus on the logit of the host's default, at least 0.
        default_fade: Rollouts after which that bonus is halved, above 0.
        net_width: Units of each layer of the tanh networks, in ``[0, 256]``; 0 leaves them out.
        kernels: Waves of each option's kernel regression, in ``[0, 1024]``; 0 leaves them out.
    """

    width: int = WIDTH
    cross_width: int = 16_384
    ridge_width: int = 1_024
    epsilon: float = 0.01
    default_bonus: float = 2.0
    default_fade: float = 64.0
    net_width: int = 32
    kernels: int = 256

    def __post_init__(self) -> None:
        for name, low, high in (
            ("width", 1, MAX_WIDTH),
            ("cross_width", 16, 2**20),
            ("ridge_width", 16, self.cross_width),
            ("net_width", 0, 256),
            ("kernels", 0, 1_024),
            ("epsilon", 0.0, 1.0),
            ("default_bonus", 0.0, 100.0),
            ("default_fade", 1e-300, 1e12),
        ):
            size = getattr(self, name)
            if not low <= size <= high:
                raise ValueError(f"{name} must be within [{low}, {high}], got {size!r}")
            if name in ("cross_width", "ridge_width") and size & (size - 1):
                raise ValueError(f"{name} must be a power of two, got {size!r}")


class Judgement(NamedTuple):
    """A policy's judgement of a decision.

    Attributes:
        probabilities: ``[A]``: finite, 0 where not allowed, summing to 1.
        value: Its estimate of the return from here, in units of reward.
        packed: The decision as packed by ``features.pack``.
    """

    probabilities: FloatArray
    value: float
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """One version of a policy. Frozen.

    ``logit[k] = base[k] + weights . cross(context, option k) + net(context, option k)``, the base
    being the regressions' estimate of an option plus a bonus for the host's default, and
    ``pi = (1 - epsilon) * softmax(logits of the allowed) + epsilon / allowed``, where options that
    are unsafe to explore have no share in the floor and no bonus for being uncertain. The decisions
    of a rollout share ``epsilon``, or a long one would hardly ever be made as the policy wants it.

    Attributes:
        config: The shape.
        weights: ``[cross_width]``, the scorer of crossed features.
        base: The regressions.
        net: The tanh networks that add to logits and values.
        critic: ``[critic_width]``, a state's value is its inner product with the features that
            ``states`` gives, plus the network's.
        scale: How numbers are scaled.
        rollouts: How many rollouts it was trained on; 0 is untrained.
        decisions: How many decisions these had.
        layouts: Its cache of layouts; affects nothing but speed.
        default_bonus: The bonus of the host's default on its logit; fades as evidence grows.
        epsilon: Share of uniform exploration of one decision.
        has_base: Whether the regression adds anything to the logits.
    """

    config: PolicyConfig
    weights: FloatArray
    net: Net
    base: Base
    critic: FloatArray
    scale: Scale
    rollouts: int
    decisions: int = 0
    layouts: Layouts = field(default_factory=Layouts, init=False, repr=False)
    default_bonus: float = field(init=False)
    epsilon: float = field(init=False)
    has_base: bool = field(init=False)

    @classmethod
    def initial(cls, config: PolicyConfig) -> "Policy":
        """Return version 0: the host's default preferred, otherwise uniform."""
        return cls(
            config=config,
            weights=frozen(np.zeros(config.cross_width)),
            net=Net.initial(config.net_width, slots=config.width),
            base=Base.initial(config.cross_width, config.kernels),
            critic=frozen(np.zeros(critic_width(config.width))),
            scale=Scale.initial(config.width),
            rollouts=0,
        )

    def __post_init__(self) -> None:
        fade = self.config.default_fade
        bonus = self.config.default_bonus * fade / (fade + self.rollouts)
        object.__setattr__(self, "default_bonus", bonus)
        length = max(self.decisions, 1) / max(self.rollouts, 1)
        object.__setattr__(self, "epsilon", self.config.epsilon / max(length, 1.0))
        object.__setattr__(self, "has_base", self.rollouts > 0 and self.base.sharpness > 0.0)

    def logits(self, encoded: Encoded, *, default: int | None = None) -> FloatArray:
        """Return ``[A]`` the logits of all options, masked ones included.

        Raises:
            ValueError: There is no option, ``default`` is none of them, or the width differs.
        """
        self._check(encoded, default)
        layout = self.layouts.of(self, encoded)
        parts, unseen, _ = sums(self, layout, layout.scale(encoded))
        return self._logits(parts, unseen, default=default)

    def probabilities(
        self,
        encoded: Encoded,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> FloatArray:
        """Return ``[A]`` the probability of each option: finite, 0 where not allowed, summing to 1.

        Args:
            encoded: The decision.
            default: Index of the host's default; ``None`` when it has no preference.
            allowed: ``[A]``, false where an option must not be taken; ``None`` allows all.
            explored: ``[A]``, false where an option is unsafe to explore; ``None`` explores all.

        Raises:
            ValueError: No option is allowed, or a shape, ``default`` or the width does not fit.
        """
        return self.judge(
            encoded, default=default, allowed=allowed, explored=explored
        ).probabilities

    def judge(
        self,
        encoded: Encoded,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> Judgement:
        """Return ``probabilities``, ``value`` and the packed decision together.

        Raises:
            ValueError: As ``probabilities``, or ``encoded`` cannot be packed.
        """
        self._check(encoded, default)
        if explored is not None and explored.shape != (encoded.options,):
            raise ValueError(f"expected explored to be [{encoded.options}], got {explored!r}")
        if allowed is not None and (allowed.shape != (encoded.options,) or not allowed.any()):
            raise ValueError(f"expected [{encoded.options}] with one allowed, got {allowed!r}")
        if allowed is not None and explored is not None:
            explored = explored[allowed]
        layout = self.layouts.of(self, encoded)
        parts, unseen, value = sums(self, layout, layout.scale(encoded))
        logits = self._logits(parts, unseen, default=default, allowed=allowed, explored=explored)
        mixed = self._mix(logits, explored)
        probabilities = mixed
        if allowed is not None:
            probabilities = np.zeros(encoded.options)
            probabilities[allowed] = mixed
        values = encoded.values.astype("<f4", copy=False).tobytes()
        packed = pack_values(layout.frame, values, skipped=encoded.skipped)
        return Judgement(probabilities, value, packed)

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name."""
        shape = [getattr(self.config, field.name) for field in fields(self.config)]
        return {
            "config": np.array(shape, dtype=np.float64),
            "weights": self.weights,
            **self.net.arrays(),
            **self.base.arrays(),
            "critic": self.critic,
            **self.scale.arrays("scale"),
            "rollouts": np.array([self.rollouts, self.decisions], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Policy":
        """Return the policy that ``arrays`` gave; arrays of other names are ignored.

        Raises:
            ValueError: An array is missing, misshapen, not finite, or out of range.
        """
        numbers = required_array(arrays, "config", (len(fields(PolicyConfig)),)).tolist()
        config = PolicyConfig(
            **{
                field.name: number if isinstance(field.default, float) else int(number)
                for field, number in zip(fields(PolicyConfig), numbers, strict=True)
            }
        )
        size = np.size(arrays.get("rollouts", ()))  # earlier versions did not count decisions
        counts = required_array(arrays, "rollouts", (1,) if size == 1 else (2,)).tolist()
        rollouts, decisions = int(counts[0]), int(counts[-1])
        if min(rollouts, decisions) < 0:
            raise ValueError(f"rollouts must be at least 0, got {counts!r}")
        return cls(
            config=config,
            weights=frozen(required_array(arrays, "weights", (config.cross_width,))),
            net=Net.from_arrays(arrays, width=config.net_width, slots=config.width),
            base=Base.from_arrays(arrays, cross_width=config.cross_width, kernels=config.kernels),
            critic=frozen(required_array(arrays, "critic", (critic_width(config.width),))),
            scale=Scale.from_arrays(arrays, "scale", width=config.width),
            rollouts=rollouts,
            decisions=decisions,
        )

    def _check(self, encoded: Encoded, default: int | None) -> None:
        count = encoded.options
        if encoded.width != self.config.width or count < 1:
            raise ValueError(
                f"expected options encoded {self.config.width} wide, got {count} "
                f"options encoded {encoded.width} wide"
            )
        if default is not None and not 0 <= default < count:
            raise ValueError(f"default must be one of {count} options, got {default!r}")

    def _logits(
        self,
        parts: FloatArray,
        unseen: FloatArray,
        *,
        default: int | None = None,
        allowed: BoolArray | None = None,
        explored: BoolArray | None = None,
    ) -> FloatArray:
        """Return the logits of the allowed options: scorer, network, regression, the default."""
        if allowed is not None:
            parts, unseen = parts[:, allowed], unseen[allowed]
        logits: FloatArray = parts[0]
        if self.has_base:
            estimates = self.base.estimate(parts[1:], unseen)
            starts = np.array([0, len(logits)])
            logits = logits + self.base.logits(estimates, starts, explored)
        if default is not None and (allowed is None or allowed[default]):
            logits[default if allowed is None else int(allowed[:default].sum())] += (
                self.default_bonus
            )
        return logits

    def _mix(self, logits: FloatArray, explored: BoolArray | None = None) -> FloatArray:
        weights = np.exp(logits - logits.max())
        epsilon = self.epsilon
        if explored is not None:
            kept, least = exploration_floor(np.array([len(logits)]), explored, epsilon=epsilon)
            shared: FloatArray = kept * (weights / weights.sum()) + least
            return shared
        mixed: FloatArray = (1.0 - epsilon) * (weights / weights.sum()) + epsilon / len(logits)
        return mixed


def sample(probabilities: FloatArray, rng: np.random.Generator) -> int:
    """Return the index of one option, drawn with these probabilities; never one that has 0.

    Args:
        probabilities: ``[A]``, at least 0, summing to 1.
        rng: Drawn from once.
    """
    cumulative = np.cumsum(probabilities)
    index = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(index, int(np.flatnonzero(probabilities)[-1]))


HOST_DEFAULT = "host default"
RIDGE = "ridge estimate"
KERNEL = "kernel estimate"
UNCERTAINTY = "uncertainty bonus"
RESIDUAL = "ppo residual"
NETWORK = "ppo network"


def terms(
    policy: Policy,
    encoded: Encoded,
    *,
    default: int | None,
    allowed: BoolArray | None,
    explored: BoolArray | None = None,
) -> dict[str, FloatArray]:
    """Return ``[A]`` the terms of the logit of every option by name; they sum to the logits.

    An option that is not allowed has its terms too, as if it might be chosen, but not the bonus of
    the host's default.

    Args:
        policy: The version that decided.
        encoded: The features of the decision.
        default: Index of the host's default; ``None`` when it has no preference.
        allowed: ``[A]``, false where an option must not be taken; ``None`` allows all.
        explored: ``[A]``, false where an option is unsafe to explore; ``None`` explores all.

    Raises:
        ValueError: ``default`` or the width does not fit the policy.
    """
    policy.logits(encoded, default=default)  # checks the arguments
    config, kernel = policy.config, policy.base.kernel
    contexts, options, counts = rows([encoded], [None], policy.scale)
    pairs = cross(contexts, options, counts, width=config.width, cross_width=config.cross_width)
    bonus = np.zeros(encoded.options)
    if default is not None and (allowed is None or allowed[default]):
        bonus[default] = policy.default_bonus
    estimates = policy.base.estimates(pairs)
    doubts = estimates.doubts if allowed is None else estimates.doubts[allowed]
    betas = policy.base.betas(doubts, np.array([0, len(doubts)]))
    beta = float(betas[0]) if policy.rollouts else 0.0  # as the policy does
    alpha = float(policy.base.alphas(np.array([len(doubts)]))[0])
    bonuses = beta * alpha * estimates.doubts
    kernel_gains = estimates.gains
    if kernel.is_trusted:
        waves = features(contexts, config.width, count=kernel.width)
        inputs = KernelInput(options.slots[options.starts[:-1]], waves, counts)
        kernel_gains = policy.base.estimates(pairs, inputs).gains
    return {
        HOST_DEFAULT: bonus,
        RIDGE: beta * estimates.gains,
        KERNEL: beta * (kernel_gains - estimates.gains),
        UNCERTAINTY: bonuses if explored is None else np.where(explored, bonuses, 0.0),
        RESIDUAL: pairs.dot(policy.weights),
        NETWORK: policy.net.scores(contexts, options),
    }
