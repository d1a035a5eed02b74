"""What is seen of openai-agents, however it is traced."""

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import AttemptStatus, Reason, RolloutStatus
from tau_live.core.settings import Content, Learner, Settings
from tests.live.running import opened

pytest.importorskip("agents.run")

import agents
from agents import (
    ModelSettings,
    OpenAIConversationsSession,
    RunConfig,
    Runner,
    RunState,
    TracingProcessor,
    trace,
)
from agents.retry import ModelRetryBackoffSettings, ModelRetrySettings
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai import APIConnectionError, AsyncOpenAI

from tests.hooks.conformance.openai_agents_play import agent, model
from tests.hooks.openai_agents_runs import attached, ending, ran, read, spans, stored

pytestmark = pytest.mark.slow

TRACE = "trace_0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with attached(path, monkeypatch):
        yield


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


def test_a_run_in_a_session_that_has_no_id_yet_is_seen(path: Path) -> None:
    client = AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:1", max_retries=0)
    session = OpenAIConversationsSession(openai_client=client)

    with pytest.raises(APIConnectionError):  # it asks the service for its id
        ran(agent(), session=session)

    [found] = stored(path)
    assert found.session_id is None
    assert ending(found) == (RolloutStatus.FAILED, Reason.ERROR)


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
    ids = importlib.import_module("tau_live_hooks.openai_agents_record").RunIds()

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


def test_too_many_turns_are_a_limit(path: Path) -> None:
    with pytest.raises(agents.MaxTurnsExceeded):
        ran(agent("look"), max_turns=1)

    [found] = stored(path)
    assert ending(found) == (RolloutStatus.FAILED, Reason.LIMIT)


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
