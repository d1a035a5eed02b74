"""The gate and the leases in SQLite."""

from sqlite3 import Row

import msgspec

from tau_live import fault
from tau_live.gate import GateEntry, GateRow, HoldReason, State
from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of

CHANGES = "(select count(*) from gate_log)"
"""At least so often a gate was changed whose row is gone."""

LOAD = f"""
select gate.*, iif(gate.id is null, {CHANGES}, 0) as removed,
    iif(gate.id is null, (select max(at) from gate_log), 0.0) as changed_at
from (select 1) left join gate on true
"""

REMOVED = "the gate's row was removed from the store, not by tau-live: see `tau-live verify`"


class SqliteGate:
    """Implements ``GateState``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def load(self) -> GateRow:
        """Return the gate; it passes when nothing was ever stored, and holds if that is gone."""
        row = self._connection.rows(LOAD)[0]
        if row["removed"]:
            return GateRow(
                state=State.HOLD.value,
                reason=HoldReason.GATE_REMOVED.value,
                detail=REMOVED,
                since=row["changed_at"],
                streaks={},
                revision=row["removed"],
            )
        if row["id"] is None:
            return GateRow(
                state="pass", reason=None, detail=None, since=0.0, streaks={}, revision=0
            )
        return GateRow(
            state=row["state"],
            reason=row["reason"],
            detail=row["detail"],
            since=row["since"],
            streaks=msgspec.json.decode(row["streaks"], type=dict[str, int]),
            revision=row["revision"],
        )

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        """Store the gate if its revision is still ``row.revision - 1``; ``False`` if it is not."""
        with self._connection.begin():
            saved = self._connection.change(
                f"""
                insert into gate (id, state, reason, detail, since, streaks, revision)
                select 1, :state, :reason, :detail, :since, :streaks, :revision
                where :revision - 1 = coalesce((select revision from gate), {CHANGES})
                on conflict (id) do update set state = excluded.state, reason = excluded.reason,
                    detail = excluded.detail, since = excluded.since, streaks = excluded.streaks,
                    revision = excluded.revision
                """,
                {
                    "state": row.state,
                    "reason": row.reason,
                    "detail": row.detail,
                    "since": row.since,
                    "streaks": json_of(row.streaks),
                    "revision": row.revision,
                },
            )
            fault.point("gate.saved")
            if saved and entry is not None:
                self._connection.change(
                    """
                    insert into gate_log (at, event, state, kind, reason, who)
                    values (?, ?, ?, ?, ?, ?)
                    """,
                    (entry.at, entry.event, entry.state, entry.kind, entry.reason, entry.who),
                )
        return saved > 0

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        """Return the history, newest first."""
        rows = self._connection.rows(
            "select * from gate_log order by seq desc limit ?", (-1 if limit is None else limit,)
        )
        return [_entry_of(row) for row in rows]


STALE_S = 86_400.0
"""By so much a lease outlasts itself only where it was taken before a clock was put back."""


class SqliteLeases:
    """Implements ``Leases``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def acquire(self, name: str, holder: str, *, ttl_s: float, now: float) -> bool:
        """Take or renew a lease in one statement; ``False`` while somebody else holds it."""
        acquired = self._connection.change(
            """
            insert into leases (name, holder, expires_at) values (:name, :holder, :expires_at)
            on conflict (name) do update set holder = excluded.holder,
                expires_at = excluded.expires_at
            where leases.holder = excluded.holder or leases.expires_at <= :now
                or leases.expires_at > :stale
            """,
            {
                "name": name,
                "holder": holder,
                "expires_at": now + ttl_s,
                "now": now,
                "stale": now + ttl_s + STALE_S,
            },
        )
        return acquired > 0

    def release(self, name: str, holder: str) -> None:
        """Give a lease back; nothing happens if it is not held."""
        self._connection.change("delete from leases where name = ? and holder = ?", (name, holder))

    def holder(self, name: str, *, now: float) -> str | None:
        """Return who holds a lease that has not run out."""
        row = self._connection.row(
            "select holder from leases where name = ? and expires_at > ?", (name, now)
        )
        return None if row is None else str(row["holder"])

    def until(self, name: str) -> float | None:
        """Return when a lease runs out or has run out; ``None`` if nobody took it."""
        row = self._connection.row("select expires_at from leases where name = ?", (name,))
        return None if row is None else float(row["expires_at"])

    def held(self, prefix: str, *, now: float) -> dict[str, str]:
        """Return the leases in force whose name begins so, with their holders."""
        return self.ending(prefix, after=now, until=now + STALE_S)

    def ending(self, prefix: str, *, after: float, until: float) -> dict[str, str]:
        """Return the leases whose name begins so and that end in a time, with their holders."""
        rows = self._connection.rows(
            """
            select name, holder from leases
            where name >= :prefix and substr(name, 1, length(:prefix)) = :prefix
            and expires_at > :after and expires_at <= :until order by name
            """,
            {"prefix": prefix, "after": after, "until": until},
        )
        return {row["name"]: row["holder"] for row in rows}


def _entry_of(row: Row) -> GateEntry:
    return GateEntry(
        at=row["at"],
        event=row["event"],
        state=row["state"],
        kind=row["kind"],
        reason=row["reason"],
        who=row["who"],
        seq=row["seq"],
    )
