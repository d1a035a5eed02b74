"""What the benches of speed share: both sides in turn, medians of ratios, a table, and JSON.

Every round runs ours and the peer's one after the other, so that what else the machine does
touches both; the ratio is the median of the rounds' ratios. The clock is the processor's time, of
all threads of the process: a wall clock on a shared machine measures the neighbours.
"""

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from importlib import metadata, util
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

Timed = Callable[[], float]
"""Does the work and returns what it took, in seconds of the processor."""

LEAST_ROUNDS = 7
WIDTH = 160
PACKAGES = ("numpy", "torch", "stable-baselines3", "tianshou", "vowpalwabbit")


class Goal(NamedTuple):
    """What is to be reached.

    Attributes:
        bound: Of the ratio.
        faster: Whether the ratio says how much faster we are (at least), or which share of the
            peer's time we take (at most).
    """

    bound: float
    faster: bool

    def ratio(self, ours: float, theirs: float) -> float:
        """Return the ratio that is compared with the bound."""
        return theirs / ours if self.faster else ours / theirs

    def met(self, ratio: float) -> bool:
        """Say whether a ratio reaches it."""
        return ratio >= self.bound if self.faster else ratio <= self.bound

    def __str__(self) -> str:
        return f">= {self.bound:g}x faster" if self.faster else f"<= {self.bound:g}x its time"


class Measured(NamedTuple):
    """What was measured.

    Attributes:
        work: What was done.
        peer: Who else did it.
        ours: Seconds, one for each round.
        theirs: Seconds, one for each round; none if the peer is not installed.
        goal: What is to be reached; ``None`` only informs.
    """

    work: str
    peer: str
    ours: list[float]
    theirs: list[float]
    goal: Goal | None

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round."""
        goal = self.goal or Goal(0.0, faster=True)
        return [goal.ratio(*both) for both in zip(self.ours, self.theirs, strict=False)]

    @property
    def ratio(self) -> float | None:
        """The median of the ratios."""
        return statistics.median(self.ratios) if self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; ``None`` if that was not measured."""
        return None if self.ratio is None or self.goal is None else self.goal.met(self.ratio)

    def as_data(self) -> dict[str, object]:
        """Return everything as plain data."""
        return {
            "work": self.work,
            "peer": self.peer,
            "ours_s": statistics.median(self.ours),
            "peer_s": statistics.median(self.theirs) if self.theirs else None,
            "ratio": self.ratio,
            "rounds": self.ratios,
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
        }


def interleaved(
    work: str,
    ours: Timed,
    theirs: Timed | None,
    *,
    peer: str,
    rounds: int,
    goal: Goal | None,
) -> Measured:
    """Return what the rounds took, after one round that does not count."""
    found = Measured(work, peer, [], [], goal)
    for round_ in range(-1, rounds):
        mine = ours()
        other = None if theirs is None else theirs()
        if round_ >= 0:
            found.ours.append(mine)
            if other is not None:
                found.theirs.append(other)
    return found


def installed(module: str) -> bool:
    """Say whether a peer can be imported."""
    try:
        return util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def command(name: str, title: str, measure: Callable[[int], Sequence[Measured]]) -> click.Command:
    """Return a bench as a command.

    Args:
        name: Of the bench.
        title: Says what is measured.
        measure: Is given how many rounds, and returns what it measured.
    """

    @click.command(name=name, help=title)
    @click.option(
        "--rounds",
        default=9,
        show_default=True,
        type=click.IntRange(min=LEAST_ROUNDS),
        help="How often both sides do the work, in turn.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
    def run(rounds: int, as_json: bool) -> None:
        found = measure(rounds)
        if as_json:
            data = {
                "bench": name,
                "rounds": rounds,
                "measured": [one.as_data() for one in found],
                **machine(),
            }
            click.echo(json.dumps(data, indent=2))
        else:
            _print(title, found)

    return run


def machine() -> dict[str, object]:
    """Return what everything ran on."""
    names = [name for name in PACKAGES if installed(name.replace("-", "_"))]
    return {
        "versions": {name: metadata.version(name) for name in names},
        "machine": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
    }


def _print(title: str, found: Sequence[Measured]) -> None:
    table = Table(title=title)
    for heading in ("work", "ours", "peer", "", "ratio", "least to most", "to reach", ""):
        table.add_column(heading, justify="left" if heading in {"work", "peer"} else "right")
    for one in found:
        ratio, spread = one.ratio, one.ratios
        table.add_row(
            one.work,
            _seconds(statistics.median(one.ours)),
            one.peer,
            _seconds(statistics.median(one.theirs)) if one.theirs else "not installed",
            "" if ratio is None else f"{ratio:.3g}x",
            "" if ratio is None else f"{min(spread):.3g} to {max(spread):.3g}",
            "" if one.goal is None else str(one.goal),
            {True: "met", False: "missed", None: ""}[one.met],
        )
    console = Console(width=WIDTH)
    console.print(table)
    console.print(json.dumps(machine()), highlight=False)


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
