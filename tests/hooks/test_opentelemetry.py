"""What is stored of real spans, however they begin and end."""

import asyncio
import gc
import inspect
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.boot.hosts import version_of
from tau_live.core.records import Reason, RolloutStatus, rollout_id_of
from tests.live.running import rewards, rollouts

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tau_live_hooks.opentelemetry import ADAPTER, probe
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


async def streaming() -> AsyncGenerator[int]:
    with tracer().start_as_current_span("invoke_agent anna", attributes=AGENT):
        yield 1
        yield 2


async def read() -> None:
    async for _ in streaming():
        pass


async def close() -> None:
    async with aclosing(streaming()) as events:
        await anext(events)


async def drop() -> None:
    async for _ in streaming():
        break
    gc.collect()
    for _ in range(3):  # turns of the loop, which closes what was dropped
        await asyncio.sleep(0)


async def cancel() -> None:
    async def cancelled() -> None:
        with tracer().start_as_current_span("invoke_agent anna", attributes=AGENT):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    task = asyncio.create_task(cancelled())
    await started.wait()
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("reader", "status"),
    [
        (read, RolloutStatus.SUCCEEDED),
        (close, RolloutStatus.SUCCEEDED),
        (drop, RolloutStatus.SUCCEEDED),
        (cancel, RolloutStatus.CANCELLED),
    ],
)
def test_an_agent_that_streams_ends_as_its_reader_lets_it(
    watched: Any, path: Path, reader: Any, status: RolloutStatus
) -> None:
    with suppress(asyncio.CancelledError):
        asyncio.run(reader())

    [(rollout, _)] = stored(path).values()
    assert rollout.status is status


def test_what_cleans_up_behind_a_cancellation_is_not_cancelled(watched: Any, path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            with tracer().start_as_current_span("invoke_agent", attributes=AGENT):
                pass

    [(rollout, _)] = stored(path).values()
    assert rollout.status is RolloutStatus.SUCCEEDED


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


@pytest.mark.parametrize("spoilt", ["emit", "_runs"])
def test_what_fails_in_us_reaches_nobody(
    watched: Any, monkeypatch: pytest.MonkeyPatch, spoilt: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("on purpose")

    provider, exporter = made()
    processor = provider._active_span_processor._span_processors[0]
    target: Any = watched if spoilt == "emit" else processor._runs
    for name in (
        ("emit",) if spoilt == "emit" else ("start_span", "end_span", "flush", "span_start")
    ):
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
        "gen_ai.usage.reasoning.output_tokens": -5,
        "llm.cost.total": -1.0,
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
    [model] = [span for span in spans if span.kind == "model"]
    assert (model.status, model.attributes.get("usage")) == ("ok", None)
    assert model.attributes.get("cost_usd") is None


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
