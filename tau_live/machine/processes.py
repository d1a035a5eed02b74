"""Which process is which, and whether it still lives."""

import os
import socket
from pathlib import Path

from tau_live.errors import pass_on

PROCESSES = "process:"
"""Begins the name of the lease that every attached process holds."""

_DEAD = frozenset({b"Z", b"X", b"x"})  # a zombie runs no more, it only was not reaped yet


def this_process() -> str:
    """Return a name of this process that no other process will have.

    It holds the machine, the number, and where the kernel tells it the time of birth, because
    numbers are used again.
    """
    pid = os.getpid()
    return f"{_machine()}:{pid}:{_born(pid) or 'unknown'}"


def is_alive(owner: str) -> bool | None:
    """Say whether a process that ``this_process`` named lives; ``None`` on another machine."""
    try:
        machine, pid, born = owner.rsplit(":", 2)
        number = int(pid)
    except ValueError as error:
        pass_on(error)
        return False
    if machine != _machine():
        return None
    if number < 1:
        return False  # these numbers name groups of processes
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError) as error:
        pass_on(error)
        return False
    except OSError as error:
        pass_on(error)
        # it exists, but is somebody else's
    status = _status(number)
    if status and status[0] in _DEAD:
        return False
    now = _born(number)
    return now is None or born in {now, "unknown"}


def _machine() -> str:
    """Return where numbers of processes mean the same: a host, or a container of one."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError as error:
        pass_on(error)
        return socket.gethostname()
    return f"{socket.gethostname()}/{space.removeprefix('pid:')}"


def _born(pid: int) -> str | None:
    """Return when a process began, in ticks of one boot; ``None`` where nobody tells."""
    status = _status(pid)
    if len(status) < 20:
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as error:
        pass_on(error)
        boot = ""
    return f"{status[19].decode()}-{boot[:8]}"


def _status(pid: int) -> list[bytes]:
    """Return what the kernel says about a process, from its state on; empty where it does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError as error:
        pass_on(error)
        return []
    return status[status.rfind(b")") + 2 :].split()
