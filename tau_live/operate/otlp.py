"""OpenTelemetry's own spans and exporters: what is shown to a collector by OTLP over HTTP.

The names are those of the GenAI conventions, which are experimental: of version 1.37. Ids are made
of those of the store, so that the same thing sent twice is the same span.
"""

import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live.core.errors import TauLiveError
from tau_live.core.version import packages_for, this_version

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

TIMEOUT_S = 5
Times = tuple[float, float]


class Otlp(NamedTuple):
    """The ways to a collector.

    Attributes:
        spans: Sends spans.
        meters: Sends what its meters measure, once a minute.
        resource: Who sends it.
        refuses: Set while the collector takes no metrics.
    """

    spans: "SpanExporter"
    meters: "MeterProvider"
    resource: "Resource"
    refuses: threading.Event

    def span(  # noqa: PLR0913, PLR0917  # what a span has
        self,
        name: str,
        context: "SpanContext",
        parent: "SpanContext | None",
        times: Times,
        attributes: Mapping[str, Any],
        *,
        scope: str,
        is_client: bool = False,
        failed: bool = False,
    ) -> "ReadableSpan":
        """Return a span.

        Args:
            name: Its name.
            context: Its ids.
            parent: Those of the span around it; ``None`` for a root.
            times: When it began and ended, epoch seconds.
            attributes: Its attributes; those that are ``None`` are left out.
            scope: The module that it is of.
            is_client: Whether it is a call of another service.
            failed: Whether it failed.
        """
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanKind, Status, StatusCode

        return ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self.resource,
            attributes={key: value for key, value in attributes.items() if value is not None},
            kind=SpanKind.CLIENT if is_client else SpanKind.INTERNAL,
            start_time=round(times[0] * 1e9),
            end_time=round(times[1] * 1e9),
            status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
            instrumentation_scope=InstrumentationScope(scope, this_version()),
        )


def connect(endpoint: str) -> Otlp:
    """Return the ways to a collector; it is not called yet.

    Headers, compression and certificates are those of ``OTEL_EXPORTER_OTLP_...``.

    Args:
        endpoint: Its base URL, such as ``http://127.0.0.1:4318``.

    Raises:
        TauLiveError: The packages that it needs are not installed.
    """
    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import (
            MetricExportResult,
            MetricsData,
            PeriodicExportingMetricReader,
        )
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise TauLiveError(
            f"OTLP needs more packages ({error}): pip install {packages_for('otel-export')}"
        ) from error
    refuses = threading.Event()

    class Metrics(OTLPMetricExporter):  # type: ignore[misc]  # it has no types
        """Notes whether the collector took what was sent last."""

        def export(
            self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: object
        ) -> MetricExportResult:
            result = super().export(metrics_data, timeout_millis, **more)
            (refuses.clear if result is MetricExportResult.SUCCESS else refuses.set)()
            return result

    base, session = endpoint.rstrip("/"), requests.Session()
    session.hooks["response"].append(_refuse_redirects)
    resource = Resource.create({"service.name": "tau-live", "service.version": this_version()})
    reader = PeriodicExportingMetricReader(
        Metrics(endpoint=f"{base}/v1/metrics", timeout=TIMEOUT_S, session=session)
    )
    spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=TIMEOUT_S, session=session)
    return Otlp(spans, MeterProvider([reader], resource=resource), resource, refuses)


def _refuse_redirects(response: "requests.Response", **_: object) -> None:
    """Make a redirect a refusal: the exporters take every status below 400 for a success."""
    if 300 <= response.status_code < 400:
        response.reason = f"answered with {response.status_code}, not taken"
        response.status_code = 400


def context_of(trace: str, span: str) -> "SpanContext":
    """Return the ids of a span, made of those of what it is of: the same whenever it is sent."""
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(
        int.from_bytes(sha256(trace.encode()).digest()[:16]),
        int.from_bytes(sha256(f"{trace}\0{span}".encode()).digest()[:8]),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def call_attributes(name: str, span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a model call.

    Args:
        name: Its model, unless its attributes say that.
        span: Its attributes as stored.
    """
    known = span.get("usage")
    usage = known if isinstance(known, Mapping) else {}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": str(span.get("model") or name),
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
    }
