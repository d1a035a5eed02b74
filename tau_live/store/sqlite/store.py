"""A store in one SQLite file, which several processes may share.

SQLite remembers, in memory and per file, which locks the process holds. A child inherits that
memory without the locks: a store it opens then waits for ever for a transaction that was running
at the fork, and is not protected from others. So a fork waits until no statement runs, and the
child closes the inherited connections before it opens any.

Source:
    sqlite.org/howtocorrupt.html, section 2.6; ``unixInodeInfo`` in SQLite's ``os_unix.c``.
"""

import os
from pathlib import Path
from typing import Self

from tau_live.core import fault
from tau_live.core.errors import StoreUnavailableError, suppress
from tau_live.store.checkpoints import FolderCheckpoints
from tau_live.store.files import BESIDE, beside, policies_of, set_aside
from tau_live.store.records import OddRows
from tau_live.store.sealing import Sealer, key_in
from tau_live.store.sql.store import Store
from tau_live.store.sqlite.connection import SqliteConnection, Synchronous, connect
from tau_live.store.sqlite.odd_rows import odd_rows
from tau_live.store.sqlite.retention import SqliteRetention
from tau_live.store.sqlite.schema import SCHEMA_VERSION, check, migrate
from tau_live.store.sqlite.seals import SqliteSeals

OWN_TABLES = """
select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name
"""

SIZES = """
select tbl_name as name, sum(pgsize) as bytes
from dbstat join sqlite_master on sqlite_master.name = dbstat.name
where tbl_name not like 'sqlite_%' group by tbl_name
"""


class SqliteStore(Store):
    """One open store in a file, for one thread."""

    retention: SqliteRetention
    _connection: SqliteConnection

    def __init__(self, connection: SqliteConnection) -> None:
        seals = SqliteSeals(connection)
        super().__init__(
            connection,
            checkpoints=FolderCheckpoints(policies_of(connection.path)),
            seals=seals,
            retention=SqliteRetention(connection, seals),
        )
        self._file = _file_of(self.path)
        self._paths_beside = {end: beside(self.path, end) for end in BESIDE}
        self._note_beside()
        connection.has_changed()  # what others wrote before is no change

    @classmethod
    def open(  # noqa: PLR0913  # all but the path by name
        cls,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        busy_timeout_s: float = 5.0,
        read_only: bool = False,
        traceless: bool = False,
        key_file: Path | None = None,
        copying: bool = False,
    ) -> Self:
        """Open a store; see ``opening.open_at``.

        Args:
            path: The file; missing folders are created.
            synchronous: As of ``open_at``, like all that follow.
            busy_timeout_s: Seconds.
            read_only: Whether to write nothing.
            traceless: Whether to make no file either.
            key_file: The key of the seals.
            copying: Whether a copy that is not whole yet will do.

        Raises:
            StoreUnavailableError: It cannot be opened, or is not a store.
            StoreVersionError: It was written by a newer tau-live, or must be migrated first.
        """
        file = Path(path).absolute()
        connection = connect(
            file, busy_timeout_s=busy_timeout_s, read_only=read_only, traceless=traceless
        )
        try:
            check(connection, oldest=SCHEMA_VERSION if read_only else 0, copying=copying)
            if not read_only:
                connection.keep_lost_commits()
                connection.prepare(synchronous=synchronous, busy_timeout_s=busy_timeout_s)
                fault.point("store.prepared")
                migrate(connection, copying=copying)
                connection.narrow()
                sealer = Sealer(key_in(key_file, make=True))
                SqliteSeals(connection).begin_with(sealer, key_file)
                connection.seal_with(sealer)
                SqliteSeals(connection).seal_from_here()
            return cls(connection)
        except BaseException:
            connection.close()
            raise

    def is_there(self) -> bool:
        """Return whether the file is still there, neither replaced nor emptied."""
        if self._file is None or _file_of(self.path, empty=False) != self._file:
            return False
        self._note_beside()  # SQLite creates them later
        return True

    def _note_beside(self) -> None:
        self._beside = {end: _file_of(path) for end, path in self._paths_beside.items()}

    def set_leftovers_aside(self) -> None:
        """Rename the files that SQLite kept beside the store's, once that is removed or replaced.

        SQLite would take them for those of the new file, and mix the two.
        """
        own = [
            end
            for end, file in self._beside.items()
            if file is not None and _file_of(self._paths_beside[end]) == file
        ]
        with suppress(OSError):
            set_aside(self.path, own)

    def sizes(self) -> dict[str, int | None]:
        """Return the bytes of each table with its indexes; ``None`` where SQLite cannot tell."""
        rows = self._connection.rows
        names: dict[str, int | None] = {row["name"]: None for row in rows(OWN_TABLES)}
        try:
            return names | {row["name"]: row["bytes"] for row in rows(SIZES)}
        except StoreUnavailableError:  # this SQLite was built without its table of pages
            return names

    def damage(self, *, deadline: float) -> str | None:
        """Return the first damage found in the file's pages, as a sentence; empty if none.

        Args:
            deadline: Seconds of the monotonic clock at which to give up and return ``None``.
        """
        return self._connection.damage(deadline=deadline)

    def odd_rows(self, *, deadline: float, most: int) -> OddRows:
        """Return the rows that hold what no version of tau-live writes.

        Args:
            deadline: Seconds of the monotonic clock at which to give up.
            most: How many rows of a table are returned; the others are counted.
        """
        return odd_rows(self._connection, deadline=deadline, most=most)


def _file_of(path: Path, *, empty: bool = True) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if empty or status.st_size else None
