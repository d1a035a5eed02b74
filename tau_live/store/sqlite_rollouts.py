"""Rollouts, attempts and spans in SQLite."""

import time
from collections.abc import Sequence
from math import inf
from threading import Event

from tau_live.errors import UnknownError
from tau_live.rollouts import (
    RESUMED,
    Attempt,
    AttemptStatus,
    Reason,
    Rollout,
    RolloutStatus,
    Span,
    attempt_id_of,
)
from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of
from tau_live.store.many_rows import insert
from tau_live.store.records import Amendment, Page, RolloutQuery
from tau_live.store.sqlite_counters import count
from tau_live.store.sqlite_moves import Ending, move_attempt, move_rollout, touch_attempt
from tau_live.store.sqlite_query import page_of
from tau_live.store.sqlite_rows import (
    INSERT_ROLLOUT,
    attempt_of,
    rollout_of,
    span_of,
    values_of_rollout,
    values_of_span,
)

POLL_S = 0.01
"""How often another process's writes are looked for while waiting; one look takes 2 us."""

START, END = 1, 2
"""What was told of a span; one that ``close_spans`` ended was told no end, and may yet be."""

INSERT_SPAN = f"""
insert into spans (
    rollout_seq, attempt, span_id, parent_span_id, kind, name, status, attributes, started_at,
    ended_at, told
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_seq, attempt, span_id) do update set
    parent_span_id = coalesce(parent_span_id, excluded.parent_span_id),
    status = iif(excluded.told = {END}, excluded.status, status),
    attributes = iif(
        excluded.told = {END},
        merged(attributes, excluded.attributes), merged(excluded.attributes, attributes)
    ),
    started_at = iif(excluded.told = {START}, min(started_at, excluded.started_at), started_at),
    ended_at = iif(excluded.told = {END}, excluded.ended_at, ended_at),
    told = told | excluded.told
where told & excluded.told = 0
"""


class SqliteRollouts:
    """Implements ``RolloutLog``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begin_rollout(self, rollout: Rollout) -> bool:
        """Store a rollout as it is given; ``False`` if the id is already there."""
        return self._connection.change(INSERT_ROLLOUT, values_of_rollout(rollout)) > 0

    def set_status(
        self,
        rollout_id: str,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None = None,
        error_type: str | None = None,
        worker_id: str | None = None,
    ) -> bool:
        """Move a rollout on, if its lifecycle allows it; ``False`` if it was there already."""
        ending = Ending(at, reason, error_type, worker_id)
        with self._connection.begin():
            return move_rollout(self._connection, rollout_id, new, ending)

    def amend_rollout(self, rollout_id: str, told: Amendment) -> None:
        """Fill in what a late start tells, or a later attempt's end."""
        changed = self._connection.change(
            """
            update rollouts set
                name = case name when '' then :name else name end,
                session_id = coalesce(session_id, :session_id),
                parent_id = coalesce(parent_id, :parent_id),
                input = coalesce(input, :input),
                started_at = min(started_at, coalesce(:started_at, started_at)),
                metadata = case when :metadata = '{}' then metadata
                           when :later then merged(metadata, :metadata)
                           else merged(:metadata, metadata) end
            where rollout_id = :rollout_id
            """,
            {
                "name": told.name,
                "session_id": told.session_id,
                "parent_id": told.parent_id,
                "input": None if told.input is None else json_of(told.input),
                "metadata": json_of(told.metadata),
                "started_at": told.started_at,
                "later": told.later,
                "rollout_id": rollout_id,
            },
        )
        if not changed:
            raise UnknownError("rollout", rollout_id)

    def take_over(self, rollout_id: str, owner: str | None) -> None:
        """Let another process own a rollout, which it goes on with."""
        if not self._connection.change(
            "update rollouts set owner = ? where rollout_id = ?", (owner, rollout_id)
        ):
            raise UnknownError("rollout", rollout_id)

    def begin_attempt(self, attempt: Attempt) -> bool:
        """Store an attempt; ``False`` if its number is already there."""
        with self._connection.begin():
            added = insert_attempt(self._connection, attempt)
            if added:
                self._connection.change(
                    """
                    update rollouts set attempt_count = max(attempt_count, ?),
                        started_at = coalesce(started_at, ?)
                    where rollout_id = ?
                    """,
                    (attempt.number, attempt.started_at, attempt.rollout_id),
                )
            elif self.find_rollout(attempt.rollout_id) is None:
                raise UnknownError("rollout", attempt.rollout_id)
        return added

    def set_attempt_status(
        self,
        rollout_id: str,
        number: int,
        new: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> bool:
        """Move an attempt on; ``False`` if it was there already."""
        return move_attempt(
            self._connection, rollout_id, number, new, at=at, error_message=error_message
        )

    def add_span(self, span: Span) -> bool:
        """Store a span, or the end of one that is open; ``False`` if it was there already."""
        return self.add_spans([span]) > 0

    def add_spans(self, spans: Sequence[Span]) -> int:
        """Store spans as ``add_span`` does; return how many were new or closed an open one."""
        signs: dict[tuple[str, int], float] = {}
        for span in spans:
            attempt, at = (span.rollout_id, span.attempt), span.ended_at
            if at is None or at < span.started_at:
                at = span.started_at
            if not at <= signs.get(attempt, -inf):  # a NaN is refused further on
                signs[attempt] = at
        with self._connection.begin():
            seqs = {attempt: self._seq_of_living(*attempt, at=at) for attempt, at in signs.items()}
            added = insert(
                self._connection,
                INSERT_SPAN,
                [
                    values_of_span(
                        span,
                        seqs[span.rollout_id, span.attempt],
                        attributes=json_of(span.attributes),
                        told=START if span.ended_at is None else END,
                    )
                    for span in spans
                ],
            )
            if added < len(spans):
                count(self._connection, "duplicate_spans", len(spans) - added)
        return added

    def close_spans(self, rollout_id: str, number: int, *, status: str, at: float) -> int:
        """End every open span of an attempt; return how many there were."""
        return self._connection.change(
            """
            update spans set status = :status, ended_at = max(started_at, :at)
            where rollout_seq = (select seq from rollouts where rollout_id = :rollout_id)
            and attempt = :number and ended_at is null
            """,
            {"status": status, "at": at, "rollout_id": rollout_id, "number": number},
        )

    def rollout(self, rollout_id: str) -> Rollout:
        """Return one rollout. Raises: UnknownError."""
        found = self.find_rollout(rollout_id)
        if found is None:
            raise UnknownError("rollout", rollout_id)
        return found

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        """Return one rollout, or ``None``."""
        row = self._connection.row("select * from rollouts where rollout_id = ?", (rollout_id,))
        return None if row is None else rollout_of(row)

    def ids_beginning_with(self, beginning: str, *, limit: int) -> list[str]:
        """Return the ids of up to ``limit`` rollouts that begin so, in order."""
        rows = self._connection.rows(IDS_BEGINNING, (beginning, beginning, limit))
        return [row["rollout_id"] for row in rows]

    def counts_by_status(self) -> dict[RolloutStatus, int]:
        """Return how many rollouts have each status; costs the same however many there are."""
        rows = self._connection.rows("select status, total from status_counts")
        counted = {row["status"]: row["total"] for row in rows}
        return {status: counted.get(status.value, 0) for status in RolloutStatus}

    def query(self, query: RolloutQuery) -> Page:
        """Return the rollouts that are asked for, and how many there are in all."""
        return page_of(self._connection, query)

    def attempts(
        self,
        rollout_id: str,
        *,
        newest: int | None = None,
        unended: bool = False,
        execution: str | None = None,
    ) -> list[Attempt]:
        """Return attempts of a rollout by number: all, or those that the filters leave."""
        resumed = f"{execution}{RESUMED}"
        rows = self._connection.rows(
            """
            select * from attempts
            where rollout_seq = (select seq from rollouts where rollout_id = ?)
            and (ended_at is null or not ?)
            and (? is null or execution = ? or substr(execution, 1, ?) = ?)
            order by number desc limit ?
            """,
            (
                rollout_id, unended, execution, execution, len(resumed), resumed,
                -1 if newest is None else newest,
            ),
        )  # fmt: skip
        return [attempt_of(row, rollout_id) for row in reversed(rows)]

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        """Return the spans of a rollout (or of one attempt) in the order of arrival."""
        rows = self._connection.rows(
            """
            select * from spans
            where rollout_seq = (select seq from rollouts where rollout_id = :rollout_id)
            and (:number is null or attempt = :number) order by seq
            """,
            {"rollout_id": rollout_id, "number": number},
        )
        return [span_of(row, rollout_id) for row in self._connection.breathing(rows)]

    def open_rollouts(self, owner: str) -> list[str]:
        """Return the ids of the rollouts that this process left running."""
        rows = self._connection.rows(OPEN_ROLLOUTS, (owner,))
        return [row["rollout_id"] for row in rows]

    def owners(self) -> list[str]:
        """Return every process that owns a rollout which is not at its end."""
        return [row["owner"] for row in self._connection.rows(OWNERS)]

    def wait_for_rollouts(
        self, ids: Sequence[str], *, statuses: Sequence[RolloutStatus], timeout_s: float
    ) -> list[Rollout]:
        """Return those of ``ids`` that have one of ``statuses``, as soon as all of them have."""
        wanted = RolloutQuery(ids=ids, statuses=statuses)
        if not ids or not statuses:
            return []
        deadline = time.monotonic() + timeout_s
        pause = Event()
        while True:
            version = self._connection.data_version()
            found = self.query(wanted).rollouts
            if len(found) == len(set(ids)):
                return found
            while self._connection.data_version() == version:
                left = deadline - time.monotonic()
                if left <= 0:
                    return found
                pause.wait(min(POLL_S, left))

    def _seq_of_living(self, rollout_id: str, number: int, *, at: float) -> int:
        """Return the rollout's number of an attempt that gave a sign of life, and note that."""
        row = self._connection.row(ATTEMPT, (rollout_id, number))
        if row is None:
            raise UnknownError("attempt", attempt_id_of(rollout_id, number))
        seq, last, begun = row
        if last < at or not begun:  # else there is nothing to note, as often in a batch
            touch_attempt(self._connection, seq, number, at=at)
        return int(seq)


ATTEMPT = """
select seq, last_heartbeat_at, 'preparing' not in (attempts.status, rollouts.status)
from rollouts join attempts on rollout_seq = seq where rollout_id = ? and number = ?
"""

OPEN_STATUSES = "status in ('queuing', 'preparing', 'running', 'requeuing')"
"""As in the index ``rollouts_by_owner``, word for word, so that it is used."""

IDS_BEGINNING = """
select rollout_id from rollouts where rollout_id >= ? and rollout_id < ? || char(1114111)
order by rollout_id limit ?
"""

OPEN_ROLLOUTS = f"select rollout_id from rollouts where owner = ? and {OPEN_STATUSES} order by seq"

OWNERS = f"""
select distinct owner from rollouts where owner is not null and {OPEN_STATUSES} order by owner
"""

INSERT_ATTEMPT = """
insert into attempts (
    rollout_seq, number, status, execution, worker_id, started_at, last_heartbeat_at, ended_at,
    error_message, timeout_at, unresponsive_s
)
select seq, ?, ?, ?, ?, ?, ?, ?, ?, ? + timeout_s, unresponsive_s
from rollouts where rollout_id = ?
on conflict (rollout_seq, number) do nothing
"""


def insert_attempt(connection: Connection, attempt: Attempt) -> bool:
    """Store an attempt with its rollout's limits; ``False`` if it, or no rollout, is there."""
    added = connection.change(
        INSERT_ATTEMPT,
        (
            attempt.number,
            attempt.status,
            attempt.execution,
            attempt.worker_id,
            attempt.started_at,
            attempt.last_heartbeat_at,
            attempt.ended_at,
            attempt.error_message,
            attempt.started_at,
            attempt.rollout_id,
        ),
    )
    return added > 0
