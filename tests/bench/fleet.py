"""A store in PostgreSQL beside one in a file: rollouts a second of 1, 8 and 32 writing processes.

Each process stores batches of 64 rollouts of one decision, three spans and one reward, as a writer
does. The server, its clients and the file share the same processors; the file's commits
survive the death of a process, the server's that of the machine.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
from msgspec.structs import replace

from tau_live.core.records import RolloutStatus, WholeRollout
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.bench.items import Found, print_figures
from tests.bench.timing import LEAST_ROUNDS
from tests.contracts.making import attempt, decision, reward, rollout, span
from tests.postgres import server

BATCH, SPANS, SECONDS = 64, 3, 3.0
GOALS = {1: 0.5, 8: 1.5, 32: 1.2}
"""The share of the file's rate to reach, by the number of clients."""

LONGEST_GOAL = 0.5


class Rate(NamedTuple):
    """What writing processes reached together.

    Attributes:
        rollouts_s: Rollouts a second.
        longest_s: The longest batch, in seconds.
    """

    rollouts_s: float
    longest_s: float


def whole(rollout_id: str) -> WholeRollout:
    """Return a rollout that is over."""
    return WholeRollout(
        rollout=rollout(rollout_id),
        attempt=attempt(rollout_id),
        decisions=[replace(decision(1, rollout_id), arm="learner", share=0.5)],
        rewards=[reward(1.0, rollout_id)],
    )


def write(
    number: int, address: str, seconds: float, start: Barrier, written: "Queue[tuple[int, float]]"
) -> None:
    """Store batches for some seconds, once every process has stored two."""
    store, count, longest_s = open_at(address, busy_timeout_s=60.0), 0, 0.0
    for warm in range(2):
        store_batch(store, [f"warm-{number}-{warm}-{place}" for place in range(BATCH)])
    start.wait(120.0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        store_batch(store, [f"live-{number}-{count + place}" for place in range(BATCH)])
        longest_s = max(longest_s, time.monotonic() - began)
        count += BATCH
    written.put((count, longest_s))
    store.close()


def store_batch(store: Store, ids: list[str]) -> None:
    """Store rollouts that are over, and ready to be learned from."""
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.add_whole(whole(id_))
            batch.add_spans([span(f"s-{place}", id_, ended_at=3.0) for place in range(SPANS)])
            batch.set_status(id_, RolloutStatus.SUCCEEDED, at=5.0)
            batch.mark_ready(id_, total_reward=1.0)


def rate(address: str, clients: int, seconds: float) -> Rate:
    """Let so many processes write to a new store."""
    spawn = multiprocessing.get_context("spawn")
    start, written = spawn.Barrier(clients), spawn.Queue()
    processes = [
        spawn.Process(target=write, args=(number, address, seconds, start, written))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    found = [written.get(timeout=300.0) for _ in processes]
    for process in processes:
        process.join()
    return Rate(sum(count for count, _ in found) / seconds, max(longest for _, longest in found))


def measure(
    rounds: int,
    *,
    seconds: float = SECONDS,
    clients: tuple[int, ...] = (*GOALS,),
    advance: Callable[[], None] = lambda: None,
) -> list[Found]:
    """Measure both in turn, each round in new stores."""
    ratios: dict[int, list[float]] = {count: [] for count in clients}
    longest: list[float] = []
    rates: dict[int, list[float]] = {count: [] for count in clients}
    for _ in range(rounds):
        for count in clients:
            with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
                file = rate(f"sqlite:{Path(folder) / 'store.sqlite'}", count, seconds)
            database = rate(server().new_database(), count, seconds)
            ratios[count].append(database.rollouts_s / file.rollouts_s)
            rates[count].append(database.rollouts_s)
            if count == max(clients):
                longest.append(database.longest_s / file.longest_s)
            advance()
    return [
        *(
            Found(
                f"{count} clients: rollouts a second, share of the file's "
                f"({median(rates[count]):,.0f} a second)",
                ratios[count], GOALS.get(count, 1.0), at_least=True,
            )
            for count in clients
        ),
        Found(f"{max(clients)} clients: longest batch, share of the file's", longest, LONGEST_GOAL),
    ]  # fmt: skip


@click.command(name="fleet", help="A store in PostgreSQL beside one in a file")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("fleet", "A store in PostgreSQL", measure(rounds), as_json=as_json)


if __name__ == "__main__":
    main()
