"""Rollouts, attempts and spans in SQLite."""

from collections.abc import Sequence

from tau_live.core.errors import UnknownError
from tau_live.core.records import (
    Attempt,
    Page,
    Rollout,
    RolloutQuery,
    RolloutStatus,
    Span,
)
from tau_live.rl.throttle import yield_between
from tau_live.store.sql.batch import Batch
from tau_live.store.sql.connection import Connection
from tau_live.store.sql.queries import sql_of, total_of
from tau_live.store.sql.rows import (
    ATTEMPT,
    attempt_of,
    rollout_of,
    sound,
    span_of,
)


class Rollouts:
    """Rollouts, attempts and spans."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rollout(self, rollout_id: str) -> Rollout:
        """Return one rollout. Raises: UnknownError, OddRowError."""
        rollout = self.find_rollout(rollout_id)
        if rollout is None:
            raise UnknownError("rollout", rollout_id)
        return rollout

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        """Return one rollout, or ``None``. Raises: OddRowError."""
        row = self._connection.row("select * from rollouts where rollout_id = ?", (rollout_id,))
        return None if row is None else rollout_of(row)

    def why_left_out(self, rollout_id: str) -> str | None:
        """Return why a rollout is left out of learning; ``None`` if it is not, or is not stored."""
        row = self._connection.row(
            "select left_out from rollouts where rollout_id = ?", (rollout_id,)
        )
        return None if row is None else row["left_out"]

    def ids_beginning_with(self, beginning: str, *, limit: int) -> list[str]:
        """Return up to ``limit`` rollout ids with this prefix, in order."""
        rows = self._connection.rows(IDS_BEGINNING, (beginning, beginning, limit))
        return [row["rollout_id"] for row in rows]

    def counts_by_status(self) -> dict[RolloutStatus, int]:
        """Return how many rollouts have each status; takes the same time however many there are."""
        rows = self._connection.rows(
            "select status, total from status_counts where typeof(total) = 'integer'"
        )
        counts = {row["status"]: row["total"] for row in rows}
        return {status: max(0, counts.get(status.value, 0)) for status in RolloutStatus}

    def query(self, query: RolloutQuery) -> Page:
        """Return the page of rollouts that match, and how many match in all.

        Raises:
            ValueError: ``order_by`` is none of ``ORDERS``.
        """
        sql, parameters = sql_of(query)
        with self._connection.reading():
            rows = self._connection.rows(sql, parameters)
            total = self._connection.count(total_of(query), parameters)
        return Page(sound(rows, rollout_of), total)

    def attempts(self, rollout_id: str) -> list[Attempt]:
        """Return the attempts of a rollout by number."""
        rows = self._connection.rows(
            f"""
            select {ATTEMPT} from attempts
            where rollout_seq = (select seq from rollouts where rollout_id = ?) order by number
            """,
            (rollout_id,),
        )
        return sound(rows, lambda row: attempt_of(row, rollout_id))

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        """Return the spans of a rollout, or of one attempt.

        Of each attempt the run, the decisions by ordinal, and the steps in the order of arrival.
        """
        rows = self._connection.rows(
            """
            select * from spans
            where rollout_id = :rollout_id and (:number is null or attempt = :number)
            order by attempt, seq, ordinal
            """,
            {"rollout_id": rollout_id, "number": number},
        )
        return sound(yield_between(rows), lambda row: span_of(row, rollout_id))

    def add_spans(self, spans: Sequence[Span], *, at: float | None = None) -> int:
        """Store spans of stored attempts; return how many were new or closed an open one.

        Each is a sign of life of its attempt. The same span id again within an attempt is ignored.

        Args:
            spans: The spans, in their order.
            at: Epoch seconds at which they arrived; ``None`` is now.

        Raises:
            UnknownError: An attempt is not stored; then none of the spans is.
        """
        at = self._connection.now() if at is None else at
        with self._connection.begin(), Batch(self._connection) as batch:
            return batch.add_spans(spans, at=at)

    def next_span_numbers(self, rollout_id: str, count: int = 1, *, after: int = 0) -> range:
        """Reserve numbers for spans of a rollout, which no other process gets; from 1, ascending.

        They number what several processes write at once, before it is stored: keep a span's number
        among its attributes, by which ``find`` orders. ``Span.seq`` is the order of arrival.

        Args:
            rollout_id: The rollout, of whatever attempt the spans are.
            count: How many.
            after: A number that was given elsewhere: all that are reserved from now on are higher.

        Raises:
            ValueError: ``count`` or ``after`` is negative or too large.
            UnknownError: No such rollout is stored.
        """
        if not (0 <= count <= LARGEST and 0 <= after <= LARGEST):
            raise ValueError(f"count and after must be from 0 to {LARGEST}, got {count}, {after}")
        with self._connection.begin():
            row = self._connection.row(
                RESERVE, {"rollout_id": rollout_id, "count": count, "after": after}
            )
        if row is None:
            raise UnknownError("rollout", rollout_id)
        return range(row["value"] - count + 1, row["value"] + 1)

    def open_rollouts(self, owner: str) -> list[str]:
        """Return the ids of the rollouts of a process that are not at their end."""
        rows = self._connection.rows(OPEN_ROLLOUTS, (owner,))
        return [row["rollout_id"] for row in rows]

    def owners(self) -> list[str]:
        """Return the processes that own a rollout which is not at its end."""
        return [row["owner"] for row in self._connection.rows(OWNERS)]


LARGEST = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exact."""

RESERVE = """
insert into sequences (name, value)
select 'spans:' || rollout_id, :after + :count from rollouts where rollout_id = :rollout_id
on conflict (name) do update set value = max(sequences.value, :after) + :count
returning value
"""

OPEN_STATUSES = "status in ('queuing', 'preparing', 'running', 'requeuing')"
"""The same text as in the index ``rollouts_by_owner``, so that it is used."""

IDS_BEGINNING = """
select rollout_id from rollouts where rollout_id >= ? and rollout_id < ? || char(1114111)
order by rollout_id limit ?
"""

OPEN_ROLLOUTS = f"select rollout_id from rollouts where owner = ? and {OPEN_STATUSES} order by seq"

OWNERS = f"""
select distinct owner from rollouts
where owner is not null and {OPEN_STATUSES} and typeof(owner) = 'text' order by owner
"""
