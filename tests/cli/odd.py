"""A store with rows in every table, and single cells of it that somebody edited."""

import math
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tau_live.core.reasons import Part, Pause
from tau_live.core.settings import Learner, Settings
from tau_live.operate.alerts import AlertRaiser
from tau_live.operate.status import status_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.filled import HOST_PROCESS, add_runs
from tests.cli.lived import live

Cellable = str | int | float | bytes | None

LEFT_ALONE = frozenset({"_sqlite_migrations", "sqlite_sequence", "seals"})
TYPED: dict[str, tuple[Cellable, ...]] = {
    "INTEGER": (-1, 0, 7, 2**62, None),
    "REAL": (math.inf, -math.inf, -1.0, 1e300, None),
    "TEXT": ("nonsense", "", None),
    "BLOB": (b"", b"\x01"),
}
"""What anybody may write into a column of each type."""

UNTYPED: dict[str, tuple[Cellable, ...]] = {
    "INTEGER": (None, "x", 1.5),
    "REAL": (None, "x"),
    "TEXT": (None, b"\xff"),
    "BLOB": (None, "x"),
}
"""What only a damaged page, or a tool that ignores the schema, leaves there."""

JSON = (
    "{", "[]", "{}", "null", "[1]", "7", "1e999",
    '{"difference": 3, "multiplier": [], "figures": [1], "limits": [1], "alarms": [7]}',
    '{"test": 1.0, "drift": {"a": {"n": "b"}}, "figures": {"rollouts": "x"}}',
)  # fmt: skip


class Cell(NamedTuple):
    """A cell of the first or the last row of a table, and its new value.

    Attributes:
        table: The table.
        column: The column.
        value: The new value.
        last: Whether it is in the last row by the primary key.
        untyped: Whether the schema forbids the value.
    """

    table: str
    column: str
    value: Cellable
    last: bool = True
    untyped: bool = False

    @property
    def is_surely_odd(self) -> bool:
        """Whether no version of tau-live ever writes this, whatever the column means."""
        value = self.value
        return (
            self.untyped
            or value in ("{", "1e999")
            or (isinstance(value, float) and math.isinf(value))
            or (isinstance(value, int) and value < 0)
        )


def settings_at(path: Path) -> Settings:
    return Settings(
        store=path,
        learner=Learner.FLUSH,
        decide_deadline_ms=60_000.0,
        control_share=0.3,
        reward_range=(0.0, 1.0),
        update_interval=1,
        cost_limit=0.1,
    )


def crowd(path: Path) -> None:
    """Let an agent live, and add what that leaves out, so that few tables are empty."""
    live(path)
    store = SqliteStore.open(path)
    with store.begin():
        add_runs(store)
        store.leases.acquire(f"process:{HOST_PROCESS}", HOST_PROCESS, ttl_s=600.0)
        store.workers.register("worker", at=5.0)
        store.resources.publish({"prompt": "be brief"}, at=1.0)
        store.pauses.begin(Pause(part=Part.COLLECTION, reason="full", who="anna", at=5.0))
        store.pauses.end(Part.COLLECTION)
    settings = settings_at(path)
    raiser = AlertRaiser(
        settings, owner=HOST_PROCESS, tell=lambda _alert: None, count=lambda _name: None
    )
    raiser.check(store, status_of(store, settings, now=time.time()))
    store.close()


def cells(path: Path) -> Iterator[Cell]:
    """Yield every cell and value to try."""
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("select name from sqlite_master where type = 'table' order by name")
        for (table,) in tables.fetchall():
            if table not in LEFT_ALONE and db.execute(f'select 1 from "{table}"').fetchone():
                for _, column, type_, *_ in db.execute(f'pragma table_info("{table}")').fetchall():
                    yield from _cells_of(db, table, column, type_)


def _cells_of(db: sqlite3.Connection, table: str, column: str, type_: str) -> Iterator[Cell]:
    newest = f'select max("{column}") from "{table}"'
    holds_json = str(db.execute(newest).fetchone()[0]).startswith(("{", "["))
    for last in (False, True):
        for value in JSON if holds_json and type_ == "TEXT" else TYPED[type_]:
            yield Cell(table, column, value, last)
        for value in UNTYPED[type_]:
            yield Cell(table, column, value, last, untyped=True)


def edit(path: Path, cell: Cell) -> bool:
    """Edit a cell; ``False`` where the schema refuses its value."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        info = db.execute(f'pragma table_info("{cell.table}")').fetchall()
        keys = [name for _, name, *_, place in info if place]
        nullable = not any(
            name == cell.column and (needed or place) for _, name, _, needed, _, place in info
        )
        if cell.untyped and cell.value is None and nullable:
            return False
        order = ", ".join(f'"{key}" {"desc" if cell.last else "asc"}' for key in keys)
        key = db.execute(
            f'select {", ".join(keys)} from "{cell.table}" order by {order}'
        ).fetchone()
        [(schema,)] = db.execute("select sql from sqlite_master where name = ?", (cell.table,))
        if cell.untyped:
            loose = re.sub(r"\bstrict\b,?\s*|\bnot null\b", "", schema).strip().rstrip(",")
            _put_schema(db, cell.table, loose)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        where = " and ".join(f'"{name}" = ?' for name in keys)
        try:
            db.execute(
                f'update "{cell.table}" set "{cell.column}" = ? where {where}', (cell.value, *key)
            )
        except sqlite3.IntegrityError:
            return False
        if cell.untyped:
            _put_schema(db, cell.table, schema)
    return True


def _put_schema(db: sqlite3.Connection, table: str, schema: str) -> None:
    db.execute("pragma writable_schema = on")
    db.execute("update sqlite_master set sql = ? where name = ?", (schema, table))
    db.execute("pragma writable_schema = reset")
