"""A crowd of runs at once, whose rewards come shuffled, doubled, early, and for nobody.

python -m tests.proof.crowd_play RUNS THREADS
"""

import asyncio
import gc
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import tau_live
from tau_live.core.records import decision_id_of, rollout_id_of

NAME = "crowd"
PATIENCE_S = 120.0


def rollout_id(key: str) -> str:
    """Return the id that the rollout of a key has, or will have."""
    return rollout_id_of("tau_live", f"{NAME}/{key}")


class Crowd:
    """Begins runs and hands in their rewards, and counts what it offers."""

    def __init__(self, prefix: str, seed: int) -> None:
        self.prefix = prefix
        self.chance = random.Random(seed)  # in which order rewards come
        self.refused = 0
        self.later: list[Callable[[], bool]] = []
        self.lock = threading.Lock()

    def give(self, key: str, name: str, *, decision: str | None = None) -> bool:
        """Give a reward by the run's id alone, whether or not that run has begun."""
        taken = tau_live.reward(
            float(len(key)), run=rollout_id(key), decision=decision, name=name, comment=key
        )
        if not taken:
            with self.lock:
                self.refused += 1
        return taken

    def early(self, key: str) -> None:
        """Value a run that has not begun, and a decision that was not made."""
        self.give(key, "early")
        self.give(key, "early", decision=decision_id_of(rollout_id(key), 1, 2))

    def decide(self, key: str, run: tau_live.Run) -> None:
        """Decide inside of the run, and by the door as whoever is inside of it."""
        first = run.decide("one", [f"{key}/a", f"{key}/b"])
        second = tau_live.decide("two", [f"{key}/c", f"{key}/d"])
        assert run.id == first.run == second.run == rollout_id(key), (key, first, second)

    def leave(self, key: str) -> None:
        """Keep the rewards of a run for long after it."""
        gives = [lambda name=name: self.give(key, name) for name in ("late", "twice", "twice")]
        with self.lock:
            self.later += gives

    def rest(self) -> None:
        """Give all that is left, in any order, and as much again for runs that never were."""
        self.chance.shuffle(self.later)
        for number, give in enumerate(self.later):
            give()
            if number % 3 == 0:
                self.give(f"{self.prefix}-nobody-{number // 3}", "unknown")

    async def tasks(self, runs: int) -> None:
        """Have so many runs open at once in one loop."""
        all_open = asyncio.Event()
        waiting = [runs]

        async def run_one(key: str) -> None:
            self.early(key)
            async with tau_live.run(NAME, key=key) as run:
                run.decide("one", [f"{key}/a", f"{key}/b"])
                waiting[0] -= 1
                if not waiting[0]:
                    all_open.set()
                await all_open.wait()
                second = tau_live.decide("two", [f"{key}/c", f"{key}/d"])
                assert second.run == rollout_id(key)
            self.leave(key)
            if self.chance.random() < 0.01:
                await asyncio.sleep(0)

        await asyncio.gather(*(run_one(f"{self.prefix}-task-{n}") for n in range(runs)))

    def threads(self, number: int, runs: int) -> None:
        """Have so many threads at work, each with several runs in it."""
        together = threading.Barrier(number)

        def work(thread: int) -> None:
            together.wait(PATIENCE_S)
            for at in range(runs):
                key = f"{self.prefix}-thread-{thread}-{at}"
                self.early(key)
                with tau_live.run(NAME, key=key) as run:
                    self.decide(key, run)
                self.leave(key)
                time.sleep(0.001)

        started = [threading.Thread(target=work, args=(n,)) for n in range(number)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()


def resident_mb() -> float:
    """Return the resident memory of the process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Let two crowds of the same size come, one after the other."""
    runs, number = int(sys.argv[1]), int(sys.argv[2])
    assert tau_live.attach() is not None
    sizes = [resident_mb()]
    keys: list[str] = []
    refused, raised = 0, []
    for prefix in ("first", "second"):
        crowd = Crowd(prefix, seed=len(keys))
        try:
            asyncio.run(crowd.tasks(runs))
            crowd.threads(number, max(1, runs // (4 * number)))
            crowd.rest()
        except Exception as error:  # this is what is looked for
            raised.append(repr(error))
        flushed = tau_live.flush(PATIENCE_S)
        refused += crowd.refused
        keys += [f"{prefix}-task-{n}" for n in range(runs)]
        each = max(1, runs // (4 * number))
        keys += [f"{prefix}-thread-{n}-{at}" for n in range(number) for at in range(each)]
        gc.collect()
        sizes.append(resident_mb())
    facts = {"keys": keys, "refused": refused, "raised": raised, "flushed": flushed, "mb": sizes}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
