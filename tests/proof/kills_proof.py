"""Processes under full load are killed at random moments: nothing that was acknowledged is lost."""

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.server import Ended, Server
from tests.proof.figures import Figure, Tier, Told
from tests.proof.kills import Known

ROUNDS = {Tier.QUICK: 25, Tier.LONG: 2_000}
ROUNDS_OF_A_STORE = 25
"""So many processes are killed on one store, before the next one is begun."""

LONGEST_S = 0.5
SEED = 5
LISTS = ("lost", "twice", "unsaid", "wrong", "refused", "orphans")


class Sums:
    """What all looks have found.

    Attributes:
        found: How many things of each kind.
        kept: What is in the stores that are done with, by table.
        slowest: The longest time to open a store again, and to be attached to it, in seconds.
        kills: Processes that were killed.
        acknowledged: Runs and rewards.
        examples: Some of what was found.
    """

    def __init__(self) -> None:
        self.found = dict.fromkeys(LISTS, 0)
        self.kept: dict[str, int] = {}
        self.slowest = {"opened_s": 0.0, "attached_s": 0.0}
        self.kills = 0
        self.acknowledged = 0
        self.examples: list[str] = []

    def died(self, ended: Ended) -> None:
        """Count the end of a process that was to be killed, or had done its work before."""
        if ended.signal == signal.SIGKILL:
            self.kills += 1
        elif ended.code:
            self.found["wrong"] += 1
            self.examples.append(f"a process ended with {ended.code}")

    def looked(self, ended: Ended) -> dict[str, int]:
        """Count what a look has found; return how much is in the store."""
        if not isinstance(ended.answer, dict):
            self.found["wrong"] += 1
            self.examples.append("a store could not be looked at")
            return {}
        for kind in LISTS:
            found = ended.answer[kind]
            self.found[kind] += len(found)
            self.examples += [f"{kind}: {one}" for one in found[:3]]
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

    def store(self, folder: Path, rounds: int, told: Told, *, done: int, of: int) -> None:
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
                self._sums.died(ended)
            known[str(number)] = _last(load)
            rewarded += _rewarded(rewards)
            counts = self._sums.looked(
                self._servers[number % 2].run(
                    "tests.proof.kills:look",
                    {"folder": str(folder), "known": known, "rewarded": rewarded},
                )
            )
            told(done + number + 1, of)
        self._sums.acknowledged += sum(map(sum, known.values())) + len(rewarded)
        for table, count in counts.items():
            self._sums.kept[table] = self._sums.kept.get(table, 0) + count

    def stop(self) -> None:
        """End the servers."""
        self._pool.shutdown()
        for server in self._servers:
            server.stop()


def prove(tier: Tier, told: Told) -> Iterator[Figure]:
    """Kill and look; the seed is fixed, the moments are as random as the machine."""
    rounds, sums = ROUNDS[tier], Sums()
    killer = Killer(random.Random(SEED), sums)
    try:
        for done in range(0, rounds, ROUNDS_OF_A_STORE):
            with tempfile.TemporaryDirectory() as folder:
                some = min(ROUNDS_OF_A_STORE, rounds - done)
                killer.store(Path(folder), some, told, done=done, of=rounds)
    finally:
        killer.stop()
    if sums.examples:
        print("\n".join(sums.examples[:20]), file=sys.stderr)
    yield Figure(3, "rounds of kill -9 under full load", rounds, at_least=rounds)
    yield Figure(3, "processes killed", sums.kills, at_least=rounds)
    yield Figure(3, "runs and rewards acknowledged before a kill", sums.acknowledged, at_least=1)
    yield Figure(3, "of them lost", sums.found["lost"], at_most=0)
    yield Figure(4, "rows there twice, and rollouts learned from twice", sums.found["twice"],
                 at_most=0)  # fmt: skip
    yield Figure(5, "stores damaged, between two states, or that could not go on",
                 sums.found["wrong"], at_most=0)  # fmt: skip
    least = None if tier is Tier.QUICK else 1
    yield Figure(5, "updates made meanwhile", sums.kept.get("updates", 0), at_least=least)
    yield Figure(5, "steps of trials made meanwhile", sums.kept.get("steps", 0), at_least=least)
    yield Figure(5, "times another policy served than the store says", sums.found["refused"],
                 at_most=0)  # fmt: skip
    yield Figure(5, "files that belong to nothing", sums.found["orphans"], at_most=0)
    yield Figure(3, "updates that learned from decisions without a stored propensity",
                 sums.found["unsaid"], at_most=0)  # fmt: skip
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
