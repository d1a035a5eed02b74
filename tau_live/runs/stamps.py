"""When an event happened: taken in the host's thread, so a mere tuple until the event is made."""

from typing import TypeAlias, TypedDict

Stamp: TypeAlias = tuple[float, int, int, int]
"""Epoch seconds, the monotonic clock, which of its process's events it is, and the process."""


class Stamped(TypedDict):
    """A stamp as the fields of an event."""

    at: float
    mono_ns: int
    seq: int
    pid: int


def stamped(stamp: Stamp) -> Stamped:
    """Return a stamp as the fields of an event."""
    at, mono_ns, seq, pid = stamp
    return {"at": at, "mono_ns": mono_ns, "seq": seq, "pid": pid}
