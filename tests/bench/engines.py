"""Engines: the bootstrap of a million decisions, in one process, in two, and by Ray.

Beside the time by the clock, which other work on the machine lengthens for two processes more than
for one, each round has the processor time of the busier process: what two free cores would take,
but for the start of the processes.
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
import numpy as np

from tau_live.engines.local import Processes
from tau_live.rl.engine import Engine, InProcess
from tau_live.rl.evaluation.estimators import Ratios
from tau_live.rl.evaluation.intervals import Interval, bootstrap
from tests.bench.items import Found, print_figures
from tests.bench.timing import LEAST_ROUNDS, installed
from tests.engines.work import Deadly

DECISIONS, REPLICATES = 1_000_000, 1_000
COLUMNS = (1, 1, 1, 1, 2)
"""Of IPS, SNIPS, DM, DR and SNDR."""

Shard = TypeVar("Shard")
Result = TypeVar("Result")


def clocked(function: Callable[[Shard], Result], shard: Shard) -> tuple[int, float, Result]:
    """Return a result with the process that computed it, and the processor seconds it took."""
    began = time.process_time()
    result = function(shard)
    return os.getpid(), time.process_time() - began, result


class Clocked:
    """Measures the processor time of every process of an engine.

    Attributes:
        seconds: By process.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds: dict[int, float] = defaultdict(float)

    def map(self, function: Callable[[Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
        """Return the results in the order of the shards."""
        for process, seconds, result in self._engine.map(partial(clocked, function), shards):
            self.seconds[process] += seconds
            yield result


def tables(decisions: int) -> list[Ratios]:
    """Return estimates on that many decisions, each a rollout of its own."""
    rng = np.random.default_rng(0)
    return [
        Ratios(rng.random((decisions, width)), rng.random((decisions, width))) for width in COLUMNS
    ]


def intervals(estimates: list[Ratios], engine: Engine, replicates: int) -> list[Interval]:
    """Return the intervals of estimates."""
    return bootstrap(
        estimates, alpha=0.05, replicates=replicates, limits=(0.0, 1.0),
        rng=np.random.default_rng(1), engine=engine,
    )  # fmt: skip


def others(folder: Path) -> Iterator[Engine]:
    """Yield engines that must give the same, one of whose workers is killed."""
    yield Processes(1)
    yield Deadly(Processes(2), folder / "mark")
    if installed("ray"):
        import ray

        from tau_live.engines.ray import Ray

        for workers in (1, 2):
            yield Ray(workers)
            ray.shutdown()


def measure(
    rounds: int, *, decisions: int = DECISIONS, replicates: int = REPLICATES
) -> list[Found]:
    """Measure one process and two in turn, and count the engines that give other bits."""
    estimates = tables(decisions)
    expected = intervals(estimates, InProcess(), replicates)
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        others_ = [
            intervals(estimates, engine, replicates) != expected for engine in others(Path(folder))
        ]
    clock, busier, together = [], [], []
    different = sum(others_)
    for _ in range(rounds):
        taken, seconds = [], []
        for engine in (Clocked(InProcess()), Clocked(Processes(2))):
            began = time.perf_counter()
            different += intervals(estimates, engine, replicates) != expected
            taken.append(time.perf_counter() - began)
            seconds.append(engine.seconds)
        alone = sum(seconds[0].values())
        clock.append(taken[1] / taken[0])
        busier.append(max(seconds[1].values()) / alone)
        together.append(sum(seconds[1].values()) / alone)
    work = f"{replicates:,} replicates of {decisions:,} decisions"
    return [
        Found(f"{work}: 2 processes, share of one's time by the clock", clock, 0.65),
        Found("processor time of the busier of them, share of one's", busier, 0.65),
        Found("processor time of both, share of one's", together, 1.2),
        Found(f"of {len(others_) + 2} engines: those with another bit", [different], 0),
    ]


@click.command(name="engines", help="What engines take, and that all of them give the same bits")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("engines", "Engines for computing", measure(rounds), as_json=as_json)


if __name__ == "__main__":
    main()
