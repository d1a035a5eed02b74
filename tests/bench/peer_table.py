"""A table of means as a peer: one for each context and option, with epsilon-greedy choices."""

from collections import defaultdict

import numpy as np

from tests.bench.players import Features, Options, Step


class MeanTable:
    """The mean reward of each option in each context; numbers are cut into three.

    Args:
        epsilon: The share of choices made by chance.
        seed: For those.
    """

    def __init__(self, epsilon: float, *, seed: int) -> None:
        self._epsilon = epsilon
        self._rng = np.random.default_rng(seed)
        self._sums: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])

    def choose(self, options: Options, context: Features) -> tuple[int, float]:
        if self._rng.random() < self._epsilon:
            return int(self._rng.integers(len(options))), 1.0
        return self.best(options, context), 1.0

    def learn(self, step: Step, value: float) -> None:
        found = self._sums[_cell(step.context), list(step.options)[step.chosen]]
        found[0] += value
        found[1] += 1.0

    def best(self, options: Options, context: Features) -> int:
        cell = _cell(context)
        known = [self._sums[cell, name] for name in options]
        means = [total / count if count else np.inf for total, count in known]
        return int(self._rng.choice(np.flatnonzero(np.array(means) == max(means))))


def _cell(context: Features) -> tuple[object, ...]:
    return tuple(
        (name, round(value) if isinstance(value, float) else value)
        for name, value in sorted(context.items())
    )
