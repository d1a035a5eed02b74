"""A fork finds every store still, or its child leaves them alone."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.store import forks as forking
from tau_live.store.forks import Forks
from tau_live.store.sqlite.store import SqliteStore

LONG_S = 30.0
WRITER = "test-writer"


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Forks:
    monkeypatch.setattr(forking, "STILL_S", 0.05)
    return Forks()


@pytest.fixture
def store(forks: Forks, path: Path) -> Iterator[SqliteStore]:
    with closing(forks.open(lambda: SqliteStore.open(path))) as opened:
        yield opened
        for thread in threading.enumerate():
            if thread.name == WRITER:
                thread.join()


def writes(store: SqliteStore) -> bool:
    """Say whether another thread can write at once."""
    done = threading.Event()

    def write() -> None:
        store.counters.add({"written": 1})
        done.set()

    threading.Thread(target=write, name=WRITER, daemon=True).start()
    return done.wait(0.2)


def test_nothing_is_written_while_a_fork_is_made_and_all_goes_on_after_it(
    forks: Forks, store: SqliteStore
) -> None:
    forks.before()
    during = writes(store)

    forks.in_parent()

    assert (during, writes(store)) == (False, True)


def test_the_child_of_a_still_parent_is_fit(forks: Forks, store: SqliteStore) -> None:
    forks.before()

    assert forks.in_child()


def test_a_transaction_of_the_forking_thread_itself_makes_its_child_unfit(
    forks: Forks, store: SqliteStore
) -> None:
    with store.begin():
        forks.before()
        fit = forks.in_child()

    assert not fit


def test_a_store_that_is_being_opened_makes_the_child_unfit(forks: Forks, path: Path) -> None:
    opening, over = threading.Event(), threading.Event()

    def open_() -> SqliteStore:
        opening.set()
        over.wait(LONG_S)
        return SqliteStore.open(path)

    thread = threading.Thread(target=lambda: forks.open(open_).close())
    thread.start()
    assert opening.wait(LONG_S)
    forks.before()
    fit = forks.in_child()
    over.set()
    thread.join(LONG_S)

    assert not fit


def test_threads_that_fork_at_once_let_go_of_what_each_of_them_held(
    forks: Forks, store: SqliteStore
) -> None:
    together = threading.Barrier(2)

    def fork() -> None:
        together.wait(LONG_S)
        for _ in range(50):
            forks.before()
            forks.in_parent()

    threads = [threading.Thread(target=fork) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)

    assert writes(store)


def test_a_store_that_nobody_has_any_more_is_not_waited_for(forks: Forks, path: Path) -> None:
    forks.open(lambda: SqliteStore.open(path)).close()

    forks.before()

    assert forks.in_child()
