"""The turn that a host's thread gives the one that writes, where that has long waited."""

import threading
import time
from collections.abc import Callable

import pytest

from tau_live.core import events as ev
from tau_live.record.inbox import STARVED_S, YIELD_DEPTH, Inbox
from tests.record.inbox.conftest import tool

HOST_S = 0.5
SLOW_S = 0.005


@pytest.mark.timed
def test_a_writer_that_never_lets_go_does_not_stop_the_host_at_each_event(
    make: Callable[..., Inbox],
) -> None:
    done = threading.Event()

    def compute(_batch: list[ev.Event]) -> None:
        while not done.is_set():
            sum(range(1_000_000))  # some 10 ms in which Python cannot take the interpreter away

    inbox = make(write=compute)
    for number in range(2 * YIELD_DEPTH):
        inbox.put(tool(number))
    inbox.start()
    threading.Event().wait(2 * STARVED_S)  # from now on the one that writes has long waited
    slow = puts = 0
    end = time.perf_counter() + HOST_S

    while time.perf_counter() < end:
        before = time.perf_counter()
        inbox.put(tool(puts))
        slow += time.perf_counter() - before > SLOW_S
        puts += 1
    done.set()

    assert puts > 10 * slow
