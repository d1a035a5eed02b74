"""Opens a store from its address: the one place that knows the backends.

Another backend is a folder beside ``sqlite``, held to ``tests/contracts``, and a branch of
``open_at``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import sqlite_version_info

from tau_live.core.addresses import TENANT, address_in, file_of, split_tenant, with_tenant
from tau_live.core.errors import StoreError, StoreUnavailableError, TauLiveError
from tau_live.store.records import ServerFacts
from tau_live.store.roles import Spool, Store
from tau_live.store.sql.connection import Connection
from tau_live.store.sqlite.connection import OLDEST_SQLITE, Synchronous, connect
from tau_live.store.sqlite.schema import APPLICATION_ID
from tau_live.store.sqlite.store import SqliteStore

DATABASE = ("postgresql", "postgres")
"""The schemes of an address of a database."""

SCHEMES = ("sqlite", *DATABASE)

OLDEST_ENGINE = OLDEST_SQLITE
"""The oldest supported version of the engine."""

WAIT_S = 5.0
"""Seconds to wait for other processes' transactions, if nothing else is given."""

OLDEST_SERVER = 15
"""The oldest supported major version of PostgreSQL."""

_ADDRESS = re.compile(r"(?s)([a-z][a-z0-9+]+):(.+)")
_MAGIC = b"SQLite format 3\0"
_ID_BYTES = slice(68, 72)


def open_at(  # noqa: PLR0913  # all but the address by name
    address: str | os.PathLike[str],
    *,
    synchronous: Synchronous = "normal",
    busy_timeout_s: float = WAIT_S,
    read_only: bool = False,
    traceless: bool = False,
    key_file: Path | None = None,
    copying: bool = False,
) -> Store:
    """Open a store; a new one is readable by its owner alone.

    Args:
        address: A path, ``sqlite:PATH``, or ``postgresql://HOST/DATABASE`` with everything that a
            connection string of PostgreSQL may hold; or the path of a file that
            holds this, whose name ends with ``.address``.
        synchronous: ``normal`` survives the death of the process, ``full`` also that of the
            machine, with commits about 80 times as expensive.
        busy_timeout_s: Seconds to wait for other processes' transactions.
        read_only: Whether to write nothing, not even to create or migrate it.
        traceless: Whether to make no file beside it where it has no log, which SQLite would make
            and leave there for a reader: what others write from then on is not seen.
        key_file: The key of the seals, created if missing; ``None`` seals without one.
        copying: Whether a copy that is not whole yet will do.

    Raises:
        StoreUnavailableError: It cannot be opened, or is not a store.
        StoreVersionError: It was written by another version, and cannot or must be migrated first;
            or it is a copy that is not whole yet.
    """
    scheme, path = "sqlite", os.fspath(address)
    match = _ADDRESS.fullmatch(path) if isinstance(address, str) else None
    if match and (match[1] in SCHEMES or match[2].startswith("//")):
        scheme, path = match.groups()
    if scheme in DATABASE:
        whole = os.fspath(address)
        try:
            file = file_of(whole)
        except ValueError as error:  # without the address, which may hold a secret
            raise StoreUnavailableError("the address of the store is malformed") from error
        return _open_database(
            whole, file, busy_timeout_s=busy_timeout_s, read_only=read_only, key_file=key_file,
            copying=copying,
        )  # fmt: skip
    kept = address_in(Path(path)) if scheme == "sqlite" else None
    if kept is not None:
        file = Path(path).absolute()
        return _open_database(
            kept, file, busy_timeout_s=busy_timeout_s, read_only=read_only, key_file=key_file,
            copying=copying,
        )  # fmt: skip
    if scheme != "sqlite":
        raise StoreUnavailableError(
            f"store must be a path, sqlite:PATH or postgresql://..., got {scheme}:"
        )
    return SqliteStore.open(
        path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, read_only=read_only,
        traceless=traceless, key_file=key_file, copying=copying,
    )  # fmt: skip


def open_spool(
    path: Path,
    *,
    synchronous: Synchronous = "normal",
    busy_timeout_s: float = 5.0,
    read_only: bool = False,
    key_file: Path | None = None,
) -> Spool:
    """Open a spool; arguments as of ``open_at``.

    Raises:
        StoreUnavailableError: It cannot be opened, or is not a store.
        StoreVersionError: It was written by a newer tau-live, or must be migrated first.
    """
    return Spool.open(
        path, synchronous=synchronous, busy_timeout_s=busy_timeout_s, read_only=read_only,
        key_file=key_file,
    )  # fmt: skip


def _open_database(  # all but two by name
    address: str,
    file: Path,
    *,
    busy_timeout_s: float,
    read_only: bool,
    key_file: Path | None,
    copying: bool,
) -> Store:
    with _client():
        from tau_live.store.postgres.store import PostgresStore
    return PostgresStore.open(
        address, file=file, busy_timeout_s=busy_timeout_s, read_only=read_only, key_file=key_file,
        copying=copying,
    )  # fmt: skip


@contextmanager
def _client() -> Iterator[None]:
    """Name the extra that is missing, if an import inside needs it.

    Raises:
        StoreUnavailableError: It does.
    """
    try:
        yield
    except ImportError as error:
        raise StoreUnavailableError(
            "a store in PostgreSQL needs its client: `pip install 'tau-live[postgres]'`",
            todo="install the extra where the agent and this command run",
        ) from error


def reader(file: Path, *, busy_timeout_s: float) -> Connection:
    """Return a connection to a store that reads, whatever its version.

    Raises:
        StoreUnavailableError: It cannot be opened.
    """
    address = address_in(file)
    if address is None:
        return connect(file, busy_timeout_s=busy_timeout_s, read_only=True)
    with _client():
        from tau_live.store.postgres.connection import PostgresConnection

    return PostgresConnection(address, file=file, busy_timeout_s=busy_timeout_s, read_only=True)


def migrate(file: Path, *, key_file: Path | None) -> tuple[int, int]:
    """Migrate a store to the newest schema; return its version before and after.

    Args:
        file: Its file, or that of the address of a database.
        key_file: The key of the seals.

    Raises:
        StoreBusyError: Others kept a lock of a database for too long.
        StoreUnavailableError: It cannot be opened.
        StoreVersionError: It was written by a newer tau-live, or is a copy that is not whole yet;
            or there are no tables in a database.
    """
    address = address_in(file)
    if address is None:
        with closing(reader(file, busy_timeout_s=WAIT_S)) as connection:
            before = connection.version()
    else:
        with _client():
            from tau_live.store.postgres.connection import PostgresConnection
            from tau_live.store.postgres.store import migrate as migrate_database

        with closing(PostgresConnection(address, file=file, busy_timeout_s=WAIT_S)) as writing:
            before = migrate_database(writing)
    with closing(open_at(file, key_file=key_file)) as store:
        return before, store.connection.version()


def make_tenant(file: Path, name: str) -> str:
    """Make the schema of a tenant of a database, unless it is there; return the tenant's address.

    Raises:
        StoreError: It is a file, or names another tenant; or nothing can be named so.
        StoreUnavailableError: The database cannot be reached, or this login may not.
    """
    address = address_in(file)
    if address is None:
        raise StoreError("a file has no tenants: name a database, or a file for each of them")
    given, own = split_tenant(address)
    is_reserved = name.startswith("pg_") or name in {"information_schema", "public"}
    if is_reserved or not TENANT.fullmatch(name) or own not in {"", name}:
        expected = own or f"{TENANT.pattern}, and no schema of the server's own"
        raise StoreError(f"a tenant cannot be named {name!r} here: expected {expected}")
    with _client():
        from tau_live.store.postgres.connection import PostgresConnection

    with closing(PostgresConnection(given, file=file, busy_timeout_s=WAIT_S)) as connection:
        connection.make_schema(name)
    return with_tenant(given, name)


def server_facts(file: Path) -> ServerFacts | None:
    """Return what can be known of the server of a store; ``None`` for a file.

    Raises:
        StoreUnavailableError: It cannot be reached.
    """
    address = address_in(file)
    if address is None:
        return None
    with _client():
        from tau_live.store.postgres.connection import PostgresConnection
        from tau_live.store.postgres.server import server_facts as facts_of

    with closing(
        PostgresConnection(address, file=file, busy_timeout_s=WAIT_S, read_only=True)
    ) as connection:
        return facts_of(connection)


def engine_version() -> tuple[int, int, int]:
    """Return the version of the engine."""
    return sqlite_version_info


def is_store(path: Path) -> bool:
    """Return whether a file holds a store, by its header."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            header = file.read(_ID_BYTES.stop)
    except OSError:
        return False
    return header.startswith(_MAGIC) and header[_ID_BYTES] == APPLICATION_ID.to_bytes(4, "big")


def why_unwritable(file: Path, *, wait_s: float) -> TauLiveError | None:
    """Return why a store cannot be written; ``None`` if it can.

    Only a write shows that the disk is full; this one changes nothing. Opening it as a store would
    migrate it and narrow its permissions.
    """
    address = address_in(file)
    if address is not None:
        return _why_unwritable(address, file, wait_s=wait_s)
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


def _why_unwritable(address: str, file: Path, *, wait_s: float) -> TauLiveError | None:
    with _client():
        from tau_live.store.postgres.connection import PostgresConnection

    try:
        with closing(PostgresConnection(address, file=file, busy_timeout_s=wait_s)) as connection:
            connection.change("update counter_shards set value = value where false")
    except TauLiveError as error:
        return error
    return None
