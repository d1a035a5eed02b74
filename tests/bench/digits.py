"""Digits as a bandit: ten options, 64 pixels, 1 for the right one; nobody says which it was."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.peers import peers
from tests.bench.players import EachStep, Features, Learner, Player, named, ours
from tests.bench.vectors import Vectors

PASSES = 3
OPTIONS = named([str(digit) for digit in range(10)])
VW_ARGUMENTS = (
    "--synthcover -q ca -l 2",
    "--synthcover -q ca -l 4",
    "--squarecb -q ca --gamma_scale 30 -l 2",
    "--bag 5 -q ca -l 2",
    "--softmax --lambda 10 -q ca -l 4",
)
ALPHAS = {"ucb": (0.1, 0.3, 0.5), "ts": (0.05, 0.1)}


class Digits(NamedTuple):
    """Images in the order of one seed."""

    contexts: Sequence[Features]
    labels: npt.NDArray[np.int64]


def digits(seed: int, *, limit: int | None = None) -> Digits:
    """Return the images, shuffled."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 1]).permutation(len(labels))[:limit]
    contexts = [{f"p{n}": float(v) for n, v in enumerate(row)} for row in pixels[order]]
    return Digits(contexts, labels[order].astype(np.int64))


def played(player: Player, task: Digits, *, seed: int, passes: int = PASSES) -> list[list[bool]]:
    """Return for every pass which answers were right, each pass in an order of its own."""
    rng = np.random.default_rng([seed, 2])
    found = []
    for number in range(passes):
        order = rng.permutation(len(task.labels)) if number else np.arange(len(task.labels))
        found.append([answered(player, task, int(place)) for place in order])
    return found


def answered(player: Player, task: Digits, place: int) -> bool:
    """Let it name one image, and say whether that was right."""
    player.begin()
    option = player.decide("digit", OPTIONS, task.contexts[place])
    right = int(option) == task.labels[place]
    player.reward(player.end(), float(right))
    return bool(right)


def figures(passes: Sequence[Sequence[bool]]) -> Figures:
    """Return the share that was right, live, pass by pass."""
    return {f"pass {n}": float(np.mean(right)) for n, right in enumerate(passes, 1)}


def play_ours(seed: int, *, limit: int | None = None, passes: int = PASSES) -> Figures:
    """Play tau-live with default settings."""
    task = digits(seed, limit=limit)
    with ours(seed) as player:
        return figures(played(player, task, seed=seed, passes=passes))


def play_peer(make: Callable[[Digits, int], Learner], seed: int) -> Figures:
    """Play a peer."""
    task = digits(seed)
    learner = make(task, seed)
    return figures(played(EachStep(lambda _: learner), task, seed=seed))


def vectors(task: Digits, seed: int) -> Vectors:
    """Return what makes vectors of the images."""
    return Vectors(task.contexts)


def play_told(seed: int) -> Figures:
    """Play somebody who is told the right answer every time: river's softmax regression."""
    from tests.bench.peer_river import Told

    task = digits(seed)
    learner = Told(Vectors(task.contexts))
    rng = np.random.default_rng([seed, 2])
    found = []
    for number in range(PASSES):
        order = rng.permutation(len(task.labels)) if number else np.arange(len(task.labels))
        found.append(
            [learner.answered(task.contexts[n], str(task.labels[n])) for n in order.tolist()]
        )
    return figures(found)


BENCH = Bench(
    name="digits",
    goals=(Goal("pass 1", 0.83), Goal("pass 3", 0.96)),
    contestants=(
        Contestant(OURS, play_ours),
        *peers(play_peer, vectors, alphas=ALPHAS, arguments=VW_ARGUMENTS),
        Contestant("told every answer (river)", play_told, ("river",)),
    ),
    note=(
        "Share right while learning, each of 1,797 images once a pass. Peers play with several "
        "settings; the best of them in hindsight is what counts."
    ),
)

if __name__ == "__main__":
    main(BENCH)
