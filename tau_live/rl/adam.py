"""Adam on one flat array of parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import Array, FloatArray, required


class AdamState(NamedTuple):
    """What Adam remembers.

    Attributes:
        first: ``[D]``, decaying mean of gradients.
        second: ``[D]``, decaying mean of squared gradients.
        steps: How many steps were taken.
    """

    first: FloatArray
    second: FloatArray
    steps: int

    @classmethod
    def untrained(cls, size: int) -> "AdamState":
        """Return the state before the first step."""
        return cls(np.zeros(size), np.zeros(size), 0)

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays by name."""
        return {
            "adam_first": self.first,
            "adam_second": self.second,
            "adam_steps": np.array([self.steps], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], *, size: int) -> "AdamState":
        """Return the state that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        second = required(arrays, "adam_second", (size,))
        steps = int(required(arrays, "adam_steps", (1,))[0])
        if steps < 0 or (second < 0.0).any():
            raise ValueError("adam_steps and adam_second must be at least 0")
        return cls(required(arrays, "adam_first", (size,)), second, steps)


class Stepped(NamedTuple):
    """The parameters after a step, and what to remember for the next one."""

    parameters: FloatArray
    state: AdamState


def adam_step(
    parameters: FloatArray,
    gradient: FloatArray,
    state: AdamState,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> Stepped:
    """Return the parameters one step down the gradient, ``[D]`` each; the arguments stay.

    ``p - learning_rate * (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + epsilon)``.

    Source:
        Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.
    """
    first_decay, second_decay = betas
    steps = state.steps + 1
    first = first_decay * state.first + (1.0 - first_decay) * gradient
    second = second_decay * state.second + (1.0 - second_decay) * gradient**2
    mean = first / (1.0 - first_decay**steps)
    deviation = np.sqrt(second / (1.0 - second_decay**steps))
    stepped = parameters - learning_rate * mean / (deviation + epsilon)
    return Stepped(stepped, AdamState(first, second, steps))
