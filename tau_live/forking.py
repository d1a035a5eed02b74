"""What has to be done so that a process may fork while its threads are at work on a store.

SQLite remembers, in memory and per file, which locks the process holds. A child inherits that
memory without the locks: what it opens then waits for ever for a transaction that was going on
when it was born, and is not protected from others. So a fork waits until no statement runs, and
the child closes what it inherited before it opens anything.

Source:
    sqlite.org/howtocorrupt.html, section 2.6; ``unixInodeInfo`` in SQLite's ``os_unix.c``.
"""

from tau_live.store.sqlite import SqliteStore

STILL_S = 1.0
"""How long a fork waits at most for each store; a batch takes some 50 ms."""


class Forks:
    """The open stores of a process, by the thread that they belong to."""

    def __init__(self) -> None:
        self._stores: dict[str, SqliteStore] = {}
        self._still: list[SqliteStore] = []

    def add(self, owner: str, store: SqliteStore) -> SqliteStore:
        """Note the store that a thread has opened, instead of the one it had before."""
        self._stores[owner] = store
        return store

    def before(self) -> None:
        """Wait until no statement runs, and let none begin."""
        self._still = [store for store in self._stores.copy().values() if store.hold_still(STILL_S)]

    def in_parent(self) -> None:
        """Let everything go on."""
        still, self._still = self._still, []
        for store in still:
            store.go_on()

    def in_child(self) -> None:
        """Close what was inherited; what was not still when the child was born is left alone."""
        for store in self._still:
            store.close()
