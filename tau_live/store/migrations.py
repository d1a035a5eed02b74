"""How an empty file, or one of an older schema, becomes a file of this one."""

from typing import TYPE_CHECKING

from tau_live.errors import StoreUnavailableError, StoreVersionError
from tau_live.store.connection import Connection
from tau_live.store.schema import RECORDING, WORKING
from tau_live.store.sealing import SEALING
from tau_live.store.sqlite_names import NAMING
from tau_live.store.sqlite_pauses import PAUSING
from tau_live.store.views import SHOWING

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

APPLICATION_ID = 0x7461754C
"""``tauL``, by which SQLite files of ours are known."""

SCHEMA_VERSION = 2
"""How many migrations there are; ``pragma user_version`` holds it."""


FIRST_SCHEMA = (*RECORDING, *NAMING, *WORKING, *PAUSING, *SEALING, *SHOWING)
"""The statements of the first migration; no later one has changed a table."""


def migrations() -> "Migrations":
    """Return every migration in order; one that was released is never edited."""
    from sqlite_utils import Migrations  # imports pandas where that is there

    known = Migrations("tau_live")

    @known()
    def m001_first_schema(db: "Database") -> None:
        for statement in FIRST_SCHEMA:
            db.execute(statement)

    @known()
    def m002_seals_of_what_decides(db: "Database") -> None:
        db.execute("insert into sequences values ('to_seal', 1)")  # until `seal_from_here`

    return known


def database_of(connection: Connection) -> "Database":
    """Return the same connection as sqlite-utils sees it."""
    from sqlite_utils import Database

    return Database(connection.raw, execute_plugins=False, recursive_triggers=False)


def migrate(connection: Connection) -> None:
    """Bring a file to the newest schema, in one transaction.

    Raises:
        StoreUnavailableError: The file is another application's.
        StoreVersionError: It was written by a newer tau-live.
    """
    if check(connection) == SCHEMA_VERSION:
        return
    with connection.begin():
        if check(connection) == SCHEMA_VERSION:  # another process was quicker
            return
        migrations().apply(database_of(connection))
        connection.rows(f"pragma application_id = {APPLICATION_ID}")
        connection.rows(f"pragma user_version = {SCHEMA_VERSION}")


def check(connection: Connection, *, oldest: int = 0) -> int:
    """Return the schema version of a file, 0 for an empty one.

    Raises:
        StoreUnavailableError: The file is another application's.
        StoreVersionError: It was written by a newer tau-live, or has a schema before ``oldest``.
    """
    with connection.reading():
        version = connection.count("pragma user_version")
        application_id = connection.count("pragma application_id")
        tables = connection.count("select count(*) from sqlite_master")
    blank = application_id == 0 and version == 0 and tables == 0
    if not blank and application_id != APPLICATION_ID:
        raise StoreUnavailableError(
            f"store '{connection.path}' cannot be used: it belongs to another application"
        )
    if version > SCHEMA_VERSION:
        raise StoreVersionError(
            f"store '{connection.path}' has schema {version}, this tau-live knows {SCHEMA_VERSION}:"
            " install a newer tau-live, or set TAU_LIVE_RL_STORE to another file"
        )
    if version < oldest:
        known = "is empty" if blank else f"has schema {version}, this tau-live needs {oldest}"
        raise StoreVersionError(
            f"store '{connection.path}' {known}: run your agent with TAU_LIVE_RL=1 once"
        )
    return version
