"""Lessons in SQLite: three chains of stamped records, and what runs of lessons have done."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tau_live.core.sanitize import JsonObject
from tau_live.store.records import ChainRow, Quarantined, StepRow
from tau_live.store.sql.connection import Connection, json_of

EXPERIENCE: Sequence[str] = (
    "alter table optimizations add column kind text not null default 'optimize'",
    """
    create table tool_use (
        run_id text not null references optimizations (run_id),
        tool text not null,
        calls integer not null,
        usd real not null,
        primary key (run_id, tool)
    ) strict
    """,
    """
    create table lessons (
        seq integer primary key autoincrement,
        chain text not null,
        name text not null,
        content text not null,
        unique (chain, name)
    ) strict
    """,
    "create index lessons_by_chain on lessons (chain, seq)",
    """
    create table quarantine (
        seq integer primary key,
        lesson_seq integer not null unique,
        chain text not null,
        name text not null,
        content text not null,
        reason text not null,
        at real not null,
        state text not null
    ) strict
    """,
    """
    create table replies (
        run_id text not null references optimizations (run_id),
        key text not null,
        content text not null,
        primary key (run_id, key)
    ) strict
    """,
    """
    create table steps (
        seq integer primary key,
        run_id text not null references optimizations (run_id),
        phase text not null,
        epoch integer not null,
        step integer not null,
        content text not null,
        unique (run_id, phase, epoch, step)
    ) strict
    """,
)
"""The tables of lessons."""


class Experience:
    """The chains of lessons, and the steps of their runs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, chain: str, records: Mapping[str, str]) -> None:
        """Add records, JSON text by name, to the end of a chain.

        Raises:
            StoreError: A name is known in this chain.
        """
        self._connection.change_many(
            "insert into lessons (chain, name, content) values (?, ?, ?)",
            [(chain, name, content) for name, content in records.items()],
        )

    def chain(self, chain: str) -> Iterator[ChainRow]:
        """Yield the records of a chain in their order."""
        for row in self._connection.stream(
            "select seq, name, content from lessons where chain = ? order by seq", (chain,)
        ):
            yield ChainRow(*row)

    def last(self, chain: str) -> ChainRow | None:
        """Return the last record of a chain (cheap)."""
        row = self._connection.row(
            "select seq, name, content from lessons where chain = ? order by seq desc limit 1",
            (chain,),
        )
        return None if row is None else ChainRow(*row)

    def by_name(self, chain: str, names: Sequence[str]) -> dict[str, str]:
        """Return the content of records by name; unknown ones are left out."""
        rows = self._connection.rows(
            """
            select name, content from lessons
            where chain = ? and name in (select value from json_each(?))
            """,
            (chain, json_of(list(names))),
        )
        return {row["name"]: row["content"] for row in rows}

    def hold(self, row: ChainRow, chain: str, *, reason: str, at: float, removes: bool) -> bool:
        """Put a record into quarantine; ``False`` if it is there.

        Args:
            row: The record.
            chain: Its chain.
            reason: Why.
            at: Epoch seconds, UTC.
            removes: Whether it leaves its chain, so that this can go on.
        """
        held = self._connection.change(
            """
            insert into quarantine (lesson_seq, chain, name, content, reason, at, state)
            values (?, ?, ?, ?, ?, ?, 'held') on conflict (lesson_seq) do nothing
            """,
            (row.seq, chain, row.name, row.content, reason, at),
        )
        if removes:
            self._connection.change("delete from lessons where seq = ?", (row.seq,))
        elif held:  # a record under the name may be stamped anew
            self._connection.change(
                "update lessons set name = name || '#' || seq where seq = ?", (row.seq,)
            )
        return held > 0

    def quarantine(self) -> list[Quarantined]:
        """Return the records in quarantine, in their order."""
        rows = self._connection.rows("select * from quarantine order by seq")
        return [Quarantined(**dict(row)) for row in rows]

    def release(self, seq: int, state: str) -> bool:
        """Set what became of a record that is held; ``False`` if there is none."""
        changed = self._connection.change(
            "update quarantine set state = ? where seq = ? and state = 'held'", (state, seq)
        )
        return changed > 0

    def reply(self, run_id: str, key: str) -> JsonObject | None:
        """Return a model's reply that a run has stored; ``None`` if there is none."""
        row = self._connection.row(
            "select content from replies where run_id = ? and key = ?", (run_id, key)
        )
        return None if row is None else msgspec.json.decode(row["content"])

    def keep_reply(self, run_id: str, key: str, content: JsonObject) -> None:
        """Store a model's reply, from which the run can be led again; the first one stays."""
        self._connection.change(
            "insert into replies values (?, ?, ?) on conflict do nothing",
            (run_id, key, json_of(content)),
        )

    def replies(self, run_id: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield the replies of a run by key."""
        for row in self._connection.stream(
            "select key, content from replies where run_id = ? order by key", (run_id,)
        ):
            yield row["key"], msgspec.json.decode(row["content"])

    def keep_step(self, run_id: str, step: StepRow) -> None:
        """Store a step; one that is stored is replaced."""
        self._connection.change(
            """
            insert into steps (run_id, phase, epoch, step, content) values (?, ?, ?, ?, ?)
            on conflict (run_id, phase, epoch, step) do update set content = excluded.content
            """,
            (run_id, step.phase, step.epoch, step.step, json_of(step.content)),
        )

    def steps(self, run_id: str) -> Iterator[StepRow]:
        """Yield the steps of a run in the order in which they ended."""
        for row in self._connection.stream(
            "select phase, epoch, step, content from steps where run_id = ? order by seq", (run_id,)
        ):
            content = msgspec.json.decode(row["content"])
            yield StepRow(row["phase"], row["epoch"], row["step"], content)
