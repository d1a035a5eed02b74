"""A store in a PostgreSQL database, which processes of many machines share."""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

import psycopg

from tau_live.core.errors import StoreVersionError
from tau_live.core.processes import HOUSE, PROCESSES, is_alive
from tau_live.store.postgres import schema
from tau_live.store.postgres.batch import PostgresBatch
from tau_live.store.postgres.checkpoints import PostgresCheckpoints
from tau_live.store.postgres.connection import PostgresConnection, store_error
from tau_live.store.postgres.grants import make_roles
from tau_live.store.postgres.queue import PostgresQueue
from tau_live.store.postgres.schema import statements
from tau_live.store.postgres.sealing import STORE_ID
from tau_live.store.postgres.seals import PostgresSeals
from tau_live.store.retention import Size
from tau_live.store.sealing import Sealer, key_in
from tau_live.store.sql.batch import Batch
from tau_live.store.sql.connection import OLDER, UNFINISHED
from tau_live.store.sql.retention import Retention
from tau_live.store.sql.store import Store

T = TypeVar("T")

LOCK_TIMEOUT = "2s"
"""How long a migration waits for a lock: whoever comes after it waits with it."""

TRIES = 5
"""How often a migration tries to get its locks, with a pause for those who waited with it."""

PAUSE_S = 0.5

BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
"""Errors of a migration that is tried again."""

SHUT_OUT = "update schema_version set oldest = %s where oldest < %s"

ADVANCE = "update schema_version set version = %s where version = %s"

SIZE = """
select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
where relkind in ('r', 'm')
and relnamespace = (select relnamespace from pg_class where oid = 'rollouts'::regclass)
"""


SIZES = """
select relname::text as name, pg_total_relation_size(oid) as bytes from pg_class
where relkind = 'r'
and relnamespace = (select relnamespace from pg_class where oid = 'rollouts'::regclass)
order by relname
"""


RELEASE = "delete from ids where rollout_id = any (%b::text[]) and forgotten_at is null"


class PostgresRetention(Retention):
    """Retention in a database, whose server gives space back by itself."""

    _connection: PostgresConnection

    def size(self) -> Size:
        """Return the size of the store; takes the same time whatever it is."""
        return Size(
            rollouts=self._connection.count("select coalesce(sum(total), 0) from status_counts"),
            used_bytes=self._connection.count(SIZE),
            free_bytes=0,
        )

    def _release(self, ids: Sequence[str]) -> None:
        """Delete the locks of ids, but those that say when a rollout was deleted."""
        self._connection.run_bound(RELEASE, ([*ids],))


MAY_ASK = """
select (
    has_function_privilege('pg_control_system()', 'execute')
    and has_function_privilege('pg_walfile_name(pg_lsn)', 'execute') and not pg_is_in_recovery()
)::integer
"""

HISTORY = """
select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) as history
from pg_control_system()
"""
"""The checkpoint of the control file would tell the timeline of a promoted standby too late."""

DATABASE = "select oid::bigint from pg_database where datname = current_database()"

HISTORY_S = 60.0
"""A failover ends connections; one behind a pooler is noticed in this time."""

HEARTBEAT = "select * from heartbeat(%b, %b, %b, %b, %b)"


class PostgresStore(Store):
    """One open store in a database, for one thread."""

    @classmethod
    def open(
        cls,
        address: str,
        *,
        file: Path,
        busy_timeout_s: float = 5.0,
        read_only: bool = False,
        key_file: Path | None = None,
        copying: bool = False,
    ) -> "PostgresStore":
        """Open a store; the tables are made in an empty schema, the first of the search path.

        Args:
            address: A connection string.
            file: The file that stands for it on this machine.
            busy_timeout_s: Seconds to wait for other processes' transactions.
            read_only: Whether nothing can be written.
            key_file: The key of the seals.
            copying: Whether a copy that is not whole yet will do.

        Raises:
            StoreUnavailableError: It cannot be reached, or is not a store.
            StoreVersionError: It was written by another version, or is a copy that is not whole
                yet.
        """
        connection = PostgresConnection(
            address, file=file, busy_timeout_s=busy_timeout_s, read_only=read_only
        )
        try:
            _make(connection, copying=copying)
            store = cls(connection)
            if not read_only:
                sealer = Sealer(key_in(key_file, make=True))
                are_new = store.seals.begin_with(sealer, key_file)
                connection.seal_with(sealer)
                if are_new:
                    store.seals.keep_heads()
            return store
        except BaseException:
            connection.close()
            raise

    is_shared = True
    seals: PostgresSeals
    _connection: PostgresConnection
    _history: str = ""
    _history_at: float = float("-inf")

    def batch(self, ids: Collection[str]) -> AbstractContextManager[Batch]:
        """Open a batch, inside a transaction; see ``Store.batch``."""
        return PostgresBatch(self._connection, ids)

    def sizes(self) -> dict[str, int | None]:
        """Return the bytes of each table with its indexes."""
        return {row["name"]: row["bytes"] for row in self._connection.rows(SIZES)}

    def make_roles(self) -> list[str]:
        """Make the roles of the database, and grant them what they may do; return their names.

        Raises:
            StoreError: This login may not.
        """
        return make_roles(self._connection)

    def beat(self, process: str, *, ttl_s: float, report: str | None = None) -> bool:
        """Renew the lease of a process, and read topics and the clock; see ``Store.beat``.

        One statement does it all: a thousand hosts send it every few seconds. No lock is taken, as
        nobody else wants a lease that is named after this process.
        """
        began, at = time.monotonic(), self.now()
        [row] = self._connection.rows_bound(
            HEARTBEAT, (PROCESSES + process, process, report, at, ttl_s)
        )
        self._connection.set_clock(row["clock"], began)
        self._connection.note_read()
        revisions = dict(zip(row["topics"] or (), row["numbers"] or (), strict=True))
        self._is_stale = self._is_stale or revisions != self._revisions
        keeper = row["keeper"]
        if keeper not in {None, process} and is_alive(keeper) is not False:
            return False
        return self.leases.acquire(HOUSE, process, ttl_s=ttl_s) > 0

    def id(self) -> str:
        """Return the id that the database was made with, and its number on its server."""
        number = self._connection.count(DATABASE)
        return f"{self._connection.count(STORE_ID)}/{number}"

    @property
    def schema(self) -> int:
        """The newest version of the schema that this process knows."""
        return schema.VERSION

    def is_ahead(self) -> bool:
        """Return whether the database has a newer schema than this process knows."""
        return self._connection.version() > schema.VERSION

    def contract(self, check: Callable[[int], None]) -> list[int]:
        """Take away what only hosts of earlier versions need; see ``Store.contract``."""
        return [
            number
            for number in sorted(schema.CONTRACTIONS)
            if _try(self._connection, partial(_contract, self._connection, number, check))
        ]

    def history(self) -> str:
        """Return the system identifier of the server, and its timeline; read once a minute."""
        if time.monotonic() - self._history_at >= HISTORY_S:
            may_ask = self._connection.count(MAY_ASK)  # not a server that keeps it, or a standby
            self._history = str(self._connection.rows(HISTORY)[0]["history"]) if may_ask else ""
            self._history_at = time.monotonic()
        return self._history

    def __init__(self, connection: PostgresConnection) -> None:
        seals = PostgresSeals(connection)
        super().__init__(
            connection,
            checkpoints=PostgresCheckpoints(connection),
            seals=seals,
            retention=PostgresRetention(connection, seals),
            queue=PostgresQueue(connection),
        )


def _make(connection: PostgresConnection, *, copying: bool = False, newest: bool = True) -> None:
    """Make the schema, unless it is there.

    Raises:
        StoreUnavailableError: It is not there, and cannot be made.
        StoreVersionError: It is another version's, or that of a copy that is not whole yet.
    """
    try:
        if not _is_made(connection):
            if connection.read_only:
                raise _empty_error(connection)
            _execute_statements(connection)
        version = connection.version()
        oldest = connection.count("select oldest from schema_version")
    except psycopg.Error as error:
        raise store_error(error, connection.address) from error
    if version < 0 and not (copying and version == -schema.VERSION):
        raise StoreVersionError(
            UNFINISHED.format(connection.address), todo="run the same `tau-live store copy` again"
        )
    if newest and 0 <= version < schema.VERSION:
        raise StoreVersionError(
            OLDER.format(connection.address, version, schema.VERSION),
            todo="run `tau-live store migrate`, as the owner of the database",
        )
    if oldest > schema.VERSION:
        raise StoreVersionError(
            f"store '{connection.address}' has schema {version} for hosts that know {oldest}, this "
            f"tau-live knows {schema.VERSION}: install a newer tau-live",
            todo="install the tau-live that wrote it, or a newer one",
        )


def _empty_error(connection: PostgresConnection) -> StoreVersionError:
    return StoreVersionError(
        f"store '{connection.address}' is empty: make it with `tau-live store create`, or run your "
        "agent with TAU_LIVE_RL=1 once",
        todo="make it with `tau-live store create`, as the owner of the database",
    )


def _execute_statements(connection: PostgresConnection) -> None:
    raw = connection.raw
    try:
        with raw.transaction():
            for statement in statements():
                raw.execute(statement)
    except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
        if not _is_made(connection):  # else another process was quicker
            raise


def migrate(connection: PostgresConnection) -> int:
    """Migrate to the newest schema, one version after the other; return the version before.

    Each version is one transaction, but for those that make an index beside writers.

    Raises:
        StoreBusyError: Others kept a lock for too long, each time; what was reached is kept.
        StoreVersionError: It is a newer version's, or that of a copy that is not whole yet; or
            there is none.
    """
    if not _is_made(connection):
        raise _empty_error(connection)
    _make(connection, newest=False)
    before = connection.version()
    for number in range(before + 1, schema.VERSION + 1):
        _try(connection, partial(_advance, connection, number))
    return before


def _try(connection: PostgresConnection, step: Callable[[], T]) -> T:
    """Do a step that needs locks, and return what it returns; again if it did not get them.

    Raises:
        StoreBusyError: Others kept a lock for too long, each time.
    """
    try:
        for _ in range(TRIES - 1):
            try:
                return step()
            except BUSY:
                time.sleep(PAUSE_S)
        return step()
    except psycopg.Error as error:
        raise store_error(error, connection.address) from error


def _advance(connection: PostgresConnection, number: int) -> None:
    """Make a version from the one before it, unless another process has. Raises: psycopg.Error."""
    raw, needed = connection.raw, schema.MIGRATIONS[number]
    if all("concurrently" in statement for statement in needed):
        raw.execute("set lock_timeout = 0")  # nobody waits with it
        for statement in needed:
            raw.execute(statement)
        raw.execute(ADVANCE, (number, number - 1))
        return
    with raw.transaction():
        raw.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        # First of all, so that no batch waits for it that it waits for
        raw.execute("lock table turns in share row exclusive mode")
        if raw.execute(ADVANCE, (number, number - 1)).rowcount:
            for statement in needed:
                raw.execute(statement)


def _contract(connection: PostgresConnection, number: int, check: Callable[[int], None]) -> bool:
    """Take away what only hosts before a version need, unless that was done.

    Raises:
        psycopg.Error: It failed; nothing was taken away.
    """
    raw = connection.raw
    with raw.transaction():
        raw.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
        raw.execute("lock table turns in share row exclusive mode")  # as a migration does
        is_due = raw.execute(SHUT_OUT, (number, number)).rowcount > 0
        if is_due:
            check(number)
            for statement in schema.CONTRACTIONS[number]:
                raw.execute(statement)
    return is_due


def _is_made(connection: PostgresConnection) -> bool:
    [row] = connection.raw.execute("select to_regclass('schema_version') is not null")
    return bool(row[0])
