"""A store in one SQLite file, which several processes may share."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tau_live import fault
from tau_live.breath import Breathe, at_once
from tau_live.errors import suppress
from tau_live.store.aside import BESIDE, beside, set_aside
from tau_live.store.connection import Connection, Synchronous, connect
from tau_live.store.migrations import SCHEMA_VERSION, check, migrate
from tau_live.store.records import WholeRollout
from tau_live.store.roles import Batch
from tau_live.store.sealing import Sealer, key_in
from tau_live.store.sqlite_alerts import SqliteAlerts
from tau_live.store.sqlite_batch import SqliteBatch
from tau_live.store.sqlite_consistency import SqliteConsistency
from tau_live.store.sqlite_counters import SqliteAudit, SqliteCounters
from tau_live.store.sqlite_decisions import SqliteDecisions
from tau_live.store.sqlite_export import exported
from tau_live.store.sqlite_gate import SqliteGate, SqliteLeases
from tau_live.store.sqlite_monitors import SqliteMonitors
from tau_live.store.sqlite_names import SqliteNames
from tau_live.store.sqlite_pauses import SqlitePauses
from tau_live.store.sqlite_policies import SqlitePolicies
from tau_live.store.sqlite_queue import SqliteQueue, SqliteResources, SqliteWorkers
from tau_live.store.sqlite_restore import restored
from tau_live.store.sqlite_retention import SqliteRetention
from tau_live.store.sqlite_rewards import SqliteRewards
from tau_live.store.sqlite_rollouts import SqliteRollouts
from tau_live.store.sqlite_seals import SqliteSeals
from tau_live.store.sqlite_surveys import SqliteSurveys
from tau_live.store.sqlite_trials import SqliteTrials


class SqliteStore:
    """Implements ``Store``; open one with ``SqliteStore.open``, for one thread.

    Attributes:
        path: The file.
        rollouts: Rollouts, attempts and spans.
        decisions: Decisions.
        rewards: Rewards and what they make ready.
        names: Other ids of rollouts, and sessions.
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
        seals: The chain of seals.
        consistency: What contradicts the sealed rows.
        surveys: What a report asks.
    """

    def __init__(self, connection: Connection, *, busy_timeout_s: float) -> None:
        self.path = connection.path
        self.rollouts = SqliteRollouts(connection)
        self.decisions = SqliteDecisions(connection)
        self.rewards = SqliteRewards(connection)
        self.names = SqliteNames(connection)
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
        self.consistency = SqliteConsistency(connection)
        self.retention = SqliteRetention(connection)
        self.surveys = SqliteSurveys(connection)
        self._connection = connection
        self._busy_timeout_s = busy_timeout_s
        self._version = connection.data_version()
        self._file = _file_of(self.path)
        self._beside = {end: _file_of(beside(self.path, end)) for end in BESIDE}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "normal",
        busy_timeout_s: float = 5.0,
        read_only: bool = False,
        key_file: Path | None = None,
        breathe: Breathe = at_once,
    ) -> "SqliteStore":
        """Open a store, made for its owner's eyes alone if it is not there yet.

        Args:
            path: The file; missing folders are made.
            synchronous: ``normal`` survives the death of the process, ``full`` also that of the
                machine, at about 80 times the price of a commit.
            busy_timeout_s: How long to wait for other processes' transactions.
            read_only: Write nothing, not even to create or migrate the file.
            key_file: The key of the seals, made if it is not there; ``None`` seals without one.
            breathe: Called between statements, and between rows where there may be many.

        Raises:
            StoreUnavailableError: It cannot be opened, or is not a store.
            StoreVersionError: It was written by a newer tau-live, or must be migrated first.
        """
        file = Path(path).absolute()
        connection = connect(
            file, busy_timeout_s=busy_timeout_s, read_only=read_only, breathe=breathe
        )
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

    def batch(self, ids: Collection[str]) -> AbstractContextManager[Batch]:
        """Open a batch, inside a transaction; it is stored when it is left without an error."""
        return SqliteBatch(self._connection, ids) if ids else nullcontext(self)

    def add_whole(self, whole: WholeRollout) -> bool:
        """Store a rollout that has ended; ``False`` if something of it is known."""
        with self.begin(), SqliteBatch(self._connection, [whole.rollout.rollout_id]) as batch:
            return batch.add_whole(whole)

    def is_there(self) -> bool:
        """Say whether the file is still where it was opened, neither another one nor emptied."""
        if self._file is None or _file_of(self.path, empty=False) != self._file:
            return False
        self._beside = {end: _file_of(beside(self.path, end)) for end in BESIDE}
        return True

    def set_leftovers_aside(self) -> None:
        """Rename what this store had beside its file, after that was removed or replaced.

        SQLite would take it for part of whatever is there now, and mix the two.
        """
        own = [
            end
            for end, was in self._beside.items()
            if was is not None and _file_of(beside(self.path, end)) == was
        ]
        with suppress(OSError):
            set_aside(self.path, own)

    def changed(self) -> bool:
        """Say whether another connection has written since the last call (cheap)."""
        before, self._version = self._version, self._connection.data_version()
        return self._version != before

    def damage(self, *, deadline: float) -> str | None:
        """Return what is wrong with the file's pages, in words; empty if nothing is.

        Args:
            deadline: When to stop looking, on the monotonic clock; ``None`` is returned then.
        """
        return self._connection.damage(deadline=deadline)

    def export(self) -> Iterator[dict[str, object]]:
        """Yield every row that a recording determines, in a fixed order.

        All of it is of one moment: what was committed when the first row is asked for.
        """
        return exported(self.path, busy_timeout_s=self._busy_timeout_s)

    def restore(self, rows: Iterable[Mapping[str, object]]) -> Mapping[str, int]:
        """Put rows of an export or an archive back; return how many, by table."""
        return restored(self._connection, rows)

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
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if empty or found.st_size else None
