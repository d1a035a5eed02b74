"""The learner's thread, at the end of the process."""

import threading
import time

import pytest

from tau_live.learning.learner import Learned, Learner
from tau_live.learning.updater import Updater
from tau_live.store.roles import Store

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

    def learned(_store: Store, _learned: Learned) -> None:
        raise AssertionError("there is no update")

    return Updater(
        make=make,
        may=lambda: True,
        learned=learned,
        failed=never,
        weigh=never,
        idle=never,
        by_itself=True,
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
