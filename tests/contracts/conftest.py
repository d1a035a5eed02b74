"""The stores that the contract is checked against: another one is one line in ``STORES``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore

OpenStore = Callable[[], Store]


def in_sqlite(folder: Path) -> OpenStore:
    return lambda: SqliteStore.open(folder / "store.sqlite")


STORES = [pytest.param(in_sqlite, id="sqlite")]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Open the test's store, as often as it likes: each is a connection of its own."""
    made: list[Store] = []
    open_store: OpenStore = request.param(tmp_path)

    def one_more() -> Store:
        made.append(open_store())
        return made[-1]

    yield one_more
    for store in made:
        store.close()


@pytest.fixture
def store(opened: OpenStore) -> Store:
    return opened()
