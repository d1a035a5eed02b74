"""river's softmax regression, told the right answer every time: what bandits do not know."""

from river import linear_model, optim

from tests.bench.players import Features
from tests.bench.vectors import Vectors


class Told:
    """Online softmax regression with full information.

    Args:
        vectors: Scales its features as those of the other peers.
        rate: Its learning rate.
    """

    def __init__(self, vectors: Vectors, *, rate: float = 0.2) -> None:
        self._vectors = vectors
        self._model = linear_model.SoftmaxRegression(optimizer=optim.SGD(rate))

    def answered(self, features: Features, label: str) -> bool:
        """Say whether it knew the answer, and tell it."""
        known = dict(enumerate(self._vectors.of(features).tolist()))
        right = self._model.predict_one(known) == label
        self._model.learn_one(known, label)
        return bool(right)
