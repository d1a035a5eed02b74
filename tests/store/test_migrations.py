"""From a file of any age to the newest schema, or a clear refusal."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread

import pytest
from sqlite_utils import Database

from tau_live.core.errors import StoreUnavailableError, StoreVersionError
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    database_of,
    migrate,
    migrations,
)
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import LIVE, begun


def _schema(path: Path) -> list[tuple[str]]:
    with sqlite3.connect(path) as connection:
        rows: list[tuple[str]] = connection.execute(
            "select sql from sqlite_master order by name"
        ).fetchall()
    connection.close()
    return rows


def test_the_schemas_number_is_that_of_its_migrations() -> None:
    database = Database(memory=True, execute_plugins=False)

    pending = migrations().pending(database)

    database.close()
    assert len(pending) == SCHEMA_VERSION


def test_a_new_file_has_the_newest_schema(path: Path, store: SqliteStore) -> None:
    assert store._connection.count("pragma user_version") == SCHEMA_VERSION
    assert len(migrations().applied(database_of(store._connection))) == SCHEMA_VERSION


def test_a_file_that_is_opened_again_is_not_changed(path: Path) -> None:
    first = SqliteStore.open(path)
    begun(first)
    first.close()
    before = path.read_bytes()

    second = SqliteStore.open(path)
    found = second.rollouts.rollout(LIVE)
    second.close()

    assert found.rollout_id == LIVE
    assert path.read_bytes() == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_newer_file_is_refused_with_what_to_do_and_left_as_it_is(
    path: Path, read_only: bool
) -> None:
    SqliteStore.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreVersionError, match=r"schema 99.*newer tau-live.*TAU_LIVE_RL_STORE"):
        SqliteStore.open(path, read_only=read_only)

    assert path.read_bytes() == before


KILLED = """
import os, signal, sys
from pathlib import Path
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.schema import migrate

connection = connect(Path(sys.argv[1]), busy_timeout_s=5.0, read_only=False)
connection.prepare(synchronous="normal", busy_timeout_s=5.0)
left = int(sys.argv[2])

def die(statement):
    global left
    left -= "create" in statement
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

connection.raw.set_trace_callback(die)
migrate(connection)
"""


@pytest.mark.slow
@pytest.mark.parametrize("statements", [1, 9, 25])
def test_a_migration_that_was_killed_is_made_whole_on_the_next_start(
    path: Path, tmp_path: Path, statements: int
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), str(statements)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    SqliteStore.open(tmp_path / "whole.sqlite").close()

    store = SqliteStore.open(path)
    begun(store)
    store.close()

    assert killed.returncode == -signal.SIGKILL
    assert _schema(path) == _schema(tmp_path / "whole.sqlite")


def test_of_many_who_open_a_new_file_at_once_all_can(path: Path) -> None:
    start = Barrier(12)
    opened: list[int] = []

    def open_and_write(number: int) -> None:
        start.wait(timeout=10)
        store = SqliteStore.open(path)
        begun(store, f"live-{number}")
        opened.append(number)
        store.close()

    threads = [Thread(target=open_and_write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    store = SqliteStore.open(path)
    assert sorted(opened) == list(range(12))
    assert len([row for row in store.export() if row["table"] == "rollouts"]) == 12
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []
    store.close()


def test_alerts_that_were_held_back_are_raised_after_the_migration_and_the_others_are_not(
    path: Path,
) -> None:
    connection = connect(path, busy_timeout_s=5.0, read_only=False)
    database = database_of(connection)
    migrations().apply(database, stop_before="m003_alerts_of_transitions")
    connection.change(
        """
        insert into alert_marks (kind, subject, mark, told)
        values ('a', '', '1', 1), ('b', '', '2', 0)
        """
    )
    connection.rows(f"pragma application_id = {APPLICATION_ID}")
    connection.rows("pragma user_version = 2")
    connection.close()

    store = SqliteStore.open(path)

    assert store.alerts.notes() == {("a", ""): "1"}
    store.close()


def test_a_disk_that_is_full_while_a_store_is_made_is_an_error_of_ours(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "s.sqlite", busy_timeout_s=5.0, read_only=False)) as small:
        small.rows("pragma max_page_count = 20")

        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            migrate(small)

        assert small.count("pragma user_version") == 0
