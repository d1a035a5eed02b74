"""The learner's thread under steady load, and at the end of the process."""

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tau_live.core.settings import Settings
from tau_live.learn.learner import Learner, UpdateResult
from tau_live.learn.updater import Updater
from tau_live.store.roles import Store
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import until
from tests.live.test_poison import add, worth

LONG_S = 30.0


@pytest.fixture
def began() -> threading.Event:
    return threading.Event()


@pytest.fixture
def busy(began: threading.Event) -> Updater:
    """One whose update takes for ever, in Python."""

    def make() -> tuple[Store, Learner]:
        began.set()
        while True:
            time.monotonic()

    def never(*_: object) -> None:
        raise AssertionError("there is no update")

    def learned(_store: Store, _learned: UpdateResult) -> None:
        raise AssertionError("there is no update")

    return Updater(
        make=make,
        may_run=lambda: True,
        on_update=learned,
        on_failure=never,
        weigh=never,
        on_idle=never,
        automatic=True,
    )


def test_an_update_that_outlasts_the_process_is_broken_off(
    busy: Updater, began: threading.Event
) -> None:
    busy.start()
    busy.wake()
    assert began.wait(LONG_S)

    kept = busy.close(0.01)
    ended = busy.close(0.01, break_off=True)

    assert (kept, ended) == (False, True)


def test_nothing_that_it_calls_ends_its_thread() -> None:
    failures: list[str] = []

    def make() -> tuple[Store, Learner]:
        raise ValueError("make")

    def failed(error: Exception) -> None:
        failures.append(str(error))
        raise error

    def never(*_: object) -> None:
        raise AssertionError("there is no update")

    updater = Updater(
        make=make,
        may_run=lambda: True,
        on_update=never,
        on_failure=failed,
        weigh=never,
        on_idle=never,
        automatic=False,
    )
    updater.start()

    done = [updater.run_due(LONG_S) for _ in range(3)]

    assert (done, failures) == ([False] * 3, ["make"] * 3)
    assert updater.close(LONG_S)


class Load:
    """A learner's thread that never catches up: each update leaves the next one due."""

    def __init__(self, path: Path) -> None:
        self._settings = Settings(store=path)
        self._numbers = count()
        self.errors: list[Exception] = []
        self.updates, self.weighed = 0, 0
        self.busy = threading.Event()
        self.updater = Updater(
            make=self._make,
            may_run=lambda: True,
            on_update=self._learned,
            on_failure=self.errors.append,
            weigh=self._weigh,
            on_idle=lambda _: None,
            automatic=True,
        )

    def _make(self) -> tuple[Store, Learner]:
        store = SqliteStore.open(self._settings.store)
        self._grow(store)
        return store, Learner(store, self._settings, holder="test")

    def _grow(self, store: Store) -> None:
        for _ in range(self._settings.update_interval):
            number = next(self._numbers)
            add(store, number, total=worth(number))

    def _learned(self, store: Store, _learned: UpdateResult) -> None:
        self._grow(store)
        self.updates += 1
        if self.updates > 2:
            self.busy.set()

    def _weigh(self, _store: Store) -> None:
        self.weighed += 1


@pytest.fixture
def load(path: Path) -> Iterator[Load]:
    found = Load(path)
    found.updater.start()
    found.updater.wake()
    yield found
    assert found.updater.close(LONG_S)
    assert found.errors == []


@pytest.mark.slow
def test_updates_that_are_due_are_waited_for_though_more_become_due(load: Load) -> None:
    assert load.busy.wait(LONG_S)

    done = [load.updater.run_due(LONG_S) for _ in range(3)]

    assert done == [True, True, True]


@pytest.mark.slow
def test_trials_are_weighed_though_an_update_is_always_due(load: Load) -> None:
    until(lambda: load.weighed > 1)

    assert load.updates > 1
