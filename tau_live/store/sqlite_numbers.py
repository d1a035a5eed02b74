"""Numbers of which none is given twice, also where its row was forgotten, in SQLite."""

from tau_live.errors import StoreDamagedError
from tau_live.store.connection import Connection

NEXT = "select value + 1 as next from sequences where name = ?"


def next_number(connection: Connection, name: str) -> int:
    """Return the number that a numbering gives next; within a transaction that then stores it.

    Raises:
        StoreDamagedError: There is no such numbering any more, or it was put to its end.
    """
    row = connection.row(NEXT, (name,))
    if row is None or not isinstance(row["next"], int):  # beyond the last it is no whole number
        raise StoreDamagedError(
            f"store '{connection.path}' cannot be used: its numbering '{name}' was edited or "
            "removed: see `tau-live verify`"
        )
    return row["next"]
