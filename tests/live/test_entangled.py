"""Whoever calls tau-live from wherever comes back: a logger, a signal, another thread, a fork."""

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.runtime import process as process_runtime
from tests.live.running import done, opened, process, rollouts

LONG_S = 30.0


class Calls(logging.Handler):
    """Calls tau-live for each line, and waits for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        tau_live.decide("point", ["a", "b"], default="a")
        tau_live.snapshot()
        self.threads.append(threading.current_thread().name)


@pytest.fixture
def calls() -> Iterator[Calls]:
    handler = Calls()
    logging.getLogger("tau_live").addHandler(handler)
    yield handler
    logging.getLogger("tau_live").removeHandler(handler)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    yield
    tau_live.detach()


@pytest.mark.timed
@pytest.mark.usefixtures("on")
def test_a_log_handler_that_calls_us_does_not_delay_the_start(tmp_path: Path, calls: Calls) -> None:
    folder = tmp_path / "a folder, so that the writer's thread has something to say"
    folder.mkdir()

    began = time.monotonic()
    tau_live.attach(Settings(store=folder))
    took = time.monotonic() - began

    assert "tau-live-writer" in calls.threads
    assert took < 3.0  # not the 5 s that a start waits for its writer


@pytest.mark.usefixtures("on")
def test_a_thread_waits_only_so_long_for_another_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_runtime, "WAIT_S", 0.05)
    monkeypatch.setenv("TAU_LIVE_RL_STORE", str(tmp_path / "store.sqlite"))
    chosen: list[object] = []

    def decides() -> None:
        chosen.append(tau_live.decide("point", ["a", "b"], default="b").option)

    with process_runtime.State.lock:  # as if it were starting, and waiting for that thread
        thread = threading.Thread(target=decides)
        thread.start()
        thread.join(LONG_S)

    assert chosen == ["b"]


BUSY_FORK = """
import os, sys, threading, tau_live
from tau_live.store.sqlite import store as stores
stores.STILL_S = 0.1
assert tau_live.attach() is not None
with tau_live.run("parent"):
    pass
assert tau_live.flush(10)
store = next(iter(sys.modules["tau_live.runtime.process"].State.forks._stores.values()))()
began, over = threading.Event(), threading.Event()


def works():
    with store.begin():
        began.set()
        over.wait()


thread = threading.Thread(target=works)
thread.start()
began.wait()
pid = os.fork()
if pid == 0:
    assert tau_live.attach() is None
    assert tau_live.decide("point", ["a", "b"], default="b").option == "b"
    assert not tau_live.flush(1)  # or it would acknowledge what is not kept
    os._exit(0)
code = os.waitpid(pid, 0)[1]
over.set()
thread.join()
with tau_live.run("goes on"):
    pass
assert tau_live.flush(10)
assert code == 0, code
"""


@pytest.mark.slow
def test_a_child_that_was_forked_in_the_middle_of_a_transaction_leaves_the_store_alone(
    path: Path,
) -> None:
    with process(BUSY_FORK, path) as forking:
        done(forking)

    assert [row.name for row in rollouts(path)] == ["parent", "goes on"]


SIGNALS = """
import signal, sys, tau_live
assert tau_live.attach() is not None
seen, number = 0, 0


def handler(*_):
    global seen
    seen += 1
    with tau_live.run("signal", key=seen) as run:
        run.decide("point", ["a", "b"], context={"n": seen})
        run.reward(1.0)
        run.reward(float("nan"))
    signal.setitimer(signal.ITIMER_REAL, 0.0005)


signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
while seen < 150:
    number += 1
    with tau_live.run("main", key=number) as run:
        run.decide("point", ["a", "b"], context={"n": number})
        run.reward(float("nan"))
signal.signal(signal.SIGALRM, signal.SIG_IGN)
assert tau_live.snapshot()["refused"]["rewards_refused"] == number + seen
assert tau_live.flush(30)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["100000", "40"])
def test_a_signal_may_decide_in_the_middle_of_a_decision(path: Path, limit: str) -> None:
    with process(
        SIGNALS,
        path,
        TAU_LIVE_RL_QUEUE_LIMIT=limit,
        TAU_LIVE_RL_DECIDE_DEADLINE_MS="60000",
        TAU_LIVE_RL_LEARNER="flush",
    ) as signalled:
        done(signalled)

    with opened(path) as store:
        assert store.gate.load().state == "pass"


def test_what_would_not_be_stored_is_not_chosen(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    runtime = tau_live.attach(Settings(store=path))
    assert runtime is not None
    with tau_live.run("over") as run:
        runtime.close(LONG_S)

        choice = run.decide("point", ["a", "b"], default="b")

    assert (choice.option, choice.source) == ("b", "default")
    tau_live.detach()
