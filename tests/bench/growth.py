"""What a loop asks of a store, with a few rollouts in it and with many: nothing may grow.

The store is filled by a few statements with what a life of so many rollouts leaves: attempts,
spans, decisions, rewards, an update for every eighth. What is looked up is anywhere in it.
"""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import TypeAlias

import click

from tau_live.core.records import RolloutQuery
from tau_live.core.settings import Settings
from tau_live.operate.report.summary import glance_of
from tau_live.operate.status import status_of
from tau_live.record.archive import Pruner
from tau_live.store.retention import Limits
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.grown import EACH_UPDATE, POINT, RUNS_OF_A_SESSION, grown
from tests.bench.timing import Goal, Measured, Timed, command, interleaved
from tests.contracts.making import begun, queued, span
from tests.writes import writes

FEW = 10_000
SIZES = (100_000, 1_000_000)
TIMES = 20
"""So often each is done for one figure."""

FLAT = Goal(2.0, faster=False)
NOW = 1e8

Act: TypeAlias = Callable[["Grown"], object]


class Grown:
    """A store of a known size, and places anywhere in it."""

    def __init__(self, store: SqliteStore, rollouts: int) -> None:
        self.store = store
        self.rollouts = rollouts
        self._rng = random.Random(rollouts)
        self._number = 0

    def any_number(self) -> int:
        """Return the number of a rollout that is still there."""
        return self._rng.randint(self.rollouts // 2, self.rollouts)

    def any_id(self) -> str:
        """Return the id of a rollout that is still there."""
        n = self.any_number()
        return f"live-{n * 2654435761 % 4294967296:08x}-{n % 65536:04x}"

    def new_id(self) -> str:
        """Return an id that no rollout has."""
        self._number += 1
        return f"new-{self._rng.getrandbits(32):08x}-{self._number}"


def _show(grown: Grown) -> None:
    rollout_id, store = grown.any_id(), grown.store
    store.rollouts.rollout(rollout_id)
    store.rollouts.attempts(rollout_id)
    store.rollouts.spans(rollout_id)
    store.decisions.decisions(rollout_id)
    store.rewards.rewards(rollout_id)


def _due(grown: Grown) -> None:
    store = grown.store
    for point in (*store.rewards.ready_points(), ""):
        seen = store.policies.watermark(point)
        store.policies.watermark(point, executed=True)
        store.rewards.ready_count(point, after=seen, limit=EACH_UPDATE)


def _insert(grown: Grown) -> None:
    rollout_id, store = grown.new_id(), grown.store
    with store.begin():
        begun(store, rollout_id)
        writes(store).add_spans([span(f"s-{n}", rollout_id, ended_at=3.0) for n in range(3)])


def _forget(grown: Grown) -> None:
    retention = grown.store.retention
    limits = Limits(rollouts=retention.size().rollouts - 4)
    Pruner(limits).step(retention, now=NOW)


def _claim(grown: Grown) -> None:
    grown.store.queue.enqueue(queued(grown.new_id()), at=1.0)
    if grown.store.queue.claim("w-1", at=2.0) is None:
        raise RuntimeError("nothing waits")


def _open(grown: Grown) -> None:
    SqliteStore.open(grown.store.path).close()


WORK: dict[str, Act] = {
    "enqueue and claim": _claim,
    "what is due to learn": _due,
    "next 64 to learn from": lambda g: g.store.rewards.ready_rollouts(
        POINT, after=g.rollouts - 64, limit=64
    ),
    "count of what is ready": lambda g: g.store.rewards.ready_count(POINT, after=g.rollouts - 64),
    "newest 100 versions": lambda g: g.store.policies.versions(POINT, limit=100),
    "show a rollout": _show,
    "status": lambda g: status_of(g.store, Settings(store=g.store.path), now=NOW),
    "a look of top": lambda g: glance_of(
        g.store, Settings(store=g.store.path), now=NOW, enabled=True
    ),
    "the newest 20 rollouts": lambda g: g.store.rollouts.query(
        RolloutQuery(descending=True, limit=20)
    ),
    "20 rollouts from the middle": lambda g: g.store.rollouts.query(
        RolloutQuery(after=g.any_number(), limit=20)
    ),
    "insert a rollout with 3 spans": _insert,
    "a step of retention": _forget,
    "a rollout by its session": lambda g: writes(g.store).last_of(
        f"session-{g.any_number() // RUNS_OF_A_SESSION}"
    ),
    "open and close": _open,
}
"""What is done over and over while a host runs, or while an operator looks."""


def timed(act: Act, grown_: Grown, *, times: int = TIMES) -> Timed:
    """Return what doing it takes of this thread, each time in the mean."""

    def took() -> float:
        began = thread_time()
        for _ in range(times):
            act(grown_)
        return (thread_time() - began) / times

    return took


@contextmanager
def stores(sizes: Sequence[int], told: Callable[[int], None]) -> Iterator[list[Grown]]:
    """Fill stores of these sizes, and take them away afterwards."""
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        opened = []
        for size in sizes:
            opened.append(Grown(grown(Path(folder) / f"{size}.sqlite", size), size))
            told(size)
        try:
            yield opened
        finally:
            for one in opened:
                one.store.close()


def measured(few: Grown, many: Grown, *, rounds: int, times: int = TIMES) -> list[Measured]:
    """Measure everything in a small and in a large store, in turn."""
    return [
        interleaved(
            f"{name}, {many.rollouts:,} rollouts",
            timed(act, many, times=times),
            timed(act, few, times=times),
            peer=f"{few.rollouts:,} rollouts",
            rounds=rounds,
            goal=FLAT,
        )
        for name, act in WORK.items()
    ]


def measure(rounds: int, *, few: int = FEW, sizes: Sequence[int] = SIZES) -> list[Measured]:
    """Measure stores of each size against a small one."""
    with stores((few, *sizes), lambda size: click.echo(f"{size:,} filled", err=True)) as opened:
        small, *large = opened
        return [one for many in large for one in measured(small, many, rounds=rounds)]


main = command("growth", "A store of a million rollouts beside one of ten thousand", measure)

if __name__ == "__main__":
    main()
