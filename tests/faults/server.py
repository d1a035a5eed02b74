"""A process that has everything imported, and forks a child for each job that it is given.

A job is a line of JSON: a function, what it is called with, and when its process is to be killed.
So a crash costs milliseconds, and the process that tests has neither threads nor stores to fork.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypedDict

PRELOADED = ("tau_live.runtime.api", "tau_live.runtime.runtime")

START = "from tests.faults.server import main; main()"


class Ended(NamedTuple):
    """What became of a job.

    Attributes:
        answer: What its function returned; ``None`` if it did not come to that.
        told: Lines that it wrote with ``tell`` before its end.
        signal: What its process died of; 0 if it ended.
        code: What its process ended with, else 0.
        seconds: How long it lived.
    """

    answer: object
    told: list[object]
    signal: int
    code: int
    seconds: float


class _Job(TypedDict):
    call: str
    given: dict[str, object]
    kill_after_s: float | None


class Server:
    """The other side of it: starts one, and gives it one job at a time."""

    def __init__(self, *preloaded: str) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
        roots = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", START, *preloaded],
            env={**own, "PYTHONPATH": roots, "OPENBLAS_NUM_THREADS": "1", "TAU_LIVE_RL": "1"},
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, call: str, given: Mapping[str, object], *, kill_after_s: float | None = None
    ) -> Ended:
        """Call ``module:function`` in a child, and wait for its end.

        Args:
            call: The function; it takes and returns what JSON can say.
            given: What it is called with.
            kill_after_s: When to kill it, counted from the first line that it tells.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        job = _Job(call=call, given=dict(given), kill_after_s=kill_after_s)
        stdin.write(json.dumps(job) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the server has ended"
        return Ended(**json.loads(line))

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def tell(line: object) -> None:
    """Tell something, inside a job, that is known whatever becomes of the process afterwards."""
    _write({"told": line})


_out = -1


def _write(line: object) -> None:
    os.write(_out, json.dumps(line).encode() + b"\n")  # at once, as it is shorter than PIPE_BUF


def _child(job: _Job, out: int) -> None:
    global _out  # noqa: PLW0603  # a child has one job
    _out = out
    os.dup2(2, 1)  # what it prints is no answer
    try:
        module, _, function = job["call"].partition(":")
        answer = getattr(import_module(module), function)(**job["given"])
        _write({"answer": answer})
    except BaseException:  # it must not go on as another server
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _served(job: _Job) -> Ended:
    began = time.monotonic()
    into, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(into)
        _child(job, out)
    os.close(out)
    after = job["kill_after_s"]
    deadline: float | None = None
    data = bytearray()
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([into], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            deadline = None
            continue
        found = os.read(into, 65_536)
        if not found:
            break
        if after is not None and not data:
            deadline = time.monotonic() + after
        data += found
    os.close(into)
    status = os.waitpid(pid, 0)[1]
    lines = [json.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
    return Ended(
        next((line["answer"] for line in lines if "answer" in line), None),
        [line["told"] for line in lines if "told" in line],
        os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
        time.monotonic() - began,
    )


def main() -> None:
    """Serve until the other side is gone."""
    for name in (*PRELOADED, *sys.argv[1:]):
        import_module(name)
    for line in sys.stdin:
        print(json.dumps(_served(json.loads(line))._asdict()), flush=True)
