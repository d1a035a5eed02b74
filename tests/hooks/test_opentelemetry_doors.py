"""Which spans are seen: of every provider, beside other adapters, in every process, in logs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import Rollout, RolloutStatus, Span
from tau_live.core.settings import Learner, Settings
from tau_live.runtime.importing.log import LogSource, import_log
from tests.live.running import rollouts

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.hooks.opentelemetry_spans import (
    AGENT,
    CHAT,
    LLM,
    TOOL,
    attached,
    id_,
    key,
    made,
    stored,
    tracer,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def watched(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    monkeypatch.setenv("TAU_LIVE_RL_STORE", str(path))  # for a forked child
    with attached(path) as runtime:
        yield runtime


def test_providers_made_before_us_are_watched_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")

    class Own(TracerProvider):
        pass

    exporter = InMemorySpanExporter()
    before = Own(shutdown_on_exit=False)
    before.add_span_processor(SimpleSpanProcessor(exporter))
    own = before.get_tracer("acme")
    outer = own.start_span("invoke_agent", attributes=AGENT)
    with attached(path):
        with trace.use_span(outer, end_on_exit=True):
            with own.start_as_current_span("chat", attributes=CHAT):
                pass
        found = stored(path)

    assert set(found) == {key(outer)}
    assert [span.kind for span in found[key(outer)][1] if span.kind == "model"] == ["model"]
    assert [span.name for span in exporter.get_finished_spans()] == ["chat", "invoke_agent"]


def test_detaching_leaves_providers_as_they_were(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    init = TracerProvider.__init__
    with attached(path):
        provider, exporter = made()
        during = len(provider._active_span_processor._span_processors)

    with provider.get_tracer("acme").start_as_current_span("invoke_agent", attributes=AGENT):
        pass

    assert during == 2
    assert len(provider._active_span_processor._span_processors) == 1
    assert TracerProvider.__init__ is init
    assert len(exporter.get_finished_spans()) == 1
    assert rollouts(path) == []


def test_no_provider_is_ever_set(watched: Any) -> None:
    made()

    assert trace._TRACER_PROVIDER is None


def test_a_provider_that_takes_no_processor_goes_without_us(watched: Any) -> None:
    class Refuses(TracerProvider):
        def add_span_processor(self, span_processor: object) -> None:
            raise RuntimeError("none of yours")

    provider = Refuses(shutdown_on_exit=False)

    with provider.get_tracer("acme").start_as_current_span("invoke_agent", attributes=AGENT):
        pass


def test_a_framework_with_an_adapter_of_its_own_is_told_once(watched: Any, path: Path) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    from tau_live_hooks.pydantic_ai import ADAPTER as NATIVE

    provider, _ = made()
    other, sdk = provider.get_tracer("other.framework"), provider.get_tracer("provider.sdk")

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        with sdk.start_as_current_span("seen twice", attributes=CHAT):
            pass
        calls = [ToolCallPart("look", {}, tool_call_id="c1")]
        return ModelResponse(parts=calls if len(messages) == 1 else [TextPart("done")])

    agent: Agent[Any, Any] = Agent(FunctionModel(answer), name="native")

    def look() -> str:
        with other.start_as_current_span(
            "pipeline", attributes={"openinference.span.kind": "CHAIN"}
        ):
            with other.start_as_current_span("chat", attributes=LLM):
                pass
        return "seen"

    agent.tool_plain(look)
    detach = NATIVE.attach(tau_live.runtime.api.in_force)
    watched.hosts["pydantic-ai"] = "attached"
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        run_id = asyncio.run(agent.run("hello")).run_id
    finally:
        Agent.instrument_all(False)
        detach()

    found = stored(path)
    [inner] = [rollout for key_, (rollout, _) in found.items() if key_ != run_id]
    native, spans = found[run_id]
    assert (native.host, inner.name, inner.parent_id) == (
        "pydantic-ai",
        "pipeline",
        native.rollout_id,
    )
    assert len([span for span in spans if span.kind == "model"]) == 2
    assert [span.kind for span in found[inner.run_id][1]] == ["model", "turn"]


def test_a_forked_child_tells_its_own_spans_alone(watched: Any, path: Path) -> None:
    own = tracer()
    with own.start_as_current_span("invoke_agent", attributes=AGENT) as agent:
        child = os.fork()
        if child == 0:  # pragma: no cover  # another process
            code = 1
            try:
                with own.start_as_current_span("chat", attributes=CHAT):
                    pass
                agent.end()
                tau_live.detach()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        running = stored(path)[key(agent)][0].status

    rollout, spans = stored(path)[key(agent)]
    assert running is RolloutStatus.RUNNING
    assert rollout.status is RolloutStatus.SUCCEEDED
    assert [span.kind for span in spans if span.kind == "model"] == ["model"]


def as_line(spans: Any) -> str:
    """Return spans as OpenTelemetry's collector writes them."""

    def value(of: Any) -> dict[str, Any]:
        if isinstance(of, tuple):
            return {"arrayValue": {"values": [value(one) for one in of]}}
        kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
        return {kinds[type(of)]: str(of) if type(of) is int else of}

    def listed(of: Any) -> list[dict[str, Any]]:
        return [{"key": name, "value": value(one)} for name, one in (of or {}).items()]

    told = [
        {
            "traceId": key(span),
            "spanId": id_(span),
            "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
            "name": span.name,
            "startTimeUnixNano": str(span.start_time),
            "endTimeUnixNano": str(span.end_time),
            "status": {"code": span.status.status_code.value},
            "attributes": listed(span.attributes),
            "events": [
                {"name": one.name, "attributes": listed(one.attributes)} for one in span.events
            ],
        }
        for span in spans
    ]
    scope = {"scope": {"name": "acme"}, "spans": told}
    return json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}) + "\n"


def test_an_imported_log_tells_what_was_seen_live(watched: Any, path: Path, tmp_path: Path) -> None:
    provider, exporter = made()
    own = provider.get_tracer("acme")
    with own.start_as_current_span("invoke_agent anna", attributes=AGENT):
        with own.start_as_current_span("chat", attributes=LLM):
            pass
        with own.start_as_current_span("execute_tool look", attributes=TOOL):
            with own.start_as_current_span("invoke_agent", attributes=AGENT) as inner:
                with pytest.raises(ValueError, match="broken"):
                    with own.start_as_current_span("chat", attributes=LLM):
                        raise ValueError("broken")
                inner.add_event("gen_ai.evaluation.result", {"gen_ai.evaluation.score.value": 0.5})
    log = tmp_path / "spans.jsonl"
    log.write_text(as_line(exporter.get_finished_spans()))
    settings = Settings(store=tmp_path / "imported.sqlite", learner=Learner.OFF)

    import_log(LogSource(path=str(log)), settings, progress=lambda _done, _of: None)

    live, imported = stored(path), stored(settings.store)
    assert set(live) == set(imported)
    for run_id, (rollout, spans) in live.items():
        again, its = imported[run_id]
        assert outlined(rollout, spans) == outlined(again, its)


def outlined(rollout: Rollout, spans: list[Span]) -> Any:
    """Return all that a rollout holds but for the adapter that told it, and the order."""
    metadata = {name: value for name, value in rollout.metadata.items() if name != "service"}
    kept = [
        (span.span_id, span.parent_span_id, span.kind, span.name, span.status, span.attributes)
        for span in spans
    ]
    head = (rollout.rollout_id, rollout.parent_id, rollout.session_id, rollout.name, rollout.status)
    return head, metadata, rollout.input, sorted(kept, key=lambda one: (one[2], one[0]))


AGENT_FILE = """
import sys
from opentelemetry import trace
if "own" in sys.argv:
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("acme").start_as_current_span(
    "invoke_agent anna", attributes={"gen_ai.operation.name": "invoke_agent"}
):
    print("ran")
"""
RUN = [sys.executable, "-m", "tau_live.cli", "run", "--", sys.executable, "agent.py", "own"]


@pytest.mark.parametrize("how", ["run", "opentelemetry-instrument"])
def test_a_program_is_seen_through_each_door(tmp_path: Path, how: str) -> None:
    (tmp_path / "agent.py").write_text(AGENT_FILE)
    command = RUN
    if how != "run":
        pytest.importorskip("opentelemetry.distro")
        program = Path(sys.executable).with_name("opentelemetry-instrument")
        command = [str(program), sys.executable, "agent.py"]
    done = done_by(command, tmp_path)

    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
    [rollout] = rollouts(tmp_path / "live.db")
    assert (rollout.host, rollout.status) == ("opentelemetry", RolloutStatus.SUCCEEDED)


def done_by(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")},
        "TAU_LIVE_RL": "1",
        "TAU_LIVE_RL_STORE": str(folder / "live.db"),
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


LATE_FILE = """
import sys
from opentelemetry import trace

tracer = trace.get_tracer(sys.argv[1])
for number in range(3):
    with tracer.start_as_current_span("invoke_agent anna"):
        pass
if "later" in sys.argv:
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())
    with tracer.start_as_current_span("invoke_agent anna") as span:
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
print("opentelemetry.sdk.trace" in sys.modules)
"""


@pytest.mark.parametrize(("more", "seen"), [([], 0), (["later"], 1)], ids=["never", "later"])
def test_agents_without_a_provider_are_reported_until_there_is_one(
    tmp_path: Path, more: list[str], seen: int
) -> None:
    (tmp_path / "agent.py").write_text(LATE_FILE)
    cli = [sys.executable, "-m", "tau_live.cli"]

    done = done_by([*cli, "run", "--", sys.executable, "agent.py", "acme", *more], tmp_path)
    doctor = done_by([*cli, "doctor", "--json"], tmp_path)

    told = [
        check
        for check in json.loads(doctor.stdout)["checks"]
        if "no TracerProvider" in check["found"]
    ]
    assert (done.stdout, done.returncode) == (f"{bool(more)}\n", 0), done.stderr
    assert done.stderr.count("no TracerProvider is set") == 1
    assert len(told) == 1 - seen
    assert len(rollouts(tmp_path / "live.db") if seen else []) == seen
