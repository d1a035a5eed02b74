"""Adam on one flat array of parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tau_live.rl.arrays import Array, FloatArray, IntArray, frozen, required
from tau_live.rl.products import Floats


class FlatAdam(NamedTuple):
    """What Adam remembers of flat parameters; changed in place.

    Attributes:
        first: ``[S]``, decaying mean of gradients.
        second: ``[S]``, decaying mean of squared gradients.
        spare: ``[S]``.
        steps: ``[1]``, how many steps were taken.
    """

    first: Floats
    second: Floats
    spare: Floats
    steps: IntArray

    @classmethod
    def untrained(cls, size: int, *, dtype: npt.DTypeLike = np.float32) -> "FlatAdam":
        """Return the state before the first step."""
        first, second, spare = (np.zeros(size, dtype=dtype) for _ in range(3))
        return cls(first, second, spare, np.zeros(1, dtype=np.int64))

    def descend(
        self,
        parameters: Floats,
        gradient: Floats,
        *,
        learning_rate: float,
        epsilon: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """Move ``parameters [S]`` one step down ``gradient [S]``, which is used up.

        ``p - learning_rate * (m / (1 - b1**t)) / (sqrt(v / (1 - b2**t)) + epsilon)``.

        Source:
            Kingma and Ba 2015, arXiv:1412.6980, algorithm 1, its corrections of bias put together
            as in the last line of section 2.
        """
        first, second, spare, steps = self
        first_decay, second_decay = betas
        steps += 1
        taken = int(steps[0])
        correction = np.sqrt(1.0 - second_decay**taken)
        np.multiply(first, first_decay, out=first)
        np.multiply(gradient, 1.0 - first_decay, out=spare)
        np.add(first, spare, out=first)
        np.multiply(second, second_decay, out=second)
        np.multiply(gradient, gradient, out=gradient)
        np.multiply(gradient, 1.0 - second_decay, out=gradient)
        np.add(second, gradient, out=second)
        np.sqrt(second, out=spare)
        np.add(spare, float(epsilon * correction), out=spare)
        np.divide(first, spare, out=spare)
        np.multiply(
            spare, float(learning_rate * correction / (1.0 - first_decay**taken)), out=spare
        )
        np.subtract(parameters, spare, out=parameters)


class AdamState(NamedTuple):
    """What Adam remembers from one update to the next; never changed.

    Attributes:
        first: ``[S]``, decaying mean of gradients.
        second: ``[S]``, decaying mean of squared gradients.
        steps: How many steps were taken.
    """

    first: FloatArray
    second: FloatArray
    steps: int

    @classmethod
    def untrained(cls, size: int) -> "AdamState":
        """Return the state before the first step."""
        return cls(frozen(np.zeros(size)), frozen(np.zeros(size)), 0)

    @classmethod
    def after(cls, adam: FlatAdam) -> "AdamState":
        """Return what is remembered after steps that were taken in place."""
        first, second = (frozen(moment.astype(np.float64)) for moment in (adam.first, adam.second))
        return cls(first, second, int(adam.steps[0]))

    def going_on(self) -> FlatAdam:
        """Return a copy to take steps with."""
        return FlatAdam(
            self.first.copy(),
            self.second.copy(),
            np.zeros_like(self.first),
            np.array([self.steps], dtype=np.int64),
        )

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return everything as arrays by name."""
        return {
            f"{prefix}_first": self.first,
            f"{prefix}_second": self.second,
            f"{prefix}_steps": np.array([self.steps], dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str, *, size: int) -> "AdamState":
        """Return the state that ``arrays`` gave.

        Raises:
            ValueError: An array is missing or malformed.
        """
        first = required(arrays, f"{prefix}_first", (size,))
        second = required(arrays, f"{prefix}_second", (size,))
        steps = int(required(arrays, f"{prefix}_steps", (1,))[0])
        if steps < 0 or (second < 0.0).any():
            raise ValueError(f"{prefix}_steps and {prefix}_second must be at least 0")
        return cls(frozen(first), frozen(second), steps)
