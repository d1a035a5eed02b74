"""A store on the host that keeps what a database, the hub, has yet to get.

It is an ordinary store with one more table, which says of each rollout how often it was changed and
up to which change it was sent. Triggers count, so that no writer can forget to.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from tau_live.core import fault
from tau_live.core.errors import SpoolOfOthersError
from tau_live.core.records import Attempt, Span
from tau_live.store.records import RolloutCopy, SpoolState
from tau_live.store.sql.connection import Row, json_of
from tau_live.store.sql.retention import delete_rollouts
from tau_live.store.sql.rows import (
    ATTEMPT,
    DECISION,
    attempt_of,
    decision_of,
    reward_of,
    rollout_of,
    sound,
    span_of,
)
from tau_live.store.sqlite.connection import SqliteConnection
from tau_live.store.sqlite.schema import OUTBOX
from tau_live.store.sqlite.store import SqliteStore

NEXT = """
select outbox.seq as place, outbox.rollout_id as id, outbox.changes as changes, rollouts.*
from outbox left join rollouts on rollouts.rollout_id = outbox.rollout_id
where outbox.sent < outbox.changes
and (rollouts.seq is null or rollouts.status in ('succeeded', 'failed', 'cancelled'))
order by outbox.seq limit ?
"""

MARK = """
update outbox set sent = max(sent, ?), sent_at = ? where seq = ? and sent < ?
"""

SENT = """
select rollouts.seq, outbox.rollout_id from outbox
left join rollouts on rollouts.rollout_id = outbox.rollout_id
where outbox.sent_at < :before and outbox.sent = outbox.changes
order by outbox.sent_at limit :limit
"""

HEARD = """
insert into heard (hub, at, history) values (1, ?, ?) on conflict (hub) do update set
    at = max(heard.at, excluded.at), history = coalesce(nullif(excluded.history, ''), heard.history)
"""

BELONGS = """
insert into belongs (hub, id, address) values (1, ?, ?) on conflict (hub) do update set
    id = coalesce(nullif(excluded.id, ''), belongs.id), address = excluded.address
"""

WAITING = """
select count(*) as rollouts, min(coalesce(rollouts.ended_at, rollouts.started_at)) as oldest_at
from outbox left join rollouts on rollouts.rollout_id = outbox.rollout_id
where outbox.sent < outbox.changes
"""

SEQS = "(select value from json_each(?))"

OWNED_BY = (
    ("attempts", ATTEMPT),
    ("recorded_spans", "*"),
    ("decisions", DECISION.partition(", ")[2]),
    ("arms", "point, arm, share, agreed"),
    ("names", "name_id"),
)
"""The tables of what rollouts own, with the columns of a copy."""

ORDERS: Mapping[str, str] = {"attempts": "number", "arms": "place", "names": "name_id"}
"""By which column the rows of a rollout come in a table, unless it is ``seq``."""

FORGOTTEN = 256
"""How many rollouts are deleted in one transaction."""


class Spool(SqliteStore):
    """One open spool, for one thread."""

    def __init__(self, connection: SqliteConnection) -> None:
        super().__init__(connection)
        if not connection.read_only:
            with connection.begin():
                for statement in OUTBOX:
                    connection.change(statement)

    def belong_to(self, address: str, *, id_: str) -> None:
        """Check that this is the spool of a store, whose it becomes if it is nobody's yet.

        One that was opened to be read stays nobody's.

        Args:
            address: Where the store is, without secrets.
            id_: ``Store.id``, wherever the store is; empty while it cannot be reached.

        Raises:
            SpoolOfOthersError: It is another's.
        """
        if not self._belongs_to(address, id_) and not self._connection.read_only:
            with self.begin():
                if not self._belongs_to(address, id_):
                    self._connection.change(BELONGS, (id_, address))

    def _belongs_to(self, address: str, id_: str) -> bool:
        """Return whether all that is known of the owner is stored; as ``belong_to``."""
        owner = self._connection.row("select id, address from belongs")
        if owner is None:
            return False
        are_known = bool(owner["id"] and id_)
        is_here = owner["address"] == address
        is_same = are_known and owner["id"] == id_
        is_restored = are_known and is_here and _origin(owner["id"]) == _origin(id_)
        may_be = is_here and not are_known
        if not (is_same or is_restored or may_be):
            raise SpoolOfOthersError(
                self.path, str(owner["address"]), wanted=address, unsent=self.state().unsent
            )
        return is_here and id_ in {"", owner["id"]}

    def copies(self, *, limit: int) -> list[RolloutCopy]:
        """Return the next ended rollouts that are not sent as they are now, the oldest first.

        Rewards of rollouts that are not here are copies without a rollout.
        """
        with self.reading():
            rows = self._connection.rows(NEXT, (limit,))
            ids = {row["seq"]: row["id"] for row in rows if row["seq"] is not None}
            rewards = self._rewards([row["id"] for row in rows])
            owned = {table: self._own_rows(table, columns, ids) for table, columns in OWNED_BY}
        copies = []
        for row in rows:
            seq, id_ = row["seq"], row["id"]
            own = {table: rows_of.get(seq, ()) for table, rows_of in owned.items()}
            rollouts = [] if seq is None else sound([row], rollout_of)
            if seq is not None and not rollouts:
                continue
            copies.append(
                RolloutCopy(
                    place=row["place"],
                    changes=row["changes"],
                    rollout_id=id_,
                    rollout=rollouts[0] if rollouts else None,
                    attempts=sound(own["attempts"], partial(_attempt, rollout_id=id_)),
                    spans=sound(own["recorded_spans"], partial(_span, rollout_id=id_)),
                    decisions=sound(own["decisions"], partial(decision_of, rollout_id=id_)),
                    arms=[tuple(arm)[1:] for arm in own["arms"]],
                    names=[name["name_id"] for name in own["names"]],
                    rewards=sound(rewards.get(id_, ()), reward_of),
                )
            )
        return copies

    def mark_sent(self, copies: Iterable[RolloutCopy], *, now: float) -> None:
        """Mark copies as sent; what was changed since they were made is still to be sent."""
        rows = [(copy.changes, now, copy.place, copy.changes) for copy in copies]
        with self.begin():
            self._connection.change_many(MARK, rows)
            fault.point("ship.marked")

    def state(self) -> SpoolState:
        """Return how much the hub has yet to get, and when it was last heard."""
        [row] = self._connection.rows(WAITING)
        heard = self._connection.row("select at from heard")
        return SpoolState(row["rollouts"], row["oldest_at"], None if heard is None else heard["at"])

    def note_heard(self, at: float, *, history: str) -> bool:
        """Record that the hub was heard at a time, in epoch seconds.

        Where its history is another, which may lack what was committed last, all that was sent and
        is still here is to be sent again; then return ``True``.
        """
        with self.begin():
            known = self._connection.row("select history from heard where hub = 1")
            self._connection.change(HEARD, (at, history))
            earlier = history if known is None else str(known["history"])
            is_other = bool(earlier and history) and earlier != history
            if is_other:
                self._connection.change("update outbox set sent = 0 where sent > 0")
        return is_other

    def forget_sent(self, *, before: float, limit: int = FORGOTTEN) -> int:
        """Delete what was sent before a time, in epoch seconds; return how many rollouts."""
        rows = self._connection.rows(SENT, {"before": before, "limit": limit})
        if not rows:
            return 0
        with self.begin():
            rows = self._connection.rows(SENT, {"before": before, "limit": limit})
            delete_rollouts(self._connection, self.seals, rows)
            ids = [(row["rollout_id"],) for row in rows]
            self._connection.change_many("delete from outbox where rollout_id = ?", ids)
        return len(rows)

    def _own_rows(self, table: str, columns: str, ids: Iterable[int]) -> Mapping[int, list[Row]]:
        """Return the rows that rollouts have in a table, by rollout, as they came."""
        order = ORDERS.get(table, "seq")
        rows = self._connection.rows(
            f"select rollout_seq, {columns} from {table} where rollout_seq in {SEQS} "
            f"order by rollout_seq, {order}",
            (json_of([*ids]),),
        )
        return {seq: [*own] for seq, own in groupby(rows, key=itemgetter(0))}

    def _rewards(self, ids: Sequence[str]) -> Mapping[str, list[Row]]:
        rows = self._connection.rows(
            f"select * from rewards where rollout_id in {SEQS} order by rollout_id, seq",
            (json_of(ids),),
        )
        return {id_: [*own] for id_, own in groupby(rows, key=itemgetter("rollout_id"))}


def _origin(id_: str) -> str:
    """Return what a database was made with, of its id."""
    return id_.partition("/")[0]


def _attempt(row: Row, rollout_id: str) -> Attempt:
    return attempt_of(tuple(row)[1:], rollout_id)


def _span(row: Row, rollout_id: str) -> tuple[Span, int]:
    return span_of(row, rollout_id), int(row["reported"])
