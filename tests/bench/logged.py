"""A log: what a policy is worth that was learned from rows of which somebody else chose."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.players import Features, Learner, Step, named, ours
from tests.bench.vectors import FloatArray

POINT = "choice"
OPTIONS = named([f"option {number}" for number in range(4)])

LOGGED = (0.55, 0.15, 0.15, 0.15)
"""How often the log's own policy chose each option, whatever the context."""

ROWS = (5_000, 50_000)
HELD_OUT = 2_000


class Situation(NamedTuple):
    """A context, and how likely each option succeeds in it, ``[4]``."""

    context: Features
    chances: FloatArray


def cells(seed: int) -> Iterator[Situation]:
    """Yield situations of a table: four customers, three topics, a chance for each option."""
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.2, 0.8, (4, 3, len(OPTIONS)))
    while True:
        customer, topic = int(rng.integers(4)), int(rng.integers(3))
        context = {"customer": f"customer {customer}", "topic": f"topic {topic}"}
        yield Situation(context, chances[customer, topic])


def slopes(seed: int) -> Iterator[Situation]:
    """Yield situations of five numbers, of which each option's log odds are a weighted sum."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(len(OPTIONS), 5))
    while True:
        numbers = rng.normal(size=5)
        chances = 1.0 / (1.0 + np.exp(-0.7 * (weights @ numbers)))
        yield Situation({f"x{at}": float(x) for at, x in enumerate(numbers)}, chances)


WORLDS: dict[str, Callable[[int], Iterator[Situation]]] = {"table": cells, "slopes": slopes}


def log(world: str, seed: int, rows: int) -> Iterator[tuple[Step, float]]:
    """Yield the steps of a log, and what each earned: 1 or 0."""
    rng = np.random.default_rng([seed, 1])
    for _, situation in zip(range(rows), WORLDS[world](seed), strict=False):
        chosen = int(rng.choice(len(OPTIONS), p=LOGGED))
        step = Step(OPTIONS, situation.context, chosen, LOGGED[chosen])
        yield step, float(rng.random() < situation.chances[chosen])


class Shortfall(NamedTuple):
    """By how much less than the best choice of each situation is earned, on average.

    Attributes:
        best: By what a policy finds best.
        served: By the policy as it serves, exploring.
    """

    best: float
    served: float


def short_of_oracle(
    world: str, seed: int, probabilities: Callable[[Features], FloatArray]
) -> Shortfall:
    """Return what a policy earns less than the best choices, in situations it has not seen."""
    situations = WORLDS[world](seed)
    for _ in range(max(ROWS)):
        next(situations)  # these may be in the log
    held_out = [next(situations) for _ in range(HELD_OUT)]
    best, served = [], []
    for context, chances in held_out:
        policy = probabilities(context)
        best.append(chances.max() - chances[policy.argmax()])
        served.append(chances.max() - policy @ chances)
    return Shortfall(float(np.mean(best)), float(np.mean(served)))


def play_ours(world: str, seed: int, *, rows: int = max(ROWS)) -> Figures:
    """Import a log with the command, learn from it, and measure what it finds best and serves."""
    found: dict[str, float] = {}
    for count in [few for few in ROWS if few <= rows] or [rows]:
        with ours(seed) as player:
            path = player.settings.store.with_name("log.jsonl")
            with path.open("w") as file:
                file.writelines(_line(step, reward) for step, reward in log(world, seed, count))
            _import(path, player.settings.store)
            player.settle()
            probabilities = partial(player.probabilities, POINT, OPTIONS)
            name, short = f"{world}, {count:,} rows", short_of_oracle(world, seed, probabilities)
            found |= {name: short.best, f"{name}, exploring": short.served}
    return found


def _line(step: Step, reward: float) -> str:
    names = list(step.options)
    row = {
        "options": names,
        "option": names[step.chosen],
        "propensity": step.propensity,
        "context": step.context,
        "reward": reward,
    }
    return json.dumps(row) + "\n"


def _import(path: Path, store: Path) -> None:
    command = Path(sys.executable).with_name("tau-live")
    subprocess.run(
        [command, "import-log", path, "--point", POINT, "--store", store],
        env={**os.environ, "TAU_LIVE_RL": "1"}, check=True, capture_output=True,
    )  # fmt: skip


def play_peer(
    make: Callable[[int], Learner], world: str, seed: int, *, rows: int = max(ROWS)
) -> Figures:
    """Let a peer learn from each row of a log in turn; it takes what it then finds best."""
    learner, found = make(seed), {}

    def best(context: Features) -> FloatArray:
        chosen: FloatArray = np.eye(len(OPTIONS))[learner.best(OPTIONS, context)]
        return chosen

    for count, (step, reward) in enumerate(log(world, seed, rows), 1):
        learner.learn(step, reward)
        if count in ROWS or count == rows:
            found[f"{world}, {count:,} rows"] = short_of_oracle(world, seed, best).best
    return found


def vw(arguments: str, seed: int) -> Learner:
    """Return Vowpal Wabbit, which corrects for the propensities by itself."""
    from tests.bench.peer_vw import VW

    return VW(arguments, seed=seed)


def twenty_lines(seed: int) -> Learner:
    """Return a ridge regression for each option."""
    from tests.bench.peer_linucb import LinUCB

    return LinUCB(0.0, seed=seed)


def table(seed: int) -> Learner:
    """Return a table of means."""
    from tests.bench.peer_table import MeanTable

    return MeanTable(0.0, seed=seed)


def contestants() -> Iterator[Contestant]:
    """Yield everybody, once for each world."""
    for world in WORLDS:
        yield Contestant(OURS, partial(play_ours, world), part=world)
        for name, make, needs in (
            ("VW", partial(vw, "--epsilon 0.0 -q ca"), ("vowpalwabbit",)),
            ("VW, cubic", partial(vw, "--epsilon 0.0 -q ca -q cc --cubic cca"), ("vowpalwabbit",)),
            ("ridge regressions", twenty_lines, ()),
            ("table of means", table, ()),
        ):
            yield Contestant(name, partial(play_peer, make, world), needs, world)


BENCH = Bench(
    name="logged",
    needs=(),
    goals=tuple(
        Goal(f"{world}, {rows:,} rows", bound, at_least=False)
        for world in WORLDS
        for rows, bound in zip(ROWS, (0.01, 0.005), strict=True)
    ),
    contestants=tuple(contestants()),
    note=(
        "By how much less than the best choice of each situation is earned, from 2,000 situations "
        "with known chances, by what each finds best; tau-live also as it serves, exploring."
    ),
)

if __name__ == "__main__":
    main(BENCH)
