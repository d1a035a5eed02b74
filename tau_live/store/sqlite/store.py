"""A store in one SQLite file, which several processes may share.

SQLite remembers, in memory and per file, which locks the process holds. A child inherits that
memory without the locks: a store it opens then waits for ever for a transaction that was running
at the fork, and is not protected from others. So a fork waits until no statement runs, and the
child closes the inherited connections before it opens any.

Source:
    sqlite.org/howtocorrupt.html, section 2.6; ``unixInodeInfo`` in SQLite's ``os_unix.c``.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from tau_live.core import fault
from tau_live.core.errors import suppress
from tau_live.store.files import BESIDE, beside, set_aside
from tau_live.store.records import Condition, Topic
from tau_live.store.retention import ExportRow
from tau_live.store.sealing import Sealer, key_in
from tau_live.store.sqlite.batch import SqliteBatch
from tau_live.store.sqlite.connection import Connection, Synchronous, connect
from tau_live.store.sqlite.decisions import SqliteDecisions, SqliteTrials
from tau_live.store.sqlite.experience import SqliteExperience
from tau_live.store.sqlite.export import column_batches, export_rows
from tau_live.store.sqlite.odd_rows import OddRows, odd_rows
from tau_live.store.sqlite.operations import (
    SqliteAlerts,
    SqliteAudit,
    SqliteCounters,
    SqliteGate,
    SqliteLeases,
    SqlitePauses,
)
from tau_live.store.sqlite.optimizations import SqliteOptimizations
from tau_live.store.sqlite.policies import SqliteMonitors, SqlitePolicies
from tau_live.store.sqlite.queries import Found, SqliteSurveys, find
from tau_live.store.sqlite.queue import SqliteQueue, SqliteResources, SqliteWorkers
from tau_live.store.sqlite.retention import SqliteRetention, restore_rows
from tau_live.store.sqlite.rewards import SqliteRewards
from tau_live.store.sqlite.rollouts import SqliteRollouts
from tau_live.store.sqlite.schema import SCHEMA_VERSION, check, migrate
from tau_live.store.sqlite.seals import SqliteSeals

T = TypeVar("T")


class SqliteStore:
    """One open store, for one thread.

    Attributes:
        path: The file.
        clock: Epoch seconds, UTC: the clock of the machine, by which leases expire.
        rollouts: Rollouts, attempts and spans.
        decisions: Decisions.
        rewards: Rewards, and the rollouts that they make ready.
        queue: The queue.
        workers: The workers.
        resources: Prompts and settings.
        optimizations: Optimizations of prompts, and runs of lessons.
        experience: The chains of lessons.
        policies: Policies and updates.
        monitors: The memory of monitors.
        trials: The learner of each point against its control.
        gate: The gate.
        pauses: The paused parts.
        leases: Leases.
        counters: Counters.
        audit: The audit.
        alerts: Alerts.
        retention: Retention.
        seals: The chain of seals, and contradictions to it.
        surveys: Queries of reports.
    """

    def __init__(self, connection: Connection, *, busy_timeout_s: float) -> None:
        self.path = connection.path
        self.clock: Callable[[], float] = time.time
        self.rollouts = SqliteRollouts(connection)
        self.decisions = SqliteDecisions(connection)
        self.rewards = SqliteRewards(connection)
        self.queue = SqliteQueue(connection)
        self.workers = SqliteWorkers(connection)
        self.resources = SqliteResources(connection)
        self.optimizations = SqliteOptimizations(connection)
        self.experience = SqliteExperience(connection)
        self.policies = SqlitePolicies(connection)
        self.monitors = SqliteMonitors(connection)
        self.trials = SqliteTrials(connection)
        self.gate = SqliteGate(connection)
        self.pauses = SqlitePauses(connection)
        self.leases = SqliteLeases(connection, self.now)
        self.counters = SqliteCounters(connection)
        self.audit = SqliteAudit(connection)
        self.alerts = SqliteAlerts(connection)
        self.seals = SqliteSeals(connection)
        self.retention = SqliteRetention(connection)
        self.surveys = SqliteSurveys(connection)
        self._connection = connection
        self._busy_timeout_s = busy_timeout_s
        self._version = connection.data_version()
        self._revisions: dict[str, int] = {}
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
        traceless: bool = False,
        key_file: Path | None = None,
    ) -> "SqliteStore":
        """Open a store; see ``opening.open_at``.

        Args:
            path: The file; missing folders are created.
            synchronous: As of ``open_at``, like all that follow.
            busy_timeout_s: Seconds.
            read_only: Whether to write nothing.
            traceless: Whether to make no file either.
            key_file: The key of the seals.

        Raises:
            StoreUnavailableError: It cannot be opened, or is not a store.
            StoreVersionError: It was written by a newer tau-live, or must be migrated first.
        """
        file = Path(path).absolute()
        connection = connect(
            file, busy_timeout_s=busy_timeout_s, read_only=read_only, traceless=traceless
        )
        try:
            check(connection, oldest=SCHEMA_VERSION if read_only else 0)
            if not read_only:
                connection.keep_lost_commits()
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

    def find(
        self,
        kind: type[T],
        *where: Condition,
        any_of: Sequence[Condition] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> Found[T]:
        """Return the records of a kind that match, and how many match in all.

        Args:
            kind: ``Rollout``, ``Attempt``, ``Span``, ``Worker`` or ``Resource``.
            where: What holds of each of them.
            any_of: Conditions of which at least one holds, so that none match if it is empty;
                ``None`` asks for nothing more.
            order_by: A field, or a member of JSON data, as in a condition; ``None`` is the order in
                which rollouts came, attempts and spans within their rollout, workers by their
                registration, and resources by their publication.
            descending: The largest or newest first.
            limit: The most records; ``None`` is all.
            offset: How many to skip.

        Raises:
            ValueError: A kind, a field or a test is unknown, or a number is negative; the message
                names the nearest field.
        """
        return find(
            self._connection, kind, where, any_of=any_of, order_by=order_by,
            descending=descending, limit=limit, offset=offset,
        )  # fmt: skip

    def now(self) -> float:
        """Return the time by the clock of the store, in epoch seconds, UTC."""
        return self.clock()

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; may be nested (savepoints)."""
        return self._connection

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside come from one state of the store."""
        return self._connection.reading()

    def batch(self, ids: Collection[str]) -> AbstractContextManager[SqliteBatch]:
        """Open a batch, inside a transaction; it is stored when it is left without an error.

        Until then its changes can be read only through the batch, and nothing else may be written.
        Rows of several rollouts may be numbered rollout by rollout, not in the order of arrival.

        Args:
            ids: All ids of the rollouts that it may concern, to be loaded at once; others are
                loaded when they are needed.
        """
        return SqliteBatch(self._connection, ids)

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

    def changes(self) -> frozenset[Topic]:
        """Return the topics that another connection has changed since the last call (cheap).

        All topics are, when another writes for the first time; and what was changed through this
        store, when another writes after that.
        """
        before, self._version = self._version, self._connection.data_version()
        if self._version == before:
            return frozenset()
        known, rows = self._revisions, self._connection.rows("select * from revisions")
        self._revisions = {row["topic"]: row["revision"] for row in rows}
        return frozenset(
            topic
            for topic in Topic
            if self._revisions.get(topic, -1) != known.get(topic)  # also where its row is gone
        )

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes with every write, here or elsewhere (cheap)."""
        return self._connection.stamp()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Interrupt what is read inside after so many seconds.

        Raises:
            StoreBusyError: It took longer.
        """
        return self._connection.within(seconds)

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

    def export(self) -> Iterator[ExportRow]:
        """Yield every row that a recording determines, in a fixed order.

        ``{"table": ..., ...}`` with public ids instead of keys, without anything that depends
        on this machine, process or clock; encoded features in base64. All rows are of one
        moment, and the store may be written to while they are read.
        """
        return export_rows(self.path, busy_timeout_s=self._busy_timeout_s)

    def columns(
        self, table: str, *, size: int = 50_000
    ) -> Iterator[Mapping[str, Sequence[object]]]:
        """Yield the columns of an exported table, ``size`` rows at a time.

        As ``export`` has them, but that JSON stays text and features stay bytes.
        """
        return column_batches(self.path, table, size=size, busy_timeout_s=self._busy_timeout_s)

    def restore(self, rows: Iterable[ExportRow]) -> Mapping[str, int]:
        """Restore rows of an export or an archive, each rollout before its own rows.

        Stored rollouts are left alone, and those that had not ended are skipped. Returns how many
        rows were restored, by table, and how many rollouts were ``known`` or ``open``.
        """
        return restore_rows(self._connection, rows)

    def hold_still(self, timeout_s: float) -> bool:
        """Let no statement start until ``go_on``; ``False`` if one runs for too long."""
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
