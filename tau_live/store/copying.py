"""Copies a whole store into another: between a file and a database, or two of a kind.

The tables and their columns are those of the schema. What is copied is the store as it was at one
moment, whoever writes to it meanwhile. Rows are compared before they are written: a copy that was
killed goes on where it was, and holds in the end what the store held when it was called again.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

from tau_live.core.errors import StoreError
from tau_live.store.roles import Checkpoints, Store
from tau_live.store.sql.connection import Connection, Value
from tau_live.store.sqlite.schema import WHOLE_SCHEMA

ROWS = 1_000
"""How many rows are one transaction."""

DERIVED = frozenset({"status_counts"})
"""Tables that follow from others."""

AT_LAST = ("counters", "sequences", "revisions")
"""Small tables that are replaced as a whole in the last transaction."""

MARK = "copying"
"""The name in ``sequences`` under which a copy that is not whole yet keeps where it is from."""

CHECKPOINTS = "checkpoints"

Tell = Callable[[str, int], None]
"""Called with a table, and how many of its rows were copied so far."""


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        key: Those of its primary key, in their order.
        all: Those that are stored.
    """

    key: Sequence[str]
    all: Sequence[str]


class Range(NamedTuple):
    """A range of keys.

    Attributes:
        after: The key before it; empty for the first.
        upto: The last key of it; empty where it has no end.
    """

    after: Sequence[Value] = ()
    upto: Sequence[Value] = ()

    def where(self, key: Sequence[str]) -> str:
        """Return the condition for a row to be in it, as SQL."""
        names, marks = ", ".join(key), ", ".join("?" for _ in key)
        tests = [
            f"({names}) {sign} ({marks})"
            for sign, bound in ((">", self.after), ("<=", self.upto))
            if bound
        ]
        return f"where {' and '.join(tests)}" if tests else ""


@cache
def columns() -> Mapping[str, Columns]:
    """Return the columns of each table that is copied row by row, in the order of the copy.

    Seals come last: what is written into a file before them is sealed there, too.
    """
    with closing(sqlite3.connect(":memory:")) as raw:
        for statement in WHOLE_SCHEMA:
            raw.execute(statement)
        tables = [
            name
            for (name,) in raw.execute(
                "select name from sqlite_master where type = 'table' order by name = 'seals', rowid"
            )
            if not name.startswith("sqlite_") and name not in {*DERIVED, *AT_LAST}
        ]
        known = {table: [*raw.execute(f"pragma table_info({table})")] for table in tables}
    return {
        table: Columns(
            [row[1] for row in sorted(rows, key=lambda row: int(row[5])) if row[5]],
            [row[1] for row in rows],
        )
        for table, rows in known.items()
    }


def count_rows(source: Store, target: Store) -> int:
    """Return how many rows and checkpoints a copy copies one by one."""
    count = source.connection.count
    rows = sum(count(f"select count(*) from {table}") for table in _tables(source, target))
    return rows + sum(len(own.names()) for own in _checkpoints(source).values())


def copy(source: Store, target: Store, *, tell: Tell) -> dict[str, int]:
    """Copy all that a store holds; return how many rows it has, by table.

    Args:
        source: The store.
        target: One without rows, or a copy of ``source`` that is not whole yet: until it is, nobody
            else can open it.
        tell: Called after each step.

    Raises:
        StoreError: ``target`` has rows that are not of a copy of ``source``.
    """
    _begin(source, target)
    done: dict[str, int] = {}
    with source.reading():
        done[CHECKPOINTS] = _copy_checkpoints(source, target, tell)
        for table in _tables(source, target):
            done[table] = _Table(table, source, target).copy(tell)
        for table in AT_LAST:
            done[table] = source.connection.count(f"select count(*) from {table}")
        _finish(source, target)
    return done


def _tables(source: Store, target: Store) -> Sequence[str]:
    """Return the tables that both stores have."""
    are_copied = source.seals.are_copied and target.seals.are_copied
    return [table for table in columns() if are_copied or table != "seals"]


def _mark_of(store: Store) -> int:
    """Return the number that stands for a store as where a copy is from."""
    name = str(store.path.resolve()).encode()
    return int.from_bytes(blake2b(name, digest_size=7).digest(), "big")


def _begin(source: Store, target: Store) -> None:
    into = target.connection
    with target.begin():
        if into.version() < 0:
            known = into.row("select value from sequences where name = ?", (MARK,))
            if known is None or known[0] != _mark_of(source):
                raise StoreError(
                    f"store '{target.address}' is a copy of another store than "
                    f"'{source.address}', and not whole yet: choose an empty one"
                )
            return
        for table in columns():
            if table != "seals" and into.rows(f"select 1 from {table} limit 1"):
                raise StoreError(
                    f"store '{target.address}' is not empty: it has rows in {table}, and only an "
                    "empty one can become a copy"
                )
        into.set_version(-into.version())
        into.change("insert into sequences (name, value) values (?, ?)", (MARK, _mark_of(source)))


def _finish(source: Store, target: Store) -> None:
    """Let numbers and counters go on where they are, and others open the copy."""
    into = target.connection
    with target.begin():
        target.counters.add(source.counters.counts())
        for table in AT_LAST[1:]:
            rows = [tuple(row) for row in source.connection.rows(f"select * from {table}")]
            into.change(f"delete from {table}")
            for row in rows:
                into.change(f"insert into {table} values (?, ?)", row)
        into.number_after(source.connection.numbers())
        into.set_version(-into.version())


class _Table:
    """The copy of one table."""

    def __init__(self, table: str, source: Store, target: Store) -> None:
        self._table, self._columns = table, columns()[table]
        self._source, self._target = source.connection, target.connection

    def copy(self, tell: Tell) -> int:
        """Copy its rows in the order of their keys; return how many there are."""
        count, within, is_last = 0, Range(), False
        while not is_last:
            rows = self._rows(self._source, within, f"limit {ROWS}")
            is_last = len(rows) < ROWS
            within = within._replace(upto=() if is_last else self._key_of(rows[-1]))
            known = self._rows(self._target, within)
            if rows != known:
                self._replace(rows, within, is_new=not known)
            count, within = count + len(rows), Range(after=within.upto)
            tell(self._table, count)
        return count

    def _replace(self, rows: list[Sequence[Value]], within: Range, *, is_new: bool) -> None:
        target = self._target
        names = ", ".join(self._columns.all)
        marks = ", ".join("?" for _ in self._columns.all)
        with target.begin():
            if not is_new:
                where = within.where(self._columns.key)
                target.change(f"delete from {self._table} {where}", [*within.after, *within.upto])
            target.insert(f"insert into {self._table} ({names}) values ({marks})", rows)

    def _rows(
        self, connection: Connection, within: Range, limit: str = ""
    ) -> list[Sequence[Value]]:
        columns, key = ", ".join(self._columns.all), ", ".join(self._columns.key)
        rows = connection.rows(
            f"select {columns} from {self._table} {within.where(self._columns.key)} "
            f"order by {key} {limit}",
            [*within.after, *within.upto],
        )
        return [tuple(row) for row in rows]

    def _key_of(self, row: Sequence[Value]) -> Sequence[Value]:
        return [row[self._columns.all.index(name)] for name in self._columns.key]


def _checkpoints(store: Store) -> Mapping[str, Checkpoints]:
    """Return the checkpoints of the learner and of each optimization, by its id."""
    runs = store.connection.rows("select run_id from optimizations order by seq")
    own = {row["run_id"]: store.checkpoints.of_run(row["run_id"]) for row in runs}
    return {"": store.checkpoints, **own}


def _copy_checkpoints(source: Store, target: Store, tell: Tell) -> int:
    count = 0
    for run_id, own in _checkpoints(source).items():
        into = target.checkpoints.of_run(run_id) if run_id else target.checkpoints
        known = {*into.names()}
        for name in own.names():
            content = _content(own, name)
            if name not in known or _content(into, name) != content:
                into.put(name, content)
            count += 1
            tell(CHECKPOINTS, count)
    return count


def _content(checkpoints: Checkpoints, name: str) -> bytes:
    with checkpoints.open(name) as file:
        return file.read()
