"""A host of its own process that runs agents and tells what of memory and handles it takes.

python -m tests.bench.living open 2000     runs that are open at one time
python -m tests.bench.living queued 20000  events that wait for a store that somebody else holds
python -m tests.bench.living soak 50000    events of runs that come and go, with learning
"""

import gc
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import tau_live
from tau_live.core import events as ev
from tau_live.core.settings import Settings
from tau_live.decisions.runs import RunHandle
from tau_live.runtime.runtime import Runtime
from tau_live.store.retention import EVER
from tau_live.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
STEPS = 8
PER_RUN = STEPS + 4
"""Events of a run of the soak: its start, steps, a decision, a reward, its end."""

FLUSHED_EVERY = 200
"""Runs, so that no more than these wait."""

KEPT = 1_000
SAMPLES = 20
WARM_RUNS = 500
"""Runs opened before memory is looked at: caches of the store fill, whatever the number of runs."""

WARM = 4
"""Of the samples, those before this one do not count: caches fill, libraries load."""


def lived(kind: str, number: int) -> dict[str, float]:
    """Run a host in a process of its own and return what it told."""
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        environ = {**os.environ, "TAU_LIVE_RL": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.living", kind, str(number), folder],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rss() -> int:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    """Return how many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _open(runtime: Runtime, number: int, _path: Path) -> dict[str, float]:
    """Begin runs and leave them open, each with a decision and a few steps."""
    keep = [_begun(runtime, n) for n in range(WARM_RUNS)]
    before = _settled()
    keep += [_begun(runtime, n) for n in range(number)]
    after = _settled()
    return {"bytes_each": (after - before) / number, "held": len(keep)}


def _queued(runtime: Runtime, number: int, path: Path) -> dict[str, float]:
    """Tell events while somebody else holds the store, and see that all are stored afterwards."""
    run = _begun(runtime, 0)
    tau_live.flush(PATIENCE_S)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    gc.collect()
    before = rss()
    for step in range(number):
        _step(runtime, run, step)
    waiting, after = number, rss()
    other.execute("rollback")
    other.close()
    tau_live.flush(PATIENCE_S)
    runtime.end_run(run, None)
    return {"bytes_each": (after - before) / waiting, "held": waiting}


def _soak(runtime: Runtime, number: int, path: Path) -> dict[str, float]:
    """Let runs come and go; what is held is looked at when nothing waits."""
    runs = max(1, number // PER_RUN)
    each = max(1, runs // SAMPLES)
    seen: list[tuple[int, int, int]] = []
    for n in range(runs):
        run = _begun(runtime, n)
        for step in range(STEPS):
            _step(runtime, run, step)
        tau_live.reward(float(n % 3 == 0), run=run.run_id, host=run.host)
        runtime.end_run(run, None)
        if n % FLUSHED_EVERY == FLUSHED_EVERY - 1:
            tau_live.flush(PATIENCE_S)
        if n % each == each - 1:
            seen.append((_settled(), handles(), threading.active_count()))
    warm, last = seen[WARM:], seen[-1]
    return {
        "events": runs * PER_RUN,
        "rss_before": float(warm[0][0]),
        "rss_after": float(last[0]),
        "rss_grown": float(last[0] - warm[0][0]),
        "rss_grown_late": float(last[0] - seen[len(seen) // 2][0]),
        "handles_grown": float(max(one[1] for one in warm) - warm[0][1]),
        "threads_grown": float(max(one[2] for one in warm) - warm[0][2]),
        "stored": _told_by(path, "select sum(total) from status_counts"),
        "beyond": _beyond(path),
        "dropped": _told_by(path, "select sum(value) from counters where name like 'drop%'"),
        "mb_on_disk": sum(file.stat().st_size for file in path.parent.glob(path.name + "*")) / 1e6,
    }


def _begun(runtime: Runtime, n: int) -> RunHandle:
    run = runtime.begin_run(
        "soak", key=None, session=f"session {n}", metadata={"ticket": n}, parent=None, host="bench"
    )
    runtime.decide(
        run, "model", options=["small", "middle", "large"], context={"words": n % 17}, default=None
    )
    return run


def _step(runtime: Runtime, run: RunHandle, step: int) -> None:
    told = {
        "agent": "support",
        "turn": 1,
        "span_id": f"step {step}",
        "tool": "search",
        "call_id": f"call {step}",
        "status": ev.Status.OK,
        "duration_ms": 1.5,
    }
    runtime.tell(run, ev.ToolEnd, told)


def _settled() -> int:
    tau_live.flush(PATIENCE_S)
    gc.collect()
    return rss()


def _beyond(path: Path) -> float:
    """Return how many rollouts are stored beyond the limit that nothing keeps."""
    with closing(SqliteStore.open(path, read_only=True)) as store:
        size, kept = store.retention.size(), store.retention.obstacles(before=EVER, look=1_000_000)
    return float(max(0, min(size.rollouts - KEPT, kept.forgettable)))


def _told_by(path: Path, question: str) -> float:
    with closing(sqlite3.connect(path)) as store:
        return float(store.execute(question).fetchone()[0] or 0)


KINDS: dict[str, Callable[[Runtime, int, Path], dict[str, float]]] = {
    "open": _open,
    "queued": _queued,
    "soak": _soak,
}


@contextmanager
def _attached(path: Path) -> Iterator[Runtime]:
    settings = Settings(
        store=path, stream="bench", retention_rollouts=KEPT, queue_limit=1_000_000,
        update_interval=64, max_rollouts_per_update=64,
    )  # fmt: skip
    runtime = tau_live.attach(settings)
    if runtime is None:
        raise RuntimeError("tau-live did not start")
    try:
        yield runtime
    finally:
        tau_live.detach()


if __name__ == "__main__":
    _, kind, number, folder = sys.argv
    with _attached(Path(folder) / "store.sqlite") as runtime:
        found = KINDS[kind](runtime, int(number), Path(folder) / "store.sqlite")
    sys.stdout.write(json.dumps(found))
