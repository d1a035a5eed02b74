"""What a collector is shown of a run, and a collector that does not answer."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experience.world import World

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tests.collector import Collector, attributes, collecting

pytestmark = pytest.mark.slow


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as own:
        yield own


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
    tokens = collector.metrics["gen_ai.client.token.usage"]
    assert tokens.unit == "{token}"
    sums = {
        attributes(point)["gen_ai.token.type"]: point.sum for point in tokens.histogram.data_points
    }
    assert sums["input"] == asked > 0
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
