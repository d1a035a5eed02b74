"""Many rows by few statements: in each, SQLite lets go of the interpreter and waits for it."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain

from tau_live.store.connection import Connection, Value

SIZES = (32, 8, 1)
"""How many rows one statement inserts; SQLite keeps them, some 10 kB for each row."""

_ROW = re.compile(r"\((\?, )*\?\)")


def insert(connection: Connection, sql: str, rows: Iterable[Sequence[Value]]) -> int:
    """Insert rows, given the statement that inserts one; return how many rows changed."""
    kept, at, changed = [*connection.breathing(rows)], 0, 0
    for size in SIZES:
        while len(kept) - at >= size:
            values = [*chain.from_iterable(kept[at : at + size])]
            changed += connection.change(_of_rows(sql, size), values)
            connection.breathe()
            at += size
    return changed


@cache
def _of_rows(sql: str, size: int) -> str:
    """Return the statement that inserts several rows, of one that inserts one."""
    return _ROW.sub(lambda row: ", ".join([row[0]] * size), sql)
