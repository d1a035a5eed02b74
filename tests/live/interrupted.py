"""A host whose own time limit ends calls of ours: its signal's handler raises, wherever they are.

Run as a process of its own, in whose main thread signals are handled. It prints what came of them.

    TAU_LIVE_RL=1 TAU_LIVE_RL_STORE=store.sqlite python -m tests.live.interrupted decide 2000
"""

import ctypes
import functools
import gc
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision

POINT = "model"
DECISIONS = (
    DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."}),
    DeclaredDecision(point="tool_gate", options={"no": "Not now."}),
)
OUR_PACKAGES = {"msgspec", "numpy", "pluggy", "sqlite_utils", "structlog", "wrapt"}
OPTIONS: dict[str, dict[str, object]] = {
    "small": {"cost": 1.0, "kind": "fast"},
    "large": {"cost": 9.0, "kind": "good"},
}


class LimitError(Exception):
    """A host's own time limit."""


class Host:
    """Interrupts what is called, and sees whether its exception comes out of it.

    Args:
        call: What is interrupted.
        seed: Determines when, and what is raised.
        ours: Whether only tau-live itself is interrupted, in a host's own call.
    """

    kinds = (LimitError, TimeoutError, RuntimeError, ValueError)

    def __init__(self, call: Callable[[], object], seed: int, *, ours: bool = False) -> None:
        self._call = call
        self._ours = ours
        self._rng = random.Random(seed)
        self._longest_s = 1e-3
        self._inside = False
        self.fired = self.swallowed = self._begun = self._limited = 0
        self.places: Counter[str] = Counter()
        self._error: Exception | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise, where the call is being made; a handler as most hosts have it."""
        if self._inside and frame is not None and (not self._ours or _is_ours(frame)):
            self._raise(f"{frame.f_code.co_filename}:{frame.f_lineno} {number}")

    def _raise(self, place: str) -> None:
        self._inside = False
        self.fired += 1
        self._place = place
        self._error = self._rng.choice(self.kinds)("the host's time is over")
        raise self._error

    def _raise_at(self, number: int, at: FrameType, place: str) -> None:
        """Do as ``handle`` does, on top of the frame that looks."""
        assert number == signal.SIGUSR1 and at is not None
        self._raise(place)

    def step(self, before: Callable[[], object], after: Callable[[], object]) -> None:
        """Make one call, which may be interrupted."""
        self._error = None
        try:
            try:
                self._inside = True
                before()
                self._call()
                self._inside = False
            finally:
                after()
                self._inside = False
        except Exception as error:
            if not _holds(error, self._error):
                raise
        else:
            raised: Exception | None = vars(self)["_error"]
            if raised is not None and not (self._ours and _has_left(raised)):
                self.swallowed += 1
                self.places[self._place] += 1
        self._error = None  # what it holds is freed now, and not in the midst of the next call

    def by_timer(self, rounds: int) -> None:
        """Interrupt by an alarm after a while of chance, as often as that."""
        for name in ("handle", "without_arguments", "by_lambda"):
            signal.signal(signal.SIGALRM, self._handler(name))
            upto = rounds if name == "by_lambda" else self.fired + (rounds - self.fired) // 3
            while self.fired < upto:
                began, fired = time.perf_counter(), self.fired
                delay = self._rng.uniform(1e-6, self._longest_s)
                self.step(
                    functools.partial(signal.setitimer, signal.ITIMER_REAL, delay),
                    lambda: signal.setitimer(signal.ITIMER_REAL, 0.0),
                )
                if self.fired > fired:
                    gc.collect()  # what an exception holds; or it were freed in the next call
                else:
                    self._longest_s = 0.9 * self._longest_s + 0.1 * 1.1 * (
                        time.perf_counter() - began
                    )

    def _handler(self, name: str) -> Any:
        if name == "without_arguments":

            def overwritten(number: object, frame: object) -> None:
                del number, frame
                if self._inside and (not self._ours or _is_ours(sys._getframe())):
                    self._raise("unknown")

            return overwritten
        if name == "by_lambda":
            return functools.partial(lambda own, *given: own.handle(*given), self)
        return self.handle

    def everywhere(self, step: int = 1) -> None:
        """Interrupt the call at each place where Python may run a handler, one after the other."""
        nth = 1
        while self._at(nth):
            nth += step
            gc.collect()  # what an exception holds; or it were freed in the midst of the next call

    def _at(self, nth: int) -> bool:
        left = nth

        def look(frame: FrameType, event: str, _: object) -> None:
            nonlocal left
            if event not in {"call", "c_return"} or not self._inside:
                return
            if frame.f_code.co_filename == __file__ or (self._ours and not _is_ours(frame)):
                return
            left -= 1
            if left == 0:
                sys.setprofile(None)
                self._raise_at(
                    signal.SIGUSR1,
                    sys._getframe(),
                    f"{frame.f_code.co_filename}:{frame.f_lineno} {event}",
                )

        self.step(lambda: sys.setprofile(look), lambda: sys.setprofile(None))
        return left <= 0

    def by_thread(self, rounds: int) -> None:
        """Set the exception from another thread, as some time limits do."""
        # No locks between the two: an exception within one would leave it taken.
        sys.setswitchinterval(1e-5)  # or a call is nearly always over before the other is let run
        thread = functools.partial(self._limit, rounds, ctypes.c_ulong(threading.get_ident()))
        threading.Thread(target=thread, daemon=True).start()
        for _ in range(rounds):
            try:
                self._inside = True
                self._begun += 1
                self._call()
                self._settle()
            except LimitError:
                self.fired += 1
            self._settle()

    def _limit(self, rounds: int, thread: ctypes.c_ulong) -> None:
        while self._limited < rounds:
            while self._begun == self._limited:
                time.sleep(0)
            end = time.perf_counter() + self._rng.uniform(0, self._longest_s)
            while time.perf_counter() < end:
                pass
            if self._inside:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(LimitError))
            self._limited += 1

    def _settle(self) -> None:
        """Wait for an exception that may still come."""
        self._inside = False
        while self._limited < self._begun:
            time.sleep(0)


def _is_ours(frame: FrameType | None) -> bool:
    """Say whether tau-live, or what it calls for itself, runs in a frame.

    The host's own step is not, though a callback of ours awaits it: a lock or a future of an event
    loop that is interrupted half way stays so, with us or without, and the host waits for ever.
    """
    while frame is not None:
        path = frame.f_code.co_filename
        if f"{os.sep}tau_live" in path:
            return True
        if "site-packages" in path and not OUR_PACKAGES.intersection(Path(path).parts):
            return False
        frame = frame.f_back
    return False


def _has_left(error: Exception) -> bool:
    """Say whether an exception came out of us, whatever its host, or who plays it, did then."""
    at = error.__traceback__
    return at is not None and f"{os.sep}tau_live" not in at.tb_frame.f_code.co_filename


def _holds(error: BaseException | None, sought: Exception | None) -> bool:
    """Say whether an exception is another, or was raised because of it."""
    while error is not None and error is not sought:
        error = error.__cause__ or error.__context__
    return error is sought


def decide() -> None:
    tau_live.decide(POINT, OPTIONS, context={"words": 3.0, "kind": "text"}, default="small")


def decide_inside() -> None:
    run = tau_live.current()
    assert run is not None
    run.decide(POINT, ["a", "b", "c"], context={"x": object(), "t": "1 2"}, allowed=["a", "b"])


def reward() -> None:
    tau_live.reward(1, run="live-6ba7b810-9dad-11d1-80b4-00c04fd430c8", comment="fine")


def run() -> None:
    with tau_live.run("agent", key=object(), session="s", metadata={"n": [1, {"x": None}]}) as own:
        own.reward(0.5)


@tau_live.run("stepped")
def stepped() -> Iterator[int]:
    yield 1
    yield 2


def generator() -> None:
    for _ in stepped():
        pass


def flush() -> None:
    tau_live.flush(1.0)


def snapshot() -> None:
    tau_live.snapshot()


def current() -> None:
    tau_live.current()


def attach() -> None:
    tau_live.attach()


def life() -> None:
    tau_live.attach()
    tau_live.detach()


class Plugin:
    """A plugin that takes its time."""

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer:
        """Answer after a while."""
        for _ in range(300):
            sum(map(len, request.options))
        return Answer(option="large", probability=0.5)


def plugin() -> None:
    """Let a plugin decide."""
    decide()


def _spans_of_nobody() -> Callable[[], None]:
    """Return what makes spans that no provider takes, which tau-live looks at all the same."""
    from opentelemetry import trace

    from tau_live.boot.boot import boot

    boot("auto")
    tracer = trace.get_tracer("agents")
    return lambda: tracer.start_span("invoke_agent planner").end()


def _played(host: str) -> Callable[[], None]:
    def play() -> None:
        module.play(Scenario.TOOL_CALL)

    if host == "opentelemetry":
        return _spans_of_nobody()

    from tau_live.testing.expected import Scenario

    module = import_module(f"tests.hooks.conformance.{host}_play")
    import_module(f"tau_live_hooks.{host}").ADAPTER.attach(tau_live.runtime.api.in_force)
    play()
    return play


MODULES = {
    "langchain": "langchain",
    "llm": "llm",
    "openai_agents": "agents",
    "opentelemetry": "opentelemetry",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
}
"""The hosts whose adapters are interrupted, and what each is imported as."""

CALLS: dict[str, Callable[[], None]] = {
    call.__name__: call
    for call in (
        decide, decide_inside, reward, run, generator, flush, snapshot, current, attach, life,
        plugin,
    )
}  # fmt: skip


@contextmanager
def around(name: str) -> Iterator[None]:
    if name != "decide_inside":
        yield
        return
    with tau_live.run("around"):
        yield


def state() -> dict[str, object]:
    """Return what is left of it all: nothing may be."""
    found: dict[str, object] = {"current": str(tau_live.current())}
    before = threading.Thread(
        target=lambda: [call() for call in CALLS.values() if call not in (decide_inside, life)],
        daemon=True,
    )
    before.start()
    before.join(30.0)
    found["hangs"] = before.is_alive()
    found["flushed"] = tau_live.flush(30.0)
    runtime = tau_live.attach()
    assert runtime is not None
    snapshot_: Any = tau_live.snapshot()
    found["gate"] = snapshot_["gate"]["state"]
    found["streaks"] = sum(snapshot_["gate"]["streaks"].values())
    found["failures"] = [repr(one) for one in runtime._guard.counts()]
    found["threads"] = sorted(one.name for one in threading.enumerate() if "tau-live" in one.name)
    found["refused"] = snapshot_["refused"]
    tau_live.detach(30.0)
    return found


if __name__ == "__main__":
    name, how, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if name != "life":
        tau_live.attach(Settings(act=True, decisions=DECISIONS) if name in MODULES else None)
        CALLS["decide"]()
    if name == "plugin":
        runtime = tau_live.attach()
        assert runtime is not None
        runtime.plugins.register(Plugin(), name="slow")
    call = _played(name) if name in MODULES else CALLS[name]
    host = Host(call, seed=rounds, ours=name in MODULES)
    gc.freeze()  # collecting is for what an exception holds, thousands of times
    with around(name):
        if how == "everywhere":
            host.everywhere(rounds)
        elif how == "thread":
            host.by_thread(rounds)
        else:
            host.by_timer(rounds)
        if name == "decide_inside":
            assert tau_live.current() is not None
    told = {"fired": host.fired, "swallowed": host.swallowed}
    print(json.dumps({**told, "places": host.places.most_common(15), **state()}), flush=True)
    os._exit(0)  # a loop of the host's that was interrupted leaves its threads, which Python awaits
