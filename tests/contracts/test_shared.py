"""Many processes on one store: nothing is missed behind a watermark, and one of them wins."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace as changed
from itertools import product
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from random import Random

import pytest
from msgspec.structs import replace

from tau_live.core.errors import StoreError
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import Monitor, RolloutStatus
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.contracts.making import (
    attempt,
    decision,
    policy,
    queued,
    ready,
    reward,
    rollout,
    update,
)
from tests.writes import writes

WRITERS, BATCH, LONGEST_STALL_S = 4, 16, 0.05
RACERS = 8
PAGE = 500
LONGEST_S = 1_200.0

ROUNDS = int(os.environ.get("TAU_LIVE_RL_TESTS_RACES", "15"))
"""How often each race is run; the proof runs 300."""

SECONDS = float(os.environ.get("TAU_LIVE_RL_TESTS_STREAM_S", "3"))
"""How long the writers write; the proof lets them 20 s."""

Run = Callable[..., None]


@contextmanager
def processes(run: Run, count: int, *arguments: object) -> Iterator[list[multiprocessing.Process]]:
    """Run a function in new processes, each with its number first, and wait for their end."""
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=run, args=(number, *arguments)) for number in range(count)]
    for process in started:
        process.start()
    try:
        yield started  # type: ignore[misc]
    finally:
        for process in started:
            process.join(LONGEST_S)
            process.kill()


def write(number: int, address: str, seconds: float, written: "Queue[int]") -> None:
    """Store batches of rollouts that are ready, and stall before each is committed."""
    store, random = open_at(address, busy_timeout_s=60.0), Random(number)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        ids = [f"live-{number}-{count + place}" for place in range(BATCH)]
        with store.begin():
            with store.batch(ids) as batch:
                for rollout_id in ids:
                    batch.begin_rollout(rollout(rollout_id))
                    batch.begin_attempt(attempt(rollout_id))
                    batch.add_decision(replace(decision(1, rollout_id), arm="learner", share=0.5))
                    batch.add_reward(reward(1.0, rollout_id))
                    batch.set_status(rollout_id, RolloutStatus.SUCCEEDED, at=5.0)
                    batch.mark_ready(rollout_id, total_reward=1.0)
            time.sleep(random.uniform(0.0, LONGEST_STALL_S))
        count += BATCH
    written.put(count)
    store.close()


class Readers:
    """Three readers that walk behind a watermark each, as learner, trial and costs do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.seen: Mapping[str, list[str]] = {"ready": [], "assigned": [], "rewarded": []}
        self._places = dict.fromkeys(self.seen, 0)

    def read(self) -> int:
        """Read what has come since; return how much."""
        store, places = self._store, self._places
        ready = store.rewards.ready_rollouts("model", after=places["ready"], limit=PAGE)
        assigned = store.trials.assignments("model", after=places["assigned"], limit=PAGE)
        rewarded = store.rewards.after(places["rewarded"], limit=PAGE)
        if ready:
            places["ready"] = ready[-1].rollout.ready_seq or 0
        if assigned:
            places["assigned"] = assigned[-1].place
        if rewarded:
            places["rewarded"] = rewarded[-1].seq
        self.seen["ready"].extend(one.rollout.rollout_id for one in ready)
        self.seen["assigned"].extend(one.rollout.rollout_id for one in assigned)
        self.seen["rewarded"].extend(one.rollout_id for one in rewarded)
        return len(ready) + len(assigned) + len(rewarded)


@pytest.mark.slow
def test_nothing_is_missed_behind_a_watermark(store: Store, address: str) -> None:
    readers = Readers(store)
    written: Queue[int] = multiprocessing.get_context("spawn").Queue()
    with processes(write, WRITERS, address, SECONDS, written) as writers:
        while any(writer.is_alive() for writer in writers) and written.qsize() < WRITERS:
            readers.read()
        total = sum(written.get(timeout=60.0) for _ in writers)
    while readers.read():
        pass

    assert total > WRITERS * BATCH
    for seen in readers.seen.values():
        assert (len(seen), len({*seen})) == (total, total)


def _gate(store: Store, turn: int, number: int) -> Callable[[], bool]:
    row = store.gate.load()
    return lambda: store.gate.save(
        changed(row, detail=str(number), revision=row.revision + 1), entry=None
    )


def _trial(store: Store, turn: int, number: int) -> Callable[[], bool]:
    trial = store.trials.trial("model")
    return lambda: store.trials.save(replace(trial, kept=number, revision=trial.revision + 1))


def _monitor(store: Store, turn: int, number: int) -> Callable[[], bool]:
    return lambda: store.monitors.save(Monitor(point="model", watermark=turn + 1))


def _pause(store: Store, turn: int, number: int) -> Callable[[], bool]:
    part = [*Part][turn // 2 % len(Part)]
    pause = Pause(part=part, reason="test", who=str(number), at=1.0)
    return lambda: store.pauses.begin(pause) if turn % 2 == 0 else store.pauses.end(part)


def _lease(store: Store, turn: int, number: int) -> Callable[[], bool]:
    holder = f"elsewhere:{number + 1}:1"
    return lambda: store.leases.acquire(f"lease-{turn}", holder, ttl_s=60.0) > 0


def _update(store: Store, turn: int, number: int) -> Callable[[], bool]:
    version = store.policies.next_version()

    def save() -> bool:
        try:
            store.policies.add_update(update(turn + 1), policy(version))
        except StoreError:
            return False
        return True

    return save


def _status(store: Store, turn: int, number: int) -> Callable[[], bool]:
    return lambda: bool(
        writes(store).set_status(f"running-{turn}", RolloutStatus.SUCCEEDED, at=5.0)
    )


def _claim(store: Store, turn: int, number: int) -> Callable[[], bool]:
    return lambda: store.queue.claim(f"w-{number}", at=10.0, queues=[f"queue-{turn}"]) is not None


RACES: Mapping[str, Callable[[Store, int, int], Callable[[], bool]]] = {
    "gate": _gate,
    "trial": _trial,
    "monitor": _monitor,
    "pause": _pause,
    "lease": _lease,
    "update": _update,
    "status": _status,
    "claim": _claim,
}


def race(
    number: int, address: str, rounds: int, start: Barrier, won: "Queue[tuple[str, int]]"
) -> None:
    """Try to win each round of each race."""
    store = open_at(address, busy_timeout_s=60.0)
    for name, turn in product(RACES, range(rounds)):
        start.wait(60.0)
        run = RACES[name](store, turn, number)
        start.wait(60.0)
        if run():
            won.put((name, turn))
    store.close()


@pytest.mark.slow
def test_of_all_that_try_at_once_one_wins(store: Store, address: str) -> None:
    for turn in range(ROUNDS):
        ready(store, f"live-{turn}", "model")
        writes(store).begin_rollout(rollout(f"running-{turn}"))
        store.queue.enqueue(replace(queued(f"q-{turn}"), queue=f"queue-{turn}"), at=1.0)
    spawn = multiprocessing.get_context("spawn")
    start, won = spawn.Barrier(RACERS), spawn.Queue()
    with processes(race, RACERS, address, ROUNDS, start, won):
        pass
    winners = Counter(won.get(timeout=10.0) for _ in range(won.qsize()))

    assert winners == dict.fromkeys(product(RACES, range(ROUNDS)), 1)
