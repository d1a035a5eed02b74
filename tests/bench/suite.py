"""The suite: streams of four kinds through the public door, beside what is known for each.

python -m tests.bench.suite --jobs 2              an hour
python -m tests.bench.suite --jobs 2 --seeds 5    what is published
python -m tests.bench.suite --quick --jobs 2
python -m tests.bench.suite --first-seed 100 --part pairs --only tau-live
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, product
from math import inf
from statistics import fmean, stdev
from typing import NamedTuple
from unittest.mock import patch

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from tau_live.decisions import policies
from tau_live.learn.learner import Learner as LearnerOfStore
from tau_live.rl.config import PPOConfig
from tau_live.rl.policy import PolicyConfig
from tau_live.runtime import build
from tests.bench.harness import (
    OURS,
    Bench,
    Contestant,
    Figures,
    Measured,
    as_data,
    check_installed,
    fits,
    measured,
)
from tests.bench.players import EachStep, Features, Learner, Options, Player, ours
from tests.bench.tasks import TASKS, Task, task_of
from tests.bench.vectors import Vectors

KINDS: Mapping[str, Sequence[str]] = {
    "data sets": (
        "digits", "wine", "breast cancer", "segments", "phishing", "bananas", "lamps",
        "20 classes", "docstrings",
    ),
    "tables": ("poor habit", "pairs", "rare", "many", "clicks"),
    "several steps": (
        "support", "escalation", "plan and 3 steps", "chain, all of 3", "chain, 3 to 5 steps",
    ),
    "changes": ("permuted", "broken", "outage", "drift"),
}  # fmt: skip

SCRATCH = tuple(name for name in TASKS if name not in {*chain.from_iterable(KINDS.values())})
"""Tasks to choose defaults by, with seeds from 100."""

QUICK = 600
"""Runs of each task in the quick tier."""

FIRST = 500
SETTLED = 1_000
"""Runs after which nothing fixed may be better in any seed."""

VW_ARGUMENTS = (
    "--squarecb -q ca --gamma_scale 30 -l 2",
    "--cover 4 -q ca -l 2",
    "--synthcover -q ca -l 2",
    "--bag 5 -q ca -l 2",
    "--epsilon 0.05 -q ca -l 2",
    "--squarecb -q ca -q cc --cubic cca --gamma_scale 100 -l 0.5",
)
UCB_ALPHAS = (0.1, 0.3, 1.0)
TS_ALPHAS = (0.1, 0.3)
WIDE = "docstrings"
"""A task of 530 words, where LinTS is left out: its draws take a quarter of an hour for a seed."""
TABLE = (0.05,)
TWENTY = (0.3,)
SB3_STEPS = (64, 256)
"""Decisions between two updates of Stable-Baselines3, whose default, 2,048, is half of a task."""


class Fixed:
    """Always chooses the same option at a decision point."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self.chosen = chosen
        self.met: dict[str, Options] = {}

    def begin(self) -> None: ...

    def decide(
        self, point: str, options: Options, context: Features, *, default: str | None = None
    ) -> str:
        self.met.setdefault(point, options)
        wanted = self.chosen.get(point, "")
        return wanted if wanted in options else next(iter(options))

    def earn(self, value: float) -> None: ...

    def end(self, *, cut_off: bool = False) -> str:
        return ""

    def reward(self, run: str, value: float | None) -> None: ...

    def best(self, point: str, options: Options, context: Features) -> str:
        return self.decide(point, options, context)


def earned(task: Task, player: Player, seed: int) -> tuple[list[float], list[float]]:
    """Return what each run was worth, and what the best choice would have been.

    A reward is known some runs later, or never, as the task says.
    """
    rng = np.random.default_rng([seed, 7])
    due: dict[int, list[tuple[str, float]]] = {}
    worth, best = [], []
    for number in range(task.runs):
        player.begin()
        score, reward = task.play(player, number)
        worth.append(score.worth)
        best.append(score.best)
        run, when = player.end(), number + int(rng.integers(*task.delay))
        if rng.random() >= task.never:
            due.setdefault(when, []).append((run, reward))
        for known, value in due.pop(number, []):
            player.reward(known, value)
    return worth, best


def figures(name: str, worth: Sequence[float], best: Sequence[float]) -> Figures:
    """Return the figures of a stream."""
    return {
        name: fmean(worth),
        f"{name}, first {FIRST}": fmean(worth[:FIRST]),
        f"{name}, last {FIRST}": fmean(worth[-FIRST:]),
        f"{name}, after {SETTLED}": fmean(worth[SETTLED:] or worth[-FIRST:]),
        f"{name}, regret": sum(best) - sum(worth),
    }


def play_ours(name: str, seed: int, *, most: int | None = None) -> Figures:
    """Play tau-live with default settings."""
    with ours(seed) as player:
        return figures(name, *earned(task_of(name, seed, most=most), player, seed))


def play_without(part: str, name: str, seed: int, *, most: int | None = None) -> Figures:
    """Play tau-live without a part of how it learns."""
    configs = {
        "PPO": PPOConfig(least_decisions=inf),
        "fading": PPOConfig(fading=0.0),
    }
    ppo = configs.get(part, PPOConfig())
    shapes = {"network": {"net_width": 0}, "kernels": {"kernels": 0}}
    with (
        patch.object(build, "Learner", partial(LearnerOfStore, ppo=ppo)),
        patch.object(policies, "PolicyConfig", partial(PolicyConfig, **shapes.get(part, {}))),
        ours(seed, window=0 if part == "window" else None) as player,
    ):
        return figures(name, *earned(task_of(name, seed, most=most), player, seed))


def play_peer(
    make: Callable[[Task, str, int], Learner], name: str, seed: int, *, most: int | None = None
) -> Figures:
    """Play a peer, with a learner for each decision point."""
    task = task_of(name, seed, most=most)
    player = EachStep(lambda point: make(task, point, seed))
    return figures(name, *earned(task, player, seed))


def play_sb3(steps: int, name: str, seed: int, *, most: int | None = None) -> Figures:
    """Play Stable-Baselines3's PPO, which hears of every reward at once: it cannot wait for one."""
    from tests.bench.peer_sb3_steps import Steps

    task = task_of(name, seed, most=most)
    points = {point: len(options) for point, options in offers(task).items()}
    vectors = {point: Vectors(task.contexts(point)) for point in points}
    player = Steps(points, vectors, seed=seed, steps=steps)
    at_once = task_of(name, seed, most=most)._replace(delay=(0, 1), never=0.0)
    found = figures(name, *earned(at_once, player, seed))
    player.stop()
    return found


def offers(task: Task) -> Mapping[str, Options]:
    """Return what each decision point offers, seen in its first runs, which are played for that."""
    first = Fixed({})
    for number in range(20):
        task.play(first, number)
    return first.met


def play_fixed(name: str, seed: int, *, most: int | None = None) -> Figures:
    """Play what always chooses the same, the best of all such in hindsight."""
    met = offers(task_of(name, seed, most=most))
    options = [[(point, name) for name in found] for point, found in met.items()]
    each = [
        figures(name, *earned(task_of(name, seed, most=most), Fixed(dict(chosen)), seed))
        for chosen in product(*options)
    ]
    return {figure: max(one[figure] for one in each) for figure in each[0]}


def linear(kind: str, alpha: float, task: Task, point: str, seed: int) -> Learner:
    """Return MABWiser's LinUCB or LinTS."""
    from tests.bench.peer_mabwiser import Linear

    return Linear(
        kind,
        alpha,
        contexts=Vectors(task.contexts(point)),
        options=Vectors(task.options) if task.options else None,
        seed=seed,
    )


def twenty_lines(alpha: float, _task: Task, _point: str, seed: int) -> Learner:
    """Return a LinUCB of twenty lines."""
    from tests.bench.peer_linucb import LinUCB

    return LinUCB(alpha, seed=seed)


def table(epsilon: float, _task: Task, _point: str, seed: int) -> Learner:
    """Return a table of means."""
    from tests.bench.peer_table import MeanTable

    return MeanTable(epsilon, seed=seed)


def vw(arguments: str, _task: Task, _point: str, seed: int) -> Learner:
    """Return Vowpal Wabbit."""
    from tests.bench.peer_vw import VW

    return VW(arguments, seed=seed)


PEERS: Mapping[str, tuple[Callable[[Task, str, int], Learner], tuple[str, ...]]] = {
    **{f"LinUCB {alpha}": (partial(linear, "ucb", alpha), ("mabwiser",)) for alpha in UCB_ALPHAS},
    **{f"LinTS {alpha}": (partial(linear, "ts", alpha), ("mabwiser",)) for alpha in TS_ALPHAS},
    **{f"twenty lines {alpha}": (partial(twenty_lines, alpha), ()) for alpha in TWENTY},
    **{f"table {epsilon}": (partial(table, epsilon), ()) for epsilon in TABLE},
    **{
        f"VW {arguments.split()[0].removeprefix('--')}{' cubic' * ('cubic' in arguments)}": (
            partial(vw, arguments),
            ("vowpalwabbit",),
        )
        for arguments in VW_ARGUMENTS
    },
}
SB3 = ("stable_baselines3", "gymnasium")
FIXED = "best fixed choice"
WITHOUT = {part: f"without {part}" for part in ("PPO", "network", "kernels", "fading", "window")}
"""What an ablation leaves out, one at a time."""


def contestants(
    names: Iterable[str], most: int | None, *, ablation: bool = False
) -> list[Contestant]:
    """Return everybody, once for each task; for an ablation, tau-live without parts of itself."""
    found = []
    for name in names:
        found.append(Contestant(OURS, partial(play_ours, name, most=most), part=name))
        if ablation:
            found += [
                Contestant(title, partial(play_without, part, name, most=most), part=name)
                for part, title in WITHOUT.items()
            ]
            continue
        found.append(Contestant(FIXED, partial(play_fixed, name, most=most), part=name))
        found += [
            Contestant(title, partial(play_peer, make, name, most=most), needs, name)
            for title, (make, needs) in PEERS.items()
            if not (name == WIDE and title.startswith("LinTS"))
        ]
        if name in KINDS["several steps"]:
            found += [
                Contestant(f"SB3 {steps}", partial(play_sb3, steps, name, most=most), SB3, name)
                for steps in SB3_STEPS
            ]
    return found


class Verdict(NamedTuple):
    """How tau-live did in a task.

    Attributes:
        task: Its name.
        ours: The mean reward of tau-live.
        peer: Who was best of the others, each with the setting that was best in hindsight;
            tau-live itself if there are none.
        theirs: Its mean reward.
        error: The standard error of the difference, seed by seed; 0 with one seed.
        first: The mean of our first runs, and that of the peer that was best in them.
        last: The same of the last runs.
        regret: Ours, to the best choice of each run.
        worst: The least that a seed earned above the best fixed choice, once settled.
    """

    task: str
    ours: float
    peer: str
    theirs: float
    error: float
    first: tuple[float, float]
    last: tuple[float, float]
    regret: float
    worst: float

    @property
    def ahead(self) -> float:
        """By how much tau-live is better than the best peer."""
        return self.ours - self.theirs


def verdict(found: Measured, name: str) -> Verdict | None:
    """Compare tau-live with everybody in a task; ``None`` if it took no part."""
    if found.mean(OURS, name) is None:
        return None

    def mean(who: str, figure: str) -> float:
        value = found.mean(who, figure)
        return -np.inf if value is None else value

    def best(figure: str) -> str:
        others = (who for who in found.each if who != OURS)
        return max(others, key=lambda who: mean(who, figure), default=OURS)

    def each(who: str, figure: str) -> list[float]:
        by_seed = found.each.get(who, {}).get(figure, {})
        return [by_seed[seed] for seed in sorted(by_seed)]

    peer = best(name)
    gains = [a - b for a, b in zip(each(OURS, name), each(peer, name), strict=False)]
    settled = f"{name}, after {SETTLED}"
    first, last = f"{name}, first {FIRST}", f"{name}, last {FIRST}"
    fixed = zip(each(OURS, settled), each(FIXED, settled), strict=False)
    return Verdict(
        name,
        mean(OURS, name),
        peer,
        mean(peer, name),
        stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0,
        (mean(OURS, first), mean(best(first), first)),
        (mean(OURS, last), mean(best(last), last)),
        mean(OURS, f"{name}, regret"),
        min((a - b for a, b in fixed), default=0.0),
    )


@click.command(name="suite")
@click.option("--seeds", default=2, show_default=True, help="How many seeds.")
@click.option("--first-seed", default=0, show_default=True, help="Begin with another seed.")
@click.option("--only", multiple=True, help="Only contestants whose name has this in it.")
@click.option("--part", "parts", multiple=True, help="Only tasks whose name has this in it.")
@click.option("--quick", is_flag=True, help=f"At most {QUICK} runs of each task.")
@click.option("--scratch", is_flag=True, help="The tasks that defaults are chosen by, instead.")
@click.option("--ablation", is_flag=True, help="Instead of peers, tau-live without a part of it.")
@click.option("--jobs", default=1, show_default=True, help="Processes at once.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def suite(
    seeds: int,
    first_seed: int,
    only: tuple[str, ...],
    parts: tuple[str, ...],
    jobs: int,
    *,
    quick: bool,
    scratch: bool,
    ablation: bool,
    as_json: bool,
) -> None:
    """Play every task of the suite and print how tau-live did beside the best peer."""
    names = SCRATCH if scratch else [*chain.from_iterable(KINDS.values())]
    taking_part = [
        one
        for one in contestants(names, QUICK if quick else None, ablation=ablation)
        if fits(one.name, only) and fits(one.part, parts)
    ]
    bench = Bench(name="suite", contestants=taking_part, needs=("sklearn", "river"))
    check_installed(bench, taking_part)
    found = measured(bench, taking_part, range(first_seed, first_seed + seeds), jobs=jobs)
    verdicts = [compared for name in names if (compared := verdict(found, name)) is not None]
    if ablation and not as_json:
        show_ablation(found, names)
    elif as_json:
        data = {**as_data(found), "verdicts": [one._asdict() for one in verdicts]}
        click.echo(json.dumps(data, indent=2))
    else:
        show(verdicts)


def show(verdicts: Sequence[Verdict]) -> None:
    """Print the verdicts as a table, and what is to be reached."""
    grid = Table(
        "task", "tau-live", "best peer", "", "ahead", "first 500", "last 500", "regret",
        "worst seed",
    )  # fmt: skip
    for one in verdicts:
        grid.add_row(
            one.task,
            f"{one.ours:.3f}",
            f"{one.theirs:.3f}",
            one.peer,
            f"{one.ahead:+.3f} ± {one.error:.3f}",
            f"{one.first[0]:.3f} / {one.first[1]:.3f}",
            f"{one.last[0]:.3f} / {one.last[1]:.3f}",
            f"{one.regret:.0f}",
            f"{one.worst:+.3f}",
        )
    console = Console(width=160)
    console.print(grid)
    level = sum(one.ahead >= -one.error for one in verdicts)
    better = sum(one.ahead > one.error for one in verdicts)
    safe = sum(one.worst >= 0.0 for one in verdicts)
    first = sum(one.first[0] >= one.first[1] for one in verdicts)
    count = len(verdicts)
    console.print(f"level or ahead in {level} of {count} (all), ahead in {better} (half)")
    console.print(f"no seed below the best fixed choice in {safe} of {count} (all)")
    console.print(f"first {FIRST} runs at least as good in {first} of {count} (three quarters)")


def show_ablation(found: Measured, names: Iterable[str]) -> None:
    """Print what tau-live earns in each task without a part of itself, and the means."""
    who = [OURS, *WITHOUT.values()]
    grid = Table("task", *who)
    rows = [(name, [found.mean(one, name) for one in who]) for name in names]
    whole = [(name, [value for value in row if value is not None]) for name, row in rows]
    whole = [(name, row) for name, row in whole if len(row) == len(who)]
    for name, row in whole:
        grid.add_row(name, *(f"{value:.3f}" for value in row))
    grid.add_row("mean", *(f"{fmean(row[at] for _, row in whole):.4f}" for at in range(len(who))))
    Console(width=120).print(grid)


if __name__ == "__main__":
    suite()
