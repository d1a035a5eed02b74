"""Alerts in SQLite: those raised, marks of conditions, and how often each may be raised."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tau_live.store.alert_log import AlertRow, Noted
from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of, mapping_of

KEPT = 1_000
"""So many alerts are kept."""

ALERTING: Sequence[str] = (
    """
    create table alerts (
        seq integer primary key autoincrement,
        kind text not null,
        severity text not null,
        subject text not null,
        sentence text not null,
        todo text not null,
        facts text not null,
        at real not null,
        suppressed integer not null,
        owner text not null
    ) strict
    """,
    """
    create table alert_marks (
        kind text not null,
        subject text not null,
        mark text not null,
        told integer not null,
        primary key (kind, subject)
    ) strict, without rowid
    """,
    """
    create table alert_limits (
        kind text primary key,
        told_at real,
        suppressed integer not null
    ) strict, without rowid
    """,
)
"""Its part of the schema."""


class SqliteAlerts:
    """Implements ``Alerts``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def noted(self) -> Mapping[tuple[str, str], Noted]:
        """Return what was last noted, by kind and subject."""
        rows = self._connection.rows("select kind, subject, mark, told from alert_marks")
        return {
            (row["kind"], row["subject"]): Noted(row["mark"], bool(row["told"])) for row in rows
        }

    def note(self, kind: str, subject: str, mark: str, *, told: bool) -> None:
        """Note a condition; in the transaction that read what was noted before."""
        self._connection.change(
            """
            insert into alert_marks (kind, subject, mark, told) values (?, ?, ?, ?)
            on conflict (kind, subject) do update set mark = excluded.mark, told = excluded.told
            """,
            (kind, subject, mark, int(told)),
        )

    def last_told(self) -> Mapping[tuple[str, str], float]:
        """Return when an alert of each kind and subject was last told, in epoch seconds."""
        rows = self._connection.rows(
            "select kind, told_at from alert_limits where told_at is not null"
        )
        return {_parted(row["kind"]): row["told_at"] for row in rows}

    def suppress(self, kind: str, subject: str = "") -> None:
        """Count an alert that is not told because another like it was told just now."""
        self._connection.change(
            """
            insert into alert_limits (kind, told_at, suppressed) values (?, null, 1)
            on conflict (kind) do update set suppressed = suppressed + 1
            """,
            (_limited(kind, subject),),
        )

    def suppressed(self) -> Mapping[str, int]:
        """Return how many alerts of each kind wait to be told of by the next ones."""
        found: dict[str, int] = {}
        for row in self._connection.rows("select kind, suppressed from alert_limits"):
            if row["suppressed"]:
                kind, _ = _parted(row["kind"])
                found[kind] = found.get(kind, 0) + row["suppressed"]
        return found

    def release(self, kind: str, subject: str = "") -> None:
        """Let the next alert of a kind and subject be told at once."""
        self._connection.change(
            "update alert_limits set told_at = null where kind = ?", (_limited(kind, subject),)
        )

    def tell(self, row: AlertRow, *, at: float) -> AlertRow:
        """Store an alert that is told now, with how many like it were suppressed before it."""
        limited = _limited(row.kind, row.subject)
        with self._connection.begin():
            suppressed = self._connection.row(
                "select suppressed from alert_limits where kind = ?", (limited,)
            )
            told = replace(row, suppressed=suppressed["suppressed"] if suppressed else 0)
            self._connection.change(
                """
                insert into alert_limits (kind, told_at, suppressed) values (?, ?, 0)
                on conflict (kind) do update set told_at = excluded.told_at, suppressed = 0
                """,
                (limited, at),
            )
            self._connection.change(
                """
                insert into alerts
                (kind, severity, subject, sentence, todo, facts, at, suppressed, owner)
                values (?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                (
                    told.kind, told.severity, told.subject, told.sentence, told.todo,
                    json_of(told.facts), told.at, told.suppressed, told.owner,
                ),
            )  # fmt: skip
            seq = self._connection.count("select max(seq) from alerts")
            self._connection.change("delete from alerts where seq <= ?", (seq - KEPT,))
            return replace(told, seq=seq)

    def latest(self, *, limit: int) -> list[AlertRow]:
        """Return the alerts that were told, newest first."""
        rows = self._connection.rows("select * from alerts order by seq desc limit ?", (limit,))
        return [AlertRow(**{**dict(row), "facts": mapping_of(row["facts"])}) for row in rows]


def _limited(kind: str, subject: str) -> str:
    """Return what an alert is limited by: the kind, which has no space in it, and the subject."""
    return f"{kind} {subject}" if subject else kind


def _parted(limited: str) -> tuple[str, str]:
    kind, _, subject = limited.partition(" ")
    return kind, subject
