"""Which process is which, and whether it still lives."""

import os
import socket
from pathlib import Path


def this_process() -> str:
    """Return a name of this process that no later process of this machine will have."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_born(pid) or 'unknown'}"


def is_alive(owner: str) -> bool | None:
    """Say whether a process lives, by its name; ``None`` if it is another machine's."""
    try:
        machine, pid, born = owner.rsplit(":", 2)
        number = int(pid)
    except ValueError:
        return False
    if machine != socket.gethostname():
        return None
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it exists, but is somebody else's
    now = _born(number)
    return now is None or born in {now, "unknown"}


def _born(pid: int) -> str | None:
    """Return when a process began, in the kernel's own ticks; ``None`` where it does not tell."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = status[status.rfind(b")") + 2 :].split()
    return fields[19].decode() if len(fields) > 19 else None
