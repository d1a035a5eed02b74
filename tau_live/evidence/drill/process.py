"""A child process of a drill or a check: started, followed line by line, stopped, killed by its id.

It ends with its parent: its standard input is a pipe that stays open as long as the parent lives.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.switch import SWITCH
from tau_live.evidence.artifacts import HELD
from tau_live.evidence.drill.documents import EventLine


def command_of(module: str, arguments: Sequence[str]) -> str:
    """Return the command of a child, as a person would type it in the root."""
    return " ".join(["python", "-P", "-m", module, *arguments])


def end_with_parent() -> None:
    """End this process at once when its parent is gone; called once by each child."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)  # nothing is ever written: it returns at the end of the pipe
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Child:
    """A module of ours that runs in a process of its own.

    Args:
        module: The module.
        arguments: Its arguments.
        folder: The root, in which it runs.
        environ: The environment of this process.
        deadline_s: Seconds after which it is killed.

    Attributes:
        command: Its command, as a person would type it in the root.
        started_at: When it was started: epoch seconds, UTC.
        lines: What it has printed.
        is_overdue: Whether it was killed at its deadline.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], folder: Path, *, environ: Mapping[str, str],
        deadline_s: float,
    ) -> None:  # fmt: skip
        self.command = command_of(module, arguments)
        self.lines: list[str] = []
        self.is_overdue = False
        self.started_at = time.time()
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=folder,
            env=child_environ(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(*HELD,),
        )
        self._deadline = threading.Timer(deadline_s, self._end_overdue)
        self._deadline.daemon = True
        self._deadline.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def events(self) -> Iterator[EventLine]:
        """Yield the events that it writes, as they come, until its end."""
        for line in self._output():
            if line.startswith("{"):
                yield msgspec.json.decode(line, type=EventLine)

    def stop(self) -> None:
        """Stop it wherever it is.

        Raises:
            TauLiveError: It had ended before.
        """
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise TauLiveError("a child of the drill ended before it could be killed")

    def go_on(self) -> None:
        """Let it go on after ``stop``."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL, by its own process id."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or the signal that it died of, below 0."""
        for _ in self._output():
            pass
        code = self._process.wait()
        self.close()
        return code

    def close(self) -> None:
        """End it, if it has not ended, and close its pipes."""
        self._deadline.cancel()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _output(self) -> Iterator[str]:
        for line in self._process.stdout or ():
            self.lines.append(line)
            yield line

    def _end_overdue(self) -> None:
        self.is_overdue = True
        self._process.kill()


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: without our settings, and with the modules of this one."""
    own = {name: text for name, text in environ.items() if not name.startswith(SWITCH)}
    return {**own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
