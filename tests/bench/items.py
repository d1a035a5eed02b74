"""Items of an optimization: what workers take of processor and memory, beside an agent.

Every figure is that of a process of its own, which leads a run with an agent that only waits. What
an item takes is the difference between many and few of them: the start is no part of it.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from tau_live.core.settings import Settings
from tests.bench.living import ROOT, rss
from tests.bench.timing import LEAST_ROUNDS, WIDTH, machine

FEW, MANY, WAITING, START = 500, 6_000, 160, 10_000
WAIT_MS = 50
WORKERS = 8
SLOTS, SHORT_WAIT_MS, LONG = 16, 20, 4_000
MB = 1e6


class Agent:
    """Waits, and answers as every row expects.

    Attributes:
        first_at: When it was called first, on the monotonic clock.
        last_at: When it answered last.
        early_rss: The memory of the process when half of the items was done.
    """

    def __init__(self) -> None:
        self.first_at = self.last_at = 0.0
        self.early_rss = 0
        self._calls = itertools.count()
        self._wait_s = 0.0
        self._early = 0

    def expect(self, items: int, *, wait_ms: int) -> None:
        """Expect that many items, and take that long for each."""
        self._early, self._wait_s = items // 2, wait_ms / 1000

    def __call__(self, row: object, resources: object, item: object) -> str:
        """Wait, and answer."""
        number = next(self._calls)
        if not number:
            self.first_at = time.monotonic()
        if number == self._early:
            self.early_rss = rss()
        time.sleep(self._wait_s)
        self.last_at = time.monotonic()
        return "yes"


agent = Agent()


class Lived(NamedTuple):
    """What a process took that led a run.

    Attributes:
        cpu_s: Processor seconds of the run.
        busy_s: Seconds from the first call of the agent to its last answer.
        first_s: Seconds until its first item began.
        grown_mb: Memory at its end, less that when half of its items was done.
    """

    cpu_s: float
    busy_s: float
    first_s: float
    grown_mb: float


def lead_run(rows: int, workers: int, wait_ms: int, helping: int, folder: Path) -> Lived:
    """Lead a run in this process, while workers of another help."""
    from tau_live.prompts.config import read_config
    from tau_live.prompts.optimizer import begin, lead, prices_of
    from tau_live.store.opening import open_at

    agent.expect(rows, wait_ms=wait_ms)
    config = {
        "optimize": [{"prompt": f"Task {n}: is it so?", "expected": "yes"} for n in range(rows)],
        "resources": {"system_prompt": "Answer yes or no."},
        "agent": "tests.bench.items:agent",
        "worker_count": workers,
        "search": {"algorithm": "none"},
    }
    file = folder / "tasks.json"
    file.write_text(json.dumps(config))
    settings = Settings(store=folder / "store.sqlite")
    began, cpu = time.monotonic(), time.process_time()
    with closing(open_at(settings.store)) as store:
        loaded = read_config(file, model=None)
        run = begin(store, loaded, file, store_path="", prices=prices_of(settings))
        other = None
        if helping:
            other = subprocess.Popen(
                [sys.executable, "-m", "tau_live.cli", "optimize", "worker",
                 "--store", str(settings.store), "--workers", str(helping)],
                cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        run = lead(store, run, loaded, settings=settings, who="bench", show=lambda _: None)
        if other is not None:
            other.wait()  # of few items it may have come too late for any
    if run.state != "completed" or run.rollouts != rows:
        raise RuntimeError(f"{run.state}: {run.rollouts} of {rows} items, {run.error}")
    grown_mb = (rss() - agent.early_rss) / MB
    busy_s, first_s = agent.last_at - agent.first_at, agent.first_at - began
    return Lived(time.process_time() - cpu, busy_s, first_s, grown_mb)


def lived(rows: int, *, workers: int = 2, wait_ms: int = 0, helping: int = 0) -> Lived:
    """Lead a run in a process of its own, and return what it took."""
    with TemporaryDirectory(prefix="tau-live-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.items", "--lead",
             str(rows), str(workers), str(wait_ms), str(helping), folder],
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
    return Lived(**json.loads(done.stdout))


class Found(NamedTuple):
    """What was measured.

    Attributes:
        what: In words, with the unit.
        each: The figure of each round.
        goal: What is to be reached.
        at_least: Whether it is a least; else it is a most.
    """

    what: str
    each: list[float]
    goal: float
    at_least: bool = False

    @property
    def found(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.each)

    @property
    def is_met(self) -> bool:
        """Whether it is reached."""
        return self.found >= self.goal if self.at_least else self.found <= self.goal


def measure(
    rounds: int, *, few: int = FEW, many: int = MANY, waiting: int = WAITING, start: int = START,
    long: int = LONG,
) -> list[Found]:  # fmt: skip
    """Measure runs of few and of many items, of one worker and of several, in turn."""
    cpu, memory, first, speedup, slots, apart = [], [], [], [], [], []
    for _ in range(rounds):
        small, large = lived(few), lived(many)
        cpu.append((large.cpu_s - small.cpu_s) / (many - few) * 1000)
        memory.append(large.grown_mb)
        alone = lived(waiting, workers=1, wait_ms=WAIT_MS)
        together = lived(waiting, workers=WORKERS, wait_ms=WAIT_MS)
        speedup.append(alone.busy_s / together.busy_s)
        first.append(lived(start).first_s)
        item_s = lived(waiting, workers=1, wait_ms=SHORT_WAIT_MS).busy_s / waiting
        one = lived(long, workers=SLOTS, wait_ms=SHORT_WAIT_MS)
        two = lived(long, workers=SLOTS // 2, wait_ms=SHORT_WAIT_MS, helping=SLOTS // 2)
        slots.append(item_s * long / one.busy_s)
        apart.append(item_s * long / two.busy_s)
    return [
        Found("ms of processor time for an item, beside the agent", cpu, 5.0),
        Found(f"{WORKERS} workers, agent of {WAIT_MS} ms: times one", speedup, 7.5, at_least=True),
        Found(f"{SLOTS} workers, agent of {SHORT_WAIT_MS} ms: times one", slots, 12, at_least=True),
        Found("the same, half of them in a second process", apart, 12, at_least=True),
        Found(f"s until the first of {start:,} items begins", first, 5.0),
        Found(f"MB of memory more after {many:,} items than after half of them", memory, 2.0),
    ]


@click.command(name="items", help="What workers take of processor and memory, beside an agent")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("items", "Items of an optimization", measure(rounds), as_json=as_json)


def print_figures(bench: str, title: str, figures: list[Found], *, as_json: bool) -> None:
    """Print figures with what is to be reached."""
    if as_json:
        measured = [
            {**figure._asdict(), "found": figure.found, "met": figure.is_met} for figure in figures
        ]
        click.echo(json.dumps({"bench": bench, "measured": measured, **machine()}, indent=2))
        return
    table = Table("what", "found", "to reach", "", title=title)
    for figure in figures:
        sign, met = ">=" if figure.at_least else "<=", "met" if figure.is_met else "missed"
        table.add_row(figure.what, f"{figure.found:,.3g}", f"{sign} {figure.goal:g}", met)
    console = Console(width=WIDTH)
    console.print(table)
    console.print(json.dumps(machine()), highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--lead"]:
        sys.modules["tests.bench.items"] = sys.modules["__main__"]  # the agent is this module's
        *numbers_, folder_ = sys.argv[2:]
        rows_, workers_, wait_ms_, helping_ = map(int, numbers_)
        found = lead_run(rows_, workers_, wait_ms_, helping_, Path(folder_))
        sys.stdout.write(json.dumps(found._asdict()))
    else:
        main()
