"""Whole runs of an optimization, in this process and in others."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.settings import Settings
from tau_live.prompts.budget import Prices
from tau_live.prompts.config import read_config
from tau_live.prompts.lead import Shown
from tau_live.prompts.optimizer import begin, lead
from tau_live.store.records import Optimization
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.agents import FOLDER, HERE

ROOT = Path(__file__).parents[2]
MODEL = f"function/{HERE}:task_model"


def config_of(**changes: object) -> dict[str, object]:
    """Return a config with a rule to be found, whose polls take no time."""
    return {
        "optimize": [row("train", number) for number in range(1, 7)],
        "validate": [row("val", number) for number in range(1, 13)],
        "resources": {"system_prompt": "Be brief."},
        "model": MODEL,
        "poll_interval_ms": 1,
        "completion_poll_interval_ms": 2,
        "search": {
            "rounds": 2,
            "critic_model": f"function/{HERE}:critic",
            "editor_model": f"function/{HERE}:editor",
        },
        "adoption": {"min_pairs": 8},
        **changes,
    }


def row(set_: str, number: int) -> dict[str, str]:
    return {"prompt": f"{set_} {number}", "expected": str(number)}


class Bench:
    """A store, its configs, and runs on it.

    Attributes:
        folder: What agents leave.
        store: The store.
    """

    def __init__(self, folder: Path, store: SqliteStore) -> None:
        self.folder = folder
        self.store = store

    def config(self, **changes: object) -> Path:
        path = self.folder / "config.json"
        path.write_text(json.dumps(config_of(**changes)))
        return path

    def begin(self, **changes: object) -> Optimization:
        path = self.config(**changes)
        loaded = read_config(path, model=None)
        return begin(self.store, loaded, path, store_path=str(self.store.path), prices=Prices())

    def lead(
        self,
        run: Optimization,
        *,
        settings: Settings | None = None,
        show: Callable[[Shown], None] = lambda _: None,
    ) -> Optimization:
        loaded = read_config(Path(run.config_path), model=None)
        settings = settings or Settings(store=self.store.path)
        return lead(self.store, run, loaded, settings=settings, who="ada", show=show)

    def run(self, **changes: object) -> Optimization:
        return self.lead(self.begin(**changes))


@pytest.fixture
def bench(tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in os.environ:
        if name.startswith("TAU_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.chdir(ROOT)
    return Bench(tmp_path, store)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(bench: Bench) -> Iterator[Start]:
    """Start a command of ``tau-live optimize`` on the bench's store."""
    with ExitStack() as stack:

        def started(*arguments: object, **environ: str) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tau_live.cli", "optimize"),
                    *map(str, arguments),
                    *("--store", str(bench.store.path)),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


class Ended:
    """What a command printed, and its exit code."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.out, self.err = process.communicate(timeout=120)
        self.code = process.returncode

    @property
    def json(self) -> Any:  # whatever it prints
        return json.loads(self.out)


def wait_for(what: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def outcome(store: SqliteStore, run_id: str) -> dict[str, Any]:
    """Return all that a run found, without times and processes."""
    run = store.optimizations.run(run_id)
    candidates = [
        (known.label, known.version, known.text, known.parent, known.state, known.why,
         known.details.get("search_score"))
        for known in store.optimizations.candidates(run_id)
    ]  # fmt: skip
    report = {key: run.report.get(key) for key in ("scores", "adoption", "test", "search_ended")}
    return {"state": run.state, "reason_code": run.reason_code, "candidates": candidates, **report}
