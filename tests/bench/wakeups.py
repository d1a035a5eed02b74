"""How late an asyncio host wakes up while tau-live writes and learns, beside the same host alone.

Ten agents of the host run all the time, in both cases: each does a little work of its own, waits,
and ends after eight steps. With tau-live each run is recorded, decides once, and is rewarded, so
that updates run one after the other. A clock of the host sleeps for a millisecond, over and over.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import tau_live
from tau_live.core.settings import Learner, Settings
from tests.bench.timing import Goal, Measured, Timed, command, interleaved

SECONDS = 3.0
AGENTS = 10
STEPS = 8
PAUSE_S = 0.01
TICK_S = 0.001
OPTIONS = ("small", "middle", "large")
LIMIT = Goal(5.0, faster=False)
PEER = "the same, without tau-live"


def measure(rounds: int, *, seconds: float = SECONDS) -> list[Measured]:
    """Return the 99.9th percentile of each round, and the longest delay of all."""
    with _on():
        found = interleaved(
            "wake-up, 99.9th percentile",
            _late(seconds, watched=True, quantile=99.9),
            _late(seconds, watched=False, quantile=99.9),
            peer=PEER,
            rounds=rounds,
            goal=LIMIT,
        )
        longest = interleaved(
            "wake-up, the latest",
            _late(seconds, watched=True, quantile=100.0),
            _late(seconds, watched=False, quantile=100.0),
            peer=PEER,
            rounds=rounds,
            goal=None,
        )
    return [found, longest]


@contextmanager
def _on() -> Iterator[None]:
    before = os.environ.get("TAU_LIVE_RL")
    os.environ["TAU_LIVE_RL"] = "1"
    try:
        with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
            store = Path(folder) / "store.sqlite"
            tau_live.attach(Settings(store=store, stream="bench", learner=Learner.THREAD))
            try:
                yield
            finally:
                tau_live.detach()
    finally:
        if before is None:
            del os.environ["TAU_LIVE_RL"]
        else:
            os.environ["TAU_LIVE_RL"] = before


def _late(seconds: float, *, watched: bool, quantile: float) -> Timed:
    """Return what measures how late the host's clock is, in seconds."""

    def late() -> float:
        if not watched:
            tau_live.flush(60.0)  # what is still to be written belongs to the other side
        delays = asyncio.run(_host(seconds, _recorded if watched else _alone))
        return float(np.percentile(delays, quantile))

    return late


async def _host(seconds: float, run: Callable[[int], object]) -> list[float]:
    stop = asyncio.Event()
    agents = [asyncio.create_task(_agent(number, stop, run)) for number in range(AGENTS)]
    delays = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await asyncio.sleep(TICK_S)
        delays.append(max(time.perf_counter() - began - TICK_S, 1e-6))
    stop.set()
    await asyncio.gather(*agents)
    return delays


async def _agent(number: int, stop: asyncio.Event, run: Callable[[int], object]) -> None:
    while not stop.is_set():
        for _ in range(STEPS):
            await asyncio.sleep(PAUSE_S)
        run(number)
        number += AGENTS


def _alone(number: int) -> object:
    return OPTIONS[number % len(OPTIONS)]


def _recorded(number: int) -> object:
    with tau_live.run("ticket") as run:
        context = {"length": number % 7 / 7.0, "hour": number % 24 / 24.0}
        chosen = run.decide("model", OPTIONS, context=context, default="small")
        run.reward(float(chosen.option == OPTIONS[number % len(OPTIONS)]))
        return chosen


main = command("wakeups", "How late a host wakes up", measure)

if __name__ == "__main__":
    main()
