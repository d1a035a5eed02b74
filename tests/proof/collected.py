"""The time that Python's garbage collector took of each thread.

It traverses all objects of the process, in whichever thread makes the next one: its time in a call
of ours is the host's as much as ours, and is counted apart.
"""

import gc
import threading
import time
from collections.abc import Mapping

_took: dict[int, float] = {}
_began: dict[int, float] = {}


def collected_s(thread: int | None = None) -> float:
    """Return the seconds of processor time that it has taken of a thread, or of this one."""
    return _took.get(threading.get_ident() if thread is None else thread, 0.0)


def watch() -> None:
    """Begin to count."""
    gc.callbacks.append(_on_collection)


def _on_collection(phase: str, _info: Mapping[str, int]) -> None:
    me = threading.get_ident()
    if phase == "start":
        _began[me] = time.thread_time()
    else:
        _took[me] = _took.get(me, 0.0) + time.thread_time() - _began.get(me, time.thread_time())
