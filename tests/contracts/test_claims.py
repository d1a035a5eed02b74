"""Workers that are killed at random: each task is done once, and none waits while one is free."""

import multiprocessing
import os
import time
from collections import Counter
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import pytest

from tau_live.core.records import AttemptStatus, RolloutConfig, RolloutQuery, RolloutStatus
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.contracts.making import queued

TASKS = int(os.environ.get("TAU_LIVE_RL_TESTS_TASKS", "120"))
"""How many tasks are done; the proof has 20,000."""

WORKERS = int(os.environ.get("TAU_LIVE_RL_TESTS_WORKERS", "4"))
"""How many work at once; the proof has 32."""

LONGEST_S, KILL_EVERY_S = 1_200.0, 1.0
CONFIG = RolloutConfig(max_attempts=1_000, retry_on=(AttemptStatus.UNRESPONSIVE,))
WAITING = (RolloutStatus.QUEUING, RolloutStatus.REQUEUING)


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
    found = store.rollouts.query(RolloutQuery(statuses=WAITING, limit=4)).rollouts
    return {rollout.rollout_id for rollout in found}


def done_in(store: Store) -> int:
    return store.rollouts.query(RolloutQuery(statuses=(RolloutStatus.SUCCEEDED,), limit=0)).total


@pytest.mark.slow
def test_workers_that_are_killed_do_each_task_once(
    store: Store, address: str, tmp_path: Path
) -> None:
    spawn, random = multiprocessing.get_context("spawn"), Random(3)
    with store.begin():
        for number in range(TASKS):
            store.queue.enqueue(queued(f"task-{number}", CONFIG))

    def start(number: int) -> BaseProcess:
        process = spawn.Process(target=work, args=(number, address, tmp_path / f"w-{number}"))
        process.start()
        return process

    workers = [start(number) for number in range(WORKERS)]
    kills, began = 0, time.monotonic()
    while done_in(store) < TASKS and time.monotonic() - began < LONGEST_S:
        time.sleep(random.uniform(0.0, 2.0 * KILL_EVERY_S))
        victim = random.randrange(WORKERS)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = start(victim)
        kills += 1
    took_s = time.monotonic() - began
    for worker in workers:
        worker.kill()
        worker.join()
    lines = [
        line.split() for file in tmp_path.glob("w-*") for line in file.read_text().splitlines()
    ]
    done = Counter(task for what, task in lines if what == "done")
    ended = store.rollouts.query(RolloutQuery(statuses=(RolloutStatus.SUCCEEDED,))).rollouts
    succeeded = [
        sum(one.status is AttemptStatus.SUCCEEDED for one in store.rollouts.attempts(task))
        for task in (rollout.rollout_id for rollout in ended)
    ]

    print(f"{TASKS / took_s:.0f} tasks/s by {WORKERS} workers, {kills} of which were killed")
    assert [task for what, task in lines if what == "free"] == []
    assert (kills > 0, succeeded) == (True, [1] * TASKS)
    assert max(done.values()) == 1
