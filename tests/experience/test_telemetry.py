"""What a collector is shown of a run, and a collector that does not answer."""

import gzip
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.experience.world import World

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = pytest.mark.slow


class Collector(ThreadingHTTPServer):
    """A collector of OTLP over HTTP; while it fails, it answers 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fails = False
        self.spans: list[Any] = []
        self.tokens: Counter[str] = Counter()
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
        if self.server.fails:
            self.send_response(503)
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
            self._count(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _count(self, sent: Any) -> None:
        for of in sent.resource_metrics:
            for scope in of.scope_metrics:
                for metric in scope.metrics:
                    assert (metric.name, metric.unit) == ("gen_ai.client.token.usage", "{token}")
                    for point in metric.histogram.data_points:
                        kinds = [a.value.string_value for a in point.attributes
                                 if a.key == "gen_ai.token.type"]  # fmt: skip
                        self.server.tokens[kinds[0]] = int(point.sum)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    own = Collector()
    threading.Thread(target=own.serve_forever, daemon=True).start()
    yield own
    own.shutdown()
    own.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }


def test_a_collector_sees_the_run_as_a_tree(tmp_path: Path, collector: Collector) -> None:
    own = World(tmp_path, "ruled", otlp_endpoint=collector.url)

    run = own.run()

    names = Counter(span.name.partition(" ")[0] for span in collector.spans)
    assert names == {
        "tfgrpo.run": 1, "tfgrpo.epoch": 2, "tfgrpo.step": 2, "tfgrpo.group": 24,
        "tfgrpo.rollout": 96, "chat": 96,
    }  # fmt: skip
    by_id = {span.span_id: span for span in collector.spans}
    assert len(by_id) == len(collector.spans)
    assert len({span.trace_id for span in collector.spans}) == 1
    for span in collector.spans:
        path, inside = [], span
        while inside is not None:
            path.append(inside.name.partition(" ")[0].removeprefix("tfgrpo."))
            inside = by_id.get(inside.parent_span_id)
        whole = ["chat", "rollout", "group", "step", "epoch", "run"]
        assert path == whole[-len(path) :]
    calls = [attributes(span) for span in collector.spans if span.name.startswith("chat ")]
    assert {call["gen_ai.operation.name"] for call in calls} == {"chat"}
    asked = sum(call["gen_ai.usage.input_tokens"] for call in calls)
    assert collector.tokens["input"] == asked > 0
    [whole_run] = [attributes(s) for s in collector.spans if s.name == "tfgrpo.run"]
    assert whole_run["tfgrpo.run_id"] == run.run_id
    assert not any("Pole" in str(attributes(span)) for span in collector.spans)


def test_a_collector_that_fails_delays_no_run_and_changes_nothing(
    tmp_path: Path, collector: Collector
) -> None:
    collector.fails = True
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain = World(tmp_path / "a", "ruled", epochs=1)
    began = time.monotonic()
    first = plain.run()
    took_s = time.monotonic() - began
    own = World(tmp_path / "b", "ruled", epochs=1, otlp_endpoint=collector.url)
    began = time.monotonic()

    second = own.run()

    assert time.monotonic() - began < took_s + 10.0
    assert collector.requests > 0
    assert first.run_id == second.run_id
    assert plain.test(first)["version"] == own.test(second)["version"]


def test_without_an_endpoint_nothing_is_sent(tmp_path: Path, collector: Collector) -> None:
    World(tmp_path, "ruled", epochs=1).run()

    assert collector.requests == 0
