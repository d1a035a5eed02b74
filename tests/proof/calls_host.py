"""A host under load that times every call: ``python -m tests.proof.calls_host STORE SECONDS``."""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import tau_live
from tau_live.core import events as ev
from tau_live.core.settings import Learner, Settings
from tau_live.core.sync import Throttle
from tau_live.learn import updater
from tau_live.runtime import build
from tau_live.runtime.runtime import Runtime
from tests.proof.collected import collected_s, watch

THREADS = 3
PAUSE_S = 0.004
PATIENCE_S = 60.0
"""How much longer it runs where no update has ended: on a busy machine one may take seconds."""
BURST = 40
OPTIONS = tuple(f"option{n}" for n in range(8))
LONG = "x" * 100_000
R = TypeVar("R")


class Timed(Throttle):
    """A throttle that measures its thread's work between pauses, the garbage collector apart."""

    __slots__ = ("_collected", "_since", "stretches")
    every: list["Timed"] = []  # noqa: RUF012  # of the process

    def __init__(self, *, hurried: Callable[[], bool] = lambda: False) -> None:
        super().__init__(hurried=hurried)
        self.stretches: list[float] = []
        self._since = self._collected = float("nan")
        self.every.append(self)

    def __call__(self) -> None:
        before = self._until
        worked = time.thread_time() - self._since - collected_s() + self._collected
        super().__call__()
        if self._until != before:
            self.stretches.append(worked)
            self._since, self._collected = time.thread_time(), collected_s()


class Calls:
    """The duration of each call, in ms: of the thread's processor time, and by the clock.

    The time of Python's garbage collector is counted apart (see ``collected``).
    """

    def __init__(self) -> None:
        self.processor: defaultdict[str, list[float]] = defaultdict(list)
        self.clock: defaultdict[str, list[float]] = defaultdict(list)
        self.collected: list[float] = []
        self.strange = 0

    def timed(self, name: str, call: Callable[[], R]) -> R:
        """Make a call."""
        before = collected_s()
        began, worked = time.perf_counter(), time.thread_time()
        result = call()
        took = time.thread_time() - worked
        collected = collected_s() - before
        self.processor[name].append((took - collected) * 1e3)
        self.collected.append(collected * 1e3)
        self.clock[name].append((time.perf_counter() - began) * 1e3)
        return result


def main() -> None:
    """Print the durations of the calls, and of our threads' work between two pauses."""
    os.environ["TAU_LIVE_RL"] = "1"
    watch()
    vars(build)["Throttle"] = vars(updater)["Throttle"] = Timed  # which counts besides
    runtime = tau_live.attach(Settings(store=Path(sys.argv[1]), learner=Learner.THREAD))
    if runtime is None:
        raise RuntimeError("tau-live did not start")
    for throttle in Timed.every:
        throttle.stretches.clear()  # the promise begins when attach has returned
    stop = threading.Event()
    hosts = [threading.Thread(target=_busy, args=(n, stop)) for n in range(THREADS)]
    for host in hosts:
        host.start()
    calls = Calls()
    until = time.monotonic() + float(sys.argv[2])
    at_most = until + PATIENCE_S
    number = 0
    while (now := time.monotonic()) < until or (now < at_most and not _versions()):
        _public(calls, number)
        _adapter(calls, runtime, number)
        number += 1
        time.sleep(PAUSE_S)
    stop.set()
    for host in hosts:
        host.join()
    worked = [took * 1e3 for throttle in Timed.every for took in throttle.stretches[1:]]
    versions = _versions()
    tau_live.flush(60.0)
    tau_live.detach()
    data = {"processor": calls.processor, "clock": calls.clock, "strange": calls.strange,
            "collected": max(calls.collected), "worked": worked, "versions": versions}  # fmt: skip
    print(json.dumps(data))


def _versions() -> int:
    versions = cast("dict[str, int]", tau_live.snapshot()["policies_in_service"])
    return max(versions.values(), default=0)


def _busy(number: int, stop: threading.Event) -> None:
    """Run agents as fast as one core lets them: so there is always an update under way."""
    while not stop.is_set():
        with tau_live.run("busy") as run:
            chosen = run.decide("model", OPTIONS, context={"n": number % 7 / 7}, default=OPTIONS[0])
            run.reward(float(chosen.option == OPTIONS[number % 3]))
        number += THREADS
        time.sleep(PAUSE_S)


def _public(calls: Calls, number: int) -> None:
    calls.timed("attach", tau_live.attach)
    run = tau_live.run("agent", metadata={"text": LONG, "number": number})
    rollout = calls.timed("run begins", run.__enter__)
    context = {f"feature{n}": (number * n) % 11 / 11 for n in range(64)}
    chosen = calls.timed(
        "decide", lambda: tau_live.decide("model", OPTIONS, context=context, default=OPTIONS[1])
    )
    calls.strange += chosen.option not in OPTIONS
    calls.timed("current", tau_live.current)
    calls.timed("reward", lambda: tau_live.reward(number % 5 / 5, comment=LONG))
    calls.timed("run ends", lambda: run.__exit__(None, None, None))
    calls.timed("late reward", lambda: tau_live.reward(0.5, run=rollout, name="late"))
    calls.timed("snapshot", tau_live.snapshot)


def _adapter(calls: Calls, runtime: Runtime, number: int) -> None:
    handle = calls.timed(
        "adapter: run begins",
        lambda: runtime.begin_run("x", key=f"{number}", session=None, metadata=None, parent=None,
                                  host="a-host"),
    )  # fmt: skip
    for place in range(BURST):
        fields = {"tool": "search", "span_id": f"{place}", "duration_ms": 1.5}
        calls.timed("adapter: step", lambda fields=fields: runtime.tell(handle, ev.ToolEnd, fields))  # type: ignore[misc]  # of this turn
    message = {"role": "user", "content": ev.Content(text=LONG)}
    calls.timed("adapter: message", lambda: runtime.tell(handle, ev.Message, message))
    calls.timed("adapter: run ends", lambda: runtime.end_run(handle, None))


if __name__ == "__main__":
    main()
