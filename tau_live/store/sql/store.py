"""A store: its roles, in one database that several processes may share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from tau_live.core.processes import HOUSE, PROCESSES
from tau_live.store.checkpoints import Checkpoints
from tau_live.store.records import Condition, OddRows, Topic
from tau_live.store.retention import ExportRow
from tau_live.store.sealing import Seals
from tau_live.store.sql.batch import Batch
from tau_live.store.sql.connection import Connection
from tau_live.store.sql.decisions import Decisions, Trials
from tau_live.store.sql.experience import Experience
from tau_live.store.sql.export import column_batches, export_rows
from tau_live.store.sql.operations import Alerts, Audit, Counters, Gate, Leases, Pauses
from tau_live.store.sql.optimizations import Optimizations
from tau_live.store.sql.policies import Monitors, Policies
from tau_live.store.sql.queries import Found, Surveys, find
from tau_live.store.sql.queue import Queue, Resources, Workers
from tau_live.store.sql.retention import Retention, restore_rows
from tau_live.store.sql.rewards import Rewards
from tau_live.store.sql.rollouts import Rollouts

T = TypeVar("T")


class Store(ABC):
    """One open store, for one thread.

    Attributes:
        path: The file.
        clock: Epoch seconds, UTC: the clock by which leases expire, the machine's or the server's.
        rollouts: Rollouts, attempts and spans.
        decisions: Decisions.
        rewards: Rewards, and the rollouts that they make ready.
        queue: The queue.
        workers: The workers.
        resources: Prompts and settings.
        optimizations: Optimizations of prompts, and runs of lessons.
        experience: The chains of lessons.
        policies: Policies and updates.
        checkpoints: The weights of policies.
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
        is_shared: Whether machines share it, so that one process keeps house for all.
    """

    is_shared = False
    seals: Seals
    retention: Retention

    def __init__(
        self,
        connection: Connection,
        *,
        checkpoints: Checkpoints,
        seals: Seals,
        retention: Retention,
        queue: Queue | None = None,
    ) -> None:
        self.path = connection.path
        self.address = connection.address
        self.clock: Callable[[], float] = connection.now
        self.rollouts = Rollouts(connection)
        self.decisions = Decisions(connection)
        self.rewards = Rewards(connection)
        self.queue = queue or Queue(connection)
        self.workers = Workers(connection)
        self.resources = Resources(connection)
        self.optimizations = Optimizations(connection)
        self.experience = Experience(connection)
        self.policies = Policies(connection)
        self.checkpoints = checkpoints
        self.monitors = Monitors(connection)
        self.trials = Trials(connection)
        self.gate = Gate(connection)
        self.pauses = Pauses(connection)
        self.leases = Leases(connection, self.now)
        self.counters = Counters(connection)
        self.audit = Audit(connection)
        self.alerts = Alerts(connection)
        self.seals = seals
        self.retention = retention
        self.surveys = Surveys(connection)
        self._connection = connection
        self._revisions: dict[str, int] = {}
        self._is_stale = False

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

    @property
    def connection(self) -> Connection:
        """The connection, for what concerns all tables."""
        return self._connection

    def now(self) -> float:
        """Return the time by the clock of the store, in epoch seconds, UTC."""
        return self.clock()

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; may be nested (savepoints)."""
        return self._connection

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside come from one state of the store."""
        return self._connection.reading()

    def batch(self, ids: Collection[str]) -> AbstractContextManager[Batch]:
        """Open a batch, inside a transaction; it is stored when it is left without an error.

        Until then its changes can be read only through the batch, and nothing else may be written.
        Rows of several rollouts may be numbered rollout by rollout, not in the order of arrival.

        Args:
            ids: All ids of the rollouts that it may concern, to be loaded at once; others are
                loaded when they are needed.
        """
        return Batch(self._connection, ids)

    def changes(self) -> frozenset[Topic]:
        """Return the topics that another connection has changed since the last call (cheap).

        All topics are, when another writes for the first time; and what was changed through this
        store, when another writes after that.
        """
        self._is_stale = self._is_stale or self._connection.has_changed()
        if not self._is_stale:
            return frozenset()
        rows = self._connection.rows("select * from revisions")
        self._is_stale = False  # only now: reading may have failed
        known, self._revisions = self._revisions, {row["topic"]: row["revision"] for row in rows}
        return frozenset(
            topic
            for topic in Topic
            if self._revisions.get(topic, -1) != known.get(topic)  # also where its row is gone
        )

    def beat(self, process: str, *, ttl_s: float, report: str | None = None) -> bool:
        """Renew the lease of a process; return whether it keeps house for all that share the store.

        Args:
            process: The process, as ``this_process`` names it.
            ttl_s: How long the lease holds, in seconds.
            report: What the process has to report, for all to read.
        """
        self.leases.acquire(PROCESSES + process, process, ttl_s=ttl_s, report=report)
        return not self.is_shared or self.leases.acquire(HOUSE, process, ttl_s=ttl_s) > 0

    @property
    def schema(self) -> int:
        """The newest version of a database's schema that this process knows; 0 for a file."""
        return 0

    def may_learn(self) -> bool:
        """Return whether this login may store updates, which not every login of a database may."""
        return self._connection.may_insert("updates")

    def is_ahead(self) -> bool:
        """Return whether a database has a newer schema than this process knows."""
        return False

    def contract(self, check: Callable[[int], None]) -> list[int]:  # noqa: ARG002  # of a database
        """Take away what only hosts of earlier versions of the schema need, and shut those out.

        A file is migrated as a whole: there is nothing.

        Args:
            check: Called with each version of which that is so, before anything is taken away for
                it; raises if a host that knows an earlier one alone may still be there.

        Returns:
            Those versions.

        Raises:
            StoreBusyError: Others kept a lock for too long, each time.
        """
        return []

    def id(self) -> str:
        """Return the id that a database was made with, ``/``, and its number on its server.

        A copy of it, or one that was restored, has the same id and another number. Empty for a
        file.
        """
        return ""

    def history(self) -> str:
        """Return which history of a database this is, another one after a failover.

        Then what was committed last may be gone. Empty for a file, and where it is unknown.
        """
        return ""

    def stamp(self) -> object:
        """Return a value that changes with every write, here or elsewhere (cheap)."""
        return self._connection.stamp()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Interrupt what is read inside after so many seconds.

        Raises:
            StoreBusyError: It took longer.
        """
        return self._connection.within(seconds)

    def damage(self, *, deadline: float) -> str | None:  # noqa: ARG002  # of a file
        """Return the first damage found, as a sentence; empty if none.

        Args:
            deadline: Seconds of the monotonic clock at which to give up and return ``None``.
        """
        return ""

    def odd_rows(self, *, deadline: float, most: int) -> OddRows:  # noqa: ARG002
        """Return the rows that hold what no version of tau-live writes.

        Args:
            deadline: Seconds of the monotonic clock at which to give up.
            most: How many rows of a table are returned; the others are counted.
        """
        return OddRows([], {}, complete=True)

    def is_there(self) -> bool:
        """Return whether the store is still there, neither replaced nor emptied."""
        return True

    def set_leftovers_aside(self) -> None:  # noqa: B027  # of a file
        """Rename what is left beside a store that was removed or replaced."""

    @abstractmethod
    def sizes(self) -> dict[str, int | None]:
        """Return the bytes of each table with its indexes; ``None`` where they are unknown."""

    def make_roles(self) -> list[str]:
        """Make the roles of the database, and grant them what they may do; return their names.

        Raises:
            StoreError: This login may not.
        """
        return []

    def export(self) -> Iterator[ExportRow]:
        """Yield every row that a recording determines, in a fixed order.

        ``{"table": ..., ...}`` with public ids instead of keys, without anything that depends
        on this machine, process or clock; encoded features in base64. All rows are of one
        moment, and the store may be written to while they are read.
        """
        return export_rows(self._connection)

    def columns(
        self, table: str, *, size: int = 50_000
    ) -> Iterator[Mapping[str, Sequence[object]]]:
        """Yield the columns of an exported table, ``size`` rows at a time.

        As ``export`` has them, but that JSON stays text and features stay bytes.
        """
        return column_batches(self._connection, table, size=size)

    def restore(self, rows: Iterable[ExportRow]) -> Mapping[str, int]:
        """Restore rows of an export or an archive, each rollout before its own rows.

        Stored rollouts are left alone, and those that had not ended are skipped. Returns how many
        rows were restored, by table, and how many rollouts were ``known`` or ``open``.
        """
        return restore_rows(self._connection, self.seals, rows)

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
