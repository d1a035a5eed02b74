"""Real providers and real spans: what is stored of them, and that nobody else notices."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.hosts import version_of
from tau_live.importing.log import LogSource, import_log
from tau_live.rollouts import Reason, Rollout, RolloutStatus, Span, rollout_id_of
from tau_live.settings import Learner, Settings
from tests.live.running import opened, rewards, rollouts

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tau_live_hooks.opentelemetry import ADAPTER, probe

pytestmark = pytest.mark.slow

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "anna"}
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "large",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.tool.definitions": '[{"type": "function", "name": "look"}]',
    "gen_ai.response.model": "large-2",
    "gen_ai.response.id": "r-1",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.usage.cache_read.input_tokens": 2,
    "gen_ai.output.messages": json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "Hello."},
                    {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}},
                ],
            }
        ]
    ),
    "acme.region": "north",
}
LLM = {
    "openinference.span.kind": "LLM",
    "llm.provider": "acme",
    "llm.model_name": "large-2",
    "llm.invocation_parameters": '{"temperature": 0.5}',
    "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "look"}}',
    "llm.token_count.prompt": 7,
    "llm.token_count.completion": 3,
    "llm.token_count.total": 10,
    "llm.token_count.prompt_details.cache_read": 2,
    "llm.finish_reason": "stop",
    "llm.output_messages.0.message.content": "Hello.",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"at":1}',
}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.tool.call.id": "c1",
    "gen_ai.tool.call.arguments": '{"at": 1}',
    "gen_ai.tool.call.result": "seen",
}


@contextmanager
def attached(path: Path) -> Iterator[Any]:
    """Attach the adapter to a system of its own."""
    tau_live.detach()
    runtime = tau_live.attach(Settings(store=path, learner=Learner.FLUSH))
    assert runtime is not None
    detach = ADAPTER.attach(tau_live.door.in_force)
    try:
        yield runtime
    finally:
        detach()
        tau_live.detach()


@pytest.fixture
def watched(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    monkeypatch.setenv("TAU_LIVE_RL_STORE", str(path))  # for a forked child
    with attached(path) as runtime:
        yield runtime


def made(**how: Any) -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return a provider as a program makes it, and what its exporter got."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, **how)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def tracer(scope: str = "acme", **how: Any) -> Any:
    return made(**how)[0].get_tracer(scope)


def stored(path: Path) -> dict[str, tuple[Rollout, list[Span]]]:
    """Return the rollouts by the host's key, with their spans."""
    assert tau_live.flush()
    with opened(path) as store:
        return {one.run_id: (one, store.rollouts.spans(one.rollout_id)) for one in rollouts(path)}


def key(span: Any) -> str:
    return f"{span.get_span_context().trace_id:032x}"


def id_(span: Any) -> str:
    return f"{span.get_span_context().span_id:016x}"


def test_the_host_is_as_the_adapter_needs_it() -> None:
    assert probe() is None


def test_its_version_is_that_of_its_package() -> None:
    import opentelemetry.sdk.trace

    found = version_of(ADAPTER.host, opentelemetry.sdk.trace)

    assert found == metadata.version("opentelemetry-sdk")


@pytest.mark.parametrize("said", [CHAT, LLM], ids=["GenAI", "OpenInference"])
def test_a_models_answer_is_told_in_full(watched: Any, path: Path, said: dict[str, Any]) -> None:
    with tracer().start_as_current_span("invoke_agent anna", attributes=AGENT) as agent:
        with tracer().start_as_current_span("chat", attributes=said) as chat:
            pass

    [(rollout, spans)] = stored(path).values()
    model = next(span for span in spans if span.kind == "model")
    found = model.attributes
    assert (rollout.run_id, rollout.name, rollout.session_id) == (key(agent), "anna", key(agent))
    assert (model.span_id, model.parent_span_id) == (id_(chat), id_(agent))
    assert (found["provider"], found["model_used"]) == ("acme", "large-2")
    assert found["params"] == {"temperature": 0.5}
    assert found["tools_offered"] == ["look"]
    assert found["finish_reasons"] == ["stop"]
    assert found["usage"] == {
        "input_tokens": 7.0, "output_tokens": 3.0, "cache_read_tokens": 2.0,
    }  # fmt: skip
    assert isinstance(found["tool_calls"], list)
    assert [(one["id"], one["name"]) for one in found["tool_calls"]] == [("c1", "look")]
    assert found["output"] is not None
    assert rollout.metadata["usage"] == found["usage"]
    assert rollout.metadata["turns"] == 1


def test_what_has_no_place_of_its_own_is_kept_beside(watched: Any, path: Path) -> None:
    with tracer().start_as_current_span("chat", attributes=CHAT):
        pass

    [(_, spans)] = stored(path).values()
    raw = next(span.attributes["raw"] for span in spans if span.kind == "model")
    assert isinstance(raw, dict)
    assert raw["acme.region"] == "north"
    assert not any("messages" in name for name in raw)


def test_a_tools_call_is_told_with_its_error(watched: Any, path: Path) -> None:
    with tracer().start_as_current_span("invoke_agent", attributes=AGENT):
        with pytest.raises(ValueError, match="broken"):
            with tracer().start_as_current_span("execute_tool look", attributes=TOOL):
                raise ValueError("broken")

    [(rollout, spans)] = stored(path).values()
    [tool] = [span for span in spans if span.kind == "tool"]
    assert (tool.name, tool.status, tool.attributes["call_id"]) == ("tool.look", "error", "c1")
    assert isinstance(tool.attributes["error"], dict)
    assert tool.attributes["error"]["type"] == "ValueError"
    assert rollout.status is RolloutStatus.SUCCEEDED


def test_a_guardrail_that_blocks_is_a_policy(watched: Any, path: Path) -> None:
    said = {"openinference.span.kind": "GUARDRAIL", "output.value": '{"tripwire_triggered": true}'}

    with tracer().start_as_current_span("invoke_agent", attributes=AGENT):
        with tracer().start_as_current_span("polite", attributes=said):
            pass

    [(_, spans)] = stored(path).values()
    [policy] = [span for span in spans if span.kind == "policy"]
    assert policy.attributes["blocked"] is True
    assert policy.attributes["rules"] == ["polite"]


def test_a_handoff_is_one(watched: Any, path: Path) -> None:
    said = {"openinference.span.kind": "TOOL", "input.value": "first", "output.value": "second"}

    with tracer().start_as_current_span("first", attributes=AGENT):
        with tracer().start_as_current_span("handoff to second", attributes=said):
            pass

    [(_, spans)] = stored(path).values()
    [handoff] = [span for span in spans if span.kind == "handoff"]
    assert handoff.attributes["to_agent"] == "second"
    assert handoff.attributes["from_agent"] == "first"


def test_evaluations_are_rewards_of_the_run(watched: Any, path: Path) -> None:
    scored = {
        "gen_ai.evaluation.name": "tone",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "fair",
        "gen_ai.evaluation.explanation": "neither nor",
    }

    with tracer().start_as_current_span("invoke_agent", attributes=AGENT) as agent:
        with tracer().start_as_current_span("chat", attributes=CHAT) as chat:
            chat.add_event("gen_ai.evaluation.result", scored)
        agent.set_attribute("tau.reward", 1.0)
        agent.set_attribute("tau.reward.name", "solved")

    assert set(stored(path)) == {key(agent)}
    found = {one.name: one for one in rewards(path, rollout_id_of("opentelemetry", key(agent)))}
    assert (found["tone"].value, found["tone"].label) == (0.5, "fair")
    assert found["solved"].value == 1.0


def test_an_evaluation_may_come_as_a_log_record_long_after(watched: Any, path: Path) -> None:
    logs = pytest.importorskip("opentelemetry.sdk._logs")
    from opentelemetry._logs import LogRecord

    if "event_name" not in inspect.signature(LogRecord).parameters:
        pytest.skip("log records of this version have no name")
    provider = logs.LoggerProvider(shutdown_on_exit=False)
    with tracer().start_as_current_span("invoke_agent", attributes=AGENT) as agent:
        with tracer().start_as_current_span("chat", attributes=CHAT) as chat:
            context = trace.set_span_in_context(chat)

    provider.get_logger("judge").emit(
        LogRecord(
            context=context,
            event_name="gen_ai.evaluation.result",
            attributes={
                "gen_ai.evaluation.name": "tone",
                "gen_ai.evaluation.score.value": 0.25,
            },
        )
    )

    stored(path)
    found = rewards(path, rollout_id_of("opentelemetry", key(agent)))
    assert [(one.name, one.value) for one in found if one.name == "tone"] == [("tone", 0.25)]


def test_what_a_run_leaves_open_is_closed_with_it(watched: Any, path: Path) -> None:
    own = tracer()
    with own.start_as_current_span("invoke_agent", attributes=AGENT):
        own.start_span("chat", attributes=CHAT)

    [(rollout, spans)] = stored(path).values()
    [model] = [span for span in spans if span.kind == "model"]
    assert (model.status, model.ended_at is not None) == ("unknown", True)
    assert rollout.status is RolloutStatus.SUCCEEDED


def test_a_run_that_never_ends_is_abandoned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    with attached(path):
        own = tracer()
        own.start_span("invoke_agent", attributes=AGENT)

    [rollout] = rollouts(path)
    assert (rollout.status, rollout.reason) == (RolloutStatus.FAILED, Reason.ABANDONED)


def test_a_cancelled_task_cancels_its_run(watched: Any, path: Path) -> None:
    async def agent(started: asyncio.Event) -> None:
        with tracer().start_as_current_span("invoke_agent", attributes=AGENT):
            started.set()
            await asyncio.Event().wait()

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.ensure_future(agent(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    [(rollout, _)] = stored(path).values()
    assert (rollout.status, rollout.reason) == (RolloutStatus.CANCELLED, Reason.CANCELLED)


def test_runs_of_threads_and_tasks_stay_apart(watched: Any, path: Path) -> None:
    own, barrier = tracer(), threading.Barrier(4)

    async def agent(number: int) -> None:
        with own.start_as_current_span("invoke_agent", attributes=AGENT):
            await asyncio.sleep(0)
            with own.start_as_current_span(f"chat {number}", attributes=CHAT):
                await asyncio.sleep(0)

    async def two() -> None:
        await asyncio.gather(agent(1), agent(2))

    def run() -> None:
        barrier.wait()
        asyncio.run(two())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = stored(path)
    assert len(found) == 8
    assert {len([s for s in spans if s.kind == "model"]) for _, spans in found.values()} == {1}
    assert {rollout.status for rollout, _ in found.values()} == {RolloutStatus.SUCCEEDED}


def test_a_thread_without_its_context_goes_into_a_run_of_its_own(watched: Any, path: Path) -> None:
    own = tracer()

    def ask() -> None:
        with own.start_as_current_span("chat", attributes=CHAT):
            pass

    with own.start_as_current_span("invoke_agent", attributes=AGENT):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    found = [rollout for rollout, _ in stored(path).values()]
    assert sorted(str(one.metadata["fidelity"]) for one in found) == ["end_only", "inferred"]


def test_a_trace_that_is_not_sampled_is_not_seen(watched: Any, path: Path) -> None:
    provider, exporter = made(sampler=ALWAYS_OFF)

    with provider.get_tracer("acme").start_as_current_span("invoke_agent", attributes=AGENT):
        pass

    assert stored(path) == {}
    assert exporter.get_finished_spans() == ()


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


@pytest.mark.parametrize("spoilt", ["emit", "_runs"])
def test_what_fails_in_us_reaches_nobody(
    watched: Any, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("on purpose")

    provider, exporter = made()
    processor = provider._active_span_processor._span_processors[0]
    target: Any = watched if spoilt == "emit" else processor._runs
    for name in ("emit",) if spoilt == "emit" else ("begun", "ended", "hurried", "remembered"):
        monkeypatch.setattr(target, name, fail)

    with provider.get_tracer("acme").start_as_current_span("invoke_agent", attributes=AGENT):
        with provider.get_tracer("acme").start_as_current_span("chat", attributes=CHAT):
            pass
    provider.shutdown()

    assert [span.name for span in exporter.get_finished_spans()] == ["chat", "invoke_agent"]


def test_attributes_that_no_convention_foresees_hurt_nobody(watched: Any, path: Path) -> None:
    odd = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": "many",
        "gen_ai.usage.output_tokens": float("nan"),
        "gen_ai.output.messages": '[{"parts": 1}, 2, {"parts": [{"type": "tool_call"}]}]',
        "gen_ai.tool.definitions": "[1, {}, null]",
        "gen_ai.response.finish_reasons": (),
        "gen_ai.request.model": "\ud800",
        "llm.invocation_parameters": "{",
    }

    with tracer().start_as_current_span("chat", attributes=odd):
        pass

    [(rollout, spans)] = stored(path).values()
    assert rollout.status is RolloutStatus.SUCCEEDED
    assert [span.status for span in spans if span.kind == "model"] == ["ok"]


def test_spans_inside_a_run_of_ours_are_its_steps(watched: Any, path: Path) -> None:
    with tau_live.run("mine", key="1") as run:
        with tracer().start_as_current_span("chat", attributes=CHAT):
            pass

    [(rollout, spans)] = stored(path).values()
    assert (rollout.rollout_id, rollout.host) == (run.id, "tau_live")
    assert [span.kind for span in spans] == ["model"]


def test_an_agent_inside_a_run_of_ours_is_a_run_inside_of_it(watched: Any, path: Path) -> None:
    with tau_live.run("mine", key="1") as run:
        with tracer().start_as_current_span("invoke_agent", attributes=AGENT) as agent:
            pass

    assert stored(path)[key(agent)][0].parent_id == run.id


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
    detach = NATIVE.attach(tau_live.door.in_force)
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
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")},
        "TAU_LIVE_RL": "1",
        "TAU_LIVE_RL_STORE": str(tmp_path / "live.db"),
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }

    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
    [rollout] = rollouts(tmp_path / "live.db")
    assert (rollout.host, rollout.status) == ("opentelemetry", RolloutStatus.SUCCEEDED)
