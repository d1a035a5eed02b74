"""Which run of openai-agents is which: by its id, by its task, and by what it waited for."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import uuid4

REMEMBERED = 10_000
"""So many traces, and so many runs that wait, are remembered."""


class Waiting(NamedTuple):
    """What a run waits for, by which the run that goes on with it is known.

    Attributes:
        trace_id: The trace in which it waits.
        agent: The agent that was started.
        call_ids: The calls that have to be approved, sorted.
    """

    trace_id: str | None
    agent: str
    call_ids: tuple[str, ...]


class RunIds:
    """Names the runs of a process.

    A run that makes its own trace has the trace's id, which its user may choose and which a run
    that is resumed in another process still has. One inside somebody else's trace has the id of
    its task; without tracing it gets one of ours.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._waiting: OrderedDict[Waiting, str] = OrderedDict()

    def named(self, *, own_trace: str | None, span_id: str | None, waited: Waiting | None) -> str:
        """Return the id of a run that begins.

        Args:
            own_trace: The trace that it makes; ``None`` if it runs in another's.
            span_id: Its task; ``None`` where that is not told.
            waited: What it had to wait for, if it goes on with one that did.
        """
        with self._lock:
            known = self._waiting.pop(waited, None) if waited is not None else None
            if known is not None:
                return known
            is_done = own_trace in self._done  # several runs under one id that a user chose
        if own_trace is not None and not is_done:
            return own_trace
        return span_id or f"run_{uuid4().hex}"

    def done(self, run_id: str) -> None:
        """Know that a run of this id ended for good: the next of the same trace is another one."""
        with self._lock:
            self._done[run_id] = None
            self._done.move_to_end(run_id)
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)

    def waits(self, run_id: str, waiting: Waiting) -> None:
        """Know that a run waits."""
        with self._lock:
            self._waiting[waiting] = run_id
            self._waiting.move_to_end(waiting)
            if len(self._waiting) > REMEMBERED:
                self._waiting.popitem(last=False)


def waiting_for(trace_id: str | None, agent: str, call_ids: Iterable[str]) -> Waiting | None:
    """Return what a run waits for; ``None`` if it is for nothing."""
    ids = tuple(sorted(call_ids))
    return Waiting(trace_id, agent, ids) if ids else None
