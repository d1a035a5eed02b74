"""A thread of ours that computes lets the host's have the interpreter."""

import sys
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest

from tau_live.core.sync import Throttle

NEVER_S = 10.0
SOON_S = 5.0
"""Half of what a single turn would take, for busy machines."""


@pytest.fixture
def no_switching() -> Iterator[None]:
    """Let a thread keep the interpreter until it gives it up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(NEVER_S)
    yield
    sys.setswitchinterval(before)


@pytest.mark.timed
@pytest.mark.usefixtures("no_switching")
def test_others_go_on_while_a_thread_computes() -> None:
    begun, done = threading.Event(), threading.Event()
    pause = Throttle()
    turns = count()

    def compute() -> None:
        begun.set()
        while not done.is_set():
            next(turns)
            pause()

    began = time.monotonic()
    thread = threading.Thread(target=compute)
    thread.start()
    begun.wait()
    for _ in range(3):
        time.sleep(0)  # gives the interpreter up, and wants it back
    took = time.monotonic() - began
    done.set()
    thread.join()

    assert took < SOON_S
    assert next(turns) > 0


@pytest.mark.timed
def test_it_costs_next_to_nothing_until_it_is_time() -> None:
    pause = Throttle()
    pause()

    began = time.thread_time()
    for _ in range(10_000):
        pause()

    assert time.thread_time() - began < 0.25


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a thread's pauses")
def test_it_pauses_unless_there_is_a_hurry() -> None:
    import resource

    def pauses(*, hurried: bool) -> int:
        """Count in 20 tries; the machine may take the processor away just before, or besides."""
        count = 0
        for _ in range(20):
            pause = Throttle(hurried=lambda: hurried)
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            pause()
            count += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > before
        return count

    assert pauses(hurried=False) >= 15
    assert pauses(hurried=True) <= 5
