"""The small tanh network of a policy: what it adds to logits and values. Frozen.

It is the two towers of ``tau_live.rl.towers`` on features that come and go: an input for each of
the first features of contexts, an output for each of the first features of options. What comes
when there is no room left is as if it were not there; the linear scorer still learns from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import Array, FloatArray, IntArray, frozen, required
from tau_live.rl.crossing import Crossed
from tau_live.rl.features import Encoded
from tau_live.rl.products import Floats
from tau_live.rl.recursive import LEFT_OUT, Columns
from tau_live.rl.towers import (
    Hidden,
    Outputs,
    Shape,
    Towers,
    backward_heads,
    backward_hidden,
    forward_heads,
    forward_hidden,
    viewed,
    widened,
)

MOST = 256
"""Features of contexts, and of options, that the network knows."""

_SEED = 7  # of the layers at first; the same for every policy
_GAIN = 0.7  # rows are of length 2 on average, so what goes into the first layer deviates by 1.4
_BIAS = 1.0  # of the first layer: without one the network could say nothing of squares


class Said(NamedTuple):
    """What a network makes of ``N`` decisions with ``M`` options in all.

    Attributes:
        scores: ``[M]``, added to the logits.
        values: ``[N]``, added to the values.
        inputs: ``[N + 1, 1 + D]``, the contexts and one without features, a one first.
        hidden: Of the contexts.
        places: ``[P]``, where among ``[K, N]`` outputs each entry of an option stands.
        entries: ``[P]``, the entries of options, 0 where the network does not know the feature.
        starts: ``[M + 1]``, option ``m`` has the entries ``starts[m]:starts[m + 1]``.
    """

    scores: FloatArray
    values: Floats
    inputs: FloatArray
    hidden: Hidden
    places: IntArray
    entries: FloatArray
    starts: IntArray


class Wired(NamedTuple):
    """A network for decisions whose features are known; the actor's part first.

    Attributes:
        first: ``[C, 2 H]``, the first layers, a context's entry in a row, the bias first.
        second: ``[2, H, H]``, the second layers, and
        bias: ``[2 H]``, theirs.
        nothing: ``[2, H]``, the last hidden layers without features.
        heads: ``[U, H]``, the actor's last layer, an option's entry in a row.
        critic: ``[H]``, the critic's.
    """

    first: Floats
    second: Floats
    bias: Floats
    nothing: Floats
    heads: Floats
    critic: Floats

    def judged(self, context: FloatArray) -> tuple[Floats, float]:
        """Return ``[U]``, what each entry of options adds to a logit, and what the value gets.

        Args:
            context: ``[C]``, scaled entries, the constant first.
        """
        last = _through(self.first, context, self.second, self.bias) - self.nothing
        entries: Floats = np.einsum("uh,h->u", self.heads, last[0])
        return entries, float(np.add.reduce(last[1] * self.critic))


@dataclass(frozen=True, eq=False)
class Net:
    """Two tanh networks of two hidden layers, the actor's and the critic's. Nothing ever changes.

    ``f(x, a) = a . E (h(x) - h(0))`` with ``h(x) = tanh(W2 tanh(W1 x + b1) + b2)``, and the value
    likewise. ``E = 0`` at first, so that what was never learned about adds nothing; nor does
    a context without features, because what holds in every context is the linear scorer's.

    Attributes:
        width: ``H``, units of each layer; 0 is no network.
        contexts: ``[slots]``, which input each feature of contexts is.
        options: ``[slots]``, which output each feature of options is.
        flat: All parameters.
    """

    width: int
    contexts: Columns
    options: Columns
    flat: FloatArray

    @classmethod
    def untrained(cls, width: int, *, slots: int) -> "Net":
        """Return the network that adds nothing.

        Args:
            width: Units of each layer.
            slots: That names of features are hashed into.
        """
        columns = _no_columns(width, slots)
        shape = Shape(0, width, 0)
        flat = np.zeros(shape.size)
        towers = viewed(flat, shape)
        towers.first[0] = _BIAS * _drawn(slots, (2 * width,))
        towers.second[:] = _drawn(slots + 1, (2, width, width)) * np.sqrt(2.0 / max(width, 1))
        return cls(width, columns, columns, frozen(flat))

    @property
    def shape(self) -> Shape:
        """How large it is."""
        return Shape(self.contexts.used, self.width, self.options.used)

    @cached_property
    def towers(self) -> Towers:
        """The parameters by name."""
        return viewed(self.flat, self.shape)

    def including(self, contexts: IntArray, options: IntArray) -> "Net":
        """Return the network that knows these features too, as far as there is room.

        Args:
            contexts: Slots, in the order in which they came; those beyond names are ignored.
            options: Slots likewise.
        """
        slots = len(self.contexts.of)
        inputs = self.contexts.including(contexts[contexts < slots])
        outputs = self.options.including(options[options < slots])
        if inputs is self.contexts and outputs is self.options:
            return self
        shape = Shape(inputs.used, self.width, outputs.used)
        flat = widened(self.flat, self.shape, shape)
        for slot in np.flatnonzero(inputs.of >= self.contexts.used):
            viewed(flat, shape).first[1 + inputs.of[slot]] = _GAIN * _drawn(
                int(slot), (2 * self.width,)
            )
        return Net(self.width, inputs, outputs, frozen(flat.astype(np.float64)))

    def forgetting(self, options: IntArray) -> "Net":
        """Return the network that says nothing of these features of options any more."""
        columns = self.options.of[options]
        flat = self.flat.copy()
        towers = viewed(flat, self.shape)
        towers.actor[:, columns[columns >= 0]] = 0.0
        towers.actor_bias[columns[columns >= 0]] = 0.0
        return replace(self, flat=frozen(flat))

    def valued(self, factor: float) -> "Net":
        """Return the network with its values multiplied."""
        flat = self.flat.copy()
        towers = viewed(flat, self.shape)
        towers.critic[:] *= factor
        towers.critic_bias[:] *= factor
        return replace(self, flat=frozen(flat))

    def going_on(self) -> "Net":
        """Return a copy whose ``flat`` may be written to, which changes the network."""
        return replace(self, flat=self.flat.copy())

    def frozen(self) -> "Net":
        """Return a copy that nothing changes any more."""
        return replace(self, flat=frozen(self.flat))

    def said(self, contexts: Crossed, options: Crossed, starts: IntArray) -> Said:
        """Return what the network makes of decisions.

        Args:
            contexts: ``[N]`` rows, slots beyond those of names ignored.
            options: ``[M]`` rows.
            starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
        """
        decisions, shape = len(starts) - 1, self.shape
        inputs = self._inputs(contexts)
        hidden = Hidden.buffers(decisions + 1, shape, dtype=np.float64)
        outputs = Outputs.buffers(decisions + 1, shape, dtype=np.float64)
        if self.width:
            forward_hidden(self.towers, inputs, hidden)
            forward_heads(self.towers, hidden, outputs)
        of = np.repeat(np.repeat(np.arange(decisions), np.diff(starts)), np.diff(options.starts))
        columns = self.options.of[options.slots]
        entries = np.where(columns >= 0, options.values, 0.0)
        places = np.maximum(columns, 0) * decisions + of
        centred = outputs.logits[:, :-1] - outputs.logits[:, -1:]
        flat = centred.ravel() if shape.outputs else np.zeros(decisions)
        scores = np.add.reduceat(flat[places] * entries, options.starts[:-1])
        values = outputs.values[:-1] - outputs.values[-1]
        return Said(scores, values, inputs, hidden, places, entries, options.starts)

    def _inputs(self, contexts: Crossed) -> FloatArray:
        wide = 1 + self.contexts.used
        decisions = len(contexts.starts) - 1
        named = contexts.slots < len(self.contexts.of)
        columns = self.contexts.of[np.where(named, contexts.slots, 0)]
        known = named & (columns >= 0)
        owners = np.repeat(np.arange(decisions), np.diff(contexts.starts))[known]
        flat = np.bincount(
            owners * wide + 1 + columns[known],
            weights=contexts.values[known],
            minlength=decisions * wide,
        )
        inputs = np.zeros((decisions + 1, wide))
        inputs[:-1] = flat.reshape(decisions, wide)
        inputs[:, 0] = 1.0
        return inputs

    def gradient(self, said: Said, by_score: FloatArray, by_value: FloatArray) -> FloatArray:
        """Return the gradient by all parameters; uses up the buffers of ``said``.

        Args:
            said: What it made of the decisions.
            by_score: ``[M]``, gradient by the scores.
            by_value: ``[N]``, gradient by the values.
        """
        flat = np.zeros(self.shape.size)
        if self.width:
            by_entry = np.repeat(by_score, np.diff(said.starts)) * said.entries
            decisions, outputs = len(by_value), self.shape.outputs
            size = decisions * outputs
            by_output = np.bincount(said.places, weights=by_entry, minlength=size)[:size]
            by = Outputs(np.zeros((outputs, decisions + 1)), np.zeros(decisions + 1))
            by.logits[:, :-1] = by_output.reshape(outputs, decisions)
            by.logits[:, -1] = -np.add.reduce(by.logits[:, :-1], axis=1)
            by.values[:-1] = by_value
            by.values[-1] = -np.add.reduce(by_value)
            found = viewed(flat, self.shape)
            backward_heads(self.towers, found, said.hidden, by)
            backward_hidden(self.towers, found, said.inputs, said.hidden)
        return flat

    def scores(self, encoded: Encoded, values: FloatArray) -> FloatArray:
        """Return ``[A]`` what is added to the logits of one decision, masked options included.

        Args:
            encoded: The decision.
            values: ``[E]``, its scaled entries.
        """
        split = encoded.starts[1]
        slots = encoded.indices.astype(np.int64)
        wired = self.wired(slots[:split], slots[split:])
        if wired is None:
            return np.zeros(encoded.options)
        found = wired.judged(values[:split])[0] * values[split:]
        sums: FloatArray = np.add.reduceat(found, encoded.starts[1:-1] - split)
        return sums

    def wired(self, contexts: IntArray, options: IntArray) -> "Wired | None":
        """Return what it is for decisions with these features; ``None`` if it adds nothing.

        Args:
            contexts: ``[C]``, slots of the context's entries, the constant first.
            options: ``[U]``, slots of options' entries.
        """
        if not self.width or not self.contexts.used + self.options.used:
            return None
        towers, columns = self.towers, self.contexts.of[contexts]
        first = np.where(columns[:, None] >= 0, towers.first[np.maximum(columns, -1) + 1], 0.0)
        first[0] = towers.first[0]  # the constant, whose row is the bias
        outputs = self.options.of[options]
        heads = np.zeros((len(options), self.width))
        if self.options.used:
            heads = np.where(outputs[:, None] >= 0, self._heads[np.maximum(outputs, 0)], 0.0)
        return Wired(
            first, towers.second, towers.second_bias, self._last_of_nothing, heads, towers.critic
        )

    @cached_property
    def _heads(self) -> Floats:
        """``[K, H]``, the actor's last layer, an output's in a row."""
        return np.ascontiguousarray(self.towers.actor.T)

    @cached_property
    def _last_of_nothing(self) -> Floats:
        """``[2, H]``, the last hidden layers without features."""
        towers = self.towers
        return _through(towers.first[:1], np.ones(1), towers.second, towers.second_bias)

    def arrays(self) -> dict[str, Array]:
        """Return everything by name."""
        return {
            "net_inputs": self.contexts.of,
            "net_outputs": self.options.of,
            "net_flat": self.flat,
            "net_used": np.array([self.contexts.used, self.options.used], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], *, width: int, slots: int) -> "Net":
        """Return the network that ``arrays`` gave.

        Raises:
            ValueError: An array is missing, misshapen, not finite, or out of range.
        """
        empty = _no_columns(width, slots)
        used = required(arrays, "net_used", (2,)).astype(np.int64).tolist()
        if not 0 <= min(used) <= max(used) <= empty.most:
            raise ValueError(f"net_used must be within [0, {empty.most}], got {used!r}")
        inputs = _columns(arrays, "net_inputs", empty, used=used[0])
        outputs = _columns(arrays, "net_outputs", empty, used=used[1])
        size = Shape(used[0], width, used[1]).size
        return cls(width, inputs, outputs, frozen(required(arrays, "net_flat", (size,))))


def _columns(arrays: Mapping[str, Array], name: str, empty: Columns, *, used: int) -> Columns:
    of = required(arrays, name, empty.of.shape).astype(np.int32)
    known = np.sort(of[of >= 0])
    if of.min() < LEFT_OUT or of[-1] != LEFT_OUT or not np.array_equal(known, np.arange(used)):
        raise ValueError(f"{name} must number {used} features, each once, and not the constant")
    return Columns(of, used, empty.most)


def _no_columns(width: int, slots: int) -> Columns:
    columns = Columns.none(slots + 1, MOST if width else 0)
    columns.of[slots] = LEFT_OUT  # the constant of contexts is the bias
    return columns


def _drawn(slot: int, shape: tuple[int, ...]) -> FloatArray:
    """Return numbers that belong to this slot, whenever it comes."""
    return np.random.default_rng([_SEED, slot]).standard_normal(shape)


def _through(first: Floats, context: FloatArray, second: Floats, bias: Floats) -> Floats:
    """Return ``[2, H]``, the last hidden layers; no sum here goes through BLAS."""
    hidden = np.tanh(np.einsum("c,cw->w", context, first)).reshape(second.shape[:2])
    last: Floats = np.tanh(np.einsum("ti,tio->to", hidden, second) + bias.reshape(hidden.shape))
    return last
