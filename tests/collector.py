"""A collector of OpenTelemetry that decodes what it is sent by OpenTelemetry's own messages."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(ThreadingHTTPServer):
    """A collector of OTLP over HTTP; while it fails, it answers ``failure``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fails = False
        self.failure = 503
        self.spans: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.requests = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Reads what it is sent."""

    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests += 1
        self.server.headers = dict(self.headers)
        if self.server.fails:
            self.send_response(self.server.failure)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/v1/traces":
            sent = ExportTraceServiceRequest.FromString(body)
            self.server.spans += [
                span
                for of in sent.resource_spans
                for scope in of.scope_spans
                for span in scope.spans
            ]
        elif self.path == "/v1/metrics":
            self._keep(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _keep(self, sent: Any) -> None:
        for of in sent.resource_metrics:
            for scope in of.scope_metrics:
                self.server.metrics |= {metric.name: metric for metric in scope.metrics}

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector, and end it."""
    own = Collector()
    threading.Thread(target=own.serve_forever, daemon=True).start()
    yield own
    own.shutdown()
    own.server_close()


def attributes(sent: Any) -> dict[str, Any]:
    """Return the attributes of a span or of a point."""
    found = {}
    for each in sent.attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        if kind == "array_value":
            value = [getattr(one, one.WhichOneof("value")) for one in value.values]
        found[each.key] = value
    return found
