"""What is seen of openai-agents, however it is traced, and whoever else looks."""

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.adapters import Detach
from tau_live.rollouts import AttemptStatus, Reason, Rollout, RolloutStatus, Span
from tau_live.settings import Content, Learner, Settings
from tests.live.running import done, opened, process, rollouts

pytest.importorskip("agents.run")

import agents
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    ToolGuardrailFunctionOutput,
    TracingProcessor,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    trace,
)
from agents.retry import ModelRetryBackoffSettings, ModelRetrySettings
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from tau_live_hooks.openai_agents import ADAPTER
from tests.hooks.conformance.openai_agents_play import agent, model

pytestmark = pytest.mark.slow

TRACE = "trace_0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attach, without the host's own processor."""
    agents.set_trace_processors([])
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    assert tau_live.attach(Settings(store=path, learner=Learner.OFF, content=Content.REDACTED))
    detach = ADAPTER.attach(tau_live.attach)
    yield
    detach()
    tau_live.detach()


def ran(asked: Agent[Any], given: Any = "hello", **more: Any) -> Any:
    return asyncio.run(Runner.run(asked, given, **more))


def stored(path: Path) -> list[Rollout]:
    assert tau_live.flush()
    return rollouts(path)


def spans(path: Path, rollout: Rollout, kind: str) -> list[Span]:
    with opened(path) as store:
        found = store.rollouts.spans(rollout.rollout_id)
    return [span for span in found if span.kind == kind]


def ending(rollout: Rollout) -> tuple[RolloutStatus, Reason | None]:
    return rollout.status, rollout.reason


def test_a_run_has_the_id_of_the_trace_that_it_makes(path: Path) -> None:
    config = RunConfig(trace_id=TRACE, group_id="a group", trace_metadata={"customer": "kind"})

    ran(agent("look"), run_config=config)

    [found] = stored(path)
    assert (found.run_id, found.session_id, found.name) == (TRACE, "a group", "player")
    assert found.metadata["customer"] == "kind"
    assert str(found.metadata["task_span_id"]).startswith("span_")


def test_runs_inside_one_trace_have_the_ids_of_their_tasks(path: Path) -> None:
    with trace("both", trace_id=TRACE, group_id="a group"):
        ran(agent())
        ran(agent())

    first, second = stored(path)
    assert first.run_id != second.run_id
    assert {first.run_id[:5], second.run_id[:5]} == {"span_"}
    assert {first.session_id, second.session_id} == {"a group"}
    assert {one.metadata["trace_id"] for one in (first, second)} == {TRACE}


def test_a_second_run_under_the_id_of_a_trace_is_another_rollout(path: Path) -> None:
    config = RunConfig(trace_id=TRACE)

    ran(agent(), run_config=config)
    ran(agent(), run_config=config)

    first, second = stored(path)
    assert first.run_id == TRACE
    assert second.run_id.startswith("span_")


def test_a_failed_run_that_is_tried_again_under_its_id_is_another_attempt(path: Path) -> None:
    config = RunConfig(trace_id=TRACE)
    broken = ScriptedModel([ModelStep.raise_error(ConnectionError("nobody there"))])

    with pytest.raises(ConnectionError):
        ran(agent(model=broken), run_config=config)
    ran(agent(), run_config=config)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    assert found.attempt_count == 2


def test_steps_have_the_ids_of_the_hosts_spans(path: Path) -> None:
    ids: dict[str, list[str]] = {}

    class Ids(TracingProcessor):
        def on_span_start(self, span: Any) -> None:
            ids.setdefault(span.span_data.type, []).append(span.span_id)

        def on_span_end(self, span: Any) -> None: ...
        def on_trace_start(self, trace: Any) -> None: ...
        def on_trace_end(self, trace: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    agents.set_trace_processors([Ids()])

    ran(agent("look"))

    [found] = stored(path)
    for kind, theirs in {"turn": "turn", "model": "generation", "tool": "function"}.items():
        assert [span.span_id for span in spans(path, found, kind)] == ids[theirs]
    [tool] = spans(path, found, "tool")
    assert tool.attributes["call_id"] == "call-0"
    assert tool.parent_span_id == ids["turn"][0]


@pytest.mark.parametrize("by", ["run", "process"])
def test_a_run_without_a_trace_is_told_by_its_hooks(
    path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    config = RunConfig(tracing_disabled=by == "run", group_id="a group")
    inner = agent("fail", name="inner")
    asks = ScriptedModel(
        [[function_call("ask", {"input": "?"}, call_id="c")], [assistant_message("done")]]
    )
    outer = agent(name="outer", model=asks, tools=[inner.as_tool("ask", "Ask.", run_config=config)])
    if by == "process":
        agents.set_tracing_disabled(True)

    try:
        ran(outer, run_config=config)
    finally:
        agents.set_tracing_disabled(False)

    first, second = stored(path)
    assert (first.name, second.name, second.parent_id) == ("outer", "inner", first.rollout_id)
    assert first.session_id == second.session_id == "a group"
    [tool] = spans(path, second, "tool")
    assert (tool.status, tool.attributes["fidelity"]) == ("error", "hooks")
    assert tool.attributes["error"] == {
        "type": "RuntimeError",
        "message": "failed at 0",
        "fatal": False,
    }
    assert len(spans(path, second, "turn")) == 2


def test_a_run_that_waits_goes_on_as_another_attempt(path: Path) -> None:
    made = agent("pay", "look")

    first = ran(made)
    state = first.to_state()
    state.approve(state.get_interruptions()[0])
    ran(made, state)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    with opened(path) as store:
        attempts = store.rollouts.attempts(found.rollout_id)
    assert [one.status for one in attempts] == [AttemptStatus.SUCCEEDED] * 2
    tools = [(span.attempt, span.name, span.status) for span in spans(path, found, "tool")]
    assert sorted(tools) == [
        (1, "tool.look", "ok"),
        (1, "tool.pay", "interrupted"),
        (2, "tool.pay", "ok"),
    ]


def test_a_run_that_waited_is_known_in_another_process(path: Path) -> None:
    made = agent("pay")
    kept = ran(made).to_state().to_json()
    tau_live.detach()
    ids = importlib.import_module("tau_live_hooks.openai_agents_ids").RunIds()

    async def resumed() -> None:
        state = await RunState.from_json(made, kept)
        state.reject(state.get_interruptions()[0])
        await Runner.run(made, state)

    assert tau_live.attach(Settings(store=path, learner=Learner.OFF, content=Content.REDACTED))
    forgotten = run_forgetting(ids)
    try:
        asyncio.run(resumed())
    finally:
        forgotten()

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    assert [(one.attempt, one.status) for one in spans(path, found, "tool")] == [
        (1, "interrupted"),
        (2, "vetoed"),
    ]


def run_forgetting(ids: object) -> Callable[[], None]:
    """Let nothing be remembered of the runs before, as in another process."""
    from agents.run import AgentRunner

    watch = AgentRunner.__dict__["run"]._self_wrapper.__self__
    before, watch._ids = watch._ids, ids

    def undo() -> None:
        watch._ids = before

    return undo


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


def test_too_many_turns_are_a_limit(path: Path) -> None:
    with pytest.raises(agents.MaxTurnsExceeded):
        ran(agent("look"), max_turns=1)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.FAILED, Reason.LIMIT)


def read(asked: Agent[Any], *, until: str = "", mode: Any = "immediate", **more: Any) -> list[str]:
    async def main() -> list[str]:
        result = Runner.run_streamed(asked, "hello", **more)
        seen = []
        async for event in result.stream_events():
            seen.append(getattr(event, "name", None) or getattr(event, "data", event).type)
            if seen[-1] == until:
                result.cancel(mode=mode)
        return seen

    return asyncio.run(main())


@pytest.mark.parametrize("mode", ["immediate", "after_turn"])
def test_a_stream_that_is_cancelled_is_cancelled(path: Path, mode: str) -> None:
    read(agent("look"), until="tool_called", mode=mode)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.CANCELLED, Reason.CANCELLED)


def test_a_streamed_answer_is_told_with_its_first_piece(path: Path) -> None:
    read(agent())

    [found] = stored(path)
    [asked] = spans(path, found, "model")
    assert asked.attributes["streaming"] is True
    assert float(str(asked.attributes["ttft_ms"])) <= float(str(asked.attributes["duration_ms"]))
    assert asked.attributes["usage"] == {"input_tokens": 5.0, "output_tokens": 2.0}


def test_a_request_costs_what_the_price_table_says(path: Path) -> None:
    pytest.importorskip("genai_prices")
    priced: Any = model("look")
    priced.model = "gpt-4o"

    ran(agent(model=priced))

    [found] = stored(path)
    costs = [float(str(one.attributes["cost_usd"])) for one in spans(path, found, "model")]
    assert all(cost > 0.0 for cost in costs)
    assert found.metadata["cost_usd"] == pytest.approx(sum(costs))


def test_a_handoff_is_told_and_names_later_steps(path: Path) -> None:
    asks = ScriptedModel([[function_call("transfer_to_other", {}, call_id="h")]], emit_traces=True)

    ran(agent(name="first", model=asks, handoffs=[agent(name="other")]))

    [found] = stored(path)
    [handed] = spans(path, found, "handoff")
    assert (handed.attributes["from_agent"], handed.attributes["to_agent"]) == ("first", "other")
    assert [one.attributes["agent"] for one in spans(path, found, "model")] == ["first", "other"]


def test_a_model_that_is_asked_again_is_a_retry(path: Path) -> None:
    broken = ScriptedModel(
        [ModelStep.raise_error(ConnectionError("once")), [assistant_message("done")]],
        emit_traces=True,
    )
    again = ModelRetrySettings(
        max_retries=1,
        policy=lambda _context: True,
        backoff=ModelRetryBackoffSettings(initial_delay=0.0, jitter=False),
    )

    ran(agent(model=broken, model_settings=ModelSettings(retry=again)))

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    assert [span.status for span in spans(path, found, "model")] == ["error", "ok"]
    [retry] = spans(path, found, "retry")
    assert (retry.attributes["what"], retry.attributes["number"]) == ("model", 2)


@pytest.mark.parametrize("kept", [True, False])
def test_what_goes_in_and_out_is_kept_only_where_the_host_may_trace_it(
    path: Path, kept: bool
) -> None:
    ran(agent("look"), run_config=RunConfig(trace_include_sensitive_data=kept))

    [found] = stored(path)
    said = [span.attributes.get("content") for span in spans(path, found, "message")]
    assert len(said) == 4
    assert all((one is not None) is kept for one in said)
    [tool] = spans(path, found, "tool")
    assert (tool.status, "result" in tool.attributes) == ("ok", kept)
    assert (found.input is not None) is kept


def test_each_message_is_told_once(path: Path) -> None:
    history = [{"role": "user", "content": "before"}, {"role": "user", "content": "now"}]

    ran(agent("look"), history)

    [found] = stored(path)
    told = [
        (one.attributes["role"], one.attributes["index"]) for one in spans(path, found, "message")
    ]
    assert told == [("user", 0), ("user", 1), ("assistant", 2), ("tool", 3), ("assistant", 4)]


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
    from tau_live_hooks.openai_agents import _places

    return [place.owner.__dict__[place.name] for place in _places()]


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
        "from tau_live_hooks.openai_agents import ADAPTER, _places\n"
        "def now(): return [place.owner.__dict__[place.name] for place in _places()]\n"
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
    assert tau_live.door.current() is None
