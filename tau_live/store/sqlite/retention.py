"""Retention in a file: its size, and what deleted rows leave in it."""

from tau_live.core import fault
from tau_live.store.retention import Size
from tau_live.store.sql.retention import Retention
from tau_live.store.sqlite.connection import SqliteConnection

FREE_PAGES_PER_STEP = 256


class SqliteRetention(Retention):
    """Retention in a file."""

    _connection: SqliteConnection

    def size(self) -> Size:
        """Return the size of the store; takes the same time whatever it is."""
        count = self._connection.count
        page, free = count("pragma page_size"), count("pragma freelist_count")
        return Size(
            rollouts=count("select coalesce(sum(total), 0) from status_counts"),
            used_bytes=(count("pragma page_count") - free) * page,
            free_bytes=free * page,
        )

    def give_back(self, pages: int) -> int:
        """Return up to ``pages`` free pages to the file system, and say how many are left."""
        self._connection.rows(f"pragma incremental_vacuum({pages})")
        return self._connection.count("pragma freelist_count")

    def empty_log(self) -> bool:
        """Write the write-ahead log into the file and truncate it; ``False`` if it is in use.

        Until then it may hold deleted rows. It waits for no other process.
        """
        timeout_ms = self._connection.count("pragma busy_timeout")
        self._connection.rows("pragma wal_checkpoint(passive)")
        self._connection.rows("pragma busy_timeout = 0")
        try:
            return not self._connection.rows("pragma wal_checkpoint(truncate)")[0][0]
        finally:
            self._connection.rows(f"pragma busy_timeout = {timeout_ms}")

    def vacuum(self) -> None:
        """Give free pages back to the file system, in steps, each a short transaction."""
        free = self._connection.count("pragma freelist_count")
        while free:
            before, free = free, self.give_back(FREE_PAGES_PER_STEP)
            fault.point("retention.vacuumed")
            if free >= before:  # a copy without incremental vacuum
                break
        self._connection.rows("pragma wal_checkpoint(truncate)")

    def rewrite(self) -> None:
        """Rewrite the whole file, while all others wait, and empty the log.

        Where SQLite has split a page, it may hold a row twice, and deleting the row overwrites only
        one copy (``rebuildPage`` in its btree.c, up to 3.45 at least).
        """
        self._connection.rows("vacuum")
        self._connection.rows("pragma wal_checkpoint(truncate)")
