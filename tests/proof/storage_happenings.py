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
    Found,
    Host,
    Hurt,
    asked,
    command,
    host,
    inodes,
    locked,
    mounted,
    reset,
    stored,
)

Happening = Callable[[Path], Found]
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


def full_disk(folder: Path) -> Found:
    """The disk is really full, then it is not."""
    found = Found("full disk")
    with mounted(folder / "disk", size="24m") as disk, host(disk / "store.sqlite", found) as one:
        ids = one.work()
        assert one.flush()
        filler = _fill(disk)
        while one.gate().get("state") == "pass":
            one.work(5)
        one.work()
        found.said = one.says()
        _mended(found, one, disk / "store.sqlite", ids, mend=filler.unlink)
    return found


def full_at_start(folder: Path) -> Found:
    """The disk is full before the store can be made."""
    found = Found("full disk at the start")
    with mounted(folder / "disk", size="24m") as disk:
        filler = _fill(disk)
        with host(disk / "store.sqlite", found) as one:
            one.until("hold")
            one.work()
            found.said = one.says()
            _mended(found, one, disk / "store.sqlite", [], mend=filler.unlink)
    return found


def no_file_may_grow(folder: Path) -> Found:
    """The process may not let files grow: a full disk for whom mounts nothing."""
    found = Found("files may not grow")
    with host(folder / "store.sqlite", found) as one:
        ids = one.work()
        assert one.flush()
        _, hard = resource.prlimit(one.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (4096, hard))
        while one.gate().get("state") == "pass":
            one.work(5)
        one.work()
        found.said = one.says()
        _mended(
            found, one, folder / "store.sqlite", ids,
            mend=lambda: resource.prlimit(one.pid, resource.RLIMIT_FSIZE, (hard, hard)),
        )  # fmt: skip
    return found


def locked_for(seconds: float) -> Happening:
    """Return what happens when another process keeps the store locked for so long."""

    def happens(folder: Path) -> Found:
        found = Found(f"locked for {seconds:g} s")
        store = folder / "store.sqlite"
        with host(store, found) as one:
            ids = one.work()
            assert one.flush()
            with locked(store):
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    ids += one.work(5)
                    time.sleep(min(0.5, max(0.0, until - time.monotonic())))
                decided = dict(found.sources)
                found.said = one.says() or seconds < 5.5  # a wait that nobody notices
            began = time.monotonic()
            found.recovered = one.flush(30.0) and one.gate()["state"] == "pass"
            found.recovery_s = time.monotonic() - began
            found.by_itself = True
            found.acknowledged, found.lost = len(ids), len(ids) - stored(store, ids)
            found.sources = decided
            one.end()
        return found

    return happens


def _mended(
    found: Found, one: Host, store: Path, ids: list[str], *, mend: Callable[[], object]
) -> None:
    while_it_lasted = dict(found.sources)
    mend()
    found.recovery_s = one.until("pass")
    found.by_itself = found.recovery_s < float("inf")
    ids = [*ids, *one.work()]
    found.recovered = one.flush(60.0) and found.sources.get("policy", 0) > 0
    found.sources = while_it_lasted
    found.acknowledged = len(ids)
    found.lost = len(ids) - stored(store, ids)
    one.end()


def under_way(name: str, spoil: Callable[[Path], object], *, survives: bool = False) -> Happening:
    """Return what happens when a file is spoiled under a running host.

    Args:
        name: Of the case.
        spoil: Spoils the file.
        survives: Whether the file is still the same, with all that is in it.
    """

    def happens(folder: Path) -> Found:
        found = Found(name)
        store = folder / "store.sqlite"
        with host(store, found) as one:
            one.work(60)
            assert one.flush()
            before = inodes(folder)
            spoil(store)
            before &= inodes(folder)  # what the case itself did away with is not counted
            until = time.monotonic() + 8.0
            while not one.says() and time.monotonic() < until:
                one.work(5)
            one.work()
            found.said = one.says()
            found.deleted = len(before - inodes(folder))
            _repaired(found, one, store)
        return found

    return happens


def _repaired(found: Found, one: Host, store: Path) -> None:
    """Do what the doctor advises, until the host works again."""
    began = time.monotonic()
    while_it_lasted = dict(found.sources)
    before = inodes(store.parent)
    doctor = command(store, "doctor")
    if "set-aside" in doctor.stdout:
        command(store, "set-aside", "--reason", "proof")
        one.until("hold", patience_s=5.0)  # within a second it notices that the file is another
    if one.until("pass", patience_s=2.0) == float("inf"):
        reset(store)
    one.until("pass", patience_s=10.0)
    ids = one.work()
    found.recovered = one.flush(60.0) and one.gate().get("state") == "pass"
    found.recovered = found.recovered and stored(store, ids) == len(ids)
    found.recovery_s = time.monotonic() - began
    found.deleted += len(before - inodes(store.parent))
    found.sources = while_it_lasted
    one.end()


def at_start(name: str, prepare: Callable[[Path], Callable[[], object]]) -> Happening:
    """Return what happens when a host starts where the store cannot be used, and then can.

    Args:
        name: Of the case.
        prepare: Makes it so, and returns what mends it.
    """

    def happens(folder: Path) -> Found:
        found = Found(name)
        store = folder / "inside" / "store.sqlite"
        store.parent.mkdir()
        mend = prepare(store)
        with host(store, found) as one:
            one.work()
            found.said = one.says()
            _mended(found, one, store, [], mend=mend)
        return found

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
    """Let a store say of which schema it is."""
    with sqlite3.connect(store) as database:
        database.execute(f"pragma user_version = {version}")
    database.close()


def read_only_mount(folder: Path) -> Found:
    """A host starts on a read-only file system, which is made writable afterwards."""
    found = Found("read-only file system")
    with mounted(folder / "disk", size="24m") as disk:
        store = disk / "store.sqlite"
        SqliteStore.open(store).close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with host(store, found) as one:
            one.work()
            found.said = one.says()
            _mended(
                found, one, store, [],
                mend=lambda: subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True),
            )  # fmt: skip
    return found


def no_home(folder: Path) -> Found:
    """There is no home, and the folder that the host runs in is gone: the default store."""
    found = Found("no home, and the working directory is gone")
    gone = folder / "gone"
    gone.mkdir()
    with host("-", found, gone=gone, environ={"HOME": "", "TAU_LIVE_RL": "1"}) as one:
        one.work()
        found.said = one.said_anything()
        found.recovered = found.by_itself = True  # there is nothing to go back to
        one.end()
    return found


def damaged(base: Path, end: str, hurt: Hurt, seed: int) -> Happening:
    """Return what happens when a host starts on a killed one's store, and a file of it is damaged.

    Args:
        base: A folder with the store of a process that was killed.
        end: Of the file: empty, or ``-wal``.
        hurt: Damages a file.
        seed: Says where.
    """

    def happens(folder: Path) -> Found:
        found = Found(f"{hurt.__name__} {'log' if end else 'database'}")
        shutil.copytree(base, folder / "store")
        store = folder / "store" / "store.sqlite"
        file = store.with_name(f"{store.name}{end}")
        hurt(file, random.Random(seed))
        content, before = file.read_bytes(), inodes(folder)
        with host(store, found) as one:
            one.work()
            one.flush(3.0)
            found.said = _said_or_whole(one.says(), store, content, end)
            found.deleted = len(before - inodes(folder))
            _repaired(found, one, store)
        return found

    return happens


def _said_or_whole(says: bool, store: Path, content: bytes, end: str) -> bool:
    """Return whether damage was said: by the host, by a kept copy of the log, or by the doctor."""
    if says or not end:
        return says or command(store, "doctor").exit_code == 1 or _is_whole(store)
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
    """Return whether all that the killed process had been told is stored is there all the same."""
    ids = (store.parent / "acknowledged").read_text().split()
    return bool(content) and stored(store, ids) == len(ids)


def killed_store(folder: Path) -> Path:
    """Make the store of a process that was killed, with a log that nobody has read."""
    found = Found("the base")
    folder.mkdir()
    store = folder / "store.sqlite"
    with host(store, found) as one:
        ids = one.work(60)
        assert one.flush(60.0)
        with locked_out_of_checkpoints(store):
            ids += one.work(60)
            assert one.flush(60.0)
            one.kill()
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
    told = asked("tests.proof.slow_host", str(store), str(seconds))
    took, synced = told["took_ms"], told["synced"]
    if not isinstance(took, list) or not told["stored"] or not synced:
        raise RuntimeError(f"a slow disk proved nothing: {told}")
    return sorted(float(ms) for ms in took)
