"""Chains of lessons: how long it takes to write, verify and use many records.

Writing is that of a run with eight workers, in a process of its own; its model answers at once.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from tau_live.core.sanitize import JsonObject
from tau_live.experience.injection import Rules, choose
from tau_live.experience.log import Change, Log, Place
from tau_live.experience.packs import Retrieval
from tau_live.store.opening import open_at
from tests.bench.items import Found, print_figures
from tests.bench.living import ROOT
from tests.bench.timing import LEAST_ROUNDS
from tests.experience.lessons import BASE, KEYS, MODEL
from tests.experience.test_measures import PACK
from tests.experience.world import World

EPOCHS, GROUPS, MEMBERS, WORKERS = 20, 100, 5, 8
MANY, LESSONS, BATCH = 100_000, 40, 500
MB, KIB = 1e6, 1024


def written(folder: Path) -> dict[str, float]:
    """Lead a run, and return how long its records waited to be stored, and what is in the chain."""
    took_ms: list[float] = []
    note = Log.note

    def timed(log: Log, bodies: Sequence[JsonObject]) -> set[str]:
        began = time.monotonic()
        noted = note(log, bodies)
        took_ms.extend([1000 * (time.monotonic() - began)] * len(bodies))
        return noted

    Log.note = timed  # type: ignore[method-assign,assignment]  # timed where the run calls it
    own = World(
        folder, "ruled", sizes=(GROUPS, 12, 12), sample_size=GROUPS, group_size=MEMBERS,
        epochs=EPOCHS, workers=WORKERS,
    )  # fmt: skip
    run = own.run()
    with own.store() as store:
        log = own.log(store)
        whole = not any(log.faults.values()) and log.heads["ledger"].count
    if whole != EPOCHS * GROUPS * MEMBERS:
        raise RuntimeError(f"{whole} records are whole")
    rows = [row for row in own.rows("per-epoch.jsonl") if row["phase"] == "train"]
    share = sum(row["rewarders_ms"] for row in rows) / sum(row["wall_ms"] for row in rows)
    if run.state != "completed":
        raise RuntimeError(run.state)
    return {"p95_ms": float(np.percentile(took_ms, 95)), "rewarders": 100 * share}


def fill(folder: Path) -> None:
    """Make a store with so many attempts, and a pool of lessons."""
    with closing(open_at(folder / "store.sqlite")) as store:
        log = Log(store, KEYS)
        lessons = [
            {**BASE, "id": f"x-{n:06d}", "summary32": f"Write the unit after number {n}.",
             "support": [f"q-{n}", f"q-{n + 1}"], "words": 6}
            for n in range(1, LESSONS + 1)
        ]  # fmt: skip
        with store.begin():
            log.learn(lessons)
            fields = [{"id": each["id"], "version": 1} for each in lessons]
            log.change([Change("ADD", "new", "model", each) for each in fields], Place())
        for first in range(0, MANY, BATCH):
            log.note([_attempt(number, log.pool.version) for number in range(first, first + BATCH)])


def _attempt(number: int, pool: str) -> JsonObject:
    group = number // MEMBERS
    return {
        "schema_version": 1, "kind": "trajectory", "id": f"t-{number:016x}", "run_id": "tfg-1",
        "epoch": 1, "step": 0, "group_id": f"g-{group:016x}", "member": number % MEMBERS,
        "query_id": f"q-{group % 100}", "domain": "units", "status": "valid",
        "summary32": "Answered with the unit.", "words": 4, "summary_source": "model",
        "reward": {"gt": float(number % 3 > 0), "relative": 0.5, "advantage": 0.0},
        "tool_stats": [], "pool_version": pool,
        "injected": [[f"x-{1 + group % LESSONS:06d}", 1]], "withheld": [],
        "pack_digest": BASE["pack_digest"], "model_id": MODEL, "rollout_id": f"tfg-{number}",
        "evidence_path": "evidence/x.json", "created_unix_ms": 1790000000000,
    }  # fmt: skip


def started(folder: Path) -> dict[str, float]:
    """Read all chains in this process, and choose lessons for a prompt and for the next."""
    began = time.monotonic()
    with closing(open_at(folder / "store.sqlite")) as store:
        log = Log(store, KEYS)
        effects = log.effects()
        start_s = time.monotonic() - began
        pack = PACK._replace(retrieval=Retrieval(min_score=-1.0))
        rules = Rules(pack, MODEL, -1.0, 1500)
        next_ms = []
        for _ in range(11):
            began = time.monotonic()
            log.read()
            taken = choose(log.in_force(), rules, effects).taken
            next_ms.append(1000 * (time.monotonic() - began))
    if len(taken) != pack.slots:
        raise RuntimeError(f"{len(taken)} lessons of {pack.slots}")
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / MB
    return {"start_s": start_s, "next_ms": float(np.median(next_ms[1:])), "mb": mb}


def _in_process(part: str, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.chains", part, str(folder)], cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def measure(rounds: int) -> list[Found]:
    """Measure each in turn."""
    took: dict[str, list[float]] = {}
    with TemporaryDirectory(prefix="tau-live-bench-") as name:
        fill(Path(name))
        for _ in range(rounds):
            with TemporaryDirectory(prefix="tau-live-bench-") as empty:
                found = _in_process("--write", Path(empty))
            for key, value in {**found, **_in_process("--start", Path(name))}.items():
                took.setdefault(key, []).append(value)
    records = EPOCHS * GROUPS * MEMBERS
    return [
        Found(f"ms until a record is stored, p95 of {records:,} with {WORKERS} workers",
              took["p95_ms"], 200.0),
        Found("% of an epoch that rewarders take", took["rewarders"], 10.0),
        Found(f"s until a run begins that verifies {MANY:,} records", took["start_s"], 10.0),
        Found("MB of memory then, the interpreter included", took["mb"], 400.0),
        Found(f"ms to choose the lessons of the next prompt from {LESSONS}", took["next_ms"], 5.0),
    ]  # fmt: skip


@click.command(name="chains", help="How long writing, verifying and using many lessons takes")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("chains", "Chains of lessons", measure(rounds), as_json=as_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        sys.stdout.write(json.dumps(written(Path(sys.argv[2]))))
    elif sys.argv[1:2] == ["--start"]:
        sys.stdout.write(json.dumps(started(Path(sys.argv[2]))))
    else:
        main()
