"""What a collector of OpenTelemetry is shown of a store, once each and in time."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

import tau_live
from tau_live.core.records import Span
from tau_live.core.settings import Content, Learner, Settings
from tau_live.operate.follow import following
from tau_live.store.opening import open_at
from tests.cli.conftest import Read, Run
from tests.cli.filled import FAILED, SOLVED
from tests.collector import Collector, attributes, collecting
from tests.live.running import until

pytestmark = pytest.mark.slow


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as own:
        yield own


def of(collector: Collector, rollout: str) -> list[Any]:
    """Return the spans of a rollout's trace."""
    [trace] = {
        span.trace_id
        for span in collector.spans
        if attributes(span).get("tau.rollout_id") == rollout and span.name.startswith("invoke")
    }
    return [span for span in collector.spans if span.trace_id == trace]


def test_a_rollout_is_a_tree_with_its_decisions_and_rewards(
    filled: Path, read: Read, collector: Collector
) -> None:
    usage = {"input_tokens": 12, "output_tokens": 4}
    call = Span(
        rollout_id=SOLVED, attempt=1, span_id="m-1", kind="model", name="any", status="ok",
        attributes={"model": "gpt-5-mini", "usage": usage, "cost_usd": 0.25},
        started_at=2.0, ended_at=3.0,
    )  # fmt: skip
    with closing(open_at(filled)) as store:
        store.rollouts.add_spans([call])
    sent: Any = read("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    story: Any = read("show", SOLVED, "--store", filled)

    assert sent["spans"] == len(collector.spans) > 0
    spans = of(collector, SOLVED)
    by_id = {span.span_id: span for span in spans}
    rewards = [span for span in spans if span.name.startswith("tau.reward")]
    assert len(spans) == len(by_id) == len(story["spans"]) + len(rewards)
    assert {span.parent_span_id for span in spans} <= {*by_id, b""}
    decided = {
        attributes(span)["tau.decision_id"]: attributes(span)
        for span in spans
        if span.name.startswith("tau.decide")
    }
    assert len(decided) == len(story["decisions"]) > 0
    for decision in story["decisions"]:
        found = decided[decision["decision_id"]]
        assert found.get("tau.propensity") == decision["propensity"]
        assert found["tau.policy_version"] == decision["policy_version"]
        assert found["tau.options"] == decision["options"]
        assert found.get("tau.probabilities", []) == pytest.approx(decision["probabilities"])
    values = sorted(attributes(span)["gen_ai.evaluation.score.value"] for span in rewards)
    assert values == sorted(r["value"] for r in story["rewards"] if r["value"] is not None)
    [chat] = [span for span in spans if span.name == "chat gpt-5-mini"]
    assert chat.kind == 3  # a client's
    assert attributes(chat).items() >= {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 4, "tau.cost_usd": 0.25,
    }.items()  # fmt: skip
    assert any(span.name == "execute_tool search" for span in spans)
    [failed] = [span for span in of(collector, FAILED) if span.name.startswith("invoke_agent")]
    assert failed.status.code == 2
    assert attributes(failed)["error.type"]


def test_figures_are_those_of_the_metrics(filled: Path, read: Read, collector: Collector) -> None:
    read("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    metrics: Any = read("metrics", "--store", filled)

    expected = {
        metric["name"].removesuffix("_total"): metric["values"] for metric in metrics["metrics"]
    }
    assert collector.metrics.keys() == expected.keys()
    for name, values in expected.items():
        metric = collector.metrics[name]
        points = (metric.gauge if metric.HasField("gauge") else metric.sum).data_points
        if name != "tau_live_written_timestamp_seconds":
            assert {
                (*sorted(attributes(point).items()), point.as_double or float(point.as_int))
                for point in points
            } == {(*sorted(value["labels"].items()), value["value"]) for value in values}, name


def test_what_was_sent_is_not_sent_again(filled: Path, read: Read, collector: Collector) -> None:
    first: Any = read("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    again: Any = read("otlp", "--endpoint", collector.url, "--once", "--store", filled)

    assert first["spans"] > 0
    assert again["spans"] == 0
    read("reward", "0.25", "--run", SOLVED, "--name", "late", "--store", filled)
    late: Any = read("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    assert late["spans"] == 1
    assert collector.spans[-1].name == "tau.reward late"


@pytest.mark.parametrize("failure", [503, 302, 304, 308])
def test_nothing_is_lost_while_the_collector_fails(
    filled: Path, run: Run, read: Read, collector: Collector, failure: int
) -> None:
    collector.fails, collector.failure = True, failure
    failed = run("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    collector.fails = False
    later: Any = read("otlp", "--endpoint", collector.url, "--once", "--store", filled)

    assert failed.exit_code == 1
    assert "waits in the store" in failed.stderr
    assert later["spans"] == len(collector.spans) > 0
    ids = Counter(span.span_id for span in collector.spans)
    assert set(ids.values()) == {1}


def test_a_damaged_row_keeps_nothing_else_back(
    filled: Path, run: Run, collector: Collector
) -> None:
    with closing(sqlite3.connect(filled)) as db, db:
        db.execute("update rollouts set metadata = '{bad' where rollout_id = ?", (SOLVED,))

    done = run("otlp", "--endpoint", collector.url, "--once", "--json", "--store", filled)

    assert "odd_row_skipped" in done.stderr
    assert json.loads(done.stdout)["spans"] == len(collector.spans) > 1
    assert any(span.name.startswith("tau.reward") for span in collector.spans)


def test_a_collector_that_takes_no_metrics_is_a_failure_of_once(
    filled: Path, run: Run, collector: Collector
) -> None:
    run("otlp", "--endpoint", collector.url, "--once", "--store", filled)
    collector.fails = True
    failed = run("otlp", "--endpoint", collector.url, "--once", "--store", filled)

    assert failed.exit_code == 1
    assert "no metrics" in failed.stderr


def test_one_process_follows_a_store(filled: Path, run: Run, collector: Collector) -> None:
    with following(filled):
        refused = run("otlp", "--endpoint", collector.url, "--once", "--store", filled)

    assert refused.exit_code == 1
    assert "another process sends" in refused.stderr
    assert collector.spans == []


def test_no_text_is_sent(lived: Path, read: Read, collector: Collector) -> None:
    store = lived.parent / "texts.sqlite"
    tau_live.detach()
    os.environ["TAU_LIVE_RL"] = "1"
    tau_live.attach(Settings(store=store, learner=Learner.OFF, content=Content.REDACTED))
    try:
        with tau_live.run("triage", key=1, metadata={"customer": "Miller-Lee"}) as found:
            found.decide("model", ["a", "b"], context={"question": "Miller-Lee"})
            found.reward(1.0, comment="Miller-Lee is happy")
        with pytest.raises(ValueError, match="Miller"), tau_live.run("triage", key=2):
            raise ValueError("Miller-Lee is not there")
        assert tau_live.flush(30)
    finally:
        tau_live.detach()
        del os.environ["TAU_LIVE_RL"]

    read("otlp", "--endpoint", collector.url, "--once", "--store", store)

    assert len(collector.spans) >= 4
    assert not any("Miller" in str(span) for span in collector.spans)


def test_it_follows_a_store_until_it_is_stopped(
    tmp_path: Path, collector: Collector, read: Read
) -> None:
    store = tmp_path / "store.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tau_live.cli", "otlp", "--endpoint", collector.url,
         "--every", "0.2", "--store", str(store)],
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=eu"},
    )  # fmt: skip
    agent = (
        "import tau_live\n"
        "for number in range(5):\n"
        "    with tau_live.run('triage', key=number) as run:\n"
        "        run.decide('model', ['a', 'b'])\n"
        "        run.reward(1.0)\n"
        "assert tau_live.flush(30)\n"
    )
    environ = {**os.environ, "TAU_LIVE_RL": "1", "TAU_LIVE_RL_STORE": str(store)}
    subprocess.run([sys.executable, "-c", agent], check=True, env=environ)

    until(lambda: len(collector.spans) == 15)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "is shown to" in said
    assert collector.headers["x-tenant"] == "eu"
    assert "tau_live_rollouts" in collector.metrics
    remembered = json.loads(store.with_name("store.sqlite.otlp").read_text())
    assert len(remembered["rollouts"]) == 5
