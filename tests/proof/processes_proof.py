"""Processes that fork, spawn, serve, learn together and end in every way, at the worst moment."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tau_live.operate.status import now_learning
from tau_live.runtime.runtime import EXIT_S
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import environ
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.watching import QUIET, Kept, Watched, kept, played

BIRTHS: dict[Tier, list[tuple[str, ...]]] = {
    Tier.QUICK: [("forks", "4", "after"), ("server", "preload", "20")],
    Tier.LONG: [
        ("forks", "60", "after"),
        ("forks", "15", "before"),
        *(("ways", method) for method in ("fork", "spawn", "forkserver")),
        *(("server", preload, "300") for preload in ("preload", "each")),
    ],
}
"""Plays of children, with their arguments."""

ENDS = {
    Tier.QUICK: ("sigterm handled", "asyncio", "os._exit", "raise"),
    Tier.LONG: (
        *("end", "sys.exit", "raise", "thread", "handlers", "sigint", "asyncio", "deciding"),
        *("sigterm", "sigterm handled", "os._exit", "updating"),
    ),
}
CODES = {"raise": 1, "sigint": -2, "asyncio": -2, "sigterm": -15}
"""The exit codes of processes that do not end with 0, with and without us."""

SUDDEN = frozenset({"sigterm", "os._exit"})
"""Ends after which nobody is asked: what was acknowledged is there, and no more is promised."""

RUNS = {Tier.QUICK: 500, Tier.LONG: 20_000}
TANGLED_CALLS = {Tier.QUICK: 400, Tier.LONG: 12_000}
ROUNDS = {Tier.QUICK: 1, Tier.LONG: 10}
LEASE_S = 2.0
PATIENCE_S = 600.0
"""The seconds after which a play hangs."""


class Left(NamedTuple):
    """How a process ended, and what it left.

    Attributes:
        how: The play's name for the end.
        process: The process.
        contents: The contents of the store, after another process has opened it.
    """

    how: str
    process: Watched
    contents: Kept

    @property
    def unaccounted(self) -> float:
        """The number of events that were offered and neither stored nor counted."""
        lost = sum(n for name, n in self.contents.counts.items() if name.startswith("dropped_"))
        return 4.0 * (20 + self.process.number("offered")) - self.contents.rows - lost


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Let processes be born, learn together, get into each other's way, and end."""
    parts = (_births, _ends, _tangled, _updaters, _locked)
    with ThreadPoolExecutor(3) as pool:  # much of it is waiting
        for number, figures in enumerate(pool.map(lambda part: list(part(tier)), parts), start=1):
            progress(number, len(parts))
            yield from figures


def _births(tier: Tier) -> Iterator[Figure]:
    with ThreadPoolExecutor(2) as pool:
        processes = list(pool.map(_born, BIRTHS[tier]))
    runs = sum(len(process.names("keys")) for process, _ in processes)
    yield Figure(3, "runs in and beside children of every kind", runs, at_least=10)
    hung = sum(process.code is None for process, _ in processes)
    yield Figure(1, "processes with children that hung", hung, at_most=0)
    failed = sum(process.failures() + (process.code != 0) for process, _ in processes)
    yield Figure(1, "children that raised, or could not store", failed, at_most=0)
    alone = sum(process.number("alone") for process, _ in processes if "alone" in process.facts)
    yield Figure(1, "children left alone by a busy store, which said so", alone, at_most=runs / 50)
    lost = sum(contents.missing(process.names("keys")) for process, contents in processes)
    yield Figure(3, "acknowledged runs of children and parents lost", lost, at_most=0)
    wrong = sum(contents.strangers + contents.halves + contents.open for _, contents in processes)
    yield Figure(4, "rows in another process's run, or runs by half", wrong, at_most=0)
    damaged = sum(contents.integrity != "ok" for _, contents in processes)
    yield Figure(3, "stores damaged by a fork", damaged, at_most=0)
    waits = [process.number("fork_s") for process, _ in processes if "fork_s" in process.facts]
    yield Figure(1, "seconds that a fork in the middle of writes took, at worst",
                 max(waits, default=math.nan), at_most=2)  # fmt: skip


def _born(play: tuple[str, ...]) -> tuple[Watched, Kept]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        return played(path, *play, deadline_s=PATIENCE_S), kept(path)


def _ends(tier: Tier) -> Iterator[Figure]:
    with ThreadPoolExecutor(2) as pool:
        lefts = list(pool.map(lambda how: _left(how, RUNS[tier]), ENDS[tier]))
    yield Figure(3, "ways to end with a full queue", len(lefts), at_least=len(ENDS[tier]))
    wrong = sum(left.process.code != CODES.get(left.how, 0) for left in lefts)
    yield Figure(1, "processes that ended otherwise than without us, or hung", wrong, at_most=0)
    lost = sum(len({*left.process.names("acknowledged")} - left.contents.ids) for left in lefts)
    yield Figure(3, "acknowledged runs lost by an end", lost, at_most=0)
    stores = [left.contents for left in lefts]
    halves = sum(store.halves + store.strangers + store.open for store in stores)
    yield Figure(4, "runs kept by half, or left open after the next start", halves, at_most=0)
    ends = [left for left in lefts if left.how not in SUDDEN]
    longest = max(left.process.left_s for left in ends)
    yield Figure(1, "seconds from the end of the host to that of its process", longest,
                 at_most=EXIT_S + 3.0)  # fmt: skip
    plain = [left for left in ends if left.how in {"end", "sys.exit", "raise", "sigterm handled"}]
    apart = sum(abs(left.unaccounted) for left in plain)
    yield Figure(4, "events neither stored nor counted at an orderly end", apart, at_most=0)


def _left(how: str, runs: int) -> Left:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        interval = "8" if how == "updating" else "1000000"
        process = played(
            path,
            *("leave", how, runs),
            deadline_s=PATIENCE_S,
            TAU_LIVE_RL_UPDATE_INTERVAL=interval,
        )
        if how in SUDDEN:
            played(path, "updates", 0, 0)  # a next start, which ends what was left open
        return Left(how, process, kept(path))


def _locked(tier: Tier) -> Iterator[Figure]:
    """End while another process keeps the store locked, so that nothing at all can be stored."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        leaving = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.process_plays", "leave", "locked", "200"],
            env=environ(path, **QUIET),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert leaving.stdout is not None
        leaving.stdout.readline()
        store = SqliteStore.open(path)
        with store.begin():
            began = time.monotonic()
            _, errors = leaving.communicate("go\n", timeout=60)
            took = time.monotonic() - began
        store.close()
    yield Figure(1, "seconds to end while the store is locked", took, at_most=EXIT_S + 3.0)
    silent = "events_unwritten" not in errors
    yield Figure(4, "ends that lost events and did not say so", silent, at_most=0)


def _tangled(tier: Tier) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        process = played(
            path, TANGLED_CALLS[tier], module="tests.proof.tangle_play", deadline_s=PATIENCE_S
        )
    by = process.facts.get("by")
    calls = sum(by.values()) if isinstance(by, dict) else 0
    yield Figure(1, "calls from threads, signals, finalisers, weak references, loggers and hooks",
                 calls, at_least=300)  # fmt: skip
    ended = process.code != 0 or process.facts.get("flushed") is not True
    yield Figure(1, "deadlocks and crashes among them", ended, at_most=0)
    yield Figure(1, "exceptions that came out of them", len(process.names("raised")), at_most=0)
    yield Figure(1, "children forked in between that failed", process.failures(), at_most=0)
    yield Figure(1, "of these left alone by a busy store, which said so", process.number("alone"),
                 at_most=max(1.0, len(process.names("codes")) / 2))  # fmt: skip


def _updaters(tier: Tier) -> Iterator[Figure]:
    """Let four processes learn on one file, and kill whoever is at it, again and again."""
    chance = random.Random(5)  # which process is killed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        SqliteStore.open(path).close()
        running = [_updating(path, number) for number in range(4)]
        over: list[subprocess.Popen[str]] = []
        waits = []
        store = SqliteStore.open(path)
        for number in range(ROUNDS[tier]):
            holder = _holder(store)
            victim = next((process for process in running if f":{process.pid}:" in holder), None)
            victim = victim or chance.choice(running)
            victim.send_signal(signal.SIGKILL)
            waits.append(_next_update(store))
            running.remove(victim)
            over.append(victim)
            running.append(_updating(path, 10 + number))
        _wait_for_updates(store, 6)
        for process in running:
            process.send_signal(signal.SIGINT if chance.random() < 0.5 else signal.SIGTERM)
        acknowledged = {text for process in [*over, *running] for text in _acknowledged(process)}
        last = played(path, "updates", 9_000_000, 0.5)
        rows = sorted(store.policies.updates(), key=lambda row: row.update)
        store.close()
        contents = kept(path, name="update")
    bounds = [(row.first_ready, row.last_ready) for row in rows if row.executed]
    twice = sum(later[0] <= row[1] for row, later in pairwise(bounds))
    versions_made = [row.version for row in rows if row.executed]
    yield Figure(5, "updates made by four processes on one file", len(rows), at_least=5)
    yield Figure(5, "updates that two made at once, or versions given twice",
                 twice + len(versions_made) - len({*versions_made}), at_most=0)  # fmt: skip
    yield Figure(5, "seconds until another made updates after the updater was killed", max(waits),
                 at_most=LEASE_S + 8.0)  # fmt: skip
    yield Figure(3, "acknowledged runs lost by processes killed at random",
                 len(acknowledged - contents.ids), at_most=0)  # fmt: skip
    bad = contents.open + (contents.integrity != "ok") + (last.code != 0)
    yield Figure(3, "runs left open, or stores damaged, after the next start", bad, at_most=0)


def _updating(path: Path, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.proof.process_plays", "updates", str(number * 100_000), "90"],
        env=environ(path, TAU_LIVE_RL_LEASE_TTL_S=str(LEASE_S), OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _acknowledged(process: subprocess.Popen[str]) -> list[str]:
    try:
        out, _ = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
    whole = [line for line in out.splitlines() if line.endswith("}")]
    return Watched(0, [_json(line) for line in whole]).names("acknowledged")


def _json(line: str) -> dict[str, object]:
    data: dict[str, object] = json.loads(line)
    return data


def _holder(store: SqliteStore) -> str:
    """Wait until somebody makes an update, and return who."""
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        holder = now_learning(store)
        if holder and store.policies.updates(limit=1):
            return holder
        time.sleep(0.002)
    return ""


def _wait_for_updates(store: SqliteStore, number: int) -> None:
    until = time.monotonic() + 30.0
    while len(store.policies.updates()) < number and time.monotonic() < until:
        time.sleep(0.05)


def _next_update(store: SqliteStore) -> float:
    began = time.monotonic()
    before = store.policies.updates(limit=1)
    while store.policies.updates(limit=1) == before and time.monotonic() < began + 60.0:
        time.sleep(0.02)
    return time.monotonic() - began
