"""Workers that are killed at random: each task is done once, and none waits while one is free."""

from pathlib import Path

import pytest

from tau_live.core.records import AttemptStatus
from tau_live.store.roles import Store
from tests.contracts.making import queued
from tests.proof.queue_proof import work_and_kill

TASKS, WORKERS = 120, 4


@pytest.mark.slow
def test_workers_that_are_killed_do_each_task_once(address: str, tmp_path: Path) -> None:
    worked = work_and_kill(address, tmp_path, tasks=TASKS, workers=WORKERS)

    assert worked.free == []
    assert (worked.kills > 0, worked.succeeded) == (True, [1] * TASKS)
    assert max(worked.reports.values()) == 1


def test_a_lot_is_what_waited_longest_in_its_order(store: Store) -> None:
    for number in range(5):
        store.queue.enqueue(queued(f"task-{number}"), at=1.0)

    lots = [store.queue.claim_lot("worker", limit=limit, at=2.0) for limit in (1, 3, 3, 3)]

    names = [[claim.rollout.rollout_id for claim in lot] for lot in lots]
    assert names == [["task-0"], ["task-1", "task-2", "task-3"], ["task-4"], []]
    assert {claim.attempt.number for lot in lots for claim in lot} == {1}


def test_each_task_of_a_lot_is_the_workers_and_ends_by_itself(store: Store) -> None:
    for number in range(3):
        store.queue.enqueue(queued(f"task-{number}"), at=1.0)
    lot = store.queue.claim_lot("worker", at=2.0)

    ends = [claim.finish(AttemptStatus.SUCCEEDED) for claim in lot]

    attempts = [store.rollouts.attempts(f"task-{number}") for number in range(3)]
    assert ends == ["succeeded"] * 3
    assert [(own.worker_id, own.status) for [own] in attempts] == [("worker", "succeeded")] * 3
