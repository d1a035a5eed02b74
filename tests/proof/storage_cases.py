"""Events that can happen to a store's file, on a real file system and under a real process."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from click.testing import CliRunner, Result

from tau_live.cli import main
from tau_live.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
PAGE = 4096

_terminal_lock = threading.Lock()


class WorkResult(TypedDict):
    """A host's report on some runs."""

    raised: int
    strange: int
    sources: dict[str, int]
    ids: list[str]
    slowest_ms: float


@dataclass
class Outcome:
    """The outcome of one case.

    Attributes:
        name: The name of the case.
        raised: The number of exceptions that reached the host.
        strange: The number of answers that were not among the options.
        sources: The decisions by their source while it lasted: ``policy`` or ``default``.
        slowest_ms: The longest run, in ms of the host's thread.
        reported: Whether the snapshot, the log or the doctor reported it.
        repeats: The largest number of equal log lines.
        acknowledged: The number of acknowledged runs, where the file survived.
        lost: The number of these that are not stored.
        deleted: The number of files with contents that have no name any more.
        recovered: Whether it went on in the end.
        by_itself: Whether that took nothing but removing the cause.
        recovery_s: How long that took.
    """

    name: str
    raised: int = 0
    strange: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    slowest_ms: float = 0.0
    reported: bool = False
    repeats: int = 0
    acknowledged: int = 0
    lost: int = 0
    deleted: int = 0
    recovered: bool = False
    by_itself: bool = False
    recovery_s: float = 0.0


class Host:
    """A process that works with tau-live attached."""

    def __init__(self, store: Path | str, outcome: Outcome, *, gone: Path | None = None,
                 environ: dict[str, str] | None = None) -> None:  # fmt: skip
        own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
        roots = os.pathsep.join(path for path in sys.path if path)
        self._outcome = outcome
        arguments = [str(store), *([str(gone)] if gone else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.storage_host", *arguments],
            cwd=ROOT,
            env={**own, "PYTHONPATH": f"{ROOT}{os.pathsep}{roots}", **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read_answer()
        self._works = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def has_logged(self) -> bool:
        """Return whether its log has anything in it."""
        return bool(self.ask("state")["log"])

    def _read_answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._outcome.raised += 1
            raise RuntimeError(f"{self._outcome.name}: the host ended with {self._process.wait()}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, object]:
        """Give a command and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._read_answer()

    def work(self, number: int = 20) -> list[str]:
        """Let it run agents; return the ids of their rollouts."""
        self._works += 1
        did: WorkResult = self.ask(f"work {number} {self._process.pid}-{self._works}")  # type: ignore[assignment]  # JSON
        self._outcome.raised += did["raised"]
        self._outcome.strange += did["strange"]
        self._outcome.slowest_ms = max(self._outcome.slowest_ms, did["slowest_ms"])
        self._outcome.sources = dict(did["sources"])
        return did["ids"]

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Return whether everything was stored in time."""
        return self.ask(f"flush {timeout_s}")["flushed"] is True

    def gate(self) -> dict[str, object]:
        """Return the gate of its snapshot."""
        gate = self.ask("state")["gate"]
        return gate if isinstance(gate, dict) else {}

    def reports_trouble(self) -> bool:
        """Return whether it reports trouble, and note the largest number of equal log lines.

        A store that worked in between, as a damaged one may, is reported anew.
        """
        state = self.ask("state")
        log = [str(line) for line in state["log"]] if isinstance(state["log"], list) else []
        lines: list[str] = []
        for line in log:
            if "store_works_again" in line:
                lines.clear()
            elif "store_fails" in line or "store_busy" in line:
                lines.append(line)
                self._outcome.repeats = max(self._outcome.repeats, lines.count(line))
        gate = state["gate"]
        held = isinstance(gate, dict) and gate["state"] == "hold"
        return bool(log) and (held or bool(state["store_trouble"]) or self._outcome.repeats > 0)

    def until(self, state: str, *, patience_s: float = PATIENCE_S) -> float:
        """Wait until its gate is in a state; return how long that took, or infinity."""
        began = time.monotonic()
        while time.monotonic() - began < patience_s:
            if self.gate().get("state") == state:
                return time.monotonic() - began
            time.sleep(0.02)
        return float("inf")

    def end(self) -> None:
        """Let it detach and end."""
        self.ask("end")
        self.kill(signal.SIGTERM)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it at once."""
        self._process.send_signal(number)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def host(store: Path | str, outcome: Outcome, *, gone: Path | None = None,
         environ: dict[str, str] | None = None) -> Iterator[Host]:  # fmt: skip
    """Run a host that is gone at the end whatever happens."""
    started = Host(store, outcome, gone=gone, environ=environ)
    try:
        yield started
    finally:
        with suppress(Exception):
            started.kill()


def command(store: Path, *arguments: str) -> Result:
    """Call ``tau-live`` as an operator does."""
    with _terminal_lock:
        return CliRunner().invoke(
            main, [*arguments, "--store", str(store)], env={"TAU_LIVE_RL": "1"}
        )


def reset(store: Path) -> bool:
    """Reset the gate as an operator does."""
    return command(store, "gate", "reset", "--reason", "proof").exit_code == 0


def stored(store: Path, ids: list[str]) -> int:
    """Return the number of the rollouts that are in a store."""
    opened = SqliteStore.open(store)
    try:
        return sum(opened.rollouts.find_rollout(id_) is not None for id_ in ids)
    finally:
        opened.close()


def inodes(folder: Path) -> set[int]:
    """Return the inodes of the databases in a folder, under whatever name.

    Not their logs: SQLite itself removes them when all of it is in the database.
    """
    names = [file for file in folder.rglob("store.sqlite*") if file.is_file()]
    return {
        file.stat().st_ino
        for file in names
        if not file.name.endswith(("-wal", "-shm", "-journal")) and file.stat().st_size
    }


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Keep the store's lock, as another process does."""
    other = sqlite3.connect(store, isolation_level=None, timeout=10)
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.execute("rollback")
        other.close()


@contextmanager
def mounted(folder: Path, *, size: str) -> Iterator[Path]:
    """Mount a file system of its own on a folder; needs root."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    """Return whether a file system can be mounted here."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        return False
    try:
        with mounted(folder / "try", size="64k"):
            return True
    except subprocess.CalledProcessError:
        return False


def flipped(path: Path, rng: random.Random) -> None:
    """Flip some bytes of a file."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        for _ in range(rng.choice([1, 10, 200])):
            at = rng.randrange(size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def zeroed(path: Path, rng: random.Random) -> None:
    """Overwrite some pages of a file with zeros."""
    pages = max(1, path.stat().st_size // PAGE)
    with path.open("r+b") as file:
        for _ in range(rng.choice([1, 3])):
            file.seek(PAGE * rng.randrange(pages))
            file.write(bytes(PAGE))


Damage = Callable[[Path, random.Random], None]


def run_module(module: str, *arguments: str) -> dict[str, object]:
    """Run a module in a process of its own and return the JSON that it prints last."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
    roots = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**own, "PYTHONPATH": f"{ROOT}{os.pathsep}{roots}"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=900,
        check=True,
    )
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result
