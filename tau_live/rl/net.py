"""The small tanh network of a policy, whose outputs are added to logits and values. Frozen.

It is two towers side by side, the actor's and the critic's, in one flat array of parameters. Both
have the same inputs and two hidden layers of one width, so each layer of both is one matrix
product. Features come and go: the first features of contexts have an input each, the first
features of options an output each. Features that come when there is no room left are ignored; the
linear scorer still learns from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import (
    Array,
    FloatArray,
    IntArray,
    frozen,
    lengths_of,
    multiply,
    required_array,
)
from tau_live.rl.crossing import Crossed
from tau_live.rl.recursive import LEFT_OUT, Columns

MOST = 256
"""Most features of contexts, and of options, that the network knows."""

_SEED = 7  # of the initial layers; the same for every policy
_GAIN = 0.7  # rows are of length 2 on average, so inputs of the first layer deviate by 1.4
_BIAS = 1.0  # of the first layer: without one the network could not represent squares


class Shape(NamedTuple):
    """The size of the towers.

    Attributes:
        inputs: ``D``, inputs of both towers.
        hidden: ``H``, units of each hidden layer of each tower.
        outputs: ``K``, logits of the actor.
    """

    inputs: int
    hidden: int
    outputs: int

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum(prod(part) for part in self.parts)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The shape of every array of ``Towers``, in its order."""
        inputs, hidden, outputs = self
        return (
            (outputs,),
            (hidden, outputs),
            (1,),
            (hidden,),
            (2 * hidden,),
            (2, hidden, hidden),
            (1 + inputs, 2 * hidden),
        )


class Towers(NamedTuple):
    """Parameters, or the gradient by them, as views into one flat array in this order.

    Attributes:
        actor_bias: ``[K]``.
        actor: ``[H, K]``, from the actor's last hidden layer to logits.
        critic_bias: ``[1]``.
        critic: ``[H]``, from the critic's last hidden layer to the value.
        second_bias: ``[2H]``, the actor's before the critic's.
        second: ``[2, H, H]``, from the first hidden layer of each to its second.
        first: ``[1 + D, 2H]``, from the inputs to both first hidden layers; row 0 is the bias.
    """

    actor_bias: FloatArray
    actor: FloatArray
    critic_bias: FloatArray
    critic: FloatArray
    second_bias: FloatArray
    second: FloatArray
    first: FloatArray


def view(flat: FloatArray, shape: Shape) -> Towers:
    """Return views into a flat array, ``[shape.size]``; writing to them writes to it.

    Raises:
        ValueError: ``flat`` is of another size.
    """
    if flat.shape != (shape.size,):
        raise ValueError(f"expected [{shape.size}] parameters of {shape}, got {flat.shape}")
    views = []
    begin = 0
    for part in shape.parts:
        end = begin + prod(part)
        views.append(flat[begin:end].reshape(part))
        begin = end
    return Towers(*views)


def widen(flat: FloatArray, before: Shape, after: Shape) -> FloatArray:
    """Return the parameters, or Adam's moments of them, with room for more inputs and outputs.

    New ones are 0, without effect until they are trained.

    Args:
        flat: ``[before.size]``.
        before: The current size of the towers.
        after: Their new size: no part smaller, ``hidden`` the same.
    """
    wider = np.zeros(after.size)
    for old, new in zip(view(flat, before), view(wider, after), strict=True):
        new[tuple(slice(length) for length in old.shape)] = old
    return wider


def forward_towers(
    towers: Towers, inputs: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return both hidden layers, ``[N, 2H]``, the logits ``[K, N]`` and the values ``[N]``.

    ``h1 = tanh((1, x) W1)``, ``h2 = tanh(h1 W2 + b2)``, for each tower. An option's logits are in
    a row, which makes sums over few options fast.

    Args:
        towers: The parameters.
        inputs: ``[N, 1 + D]``, the first column ones.
    """
    rows, half = len(inputs), len(towers.critic)
    first, second = np.empty((2, rows, 2 * half))
    logits, values = np.empty((len(towers.actor_bias), rows)), np.empty(rows)
    multiply(inputs, towers.first, out=first)
    np.tanh(first, out=first)
    multiply(_apart(first), towers.second, out=_apart(second))
    second += towers.second_bias
    np.tanh(second, out=second)
    multiply(towers.actor.T, second[:, :half].T, out=logits)
    logits += towers.actor_bias[:, None]
    multiply(second[:, half:], towers.critic[:, None], out=values[:, None])
    values += towers.critic_bias
    return first, second, logits, values


def backward_towers(
    towers: Towers,
    inputs: FloatArray,
    hidden: tuple[FloatArray, FloatArray],
    by: tuple[FloatArray, FloatArray],
    *,
    gradient: Towers,
) -> None:
    """Fill the gradient.

    Args:
        towers: The parameters.
        inputs: ``[N, 1 + D]``, inputs of the forward pass.
        hidden: Both hidden layers of the forward pass.
        by: Gradient by logits, ``[K, N]``, and by values, ``[N]``.
        gradient: Written to.
    """
    (first, second), (by_logits, by_values) = hidden, by
    half = len(towers.critic)
    by_first, by_second = np.empty((2, *second.shape))
    multiply(second[:, :half].T, by_logits.T, out=gradient.actor)
    np.add.reduce(by_logits, axis=1, out=gradient.actor_bias)
    multiply(by_logits.T, towers.actor.T, out=by_second[:, :half])
    multiply(second[:, half:].T, by_values[:, None], out=gradient.critic[:, None])
    gradient.critic_bias[0] = by_values.sum()
    np.multiply(by_values[:, None], towers.critic, out=by_second[:, half:])
    by_second *= 1.0 - second * second
    multiply(_apart(first).transpose(0, 2, 1), _apart(by_second), out=gradient.second)
    np.add.reduce(by_second, axis=0, out=gradient.second_bias)
    multiply(_apart(by_second), towers.second.transpose(0, 2, 1), out=_apart(by_first))
    by_first *= 1.0 - first * first
    multiply(inputs.T, by_first, out=gradient.first)


def _apart(both: FloatArray) -> FloatArray:
    """Return ``[2, N, H]`` the units ``[N, 2H]`` of both towers, tower by tower, without a copy."""
    rows, units = both.shape
    return both.reshape(rows, 2, units // 2).transpose(1, 0, 2)


class Forward(NamedTuple):
    """The forward pass of ``N`` decisions with ``M`` options in all.

    Attributes:
        scores: ``[M]``, added to the logits.
        values: ``[N]``, added to the values.
        inputs: ``[N + 1, 1 + D]``, the contexts and an empty one; the first column is ones.
        hidden: Both hidden layers of the towers.
        places: ``[P]``, flat index of each option entry's output in ``[K, N]``.
        entries: ``[P]``, the entries of options, 0 where the network does not know the feature.
        starts: ``[M + 1]``, option ``m`` has the entries ``starts[m]:starts[m + 1]``.
    """

    scores: FloatArray
    values: FloatArray
    inputs: FloatArray
    hidden: tuple[FloatArray, FloatArray]
    places: IntArray
    entries: FloatArray
    starts: IntArray


class WiredNet(NamedTuple):
    """A network reduced to decisions with given features; the actor's tower first.

    Attributes:
        first: ``[C, 2 H]``, the first layers, a row for each entry of the context, the bias first.
        second: ``[2, H, H]``, the second layers.
        bias: ``[2 H]``, biases of the second layers.
        nothing: ``[2, H]``, the last hidden layers without features.
        heads: ``[U, H]``, the actor's last layer, a row for each entry of options.
        critic: ``[H]``, the critic's last layer.
    """

    first: FloatArray
    second: FloatArray
    bias: FloatArray
    nothing: FloatArray
    heads: FloatArray
    critic: FloatArray

    def judge(self, context: FloatArray) -> tuple[FloatArray, float]:
        """Return ``[U]``, the contribution of each option entry to a logit, and that to the value.

        Args:
            context: ``[C]``, scaled entries, the constant first.
        """
        last = _through(self.first, context, self.second, self.bias) - self.nothing
        entries: FloatArray = np.einsum("uh,h->u", self.heads, last[0])
        return entries, float(np.add.reduce(last[1] * self.critic))


@dataclass(frozen=True, eq=False)
class Net:
    """Two tanh networks of two hidden layers, the actor's and the critic's. Frozen.

    ``f(x, a) = a . E (h(x) - h(0))`` with ``h(x) = tanh(W2 tanh(W1 x + b1) + b2)``, and the value
    likewise. ``E = 0`` at first, so that untrained features add nothing; nor does a context without
    features, because what holds in every context is the linear scorer's.

    Attributes:
        width: ``H``, units of each layer; 0 is no network.
        contexts: ``[slots]``, the input of each feature of contexts.
        options: ``[slots]``, the output of each feature of options.
        flat: All parameters.
    """

    width: int
    contexts: Columns
    options: Columns
    flat: FloatArray

    @classmethod
    def initial(cls, width: int, *, slots: int) -> "Net":
        """Return the network that adds nothing.

        Args:
            width: Units of each layer.
            slots: Slots that names of features are hashed into.
        """
        columns = _no_columns(width, slots)
        shape = Shape(0, width, 0)
        flat = np.zeros(shape.size)
        towers = view(flat, shape)
        towers.first[0] = _BIAS * _draw_slot(slots, (2 * width,))
        towers.second[:] = _draw_slot(slots + 1, (2, width, width)) * np.sqrt(2.0 / max(width, 1))
        return cls(width, columns, columns, frozen(flat))

    @property
    def shape(self) -> Shape:
        """The size of its towers."""
        return Shape(self.contexts.used, self.width, self.options.used)

    @cached_property
    def towers(self) -> Towers:
        """The parameters by name."""
        return view(self.flat, self.shape)

    def including(self, contexts: IntArray, options: IntArray) -> "Net":
        """Return the network that also knows these features, as far as there is room.

        Args:
            contexts: Slots, in the order in which they came; others than names' are ignored.
            options: The same for options.
        """
        slots = len(self.contexts.of)
        inputs = self.contexts.including(contexts[contexts < slots])
        outputs = self.options.including(options[options < slots])
        if inputs is self.contexts and outputs is self.options:
            return self
        shape = Shape(inputs.used, self.width, outputs.used)
        flat = widen(self.flat, self.shape, shape)
        for slot in np.flatnonzero(inputs.of >= self.contexts.used):
            view(flat, shape).first[1 + inputs.of[slot]] = _GAIN * _draw_slot(
                int(slot), (2 * self.width,)
            )
        return Net(self.width, inputs, outputs, frozen(flat))

    def forget(self, options: IntArray) -> "Net":
        """Return the network with the weights of these features of options set to 0."""
        columns = self.options.of[options]
        flat = self.flat.copy()
        towers = view(flat, self.shape)
        towers.actor[:, columns[columns >= 0]] = 0.0
        towers.actor_bias[columns[columns >= 0]] = 0.0
        return replace(self, flat=frozen(flat))

    def scale_values(self, factor: float) -> "Net":
        """Return the network with its values multiplied."""
        flat = self.flat.copy()
        towers = view(flat, self.shape)
        towers.critic[:] *= factor
        towers.critic_bias[:] *= factor
        return replace(self, flat=frozen(flat))

    def writable_copy(self) -> "Net":
        """Return a copy whose ``flat`` may be written to."""
        return replace(self, flat=self.flat.copy())

    def frozen(self) -> "Net":
        """Return a read-only copy."""
        return replace(self, flat=frozen(self.flat))

    def forward(self, contexts: Crossed, options: Crossed, starts: IntArray) -> Forward:
        """Return the forward pass of ``N`` decisions.

        Args:
            contexts: ``[N]`` rows; slots other than names' are ignored.
            options: ``[M]`` rows.
            starts: ``[N + 1]``, decision ``n`` has the options ``starts[n]:starts[n + 1]``.
        """
        decisions = len(starts) - 1
        inputs = self._inputs(contexts)
        first, second, logits, values = forward_towers(self.towers, inputs)
        owners = np.repeat(np.arange(decisions), lengths_of(starts))
        columns = self.options.of[options.slots]
        entries = np.where(columns >= 0, options.values, 0.0)
        places = np.maximum(columns, 0) * decisions + np.repeat(owners, lengths_of(options.starts))
        centred = logits[:, :-1] - logits[:, -1:]
        flat = centred.ravel() if self.options.used else np.zeros(decisions)
        scores = np.add.reduceat(flat[places] * entries, options.starts[:-1])
        values = values[:-1] - values[-1]
        return Forward(scores, values, inputs, (first, second), places, entries, options.starts)

    def _inputs(self, contexts: Crossed) -> FloatArray:
        wide = 1 + self.contexts.used
        decisions = len(contexts.starts) - 1
        named = contexts.slots < len(self.contexts.of)
        columns = self.contexts.of[np.where(named, contexts.slots, 0)]
        known = named & (columns >= 0)
        owners = np.repeat(np.arange(decisions), lengths_of(contexts.starts))[known]
        flat = np.bincount(
            owners * wide + 1 + columns[known],
            weights=contexts.values[known],
            minlength=decisions * wide,
        )
        inputs = np.zeros((decisions + 1, wide))
        inputs[:-1] = flat.reshape(decisions, wide)
        inputs[:, 0] = 1.0
        return inputs

    def gradient(self, output: Forward, by_score: FloatArray, by_value: FloatArray) -> FloatArray:
        """Return the gradient by all parameters.

        Args:
            output: Its forward pass of the decisions.
            by_score: ``[M]``, gradient by the scores.
            by_value: ``[N]``, gradient by the values.
        """
        flat = np.zeros(self.shape.size)
        if self.width:
            by_entry = np.repeat(by_score, lengths_of(output.starts)) * output.entries
            decisions, outputs = len(by_value), self.shape.outputs
            size = decisions * outputs
            by_output = np.bincount(output.places, weights=by_entry, minlength=size)[:size]
            by_logits, by_values = np.zeros((outputs, decisions + 1)), np.zeros(decisions + 1)
            by_logits[:, :-1] = by_output.reshape(outputs, decisions)
            by_logits[:, -1] = -np.add.reduce(by_logits[:, :-1], axis=1)
            by_values[:-1] = by_value
            by_values[-1] = -np.add.reduce(by_value)
            backward_towers(
                self.towers,
                output.inputs,
                output.hidden,
                (by_logits, by_values),
                gradient=view(flat, self.shape),
            )
        return flat

    def scores(self, context: Crossed, options: Crossed) -> FloatArray:
        """Return ``[A]``, the network's contribution to the logits of one decision, masked or not.

        Args:
            context: Its scaled context, one row.
            options: ``[A]`` rows.
        """
        wired = self.wire(context.slots, options.slots)
        if wired is None:
            return np.zeros(len(options.starts) - 1)
        bonus = wired.judge(context.values)[0] * options.values
        sums: FloatArray = np.add.reduceat(bonus, options.starts[:-1])
        return sums

    def wire(self, contexts: IntArray, options: IntArray) -> "WiredNet | None":
        """Return the network reduced to these features; ``None`` if it adds nothing.

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
        return WiredNet(
            first, towers.second, towers.second_bias, self._last_of_empty, heads, towers.critic
        )

    @cached_property
    def _heads(self) -> FloatArray:
        """``[K, H]``, the actor's last layer, a row for each output."""
        return np.ascontiguousarray(self.towers.actor.T)

    @cached_property
    def _last_of_empty(self) -> FloatArray:
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
        used = required_array(arrays, "net_used", (2,)).astype(np.int64).tolist()
        if not 0 <= min(used) <= max(used) <= empty.most:
            raise ValueError(f"net_used must be within [0, {empty.most}], got {used!r}")
        inputs = _columns(arrays, "net_inputs", empty, used=used[0])
        outputs = _columns(arrays, "net_outputs", empty, used=used[1])
        size = Shape(used[0], width, used[1]).size
        return cls(width, inputs, outputs, frozen(required_array(arrays, "net_flat", (size,))))


def _columns(arrays: Mapping[str, Array], name: str, empty: Columns, *, used: int) -> Columns:
    columns = required_array(arrays, name, empty.of.shape).astype(np.int32)
    known, all_used = np.sort(columns[columns >= 0]), np.arange(used)
    if columns.min() < LEFT_OUT or columns[-1] != LEFT_OUT or not np.array_equal(known, all_used):
        raise ValueError(f"{name} must number {used} features, each once, and not the constant")
    return Columns(columns, used, empty.most)


def _no_columns(width: int, slots: int) -> Columns:
    columns = Columns.none(slots + 1, MOST if width else 0)
    columns.of[slots] = LEFT_OUT  # the constant of contexts is the bias
    return columns


def _draw_slot(slot: int, shape: tuple[int, ...]) -> FloatArray:
    """Return normal numbers that depend on the slot alone, not on when it comes."""
    return np.random.default_rng([_SEED, slot]).standard_normal(shape)


def _through(
    first: FloatArray, context: FloatArray, second: FloatArray, bias: FloatArray
) -> FloatArray:
    """Return ``[2, H]``, the last hidden layers; no sum here goes through BLAS."""
    hidden = np.tanh(np.einsum("c,cw->w", context, first)).reshape(second.shape[:2])
    last: FloatArray = np.tanh(np.einsum("ti,tio->to", hidden, second) + bias.reshape(hidden.shape))
    return last
