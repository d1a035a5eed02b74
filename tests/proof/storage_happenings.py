"""Each thing that can happen to a store: cause it, look, take it away, look again."""

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tau_live.store.sqlite.store import SqliteStore
from tests.proof.storage_cases import (
    Damage,
    Host,
    Outcome,
    command,
    host,
    inodes,
    locked,
    mounted,
    reset,
    run_module,
    stored,
)

Happening = Callable[[Path], Outcome]
_FILLER = "filler"


def _fill(folder: Path) -> Path:
    """Fill a file system to its last byte."""
    filler = folder / _FILLER
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


def full_disk(folder: Path) -> Outcome:
    """The disk is really full, then it is not."""
    outcome = Outcome("full disk")
    with (
        mounted(folder / "disk", size="24m") as disk,
        host(disk / "store.sqlite", outcome) as process,
    ):
        ids = process.work()
        assert process.flush()
        filler = _fill(disk)
        while process.gate().get("state") == "pass":
            process.work(5)
        process.work()
        outcome.reported = process.reports_trouble()
        _mended(outcome, process, disk / "store.sqlite", ids, mend=filler.unlink)
    return outcome


def full_at_start(folder: Path) -> Outcome:
    """The disk is full before the store can be made."""
    outcome = Outcome("full disk at the start")
    with mounted(folder / "disk", size="24m") as disk:
        filler = _fill(disk)
        with host(disk / "store.sqlite", outcome) as process:
            process.until("hold")
            process.work()
            outcome.reported = process.reports_trouble()
            _mended(outcome, process, disk / "store.sqlite", [], mend=filler.unlink)
    return outcome


def no_file_may_grow(folder: Path) -> Outcome:
    """The process may not let files grow: a full disk where nothing can be mounted."""
    outcome = Outcome("files may not grow")
    with host(folder / "store.sqlite", outcome) as process:
        ids = process.work()
        assert process.flush()
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, hard))
        while process.gate().get("state") == "pass":
            process.work(5)
        process.work()
        outcome.reported = process.reports_trouble()
        _mended(
            outcome, process, folder / "store.sqlite", ids,
            mend=lambda: resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard)),
        )  # fmt: skip
    return outcome


def locked_for(seconds: float) -> Happening:
    """Return what happens when another process keeps the store locked for so long."""

    def happens(folder: Path) -> Outcome:
        outcome = Outcome(f"locked for {seconds:g} s")
        store = folder / "store.sqlite"
        with host(store, outcome) as process:
            ids = process.work()
            assert process.flush()
            with locked(store):
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    ids += process.work(5)
                    time.sleep(min(0.5, max(0.0, until - time.monotonic())))
                decided = dict(outcome.sources)
                outcome.reported = (
                    process.reports_trouble() or seconds < 5.5
                )  # a wait that nobody notices
            began = time.monotonic()
            outcome.recovered = process.flush(30.0) and process.gate()["state"] == "pass"
            outcome.recovery_s = time.monotonic() - began
            outcome.by_itself = True
            outcome.acknowledged, outcome.lost = len(ids), len(ids) - stored(store, ids)
            outcome.sources = decided
            process.end()
        return outcome

    return happens


def _mended(
    outcome: Outcome, process: Host, store: Path, ids: list[str], *, mend: Callable[[], object]
) -> None:
    while_it_lasted = dict(outcome.sources)
    mend()
    outcome.recovery_s = process.until("pass")
    outcome.by_itself = outcome.recovery_s < float("inf")
    ids = [*ids, *process.work()]
    outcome.recovered = process.flush(60.0) and outcome.sources.get("policy", 0) > 0
    outcome.sources = while_it_lasted
    outcome.acknowledged = len(ids)
    outcome.lost = len(ids) - stored(store, ids)
    process.end()


def under_way(name: str, spoil: Callable[[Path], object], *, survives: bool = False) -> Happening:
    """Return what happens when a file is spoiled under a running host.

    Args:
        name: The name of the case.
        spoil: Spoils the file.
        survives: Whether the file is still the same, with all that is in it.
    """

    def happens(folder: Path) -> Outcome:
        outcome = Outcome(name)
        store = folder / "store.sqlite"
        with host(store, outcome) as process:
            process.work(60)
            assert process.flush()
            before = inodes(folder)
            spoil(store)
            before &= inodes(folder)  # files that the case itself removed are not counted
            until = time.monotonic() + 8.0
            while not process.reports_trouble() and time.monotonic() < until:
                process.work(5)
            process.work()
            outcome.reported = process.reports_trouble()
            outcome.deleted = len(before - inodes(folder))
            _repaired(outcome, process, store)
        return outcome

    return happens


def _repaired(outcome: Outcome, process: Host, store: Path) -> None:
    """Do what the doctor advises, until the host works again."""
    began = time.monotonic()
    while_it_lasted = dict(outcome.sources)
    before = inodes(store.parent)
    doctor = command(store, "doctor")
    if "set-aside" in doctor.stdout:
        command(store, "set-aside", "--reason", "proof")
        process.until("hold", patience_s=5.0)  # within a second it notices that the file is another
    if process.until("pass", patience_s=2.0) == float("inf"):
        reset(store)
    process.until("pass", patience_s=10.0)
    ids = process.work()
    outcome.recovered = process.flush(60.0) and process.gate().get("state") == "pass"
    outcome.recovered = outcome.recovered and stored(store, ids) == len(ids)
    outcome.recovery_s = time.monotonic() - began
    outcome.deleted += len(before - inodes(store.parent))
    outcome.sources = while_it_lasted
    process.end()


def at_start(name: str, prepare: Callable[[Path], Callable[[], object]]) -> Happening:
    """Return what happens when a host starts where the store cannot be used, and then can.

    Args:
        name: The name of the case.
        prepare: Makes the store unusable, and returns the function that mends it.
    """

    def happens(folder: Path) -> Outcome:
        outcome = Outcome(name)
        store = folder / "inside" / "store.sqlite"
        store.parent.mkdir()
        mend = prepare(store)
        with host(store, outcome) as process:
            process.work()
            outcome.reported = process.reports_trouble()
            _mended(outcome, process, store, [], mend=mend)
        return outcome

    return happens


def a_directory(store: Path) -> Callable[[], object]:
    """Put a directory where the file should be."""
    store.mkdir()
    return store.rmdir


def a_newer_schema(store: Path) -> Callable[[], object]:
    """Put a store there that a newer tau-live has written."""
    SqliteStore.open(store).close()
    set_version(store, 999)
    return lambda: set_version(store, 1)


def set_version(store: Path, version: int) -> None:
    """Set the schema version of a store."""
    with sqlite3.connect(store) as database:
        database.execute(f"pragma user_version = {version}")
    database.close()


def read_only_mount(folder: Path) -> Outcome:
    """A host starts on a read-only file system, which is made writable afterwards."""
    outcome = Outcome("read-only file system")
    with mounted(folder / "disk", size="24m") as disk:
        store = disk / "store.sqlite"
        SqliteStore.open(store).close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with host(store, outcome) as process:
            process.work()
            outcome.reported = process.reports_trouble()
            _mended(
                outcome, process, store, [],
                mend=lambda: subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True),
            )  # fmt: skip
    return outcome


def no_home(folder: Path) -> Outcome:
    """There is no home, and the folder that the host runs in is gone: the default store."""
    outcome = Outcome("no home, and the working directory is gone")
    gone = folder / "gone"
    gone.mkdir()
    with host("-", outcome, gone=gone, environ={"HOME": "", "TAU_LIVE_RL": "1"}) as process:
        process.work()
        outcome.reported = process.has_logged()
        outcome.recovered = outcome.by_itself = True  # there is nothing to go back to
        process.end()
    return outcome


def damaged(base: Path, end: str, damage: Damage, seed: int) -> Happening:
    """Return what happens when a host starts on a killed one's store, and a file of it is damaged.

    Args:
        base: A folder with the store of a process that was killed.
        end: The end of the file's name: empty, or ``-wal``.
        damage: Damages a file.
        seed: Determines where.
    """

    def happens(folder: Path) -> Outcome:
        outcome = Outcome(f"{damage.__name__} {'log' if end else 'database'}")
        shutil.copytree(base, folder / "store")
        store = folder / "store" / "store.sqlite"
        file = store.with_name(f"{store.name}{end}")
        damage(file, random.Random(seed))
        content, before = file.read_bytes(), inodes(folder)
        with host(store, outcome) as process:
            process.work()
            process.flush(3.0)
            outcome.reported = _is_damage_reported(process.reports_trouble(), store, content, end)
            outcome.deleted = len(before - inodes(folder))
            _repaired(outcome, process, store)
        return outcome

    return happens


def _is_damage_reported(reported: bool, store: Path, content: bytes, end: str) -> bool:
    """Return whether damage was reported, by host or doctor, or the damaged log was kept aside."""
    if reported or not end:
        return reported or command(store, "doctor").exit_code == 1 or _is_whole(store)
    kept = store.parent.glob(f"{store.name}.aside-*-wal")
    return any(file.read_bytes() == content for file in kept) or _lost_nothing(store, content)


def _is_whole(store: Path) -> bool:
    """Return whether SQLite finds nothing wrong: a byte of a text may be any byte."""
    database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return bool(database.execute("pragma integrity_check").fetchall() == [("ok",)])
    except sqlite3.Error:
        return False
    finally:
        database.close()


def _lost_nothing(store: Path, content: bytes) -> bool:
    """Return whether all runs that the killed process had acknowledged are stored nevertheless."""
    ids = (store.parent / "acknowledged").read_text().split()
    return bool(content) and stored(store, ids) == len(ids)


def killed_store(folder: Path) -> Path:
    """Make the store of a process that was killed, with a log that nobody has read."""
    outcome = Outcome("the base")
    folder.mkdir()
    store = folder / "store.sqlite"
    with host(store, outcome) as process:
        ids = process.work(60)
        assert process.flush(60.0)
        with locked_out_of_checkpoints(store):
            ids += process.work(60)
            assert process.flush(60.0)
            process.kill()
            (folder / "acknowledged").write_text(" ".join(ids))
            copy = folder.with_name("copy")
            shutil.copytree(folder, copy)
    for file in copy.glob("*-shm"):
        file.unlink()
    return copy


def locked_out_of_checkpoints(store: Path) -> ExitStack:
    """Keep a reader open, so that the log is not emptied."""
    reader = sqlite3.connect(store, isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from rollouts").fetchall()
    stack = ExitStack()
    stack.callback(reader.close)
    return stack


def removed(store: Path) -> None:
    """Remove a store with all that is beside it."""
    for end in ("", "-wal", "-shm"):
        store.with_name(f"{store.name}{end}").unlink()


def replaced_by_another(store: Path) -> None:
    """Put another database in its place."""
    other = store.with_name("other.sqlite")
    SqliteStore.open(other).close()
    other.replace(store)


def replaced_by_garbage(store: Path) -> None:
    """Put something in its place that is no database."""
    other = store.with_name("garbage")
    other.write_bytes(os.urandom(50_000))
    other.replace(store)


def overwritten(store: Path) -> None:
    """Write something else over it, in its place."""
    size = store.stat().st_size
    with store.open("r+b") as file:
        file.write(os.urandom(size))


def cut_in_half(store: Path) -> None:
    """Truncate it to half of its pages."""
    os.truncate(store, store.stat().st_size // 8192 * 4096)


def emptied(store: Path) -> None:
    """Truncate it to nothing."""
    os.truncate(store, 0)


def slow_disk(store: Path, seconds: float) -> list[float]:
    """Return what runs take of the host's time, in ms, the longest last, while syncs are slow.

    Raises:
        RuntimeError: Not everything was stored in the end, or the disk was not slow.
    """
    result = run_module("tests.proof.slow_host", str(store), str(seconds))
    took, synced = result["took_ms"], result["synced"]
    if not isinstance(took, list) or not result["stored"] or not synced:
        raise RuntimeError(f"a slow disk proved nothing: {result}")
    return sorted(float(ms) for ms in took)
