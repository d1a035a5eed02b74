"""Clocks that are put back an hour, or forward ten years, while a process runs."""

import math
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tau_live.core.processes import this_process
from tau_live.core.records import RolloutQuery
from tau_live.learn.learner import LEASE
from tau_live.store.sqlite.store import SqliteStore
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.watching import Watched, kept, played

HOUR_S, YEARS_S = 3_600.0, 10 * 365.25 * 86_400.0
JUMPS = {Tier.QUICK: (-HOUR_S, YEARS_S), Tier.LONG: (-HOUR_S, YEARS_S, HOUR_S, -YEARS_S)}
DEADLINE_S = {Tier.QUICK: 3.0, Tier.LONG: 8.0}
LATE_S = 4.0
"""Housekeeping looks once a second, and once more after a clock was set; machines are busy."""


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Set the clock of one process, and let another with the right time go on after it."""
    progress(0, 2)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        paths = [Path(folder) / f"{n}/store.sqlite" for n in range(len(JUMPS[tier]))]
        for path in paths:
            path.parent.mkdir(mode=0o700)
        jobs = [(path, by, tier) for path, by in zip(paths, JUMPS[tier], strict=True)]
        processes = list(pool.map(_set, jobs))
        progress(1, 2)
        nexts = list(pool.map(lambda path: _went_on(path, tier), paths))
        yield from _figures(processes, tier)
        yield from _stored(paths, dict(zip(paths, JUMPS[tier], strict=True)))
    progress(2, 2)
    bad = sum(process.code != 0 or process.facts.get("flushed") is not True for process in nexts)
    yield Figure(1, "processes with the right time that could not go on after it", bad, at_most=0)


def _set(job: tuple[Path, float, Tier]) -> Watched:
    path, by, tier = job
    return _played(path, by, tier, "suddenly")


def _went_on(path: Path, tier: Tier) -> Watched:
    return _played(path, 0.0, tier, "orderly")


def _played(path: Path, by_s: float, tier: Tier, end: str) -> Watched:
    return played(
        path,
        *(by_s, DEADLINE_S[tier], end),
        module="tests.proof.clock_play",
        TAU_LIVE_RL_UPDATE_INTERVAL="8",
        TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE="64",
        TAU_LIVE_RL_REWARD_DEADLINE_S=str(DEADLINE_S[tier]),
        TAU_LIVE_RL_RETENTION_DAYS="30",
        TAU_LIVE_RL_LEASE_TTL_S="5",
    )


def _figures(processes: list[Watched], tier: Tier) -> Iterator[Figure]:
    yield Figure(1, "ways in which a clock was set", len(processes), at_least=len(JUMPS[tier]))
    hung = sum(
        process.code != 0 or process.facts.get("flushed") is not True for process in processes
    )
    yield Figure(1, "processes that hung, failed or could not store after it", hung, at_most=0)
    yield Figure(1, "seconds to store and learn from 24 rollouts after it, at worst",
                 max(process.number("took") for process in processes), at_most=10)  # fmt: skip
    waits = [float(wait) for process in processes for wait in process.names("waits")] or [math.nan]
    yield Figure(4, "seconds that a reward's deadline came too early, at worst",
                 max(DEADLINE_S[tier] - wait for wait in waits), at_most=0.5)  # fmt: skip
    yield Figure(4, "seconds that it came too late, at worst",
                 max(wait - DEADLINE_S[tier] for wait in waits), at_most=LATE_S)  # fmt: skip
    forgotten = sum(abs(process.number("forgotten")) for process in processes)
    yield Figure(4, "rollouts that retention took for old", forgotten, at_most=0)
    held = sum(process.facts.get("gate") != "pass" for process in processes)
    yield Figure(6, "gates that held, or ceased to, for a clock", held, at_most=0)
    stuck = sum(not _grew(process.names("updates")) for process in processes)
    yield Figure(5, "processes that learned nothing after it", stuck, at_most=0)


def _grew(updates: list[str]) -> bool:
    return len(updates) == 2 and int(updates[1]) > int(updates[0])


def _stored(paths: list[Path], jumps: dict[Path, float]) -> Iterator[Figure]:
    open_ = disordered = insane = held = 0
    for path in paths:
        contents = kept(path, name="clock")
        open_ += contents.open + (contents.integrity != "ok")
        store = SqliteStore.open(path)
        now = time.time()
        for rollout in store.rollouts.query(RolloutQuery(limit=None)).rollouts:
            for at in (rollout.started_at, rollout.ended_at):
                apart = min(abs(now - (at or 0.0)), abs(now + jumps[path] - (at or 0.0)))
                insane += not apart < 300.0 + 86_400.0 * (at == rollout.ended_at)
        rows = sorted(store.policies.updates(), key=lambda row: row.update)
        for row, later in pairwise(rows):
            same = row.point == later.point
            disordered += same and later.last_ready <= row.last_ready
        held += sum(
            not store.leases.acquire(f"{LEASE}{point}", this_process(), ttl_s=5.0)
            for point in store.rewards.ready_points()
        )
        store.close()
    yield Figure(3, "runs left open, or stores damaged, after the next start", open_, at_most=0)
    yield Figure(5, "updates out of the store's order", disordered, at_most=0)
    yield Figure(4, "timestamps that no clock has told", insane, at_most=0)
    yield Figure(5, "leases of dead processes that keep others from learning", held, at_most=0)
