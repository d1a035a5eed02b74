"""Evidence: how long runs, comparisons and validations of many records take, and their memory.

Every figure is that of a process of its own, on a subject that waits or answers at once.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root
from tau_live.evidence.proving import compare, prove
from tau_live.evidence.records import ROLES, read_inputs
from tau_live.evidence.running import Frozen, freeze, run, store_of
from tau_live.evidence.suites import Case, Suite, suite_bytes
from tau_live.evidence.validation import Checked, validate
from tests.bench.items import Found, print_figures
from tests.bench.living import ROOT
from tests.bench.timing import LEAST_ROUNDS
from tests.evidence.suites import tool_case

RUN, SEEDS = "m24-bench", (1, 2, 3)
MANY, FEW, WORKERS, WAIT_S = 1_667, 30, 4, 0.05
MB, KIB = 1e6, 1024


def right(case: Case, seed: int) -> str:
    """Answer at once."""
    del seed
    return case.expected_outcome


def waiting(case: Case, seed: int) -> str:
    """Answer after 50 ms."""
    time.sleep(WAIT_S)
    return right(case, seed)


def _project(folder: Path, cases: int, subject: str) -> Root:
    rng, root = random.Random(cases), Root(folder)
    suite = Suite(
        suite_id="bench", suite_version="1", family="tool_use", description="Made for a bench.",
        cases=[tool_case(rng, number) for number in range(cases)],
    )  # fmt: skip
    (folder / "bench.json").write_bytes(suite_bytes(suite))
    plan = Frozen("bench.json", "host", f"python:tests.bench.evidence:{subject}", SEEDS)
    with closing(store_of(_settings(folder))) as store:
        freeze(root, RUN, plan, store=store, settings=_settings(folder))
    return root


def _settings(folder: Path) -> Settings:
    return Settings(store=folder / "store.sqlite")


def _run_s(workers: int) -> float:
    """Return the seconds of a run of a subject that waits."""
    with TemporaryDirectory(prefix="tau-live-bench-") as name:
        root = _project(Path(name), FEW, "waiting")
        began = time.monotonic()
        run(root, read_inputs(root, RUN), ("trained",), settings=_settings(root.folder),
            workers=workers)  # fmt: skip
        return time.monotonic() - began


def validated(folder: Path) -> dict[str, float]:
    """Validate a proof in this process."""
    began = time.monotonic()
    found = validate(folder / Names(RUN).proof, Checked(Root(folder), _settings(folder)))
    if not found.valid:
        raise RuntimeError(str(found.errors[:3]))
    took_s = time.monotonic() - began
    return {"s": took_s, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / MB}


def measure(rounds: int, *, many: int = MANY) -> list[Found]:
    """Measure each in turn."""
    took: dict[str, list[float]] = {"speedup": [], "compare": [], "s": [], "mb": []}
    with TemporaryDirectory(prefix="tau-live-bench-") as name:
        root = _project(Path(name), many, "right")
        prove(root, RUN, settings=_settings(root.folder))
        inputs = read_inputs(root, RUN)
        waited_s = 2 * inputs.episodes * WAIT_S
        for _ in range(rounds):
            took["speedup"].append(_run_s(1) / _run_s(WORKERS))
            began = time.monotonic()
            compare(root, inputs)
            took["compare"].append(100 * (time.monotonic() - began) / waited_s)
            done = subprocess.run(
                [sys.executable, "-m", "tests.bench.evidence", "--validate", name], cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                check=True,
            )  # fmt: skip
            for key, value in json.loads(done.stdout).items():
                took[key].append(value)
    records = len(ROLES) * inputs.episodes
    return [
        Found(f"{WORKERS} workers, subject of 50 ms: times one", took["speedup"], 3.6,
              at_least=True),
        Found(f"`compare` of {records:,} records, % of a run of 50 ms an episode",
              took["compare"], 10.0),
        Found(f"s to validate a proof of {records:,} records with its store", took["s"], 10.0),
        Found("MB of memory at most, the interpreter included", took["mb"], 200.0),
    ]  # fmt: skip


@click.command(name="evidence", help="How long runs, comparisons and validations take")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("evidence", "Evidence", measure(rounds), as_json=as_json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--validate"]:
        sys.stdout.write(json.dumps(validated(Path(sys.argv[2]))))
    else:
        main()
