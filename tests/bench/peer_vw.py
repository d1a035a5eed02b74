"""Vowpal Wabbit's contextual bandits as peers."""

import re

import numpy as np
from vowpalwabbit import Workspace

from tests.bench.players import Features, Options, Step

_SPECIAL = re.compile(r"[\s:|]+")


class VW:
    """``cb_explore_adf`` on the same names and values that tau-live is given.

    Args:
        arguments: How it explores and what it crosses; context is the namespace ``c``, options
            are ``a``.
        seed: For the draws from the probabilities that it gives.
    """

    def __init__(self, arguments: str, *, seed: int) -> None:
        self._vw = Workspace(f"--cb_explore_adf {arguments} --quiet --random_seed {seed + 1}")
        self._rng = np.random.default_rng(seed)

    def choose(self, options: Options, context: Features) -> tuple[int, float]:
        given = np.array(self._vw.predict(self._lines(options, context)))
        given /= given.sum()
        chosen = int(self._rng.choice(len(given), p=given))
        return chosen, float(given[chosen])

    def learn(self, step: Step, value: float) -> None:
        lines = self._lines(step.options, step.context)
        label = f"{step.chosen}:{-value:.6g}:{step.propensity:.6g}"
        lines[step.chosen + 1] = f"{label} {lines[step.chosen + 1]}"
        self._vw.learn(lines)

    def best(self, options: Options, context: Features) -> int:
        return int(np.argmax(self._vw.predict(self._lines(options, context))))

    def _lines(self, options: Options, context: Features) -> list[str]:
        return [
            f"shared |c {_text(context)}",
            *(
                f"|a {_text({'option': name, **(features or {})})}"
                for name, features in options.items()
            ),
        ]


def _text(features: Features) -> str:
    found = []
    for name, value in features.items():
        key = _SPECIAL.sub("_", name)
        if isinstance(value, (int, float)):
            if value:
                found.append(f"{key}:{float(value):.6g}")
        elif isinstance(value, str):
            found += [f"{key}={_SPECIAL.sub('_', word)}" for word in value.split()]
    return " ".join(found)
