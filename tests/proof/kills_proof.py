"""Processes under full load are killed at random moments: nothing that was acknowledged is lost."""

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.server import Ended, Server
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.kills import Known

ROUNDS = {Tier.QUICK: 25, Tier.LONG: 2_000}
ROUNDS_OF_A_STORE = 25
"""The number of processes that are killed on one store, before the next one is started."""

LONGEST_S = 0.5
SEED = 5
LISTS = ("lost", "twice", "unsaid", "wrong", "refused", "orphans")


class Sums:
    """The sums over all checks of stores.

    Attributes:
        tally: The number of faults of each kind.
        kept: The number of rows in the finished stores, by table.
        slowest: The longest time to open a store again, and to attach to it, in seconds.
        kills: The number of processes that were killed.
        acknowledged: The number of acknowledged runs and rewards.
        examples: Some of the faults, in words.
    """

    def __init__(self) -> None:
        self.tally = dict.fromkeys(LISTS, 0)
        self.kept: dict[str, int] = {}
        self.slowest = {"opened_s": 0.0, "attached_s": 0.0}
        self.kills = 0
        self.acknowledged = 0
        self.examples: list[str] = []

    def count_end(self, ended: Ended) -> None:
        """Count the end of a process that was to be killed, or had done its work before."""
        if ended.signal == signal.SIGKILL:
            self.kills += 1
        elif ended.code:
            self.tally["wrong"] += 1
            self.examples.append(f"a process ended with {ended.code}")

    def count_look(self, ended: Ended) -> dict[str, int]:
        """Count the faults of a check; return the number of rows in the store."""
        if not isinstance(ended.answer, dict):
            self.tally["wrong"] += 1
            self.examples.append("a store could not be looked at")
            return {}
        for kind in LISTS:
            entries = ended.answer[kind]
            self.tally[kind] += len(entries)
            self.examples += [f"{kind}: {entry}" for entry in entries[:3]]
        for kind, slowest in self.slowest.items():
            self.slowest[kind] = max(slowest, ended.answer[kind])
        counts: dict[str, int] = ended.answer["counts"]
        return counts


class Killer:
    """Two servers of children, and what is known of the store that they work on."""

    def __init__(self, rng: random.Random, sums: Sums) -> None:
        self._servers = [Server("tests.proof.kills") for _ in range(2)]
        self._pool = ThreadPoolExecutor(2)
        self._rng = rng
        self._sums = sums

    def store(self, folder: Path, rounds: int, progress: Progress, *, done: int, of: int) -> None:
        """Kill processes on a new store, and look at it after each round."""
        known: Known = {}
        rewarded: list[str] = []
        counts: dict[str, int] = {}
        for number in range(rounds):
            loads = self._pool.submit(
                self._servers[0].run,
                "tests.proof.kills:load",
                {"folder": str(folder), "run": str(number), "early": number % 4 == 0},
                kill_after_s=self._rng.uniform(0.0, LONGEST_S),
            )
            before = {run: known[run] for run in list(known)[-2:]}
            rewards = self._servers[1].run(
                "tests.proof.kills:rewards",
                {"folder": str(folder), "known": before},
                kill_after_s=self._rng.uniform(0.0, LONGEST_S),
            )
            load = loads.result()
            for ended in (load, rewards):
                self._sums.count_end(ended)
            known[str(number)] = _last(load)
            rewarded += _rewarded(rewards)
            counts = self._sums.count_look(
                self._servers[number % 2].run(
                    "tests.proof.kills:look",
                    {"folder": str(folder), "known": known, "rewarded": rewarded},
                )
            )
            progress(done + number + 1, of)
        self._sums.acknowledged += sum(map(sum, known.values())) + len(rewarded)
        for table, count in counts.items():
            self._sums.kept[table] = self._sums.kept.get(table, 0) + count

    def stop(self) -> None:
        """End the servers."""
        self._pool.shutdown()
        for server in self._servers:
            server.stop()


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Kill and look; the seed is fixed, the moments are as random as the machine."""
    rounds, sums = ROUNDS[tier], Sums()
    killer = Killer(random.Random(SEED), sums)
    try:
        for done in range(0, rounds, ROUNDS_OF_A_STORE):
            with tempfile.TemporaryDirectory() as folder:
                some = min(ROUNDS_OF_A_STORE, rounds - done)
                killer.store(Path(folder), some, progress, done=done, of=rounds)
    finally:
        killer.stop()
    if sums.examples:
        print("\n".join(sums.examples[:20]), file=sys.stderr)
    yield Figure(3, "rounds of kill -9 under full load", rounds, at_least=rounds)
    yield Figure(3, "processes killed", sums.kills, at_least=rounds)
    yield Figure(3, "runs and rewards acknowledged before a kill", sums.acknowledged, at_least=1)
    yield Figure(3, "of them lost", sums.tally["lost"], at_most=0)
    yield Figure(4, "rows there twice, and rollouts learned from twice", sums.tally["twice"],
                 at_most=0)  # fmt: skip
    yield Figure(5, "stores damaged, between two states, or that could not go on",
                 sums.tally["wrong"], at_most=0)  # fmt: skip
    least = None if tier is Tier.QUICK else 1
    yield Figure(5, "updates made meanwhile", sums.kept.get("updates", 0), at_least=least)
    yield Figure(5, "steps of trials made meanwhile", sums.kept.get("steps", 0), at_least=least)
    yield Figure(5, "times another policy served than the store says", sums.tally["refused"],
                 at_most=0)  # fmt: skip
    yield Figure(5, "files that belong to nothing", sums.tally["orphans"], at_most=0)
    yield Figure(3, "updates that learned from decisions without a stored propensity",
                 sums.tally["unsaid"], at_most=0)  # fmt: skip
    yield Figure(3, "slowest opening and checking of a store after a kill, s",
                 sums.slowest["opened_s"], at_most=2.0)  # fmt: skip
    yield Figure(3, "slowest start of tau-live after a kill, s", sums.slowest["attached_s"],
                 at_most=2.0)  # fmt: skip


def _last(load: Ended) -> list[int]:
    """Return how many runs of each thread a process acknowledged last."""
    lines = [line["runs"] for line in load.told if isinstance(line, dict)]
    return [int(count) for count in lines[-1]] if lines else []


def _rewarded(rewards: Ended) -> list[str]:
    return [str(key) for line in rewards.told if isinstance(line, dict) for key in line["rewarded"]]
