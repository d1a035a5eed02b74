"""The processors that see spans begin and end; nothing here imports the host.

Logs are another part of the host, which may never be imported; without it nothing is watched.
"""

import gc
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tau_live.core.errors import pass_on, suppress
from tau_live.core.events import Event
from tau_live.record.telemetry.runs import Runs
from tau_live.record.telemetry.semconv import (
    RESULT,
    Around,
    SpanEnd,
    SpanEvent,
    SpanStart,
    evaluation_values,
)
from tau_live.runtime.adapters import InForce
from tau_live_hooks.common import Border, as_text, enclosing_run, few, is_a, remember
from tau_live_hooks.patches import Patches

if TYPE_CHECKING:
    from tau_live.runtime.runtime import Runtime


_CANCELLED = frozenset({"CancelledError", "KeyboardInterrupt", "SystemExit"})
"""The exceptions that cancel what they pass through. ``GeneratorExit`` does not: agents that stream
their events are closed when their reader has what it wanted, and some frameworks then cancel a task
of their own."""


LOGS = "opentelemetry.sdk._logs"


class TauProcessor:
    """A processor of OpenTelemetry's spans, and of the log records that evaluate them.

    It is one by its methods alone, without the host's base class.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._border = Border(in_force)
        self._lock = threading.RLock()  # a finaliser may end a span while another is handled
        self._runs = Runs(native=self._is_native)
        self._closed = False
        self._pid = os.getpid()
        self._runtime: Runtime | None = None
        self._hosts: dict[str, str] = {}
        self._cleanups: OrderedDict[int, None] = OrderedDict()

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """See a span begin."""
        self._safely(self._start, span, parent_context, _cancellation())

    def on_end(self, span: Any) -> None:
        """See a span end."""
        self._safely(self._end, span, _cancellation())

    def _on_ending(self, span: Any) -> None:
        """See nothing of a span that is about to end, which may still change."""

    def on_emit(self, log_record: Any) -> None:
        """See a log record."""
        self._safely(self._evaluate, log_record)

    def enabled(self, *, event_name: str | None = None, **_: object) -> bool:
        """Return whether we want a log record."""
        return is_a(event_name, str) and str.__eq__(event_name, RESULT)

    def shutdown(self) -> None:
        """Report the events that wait; spans of other providers may still come."""
        self._safely(self._runs.flush)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002  # the host's name
        """Return true: there is nothing to wait for."""
        return True

    def close(self) -> None:
        """Report the open runs, and ignore all later spans."""
        self._safely(self._runs.finish)
        self._closed = True

    def _safely(self, step: Callable[..., Iterable[Event]], *args: object) -> None:
        """Run a step of ours and emit its events; a failure goes no further."""
        if not self._closed:
            self._border.safely(self._emit, step, *args)

    def _emit(self, step: Callable[..., Iterable[Event]], *args: object) -> None:
        runtime = self._border.in_force()
        if runtime is None:
            return
        with self._lock:
            if runtime is not self._runtime:
                if self._runtime is not None:  # its adapters' states are not reported again
                    self._hosts |= self._runtime.hosts
                self._runtime = runtime
            events = list(step(*args))
        for event in events:
            runtime.emit(event)

    def _start(self, span: Any, parent_context: Any, cancellation: str | None) -> list[Event]:
        self._notice_fork()
        context, parent = span.context, span.parent
        if cancellation is not None:  # a span of the cleanup after it is not cancelled by it
            remember(self._cleanups, context.span_id, None, limit=1_000)
        events: list[Event] = []
        now = time.time()
        if parent is not None and not parent.is_remote:
            trace, id_ = f"{context.trace_id:032x}", f"{parent.span_id:016x}"
            if self._runs.span_start(trace, id_) is None:
                outer = _outer(parent_context, parent.span_id)
                if outer is not None:
                    events += self._runs.start_span(_start_of(outer), around=None, now=now)
        return events + self._runs.start_span(_start_of(span), around=_current_run(), now=now)

    def _end(self, span: Any, raised: str | None) -> list[Event]:
        self._notice_fork()
        context = span.context
        if context.span_id in self._cleanups:
            raised = self._cleanups.pop(context.span_id)
        known = self._runs.span_start(f"{context.trace_id:032x}", f"{context.span_id:016x}")
        start = _start_of(span) if known is None else known
        if start.name != span.name:
            start = start._replace(name=span.name)
        links = [item.context for item in few(span.links)]
        ended = SpanEnd(
            start,
            _seconds(span.end_time),
            span.status.status_code.name == "ERROR",
            span.status.description or "",
            [SpanEvent(item.name, dict(item.attributes or {})) for item in few(span.events)],
            [(f"{linked.trace_id:032x}", f"{linked.span_id:016x}") for linked in links],
            raised,
        )
        return self._runs.end_span(ended, around=_current_run(), now=time.time())

    def _evaluate(self, emitted: Any) -> list[Event]:
        """Return the events of a log record that evaluates a span."""
        record = getattr(emitted, "log_record", emitted)
        attributes = record.attributes
        if not isinstance(attributes, Mapping) and attributes is not None:
            return []
        known = dict(attributes or {})
        name = getattr(record, "event_name", None) or known.get("event.name")
        if name != RESULT or not record.trace_id:
            return []
        trace, span = f"{record.trace_id:032x}", f"{record.span_id or 0:016x}"
        nanoseconds = record.timestamp or time.time_ns()
        values = {
            f"{span}@{nanoseconds}:{n}": value for n, value in enumerate(evaluation_values(known))
        }
        return self._runs.add_values(trace, span, values, at=nanoseconds / 1e9) if values else []

    def _notice_fork(self) -> None:
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._runs.after_fork()

    def _is_native(self, host: str) -> bool:
        known = self._hosts if self._runtime is None else self._runtime.hosts
        return known.get(host, self._hosts.get(host)) == "attached"


def _cancellation() -> str | None:
    """Return the name of the cancellation that passes through the calling code; else ``None``."""
    raised = sys.exc_info()[0]
    name = None if raised is None else raised.__name__
    return name if name in _CANCELLED else None


def _current_run() -> Around | None:
    handle = enclosing_run()
    return None if handle is None or handle.ended or not handle.recorded else handle


def _outer(context: Any, span_id: int) -> Any:
    """Return the span around one that starts, if it is at hand and has not ended."""
    from opentelemetry import trace

    span = trace.get_current_span(context)
    if not hasattr(span, "start_time") or span.end_time is not None:
        return None
    return span if span.context.span_id == span_id else None


def _start_of(span: Any) -> SpanStart:
    context, parent, scope = span.context, span.parent, span.instrumentation_scope
    return SpanStart(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        None if parent is None else f"{parent.span_id:016x}",
        span.name,
        "" if scope is None else scope.name,
        _seconds(span.start_time),
        attributes_of(span),
        partial(_service, span.resource),
    )


def attributes_of(span: Any) -> Mapping[str, Any]:
    """Return the attributes of a span, as they go on to be set.

    The host's own mapping takes a lock and a few microseconds for each attribute that is read,
    so its dictionary is read directly where it is laid out as in every version so far.
    """
    attributes = getattr(getattr(span, "_attributes", None), "_dict", None)
    if isinstance(attributes, dict):
        return attributes
    return span.attributes or {}


def _service(resource: Any) -> str | None:
    name = None if resource is None else resource.attributes.get("service.name")
    return None if name is None or as_text(name).startswith("unknown_service") else as_text(name)


def _seconds(nanoseconds: int | None) -> float:
    return time.time() if nanoseconds is None else round(nanoseconds / 1e3) / 1e6


FAN_OUTS = ("_active_span_processor", "_multi_log_record_processor")
"""The attributes in which a provider has the object that calls its processors."""

PROCESSORS = ("_span_processors", "_log_record_processors")
"""The attributes in which that object has them."""


class Providers:
    """Adds a processor of ours to the providers of a class, once to each.

    Args:
        processor: The processor that is added.
        add: The name of the provider's method that adds one.
    """

    def __init__(self, processor: object, add: str) -> None:
        self._processor = processor
        self._add = add
        self._with_ours: WeakSet[Any] = WeakSet()

    def watch(self, class_: Any, patches: Patches) -> None:
        """Add ours to the existing providers, and to each new one until that is undone."""
        patches.add(self._remove)
        patches.wrap(class_, "__init__", self._watch_new)
        for provider in instances_of(class_):
            self._take(provider)

    def _remove(self) -> None:
        for provider in [*self._with_ours]:
            with suppress(Exception):
                _without(provider, self._processor)
        self._with_ours.clear()

    def _watch_new(
        self, wrapped: Callable[..., Any], provider: Any, args: Any, kwargs: dict[str, Any]
    ) -> None:
        wrapped(*args, **kwargs)
        self._take(provider)

    def _take(self, provider: Any) -> None:
        try:
            if provider not in self._with_ours:
                getattr(provider, self._add)(self._processor)
                self._with_ours.add(provider)
        except Exception as error:  # noqa: BLE001  # a provider of the host's own kind goes without us
            pass_on(error)


def instances_of(class_: type) -> list[Any]:
    """Return the existing instances of a class and its subclasses.

    No attribute of any of them is read: other people's objects may do anything then.
    """
    classes: list[type] = [class_]
    for kind in classes:
        below: list[type] = type.__subclasses__(kind)
        classes += [sub for sub in below if sub not in classes]
    return [item for item in gc.get_referrers(*classes) if issubclass(type(item), class_)]


def _without(provider: Any, processor: object) -> None:
    for attribute in FAN_OUTS:
        fan_out = vars(provider).get(attribute)
        for name in PROCESSORS:
            processors = getattr(fan_out, name, None)
            if isinstance(processors, tuple) and processor in processors:
                with fan_out._lock:  # noqa: SLF001  # there is no way to take one out
                    left = tuple(item for item in getattr(fan_out, name) if item is not processor)
                    setattr(fan_out, name, left)
