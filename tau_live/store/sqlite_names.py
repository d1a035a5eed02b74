"""Other ids of rollouts, and the last run of a session, in SQLite."""

from collections.abc import Sequence

from tau_live.errors import UnknownError
from tau_live.store.connection import Connection, Parameters

NAMING: Sequence[str] = (
    """
    create table names (
        name_id text not null,
        rollout_seq integer not null references rollouts on delete cascade,
        primary key (name_id, rollout_seq)
    ) strict, without rowid
    """,
    "create index names_by_rollout on names (rollout_seq)",
)
"""Their part of the schema."""

NEWEST = 64
"""Among so many runs of a session it is looked for hosts that share it."""

OUTERMOST = """
select host, rollout_id from rollouts as one
where session_id = :session_id and (:host is null or host = :host)
and not exists (
    select 1 from rollouts as outer_one
    where outer_one.rollout_id = one.parent_id and outer_one.session_id = :session_id
)
order by seq desc limit :limit
"""

MOVED = """
insert or ignore into rewards (
    rollout_id, decision_id, name, value, label, comment, source, key, at, decisions_before
)
select :rollout_id, decision_id, name, value, label, comment, source, key, at, decisions_before
from rewards where rollout_id = :name_id
and not exists (select 1 from rollouts where rollouts.rollout_id = :name_id)
order by seq
"""
"""Anew: whoever watches for what has come behind a place sees them."""


class SqliteNames:
    """Implements ``Names``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, name_id: str, rollout_id: str) -> int:
        """Note that a rollout has another id; return how many rewards had waited for that id.

        They become the rollout's, as if they came now.

        Raises:
            UnknownError: No such rollout is stored.
        """
        known: Parameters = {"name_id": name_id, "rollout_id": rollout_id}
        with self._connection.begin():
            added = self._connection.change(
                """
                insert into names (name_id, rollout_seq)
                select :name_id, seq from rollouts where rollout_id = :rollout_id
                on conflict (name_id, rollout_seq) do nothing
                """,
                known,
            )
            if not added:
                self._check_known(rollout_id)
                return 0
            moved = self._connection.change(MOVED, known)
            if moved:
                self._connection.change("delete from rewards where rollout_id = ?", (name_id,))
        return moved

    def rollouts_of(self, name_id: str) -> list[str]:
        """Return the rollouts that have this other id, without those inside another of them."""
        rows = self._connection.rows(
            """
            select rollout_id, parent_id from names join rollouts on seq = rollout_seq
            where name_id = ? order by seq
            """,
            (name_id,),
        )
        all_ = {row["rollout_id"] for row in rows}
        return [row["rollout_id"] for row in rows if row["parent_id"] not in all_]

    def last_of(self, session_id: str) -> dict[str, str]:
        """Return by host the rollout of a session that began last, inside no other one of it.

        Looked for among the newest runs of the session.
        """
        found: dict[str, str] = {}
        for row in self._connection.rows(
            OUTERMOST, {"session_id": session_id, "host": None, "limit": NEWEST}
        ):
            found.setdefault(row["host"], row["rollout_id"])
        return found

    def last_of_host(self, session_id: str, host: str) -> str | None:
        """Return the rollout of a host's session that began last, inside no other one of it."""
        row = self._connection.row(OUTERMOST, {"session_id": session_id, "host": host, "limit": 1})
        return None if row is None else str(row["rollout_id"])

    def _check_known(self, rollout_id: str) -> None:
        if not self._connection.rows("select 1 from rollouts where rollout_id = ?", (rollout_id,)):
            raise UnknownError("rollout", rollout_id)
