"""A store in one SQLite file, which several processes may share.

SQLite remembers, in memory and per file, which locks the process holds. A child inherits that
memory without the locks: what it opens then waits for ever for a transaction that was going on
when it was born, and is not protected from others. So a fork waits until no statement runs, and
the child closes what it inherited before it opens anything.

Source:
    sqlite.org/howtocorrupt.html, section 2.6; ``unixInodeInfo`` in SQLite's ``os_unix.c``.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tau_live.core import fault
from tau_live.core.errors import suppress
from tau_live.store.files import BESIDE, beside, set_aside
from tau_live.store.sealing import Sealer, key_in
from tau_live.store.sqlite.batch import SqliteBatch
from tau_live.store.sqlite.connection import Connection, Synchronous, connect
from tau_live.store.sqlite.decisions import SqliteDecisions, SqliteTrials
from tau_live.store.sqlite.export import export_rows
from tau_live.store.sqlite.operations import (
    SqliteAlerts,
    SqliteAudit,
    SqliteCounters,
    SqliteGate,
    SqliteLeases,
    SqlitePauses,
)
from tau_live.store.sqlite.policies import SqliteMonitors, SqlitePolicies
from tau_live.store.sqlite.queries import SqliteSurveys
from tau_live.store.sqlite.queue import SqliteQueue, SqliteResources, SqliteWorkers
from tau_live.store.sqlite.retention import SqliteRetention, restore_rows
from tau_live.store.sqlite.rewards import SqliteRewards
from tau_live.store.sqlite.rollouts import SqliteRollouts
from tau_live.store.sqlite.schema import SCHEMA_VERSION, check, migrate
from tau_live.store.sqlite.seals import SqliteSeals


class SqliteStore:
    """One open store, for one thread.

    Attributes:
        path: The file.
        rollouts: Rollouts, attempts and spans.
        decisions: Decisions.
        rewards: Rewards and what they make ready.
        queue: The queue.
        workers: The workers.
        resources: Prompts and settings.
        policies: Policies and updates.
        monitors: What monitors remember.
        trials: The learner of each point against its control.
        gate: The gate.
        pauses: What rests.
        leases: Leases.
        counters: Counters.
        audit: The audit.
        alerts: Alerts.
        retention: Retention.
        seals: The chain of seals, and what contradicts it.
        surveys: What a report asks.
    """

    def __init__(self, connection: Connection, *, busy_timeout_s: float) -> None:
        self.path = connection.path
        self.rollouts = SqliteRollouts(connection)
        self.decisions = SqliteDecisions(connection)
        self.rewards = SqliteRewards(connection)
        self.queue = SqliteQueue(connection)
        self.workers = SqliteWorkers(connection)
        self.resources = SqliteResources(connection)
        self.policies = SqlitePolicies(connection)
        self.monitors = SqliteMonitors(connection)
        self.trials = SqliteTrials(connection)
        self.gate = SqliteGate(connection)
        self.pauses = SqlitePauses(connection)
        self.leases = SqliteLeases(connection)
        self.counters = SqliteCounters(connection)
        self.audit = SqliteAudit(connection)
        self.alerts = SqliteAlerts(connection)
        self.seals = SqliteSeals(connection)
        self.retention = SqliteRetention(connection)
        self.surveys = SqliteSurveys(connection)
        self._connection = connection
        self._busy_timeout_s = busy_timeout_s
        self._version = connection.data_version()
        self._file = _file_of(self.path)
        self._paths_beside = {end: beside(self.path, end) for end in BESIDE}
        self._note_beside()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        busy_timeout_s: float = 5.0,
        read_only: bool = False,
        key_file: Path | None = None,
    ) -> "SqliteStore":
        """Open a store, made for its owner's eyes alone if it is not there yet.

        Args:
            path: The file; missing folders are made.
            synchronous: ``normal`` survives the death of the process, ``full`` also that of the
                machine, at about 80 times the price of a commit.
            busy_timeout_s: How long to wait for other processes' transactions.
            read_only: Write nothing, not even to create or migrate the file.
            key_file: The key of the seals, made if it is not there; ``None`` seals without one.

        Raises:
            StoreUnavailableError: It cannot be opened, or is not a store.
            StoreVersionError: It was written by a newer tau-live, or must be migrated first.
        """
        file = Path(path).absolute()
        connection = connect(file, busy_timeout_s=busy_timeout_s, read_only=read_only)
        try:
            check(connection, oldest=SCHEMA_VERSION if read_only else 0)
            if not read_only:
                connection.look_for_lost()
                connection.prepare(synchronous=synchronous, busy_timeout_s=busy_timeout_s)
                fault.point("store.prepared")
                migrate(connection)
                connection.narrow()
                sealer = Sealer(key_in(key_file, make=True))
                SqliteSeals(connection).begin_with(sealer, key_file)
                connection.seal_with(sealer)
                SqliteSeals(connection).seal_from_here()
            return cls(connection, busy_timeout_s=busy_timeout_s)
        except BaseException:
            connection.close()
            raise

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; may be nested (savepoints)."""
        return self._connection.begin()

    def reading(self) -> AbstractContextManager[None]:
        """Let everything that is read inside come from one state of the store."""
        return self._connection.reading()

    def batch(self, ids: Collection[str]) -> AbstractContextManager[SqliteBatch]:
        """Open a batch, inside a transaction; it is stored when it is left without an error.

        Until then only the batch knows all that it holds, and nothing else may be written. Rows
        of several rollouts may be numbered by these, not by the order in which they came.

        Args:
            ids: The rollouts that it may be about, by all ids that they may have: these are loaded
                at once, others when they are needed.
        """
        return SqliteBatch(self._connection, ids)

    def is_there(self) -> bool:
        """Return whether the file is still where it was opened, neither another one nor emptied."""
        if self._file is None or _file_of(self.path, empty=False) != self._file:
            return False
        self._note_beside()  # they come later
        return True

    def _note_beside(self) -> None:
        self._beside = {end: _file_of(path) for end, path in self._paths_beside.items()}

    def set_leftovers_aside(self) -> None:
        """Rename what this store had beside its file, after that was removed or replaced.

        SQLite would take it for part of whatever is there now, and mix the two.
        """
        own = [
            end
            for end, was in self._beside.items()
            if was is not None and _file_of(self._paths_beside[end]) == was
        ]
        with suppress(OSError):
            set_aside(self.path, own)

    def has_changed(self) -> bool:
        """Return whether another connection has written since the last call (cheap)."""
        before, self._version = self._version, self._connection.data_version()
        return self._version != before

    def stamp(self) -> tuple[int, int]:
        """Return what differs after anything was written, here or elsewhere (cheap)."""
        return self._connection.data_version(), self._connection.raw.total_changes

    def damage(self, *, deadline: float) -> str | None:
        """Return what is wrong with the file's pages, in words; empty if nothing is.

        Args:
            deadline: When to stop looking, on the monotonic clock; ``None`` is returned then.
        """
        return self._connection.damage(deadline=deadline)

    def export(self) -> Iterator[dict[str, object]]:
        """Yield every row that a recording determines, in a fixed order.

        ``{"table": ..., ...}`` with public ids instead of keys, without anything that depends
        on this machine, process or clock; encoded features in base64. All rows are of one
        moment, and the store may be written to while they are read.
        """
        return export_rows(self.path, busy_timeout_s=self._busy_timeout_s)

    def restore(self, rows: Iterable[Mapping[str, object]]) -> Mapping[str, int]:
        """Put rows of an export or an archive back, rollouts before what is theirs.

        What is stored already is left alone, and so are rollouts that had not ended. Returns how
        many rows were put back, by table, and how many rollouts were ``known`` or ``open``.
        """
        return restore_rows(self._connection, rows)

    def hold_still(self, timeout_s: float) -> bool:
        """Let no statement begin until ``go_on``; ``False`` if one goes on for too long."""
        return self._connection.hold_still(timeout_s)

    def go_on(self) -> None:
        """End a ``hold_still`` of the same thread."""
        self._connection.go_on()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def close_inherited(self) -> None:
        """Close the connection of a parent in a forked child."""
        self._connection.close_inherited()

    def abandon(self) -> None:
        """Never close the connection, not even at the end of the process."""
        self._connection.abandon()


def _file_of(path: Path, *, empty: bool = True) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if empty or status.st_size else None
