"""Drift: the digits, until one day each means another option; how soon is it as good as before?"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.bench.digits import Digits, digits, vectors
from tests.bench.digits import answered as answered_at
from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.peers import peers
from tests.bench.players import EachStep, Learner, Player, ours

BEFORE = 3_594
"""Decisions before: two passes."""

AFTER = 600
"""Decisions of each part that is looked at."""

VW_ARGUMENTS = (
    "--synthcover -q ca -l 2",
    "--synthcover -q ca -l 4",
    "--squarecb -q ca --gamma_scale 30 -l 2",
    "--bag 5 -q ca -l 2",
)
ALPHAS = {"ucb": (0.3, 1.0), "ts": (0.1,)}


def permuted(labels: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the labels with every digit meaning another one."""
    order = rng.permutation(10)
    return np.roll(order, 1)[np.argsort(order)][labels]


def figures(
    player: Player, task: Digits, *, seed: int, before: int = BEFORE, after: int = AFTER
) -> Figures:
    """Return the share right before, in the first decisions after the change and the next."""
    rng = np.random.default_rng([seed, 4])
    changed = task._replace(labels=permuted(task.labels, rng))
    order = np.concatenate([rng.permutation(len(task.labels)) for _ in range(4)])
    right = [
        answered_at(player, task if number < before else changed, int(place))
        for number, place in enumerate(order[: before + 2 * after])
    ]
    earlier = float(np.mean(right[before - after : before]))
    first = float(np.mean(right[before : before + after]))
    second = float(np.mean(right[before + after :]))
    return {
        "before": earlier,
        f"first {after} after": first,
        f"next {after} after": second,
        "share of before": second / earlier if earlier else 0.0,
    }


def play_ours(seed: int, *, before: int = BEFORE, after: int = AFTER) -> Figures:
    """Play tau-live with default settings."""
    with ours(seed) as player:
        return figures(player, digits(seed), seed=seed, before=before, after=after)


def play_peer(make: Callable[[Digits, int], Learner], seed: int) -> Figures:
    """Play a peer."""
    task = digits(seed)
    learner = make(task, seed)
    return figures(EachStep(lambda _: learner), task, seed=seed)


BENCH = Bench(
    name="drift",
    goals=(Goal("share of before", 0.9),),
    contestants=(
        Contestant(OURS, play_ours),
        *peers(play_peer, vectors, alphas=ALPHAS, arguments=VW_ARGUMENTS),
    ),
    note=(
        f"After {BEFORE} decisions every digit means another option, untold; what counts is the "
        f"share of the earlier reward in the second {AFTER} decisions after that. Peers play with "
        "several settings; the best of them in hindsight is what counts."
    ),
)

if __name__ == "__main__":
    main(BENCH)
