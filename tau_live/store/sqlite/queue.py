"""The queue, the workers and the resources in SQLite."""

from collections.abc import Mapping
from functools import partial
from sqlite3 import Row

from tau_live.core import fault
from tau_live.core.errors import DuplicateError, OddRowError, UnknownError
from tau_live.core.records import (
    ATTEMPT_ENDS,
    Attempt,
    AttemptStatus,
    Claim,
    Reason,
    ResourcesVersion,
    Rollout,
    RolloutStatus,
    Worker,
)
from tau_live.store.sqlite.batch import WRITE_ATTEMPT, SqliteBatch, values_of_attempt
from tau_live.store.sqlite.connection import Connection, json_of
from tau_live.store.sqlite.rows import (
    INSERT_ROLLOUT,
    record_of,
    report,
    rollout_of,
    sound,
    values_of_rollout,
)

CLAIM = """
update rollouts set status = 'running', worker_id = :worker_id,
    started_at = coalesce(started_at, :at), attempt_count = attempt_count + 1
where seq = (
    select rollout_seq from queue join rollouts on seq = rollout_seq
    where position > :after and status in ('queuing', 'requeuing') order by position limit 1
)
returning *, (select position from queue where rollout_seq = seq) as position
"""

OVERDUE_ATTEMPTS = """
select rollout_id, number, due_at < coalesce(timeout_at, 1e999) as unresponsive
from attempts join rollouts on seq = rollout_seq
where due_at < :now and due_at is not null and attempts.status in ('preparing', 'running')
order by due_at, rollout_seq, number
"""

STARTED = (RolloutStatus.PREPARING, RolloutStatus.RUNNING)

REASONS = {
    AttemptStatus.FAILED: Reason.ERROR,
    AttemptStatus.TIMEOUT: Reason.TIMEOUT,
    AttemptStatus.UNRESPONSIVE: Reason.TIMEOUT,
}


class SqliteQueue:
    """The queue: first in, first out; each rollout is claimed by one worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def enqueue(self, rollout: Rollout, *, at: float) -> None:
        """Put a rollout into the queue, as queuing. Raises: DuplicateError."""
        waiting = Rollout(
            rollout_id=rollout.rollout_id,
            host=rollout.host,
            run_id=rollout.run_id,
            session_id=rollout.session_id,
            parent_id=rollout.parent_id,
            name=rollout.name,
            mode=rollout.mode,
            input=rollout.input,
            config=rollout.config,
            metadata=rollout.metadata,
        )
        values = values_of_rollout(
            waiting,
            input_=None if waiting.input is None else json_of(waiting.input),
            metadata=json_of(waiting.metadata),
            enqueued=True,
        )
        with self._connection.begin():
            if not self._connection.change(INSERT_ROLLOUT, values):
                raise DuplicateError("rollout", rollout.rollout_id)
            fault.point("queue.enqueued")
            self._connection.change(
                """
                insert into queue (rollout_seq, at)
                select seq, ? from rollouts where rollout_id = ?
                """,
                (at, rollout.rollout_id),
            )

    def claim(self, worker_id: str, *, at: float) -> Claim | None:
        """Take the oldest waiting rollout, in one statement; ``None`` when there is none.

        Live rollouts are never claimed. The rollout becomes running with this worker and
        begins a new attempt, preparing until its first heartbeat or span. Registers an unknown
        worker. One whose row is odd stays where it is.
        """
        after = 0
        while True:
            try:
                with self._connection.begin():
                    row = self._connection.row(
                        CLAIM, {"worker_id": worker_id, "at": at, "after": after}
                    )
                    if row is None:
                        return None
                    after = row["position"]
                    fault.point("queue.claimed")
                    return self._begin(rollout_of(row), worker_id, at=at)
            except OddRowError as error:  # its claim is undone
                report(error)

    def _begin(self, rollout: Rollout, worker_id: str, *, at: float) -> Claim:
        """Begin a new attempt of a rollout that was claimed."""
        attempt = Attempt(
            rollout_id=rollout.rollout_id,
            number=rollout.attempt_count,
            status=AttemptStatus.PREPARING,
            worker_id=worker_id,
            started_at=at,
            last_heartbeat_at=at,
        )
        self._connection.change("delete from queue where rollout_seq = ?", (rollout.seq,))
        self._connection.change(
            WRITE_ATTEMPT, values_of_attempt(attempt, rollout.seq, rollout.config)
        )
        touch_worker(self._connection, worker_id, at=at)
        set_active_attempt(self._connection, worker_id, rollout.rollout_id, attempt.number)
        return Claim(rollout, attempt)

    def heartbeat(self, worker_id: str, rollout_id: str, number: int, *, at: float) -> bool:
        """Record a heartbeat of an attempt; ``False`` if it is over or another worker's.

        Raises:
            UnknownError: No such worker is registered.
        """
        with self._connection.begin():
            known = "select 1 from workers where worker_id = ?"
            if not self._connection.rows(known, (worker_id,)):
                raise UnknownError("worker", worker_id)
            touch_worker(self._connection, worker_id, at=at)
            with SqliteBatch(self._connection, [rollout_id]) as batch:
                lives = batch.touch(rollout_id, number, at=at, worker_id=worker_id)
            working = (rollout_id, number) if lives else (None, None)
            set_active_attempt(self._connection, worker_id, *working)
        return lives

    def finish(
        self,
        rollout_id: str,
        number: int,
        status: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> RolloutStatus:
        """End an attempt and move its rollout: done, failed, or requeued for another try.

        It is requeued while fewer than ``max_attempts`` were made and the end is among
        ``retry_on``. Only the newest attempt moves its rollout. Returns the rollout's status.

        Raises:
            ValueError: ``status`` is not the end of an attempt.
            UnknownError: No such attempt is stored.
            InvalidTransitionError: The attempt is over; its rollout is left alone.
        """
        if status not in ATTEMPT_ENDS:
            raise ValueError(f"status must be an end of an attempt, got {status!r}")
        with self._connection.begin(), SqliteBatch(self._connection, [rollout_id]) as batch:
            moved = batch.set_attempt_status(
                rollout_id, number, status, at=at, error_message=error_message
            )
            fault.point("queue.finished")
            rollout = batch.rollout(rollout_id)
            current = moved and rollout.attempt_count == number
            if not current or rollout.status not in STARTED:
                return rollout.status
            if rollout.status is RolloutStatus.PREPARING:
                batch.set_status(rollout_id, RolloutStatus.RUNNING, at=at)
            new = _status_after(rollout, status, enqueued=batch.is_queued(rollout_id))
            batch.set_status(rollout_id, new, at=at, reason=REASONS.get(status))
        return new

    def requeue_overdue(self, *, now: float) -> list[str]:
        """End attempts over their limits (``timeout``, ``unresponsive``) and requeue or fail them.

        Of two limits the one that is reached first counts. Returns the ids of the rollouts
        concerned, in that order. Rollouts without limits in their config are left alone.
        """
        with self._connection.begin():
            overdue = self._connection.rows(OVERDUE_ATTEMPTS, {"now": now})
            for row in overdue:
                silent = bool(row["unresponsive"])
                self.finish(
                    row["rollout_id"],
                    row["number"],
                    AttemptStatus.UNRESPONSIVE if silent else AttemptStatus.TIMEOUT,
                    at=now,
                    error_message="no heartbeat" if silent else "took too long",
                )
        return list(dict.fromkeys(row["rollout_id"] for row in overdue))

    def length(self) -> int:
        """Return how many rollouts wait."""
        return self._connection.count("select count(*) from queue")


def _status_after(rollout: Rollout, status: AttemptStatus, *, enqueued: bool) -> RolloutStatus:
    """Return the status of a rollout whose newest attempt has ended."""
    if status is AttemptStatus.SUCCEEDED:
        return RolloutStatus.SUCCEEDED
    left = rollout.attempt_count < rollout.config.max_attempts
    if left and status in rollout.config.retry_on and enqueued:
        return RolloutStatus.REQUEUING
    return RolloutStatus.FAILED


class SqliteWorkers:
    """The processes that take rollouts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def register(self, worker_id: str, *, at: float) -> Worker:
        """Store a worker, or record a heartbeat of it."""
        return record_of(Worker, touch_worker(self._connection, worker_id, at=at))

    def workers(self) -> list[Worker]:
        """Return every worker by id."""
        rows = self._connection.rows("select * from workers order by worker_id")
        return sound(rows, partial(record_of, Worker))


class SqliteResources:
    """Immutable, versioned prompts and settings."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def publish(self, resources: Mapping[str, object], *, at: float) -> ResourcesVersion:
        """Store a new version, which becomes the latest and replaces all of the last one."""
        rows = self._connection.rows(
            "insert into resources (resources, created_at) values (?, ?) returning *",
            (json_of(resources), at),
        )
        return record_of(ResourcesVersion, rows[0])

    def latest(self) -> ResourcesVersion | None:
        """Return the newest version, if there is any. Raises: OddRowError."""
        row = self._connection.row("select * from resources order by version desc limit 1")
        return None if row is None else record_of(ResourcesVersion, row)

    def version(self, version: int) -> ResourcesVersion:
        """Return one version. Raises: UnknownError."""
        row = self._connection.row("select * from resources where version = ?", (version,))
        if row is None:
            raise UnknownError("resources", version)
        return record_of(ResourcesVersion, row)


def touch_worker(connection: Connection, worker_id: str, *, at: float) -> Row:
    """Register a worker or record a heartbeat of it, and return its row."""
    return connection.rows(
        """
        insert into workers (worker_id, registered_at, last_heartbeat_at)
        values (:worker_id, :at, :at)
        on conflict (worker_id) do update
            set last_heartbeat_at = max(last_heartbeat_at, excluded.last_heartbeat_at)
        returning *
        """,
        {"worker_id": worker_id, "at": at},
    )[0]


def set_active_attempt(
    connection: Connection, worker_id: str, rollout_id: str | None, attempt: int | None
) -> None:
    """Record the attempt that a worker works on."""
    connection.change(
        "update workers set active_rollout_id = ?, active_attempt = ? where worker_id = ?",
        (rollout_id, attempt, worker_id),
    )
