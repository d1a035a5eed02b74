"""A store of many rollouts answers as quickly as one of few, and forgets without being noticed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from time import thread_time

from tau_live.record.archive import REST_S, Pruner
from tau_live.store.retention import EVER, Limits
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.grown import grown
from tests.bench.growth import NOW, WORK, Grown, measured, stores
from tests.contracts.making import ready
from tests.proof.figures import Figure, Progress, Tier
from tests.store.scans import Ran, scans

SIZES = {Tier.QUICK: (2_000, 40_000), Tier.LONG: (10_000, 1_000_000)}
FORGOTTEN = {Tier.QUICK: 2_000, Tier.LONG: 50_000}
ROUNDS = 7
TRIES = 3
UNLEARNED = 300


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Compare every question of a loop in two stores, and forget most of a third."""
    with stores(SIZES[tier], lambda _: None) as (few, many):
        progress(1, 4)
        sizes = f"{many.rollouts:,} rollouts beside {few.rollouts:,}"
        slowest, ratio = _slowest(few, many)
        yield Figure(1, f"times as long, the slowest ({slowest}), {sizes}", ratio, at_most=2.0)
        progress(2, 4)
        yield Figure(1, "statements of a loop that read a whole table", _scans(many), at_most=0)
        progress(3, 4)
    yield from _forgetting(FORGOTTEN[tier])
    progress(4, 4)


def _slowest(few: Grown, many: Grown) -> tuple[str, float]:
    """Return what grew most and by how much; what was disturbed is measured again."""
    best: dict[str, float] = {}
    for _ in range(TRIES):
        for name, growth in zip(WORK, measured(few, many, rounds=ROUNDS, times=10), strict=True):
            best[name] = min(best.get(name, 1e9), growth.ratio or 0.0)
        if max(best.values()) <= 2.0:
            break
    return max(best.items(), key=lambda item: item[1])


def _scans(many: Grown) -> int:
    ran = Ran()
    raw = many.store._connection.raw
    raw.set_trace_callback(ran.note)
    for act in WORK.values():
        act(many)
    raw.set_trace_callback(None)
    return len(scans(raw, ran.asked))


def _forgetting(rollouts: int) -> Iterator[Figure]:
    """Let a running process's own steps forget a store, but for what was not learned from."""
    with tempfile.TemporaryDirectory(prefix="tau-live-proof-") as folder:
        store = grown(Path(folder) / "store.sqlite", rollouts)
        with store.begin():
            for number in range(UNLEARNED):
                ready(store, f"unlearned-{number}", "other")
        before = store.retention.size()
        took = sorted(_steps(store, Limits(rollouts=0)))
        kept = store.retention.obstacles(before=EVER, look=2 * UNLEARNED)
        size = store.retention.size()
        while not store.retention.empty_log():
            pass
        file = store.path.stat().st_size
        store.close()
    yield Figure(4, "rollouts forgotten unlearned", UNLEARNED - kept.unlearned, at_most=0)
    yield Figure(4, "rollouts left that might be forgotten", kept.forgettable, at_most=0)
    yield Figure(1, "ms of a step of retention, median", 1e3 * took[len(took) // 2], at_most=5.0)
    yield Figure(
        1, "ms of a step of retention, p99", 1e3 * quantiles(took, n=100)[98], at_most=20.0
    )
    bound = size.used_bytes + max(1.2e6, before.used_bytes / 8)
    yield Figure(1, "MB of the file afterwards", file / 1e6, at_most=bound / 1e6)


def _steps(store: SqliteStore, limits: Limits) -> list[float]:
    """Take every step that there is; return what each took of this thread, in seconds."""
    waited = 0.0
    forgetting = Pruner(limits, monotonic=lambda: waited)
    took, idle = [], 0
    while idle <= UNLEARNED:
        began = thread_time()
        busy = forgetting.step(store.retention, now=NOW)
        took.append(thread_time() - began)
        waited += REST_S
        idle = 0 if busy else idle + 1
    return took[: -UNLEARNED or None]
