"""The audit of what is done while the store may not work: in the store, else in a file beside it.

What is in the file comes into the store as soon as somebody has that open: a process that writes
to it, or the next thing that is written down so.
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from errno import EEXIST
from pathlib import Path

import msgspec

from tau_live.errors import TauLiveError
from tau_live.machine.private_files import give_to_owner_of_folder, make_folders
from tau_live.operators.kill_switch import kill_file
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore

PATIENCE_S = 0.5
"""How long a locked store is waited for."""

MOST_BYTES = 2**20
"""A larger file is left to the next line that is written down."""

_BEGINNING = b'{"at":'
"""Of every line."""

NEWEST = 1_000
"""Among so many lines of the store is looked for one that came in just before a process died."""


def write_down(settings: Settings, entry: AuditEntry) -> str | None:
    """Write down what an operator did; return what is to be known where the store cannot take it.

    Never fails: what was done is done.
    """
    log = _log_of(settings)
    try:
        if not settings.store.exists():
            raise TauLiveError(  # noqa: TRY301  # as any other failure
                f"there is no store at {settings.store}: if your agents use another, set "
                "--store or TAU_LIVE_RL_STORE"
            )
        _store(settings, log, entry)
    except (TauLiveError, OSError) as error:
        return _append(log, entry, why=str(error))
    return None


def take_in(store: Store, settings: Settings) -> int:
    """Write down what waits for the store, which works again; return how many lines that were.

    A file that somebody is at work on, or that is none, is left for the next time.

    Raises:
        StoreUnavailableError: The store cannot take it after all; it waits on.
    """
    log = _log_of(settings)
    if not os.path.lexists(log):  # as nearly always
        return 0
    try:
        with _alone(log, os.O_RDONLY, wait=False) as file:
            if file is None or not _is_ours(os.fstat(file)):
                return 0
            entries = [*_waiting(file)]
            with store.begin():
                _add(store, entries)
            log.unlink(missing_ok=True)
            return len(entries)
    except OSError:
        return 0


def _log_of(settings: Settings) -> Path:
    switch = kill_file(settings.store, settings.kill_file)
    return switch.with_name(f"{switch.name}.log")


def _is_ours(found: os.stat_result) -> bool:
    """Say whether nobody else could have written it, so that nobody speaks for an operator."""
    ours = found.st_uid in {0, os.geteuid()} and not found.st_mode & 0o022
    return ours and stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES


def _add(store: Store, entries: Sequence[AuditEntry]) -> None:
    """Add lines that the store has not yet, in one transaction."""
    known = {_key(entry) for entry in store.audit.entries(limit=NEWEST)}
    for entry in entries:
        if _key(entry) not in known:
            store.audit.add(entry)
            known.add(_key(entry))


def _key(entry: AuditEntry) -> bytes:
    return msgspec.json.encode(replace(entry, seq=0), order="sorted")


def _store(settings: Settings, log: Path, entry: AuditEntry) -> None:
    with _alone(log, os.O_RDONLY) as file:
        store = SqliteStore.open(
            settings.store, busy_timeout_s=PATIENCE_S, key_file=settings.audit_key_file
        )
        try:
            with store.begin():
                if file is not None:
                    _add(store, [*_waiting(file)])
                store.audit.add(entry)
        finally:
            store.close()
        if file is not None:
            log.unlink(missing_ok=True)


@contextmanager
def _alone(log: Path, flags: int, *, wait: bool = True) -> Iterator[int | None]:
    """Open the file while nobody else adds to it or takes it away.

    ``None`` if it is not there, or is somebody else's: it has its name from a kill file that a
    setting may name at will.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a pipe may never end
    while True:
        try:
            file = os.open(log, flags, 0o600)
        except FileNotFoundError:
            yield None
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(file).st_nlink:  # else its lines are in the store, and it is no more
                yield file if _holds_ours(file) else None
                return
        finally:
            os.close(file)


def _holds_ours(file: int) -> bool:
    first = os.pread(file, len(_BEGINNING), 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    return _BEGINNING.startswith(first.partition(b"\n")[0])  # a full disk cuts a line off anywhere


def _waiting(file: int) -> Iterator[AuditEntry]:
    with open(file, "rb", closefd=False) as opened:
        lines = opened.read().splitlines()
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=AuditEntry)
        except msgspec.DecodeError:  # cut off, by a disk that was full
            continue


def _append(log: Path, entry: AuditEntry, *, why: str) -> str:
    try:
        make_folders(log.parent)
        with _alone(log, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            if file is None:
                raise FileExistsError(EEXIST, f"'{log}' holds something else")
            os.write(file, _gap(file) + msgspec.json.encode(asdict(entry)) + b"\n")
        give_to_owner_of_folder(log)
    except OSError as error:
        return f"the audit log has no entry of this: {why}; {error.strerror or error}"
    return f"the store cannot record its audit entry yet ({why}); it waits in {log}"


def _gap(file: int) -> bytes:
    """Return what ends the last line, where a disk that was full has cut it off."""
    size = os.fstat(file).st_size
    return b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
