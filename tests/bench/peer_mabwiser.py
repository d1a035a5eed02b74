"""MABWiser's linear bandits as peers."""

import warnings

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from tests.bench.players import Features, Options, Step
from tests.bench.vectors import FloatArray, Vectors

_ONE = "one"
_WIDE = 256
"""Vectors longer than this are learned from eight at a time, as often as tau-live learns: each time
a matrix is inverted."""
_TOGETHER = 8


class Linear:
    """LinUCB or LinTS. Options without features have weights of their own.

    Options with features share one set of weights, over context crossed with option, which is
    what the bilinear forms of these algorithms do.

    Args:
        kind: ``ucb`` or ``ts``.
        alpha: How much it explores.
        contexts: Makes vectors of contexts.
        options: Makes vectors of options; ``None`` where they have no features.
        seed: For the draws of LinTS.
    """

    def __init__(
        self,
        kind: str,
        alpha: float,
        *,
        contexts: Vectors,
        options: Vectors | None = None,
        seed: int,
    ) -> None:
        make = LearningPolicy.LinUCB if kind == "ucb" else LearningPolicy.LinTS
        self._policy = make(alpha=alpha)
        self._greedy = LearningPolicy.LinGreedy(epsilon=0.0)
        self._contexts = contexts
        self._options = options
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._mab: MAB | None = None
        self._waiting: list[tuple[str, float, FloatArray]] = []

    def choose(self, options: Options, context: Features) -> tuple[int, float]:
        if self._mab is None:
            return int(self._rng.integers(len(options))), 1.0
        scores = self._scores(options, context)
        most = np.flatnonzero(scores == scores.max())
        return int(self._rng.choice(most)), 1.0

    def learn(self, step: Step, value: float) -> None:
        names = list(step.options)
        vector = self._vectors(step.options, step.context)[step.chosen][None]
        arm = names[step.chosen] if self._options is None else _ONE
        if self._mab is None:
            arms = names if self._options is None else [_ONE]
            self._mab = MAB(arms, self._policy, seed=self._seed)
            self._mab.fit([arm], [value], vector)
            return
        for name in names if self._options is None else []:
            if name not in self._mab.arms:
                self._mab.add_arm(name)
        self._waiting.append((arm, value, vector))
        if len(self._waiting) >= _TOGETHER or vector.shape[1] <= _WIDE:
            arms, values, vectors = map(list, zip(*self._waiting, strict=True))
            self._mab.partial_fit(arms, values, np.concatenate(vectors))
            self._waiting.clear()

    def best(self, options: Options, context: Features) -> int:
        if self._mab is None:
            return 0
        vectors = self._vectors(options, context)
        model = self._mab._imp.arm_to_model
        names = list(options) if self._options is None else [_ONE] * len(options)
        scores = [
            float(model[name].beta @ vector) if name in model else 0.0
            for name, vector in zip(names, vectors, strict=True)
        ]
        return int(np.argmax(scores))

    def _scores(self, options: Options, context: Features) -> FloatArray:
        vectors = self._vectors(options, context)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._options is None:
                found = self._expected(vectors[:1])[0]
                return np.array([found.get(name, np.inf) for name in options])
            return np.array([found[_ONE] for found in self._expected(vectors)])

    def _expected(self, vectors: FloatArray) -> list[dict[str, float]]:
        if self._mab is None:
            return [{}] * len(vectors)
        found = self._mab.predict_expectations(vectors)
        return found if isinstance(found, list) else [found]

    def _vectors(self, options: Options, context: Features) -> FloatArray:
        known = self._contexts.of(context)
        if self._options is None:
            return np.tile(known, (len(options), 1))
        rows = [
            np.outer(known, self._options.of({**(features or {}), "name": name})).ravel()
            for name, features in options.items()
        ]
        return np.array(rows)
