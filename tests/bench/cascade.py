"""Three classifiers of different price, and what fixed rules over them are worth."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

MODELS = ("small", "middle", "large")
PRICES = (0.02, 0.08, 0.23)
"""What an answer costs, where a right one is worth 1."""

TAUGHT = 300
TAUGHT_MIDDLE = 100
HELD_OUT = 400


class Answers(NamedTuple):
    """What three classifiers say of images that none of them was taught on.

    Attributes:
        pixels: ``[N, 64]``, in [0, 16].
        said: ``[3, N]``, the digit that each says.
        right: ``[3, N]``, whether that is right.
        confidence: ``[3, N]``, the probability that it gives to what it says.
        margin: ``[3, N]``, by how much that is above its second thought.
    """

    pixels: FloatArray
    said: npt.NDArray[np.int64]
    right: npt.NDArray[np.bool_]
    confidence: FloatArray
    margin: FloatArray

    def at(self, places: slice) -> "Answers":
        """Return some of them."""
        return Answers(
            self.pixels[places],
            self.said[:, places],
            self.right[:, places],
            self.confidence[:, places],
            self.margin[:, places],
        )


def answers(seed: int) -> tuple[Answers, Answers]:
    """Return the images of the stream and those held out, answered by each model."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 1]).permutation(len(labels))
    taught, rest = order[:TAUGHT], order[TAUGHT:]
    models = (
        DecisionTreeClassifier(max_depth=6, random_state=0).fit(pixels[taught], labels[taught]),
        LogisticRegression(max_iter=500).fit(
            pixels[taught[:TAUGHT_MIDDLE]] / 16.0, labels[taught[:TAUGHT_MIDDLE]]
        ),
        SVC(gamma=0.001).fit(pixels[taught], labels[taught]),
    )
    probabilities = [
        models[0].predict_proba(pixels[rest]),
        models[1].predict_proba(pixels[rest] / 16.0),
        _softmax(models[2].decision_function(pixels[rest])),
    ]
    said = np.array(
        [model.classes_[p.argmax(1)] for model, p in zip(models, probabilities, strict=True)]
    )
    ranked = [np.sort(p, axis=1) for p in probabilities]
    found = Answers(
        pixels[rest],
        said.astype(np.int64),
        said == labels[rest],
        np.array([p[:, -1] for p in ranked]),
        np.array([p[:, -1] - p[:, -2] for p in ranked]),
    )
    return found.at(slice(HELD_OUT, None)), found.at(slice(None, HELD_OUT))


class Cascade(NamedTuple):
    """A fixed rule: which models are asked in turn, and how sure one must be to be believed."""

    models: tuple[int, ...]
    least: tuple[float, ...]
    by_margin: bool

    def worth(self, found: Answers) -> float:
        """Return the mean of right minus cost."""
        sure = found.margin if self.by_margin else found.confidence
        is_open = np.ones(len(found.pixels), dtype=np.bool_)
        total = np.zeros(len(found.pixels))
        for place, model in enumerate(self.models):
            total[is_open] -= PRICES[model]
            last = place == len(self.models) - 1
            stops = is_open if last else is_open & (sure[model] >= self.least[place])
            total[stops] += found.right[model][stops]
            is_open &= ~stops
        return float(total.mean())


def best_cascade(found: Answers) -> Cascade:
    """Return the best rule in hindsight, models alone included."""
    return max(_cascades(found), key=lambda cascade: cascade.worth(found))


def _cascades(found: Answers) -> Iterator[Cascade]:
    for models in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for by_margin in (False, True):
            sure = found.margin if by_margin else found.confidence
            steps = [np.quantile(sure[model], np.linspace(0.0, 1.0, 26)) for model in models[:-1]]
            for least in product(*steps):
                yield Cascade(models, tuple(map(float, least)), by_margin)


def _softmax(scores: FloatArray) -> FloatArray:
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exps / exps.sum(axis=1, keepdims=True))
