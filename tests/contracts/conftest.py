"""The stores that the contract is checked against: another one is one line in ``STORES``."""

import atexit
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tests.pooler import Pooler, needs_pooler
from tests.postgres import needs_postgres, server

OpenStore = Callable[[], Store]
Place = Callable[[Path], str]


_server = partial(server, in_memory=True)


def in_sqlite(folder: Path) -> str:
    return f"sqlite:{folder / 'store.sqlite'}"


def in_postgres(_: Path) -> str:
    return _server().new_database()


@cache
def _pooler() -> Pooler:
    started = Pooler(_server())
    atexit.register(started.stop)
    return started


def behind_pgbouncer(_: Path) -> str:
    return _pooler().address(_server().new_database())


STORES = [
    pytest.param(in_sqlite, id="sqlite"),
    pytest.param(in_postgres, id="postgres", marks=needs_postgres),
    pytest.param(behind_pgbouncer, id="pgbouncer", marks=[needs_pooler, pytest.mark.slow]),
]


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture
def address(place: Place, tmp_path: Path) -> str:
    """The address of the test's store."""
    return place(tmp_path / "one")


@pytest.fixture
def opened(address: str) -> Iterator[OpenStore]:
    """Open the test's store, as often as it likes: each is a connection of its own."""
    with _closed_in_the_end(address) as open_store:
        yield open_store


@pytest.fixture
def elsewhere(place: Place, tmp_path: Path) -> Iterator[OpenStore]:
    """Open another store of the same kind."""
    with _closed_in_the_end(place(tmp_path / "two")) as open_store:
        yield open_store


@pytest.fixture
def store(opened: OpenStore) -> Store:
    return opened()


@pytest.fixture
def edit(address: str) -> Callable[[str], None]:
    """Run a statement past the store."""

    def run(statement: str) -> None:
        if address.startswith("sqlite:"):
            with closing(sqlite3.connect(address.removeprefix("sqlite:"))) as edited, edited:
                edited.execute(statement)
        else:
            import psycopg

            with psycopg.connect(address) as connection:
                connection.execute(statement.encode())

    return run


@contextmanager
def _closed_in_the_end(address: str) -> Iterator[OpenStore]:
    made: list[Store] = []

    def one_more() -> Store:
        made.append(open_at(address))
        return made[-1]

    yield one_more
    for each in made:
        each.close()
