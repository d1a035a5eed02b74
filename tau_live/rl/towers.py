"""Two tanh networks side by side, the actor's and the critic's, in one flat array of parameters.

Both see the same inputs and have two hidden layers of one width, so every layer of both is one
product of matrices. Nothing is allocated once the buffers stand. All arrays are of one type:
float32 is what is fast (a step takes 0.6 times as long as in float64 with 64 rows, half as long
with 256, where the products of matrices are most of it), float64 is what gradients are checked in.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.products import Floats, multiply


class Shape(NamedTuple):
    """How large the towers are.

    Attributes:
        inputs: ``D``, numbers that both towers see.
        hidden: ``H``, units of each hidden layer of each tower.
        outputs: ``K``, logits of the actor.
    """

    inputs: int
    hidden: int
    outputs: int

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return sum(int(np.prod(part)) for part in self.parts())

    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of every array of ``Towers``, in its order."""
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

    actor_bias: Floats
    actor: Floats
    critic_bias: Floats
    critic: Floats
    second_bias: Floats
    second: Floats
    first: Floats


def viewed(flat: Floats, shape: Shape) -> Towers:
    """Return the parts of a flat array, ``[shape.size]``; what is written to them is in it.

    Raises:
        ValueError: ``flat`` is of another size.
    """
    if flat.shape != (shape.size,):
        raise ValueError(f"expected [{shape.size}] parameters of {shape}, got {flat.shape}")
    found = []
    begin = 0
    for part in shape.parts():
        end = begin + int(np.prod(part))
        found.append(flat[begin:end].reshape(part))
        begin = end
    return Towers(*found)


def initial(
    shape: Shape,
    rng: np.random.Generator,
    *,
    actor_gain: float = 0.01,
    dtype: npt.DTypeLike = np.float32,
) -> Floats:
    """Return ``[shape.size]`` parameters to begin with: orthogonal layers, biases of 0.

    Args:
        shape: How large the towers are.
        rng: Draws the layers, in the order first, second, heads, the actor's before the critic's.
        actor_gain: Of the actor's head; 0 lets the actor add nothing at first.
        dtype: Float32 or float64.

    Source:
        Andrychowicz et al. 2021, arXiv:2006.05990, section 3.2 (a last layer of the actor that is
        100 times smaller); Saxe et al. 2014, arXiv:1312.6120 (orthogonal layers).
    """
    flat: Floats = np.zeros(shape.size, dtype=dtype)
    towers = viewed(flat, shape)
    width = shape.hidden
    for tower in range(2):
        columns = slice(tower * width, (tower + 1) * width)
        towers.first[1:, columns] = np.sqrt(2.0) * _orthogonal(shape.inputs, width, rng)
    for tower in range(2):
        towers.second[tower] = np.sqrt(2.0) * _orthogonal(width, width, rng)
    towers.actor[:] = actor_gain * _orthogonal(width, shape.outputs, rng)
    towers.critic[:] = _orthogonal(width, 1, rng)[:, 0]
    return flat


def widened(flat: Floats, before: Shape, after: Shape) -> Floats:
    """Return the parameters, or what Adam remembers of them, with room for more inputs and outputs.

    What is new is 0: it is without effect until it is learned about.

    Args:
        flat: ``[before.size]``.
        before: How large the towers are.
        after: How large they shall be: no part smaller, ``hidden`` the same.
    """
    found: Floats = np.zeros(after.size, dtype=flat.dtype)
    for old, new in zip(viewed(flat, before), viewed(found, after), strict=True):
        new[tuple(slice(length) for length in old.shape)] = old
    return found


def with_ones(inputs: Floats, *, dtype: npt.DTypeLike = np.float32) -> Floats:
    """Return ``[N, 1 + D]`` the inputs ``[N, D]`` behind a column of ones, as the towers see it."""
    rows, width = inputs.shape
    found: Floats = np.ones((rows, 1 + width), dtype=dtype)
    found[:, 1:] = inputs
    return found


class Hidden(NamedTuple):
    """Buffers for what ``N`` rows make of the hidden layers, and for the gradients by that.

    Attributes:
        first: ``[N, 2H]``, the first hidden layer, the actor's units before the critic's.
        second: ``[N, 2H]``, the second.
        by_first: ``[N, 2H]``, gradient by the first.
        by_second: ``[N, 2H]``, gradient by the second.
        spare: ``[N, 2H]``.
    """

    first: Floats
    second: Floats
    by_first: Floats
    by_second: Floats
    spare: Floats

    @classmethod
    def buffers(cls, rows: int, shape: Shape, *, dtype: npt.DTypeLike = np.float32) -> "Hidden":
        """Return buffers for ``rows`` rows."""
        first, second, by_first, by_second, spare = (
            np.zeros((rows, 2 * shape.hidden), dtype=dtype) for _ in range(5)
        )
        return cls(first, second, by_first, by_second, spare)

    @property
    def actor(self) -> Floats:
        """``[N, H]``, the actor's last hidden layer."""
        return self.second[:, : self.second.shape[1] // 2]

    @property
    def critic(self) -> Floats:
        """``[N, H]``, the critic's last hidden layer."""
        return self.second[:, self.second.shape[1] // 2 :]

    @property
    def by_actor(self) -> Floats:
        """``[N, H]``, gradient by the actor's last hidden layer."""
        return self.by_second[:, : self.second.shape[1] // 2]

    @property
    def by_critic(self) -> Floats:
        """``[N, H]``, gradient by the critic's last hidden layer."""
        return self.by_second[:, self.second.shape[1] // 2 :]

    def rows(self, count: int) -> "Hidden":
        """Return the same buffers for the first ``count`` rows alone."""
        return Hidden(*(array[:count] for array in self))


def forward_hidden(towers: Towers, inputs: Floats, hidden: Hidden) -> None:
    """Fill ``hidden.first`` and ``hidden.second``.

    ``h1 = tanh((1, x) W1)``, ``h2 = tanh(h1 W2 + b2)``, for each tower.

    Args:
        towers: The parameters.
        inputs: ``[N, 1 + D]``, the first column ones.
        hidden: Buffers for ``N`` rows.
    """
    multiply(inputs, towers.first, out=hidden.first)
    np.tanh(hidden.first, out=hidden.first)
    multiply(_apart(hidden.first), towers.second, out=_apart(hidden.second))
    np.add(hidden.second, towers.second_bias, out=hidden.second)
    np.tanh(hidden.second, out=hidden.second)


def backward_hidden(towers: Towers, gradient: Towers, inputs: Floats, hidden: Hidden) -> None:
    """Fill the hidden layers' parts of ``gradient`` from ``hidden.by_second``, which is used up.

    Args:
        towers: The parameters.
        gradient: Of which ``second_bias``, ``second`` and ``first`` are written.
        inputs: ``[N, 1 + D]``, as they were forward.
        hidden: As it was filled forward, with ``by_actor`` and ``by_critic`` filled by the caller.
    """
    _through_tanh(hidden.by_second, hidden.second, hidden.spare)
    by_second = _apart(hidden.by_second)
    multiply(_apart(hidden.first).transpose(0, 2, 1), by_second, out=gradient.second)
    np.add.reduce(hidden.by_second, axis=0, out=gradient.second_bias)
    multiply(by_second, towers.second.transpose(0, 2, 1), out=_apart(hidden.by_first))
    _through_tanh(hidden.by_first, hidden.first, hidden.spare)
    multiply(inputs.T, hidden.by_first, out=gradient.first)


class Outputs(NamedTuple):
    """Buffers for what ``N`` rows make of the heads.

    Attributes:
        logits: ``[K, N]``, an option's in a row: sums over few options are fast that way.
        values: ``[N]``.
    """

    logits: Floats
    values: Floats

    @classmethod
    def buffers(cls, rows: int, shape: Shape, *, dtype: npt.DTypeLike = np.float32) -> "Outputs":
        """Return buffers for ``rows`` rows."""
        return cls(np.zeros((shape.outputs, rows), dtype=dtype), np.zeros(rows, dtype=dtype))


def forward_heads(towers: Towers, hidden: Hidden, outputs: Outputs) -> None:
    """Fill ``outputs`` from the last hidden layers."""
    multiply(towers.actor.T, hidden.actor.T, out=outputs.logits)
    np.add(outputs.logits, towers.actor_bias[:, None], out=outputs.logits)
    forward_values(towers, hidden, outputs.values)


def forward_values(towers: Towers, hidden: Hidden, values: Floats) -> None:
    """Fill ``values``, ``[N]``, alone."""
    multiply(hidden.critic, towers.critic[:, None], out=values[:, None])
    np.add(values, towers.critic_bias, out=values)


def backward_heads(towers: Towers, gradient: Towers, hidden: Hidden, by: Outputs) -> None:
    """Fill the heads' parts of ``gradient``, and ``hidden.by_second``.

    Args:
        towers: The parameters.
        gradient: Of which the heads and their biases are written.
        hidden: As it was filled forward.
        by: Gradient by logits and by values.
    """
    multiply(hidden.actor.T, by.logits.T, out=gradient.actor)
    np.add.reduce(by.logits, axis=1, out=gradient.actor_bias)
    multiply(by.logits.T, towers.actor.T, out=hidden.by_actor)
    backward_values(towers, gradient, hidden, by.values)


def backward_values(towers: Towers, gradient: Towers, hidden: Hidden, by_values: Floats) -> None:
    """Fill the critic's head of ``gradient``, and ``hidden.by_critic``, from ``by_values [N]``."""
    multiply(hidden.critic.T, by_values[:, None], out=gradient.critic[:, None])
    gradient.critic_bias[0] = by_values.sum()
    np.multiply(by_values[:, None], towers.critic, out=hidden.by_critic)


def _apart(both: Floats) -> Floats:
    """Return ``[2, N, H]`` the units ``[N, 2H]`` of both towers, tower by tower, without a copy."""
    rows, units = both.shape
    return both.reshape(rows, 2, units // 2).transpose(1, 0, 2)


def _through_tanh(by: Floats, found: Floats, spare: Floats) -> None:
    """Turn the gradient by ``found = tanh(z)`` into that by ``z``."""
    np.multiply(found, found, out=spare)
    np.subtract(1.0, spare, out=spare)
    np.multiply(by, spare, out=by)


def _orthogonal(rows: int, columns: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return ``[rows, columns]`` with orthonormal rows or columns, whichever are fewer."""
    if not rows or not columns:
        return np.zeros((rows, columns))
    drawn = rng.standard_normal((max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(drawn)
    basis *= np.sign(np.diag(triangle))  # otherwise the distribution is not uniform
    return basis if rows >= columns else basis.T
