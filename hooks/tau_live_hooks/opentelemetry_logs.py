"""Evaluations that come as log records, which is how the conventions tell them of late.

Logs are another part of the host, which may never be imported; without it nothing is watched.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from tau_live.telemetry.values import RESULT, evaluated
from tau_live_hooks.common_text import is_a
from tau_live_hooks.opentelemetry_processor import TauSpanProcessor
from tau_live_hooks.opentelemetry_providers import Providers

MODULE = "opentelemetry.sdk._logs"


class Evaluations:
    """A log record processor of OpenTelemetry, by its methods alone.

    Args:
        processor: What knows of which run a span is.
    """

    def __init__(self, processor: TauSpanProcessor) -> None:
        self._processor = processor

    def on_emit(self, log_record: Any) -> None:
        """See a log record."""
        self._processor.border.safely(self._see, log_record)

    def enabled(self, *, event_name: str | None = None, **_: object) -> bool:
        """Say whether a record is wanted, for the sake of us alone."""
        return is_a(event_name, str) and str.__eq__(event_name, RESULT)

    def shutdown(self) -> None:
        """Keep nothing back that would have to be told."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002  # the host's name
        """Say that nothing has to be waited for."""
        return True

    def _see(self, emitted: Any) -> None:
        record = getattr(emitted, "log_record", emitted)
        attributes = record.attributes
        if not isinstance(attributes, Mapping) and attributes is not None:
            return
        said = dict(attributes or {})
        name = getattr(record, "event_name", None) or said.get("event.name")
        if name != RESULT or not record.trace_id:
            return
        trace, span = f"{record.trace_id:032x}", f"{record.span_id or 0:016x}"
        nanoseconds = record.timestamp or time.time_ns()
        values = {f"{span}@{nanoseconds}:{n}": one for n, one in enumerate(evaluated(said))}
        if values:
            self._processor.valued(trace, span, values, nanoseconds / 1e9)


def watch_logs(evaluations: Evaluations) -> Callable[[], None]:
    """Add ours to every provider of logs, once there are any; return what undoes it."""
    watched: list[Providers] = []
    closed: list[bool] = []

    def imported(module: Any) -> None:
        class_ = getattr(module, "LoggerProvider", None)
        if closed or watched or not hasattr(class_, "add_log_record_processor"):
            return
        providers = Providers(class_, evaluations, add="add_log_record_processor")
        watched.append(providers)
        providers.watch()

    if MODULE in sys.modules:
        imported(sys.modules[MODULE])
    else:
        wrapt.register_post_import_hook(imported, MODULE)

    def unwatch() -> None:
        closed.append(True)
        for providers in watched:
            providers.unwatch()

    return unwatch
