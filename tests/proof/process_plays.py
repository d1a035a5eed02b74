"""The plays of processes in proofs: each is chosen by its name, and prints JSON lines.

python -m tests.proof.process_plays PLAY [ARGUMENT ...]
"""

import asyncio
import atexit
import concurrent.futures
import http.client
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import FrameType
from typing import NamedTuple

import tau_live

PATIENCE_S = 30
"""The seconds after which a child that hangs is killed, which is a deadlock."""

UNSTORED = 3
"""The exit code of a child whose ``flush()`` returned that its run is not stored."""


def report(**facts: object) -> None:
    """Write facts for the proof, on a line of their own."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def work(key: object) -> str:
    """Run an agent whose decision and reward carry its key; return the rollout's id."""
    with tau_live.run("proof", key=key) as run:
        run.decide("point", [f"{key}/a", f"{key}/b"])
        run.reward(1.0, comment=str(key))
    return run.id


class Forked(NamedTuple):
    """A child that is over: its run's key, its exit code, and how long the fork took."""

    key: str
    code: int
    took_s: float


def child(key: object) -> int:
    """Do one run in a forked child; return an exit code that shows if it was acknowledged."""
    signal.alarm(PATIENCE_S)
    try:
        work(key)
        return 0 if tau_live.flush(PATIENCE_S) else UNSTORED
    except BaseException:  # an exception that reaches the host is a fault
        return 4


def forks(rounds: str, attached: str) -> None:
    """Fork from two threads, again and again, while three others keep the writer at work."""
    stop = threading.Event()
    loads: list[threading.Thread] = []
    mine: list[str] = []
    if attached == "after":
        tau_live.attach()
        loads = [threading.Thread(target=_load, args=(n, mine, stop)) for n in range(3)]
    forked: list[Forked] = []
    forking = [threading.Thread(target=_fork, args=(n, int(rounds), forked)) for n in range(2)]
    for thread in [*loads, *forking]:
        thread.start()
    for thread in forking:
        thread.join()
    stop.set()
    for thread in loads:
        thread.join()
    stored = [child_.key for child_ in forked if child_.code != UNSTORED]
    flushed = tau_live.flush(PATIENCE_S)
    codes = [child_.code for child_ in forked if child_.code != UNSTORED]
    alone, took = len(forked) - len(stored), max(child_.took_s for child_ in forked)
    report(codes=codes, keys=mine + stored, fork_s=took, flushed=flushed, alone=alone)


def _load(number: int, keys: list[str], stop: threading.Event) -> None:
    for at in itertools.count():
        if stop.wait(0.003):
            return
        keys.append(f"load {number}-{at}")
        work(keys[-1])


def _fork(number: int, rounds: int, forked: list[Forked]) -> None:
    for at in range(rounds):
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(child(f"child {number}-{at}"))
        took = time.perf_counter() - began
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        forked.append(Forked(f"child {number}-{at}", code, took))


def ways(method: str) -> None:
    """Run agents in every kind of child that ``multiprocessing`` and ``concurrent`` have."""
    tau_live.attach()
    context = multiprocessing.get_context(method)
    keys = [f"{method} {number}" for number in range(8)]
    codes = []
    for key, daemon in zip(keys[:2], (False, True), strict=True):
        process = context.Process(target=work, args=(key,), daemon=daemon)  # type: ignore[attr-defined]  # every context has it
        process.start()
        process.join(PATIENCE_S)
        codes.append(process.exitcode)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        list(pool.map(work, keys[2:6], timeout=PATIENCE_S))
    with context.Pool(1) as own:
        own.map(work, keys[6:])
        own.close()
        own.join()
    report(codes=codes, keys=keys, flushed=tau_live.flush(PATIENCE_S))


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        work(self.path.strip("/"))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def server(preload: str, requests: str) -> None:
    """Serve from three workers that were forked before or after the system was attached."""
    if preload == "preload":
        tau_live.attach()
        work("master")
    listening = HTTPServer(("127.0.0.1", 0), _Answer)
    workers = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
            listening.serve_forever(0.05)
        workers.append(pid)
    keys = [f"request-{number}" for number in range(int(requests))]
    codes = []
    for key in keys:
        client = http.client.HTTPConnection("127.0.0.1", listening.server_port, timeout=PATIENCE_S)
        client.request("GET", f"/{key}")
        codes.append(client.getresponse().status - 200)
        client.close()
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    codes += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    tau_live.flush(PATIENCE_S)
    report(codes=codes, keys=keys + ["master"] * (preload == "preload"), flushed=True)


def leave(how: str, runs: str) -> None:
    """End in some way, with a queue that is full."""
    if how == "handlers":
        atexit.register(_call_us, "before")
    tau_live.attach()
    if how == "handlers":
        atexit.register(_call_us, "after")
    if how == "sigterm handled":
        signal.signal(signal.SIGTERM, _exit)
    acknowledged = [work(f"acknowledged {number}") for number in range(20)]
    assert tau_live.flush(PATIENCE_S)
    report(acknowledged=acknowledged)
    if how == "locked":
        sys.stdin.readline()
    for number in range(int(runs)):
        work(number)
    report(offered=int(runs), drops=tau_live.snapshot()["drops"], at=time.monotonic())
    _ENDS[how]()


def _call_us(when: str) -> None:
    choice = tau_live.decide("late", ["x", "y"], default="x")
    assert choice.option in {"x", "y"}
    tau_live.reward(1.0, run=f"late {when}")
    tau_live.flush(0.1)
    tau_live.snapshot()


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _raise() -> None:
    raise RuntimeError("the host's own")


def _in_thread() -> None:
    def leaves() -> None:
        with tau_live.run("leaves"):
            sys.exit(5)

    thread = threading.Thread(target=leaves)
    thread.start()
    thread.join()


def _interrupted() -> None:
    async def main() -> None:
        async def waits(number: int) -> None:
            async with tau_live.run("waits", key=number):
                await asyncio.sleep(60)

        tasks = [asyncio.create_task(waits(number)) for number in range(50)]
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.gather(*tasks)

    asyncio.run(main())


def _deciding() -> None:
    """Leave while other threads decide, and go on deciding."""

    numbers = itertools.count()

    def decides() -> None:
        while True:
            work(f"late {next(numbers)}")

    for _ in range(3):
        threading.Thread(target=decides, daemon=True).start()


_ENDS: dict[str, Callable[[], None]] = {
    "end": lambda: None,
    "sys.exit": lambda: sys.exit(0),
    "raise": _raise,
    "thread": _in_thread,
    "handlers": lambda: None,
    "sigint": lambda: os.kill(os.getpid(), signal.SIGINT),
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "sigterm handled": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "asyncio": _interrupted,
    "os._exit": lambda: os._exit(0),
    "deciding": _deciding,
    "updating": lambda: None,
    "locked": lambda: None,
}


def updates(start: str, seconds: str) -> None:
    """Run agents whose rewards differ, for a while, and report now and then what is stored."""
    tau_live.attach()
    until = time.monotonic() + float(seconds)
    known: list[str] = []
    for at in range(int(start), int(start) + 1_000_000):
        if time.monotonic() > until:
            break
        with tau_live.run("update", key=at) as run:
            choice = run.decide("point", ["a", "b"], context={"at": at % 5})
            run.reward(float(choice.option == "a"))
        known.append(run.id)
        if len(known) >= 25 and tau_live.flush(0.2):
            report(acknowledged=known)
            known = []
        time.sleep(0.002)


def main() -> None:
    """Do the play that is asked for."""
    name, *arguments = sys.argv[1:]
    plays: dict[str, Callable[..., None]] = {
        play.__name__: play for play in (forks, ways, server, leave, updates)
    }
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    with suppress(BrokenPipeError):
        plays[name](*arguments)


if __name__ == "__main__":
    main()
