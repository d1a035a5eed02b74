"""Counts: exact whoever adds at the same time, and whoever comes in between."""

import signal
import threading
import time
from types import FrameType

import pytest

from tau_live.core import sync
from tau_live.core.sync import Tally

THREADS, ROUNDS, LONG_S = 8, 5_000, 30.0

AGAIN_S = 0.1
"""After so long the alarm comes again: one that comes just as a thread takes the interpreter may be
seen only with the next (``COMPUTE_EVAL_BREAKER`` in CPython's ``ceval_gil``, up to 3.12)."""


def test_threads_that_count_at_once_lose_nothing() -> None:
    counted = Tally()
    together = threading.Barrier(THREADS)

    def count() -> None:
        together.wait(LONG_S)
        for _ in range(ROUNDS):
            counted.add("a")

    threads = [threading.Thread(target=count) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)

    assert counted.counts() == {"a": THREADS * ROUNDS}


def test_a_signal_may_count_and_ask_in_the_middle_of_a_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sync, "_WAITING", 3)  # so that most signals come while it sums up
    counted = Tally()
    signals: list[int] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        signals.append(1)
        counted.add("a")
        assert counted.counts().get("a", 0) <= added[0] + len(signals)
        if len(signals) < 200:  # none may be on its way when the handler is put back
            signal.setitimer(signal.ITIMER_REAL, 1e-5, AGAIN_S)

    added = [0]
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-5, AGAIN_S)
    until = time.monotonic() + LONG_S
    try:
        while len(signals) < 200 and time.monotonic() < until:
            added[0] += 1
            counted.add("a")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)

    assert len(signals) >= 200
    assert counted.counts() == {"a": added[0] + len(signals)}
