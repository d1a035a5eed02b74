"""Vowpal Wabbit's ``cb_explore_adf`` as a peer in time: from plain dicts to a kept choice."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from vowpalwabbit import Workspace

Features = Mapping[str, float]


class DecidePeer:
    """Chooses as one would who keeps the choice for learning later.

    Args:
        arguments: Besides ``--cb_explore_adf``.
        seed: Of what is drawn.
    """

    def __init__(self, arguments: str = "", *, seed: int = 0) -> None:
        self._vw = Workspace(f"--cb_explore_adf {arguments} --quiet")
        self._rng = random.Random(seed)
        self.kept: deque[tuple[list[str], int, float]] = deque(maxlen=1_000)

    def decide(self, options: Mapping[str, Features], context: Features) -> str:
        """Format an example, predict, draw, and keep what learning needs."""
        names = list(options)
        lines = _lines(options, context)
        probabilities = self._vw.predict(lines)
        place = self._rng.choices(range(len(names)), probabilities)[0]
        self.kept.append((lines, place, probabilities[place]))
        return names[place]

    def predicting(
        self, given: Sequence[tuple[Mapping[str, Features], Features]]
    ) -> Callable[[int], object]:
        """Return what predicts one of these, which are parsed already."""
        examples = [self._vw.parse(_lines(options, context)) for options, context in given]
        return lambda place: self._vw.predict(examples[place])

    def learn(self, cost: float) -> None:
        """Learn from all that was kept, each at this cost, and keep nothing."""
        for lines, place, probability in self.kept:
            lines[place + 1] = f"0:{cost}:{probability} {lines[place + 1]}"
            self._vw.learn(lines)
        self.kept.clear()


def _lines(options: Mapping[str, Features], context: Features) -> list[str]:
    return [
        f"shared |c {_text(context)}",
        *(f"|a {_text(features)}" for features in options.values()),
    ]


def _text(features: Features) -> str:
    return " ".join(f"{name}:{value}" for name, value in features.items())
