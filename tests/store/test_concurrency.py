"""Forty writers on one file, threads and processes: nothing is lost, nobody hears of a lock."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier, Thread

import pytest

from tau_live.core.records import RolloutStatus
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, queued
from tests.store.writing import write
from tests.writes import writes

THREADS, PROCESSES, ROUNDS, QUEUED = 28, 12, 8, 100

WAITING = """
import sys
from tau_live.core.records import RolloutStatus
from tau_live.store.sqlite.store import SqliteStore

store = SqliteStore.open(sys.argv[1])
print("ready", flush=True)
found = store.queue.wait(
    ["live-1"], statuses=[RolloutStatus.SUCCEEDED], timeout_s=30.0
)
print(*(r.rollout_id for r in found), flush=True)
"""

DYING = """
import sys
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun

store = SqliteStore.open(sys.argv[1])
begun(store, "live-whole", owner="dying")
with store.begin():
    begun(store, "live-half", owner="dying")
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _all_at_once(path: Path) -> dict[str, int]:
    """Let every writer write at the same time; return how many rollouts each has claimed."""
    start = Barrier(THREADS + 1)
    claims: dict[str, int] = {}

    def work(name: str) -> None:
        mine = SqliteStore.open(path)
        start.wait(timeout=60)
        claims[name] = write(mine, name, rounds=ROUNDS)
        mine.close()

    threads = [Thread(target=work, args=(f"t{number}",)) for number in range(THREADS)]
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                _started("-m", "tests.store.writing", str(path), name, str(ROUNDS))
            )
            for name in (f"p{number}" for number in range(PROCESSES))
        }
        for thread in threads:
            thread.start()
        ready = [_line(process) for process in processes.values()]
        start.wait(timeout=60)
        for process in processes.values():
            _go(process)
        for name, process in processes.items():
            claims[name] = int(_line(process))
    for thread in threads:
        thread.join(timeout=60)
    assert ready == ["ready"] * PROCESSES
    return claims


@pytest.mark.slow
def test_forty_writers_lose_nothing_and_never_hear_of_a_lock(
    path: Path, store: SqliteStore
) -> None:
    with store.begin():
        for number in range(QUEUED):
            store.queue.enqueue(queued(f"q-{number}"), at=1.0)

    claims = _all_at_once(path)

    rounds = (THREADS + PROCESSES) * ROUNDS
    rows = list(store.export())
    assert len(claims) == THREADS + PROCESSES
    assert sum(claims.values()) == QUEUED
    assert Counter(row["table"] for row in rows) == {
        "rollouts": rounds + QUEUED,
        "attempts": rounds + QUEUED,
        "spans": rounds * 3 + 2 * rounds + QUEUED,
        "decisions": rounds,
        "rewards": rounds,
    }
    assert store.counters.counts() == {"rounds": rounds}
    assert {row["ready_seq"] for row in rows if row.get("ready_seq")} == set(range(1, rounds + 1))
    assert store.rewards.ready_count("model", after=0) == rounds


@pytest.mark.slow
def test_a_process_that_waits_is_woken_by_another(path: Path, store: SqliteStore) -> None:
    begun(store, "live-1")

    with _started("-c", WAITING, str(path)) as waiting:
        ready = _line(waiting)
        writes(store).set_status("live-1", RolloutStatus.SUCCEEDED, at=9.0)
        found = _line(waiting)

    assert (ready, found) == ("ready", "live-1")


@pytest.mark.slow
def test_what_a_killed_process_had_not_committed_is_gone_and_the_rest_is_there(
    path: Path, store: SqliteStore
) -> None:
    with _started("-c", DYING, str(path)) as dying:
        ready = _line(dying)
        dying.send_signal(signal.SIGKILL)

    begun(store, "live-after")
    assert ready == "ready"
    assert store.rollouts.open_rollouts("dying") == ["live-whole"]
    assert store.rollouts.find_rollout("live-half") is None
