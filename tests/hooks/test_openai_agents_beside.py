"""What is seen of openai-agents where others look too, or stop it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import Reason, RolloutStatus
from tau_live.runtime.adapters import Detach
from tests.live.running import done, opened, process

pytest.importorskip("agents.run")

import agents
from agents import (
    GuardrailFunctionOutput,
    RunConfig,
    RunHooks,
    ToolGuardrailFunctionOutput,
    TracingProcessor,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.testing import ScriptedModel, function_call

from tau_live_hooks.openai_agents import ADAPTER
from tests.hooks.conformance.openai_agents_play import agent
from tests.hooks.openai_agents_runs import attached, ending, ran, read, spans, stored

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with attached(path, monkeypatch):
        yield


@input_guardrail
def refuses(context: Any, asked: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@output_guardrail
def rejects(context: Any, asked: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


@output_guardrail
def passes(context: Any, asked: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


@pytest.mark.parametrize("streamed", [False, True], ids=["returned", "streamed"])
@pytest.mark.parametrize("off", [False, True], ids=["traced", "not traced"])
@pytest.mark.parametrize(
    ("guards", "stage", "name"),
    [
        pytest.param({"input_guardrails": [refuses]}, "input", "refuses", id="input"),
        pytest.param({"output_guardrails": [rejects]}, "output", "rejects", id="output"),
    ],
)
def test_a_tripwire_ends_a_run_as_blocked(
    path: Path, guards: dict[str, Any], stage: str, name: str, off: bool, streamed: bool
) -> None:
    asked, config = agent(**guards), RunConfig(tracing_disabled=off)

    with pytest.raises(agents.AgentsException):
        read(asked, run_config=config) if streamed else ran(asked, run_config=config)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.FAILED, Reason.SAFETY_BLOCKED)
    [policy] = spans(path, found, "policy")
    assert {key: policy.attributes[key] for key in ("stage", "blocked", "rules")} == {
        "stage": stage,
        "blocked": True,
        "rules": [name],
    }


def test_a_guardrail_that_lets_pass_is_told(path: Path) -> None:
    ran(agent(output_guardrails=[passes]))

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    [policy] = spans(path, found, "policy")
    assert policy.attributes["stage"] == "output"
    assert "blocked" not in policy.attributes or policy.attributes["blocked"] is False


@pytest.mark.parametrize(
    ("behaviour", "reason", "tool"),
    [
        pytest.param("reject_content", Reason.COMPLETED, "vetoed", id="its model is told"),
        pytest.param("raise_exception", Reason.SAFETY_BLOCKED, "error", id="the run ends"),
    ],
)
def test_guardrails_of_tools_are_told(
    path: Path, behaviour: str, reason: Reason, tool: str
) -> None:
    @tool_input_guardrail
    def guards(data: Any) -> ToolGuardrailFunctionOutput:
        if behaviour == "reject_content":
            return ToolGuardrailFunctionOutput.reject_content("not this one")
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[guards])
    def look(place: int) -> str:
        return f"seen {place}"

    try:
        ran(agent("look", tools=[look]))
    except agents.AgentsException:
        assert reason is Reason.SAFETY_BLOCKED

    [found] = stored(path)
    assert found.reason is reason
    assert [span.status for span in spans(path, found, "tool")] == [tool]
    [policy] = spans(path, found, "policy")
    assert (policy.attributes["stage"], policy.attributes["blocked"]) == ("tool", True)


class Loud(RunHooks):
    """Notes every callback, and which tool's call it was."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.seen.append(f"agent {agent.name}")

    async def on_llm_start(self, context: Any, agent: Any, system: Any, items: Any) -> None:
        self.seen.append(f"asked {system} {len(items)}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.seen.append(f"answered {len(response.output)}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.seen.append(f"{tool.name} {context.tool_call_id}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.seen.append(f"{tool.name} {result}")

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.seen.append(f"{from_agent.name} to {to_agent.name}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.seen.append(f"over {output}")


class Notes(TracingProcessor):
    """Notes every span, and in which order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        self.seen.append("trace")

    def on_trace_end(self, trace: Any) -> None:
        self.seen.append("trace over")

    def on_span_start(self, span: Any) -> None:
        self.seen.append(span.span_data.type)

    def on_span_end(self, span: Any) -> None:
        self.seen.append(f"{span.span_data.type} over {span.error}")

    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


def heard() -> tuple[list[str], list[str]]:
    hooks, notes = Loud(), Notes()
    agents.set_trace_processors([notes])
    other = agent("fail", name="other")
    asks = ScriptedModel(
        [[function_call("look", {"place": 0}, call_id="c")],
         [function_call("transfer_to_other", {}, call_id="h")]],
        emit_traces=True,
    )  # fmt: skip
    ran(agent(name="first", model=asks, handoffs=[other]), hooks=hooks)
    return hooks.seen, notes.seen


def test_the_users_own_hooks_and_processors_hear_what_they_did(path: Path) -> None:
    with_us = heard()
    tau_live.detach()

    ADAPTER.attach(lambda: None)()  # which is nothing, while the other is attached
    without = heard()

    assert with_us == without
    assert len(with_us[0]) > 10


def test_hooks_that_are_none_are_refused_as_the_host_does(path: Path) -> None:
    with pytest.raises(TypeError, match=r"Received agent-scoped hooks \(AgentHooks"):
        ran(agent(), hooks=agents.AgentHooks())

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.FAILED, Reason.ERROR)


def test_hooks_of_the_user_that_fail_end_the_run_as_they_do(path: Path) -> None:
    class Failing(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            raise LookupError("theirs")

    with pytest.raises(LookupError, match="theirs"):
        ran(agent(), hooks=Failing())

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.FAILED, Reason.ERROR)


def test_it_is_seen_beside_an_exclusive_processor(path: Path) -> None:
    instrumentation = pytest.importorskip("openinference.instrumentation.openai_agents")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    theirs = instrumentation.OpenAIAgentsInstrumentor()
    theirs.instrument(tracer_provider=provider)
    try:
        ran(agent("look"))
    finally:
        theirs.uninstrument()

    kinds = [span.attributes["openinference.span.kind"] for span in exporter.get_finished_spans()]
    assert sorted(kinds).count("LLM") == 2
    assert "TOOL" in kinds
    [found] = stored(path)
    assert len(spans(path, found, "model")) == 2
    assert len(spans(path, found, "tool")) == 1


def places() -> list[object]:
    from tau_live_hooks.openai_agents import _targets

    return [owner.__dict__[name] for owner, name, _ in _targets()]


def test_attaching_again_adds_nothing_and_detaching_puts_all_back(
    path: Path, request: pytest.FixtureRequest
) -> None:
    again: list[Detach] = [ADAPTER.attach(tau_live.attach) for _ in range(2)]
    seen = places()

    ran(agent())
    for detach in again:
        detach()

    assert places() == seen
    assert len(stored(path)) == 1
    assert all(getattr(one, "_self_tau_live", None) is not None for one in seen)


def test_detaching_leaves_nothing_behind(path: Path) -> None:
    code = (
        "from tau_live_hooks.openai_agents import ADAPTER, _targets\n"
        "def now(): return [owner.__dict__[name] for owner, name, _ in _targets()]\n"
        "before = now()\n"
        "detach = ADAPTER.attach(lambda: None)\n"
        "assert all(one is not two for one, two in zip(before, now()))\n"
        "detach(); detach()\n"
        "assert all(one is two for one, two in zip(before, now()))\n"
        "import importlib, agents.run\n"
        "detach = ADAPTER.attach(lambda: None)\n"
        "importlib.reload(agents.run)\n"
        "fresh = agents.run.AgentRunner.__dict__['run']\n"
        "detach()\n"
        "assert agents.run.AgentRunner.__dict__['run'] is fresh\n"
        "print('as before')\n"
    )

    with process(code, path) as running:
        assert done(running) == "as before\n"


def test_a_layout_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.run_internal import run_loop

    monkeypatch.delattr(run_loop, "get_model")

    assert ADAPTER.probe() == "run_loop.get_model(agent, run_config)"


def test_a_tool_knows_the_run_it_is_in(path: Path) -> None:
    @function_tool
    def look(place: int) -> str:
        tau_live.reward(1.0, name="seen")
        return "seen"

    ran(agent("look", tools=[look]))

    [found] = stored(path)
    with opened(path) as store:
        given = store.rewards.rewards(found.rollout_id)
    assert ("seen", 1.0) in {(one.name, one.value) for one in given}
    assert tau_live.runtime.api.current() is None
