"""Many rows by few statements are the rows that a statement for each would store."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.core.records import AttemptStatus
from tau_live.store.sql.connection import Value
from tau_live.store.sqlite.blocks import MANY
from tau_live.store.sqlite.connection import SqliteConnection

TABLE = "create table things (number integer, real real, text text, blob blob) strict"
INSERT = "insert into things (number, real, text, blob) values (?, ?, ?, ?)"

numbers = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
reals = st.none() | st.integers(-9, 9) | st.floats(allow_nan=False)
texts = st.none() | st.sampled_from(AttemptStatus) | st.text(st.characters(codec="utf-8"))
ROW = st.tuples(numbers, reals, texts, st.none() | st.binary(max_size=2))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteConnection]:
    path = tmp_path_factory.mktemp("rows") / "things.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("pragma synchronous = off")
        raw.execute(TABLE)
        yield SqliteConnection(raw, path, busy_timeout_s=5.0)


def stored(connection: SqliteConnection) -> list[tuple[object, ...]]:
    rows = connection.rows("select *, typeof(number), typeof(blob) from things order by rowid")
    connection.change("delete from things")
    return [tuple(row) for row in rows]


@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(ROW, max_size=45), st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)))
def test_many_rows_are_stored_as_each_alone_would_be(
    connection: SqliteConnection, rows: list[Sequence[Value]], nulls: set[int], alike: set[int]
) -> None:
    if alike:
        rows = [
            [rows[0][n] if n in alike else value for n, value in enumerate(row)]
            for row in rows * (1 + MANY // len(rows) if rows else 1)
        ]
    rows = [[None if n in nulls else value for n, value in enumerate(row)] for row in rows]
    for row in rows:
        connection.change(INSERT, row)
    expected = stored(connection)

    inserted = connection.insert(INSERT, rows)

    assert (inserted, stored(connection)) == (len(rows), expected)
