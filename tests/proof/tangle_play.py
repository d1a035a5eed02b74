"""A host in which everything calls tau-live from everywhere at once; prints the outcome.

python -m tests.proof.tangle_play CALLS
"""

import gc
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from types import FrameType

import tau_live
from tau_live.core.events import Event
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl

PATIENCE_S = 30
UNSTORED = 3


class Host:
    """Counts its calls, and keeps their faults."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.raised: list[str] = []
        self.calls = itertools.count(1)
        self.by: dict[str, int] = {}
        self.nested = threading.local()
        self.codes: list[int] = []
        self.alone = 0

    def call(self, by: str) -> None:
        """Use all of the door, and let out nothing but a signal's exceptions."""
        if getattr(self.nested, "depth", 0) > 3:
            return
        self.nested.depth = getattr(self.nested, "depth", 0) + 1
        number = next(self.calls)
        self.by[by] = self.by.get(by, 0) + 1
        try:
            with tau_live.run(by, key=number) as run:
                choice = run.decide(by, ["a", "b"], context={"n": number % 7}, default="a")
                run.reward(float("nan"))
                run.reward(1.0)
            tau_live.reward(1.0, run="nobody knows", decision=choice)
            tau_live.snapshot()
            if choice.option not in {"a", "b"}:
                self.raised.append(f"{by}: {choice!r}")
        except Exception as error:  # this is what is looked for
            self.raised.append(f"{by}: {error!r}")
        finally:
            self.nested.depth -= 1

    def more(self) -> bool:
        """Return whether to go on."""
        return sum(list(self.by.values())) < self.enough  # others add to it

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Use the door in the middle of whatever the main thread does, and come again."""
        self.call("signal")
        if self.more():
            signal.setitimer(signal.ITIMER_REAL, 0.002)

    def threads(self) -> None:
        """Use the door, flush now and then, and leave cycles for the collector."""
        for number in itertools.count():
            if not self.more():
                return
            self.call("thread")
            Cycle(self)
            if number % 50 == 49:
                tau_live.flush(0.05)
                logging.getLogger("tau_live").warning("from a thread")
            time.sleep(0.004)

    def forks(self) -> None:
        """Fork in the middle of it all."""
        while self.more():
            pid = os.fork()
            if pid == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(PATIENCE_S)
                self.call("child")
                stored = tau_live.flush(PATIENCE_S)
                os._exit(1 if self.raised else 0 if stored else UNSTORED)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self.codes += [code] if code != UNSTORED else []
            self.alone += code == UNSTORED


class Cycle:
    """Uses the door when it is collected, in whatever thread that happens."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.own = self
        weakref.finalize(self, host.call, "finalize")
        self.reference = weakref.ref(Plain(self), lambda _: host.call("weakref"))

    def __del__(self) -> None:
        self.host.call("del")


class Plain:
    """An object that weak references may refer to."""

    def __init__(self, of: Cycle) -> None:
        self.of = of


class Logs(logging.Handler):
    """Uses the door for each line."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host

    def emit(self, record: logging.LogRecord) -> None:
        """Use the door."""
        self.host.call("logging")


class Plugin:
    """Uses the door in its hooks, in the thread that writes, learns or decides."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.seen = itertools.count(1)

    @hookimpl
    def observe(self, event: Event) -> None:
        """Use the door for some of the events, or each would make others."""
        if event.event == "run.start" and next(self.seen) % 20 == 0:
            self.host.call("observe")
            tau_live.flush(0.01)

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        """Decide something else first."""
        if request.point == "thread":
            self.host.call("decide")
        return None

    @hookimpl
    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        """Use the door."""
        self.host.call("gate")


def settled() -> bool:
    """Wait until all is stored; ``False`` if nothing more was for ``PATIENCE_S`` seconds."""
    least, until = float("inf"), time.monotonic() + PATIENCE_S
    while not tau_live.flush(1.0):
        snapshot = tau_live.snapshot()
        waiting = float(str(snapshot["queue_depth"])) + float(str(snapshot["backlog"]))
        if waiting < least:
            least, until = waiting, time.monotonic() + PATIENCE_S
        if time.monotonic() > until:
            return False
    return True


def main() -> None:
    """Let everything happen at once until so many calls were made."""
    host = Host(int(sys.argv[1]))
    logging.getLogger("tau_live").addHandler(Logs(host))
    gc.set_threshold(200)
    runtime = tau_live.attach()
    assert runtime is not None
    runtime.plugins.register(Plugin(host), name="tangled")
    signal.signal(signal.SIGALRM, host.on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    threads = [threading.Thread(target=host.threads) for _ in range(3)]
    threads.append(threading.Thread(target=host.forks))
    for thread in threads:
        thread.start()
    while host.more():
        host.call("main")
        Cycle(host)
        host.call("main")
        time.sleep(0.002)
    for thread in threads:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    flushed = settled()
    snapshot = tau_live.snapshot()
    gate = snapshot["gate"]
    facts = {
        "flushed": flushed,
        "raised": host.raised,
        "by": host.by,
        "codes": host.codes,
        "alone": host.alone,
        "gate": gate["state"] if isinstance(gate, dict) else "",
        "drops": snapshot["drops"],
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
