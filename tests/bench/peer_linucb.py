"""LinUCB in twenty lines as a peer: on the names and values that tau-live is given."""

import numpy as np

from tests.bench.players import Features, Options, Step
from tests.bench.vectors import FloatArray, entries

WIDTH = 512


class LinUCB:
    """A ridge regression for each option (Li et al. 2010, arXiv:1003.0146, algorithm 1).

    Args:
        alpha: How much it explores.
        seed: For ties.
    """

    def __init__(self, alpha: float, *, seed: int) -> None:
        self._alpha, self._rng = alpha, np.random.default_rng(seed)
        self._places: dict[str, int] = {"": 0}
        self._inverse: dict[str, FloatArray] = {}
        self._sums: dict[str, FloatArray] = {}

    def choose(self, options: Options, context: Features) -> tuple[int, float]:
        x = self._vector(context)
        scores = [self._mean(x, n) + self._alpha * np.sqrt(x @ self._of(n, x) @ x) for n in options]
        return int(self._rng.choice(np.flatnonzero(np.array(scores) == max(scores)))), 1.0

    def learn(self, step: Step, value: float) -> None:
        x, name = self._vector(step.context), list(step.options)[step.chosen]
        inverse = self._of(name, x)
        ahead = inverse @ x
        inverse -= np.outer(ahead, ahead) / (1.0 + x @ ahead)
        self._sums[name][: len(x)] += value * x

    def best(self, options: Options, context: Features) -> int:
        x = self._vector(context)
        return int(np.argmax([self._mean(x, name) for name in options]))

    def _mean(self, x: FloatArray, name: str) -> float:
        inverse = self._of(name, x)
        return float(x @ inverse @ self._sums[name][: len(x)])

    def _of(self, name: str, x: FloatArray) -> FloatArray:
        if name not in self._inverse:
            self._inverse[name], self._sums[name] = np.eye(WIDTH), np.zeros(WIDTH)
        return self._inverse[name][: len(x), : len(x)]

    def _vector(self, context: Features) -> FloatArray:
        found = [(0, 1.0)]
        for name, value in entries(context):
            place = self._places.setdefault(name, min(len(self._places), WIDTH - 1))
            found.append((place, value))
        x = np.zeros(min(WIDTH, len(self._places)))
        for place, value in found:
            x[place] += value
        return x
