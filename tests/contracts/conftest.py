"""The stores that the contract is checked against: another one is one line in ``STORES``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tau_live.store.opening import open_at
from tau_live.store.roles import Store

OpenStore = Callable[[], Store]
MakeStore = Callable[[Path], OpenStore]


def in_sqlite(folder: Path) -> OpenStore:
    return lambda: open_at(f"sqlite:{folder / 'store.sqlite'}")


STORES = [pytest.param(in_sqlite, id="sqlite")]


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest) -> MakeStore:
    found: MakeStore = request.param
    return found


@pytest.fixture
def opened(make: MakeStore, tmp_path: Path) -> Iterator[OpenStore]:
    """Open the test's store, as often as it likes: each is a connection of its own."""
    with _closed_in_the_end(make(tmp_path / "one")) as open_store:
        yield open_store


@pytest.fixture
def elsewhere(make: MakeStore, tmp_path: Path) -> Iterator[OpenStore]:
    """Open another store of the same kind."""
    with _closed_in_the_end(make(tmp_path / "two")) as open_store:
        yield open_store


@pytest.fixture
def store(opened: OpenStore) -> Store:
    return opened()


@contextmanager
def _closed_in_the_end(open_store: OpenStore) -> Iterator[OpenStore]:
    made: list[Store] = []

    def one_more() -> Store:
        made.append(open_store())
        return made[-1]

    yield one_more
    for each in made:
        each.close()
