"""A connection to one SQLite file: private, with nested transactions and readable errors."""

import os
import sqlite3
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import TIMEOUT_MAX, Event, RLock, Thread
from typing import Any, Literal

from tau_live.core.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreUnavailableError,
    suppress,
)
from tau_live.core.files import narrow, refuse_pipe
from tau_live.core.guard import logger
from tau_live.rl.throttle import yield_gil
from tau_live.store.files import (
    files_of,
    has_log,
    is_emptied,
    keep_if_damaged,
    log_extent,
    make_private,
    read_locked,
)
from tau_live.store.sealing import Sealer, digest_of, number_of
from tau_live.store.sql.connection import Members, Parameters, Row, merge_json
from tau_live.store.sql.queries import TESTS
from tau_live.store.sqlite.blocks import Inserting
from tau_live.store.sqlite.sealing import install

Synchronous = Literal["normal", "full"]

WAL_LIMIT_BYTES = 64 * 1024 * 1024
RETRY_S = 0.02
OLDEST_SQLITE = (3, 37, 0)
"""The first version with strict tables."""
SMALLEST_BYTES = 512
"""SQLite takes a smaller file for empty, and would overwrite it."""

NUMBERED = """
select name from sqlite_master where type = 'table' and sql like '%primary key autoincrement%'
"""
"""The tables whose numbers are never used twice."""

NO_DATABASE = "it is not a SQLite database"

CAUSES: Mapping[str, tuple[type[StoreUnavailableError], str]] = {
    "SQLITE_BUSY": (StoreBusyError, "another process locked it for too long"),
    "SQLITE_LOCKED": (StoreBusyError, "another statement locked it for too long"),
    "SQLITE_FULL": (StoreUnavailableError, "the disk is full"),
    "SQLITE_NOTADB": (StoreDamagedError, NO_DATABASE),
    "SQLITE_CORRUPT": (StoreDamagedError, "it is damaged"),
    "SQLITE_READONLY": (StoreUnavailableError, "it is read-only"),
    "SQLITE_CANTOPEN": (StoreUnavailableError, "it cannot be opened"),
    "SQLITE_IOERR": (StoreUnavailableError, "reading or writing it failed"),
    "SQLITE_NOMEM": (StoreUnavailableError, "out of memory"),
    "SQLITE_PERM": (StoreUnavailableError, "access is not permitted"),
    "SQLITE_PROTOCOL": (StoreBusyError, "other processes locked it for too long"),
}
"""The meaning of SQLite's error codes for an operator; extended codes begin with these."""


MEMBERS = Members(
    data="iif(json_valid({0}), {0}, null)",
    member="(select value from json_each({}) where key = ? limit 1)",
    object="(select value from json_each({}) where key = ? and type = 'object' limit 1)",
    tests=TESTS,
    bound=lambda value: value,
)


_LOST: set[Path] = set()
"""Stores whose descriptors the host has closed; SQLite shares them within a process."""


class SqliteConnection(Inserting):
    """A connection to a store's file, used by one thread at a time; entered, a transaction.

    Attributes:
        path: The file.
        raw: The ``sqlite3`` connection.
        read_only: Whether nothing can be written.
        sealer: Seals its writes; ``None`` if they are not sealed.
        sealed: The sealed columns of each table, and the SQL type of each.
    """

    members = MEMBERS

    def __init__(
        self, raw: sqlite3.Connection, path: Path, *, busy_timeout_s: float, read_only: bool = False
    ) -> None:
        self.path = path
        self.address = str(path)
        self._data_version = -1
        self._busy_timeout_s = busy_timeout_s
        self.read_only = read_only
        self.raw = raw
        self.sealer: Sealer | None = None
        self.sealed: Mapping[str, Mapping[str, str]] = {}
        self._writing = raw.cursor()  # one for all statements: making one takes 0.4 us
        self._reading = raw.cursor()
        self._reading.row_factory = sqlite3.Row
        self._descriptor = _descriptor_of(path)
        self._savepoints: list[str | None] = []  # the outermost transaction is ``None``
        self._working = RLock()  # held while a statement or a transaction runs

    def rows(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Run a statement and return all of its rows."""
        try:
            with self._working:  # or another thread's commit would look like a rollback
                if self._savepoints and not self.raw.in_transaction:
                    raise self._rolled_back()
                rows: list[Row] = self._reading.execute(sql, parameters).fetchall()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._error_of(error) from error
        yield_gil()
        return rows

    def stream(self, sql: str, parameters: Parameters = ()) -> Generator[Row, None, None]:
        """Run a statement and yield its rows as they are read."""
        try:
            cursor = self.raw.cursor()
            cursor.row_factory = sqlite3.Row
            yield from cursor.execute(sql, parameters)
        except sqlite3.Error as error:
            raise self._error_of(error) from error

    def change(self, sql: str, parameters: Parameters = ()) -> int:
        """Run a statement that writes and return how many rows it changed."""
        try:
            with self._working:
                if self._savepoints and not self.raw.in_transaction:
                    raise self._rolled_back()
                return self._writing.execute(sql, parameters).rowcount
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._error_of(error) from error

    def column_blocks(self, sql: str, *, size: int) -> Iterator[Mapping[str, Sequence[Any]]]:
        """Run a statement and yield its columns by name, ``size`` rows at a time, at least once."""
        try:
            rows = self.raw.execute(sql)
            names = [name for name, *_ in rows.description]
            is_first = True
            while (block := rows.fetchmany(size)) or is_first:
                columns = list(zip(*block, strict=True)) or [()] * len(names)
                yield dict(zip(names, columns, strict=True))
                is_first = False
        except sqlite3.Error as error:
            raise self._error_of(error) from error

    def has_changed(self) -> bool:
        """Return whether another connection has written since the last call (cheap)."""
        before, self._data_version = self._data_version, self.data_version()
        return before != self._data_version

    def another(self) -> "SqliteConnection":
        """Open another connection to the file, which writes nothing."""
        return connect(self.path, busy_timeout_s=self._busy_timeout_s, read_only=True)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; SQLite may have rolled it back by itself."""
        return self.raw.in_transaction

    def stamp(self) -> object:
        """Return a value that changes with every write, here or elsewhere (cheap)."""
        return self.data_version(), self.raw.total_changes

    @property
    def last_row(self) -> int:
        """The number of the row that was inserted last."""
        return self._writing.lastrowid or 0

    def change_many(self, sql: str, rows: Sequence[Parameters]) -> int:
        """Run a statement that writes once for each of ``rows``; return how many rows changed."""
        try:
            with self._working:
                if self._savepoints and not self.raw.in_transaction:
                    raise self._rolled_back()
                return self._writing.executemany(sql, rows).rowcount
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._error_of(error) from error

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; inside another, a savepoint.

        A deferred transaction that reads and then writes fails with "database is locked" as soon
        as another process wrote in between; one that begins as ``immediate`` waits its turn.
        """
        return self  # a generator would add a tenth to a small transaction

    def __enter__(self) -> None:
        self._working.acquire()
        depth = len(self._savepoints)
        try:
            outermost = not self._savepoints and not self.raw.in_transaction
            savepoint = None if outermost else f"tau_live_{depth}"
            self.change("begin immediate" if savepoint is None else f"savepoint {savepoint}")
            self._savepoints.append(savepoint)
            if outermost:
                self.at_begin()
        except BaseException:
            try:
                if len(self._savepoints) > depth:
                    self._undo(self._savepoints.pop())
            finally:
                self._working.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        savepoint = self._savepoints[-1]
        undo = kind is not None
        try:
            if not undo:
                if savepoint is None:
                    self.at_commit()
                self.change("commit" if savepoint is None else f"release {savepoint}")
        except BaseException:
            undo = True
            raise
        finally:
            try:
                if undo:
                    self._undo(savepoint)
                self._savepoints.pop()
            finally:
                self._working.release()
        if savepoint is None and not undo:
            self.after_commit()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all reads inside come from one state of the store."""
        if self.raw.in_transaction:
            yield
            return
        with self._working:
            self.change("begin")
            try:
                yield
            finally:
                self._undo(None)

    def prepare(self, *, synchronous: Synchronous, busy_timeout_s: float) -> None:
        """Set the file up for many processes: a write-ahead log, and pages that can be given back.

        Two processes that change the journal of a new file at once do not wait for each other:
        one gets "database is locked" without its busy timeout being honoured.
        """
        if not self.count("pragma page_count"):  # or it would be written at every start
            self.rows("pragma auto_vacuum = incremental")
        deadline = time.monotonic() + busy_timeout_s
        while self.rows("pragma journal_mode")[0][0] != "wal":
            try:
                self.rows("pragma journal_mode = wal")
                break
            except StoreBusyError:
                if time.monotonic() > deadline:
                    raise
                Event().wait(RETRY_S)
        self.rows(f"pragma synchronous = {synchronous}")
        self.rows("pragma secure_delete = on")  # deleted rows are not left in free pages
        self.rows(f"pragma journal_size_limit = {WAL_LIMIT_BYTES}")

    def keep_lost_commits(self) -> None:
        """Keep a copy of the log if SQLite does not read all commits in it."""
        page_size = self.count("pragma page_size")
        before = log_extent(self.path, page_size=page_size)
        if before is None or self.rows("pragma journal_mode")[0][0] != "wal":
            return
        try:
            read = self._frames_read()
            if 0 <= read < before.commits:  # another's commit may be on its way to the disk
                self.change("begin immediate")
                self.change("rollback")
                read = self._frames_read()
        except StoreDamagedError:
            raise
        except StoreUnavailableError:  # it may be full, say; the next statement will tell
            return
        if read >= 0:  # else another process has the log, and has checked it itself
            keep_if_damaged(self.path, before, read=read, page_size=page_size)

    def _frames_read(self) -> int:
        return int(self.rows("pragma wal_checkpoint(passive)")[0][1])

    def numbers(self) -> dict[str, int]:
        """Return the last number given in each table whose numbers are never used twice."""
        rows = self.rows("select name, seq from sqlite_sequence")
        return {row["name"]: row["seq"] for row in rows}

    def number_after(self, numbers: Mapping[str, int]) -> None:
        """Number the next rows of tables after these numbers, and after the rows that are there."""
        for (table,) in self.rows(NUMBERED):
            known = max(self.numbers().get(table, 0), numbers.get(table, 0))
            self.change("delete from sqlite_sequence where name = ?", (table,))
            self.change("insert into sqlite_sequence (name, seq) values (?, ?)", (table, known))

    def version(self) -> int:
        """Return the version of the schema; less than 0 in a copy that is not whole yet."""
        return self.count("pragma user_version")

    def set_version(self, version: int) -> None:
        """Set the version of the schema."""
        self.rows(f"pragma user_version = {version}")

    def damage(self, *, deadline: float) -> str | None:
        """Return the first damage found in the pages; empty if none, ``None`` if time ran out."""
        result = None
        try:
            with self.ending_at(deadline):
                result = str(self.rows("pragma quick_check(1)")[0][0])
        except StoreDamagedError as error:
            return str(error)
        return "" if result == "ok" else result

    @contextmanager
    def ending_at(self, deadline: float) -> Iterator[None]:
        """End what is read inside at a time of the monotonic clock, without an error."""
        left = min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX)
        try:
            with self.within(left):
                yield
        except StoreDamagedError:
            raise
        except StoreUnavailableError:
            if time.monotonic() < deadline:
                raise

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Interrupt what is read inside after so many seconds.

        Raises:
            StoreBusyError: It took longer.
        """
        done, until = Event(), time.monotonic() + seconds

        def interrupt() -> None:
            pause_s = seconds
            while not done.wait(pause_s):  # again, as one statement may follow another
                self.raw.interrupt()
                pause_s = RETRY_S

        watcher = Thread(target=interrupt, name="tau-live-reading", daemon=True)
        watcher.start()  # a progress handler is not called while one tree is read
        try:
            yield
        except StoreDamagedError:
            raise
        except StoreUnavailableError as error:
            if time.monotonic() < until:
                raise
            raise StoreBusyError(f"reading took longer than {seconds:g} s") from error
        finally:
            done.set()
            watcher.join()

    def narrow(self) -> None:
        """Remove the permissions of others on the files, which are known to be ours by now."""
        try:
            for file in files_of(self.path):
                done = narrow(file)
                if done is not None:
                    logger().warning("file_narrowed", what=done)
        except OSError as error:
            raise StoreUnavailableError(f"store '{self.path}' is not private: {error}") from error

    def seal_with(self, sealer: Sealer) -> None:
        """Seal all writes from now on; temporary data stays in memory."""
        try:
            self.raw.execute("pragma temp_store = memory")
            self.sealed = install(self.raw, sealer)
            self.sealer = sealer
        except sqlite3.Error as error:
            raise self._error_of(error) from error

    def data_version(self) -> int:
        """Return a number that changes whenever another connection has committed."""
        try:
            with self._working:
                [(number,)] = self._writing.execute("pragma data_version")
        except sqlite3.Error as error:
            raise self._error_of(error) from error
        return int(number)

    def hold_still(self, timeout_s: float) -> bool:
        """Let no statement start until ``go_on``; ``False`` if one runs for too long.

        Also ``False`` in a transaction of the calling thread: a plugin may fork inside one.
        """
        if not self._working.acquire(timeout=timeout_s):
            return False
        with suppress(sqlite3.Error):  # it was closed
            if self.raw.in_transaction:
                self._working.release()
                return False
        return True

    def go_on(self) -> None:
        """End a ``hold_still`` of the same thread."""
        self._working.release()

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back.

        Not if the host has closed its descriptors: their numbers may be the host's own files now.
        """
        if self._was_closed():
            self.abandon()
            return
        with suppress(sqlite3.Error):
            self._reading.close()  # open statements would keep the file, and a lock on it, longer
            self._writing.close()
            self.raw.close()

    def close_inherited(self) -> None:
        """Close the connection of a parent in a forked child, without touching the log.

        Whoever closes a store last writes its log into it. A child whose parent ends at the same
        moment would take itself for the last, and use the state of the log at the fork.
        """
        with read_locked(self.path):
            self.close()

    def abandon(self) -> None:
        """Never close the connection: that would roll back a transaction of the parent."""
        with suppress(ImportError, AttributeError):  # other interpreters have no reference counts
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.raw))

    def _error_of(self, error: Exception) -> StoreError:
        if self._was_closed():
            _LOST.add(self.path)
        return store_error(error, self.path)

    def _was_closed(self) -> bool:
        """Return whether other code in this process has closed the descriptor of the file."""
        if self._descriptor is None:
            return False
        number, identity = self._descriptor
        try:
            status = os.fstat(number)
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != identity

    def _rolled_back(self) -> StoreUnavailableError:
        # A full disk may make SQLite roll back the whole transaction by itself. The rest of it must
        # then not be committed statement by statement.
        return StoreUnavailableError(
            f"store '{self.path}' cannot be written: its transaction was rolled back"
        )

    def _undo(self, savepoint: str | None) -> None:
        if not self.raw.in_transaction:
            return
        with suppress(sqlite3.Error):
            if savepoint is None:
                self.raw.execute("rollback")
            else:
                self.raw.execute(f"rollback to {savepoint}")
                self.raw.execute(f"release {savepoint}")


def _descriptor_of(path: Path) -> tuple[int, tuple[int, int]] | None:
    """Return the newest descriptor of a file in this process, and the file's device and inode.

    ``None`` without one, and where the system does not list descriptors.
    """
    try:
        known = path.stat()
        numbers = sorted(map(int, os.listdir("/proc/self/fd")), reverse=True)  # noqa: PTH208  # one call
    except (OSError, ValueError):
        return None
    for number in numbers:
        with suppress(OSError):
            status = os.fstat(number)
            if (status.st_dev, status.st_ino) == (known.st_dev, known.st_ino):
                return number, (known.st_dev, known.st_ino)
    return None


def store_error(error: Exception, path: Path) -> StoreError:
    """Return our error for an error of SQLite, naming the file."""
    if isinstance(error, OverflowError):
        return StoreError(f"store '{path}' holds no number of more than 64 bits")
    code = getattr(error, "sqlite_errorname", "") or ""
    if path in _LOST and code.startswith(tuple(CAUSES)):  # whatever SQLite reports
        return StoreUnavailableError(
            f"store '{path}' cannot be used: this process closed its files, as "
            "os.closerange does; restart it"
        )
    for known, (kind, cause) in CAUSES.items():
        if code.startswith(known):
            return kind(f"store '{path}' cannot be used: {cause} ({error})")
    if isinstance(error, sqlite3.OperationalError) or str(error).startswith("Cannot operate on a"):
        return StoreUnavailableError(f"store '{path}' cannot be used: {error}")
    return StoreError(f"store '{path}' cannot store this: {error}")


def connect(
    path: Path, *, busy_timeout_s: float, read_only: bool, traceless: bool = False
) -> SqliteConnection:
    """Open a store's file; a missing one is created, private, with its folders.

    Nothing is written into it: it may belong to another application.

    Args:
        path: The file.
        busy_timeout_s: Seconds to wait for other processes' transactions.
        read_only: Whether nothing can be written.
        traceless: As of ``open_at``.

    Raises:
        StoreUnavailableError: It cannot be opened.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailableError(
            f"store '{path}' cannot be opened: this Python has SQLite {sqlite3.sqlite_version}, "
            f"expected {'.'.join(map(str, OLDEST_SQLITE))} or newer"
        )
    try:
        refuse_pipe(path)
        if not read_only:
            make_private(path, timeout_s=busy_timeout_s)
        if path.is_file() and 0 < path.stat().st_size < SMALLEST_BYTES:
            raise StoreDamagedError(f"store '{path}' cannot be used: {NO_DATABASE}")
        if is_emptied(path):  # SQLite would delete the log
            raise StoreDamagedError(
                f"store '{path}' cannot be used: it is empty, but has a write-ahead log"
            )
        is_fixed = read_only and traceless and not has_log(path)  # or SQLite makes log and index
        raw = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
            f"{'&immutable=1' if is_fixed else ''}",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
    except OSError as error:
        raise StoreUnavailableError(f"store '{path}' cannot be opened: {error}") from error
    except (sqlite3.Error, ValueError) as error:
        raise store_error(error, path) from error
    try:
        raw.execute("pragma foreign_keys = on")
        raw.execute("pragma schema_version").fetchone()
    except sqlite3.Error as error:
        raw.close()
        raise store_error(error, path) from error
    raw.create_function("merged", 2, merge_json, deterministic=True)
    raw.create_function("row_digest", -1, digest_of, deterministic=True)
    raw.create_function("numbered", 1, number_of, deterministic=True)
    return SqliteConnection(raw, path, busy_timeout_s=busy_timeout_s, read_only=read_only)
