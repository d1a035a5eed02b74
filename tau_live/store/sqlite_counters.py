"""Counters and the audit in SQLite."""

import sqlite3
from collections.abc import Mapping

from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of, mapping_of
from tau_live.store.records import AuditEntry


class SqliteCounters:
    """Implements ``Counters``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        with self._connection.begin():
            for name, by in counts.items():
                count(self._connection, name, by)

    def counts(self) -> dict[str, int]:
        """Return every counter."""
        rows = self._connection.rows("select name, value from counters order by name")
        return {row["name"]: row["value"] for row in rows}


class SqliteAudit:
    """Implements ``Audit``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Write a line."""
        self._connection.change(
            "insert into audit (at, who, action, reason, details) values (?, ?, ?, ?, ?)",
            (entry.at, entry.who, entry.action, entry.reason, json_of(entry.details)),
        )

    def entries(self, *, limit: int | None = None) -> list[AuditEntry]:
        """Return the lines, newest first."""
        rows = self._connection.rows(
            "select * from audit order by seq desc limit ?", (-1 if limit is None else limit,)
        )
        return [_entry_of(row) for row in rows]

    def since(self, seq: int, *, limit: int) -> list[AuditEntry]:
        """Return the lines behind one, oldest first."""
        rows = self._connection.rows(
            "select * from audit where seq > ? order by seq limit ?", (seq, limit)
        )
        return [_entry_of(row) for row in rows]


def _entry_of(row: sqlite3.Row) -> AuditEntry:
    """Return a line; one that somebody has spoiled has no details, and ``verify`` finds it."""
    try:
        details = mapping_of(row["details"])
    except (ValueError, TypeError):
        details = {}
    return AuditEntry(
        at=row["at"],
        who=row["who"],
        action=row["action"],
        reason=row["reason"],
        details=details,
        seq=row["seq"],
    )


def count(connection: Connection, name: str, by: int = 1) -> None:
    """Add to one counter."""
    connection.change(
        """
        insert into counters (name, value) values (?, ?)
        on conflict (name) do update set value = value + excluded.value
        """,
        (name, by),
    )
