"""Seals of many rows at once: the very ones that triggers make row by row, in half of the time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress

from tau_live.store.connection import Connection, Value
from tau_live.store.sealing import AT_ONCE, LAST, SEALED, digests_of

Columns = Mapping[str, Sequence[Value]]
"""The values of several rows, by the name of their column."""

ROWS = 256
"""Of so many rows the seals are made without a pause."""


def kinds_of(connection: Connection, table: str) -> Mapping[str, str]:
    """Return the columns of a table that a connection seals, and the kind of each."""
    sealing = connection.sealing
    return {} if sealing is None else sealing.columns.get(table, {})


@contextmanager
def sealed_at_once(connection: Connection) -> Iterator[None]:
    """Let no trigger seal what is inserted meanwhile: who inserts it does."""
    connection.change(f"insert into {AT_ONCE} values (1)")
    try:
        yield
    finally:
        if connection.raw.in_transaction:  # else all of it was undone, and that with it
            connection.change(f"delete from {AT_ONCE}")


def seals_of(
    connection: Connection, table: str, columns: Columns, numbers: Sequence[int]
) -> Iterator[Sequence[Value]]:
    """Yield the rows of ``seals`` for rows that were inserted one after the other.

    Args:
        connection: Seals what it writes.
        table: Where they were inserted.
        columns: Their values as they are stored.
        numbers: What numbers them.
    """
    sealed, sealing = SEALED[table], connection.sealing
    if sealing is None:
        return
    given = {sealed.number: numbers, **columns}
    own = {name: given[name] for name in sealing.columns[table]}
    if sealed.known:
        known = [
            any(value is not None for value in row)
            for row in zip(*(own[name] for name in sealed.known), strict=True)
        ]
        numbers = [*compress(numbers, known)]
        own = {name: [*compress(column, known)] for name, column in own.items()}
    found = connection.row(LAST)
    link: bytes | None = None if found is None else found[0]
    for at in range(0, len(numbers), ROWS):
        some = {name: column[at : at + ROWS] for name, column in own.items()}
        for number, digest in zip(numbers[at : at + ROWS], digests_of(some), strict=True):
            seal = sealing.sealer.seal(link, table, number, digest)
            link = seal[len(digest) :]
            yield table, number, seal, sealing.sealer.key_id
        connection.breathe()
