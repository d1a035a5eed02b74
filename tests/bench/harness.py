"""What every bench shares: seeds, contestants side by side, a table, and figures as JSON."""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import metadata, util
from multiprocessing import get_context
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

OURS = "tau-live"
SECONDS = "seconds"
MEAN = "mean of all"
PACKAGES = {
    "dspy": "dspy",
    "gepa": "gepa",
    "gymnasium": "gymnasium",
    "mabwiser": "mabwiser",
    "numpy": "numpy",
    "river": "river",
    "sklearn": "scikit-learn",
    "stable_baselines3": "stable-baselines3",
    "torch": "torch",
    "vowpalwabbit": "vowpalwabbit",
}

Figures = Mapping[str, float]
Play = Callable[[int], Figures]
"""Plays one seed and returns what came of it, by name; must be importable by another process."""


class Contestant(NamedTuple):
    """Somebody who takes part.

    Attributes:
        name: As in the table.
        play: What it does with one seed.
        needs: Modules that it imports, of the extra ``bench``.
        part: Which part of the bench this is, where it has parts; each has its own figures.
    """

    name: str
    play: Play
    needs: tuple[str, ...] = ()
    part: str = ""

    @property
    def is_peer(self) -> bool:
        """Whether it is compared with, not tau-live itself."""
        return not self.name.startswith(OURS)


class Goal(NamedTuple):
    """What tau-live is to reach in a figure."""

    figure: str
    bound: float
    at_least: bool = True

    def met(self, value: float) -> bool:
        """Say whether a figure reaches it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A bench: who takes part, and what is to be reached.

    Attributes:
        name: The name of its module.
        contestants: In the order of the table.
        needs: Modules that the task itself imports.
        goals: For tau-live's means.
        note: What one must know to read the figures.
    """

    name: str
    contestants: Sequence[Contestant]
    needs: tuple[str, ...] = ("sklearn",)
    goals: Sequence[Goal] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured, by contestant, figure and seed."""

    bench: Bench
    seeds: Sequence[int]
    each: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)

    def add(self, contestant: str, seed: int, figures: Figures) -> None:
        """Take what came of one seed."""
        of_contestant = self.each.setdefault(contestant, {})
        for figure, value in figures.items():
            known = of_contestant.setdefault(figure, {})
            before = known.get(seed, 0.0) if figure == SECONDS else 0.0
            known[seed] = before + float(value)

    def add_means(self, parts: int) -> None:
        """Add the mean of the figures of so many parts, for those who took part in all."""
        for found in self.each.values():
            figures = [by_seed for name, by_seed in found.items() if name != SECONDS]
            for seed in self.seeds:
                values = [by_seed[seed] for by_seed in figures if seed in by_seed]
                if len(values) == parts > 1:
                    found.setdefault(MEAN, {})[seed] = sum(values) / parts

    def mean(self, contestant: str, figure: str) -> float | None:
        """Return the mean over the seeds; ``None`` where there is nothing."""
        found = self.each.get(contestant, {}).get(figure, {})
        return sum(found.values()) / len(found) if found else None

    def figures(self) -> list[str]:
        """Return the names of all figures, in the order in which they came."""
        return list(dict.fromkeys(name for found in self.each.values() for name in found))


def main(bench: Bench) -> None:
    """Run a bench as a command."""
    command(bench)()


def command(bench: Bench) -> click.Command:
    """Return a bench as a command."""

    @click.command(name=bench.name)
    @click.option("--seeds", default=5, show_default=True, help="How many seeds, from 0.")
    @click.option("--first-seed", default=0, show_default=True, help="Begin with another seed.")
    @click.option("--peers/--no-peers", default=True, help="Whether others take part.")
    @click.option("--only", multiple=True, help="Only contestants whose name has this in it.")
    @click.option("--part", "parts", multiple=True, help="Only parts whose name has this in it.")
    @click.option("--jobs", default=1, show_default=True, help="Processes at once.")
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
    def run(
        seeds: int,
        first_seed: int,
        peers: bool,
        only: tuple[str, ...],
        parts: tuple[str, ...],
        jobs: int,
        as_json: bool,
    ) -> None:
        taking_part = [
            one
            for one in bench.contestants
            if (peers or not one.is_peer) and fits(one.name, only) and fits(one.part, parts)
        ]
        check_installed(bench, taking_part)
        found = measured(bench, taking_part, range(first_seed, first_seed + seeds), jobs=jobs)
        if as_json:
            click.echo(json.dumps(as_data(found), indent=2))
        else:
            _print(found)

    run.help = f"Run the bench '{bench.name}' and print what was measured."
    return run


def measured(
    bench: Bench, contestants: Sequence[Contestant], seeds: Sequence[int], *, jobs: int = 1
) -> Measured:
    """Let every contestant play every seed, one seed after the other, and return the figures."""
    found = Measured(bench, list(seeds))
    todo = [(one, seed) for seed in seeds for one in contestants]
    with _progress(bench.name, len(todo)) as progress:
        task = progress.add_task("", total=len(todo))

        def note(contestant: str, seed: int, figures: Figures) -> None:
            found.add(contestant, seed, figures)
            told = "  ".join(f"{n} {v:.4g}" for n, v in list(figures.items())[:3])
            progress.update(task, advance=1, description=f"{contestant} seed {seed}: {told}")
            if not progress.console.is_terminal:
                progress.console.print(f"{contestant} seed {seed}: {told}", soft_wrap=True)

        if jobs == 1:
            for one, seed in todo:
                note(one.name, seed, timed(one.play, seed))
        else:
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                for name, seed, figures in _as_they_finish(pool, todo):
                    note(name, seed, figures)
    found.add_means(len({one.part for one in contestants}))
    order = {one.name: found.each[one.name] for one in contestants if one.name in found.each}
    return Measured(bench, found.seeds, order)


def timed(play: Play, seed: int) -> Figures:
    """Return the figures of one seed, and how long it took."""
    began = time.perf_counter()
    figures = play(seed)
    return {**figures, SECONDS: time.perf_counter() - began}


def as_data(found: Measured) -> dict[str, object]:
    """Return everything as plain data."""
    contestants = {
        name: {
            figure: {
                "mean": found.mean(name, figure),
                "each": [by_seed[seed] for seed in sorted(by_seed)],
            }
            for figure, by_seed in of_contestant.items()
        }
        for name, of_contestant in found.each.items()
    }
    goals = [
        {
            "figure": goal.figure,
            "goal": str(goal),
            "mean": mean,
            "met": goal.met(mean),
        }
        for goal in found.bench.goals
        if (mean := found.mean(OURS, goal.figure)) is not None
    ]
    return {
        "bench": found.bench.name,
        "seeds": list(found.seeds),
        "figures": contestants,
        "goals": goals,
        "note": found.bench.note,
        "versions": versions(),
        "machine": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
    }


def versions() -> dict[str, str]:
    """Return the version of everything that may have taken part."""
    import tau_live

    found = {OURS: tau_live.__version__}
    for module, package in PACKAGES.items():
        if util.find_spec(module) is not None:
            found[package] = metadata.version(package)
    return found


def missing(bench: Bench, contestants: Sequence[Contestant]) -> list[str]:
    """Return the packages that are not installed but needed."""
    needed = {*bench.needs, *(module for one in contestants for module in one.needs)}
    return sorted(PACKAGES[module] for module in needed if util.find_spec(module) is None)


def fits(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(part in name for part in wanted)


def check_installed(bench: Bench, contestants: Sequence[Contestant]) -> None:
    packages = missing(bench, contestants)
    if packages:
        without = missing(bench, [one for one in contestants if not one.is_peer])
        hint = "" if without else ", or leave the peers out with --no-peers"
        raise click.ClickException(
            f"{', '.join(packages)} not installed: pip install 'tau-live[bench]'{hint}"
        )


def _as_they_finish(
    pool: Executor, todo: Sequence[tuple[Contestant, int]]
) -> Iterator[tuple[str, int, Figures]]:
    futures = {pool.submit(timed, one.play, seed): (one.name, seed) for one, seed in todo}
    for future in as_completed(futures):
        name, seed = futures[future]
        yield name, seed, future.result()


def _progress(name: str, total: int) -> Progress:
    return Progress(
        TextColumn(name),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        disable=total == 0,
    )


def _print(found: Measured) -> None:
    width = None if sys.stdout.isatty() else 160
    console = Console(soft_wrap=True, width=width)
    names = list(found.each)
    figures = sorted(found.figures(), key=lambda name: (name == SECONDS, name == MEAN))
    goals = {goal.figure: goal for goal in found.bench.goals}
    table = Table(title=f"{found.bench.name}, {len(found.seeds)} seeds, mean (least to most)")
    if len(figures) > len(names) + 2:
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right")
        for figure in figures:
            title = f"{figure}, {goals[figure]}" if figure in goals else figure
            table.add_row(title, *(_cell(found, name, figure) for name in names))
    else:
        table.add_column("")
        for figure in figures:
            title = f"{figure}\n{goals[figure]}" if figure in goals else figure
            table.add_column(title, justify="right")
        for name in names:
            table.add_row(name, *(_cell(found, name, figure) for figure in figures))
    console.print(table)
    console.print(found.bench.note)
    told = ", ".join(f"{name} {version}" for name, version in versions().items())
    console.print(f"{told}; {os.cpu_count()} cores")


def _cell(found: Measured, name: str, figure: str) -> str:
    each = list(found.each[name].get(figure, {}).values())
    if not each:
        return ""
    digits = 1 if max(abs(value) for value in each) >= 20.0 else 4
    mean = f"{sum(each) / len(each):.{digits}f}"
    if len(each) == 1 or min(each) == max(each) or figure == SECONDS:
        return mean
    return f"{mean} ({min(each):.{digits}f} to {max(each):.{digits}f})"
