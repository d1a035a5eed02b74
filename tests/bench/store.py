"""What the store takes: whole rollouts, rows of spans, and reading back what is learned from.

Agent Lightning's store keeps everything in memory and loses it with the process; ours is on disk,
each rollout in a transaction of its own, as a quiet host's runs are stored. The other peers are
plain ``sqlite3`` and ``numpy``.
"""

import asyncio
import itertools
import os
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

import numpy as np

import tau_live
from tau_live.core.records import Attempt, AttemptStatus, Reason, Rollout, RolloutStatus, Span
from tau_live.core.settings import Learner, Settings
from tau_live.rl.features import unpack
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.decide import FEATURES, OPTIONS, POINT, context, options
from tests.bench.timing import Goal, Measured, Timed, command, installed, interleaved

ROLLOUTS = 200
SPANS = 3
ROWS = 20_000
BATCH = 1_000
READ = 64
STEPS = 8
AT = 1.7e9
PATIENCE_S = 120.0
PER_ROLLOUT = Goal(4.0, faster=True)
PER_ROW = Goal(1.5, faster=False)
PER_READ = Goal(0.03, faster=False)
LIGHTNING = "Agent Lightning, in memory"
ATTRIBUTES = {"tool": "search", "call_id": "call 1", "turn": 1, "duration_ms": 1.5}

PLAIN = """
create table spans (
    seq integer primary key, rollout_seq integer not null, attempt integer not null,
    span_id text not null, parent_span_id text, kind text not null, name text not null,
    status text not null, attributes text not null, started_at real not null, ended_at real,
    reported integer not null, unique (rollout_seq, attempt, span_id)
) strict
"""
INSERT_PLAIN = f"insert into spans values (null{', ?' * 11})"


def measure(
    rounds: int, *, rollouts: int = ROLLOUTS, rows: int = ROWS, read: int = READ
) -> list[Measured]:
    """Measure writing rollouts, writing spans, and reading."""
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        place = Path(folder)
        return [
            _rollouts(place, rounds, rollouts),
            _spans(place, rounds, rows),
            _read(place, rounds, read),
        ]


def _rollouts(place: Path, rounds: int, rollouts: int) -> Measured:
    with _opened(place / "rollouts.sqlite") as store, _lightning(rollouts) as theirs:
        numbers = itertools.count()

        def ours() -> None:
            for number in itertools.islice(numbers, rollouts):
                _store_rollout(store, f"live-{number}")

        return interleaved(
            f"a rollout with {SPANS} spans and its end",
            _each(ours, rollouts),
            None if theirs is None else _each(theirs, rollouts),
            peer=LIGHTNING,
            rounds=rounds,
            goal=PER_ROLLOUT,
        )


def _store_rollout(store: SqliteStore, rollout_id: str) -> None:
    with store.begin(), store.batch([rollout_id]) as log:  # as the collector stores a short run
        log.begin_rollout(_rollout(rollout_id))
        log.begin_attempt(_attempt(rollout_id))
        log.add_spans([_span(rollout_id, number) for number in range(SPANS)])
        log.set_attempt_status(rollout_id, 1, AttemptStatus.SUCCEEDED, at=AT + 1)
        log.set_status(rollout_id, RolloutStatus.SUCCEEDED, at=AT + 1, reason=Reason.COMPLETED)


def _rollout(rollout_id: str) -> Rollout:
    return Rollout(
        rollout_id=rollout_id,
        host="bench",
        run_id=rollout_id,
        name="bench",
        status=RolloutStatus.RUNNING,
        started_at=AT,
    )


def _attempt(rollout_id: str) -> Attempt:
    return Attempt(
        rollout_id=rollout_id,
        number=1,
        status=AttemptStatus.RUNNING,
        started_at=AT,
        last_heartbeat_at=AT,
    )


def _span(rollout_id: str, number: int) -> Span:
    return Span(
        rollout_id=rollout_id,
        attempt=1,
        span_id=f"span {number}",
        parent_span_id="turn:1",
        kind="tool",
        name="tool.search",
        status="ok",
        attributes=ATTRIBUTES,
        started_at=AT,
        ended_at=AT + 0.5,
    )


@contextmanager
def _lightning(rollouts: int) -> Iterator[Callable[[], None] | None]:
    if not installed("agentlightning"):
        yield None
        return
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network at its import
    from agentlightning.store.memory import InMemoryLightningStore
    from agentlightning.types import OtelResource, TraceStatus
    from agentlightning.types import Span as Theirs

    store = InMemoryLightningStore()

    async def one() -> None:
        begun = await store.start_rollout(input={"task": "bench"})
        for number in range(SPANS):
            await store.add_span(
                Theirs(
                    rollout_id=begun.rollout_id,
                    attempt_id=begun.attempt.attempt_id,
                    sequence_id=number + 1,
                    trace_id="0" * 32,
                    span_id=f"{number:016x}",
                    parent_id=None,
                    name="tool.search",
                    status=TraceStatus(status_code="OK"),
                    attributes=ATTRIBUTES,
                    events=[],
                    links=[],
                    start_time=AT,
                    end_time=AT + 0.5,
                    context=None,
                    parent=None,
                    resource=OtelResource(attributes={}, schema_url=""),
                )
            )
        await store.update_attempt(begun.rollout_id, begun.attempt.attempt_id, status="succeeded")

    async def every() -> None:
        for _ in range(rollouts):
            await one()

    with asyncio.Runner() as runner:
        yield lambda: runner.run(every())


def _spans(place: Path, rounds: int, rows: int) -> Measured:
    batches = max(1, rows // BATCH)
    count = min(rows, BATCH)
    with _opened(place / "spans.sqlite") as store, _plain(place / "plain.sqlite") as plain:
        turns, own_turns = itertools.count(), itertools.count(1)

        def ours() -> None:
            for turn in itertools.islice(turns, batches):
                rollout_id = f"live-{turn}"
                with store.begin(), store.batch([rollout_id]) as log:
                    log.begin_rollout(_rollout(rollout_id))
                    log.begin_attempt(_attempt(rollout_id))
                    log.add_spans([_span(rollout_id, n) for n in range(count)])

        text = '{"tool":"search","call_id":"call 1","turn":1,"duration_ms":1.5}'
        ready = [
            (1, f"span {n}", "turn:1", "tool", "tool.search", "ok", text, AT, AT + 0.5, 2)
            for n in range(count)
        ]

        def theirs() -> None:
            for turn in itertools.islice(own_turns, batches):
                with plain:
                    plain.executemany(INSERT_PLAIN, [(turn, *row) for row in ready])

        return interleaved(
            f"a row of a span, {count} a transaction",
            _each(ours, batches * count),
            _each(theirs, batches * count),
            peer="sqlite3, executemany of ready tuples",
            rounds=rounds,
            goal=PER_ROW,
        )


@contextmanager
def _opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(path)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _plain(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        connection.execute(PLAIN)
        yield connection
    finally:
        connection.close()


def _read(place: Path, rounds: int, read: int) -> Measured:
    path = place / "read.sqlite"
    _decide(path, read)
    with _opened(path) as store, _plain(place / "columns.sqlite") as columns:
        names = ", ".join(f"f{n} real" for n in range(FEATURES))
        columns.execute(f"create table features (rollout integer, step integer, {names})")
        rng = np.random.default_rng(0)
        columns.executemany(
            f"insert into features values (?, ?{', ?' * FEATURES})",
            [
                (rollout, step, *rng.standard_normal(FEATURES).tolist())
                for rollout in range(read)
                for step in range(STEPS)
                for _ in range(OPTIONS)
            ],
        )
        columns.commit()

        def ours() -> None:
            found = store.rewards.ready_rollouts(POINT, after=0, limit=read)
            rows = [unpack(one.encoded) for each in found for one in each.decisions]
            if len(rows) != read * STEPS:
                raise RuntimeError(f"expected {read * STEPS} decisions, got {len(rows)}")

        def theirs() -> None:
            np.array(columns.execute("select * from features").fetchall())

        return interleaved(
            f"reading {read} rollouts of {STEPS} decisions, {OPTIONS} x {FEATURES}",
            _each(ours, 1),
            _each(theirs, 1),
            peer="typed columns into numpy",
            rounds=rounds,
            goal=PER_READ,
        )


def _decide(path: Path, read: int) -> None:
    before = os.environ.get("TAU_LIVE_RL")
    os.environ["TAU_LIVE_RL"] = "1"
    rng = random.Random(0)
    offered = options(rng)
    tau_live.attach(Settings(store=path, stream="bench", learner=Learner.OFF))
    try:
        for _ in range(read):
            with tau_live.run("bench") as run:
                for _ in range(STEPS):
                    tau_live.decide(POINT, offered, context=context(rng))
                run.reward(rng.random())
    finally:
        tau_live.detach(PATIENCE_S)
        if before is None:
            del os.environ["TAU_LIVE_RL"]
        else:
            os.environ["TAU_LIVE_RL"] = before


def _each(work: Callable[[], None], count: int) -> Timed:
    """Return what each of ``count`` takes of the process."""

    def took() -> float:
        began = process_time()
        work()
        return (process_time() - began) / count

    return took


main = command("store", "What the store takes", measure)

if __name__ == "__main__":
    main()
