"""Many hosts in one process: each an agent of its own, with its spool, heartbeats and connections.

python -m tests.proof.hosts_play ADDRESS FOLDER FIRST COUNT

It prints a JSON line when its hosts are there, and one for each line that it reads.
"""

import itertools
import json
import math
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from queue import Empty, SimpleQueue
from unittest import mock

import tau_live
from tau_live.core.processes import this_process
from tau_live.core.settings import Settings
from tau_live.core.sync import Latch
from tau_live.operate.stops import KillWatch
from tau_live.record import inbox
from tau_live.record.hub import TICK_S, Hub
from tau_live.record.shipper import Shipped, Shipper
from tau_live.runtime.process import State
from tau_live.runtime.runtime import Runtime
from tau_live.store.forks import Forks
from tau_live.store.opening import open_spool
from tau_live.store.records import RolloutCopy

DRIVERS = 16

STARTING = 4
"""How many hosts of a process start at once."""

OWN_TICK_S = 5.0
"""How often a host keeps house on its own disk, instead of five times a second, and it looks for a
kill switch but once: a thousand of them share the cores of one machine. What talks with the server
is as it is."""

LOOK_S = 0.02
PATIENCE_S = 300.0
FLUSH_S = 20.0


class Driver:
    """A thread that does for some hosts, one after the other, what the thread of each would do.

    A thousand threads that wake five times a second would take more than two cores by that alone.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Hub]] = []
        self._coming: SimpleQueue[Hub] = SimpleQueue()
        self._numbers = itertools.count()
        threading.Thread(target=self._drive, daemon=True).start()

    def add(self, hub: Hub) -> None:
        """Do it for another host."""
        self._coming.put(hub)

    def _drive(self) -> None:
        while True:
            now = time.monotonic()
            at, _, hub = heappop(self._due) if self._due else (math.inf, 0, None)
            with suppress(Empty):
                new = self._coming.get(timeout=min(max(0.0, at - now), TICK_S))
                self._push(new, now)
            if hub is None:
                continue
            if time.monotonic() < at:
                self._push(hub, at)
                continue
            hub._contain(hub._turn)
            is_hurried, hub._wake = hub._wake.is_set, Latch()
            self._push(hub, time.monotonic() + (0.0 if is_hurried else TICK_S))

    def _push(self, hub: Hub, at: float) -> None:
        heappush(self._due, (at, next(self._numbers), hub))


class Hosts:
    """The hosts of this process, and how long their batches took."""

    def __init__(self, address: str, folder: Path, numbers: Sequence[int]) -> None:
        self._address = address
        self._folder = folder
        self._naming = threading.Lock()
        self.batches: list[float] = []
        self._time_batches()
        self._empty = folder / f"empty-{numbers[0]}.sqlite"
        open_spool(self._empty).close()
        self._drivers = [Driver() for _ in range(DRIVERS)]
        with ThreadPoolExecutor(STARTING) as pool:
            self._hosts = dict(zip(numbers, pool.map(self._started, numbers), strict=True))

    def _started(self, number: int) -> Runtime:
        """Start an agent on a machine of its own, as far as others can see."""
        spool = self._folder / f"host-{number}.sqlite"
        shutil.copy(self._empty, spool)  # making one takes ten times as long
        environ = {
            **os.environ,
            "TAU_LIVE_RL": "1",
            "TAU_LIVE_RL_STORE": self._address,
            "TAU_LIVE_RL_SPOOL": str(spool),
            "TAU_LIVE_RL_LEARNER": "off",
        }
        settings = Settings.from_env(environ).settings
        _, pid, born = this_process().rsplit(":", 2)
        name = f"h{number}:{pid}:{born}"
        with self._naming:
            with mock.patch("tau_live.runtime.runtime.this_process", lambda: name):
                runtime = Runtime(settings, environ, Forks())
        assert runtime._hub is not None
        runtime._hub.start = partial(  # type: ignore[method-assign]
            self._drivers[number % DRIVERS].add, runtime._hub
        )
        runtime.start(None)
        return runtime

    def _time_batches(self) -> None:
        ship = Shipper.ship

        def timed(shipper: Shipper, copies: Sequence[RolloutCopy]) -> Shipped:
            began = time.monotonic()
            shipped = ship(shipper, copies)
            if copies:
                self.batches.append(time.monotonic() - began)
            return shipped

        Shipper.ship = timed  # type: ignore[method-assign,assignment]  # measured

    def reach(self) -> None:
        """Wait until all hosts have heard the database."""
        self._wait_for(lambda host: host._hub is not None and not host._hub.is_away)

    def lose(self) -> None:
        """Wait until all hosts know that the database is away."""
        self._wait_for(lambda host: host._hub is not None and host._hub.away_since is not None)

    def turn(self, passes: bool) -> list[float]:
        """Wait until the gate of each host passes, or holds; return when each did so."""
        return self._wait_for(lambda host: host._gate.passes == passes)

    def record(self, tag: str, runs: int, over_s: float, flushes: bool) -> list[int]:
        """Let each host record some runs, one host after the other in a random order.

        Return the numbers of those whose flush was true.
        """
        acknowledged = []
        numbers = random.sample([*self._hosts], len(self._hosts))  # as random as the machine
        began = time.monotonic()
        for place, number in enumerate(numbers):
            time.sleep(max(0.0, began + over_s * place / len(numbers) - time.monotonic()))
            State.runtime = self._hosts[number]
            for run_number in range(runs):
                with tau_live.run("answer", key=f"{tag}-{number}-{run_number}") as run:
                    choice = run.decide("model", ["small", "large"], default="small")
                    run.reward(float(choice.option == "large"))
            if flushes and tau_live.flush(FLUSH_S):
                acknowledged.append(number)
        return acknowledged

    def take_batches(self) -> list[float]:
        """Return how long each batch took since the last call, in seconds."""
        taken, self.batches = self.batches, []
        return taken

    def _wait_for(self, is_so: Callable[[Runtime], bool]) -> list[float]:
        waiting, times = [*self._hosts.values()], []
        until = time.monotonic() + PATIENCE_S
        while waiting and time.monotonic() < until:
            left = list(itertools.filterfalse(is_so, waiting))
            times += [time.time()] * (len(waiting) - len(left))
            waiting = left
            time.sleep(LOOK_S)
        if waiting:
            raise TimeoutError(f"{len(waiting)} hosts have not come so far")
        return times


def play(address: str, folder: str, first: str, count: str) -> None:
    """Start hosts, and do what is asked for."""
    inbox.TICK_S = OWN_TICK_S
    KillWatch.start = KillWatch.check  # type: ignore[method-assign]
    hosts = Hosts(address, Path(folder), range(int(first), int(first) + int(count)))
    print(json.dumps(len(hosts._hosts)), flush=True)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(hosts, what)(*arguments)), flush=True)
    os._exit(0)  # as if killed: what was acknowledged is there


if __name__ == "__main__":
    play(*sys.argv[1:])
