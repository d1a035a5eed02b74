"""The queues, the workers and the resources in SQLite.

Overdue attempts are found by whoever claims or waits, and by every process that learns. Times are
those at which something arrived, in epoch seconds; without one it is now.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from threading import Event

from tau_live.core import fault
from tau_live.core.errors import (
    ConflictError,
    DuplicateError,
    EndedError,
    OddRowError,
    UnknownError,
)
from tau_live.core.processes import is_alive, this_process
from tau_live.core.records import (
    ATTEMPT_ENDS,
    LIVE,
    LONGEST_BACKOFF_S,
    ROLLOUT_ENDS,
    Attempt,
    AttemptStatus,
    Claim,
    Reason,
    Resource,
    Rollout,
    RolloutQuery,
    RolloutStatus,
    Span,
    Worker,
    WorkerStatus,
)
from tau_live.core.sanitize import JsonObject
from tau_live.store.records import QueueBucket
from tau_live.store.sql.batch import WRITE_ATTEMPT, Batch, values_of_attempt
from tau_live.store.sql.connection import Connection, Row, Value, json_of
from tau_live.store.sql.rollouts import Rollouts
from tau_live.store.sql.rows import (
    INSERT_ROLLOUT,
    record_of,
    report,
    rollout_of,
    sound,
    values_of_rollout,
)

DEFAULT_QUEUE = "default"

ID_CHARS = 1_000

LOT = 16
"""How many rollouts a lot has at most, unless its worker wants another number."""

POLL_S = 0.01
"""Seconds between two checks for other processes' writes while waiting; one takes 2 us."""

EXPIRE_EVERY_S = 1.0
"""Seconds between two searches for overdue attempts and dead processes, while nothing happens."""

NOTHING_NEW = f"""
select not exists (
    select 1 from queue
    where name in (select value from json_each(:queues)) and due_at <= :at
)
and not exists (
    select 1 from attempts
    where due_at < :at and due_at is not null and status in ('preparing', 'running')
)
and (:worker_id is null or exists (
    select 1 from workers where worker_id = :worker_id and status = 'idle'
    and claimed_at between :at - {EXPIRE_EVERY_S} and :at
))
"""
"""Whether a claim would repeat the answer of a moment ago: then nothing is written, or each poll of
an idle worker would wake whoever waits for changes."""

CLAIM = """
update rollouts set status = 'preparing', worker_id = :worker_id,
    started_at = coalesce(started_at, :at), attempt_count = attempt_count + 1
where seq = (
    select rollout_seq from queue where position = (
        select min((
            select position from queue join rollouts on seq = rollout_seq
            where queue.name = named.value and due_at <= :at and position > :after
            and status in ('queuing', 'requeuing')
            order by position limit 1
        )) from json_each(:queues) as named
    )
)
returning *, (select position from queue where rollout_seq = seq) as position
"""

TAKE_OUT = """
delete from queue where rollout_seq in (select value from json_each(:seqs))
"""

REPEATED = """
select rollouts.status from rollouts join attempts on rollout_seq = seq
where rollout_id = ? and number = ? and attempts.status = ?
"""
"""The status of a rollout whose attempt has ended that way already."""

OVERDUE_ATTEMPTS = """
select rollout_id, number, due_at < coalesce(timeout_at, 1e999) as unresponsive
from attempts join rollouts on seq = rollout_seq
where due_at < :now and due_at is not null and attempts.status in ('preparing', 'running')
order by due_at, rollout_seq, number
"""

OWNERS = """
select distinct owner from attempts
where owner is not null and status in ('preparing', 'running')
union select distinct owner from workers where owner is not null and status <> 'gone'
"""

OF_OWNER = """
select rollout_id, number from attempts join rollouts on seq = rollout_seq
where attempts.owner = ? and attempts.status in ('preparing', 'running')
"""

STARTED = (RolloutStatus.PREPARING, RolloutStatus.RUNNING)

TIMELINE = """
select kind, cast((at - :since) / :every_s as integer) as bucket, count(*) as total from (
    select iif(at = (select min(at) from queue_times as first
        where first.rollout_seq = queue_times.rollout_seq), 'enqueued', 'requeued') as kind, at
    from queue_times where at >= :since
    union all
    select 'claimed', attempts.started_at from attempts join rollouts on seq = rollout_seq
    where attempts.started_at >= :since and exists (
        select 1 from queue_times where queue_times.rollout_seq = seq
    )
    union all
    select status, ended_at from rollouts where ended_at >= :since and exists (
        select 1 from queue_times where queue_times.rollout_seq = seq
    )
    union all
    select 'left', ended_at from rollouts where ended_at >= :since and attempt_count < (
        select count(*) from queue_times where queue_times.rollout_seq = seq
    )
) as happened group by kind, bucket
"""
"""How often each thing happened to queued rollouts, by the number of the stretch of time. Who left
ended while waiting: it was put into its queue once more than it was claimed."""

NEWEST_RESOURCES = """
select * from resources as newest
where version = (select max(version) from resources where name = newest.name)
"""

REASONS = {
    AttemptStatus.FAILED: Reason.ERROR,
    AttemptStatus.TIMEOUT: Reason.TIMEOUT,
    AttemptStatus.UNRESPONSIVE: Reason.TIMEOUT,
}

EXHAUSTED = "attempts_exhausted"
"""The error type of a rollout that failed as often as it may be tried."""

LATE = "late_results"
"""Counts results of attempts that were over, and of which nothing could be changed any more."""


class Queue:
    """The queues: first in, first out; each rollout is claimed by one worker.

    A rollout is in its queue exactly while it is queuing or requeuing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rollouts = Rollouts(connection)
        self._looked_at = -inf

    @property
    def path(self) -> Path:
        """The file of the store."""
        return Path(self._connection.path)

    def enqueue(self, rollout: Rollout, *, at: float | None = None) -> None:
        """Put a rollout into its queue (``default`` if it names none).

        Raises:
            DuplicateError: Its id is taken.
            ValueError: A field is malformed, or its id begins with ``live-``, as those of live
                rollouts do.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            waiting = self._insert(rollout, RolloutStatus.QUEUING)
            fault.point("queue.enqueued")
            self._connection.change(
                """
                insert into queue (rollout_seq, at, name)
                select seq, :at, queue from rollouts where rollout_id = :rollout_id
                """,
                {"at": at, "rollout_id": waiting.rollout_id},
            )

    def timeline(self, *, since: float, every_s: float, count: int) -> list[QueueBucket]:
        """Return what happened to the queues, oldest first.

        Args:
            since: When the first stretch begins, epoch seconds.
            every_s: How long each is, in seconds.
            count: How many there are.
        """
        with self._connection.reading():
            rows = self._connection.rows(TIMELINE, {"since": since, "every_s": every_s})
            depth = self._connection.count("select count(*) from queue")
        totals = {(row["kind"], row["bucket"]): row["total"] for row in rows}

        def total(kind: str, bucket: int) -> int:
            return int(totals.get((kind, bucket), 0))

        buckets: list[QueueBucket] = []
        for bucket in reversed(range(max(count, 1 + max((at for _, at in totals), default=0)))):
            found = QueueBucket(
                start=since + bucket * every_s,
                enqueued=total("enqueued", bucket),
                claimed=total("claimed", bucket),
                requeued=total("requeued", bucket),
                succeeded=total("succeeded", bucket),
                failed=total("failed", bucket),
                cancelled=total("cancelled", bucket),
                depth=depth,
            )
            buckets.append(found)
            depth += found.claimed + total("left", bucket) - found.enqueued - found.requeued
        return buckets[::-1][:count]

    def claim(
        self,
        worker_id: str | None,
        *,
        at: float | None = None,
        queues: Collection[str] = (DEFAULT_QUEUE,),
    ) -> Claim | None:
        """Take the oldest rollout that waits in one of the queues; ``None`` when there is none.

        Overdue attempts are ended first. The rollout and its new attempt are preparing until the
        first sign of life: a heartbeat, a span, or the first event of its run. Live rollouts are
        in no queue. Registers an unknown worker as one of this process; without one, the attempt
        is that of the worker whose heartbeat comes first.
        """
        return next(iter(self.claim_lot(worker_id, limit=1, at=at, queues=queues)), None)

    def claim_lot(
        self,
        worker_id: str | None,
        *,
        limit: int = LOT,
        at: float | None = None,
        queues: Collection[str] = (DEFAULT_QUEUE,),
    ) -> list[Claim]:
        """Take the oldest rollouts that wait in one of the queues, as ``claim`` takes one.

        In one transaction, which for a worker of short tasks costs little more than one claim.
        """
        at = self._connection.now() if at is None else at
        names = [queues] if isinstance(queues, str) else [*queues]
        wanted: dict[str, Value] = {"worker_id": worker_id, "at": at, "queues": json_of(names)}
        dead = self._dead_owners() if self._is_time_to_look() else []
        if not dead and self._connection.count(NOTHING_NEW, wanted):
            return []
        claims = [] if dead else self._claim_beside(wanted, names, at=at, limit=limit)
        if claims:
            return claims
        after = 0
        with self._connection.begin():
            self._end_overdue(dead, now=at)
            while len(claims) < limit:
                try:
                    with self._connection.begin():
                        row = self._connection.row(CLAIM, {**wanted, "after": after})
                        if row is None:
                            break
                        after = row["position"]
                        self._take_out([row])
                        claims += self._begin_attempts([rollout_of(row)], at=at, claimed_at=at)
                except OddRowError as error:  # its claim is undone
                    report(error)
            if worker_id is not None and not claims:
                owner = this_process()
                touch_worker(self._connection, worker_id, at=at, owner=owner, claimed_at=at)
                set_worker(self._connection, worker_id, WorkerStatus.IDLE, at=at)
        return claims

    def _claim_beside(
        self,
        wanted: Mapping[str, Value],  # noqa: ARG002
        names: Sequence[str],  # noqa: ARG002
        *,
        at: float,  # noqa: ARG002
        limit: int,  # noqa: ARG002
    ) -> list[Claim]:
        """Take rollouts while others take some, where they need not wait for each other."""
        return []

    def _take_out(self, rows: Sequence[Row]) -> None:
        """Take rollouts that are claimed out of their queue."""
        fault.point("queue.claimed")
        seqs = json_of([row["seq"] for row in rows])
        self._connection.change(TAKE_OUT, {"seqs": seqs})

    def begin(self, rollout: Rollout, worker_id: str | None, *, at: float | None = None) -> Claim:
        """Store a rollout that its worker begins at once, without waiting in its queue.

        It is put there if it has to be tried again. Raises: DuplicateError.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            stored = self._insert(rollout, RolloutStatus.PREPARING, worker_id=worker_id, at=at)
            [claim] = self._begin_attempts([stored], at=at)
        return claim

    def retry(self, rollout_id: str, worker_id: str | None, *, at: float | None = None) -> Claim:
        """Begin another attempt by hand, whatever its config allows.

        Raises:
            UnknownError: No such rollout is stored.
            InvalidTransitionError: It succeeded or was cancelled.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            with Batch(self._connection, [rollout_id]) as batch:
                if batch.rollout(rollout_id).status is RolloutStatus.FAILED:
                    batch.set_status(rollout_id, RolloutStatus.REQUEUING, at=at)
                if batch.rollout(rollout_id).status is not RolloutStatus.RUNNING:
                    batch.set_status(rollout_id, RolloutStatus.PREPARING, at=at)
            rollout = self._rollouts.rollout(rollout_id)
            number = rollout.attempt_count + 1
            self._connection.change(
                "update rollouts set attempt_count = ?, worker_id = ? where seq = ?",
                (number, worker_id, rollout.seq),
            )
            [claim] = self._begin_attempts([self._rollouts.rollout(rollout_id)], at=at)
            return claim

    def heartbeat(
        self, worker_id: str, rollout_id: str, number: int, *, at: float | None = None
    ) -> bool:
        """Record a heartbeat of an attempt; ``False`` if it is over or another worker's.

        That of an unresponsive attempt lets it go on until a newer one begins. Registers an unknown
        worker as one of this process.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            known = self._connection.row("select 1 from workers where worker_id = ?", (worker_id,))
            owner = this_process() if known is None else None
            touch_worker(self._connection, worker_id, at=at, owner=owner)
            with Batch(self._connection, [rollout_id]) as batch:
                lives = batch.touch(
                    rollout_id, number, at=at, worker_id=worker_id, owner=this_process()
                )
            if lives:
                active = (rollout_id, number)
                set_worker(self._connection, worker_id, WorkerStatus.BUSY, active=active, at=at)
            else:
                self._connection.change(
                    """
                    update workers set status = 'idle', active_rollout_id = null,
                        active_attempt = null, idle_at = ?
                    where worker_id = ? and active_rollout_id = ? and active_attempt = ?
                    """,
                    (at, worker_id, rollout_id, number),
                )
        return lives

    def finish(  # noqa: PLR0913  # keyword-only but for three
        self,
        rollout_id: str,
        number: int,
        status: AttemptStatus,
        *,
        at: float | None = None,
        error_message: str | None = None,
        output: object = None,
        retry_after_s: float | None = None,
    ) -> RolloutStatus:
        """End an attempt and move its rollout: done, failed, or requeued for another try.

        It is requeued while fewer than ``max_attempts`` were made and the end is among
        ``retry_on``. Only the newest attempt moves its rollout. The result of an attempt that was
        unresponsive counts until a newer one begins; after that, and after every other end, it
        changes nothing but is kept as a span of the kind ``result``, and counted
        (``late_results``). Repeating a result changes nothing.

        Args:
            rollout_id: The rollout.
            number: The attempt.
            status: How it ended.
            at: Epoch seconds.
            error_message: Its error.
            output: Its result, open-ended JSON data.
            retry_after_s: Seconds until it may be tried again; ``None`` as its config has it.

        Returns:
            The rollout's status.

        Raises:
            ValueError: ``status`` is not the end of an attempt, or ``retry_after_s`` is no time.
            UnknownError: No such attempt is stored.
        """
        at, status = self._connection.now() if at is None else at, AttemptStatus(status)
        _check_end(status, retry_after_s)
        if output is None:  # the end of a run repeats what its worker stored, without a lock
            repeated = self._connection.row(REPEATED, (rollout_id, number, status))
            if repeated is not None:
                return RolloutStatus(repeated["status"])
        with self._connection.begin(), Batch(self._connection, [rollout_id]) as batch:
            attempt, known = batch.attempt(rollout_id, number), batch.rollout(rollout_id)
            is_newest = known.attempt_count == number
            if attempt.status is status:
                if output is not None and known.output is None and is_newest:
                    batch.set_output(rollout_id, output)  # its run ended first
                return known.status
            is_over = attempt.status in ATTEMPT_ENDS and not batch.recover(rollout_id, number)
            if is_over or not is_newest:
                _keep_late(batch, attempt, status, output, at=at)
            attempt = batch.attempt(rollout_id, number)
            if attempt.status in ATTEMPT_ENDS:
                return known.status
            due_at = None if retry_after_s is None else at + retry_after_s
            new = self._end(batch, attempt, status, at=at, error=error_message, due_at=due_at)
            if output is not None and is_newest:
                batch.set_output(rollout_id, output)
        return new

    def _end(
        self,
        batch: Batch,
        attempt: Attempt,
        status: AttemptStatus,
        *,
        at: float,
        error: str | None,
        due_at: float | None = None,
    ) -> RolloutStatus:
        """End an open attempt and move its rollout, if it is the newest; return its status."""
        rollout_id, number = attempt.rollout_id, attempt.number
        batch.set_attempt_status(rollout_id, number, status, at=at, error_message=error)
        fault.point("queue.finished")
        rollout = batch.rollout(rollout_id)
        if rollout.attempt_count != number or rollout.status not in STARTED:
            return rollout.status
        new = rollout.status_after(status)
        due_at = due_at if new is RolloutStatus.REQUEUING else None
        was_tried = status in rollout.config.retry_on
        exhausted = EXHAUSTED if was_tried and new is RolloutStatus.FAILED else None
        batch.set_status(
            rollout_id, new, at=at, reason=REASONS.get(status), error_type=exhausted, due_at=due_at
        )
        if new in ROLLOUT_ENDS:  # whoever learns joins its rewards next
            batch.await_reward(rollout_id, until=at)
        return new

    def amend(self, rollout: Rollout) -> Rollout:
        """Replace mode, input, metadata, resources and config of a rollout; return it as stored.

        Limits of time hold from the next attempt on. Once it has ended, only its metadata changes.

        Raises:
            UnknownError: No such rollout is stored.
            EndedError: It has ended, and more than its metadata was to be changed.
        """
        with self._connection.begin():
            known = self._rollouts.rollout(rollout.rollout_id)
            before, after = _amendable(known), _amendable(rollout)
            changed = [name for name, value in after.items() if value != before[name]]
            if known.status in ROLLOUT_ENDS and {*changed} - {"metadata"}:
                fields = [name for name in changed if name != "metadata"]
                raise EndedError(rollout.rollout_id, status=known.status, fields=fields)
            for name in changed:
                self._connection.change(
                    f"update rollouts set {name} = ? where seq = ?", (after[name], known.seq)
                )
            return self._rollouts.rollout(rollout.rollout_id)

    def expire(self, *, now: float | None = None) -> list[str]:
        """End attempts over their limits, or whose process is gone; requeue or fail their rollouts.

        Of two limits the one that is reached first counts. Returns the ids of the rollouts
        concerned, in that order. Rollouts without limits in their config are left alone.
        """
        now = self._connection.now() if now is None else now
        self._looked_at = time.monotonic()
        dead = self._dead_owners()
        if not dead and not self._connection.rows(OVERDUE_ATTEMPTS, {"now": now}):
            return []  # most often, and then nobody is kept from writing
        with self._connection.begin():
            return self._end_overdue(dead, now=now)

    def end(  # keyword-only but for two
        self,
        rollout_id: str,
        status: RolloutStatus | str,
        *,
        number: int | None = None,
        at: float | None = None,
        error_message: str | None = None,
        output: object = None,
    ) -> bool:
        """End a rollout by hand, whether it waits or runs; its open attempts end with it.

        It is not tried again by itself, whatever its config allows. Whoever works on it learns of
        it by the next heartbeat. An ended rollout stays ended; a failed one may still be cancelled.

        Args:
            rollout_id: The rollout.
            status: ``succeeded``, ``failed`` or ``cancelled``.
            number: Only if this is its newest attempt; ``None`` ends it anyway.
            at: Epoch seconds.
            error_message: The error of its open attempts, unless they succeed; a rollout that
                waits has none.
            output: Its result, open-ended JSON data.

        Returns:
            ``False`` if nothing was changed: it had this end before, or has a newer attempt.

        Raises:
            ValueError: ``status`` is not the end of a rollout.
            UnknownError: No such rollout is stored.
            InvalidTransitionError: It has another end.
        """
        at, status = self._connection.now() if at is None else at, RolloutStatus(status)
        if status not in ROLLOUT_ENDS:
            raise ValueError(f"status must be an end of a rollout, got {status!r}")
        with self._connection.begin(), Batch(self._connection, [rollout_id]) as batch:
            if number is not None and batch.rollout(rollout_id).attempt_count != number:
                return False
            if not batch.set_status(rollout_id, status, at=at, error_message=error_message):
                return False
            if output is not None:
                batch.set_output(rollout_id, output)
            if status is not RolloutStatus.CANCELLED:  # whoever learns joins its rewards next
                batch.await_reward(rollout_id, until=at)
        return True

    def cancel(
        self, rollout_id: str, *, number: int | None = None, at: float | None = None
    ) -> bool:
        """End a rollout as ``cancelled``, as ``end`` does."""
        return self.end(rollout_id, RolloutStatus.CANCELLED, number=number, at=at)

    def _is_time_to_look(self) -> bool:
        """Return whether it is time to look for dead processes, once in ``EXPIRE_EVERY_S``."""
        now = time.monotonic()
        if now - self._looked_at < EXPIRE_EVERY_S:
            return False
        self._looked_at = now
        return True

    def _dead_owners(self) -> list[str]:
        """Return the processes that are dead and have workers or open attempts."""
        owners = [row["owner"] for row in self._connection.rows(OWNERS)]
        own = this_process()
        return [owner for owner in owners if owner != own and is_alive(owner) is False]

    def _end_overdue(self, dead: Sequence[str], *, now: float) -> list[str]:
        """End attempts over their limits and those of dead processes; return their rollouts."""
        concerned: dict[str, None] = {}
        for row in self._connection.rows(OVERDUE_ATTEMPTS, {"now": now}):
            silent = bool(row["unresponsive"])
            status = AttemptStatus.UNRESPONSIVE if silent else AttemptStatus.TIMEOUT
            error = "no heartbeat" if silent else "took too long"
            concerned[row["rollout_id"]] = None
            self._expire(row["rollout_id"], row["number"], status, at=now, error=error)
        for owner in dead:
            for row in self._connection.rows(OF_OWNER, (owner,)):
                concerned[row["rollout_id"]] = None
                self._expire(
                    row["rollout_id"], row["number"], AttemptStatus.UNRESPONSIVE, at=now,
                    error="its process is gone",
                )  # fmt: skip
            self._connection.change("update workers set status = 'gone' where owner = ?", (owner,))
        return [*concerned]

    def wait(
        self,
        ids: Sequence[str],
        *,
        timeout_s: float,
        statuses: Sequence[RolloutStatus] = (*ROLLOUT_ENDS,),
    ) -> list[Rollout]:
        """Return those of ``ids`` that have one of ``statuses``, as soon as all of them have.

        After ``timeout_s`` it returns those that have it by then, in the order of ``ids``. Works
        across processes; overdue attempts are ended meanwhile, by the clock of the machine.

        Raises:
            ValueError: ``timeout_s`` is not at least 0.
        """
        if not timeout_s >= 0.0:
            raise ValueError(f"timeout_s must be at least 0, got {timeout_s!r}")
        if not ids or not statuses:
            return []
        began = time.monotonic()
        deadline, expire_at = began + timeout_s, began
        pause = Event()
        while True:
            if not self._connection.read_only and time.monotonic() >= expire_at:
                self.expire()
                expire_at = time.monotonic() + EXPIRE_EVERY_S
            stamp = self._connection.stamp()
            found = self._rollouts.query(RolloutQuery(ids=ids, statuses=statuses)).rollouts
            ended = {rollout.rollout_id: rollout for rollout in found}
            rollouts = [ended[id_] for id_ in dict.fromkeys(ids) if id_ in ended]
            if len(rollouts) == len(set(ids)):
                return rollouts
            look_at = time.monotonic() + EXPIRE_EVERY_S
            while self._connection.stamp() == stamp and time.monotonic() < look_at:
                now = time.monotonic()
                if now >= deadline:
                    return rollouts
                pause.wait(min(self._poll_s(now - began), deadline - now))

    def _poll_s(self, waited_s: float) -> float:  # noqa: ARG002  # what is shared goes by it
        """Return the pause between two looks, after so many seconds of waiting."""
        return POLL_S

    def length(self, queue: str | None = None) -> int:
        """Return how many rollouts wait in a queue, or in all."""
        sql = "select count(*) from queue where :queue is null or name = :queue"
        return self._connection.count(sql, {"queue": queue})

    def _insert(
        self,
        rollout: Rollout,
        status: RolloutStatus,
        *,
        worker_id: str | None = None,
        at: float | None = None,
    ) -> Rollout:
        check_id(rollout.rollout_id)
        if not isinstance(rollout.queue, str | None):
            raise ValueError(f"queue must be a text or None, got {rollout.queue!r}")  # noqa: TRY004  # as of other fields
        new = Rollout(
            rollout_id=rollout.rollout_id,
            run_id=rollout.rollout_id,
            session_id=rollout.session_id,
            parent_id=rollout.parent_id,
            name=rollout.name,
            status=status,
            mode=rollout.mode,
            queue=rollout.queue or DEFAULT_QUEUE,
            input=rollout.input,
            resources=rollout.resources,
            config=rollout.config,
            metadata=rollout.metadata,
            worker_id=worker_id,
            attempt_count=0 if at is None else 1,
            started_at=at,
        )
        values = values_of_rollout(
            new,
            input_=None if new.input is None else json_of(new.input),
            metadata=json_of(new.metadata),
        )
        if not self._connection.change(INSERT_ROLLOUT, values):
            raise DuplicateError("rollout", rollout.rollout_id)
        try:
            return self._rollouts.rollout(rollout.rollout_id)
        except OddRowError as error:  # else nobody could read it
            raise ValueError(f"{error.column} is malformed: {error.problem}") from error

    def _begin_attempts(
        self, rollouts: Sequence[Rollout], *, at: float, claimed_at: float | None = None
    ) -> list[Claim]:
        """Begin the newest attempt of rollouts of one worker."""
        claims = [Claim(rollout, _attempt_of(rollout, at=at), self) for rollout in rollouts]
        self._connection.insert(
            WRITE_ATTEMPT,
            [
                values_of_attempt(claim.attempt, claim.rollout.seq, claim.rollout.config)
                for claim in claims
            ],
        )
        last = claims[-1].attempt
        if last.worker_id is not None:
            touch_worker(
                self._connection, last.worker_id, at=at, owner=last.owner, claimed_at=claimed_at
            )
            set_worker(
                self._connection, last.worker_id, WorkerStatus.BUSY,
                active=(last.rollout_id, last.number), at=at,
            )  # fmt: skip
        return claims

    def _expire(
        self, rollout_id: str, number: int, status: AttemptStatus, *, at: float, error: str
    ) -> None:
        with Batch(self._connection, [rollout_id]) as batch:
            if not batch.readable([rollout_id]):
                return
            attempt = batch.attempt(rollout_id, number)
            if attempt.status not in ATTEMPT_ENDS:
                self._end(batch, attempt, status, at=at, error=error)


def _attempt_of(rollout: Rollout, *, at: float) -> Attempt:
    """Return the newest attempt of a rollout, which its worker begins now."""
    return Attempt(
        rollout_id=rollout.rollout_id,
        number=rollout.attempt_count,
        status=AttemptStatus.PREPARING,
        execution=f"{rollout.rollout_id}/{rollout.attempt_count}",
        worker_id=rollout.worker_id,
        started_at=at,
        last_heartbeat_at=at,
        owner=this_process(),
    )


def _check_end(status: AttemptStatus, retry_after_s: float | None) -> None:
    if status not in ATTEMPT_ENDS:
        raise ValueError(f"status must be an end of an attempt, got {status!r}")
    if retry_after_s is not None and not 0.0 <= retry_after_s <= LONGEST_BACKOFF_S:
        longest = f"{LONGEST_BACKOFF_S:g}"
        raise ValueError(f"retry_after_s must be from 0 to {longest}, got {retry_after_s!r}")


def _amendable(rollout: Rollout) -> dict[str, Value]:
    """Return the columns of a rollout that may be amended."""
    config = rollout.config
    return {
        "mode": rollout.mode,
        "input": None if rollout.input is None else json_of(rollout.input),
        "metadata": json_of(rollout.metadata),
        "resources": json_of(rollout.resources),
        "max_attempts": config.max_attempts,
        "retry_on": json_of(config.retry_on),
        "timeout_s": config.timeout_s,
        "unresponsive_s": config.unresponsive_s,
        "backoff_s": config.backoff_s,
    }


def check_id(rollout_id: object) -> None:
    """Check the id of a new rollout. Raises: ValueError."""
    if not isinstance(rollout_id, str) or not 0 < len(rollout_id) <= ID_CHARS or "\0" in rollout_id:
        raise ValueError(f"rollout_id must be a text of 1 to {ID_CHARS:,} characters")
    if rollout_id.startswith(LIVE):
        raise ValueError(f"rollout_id must not begin with {LIVE!r}, got {rollout_id!r}")


def _keep_late(
    batch: Batch, attempt: Attempt, status: AttemptStatus, output: object, *, at: float
) -> None:
    """Keep the result of an attempt that is over, and count it."""
    batch.count(LATE)
    span = Span(
        rollout_id=attempt.rollout_id,
        attempt=attempt.number,
        span_id=f"result-{attempt.number}",
        kind="result",
        name="late result",
        status=status,
        attributes={} if output is None else {"output": output},
        started_at=at,
        ended_at=at,
    )
    batch.add_spans([span], at=at)


class Workers:
    """The workers that take rollouts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def register(
        self,
        worker_id: str,
        *,
        at: float | None = None,
        owner: str | None = None,
        stats: JsonObject | None = None,
    ) -> Worker:
        """Store a worker, or record a heartbeat of it, with what it reports of itself.

        Args:
            worker_id: Its id.
            at: Epoch seconds.
            owner: Its process, by which others see whether it lives; ``None`` keeps the known one,
                which is the process that claimed for it.
            stats: Open-ended JSON data; ``None`` keeps the known ones.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            touch_worker(self._connection, worker_id, at=at, owner=owner)
            rows = self._connection.rows(
                """
                update workers set stats = coalesce(?, stats),
                    status = iif(status = 'gone', 'idle', status)
                where worker_id = ? returning *
                """,
                (None if stats is None else json_of(stats), worker_id),
            )
            return record_of(Worker, rows[0])

    def workers(self) -> list[Worker]:
        """Return every worker by id."""
        rows = self._connection.rows("select * from workers order by worker_id")
        return sound(rows, partial(record_of, Worker))


class Resources:
    """Prompts and settings by name; each has versions of its own, which never change."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def publish(
        self,
        resources: JsonObject,
        *,
        at: float | None = None,
        expected: Mapping[str, int] | None = None,
    ) -> dict[str, Resource]:
        """Store new versions of some resources; others stay as they are.

        A content that is the latest already makes no version.

        Args:
            resources: Their contents by name, open-ended JSON data.
            at: Epoch seconds.
            expected: The latest versions of some of them, 0 for none; if one is another by now,
                nothing is stored.

        Returns:
            The latest version of each.

        Raises:
            ConflictError: A version is not the expected one.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin():
            latest = self.latest()
            for name, version in (expected or {}).items():
                actual = latest[name].version if name in latest else 0
                if actual != version:
                    raise ConflictError("resource", name, expected=version, actual=actual)
            for name, content in resources.items():
                known = latest.get(name)
                text = json_of(content)
                if known is not None and json_of(known.content) == text:
                    continue
                number = 1 if known is None else known.version + 1
                self._connection.change(
                    """
                    insert into resources (name, version, content, created_at)
                    values (?, ?, ?, ?)
                    """,
                    (name, number, text, at),
                )
                latest[name] = self.resource(name, number)
        return {name: latest[name] for name in resources}

    def latest(self) -> dict[str, Resource]:
        """Return the newest version of every resource, by name."""
        rows = self._connection.rows(NEWEST_RESOURCES)
        latest = sound(rows, partial(record_of, Resource))
        return {resource.name: resource for resource in latest}

    def resource(self, name: str, version: int) -> Resource:
        """Return one version of a resource. Raises: UnknownError."""
        row = self._connection.row(
            "select * from resources where name = ? and version = ?", (name, version)
        )
        if row is None:
            raise UnknownError("resource", f"{name}@{version}")
        return record_of(Resource, row)

    def versions(self, name: str) -> list[Resource]:
        """Return every version of a resource, the newest first."""
        rows = self._connection.rows(
            "select * from resources where name = ? order by version desc", (name,)
        )
        return sound(rows, partial(record_of, Resource))


def touch_worker(
    connection: Connection,
    worker_id: str,
    *,
    at: float,
    owner: str | None = None,
    claimed_at: float | None = None,
) -> Row:
    """Register a worker or record a heartbeat of it, and return its row.

    Args:
        connection: The connection.
        worker_id: The worker.
        at: Epoch seconds.
        owner: Its process; ``None`` keeps the known one.
        claimed_at: Epoch seconds at which it claimed; ``None`` keeps the known ones.
    """
    return connection.rows(
        """
        insert into workers (worker_id, registered_at, last_heartbeat_at, owner, claimed_at)
        values (:worker_id, :at, :at, :owner, :claimed_at)
        on conflict (worker_id) do update set
            last_heartbeat_at = max(workers.last_heartbeat_at, excluded.last_heartbeat_at),
            owner = coalesce(excluded.owner, workers.owner),
            claimed_at = coalesce(excluded.claimed_at, workers.claimed_at)
        returning *
        """,
        {"worker_id": worker_id, "at": at, "owner": owner, "claimed_at": claimed_at},
    )[0]


def set_worker(
    connection: Connection,
    worker_id: str,
    status: WorkerStatus,
    *,
    active: tuple[str, int] | tuple[None, None] = (None, None),
    at: float,
) -> None:
    """Record the status of a worker, and the attempt that it works on.

    Args:
        connection: The connection.
        worker_id: The worker.
        status: Its status.
        active: The rollout that it works on, and the number of the attempt.
        at: Epoch seconds since which it has the status, if that is new.
    """
    connection.change(
        """
        update workers set status = :status, active_rollout_id = :rollout_id,
            active_attempt = :attempt,
            busy_at = iif(:status = 'busy' and status <> 'busy', :at, busy_at),
            idle_at = iif(:status = 'idle' and status <> 'idle', :at, idle_at)
        where worker_id = :worker_id
        """,
        {
            "worker_id": worker_id, "status": status, "rollout_id": active[0],
            "attempt": active[1], "at": at,
        },
    )  # fmt: skip
