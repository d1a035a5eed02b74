"""What looks at spans as they begin and end; nothing here imports the host."""

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tau_live import door
from tau_live.adapters import InForce
from tau_live.events import Event
from tau_live.telemetry.runs import Runs
from tau_live.telemetry.spans import Around, Begun, Ended, Happened
from tau_live.telemetry.values import Value
from tau_live_hooks.common_border import Border
from tau_live_hooks.common_text import few, printed

if TYPE_CHECKING:
    from tau_live.runtime import Runtime

AMID_REMEMBERED = 1_000
"""So many spans are remembered that began while something was being cancelled."""

NOTHING_SAID: Mapping[str, Any] = {}
_CANCELLED = frozenset({"CancelledError", "KeyboardInterrupt", "SystemExit"})
"""What cancels by going through. ``GeneratorExit`` does not: agents that stream their events are
closed when their reader has what it wanted, and some frameworks cancel a task of their own then."""


class TauSpanProcessor:
    """A span processor of OpenTelemetry, by its methods alone.

    Args:
        in_force: Returns the running system.

    Attributes:
        border: What every step of ours passes.
    """

    def __init__(self, in_force: InForce) -> None:
        self.border = Border(in_force)
        self._lock = threading.RLock()  # a finaliser may end a span while one is looked at
        self._runs = Runs(native=self._is_told_elsewhere)
        self._closed = False
        self._pid = os.getpid()
        self._runtime: Runtime | None = None
        self._hosts: dict[str, str] = {}
        self._amid: OrderedDict[int, None] = OrderedDict()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """See a span begin."""
        self._safely(self._start, span, parent_context, _cancelled())

    def on_end(self, span: Any) -> None:
        """See a span end."""
        self._safely(self._end, span, _cancelled())

    def _on_ending(self, span: Any) -> None:
        """See nothing of a span that is about to end, which may still change."""

    def shutdown(self) -> None:
        """Tell what waits; spans of other providers may still come."""
        self._safely(self._runs.hurried)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002  # the host's name
        """Say that nothing has to be waited for."""
        return True

    def close(self) -> None:
        """Look at nothing any more."""
        self._safely(self._runs.finished)
        self._closed = True

    def valued(self, trace: str, span: str, values: Mapping[str, Value], at: float) -> None:
        """Take what somebody says, at a time, a span was worth."""
        self._safely(partial(self._runs.valued, at=at), trace, span, values)

    def _safely(self, step: Callable[..., Iterable[Event]], *args: object) -> None:
        """Do a step of ours and hand over what it tells, whatever becomes of it."""
        if not self._closed:
            self.border.safely(self._tell, step, *args)

    def _tell(self, step: Callable[..., Iterable[Event]], *args: object) -> None:
        runtime = self.border.in_force()
        if runtime is None:
            return
        with self._lock:
            if runtime is not self._runtime:
                self._remember_hosts()
                self._runtime = runtime
            found = list(step(*args))
        for event in found:
            runtime.emit(event)

    def _start(self, span: Any, parent_context: Any, amid: str | None) -> list[Event]:
        self._notice_fork()
        context, parent = span.context, span.parent
        if amid is not None:  # what cleans up behind a cancellation is not cancelled by it
            self._amid[context.span_id] = None
            if len(self._amid) > AMID_REMEMBERED:
                self._amid.popitem(last=False)
        found: list[Event] = []
        now = time.time()
        if parent is not None and not parent.is_remote:
            trace, id_ = f"{context.trace_id:032x}", f"{parent.span_id:016x}"
            if self._runs.remembered(trace, id_) is None:
                outer = _outer(parent_context, parent.span_id)
                if outer is not None:
                    found += self._runs.begun(_begun(outer), around=None, now=now)
        return found + self._runs.begun(_begun(span), around=_around(), now=now)

    def _end(self, span: Any, raised: str | None) -> list[Event]:
        self._notice_fork()
        context = span.context
        if context.span_id in self._amid:
            raised = self._amid.pop(context.span_id)
        known = self._runs.remembered(f"{context.trace_id:032x}", f"{context.span_id:016x}")
        ended = _ended(span, known, raised)
        return self._runs.ended(ended, around=_around(), now=time.time())

    def _notice_fork(self) -> None:
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._runs.forked()

    def _remember_hosts(self) -> None:
        """Know what adapters did under the system before this one, which is not told again."""
        if self._runtime is not None:
            self._hosts |= self._runtime.hosts

    def _is_told_elsewhere(self, host: str) -> bool:
        known = self._hosts if self._runtime is None else self._runtime.hosts
        return known.get(host, self._hosts.get(host)) == "attached"


def _cancelled() -> str | None:
    """Return what goes through the code that calls, where that is a cancellation."""
    raised = sys.exc_info()[0]
    name = None if raised is None else raised.__name__
    return name if name in _CANCELLED else None


def _around() -> Around | None:
    inside = door.current()
    handle = None if inside is None else inside.handle
    return None if handle is None or handle.ended or not handle.recorded else handle


def _outer(context: Any, span_id: int) -> Any:
    """Return the span around one that begins, if it is at hand and goes on."""
    from opentelemetry import trace

    span = trace.get_current_span(context)
    if not hasattr(span, "start_time") or span.end_time is not None:
        return None
    return span if span.context.span_id == span_id else None


def _begun(span: Any) -> Begun:
    context, parent, scope = span.context, span.parent, span.instrumentation_scope
    return Begun(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        None if parent is None else f"{parent.span_id:016x}",
        span.name,
        "" if scope is None else scope.name,
        _seconds(span.start_time),
        said_by(span),
        partial(_service, span.resource),
    )


def _ended(span: Any, known: Begun | None, raised: str | None) -> Ended:
    status, events, links = span.status, span.events, span.links
    begun = _begun(span) if known is None else known
    return Ended(
        begun if begun.name == span.name else begun._replace(name=span.name),
        _seconds(span.end_time),
        status.status_code.name == "ERROR",
        status.description or "",
        [Happened(one.name, dict(one.attributes or {})) for one in few(events)] if events else (),
        [(f"{one.context.trace_id:032x}", f"{one.context.span_id:016x}") for one in few(links)],
        raised,
    )


def said_by(span: Any) -> Mapping[str, Any]:
    """Return what a span says, and goes on to say.

    The host's own mapping takes a lock and a few microseconds for each attribute that is asked for,
    so what it holds is read where it is as it was in every version so far.
    """
    held = getattr(getattr(span, "_attributes", None), "_dict", None)
    if isinstance(held, dict):
        return held
    return span.attributes or NOTHING_SAID


def _service(resource: Any) -> str | None:
    name = None if resource is None else resource.attributes.get("service.name")
    return None if name is None or printed(name).startswith("unknown_service") else printed(name)


def _seconds(nanoseconds: int | None) -> float:
    return time.time() if nanoseconds is None else round(nanoseconds / 1e3) / 1e6
