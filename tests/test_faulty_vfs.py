"""The disk that fails fails as it was told to, and only then."""

import sqlite3
import time
from pathlib import Path

import pytest

from tests.faulty_vfs import CALLS, FULL, Plan, faulty_disk


def filled(path: Path, rows: int = 1) -> list[tuple[int]]:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("pragma journal_mode = wal")
        database.execute("create table if not exists t (x)")
        database.execute("begin")
        for row in range(rows):
            database.execute("insert into t values (?)", (row,))
        database.execute("commit")
        return database.execute("select count(*) from t").fetchall()
    finally:
        database.close()


def test_every_kind_of_call_passes_through_it(path: Path) -> None:
    with faulty_disk() as disk:
        found = filled(path)

        assert found == [(1,)]
        assert {"open", "read", "write", "sync", "size", "lock", "shm_map"} <= set(disk.counts)
        assert set(disk.counts) <= set(CALLS)
        assert disk.failed == 0


@pytest.mark.parametrize("lasting", [False, True])
def test_the_nth_call_fails_once_or_from_then_on(path: Path, lasting: bool) -> None:
    with faulty_disk() as disk:
        filled(path)
        disk.fail(Plan(at=2, lasting=lasting, calls=("write",), error=FULL))
        with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
            filled(path)
        failed = disk.failed
        disk.heal()

        assert filled(path) == [(2,)]
        assert failed == 1 or lasting


def test_what_is_not_inside_is_not_on_it(path: Path) -> None:
    with faulty_disk() as disk:
        disk.fail(Plan(at=1, lasting=True))
    before = disk.counts.total()

    assert filled(path) == [(1,)]
    assert disk.counts.total() == before


def test_a_torn_write_leaves_half_of_it(path: Path) -> None:
    with faulty_disk() as disk:
        filled(path)
        size = path.stat().st_size
        disk.fail(Plan(at=3, calls=("write",), torn=True))
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            filled(path, rows=2_000)

    assert path.stat().st_size >= size
    assert filled(path) == [(2,)]


def test_synchronising_takes_longer_where_it_should(path: Path) -> None:
    with faulty_disk() as disk:
        disk.slow_s = 0.02
        began = time.monotonic()
        filled(path)

        assert time.monotonic() - began >= 0.02 * disk.counts["sync"] > 0
