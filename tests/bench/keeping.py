"""What of the events told is kept: when the process is killed, after a burst, and how soon.

Both sides write to SQLite, one row for each event: OpenTelemetry's batch processor, with its
defaults, hands its spans to an exporter that does so as fast as that can be done.
"""

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

import tau_live
from tau_live.core import events as ev
from tau_live.core.settings import Learner, Settings
from tests.bench.timing import installed, machine

PER_S = 1_000
KILLED_AFTER_S = 2.0
BURST = 50_000
WATCHED = 1_024
"""Whole batches of OpenTelemetry's: the last of others would wait for its timer, 5 s."""
OURS, OTEL = "tau-live", "OpenTelemetry SDK"
SIDES = (OURS, OTEL)
PATIENCE_S = 120.0

Tell = Callable[[int], object]


class Kept(NamedTuple):
    """What one side kept.

    Attributes:
        side: Who.
        lost: Events told in the last moments before ``SIGKILL`` that were not there afterwards,
            at 1,000 a second; the median.
        burst: Share of a burst that was stored.
        commit_p99_s: From the call to the commit, at 1,000 a second, in seconds.
    """

    side: str
    lost: float
    burst: float
    commit_p99_s: float


def measure(
    rounds: int, *, after_s: float = KILLED_AFTER_S, burst: int = BURST, watched: int = WATCHED
) -> list[Kept]:
    """Measure every side that is installed, in turn."""
    sides = [side for side in SIDES if side == OURS or installed("opentelemetry.sdk")]
    lost: dict[str, list[int]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            lost[side].append(_lost(side, after_s))
    return [
        Kept(
            side,
            statistics.median(lost[side]),
            _told(side, "burst", burst),
            _told(side, "commits", watched),
        )
        for side in sides
    ]


def _lost(side: str, after_s: float) -> int:
    """Return how many events were told and are not there after a kill."""
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        store = Path(folder) / "store.sqlite"
        with _child(side, "told", store, 0) as child:
            lines = iter(child.stdout or ())
            next(lines)  # it has begun
            time.sleep(after_s)
            child.send_signal(signal.SIGKILL)
            told = max((int(line) for line in lines if line.endswith("\n")), default=0)
        return told - _rows(store)


def _told(side: str, what: str, count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        with _child(side, what, Path(folder) / "store.sqlite", count) as child:
            said, _ = child.communicate(timeout=PATIENCE_S)
        return float(said.splitlines()[-1])


def _child(side: str, what: str, store: Path, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.bench.keeping", "side", side, what, str(store)]
    return subprocess.Popen([*command, str(count)], stdout=subprocess.PIPE, text=True)


def _rows(store: Path) -> int:
    connection = sqlite3.connect(store)
    try:
        return int(connection.execute("select count(*) from recorded_spans").fetchone()[0])
    finally:
        connection.close()


@click.group()
def main() -> None:
    """What of the events told is kept."""


@main.command()
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1))
def run(rounds: int) -> None:
    """Measure, and print a JSON object."""
    found = [kept._asdict() for kept in measure(rounds)]
    click.echo(json.dumps({"bench": "keeping", "kept": found, **machine()}, indent=2))


@main.command(hidden=True)
@click.argument("side", type=click.Choice(SIDES))
@click.argument("what")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("count", type=int)
def side(side: str, what: str, store: Path, count: int) -> None:
    """Be one side, in a process of its own."""
    tell, settle = _ours(store) if side == OURS else _otel(store)
    if what == "told":
        _tell_for_ever(tell)
    elif what == "burst":
        for number in range(count):
            tell(number)
        settle()
        print(_rows(store) / count)
    else:
        print(_commits(tell, settle, store, count))


def _tell_for_ever(tell: Tell) -> None:
    os.write(1, b"0\n")
    began, number = time.perf_counter(), 0
    while True:
        number += 1
        tell(number)
        os.write(1, f"{number}\n".encode())
        time.sleep(max(0.0, began + number / PER_S - time.perf_counter()))


def _commits(tell: Tell, settle: Callable[[], object], store: Path, count: int) -> float:
    """Return how long it takes until a row can be read by others, p99 in seconds."""
    reader = sqlite3.connect(store)
    tell(0)
    settle()
    base = _rows(store)
    told: list[float] = []
    seen: list[float] = []
    began = time.perf_counter()
    while len(seen) < count:
        if len(told) < count and time.perf_counter() >= began + len(told) / PER_S:
            told.append(time.perf_counter())
            tell(len(told))
        rows = reader.execute("select max(rowid) from recorded_spans").fetchone()[0] - base
        seen += [time.perf_counter()] * (rows - len(seen))
        time.sleep(0.0002)
    took = [there - then for then, there in zip(told, seen, strict=True)]
    return float(np.percentile(took, 99))


def _ours(store: Path) -> tuple[Tell, Callable[[], object]]:
    os.environ["TAU_LIVE_RL"] = "1"
    runtime = tau_live.attach(Settings(store=store, stream="bench", learner=Learner.OFF))
    if runtime is None:
        raise RuntimeError("tau-live did not start")
    run = runtime.begin_run(
        "bench", key=None, session=None, metadata=None, parent=None, host="bench"
    )

    def tell(number: int) -> None:
        told = {
            "agent": "support",
            "turn": 1,
            "span_id": f"step {number}",
            "tool": "search",
            "call_id": f"call {number}",
            "status": ev.Status.OK,
            "duration_ms": 1.5,
        }
        runtime.tell(run, ev.ToolEnd, told)

    return tell, lambda: tau_live.flush(PATIENCE_S)


def _otel(store: Path) -> tuple[Tell, Callable[[], object]]:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    connection = sqlite3.connect(store, check_same_thread=False)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("create table recorded_spans (name text, attributes text)")

    class Stores:
        def export(self, spans: list[ReadableSpan]) -> object:
            rows = [(span.name, json.dumps(dict(span.attributes or {}))) for span in spans]
            with connection:
                connection.executemany("insert into recorded_spans values (?, ?)", rows)
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            connection.close()

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Stores()))
    tracer = provider.get_tracer("bench")

    def tell(number: int) -> object:
        attributes = {"agent": "support", "tool": "search", "call_id": f"call {number}"}
        return tracer.start_span("tool.search", attributes=attributes).end()

    return tell, provider.force_flush


if __name__ == "__main__":
    main()
