"""Checks whether a store can be read and written."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from tau_live.cli.doctor_checks.check import FAIL, OK, WARN, Check
from tau_live.cli.text import number
from tau_live.collection.trouble import advice
from tau_live.errors import StoreBusyError, StoreDamagedError, TauLiveError
from tau_live.status import silent_processes
from tau_live.store.connection import connect
from tau_live.store.sqlite import SqliteStore

WAIT_S = 1.0
LOOK_S = 3.0


def store_checks(file: Path, *, now: float) -> Iterator[Check]:
    """Yield whether every page is intact, whether it is writable, and who cannot write it."""
    yield _whole(file)
    yield _writable(file)
    yield from _silent(file, now=now)


def schema_checks(store: SqliteStore, file: Path) -> Iterator[Check]:
    """Yield where the store is, or what in it was put there, changed or removed by others."""
    foreign = list(store.consistency.foreign_schema())
    if not foreign:
        yield Check("schema", OK, f"{file}, {file.stat().st_size / 1e6:,.1f} MB")
    for one in foreign:
        advice = "find out who did it; `tau-live verify` shows what else was changed"
        yield Check("schema", FAIL, f"{one.what}: {one.detail}", advice, "store-schema-changed")


def unusable(error: TauLiveError) -> Check:
    """Return what is wrong with a store that cannot be used, and what to do."""
    mistake = "store-unusable"
    if isinstance(error, StoreBusyError):
        mistake = "store-locked"
    elif isinstance(error, StoreDamagedError):
        mistake = "store-damaged"
    return Check("schema", FAIL, str(error), advice(error), mistake)


def _whole(file: Path) -> Check:
    store = SqliteStore.open(file, read_only=True)
    try:
        found = store.damage(deadline=time.monotonic() + LOOK_S)
    finally:
        store.close()
    if found:
        doing = "`tau-live set-aside` keeps its files and starts an empty store"
        return Check("integrity", FAIL, f"it is damaged: {found}", doing, "store-damaged")
    if found is None:
        return Check("integrity", OK, f"no damage found within {LOOK_S:g} s")
    return Check("integrity", OK, "every page is intact")


def why_unwritable(file: Path, *, wait_s: float = WAIT_S) -> TauLiveError | None:
    """Return why a store cannot be written; ``None`` if it can.

    Only what is written shows that the disk is full; this changes nothing. Opened as a store it
    would be migrated and narrowed, which nobody asked for.
    """
    try:
        with (
            closing(connect(file, busy_timeout_s=wait_s, read_only=False)) as connection,
            connection.begin(),
        ):
            version = connection.count("pragma user_version")
            connection.change(f"pragma user_version = {version}")
    except TauLiveError as error:
        return error
    return None


def _writable(file: Path) -> Check:
    error = why_unwritable(file)
    if error is None:
        return Check("writing", OK, "it is writable")
    if isinstance(error, StoreBusyError):
        return Check("writing", WARN, str(error), advice(error), "store-locked")
    return Check("writing", FAIL, str(error), advice(error), "store-unwritable")


def _silent(file: Path, *, now: float) -> Iterator[Check]:
    store = SqliteStore.open(file, read_only=True)
    try:
        silent: Mapping[str, float] = silent_processes(store, now=now)
    finally:
        store.close()
    for process, seconds in silent.items():
        found = f"{process} is alive but has written nothing for {number(round(seconds))} s"
        todo = "see store_fails and store_busy in its log; it resumes by itself"
        yield Check("processes", FAIL, found, todo, "process-silent")
