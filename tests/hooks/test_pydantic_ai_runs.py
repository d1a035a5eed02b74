"""What is stored of runs of pydantic-ai that wait, go on, are tried again, filtered or streamed."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import Span
from tau_live.core.settings import Content, Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.runtime.runtime import start
from tau_live.testing.expected import Recorded, recorded_in

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tau_live_hooks.pydantic_ai import ADAPTER
from tau_live_hooks.pydantic_ai_record import PREPARES

pytestmark = pytest.mark.slow


@contextmanager
def attached(path: Path, **more: Any) -> Iterator[Settings]:
    settings = Settings(store=path, learner=Learner.FLUSH, **more)
    runtime = start({}, settings)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)
    try:
        yield settings
    finally:
        detach()
        runtime.flush(30.0)
        runtime.close(30.0)


def paying(steps: int) -> Agent[Any, Any]:
    """An agent that wants to pay so many times, each time with somebody's approval."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        paid = sum(message.kind == "response" for message in messages)
        if paid < steps:
            return ModelResponse(parts=[ToolCallPart("pay", {}, tool_call_id=f"call-{paid}")])
        return ModelResponse(parts=[TextPart("paid")])

    agent: Agent[Any, Any] = Agent(
        FunctionModel(answer), name="payer", output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "done"

    return agent


async def going_on(agent: Agent[Any, Any], kept: bytes) -> Any:
    """Go on with a history that somebody stored, with everything approved of."""
    history = ModelMessagesTypeAdapter.validate_json(kept)
    last = history[-1]
    assert isinstance(last, ModelResponse)
    approvals = {part.tool_call_id: True for part in last.parts if part.part_kind == "tool-call"}
    return await agent.run(
        message_history=history, deferred_tool_results=DeferredToolResults(approvals=approvals)
    )


def test_a_run_that_waits_twice_is_one_rollout_in_any_process(path: Path) -> None:
    with attached(path):
        kept = asyncio.run(paying(2).run("pay twice")).all_messages_json()
    for _ in range(2):
        with attached(path) as settings:
            result = asyncio.run(going_on(paying(2), kept))
            kept = result.all_messages_json()

    [one] = recorded_in(settings)

    assert result.output == "paid"
    assert (one.rollout.status, one.rollout.reason) == ("succeeded", "completed")
    assert [attempt.number for attempt in one.attempts] == [1, 2, 3]
    assert one.statuses("tool") == ["ok", "ok"]


def test_a_run_waits_for_a_tool_that_is_run_elsewhere(path: Path) -> None:
    agent: Agent[Any, Any] = Agent(
        TestModel(), name="sender", output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain
    def send() -> str:
        raise CallDeferred

    async def main() -> Any:
        asked = await agent.run("send it")
        [call] = asked.output.calls
        results = DeferredToolResults(calls={call.tool_call_id: "it arrived"})
        history = asked.all_messages()
        return await agent.run(message_history=history, deferred_tool_results=results)

    with attached(path) as settings:
        result = asyncio.run(main())
    [one] = recorded_in(settings)
    [waited, went_on] = one.of("run")

    assert "it arrived" in result.output
    assert one.statuses("tool") == ["interrupted"]
    assert (waited.attributes["reason"], waited.attempt, went_on.attempt) == ("external", 1, 2)


def test_a_run_that_began_before_us_goes_on_as_a_rollout(path: Path) -> None:
    kept = asyncio.run(paying(1).run("pay once")).all_messages_json()

    with attached(path) as settings:
        asyncio.run(going_on(paying(1), kept))
    [one] = recorded_in(settings)

    assert (one.rollout.status, one.rollout.name) == ("succeeded", "payer")
    assert [attempt.number for attempt in one.attempts] == [1]


def test_a_run_that_nobody_goes_on_with_is_interrupted(path: Path) -> None:
    with attached(path) as settings:
        asyncio.run(paying(1).run("pay once"))

    [one] = recorded_in(settings)

    assert (one.rollout.status, one.rollout.reason) == ("failed", "interrupted")


def test_a_later_run_of_a_conversation_is_a_rollout_of_its_own(path: Path) -> None:
    with attached(path) as settings:
        first = asyncio.run(paying(0).run("hello"))
        asyncio.run(paying(0).run("again", message_history=first.all_messages()))

    stored = recorded_in(settings)

    assert [len(one.attempts) for one in stored] == [1, 1]
    assert len({one.rollout.session_id for one in stored}) == 1


def test_an_answer_that_was_filtered_is_told_as_a_policy(path: Path) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[], finish_reason="content_filter")

    with attached(path) as settings, suppress(Exception):
        asyncio.run(Agent(FunctionModel(answer)).run("something bad"))
    [one] = recorded_in(settings)
    [told] = one.of("policy")

    assert told.attributes["rules"] == ["content_filter"]
    assert told.attributes["blocked"] is True


@pytest.mark.skipif(not PREPARES, reason="this version tries no request of a model again")
def test_an_attempt_at_a_model_is_a_retry(path: Path) -> None:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import RetryModelRequest

    tries: list[int] = []

    class Stubborn(AbstractCapability[Any]):
        async def on_model_request_error(
            self, ctx: Any, *, request_context: Any, error: Exception
        ) -> ModelResponse:
            raise RetryModelRequest

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("nobody there")
        return ModelResponse(parts=[TextPart("done")])

    with attached(path) as settings:
        asyncio.run(Agent(FunctionModel(answer), capabilities=[Stubborn()]).run("hello"))
    [one] = recorded_in(settings)

    assert one.rollout.status == "succeeded"
    assert [span.attributes["what"] for span in one.of("retry")] == ["model"]


async def piece_by_piece(agent: Agent[Any, Any]) -> str:
    async with agent.run_stream("hello") as result:
        return "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])


@pytest.mark.parametrize("act", [False, True])
def test_a_stream_stays_one_and_says_when_it_began(path: Path, act: bool) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for piece in ("one ", "two"):
            yield piece

    told = DeclaredDecision(point="prompt", options={"kind": "Be kind."})
    with attached(path, act=act, decisions=(told,)) as settings:
        said = asyncio.run(piece_by_piece(Agent(FunctionModel(stream_function=stream))))
    one: Recorded
    [one] = recorded_in(settings)
    [asked] = one.of("model")

    assert said == "one two"
    assert asked.attributes["streaming"] is True
    if PREPARES:
        assert 0.0 < float(str(asked.attributes["ttft_ms"])) < 60_000.0


def test_calls_that_share_an_id_are_calls_of_their_own(path: Path) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(message.kind == "response" for message in messages)
        if step < 3:
            return ModelResponse(parts=[ToolCallPart("look", {"at": step}, tool_call_id="same")])
        return ModelResponse(parts=[TextPart("seen")])

    agent: Agent[Any, Any] = Agent(FunctionModel(answer), name="looker")

    @agent.tool_plain
    def look(at: int) -> str:
        return f"seen {at}"

    with attached(path, content=Content.REDACTED) as settings:
        asyncio.run(agent.run("look"))

    tools = found(settings).of("tool")
    assert [span.attributes["call_id"] for span in tools] == ["same"] * 3
    assert [text_of(span, "result") for span in tools] == ["seen 0", "seen 1", "seen 2"]
    assert {span.status for span in tools} == {"ok"}


def text_of(span: Span, name: str) -> object:
    content = span.attributes[name]
    return content["text"] if isinstance(content, dict) else content


def found(settings: Settings) -> Recorded:
    [only] = recorded_in(settings)
    return only


def test_a_call_refused_before_its_tool_is_kept_beside_one_of_the_same_id(path: Path) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(message.kind == "response" for message in messages)
        if step < 3:
            given = {"at": "nowhere" if step == 1 else step}
            return ModelResponse(parts=[ToolCallPart("look", given, tool_call_id="same")])
        return ModelResponse(parts=[TextPart("seen")])

    agent: Agent[Any, Any] = Agent(FunctionModel(answer), name="looker")

    @agent.tool_plain
    def look(at: int) -> str:
        return f"seen {at}"

    with attached(path) as settings:
        asyncio.run(agent.run("look"))

    tools = found(settings).of("tool")
    assert [span.status for span in tools] == ["ok", "retry", "ok"]


def test_an_agent_that_runs_while_another_is_prepared_is_a_run_of_its_own(path: Path) -> None:
    class Preparing(AbstractCapability[Any]):
        async def for_run(self, ctx: Any) -> Any:
            await Agent(TestModel(), name="inner").run("prepare")
            return self

    with attached(path) as settings:
        asyncio.run(Agent(TestModel(), name="outer", capabilities=[Preparing()]).run("hello"))

    assert [one.rollout.name for one in recorded_in(settings)] == ["inner", "outer"]
    assert [one.statuses("model") for one in recorded_in(settings)] == [["ok"], ["ok"]]


def test_an_agent_that_was_run_is_not_kept(path: Path) -> None:
    with attached(path):
        agent: Agent[Any, Any] = Agent(TestModel(), name="short-lived")
        asyncio.run(agent.run("hello"))
        kept = weakref.ref(agent)

        del agent
        gc.collect()

        assert kept() is None


@pytest.mark.parametrize("entered", [False, True])
@pytest.mark.parametrize("chosen", ["test:one", lambda _: "test:one"], ids=["name", "selector"])
def test_a_model_is_made_and_entered_as_often_as_without_us(
    path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Any, entered: bool
) -> None:
    class Selecting(AbstractCapability[Any]):
        def get_model(self) -> Any:
            return chosen

    class Counted(TestModel):
        async def __aenter__(self) -> Any:
            done.append("entered")
            return await super().__aenter__()

    def infer(model: Any, *_: Any, **__: Any) -> Any:
        done.append("made")
        return Counted()

    async def play() -> None:
        agent: Agent[Any, Any] = Agent(None, name="chooser", capabilities=[Selecting()])
        agent.tool_plain(look)
        async with agent if entered else nullcontext():
            await agent.run("hello")
            await agent.run("again")

    def look() -> str:
        return "seen"

    done: list[str] = []
    monkeypatch.setattr("pydantic_ai.models.infer_model", infer)
    asyncio.run(play())
    alone = [*done]
    done.clear()
    with attached(path):
        asyncio.run(play())

    assert done == alone
    assert "made" in done
