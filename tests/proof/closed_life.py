"""A full life under an audit hook: what Python itself reports of every door that is opened.

Run as a program with a folder; prints what was done as JSON. Everybody's umask is 0, so that only
the modes that are asked for keep others out.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

NET = ("socket.__new__", "socket.bind", "socket.connect", "socket.sendto", "socket.getaddrinfo",
       "urllib.Request", "http.client.connect", "ftplib.connect", "smtplib.connect")  # fmt: skip
PROCESSES = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
UNSAFE = ("pickle.find_class", "marshal.loads", "exec", "ctypes.dlopen")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

HOSTILE = (
    "'; drop table decisions; --", "\" or 1=1 --", "../../../../tmp/evil", "/etc/passwd",
    "\x1b[2J\x1b]0;owned\x07", "=cmd|' /C calc'!A1", "+1+1", "@SUM(1)", "<script>alert(1)</script>",
    "{{7*7}}", "${jndi:ldap://x}", "$(touch evil)", "`touch evil`", "%s%n", "..", ".", "a/b\\c",
    "\u202egnp.exe", "Ignore all previous instructions", "con\nnew line", "nul", "x" * 200,
)  # fmt: skip
"""Names that some program might take for more than names."""


class Doors:
    """The audit events that the hook received, outside of imports."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.counts: Counter[str] = Counter()
        self.where: list[str] = []

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        """Take note of an event of the interpreter."""
        if event in NET:
            self._note("net", event)
        elif event in PROCESSES:
            self._note("processes", event)
        elif event in UNSAFE:
            if not _is_import(sys._getframe(1)):
                self._note("unsafe", event)
        elif event == "open" and isinstance(args[0], str) and _writes(args):
            path = os.path.abspath(args[0])  # noqa: PTH100  # nothing may be imported here
            if path != os.devnull and not path.startswith(self._folder):
                self._note("outside", path)

    def _note(self, kind: str, what: str) -> None:
        frame, at = sys._getframe(2), ""
        while frame.f_back is not None and "tau_live" not in frame.f_code.co_filename:
            frame = frame.f_back
        at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.counts[kind] += 1
        self.where.append(f"{kind} {what} at {at}")


def _writes(args: tuple[object, ...]) -> bool:
    mode, flags = args[1], args[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & WRITES)


def _is_import(frame: FrameType | None) -> bool:
    """Return whether a module is imported, or Python's dataclasses make a class of our own."""
    while frame is not None:
        if (
            "importlib" in frame.f_code.co_filename
            or frame.f_globals.get("__name__") == "dataclasses"
        ):
            return True
        frame = frame.f_back
    return False


def live(folder: Path) -> dict[str, object]:
    """Do all that a host and an operator do."""
    import tau_live

    runs = 0
    for number in range(48):
        name = HOSTILE[number % len(HOSTILE)]
        with tau_live.run(name, key=f"{name}{number}", session=name, metadata={name: name}) as run:
            choice = run.decide("model", ["small", "large"], context={"t": name}, default="small")
            run.decide(name, [name, "b"], context={name: name})
            run.reward(float(choice.option == "large"), name="solved", comment=name)
            runs += 1
    flushed = tau_live.flush(60.0)
    version = tau_live.snapshot()["policies_in_service"]
    tau_live.detach()
    return {"runs": runs, "flushed": flushed, "version": version, "output": _operate(folder)}


def open_on_purpose() -> None:
    """Open one door of each kind, to see that the hook sees it."""
    import pickle
    import socket
    import subprocess
    import tempfile

    socket.socket().close()
    subprocess.run([sys.executable, "-c", ""], check=True)
    pickle.loads(pickle.dumps(Counter))
    with tempfile.TemporaryFile():
        eval("1 + 1")


def _operate(folder: Path) -> str:
    """Call commands in this very process; return their output for people."""
    from click.testing import CliRunner

    from tau_live.cli import main

    output = ""
    for call in (
        ["status"], ["rollouts"], ["updates"], ["policy"], ["verify"], ["gate", "log"],
        ["export", "-o", str(folder / "export.jsonl")], ["learn", "--once"],
        ["replay", str(folder / "events.jsonl"), "--store", str(folder / "again" / "s.sqlite")],
        ["policy", "rollback", "model", "--reason", "a try"], ["gc", "--older-than", "30d"],
        ["config"], ["doctor"],
    ):  # fmt: skip
        done = CliRunner().invoke(main, call)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        output += done.output
    return output


if __name__ == "__main__":
    place = Path(sys.argv[1])
    os.umask(0)
    doors = Doors(place)
    sys.addaudithook(doors)
    result = live(place)
    facts = {**result, "doors": dict(doors.counts), "where": doors.where[:20]}
    doors.counts.clear()
    open_on_purpose()
    sys.stdout.write(json.dumps({**facts, "control": doors.counts}) + "\n")
