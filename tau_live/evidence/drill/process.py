"""A child process of the drill: started, followed line by line, stopped, killed by its own id."""

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
from tau_live.evidence.drill.documents import EventLine

MODULE = "tau_live.evidence.drill"
DEADLINE_S = 300.0
"""A child that takes longer is killed, and the drill fails."""


class Child:
    """A child that trains, and tells on its standard output what it reaches.

    Args:
        arguments: Its arguments.
        folder: The root, in which it runs.
        environ: The environment of this process.

    Attributes:
        command: Its command, as a person would type it in the root.
        started_at: When it was started: epoch seconds, UTC.
        lines: What it has printed.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, *, environ: Mapping[str, str]
    ) -> None:
        self.command = self.command_of(arguments)
        self.lines: list[str] = []
        self.started_at = time.time()
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", MODULE, *arguments],
            cwd=folder,
            env=child_environ(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._deadline = threading.Timer(DEADLINE_S, self._process.kill)
        self._deadline.daemon = True
        self._deadline.start()

    @staticmethod
    def command_of(arguments: Sequence[str]) -> str:
        """Return the command of a child with these arguments."""
        return " ".join(["python", "-P", "-m", MODULE, *arguments])

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def events(self) -> Iterator[EventLine]:
        """Yield the lines that it writes, as they come, until its end."""
        for line in self._process.stdout or ():
            self.lines.append(line)
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
        """Wait for its end; return its exit code, or the signal that it died of, below 0.

        Raises:
            TauLiveError: It took too long.
        """
        for _ in self.events():
            pass
        code = self._process.wait()
        self.close()
        if time.time() - self.started_at >= DEADLINE_S:
            raise TauLiveError(f"a child of the drill took more than {DEADLINE_S:g} s")
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


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child: without our settings, and with the modules of this one."""
    own = {name: text for name, text in environ.items() if not name.startswith(SWITCH)}
    return {**own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
