"""The peers that learn from one step at a time, each with several settings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tests.bench.harness import Contestant, Figures
from tests.bench.players import Learner
from tests.bench.vectors import Vectors

T = TypeVar("T")
"""What a learner is made for: a task, or one of its decision points."""


def peers(
    play: Callable[[Callable[[T, int], Learner], int], Figures],
    contexts: Callable[[T, int], Vectors],
    *,
    alphas: Mapping[str, Sequence[float]],
    arguments: Sequence[str],
) -> list[Contestant]:
    """Return MABWiser's linear bandits and Vowpal Wabbit as contestants.

    Args:
        play: Plays a seed with the learners that it makes of ``T`` and the seed.
        contexts: Makes vectors of contexts, for ``T`` and a seed.
        alphas: How much the linear bandits explore, by their kind.
        arguments: What Vowpal Wabbit is started with.
    """
    return [
        *(
            Contestant(
                f"MABWiser Lin{kind.upper()} {alpha}",
                partial(play, partial(_linear, kind, alpha, contexts)),
                ("mabwiser",),
            )
            for kind, several in alphas.items()
            for alpha in several
        ),
        *(
            Contestant(f"VW {given}", partial(play, partial(_vw, given)), ("vowpalwabbit",))
            for given in arguments
        ),
    ]


def _linear(
    kind: str, alpha: float, contexts: Callable[[T, int], Vectors], of: T, seed: int
) -> Learner:
    from tests.bench.peer_mabwiser import Linear

    return Linear(kind, alpha, contexts=contexts(of, seed), seed=seed)


def _vw(arguments: str, _: object, seed: int) -> Learner:
    from tests.bench.peer_vw import VW

    return VW(arguments, seed=seed)
