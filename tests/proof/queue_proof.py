"""Workers of one queue in a database, killed at random: each task is done once."""

import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from tau_live.core.records import AttemptStatus, RolloutConfig, RolloutQuery, RolloutStatus
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tau_live.store.sql.queue import LOT
from tests.contracts.making import queued
from tests.postgres import Server, why_absent
from tests.proof.figures import Figure, Progress, Tier

TASKS = {Tier.QUICK: 150, Tier.LONG: 20_000}
WORKERS = {Tier.QUICK: 4, Tier.LONG: 32}
LOTS = {Tier.QUICK: 3, Tier.LONG: 15}
"""Rounds in which claims of one and lots are compared."""

CLAIMED = 16 * LOT
"""How many tasks each round claims in either way."""

TOGETHER = 100
LONGEST_S, KILL_EVERY_S, LOOK_S = 1_200.0, 1.0, 0.05
CONFIG = RolloutConfig(max_attempts=1_000, retry_on=(AttemptStatus.UNRESPONSIVE,))

FIRST = """
select rollout_id from queue join rollouts on seq = rollout_seq
where due_at <= :now and status in ('queuing', 'requeuing') order by position limit 4
"""

DONE = "select coalesce(sum(total), 0) from status_counts where status = 'succeeded'"


class Worked(NamedTuple):
    """What workers did that were killed meanwhile.

    Attributes:
        kills: How many of them were killed.
        seconds: How long it took.
        succeeded: How many attempts of each rollout that succeeded did so.
        reports: How often each task was reported as done.
        free: The tasks that were free when a claim answered that none is.
    """

    kills: int
    seconds: float
    succeeded: list[int]
    reports: Counter[str]
    free: list[str]


def work(number: int, address: str, report: Path) -> None:
    """Claim tasks and do them; report each that is done, and each that was free all the same."""
    with closing(open_at(address, busy_timeout_s=60.0)) as store, report.open("a") as reported:
        while True:
            before = waiting(store)
            claim = store.queue.claim(f"worker-{number}")
            if claim is None:
                lines = [f"free {rollout_id}" for rollout_id in before & waiting(store)]
            else:
                rollout_id = claim.rollout.rollout_id
                store.queue.finish(rollout_id, claim.attempt.number, AttemptStatus.SUCCEEDED)
                lines = [f"done {rollout_id}"]
            reported.write("".join(f"{line}\n" for line in lines))
            reported.flush()


def waiting(store: Store) -> set[str]:
    """Return the first tasks that wait."""
    rows = store._connection.rows(FIRST, {"now": store.now()})
    return {row["rollout_id"] for row in rows}


def work_and_kill(address: str, folder: Path, *, tasks: int, workers: int) -> Worked:
    """Let workers do tasks, and kill one after the other at random."""
    spawn, random = multiprocessing.get_context("spawn"), Random(3)
    with closing(open_at(address, busy_timeout_s=60.0)) as store:
        enqueue(store, "task", tasks)

        def start(number: int) -> BaseProcess:
            process = spawn.Process(target=work, args=(number, address, folder / f"w-{number}"))
            process.start()
            return process

        running = [start(number) for number in range(workers)]
        kills, began = 0, time.monotonic()
        kill_at = began
        while done_in(store) < tasks and time.monotonic() - began < LONGEST_S:
            time.sleep(LOOK_S)
            if time.monotonic() >= kill_at:
                kill_at = time.monotonic() + random.uniform(0.0, 2.0 * KILL_EVERY_S)
                victim = random.randrange(workers)
                running[victim].kill()
                running[victim].join()
                running[victim] = start(victim)
                kills += 1
        took_s = time.monotonic() - began
        for worker in running:
            worker.kill()
            worker.join()
        ended = store.rollouts.query(
            RolloutQuery(statuses=(RolloutStatus.SUCCEEDED,), limit=None)
        ).rollouts
        succeeded = [
            sum(one.status is AttemptStatus.SUCCEEDED for one in store.rollouts.attempts(task))
            for task in (rollout.rollout_id for rollout in ended)
        ]
    lines = [line.split() for file in folder.glob("w-*") for line in file.read_text().splitlines()]
    return Worked(
        kills,
        took_s,
        succeeded,
        Counter(task for what, task in lines if what == "done"),
        [task for what, task in lines if what == "free"],
    )


def enqueue(store: Store, name: str, tasks: int) -> None:
    """Put tasks into the queue, some in each transaction."""
    for first in range(0, tasks, TOGETHER):
        with store.begin():
            for number in range(first, min(first + TOGETHER, tasks)):
                store.queue.enqueue(queued(f"{name}-{number}", CONFIG))


def done_in(store: Store) -> int:
    """Return how many tasks are done."""
    return store._connection.count(DONE)


def claims_a_second(store: Store, limit: int) -> float:
    """Return how fast a worker claims tasks in lots of a size; so many must wait."""
    began = time.perf_counter()
    claimed = 0
    while claimed < CLAIMED:
        claimed += len(store.queue.claim_lot("worker", limit=limit))
    return claimed / (time.perf_counter() - began)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Remove a server at last."""
    try:
        yield server
    finally:
        server.remove()


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Kill workers, and compare claims of one task with those of lots."""
    if why_absent() is not None:
        return
    progress(0, 2)
    with running(Server(in_memory=True)) as server, tempfile.TemporaryDirectory() as folder:
        done = work_and_kill(
            server.new_database(), Path(folder), tasks=TASKS[tier], workers=WORKERS[tier]
        )  # it is workers that are killed: a disk would add nothing but time
    progress(1, 2)
    ratios, singly, in_lots = [], [], []
    with running(Server()) as server, closing(open_at(server.new_database())) as store:
        for number in range(LOTS[tier]):
            enqueue(store, f"round-{number}", 2 * CLAIMED)
            singly.append(claims_a_second(store, 1))
            in_lots.append(claims_a_second(store, LOT))
            ratios.append(in_lots[-1] / singly[-1])
    progress(2, 2)
    yield Figure(4, "workers of one queue", WORKERS[tier], at_least=WORKERS[tier])
    yield Figure(4, "of them killed at random", done.kills, at_least=1)
    yield Figure(4, "tasks of the queue that were done", len(done.succeeded), at_least=TASKS[tier])
    twice = sum(count != 1 for count in [*done.succeeded, *done.reports.values()])
    yield Figure(4, "of them done more than once", twice, at_most=0)
    yield Figure(4, "claims that answered none while a task was free", len(done.free), at_most=0)
    yield Figure(4, "tasks a second, each claimed and ended", len(done.succeeded) / done.seconds)
    yield Figure(4, "claims a second of one worker, one by one", median(singly))
    yield Figure(4, f"the same in lots of {LOT}", median(in_lots))
    yield Figure(4, "times as many in lots, median", median(ratios), at_least=4.0)
