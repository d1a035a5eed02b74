"""Features as vectors, for peers that take nothing else."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Vectors:
    """Features as vectors; all of them are known in advance, which only helps the peers.

    Every name has a place of its own, numbers are scaled to [0, 1], texts become their words
    (a short one is a category), and a constant 1 comes last.

    Args:
        samples: All that will come, or enough of it.
    """

    def __init__(self, samples: Iterable[Mapping[str, object]]) -> None:
        low: dict[str, float] = {}
        high: dict[str, float] = {}
        for sample in samples:
            for name, value in entries(sample):
                low[name] = min(low.get(name, value), value)
                high[name] = max(high.get(name, value), value)
        self._places = {name: place for place, name in enumerate(sorted(low))}
        names = list(self._places)
        self._low = np.array([min(low[name], 0.0) for name in names])
        spread = np.array([high[name] for name in names]) - self._low if names else np.zeros(0)
        self._spread = np.where(spread > 0.0, spread, 1.0)

    @property
    def width(self) -> int:
        """How long a vector is."""
        return len(self._places) + 1

    def of(self, features: Mapping[str, object]) -> FloatArray:
        """Return ``[width]`` the features; a name that was never seen is left out."""
        found = np.zeros(self.width)
        for name, value in entries(features):
            place = self._places.get(name)
            if place is not None:
                found[place] = (value - self._low[place]) / self._spread[place]
        found[-1] = 1.0
        return found


def entries(features: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of features; a text is one for each of its words."""
    for name, value in features.items():
        if isinstance(value, (int, float)):
            yield name, float(value)
        elif isinstance(value, str):
            for word in value.split():
                yield f"{name}={word}", 1.0
