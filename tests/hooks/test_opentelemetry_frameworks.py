"""What is stored of frameworks that only OpenTelemetry sees, by their own SDK, as it was recorded.

Each runs an agent inside of a tool of another one, offline. A recording is compared with what the
versions that it is of do now; delete it to record another.
"""

import asyncio
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import RolloutStatus

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.hooks.opentelemetry_spans import attached, stored

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # theirs are their own

GOLDEN = Path(__file__).parent / "golden" / "frameworks"
OFFLINE = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TESTING": "true",
    "CREWAI_TRACING_ENABLED": "false",
}
PROVIDER = TracerProvider(shutdown_on_exit=False)
"""The one of this process: frameworks keep the tracer that they once got."""


@pytest.fixture
def watched(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    monkeypatch.setenv("XDG_DATA_HOME", str(path.parent))  # where crewai keeps its own data
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDER)
    with attached(path):
        yield path


def shape(path: Path) -> list[dict[str, Any]]:
    """Return the rollouts in their order, with names for ids that differ each time."""
    found = sorted(stored(path).values(), key=lambda one: one[0].started_at or 0.0)
    names = {one.rollout_id: f"{number} {one.name}" for number, (one, _) in enumerate(found)}
    return [
        {
            "run": names[one.rollout_id],
            "inside": names.get(one.parent_id or ""),
            "status": one.status.value,
            "steps": [f"{span.name} {span.status}" for span in spans],
        }
        for one, spans in found
    ]


def check(name: str, found: list[dict[str, Any]], *packages: str) -> None:
    """Compare what was stored with its recording, if that is of these versions, or record it."""
    file, versions = GOLDEN / f"{name}.json", {one: metadata.version(one) for one in packages}
    if not file.exists():
        file.write_text(json.dumps({"versions": versions, "rollouts": found}, indent=1) + "\n")
    recorded = json.loads(file.read_text())
    if recorded["versions"] != versions:
        pytest.skip(f"the recording is of {recorded['versions']}, and these are {versions}")
    assert found == recorded["rollouts"]


def google_adk() -> Any:
    """Return two agents of google-adk, of which the first has the second as its tool."""
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.tools.agent_tool import AgentTool
    from google.genai import types

    class Offline(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            parts = [part for content in llm_request.contents for part in content.parts]
            tools = [*llm_request.tools_dict]
            args = {"request": "look"} if tools == ["looker"] else {"at": 1}
            call = types.FunctionCall(name=tools[0], args=args)
            answered = any(part.function_response for part in parts)
            part = types.Part(text="Seen.") if answered else types.Part(function_call=call)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def look(at: int) -> str:
        return f"seen {at}"

    model = Offline(model="offline")
    looker = LlmAgent(name="looker", model=model, tools=[look])
    return LlmAgent(name="asker", model=model, tools=[AgentTool(looker)])


async def asked(agent: Any, *, closed: bool) -> None:
    """Ask an agent of google-adk; read its events to their end, or close them after the last."""
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="anna")
    message = types.Content(role="user", parts=[types.Part(text="What is there?")])
    events = runner.run_async(user_id="anna", session_id=session.id, new_message=message)
    async for event in events:
        if closed and event.is_final_response():
            await events.aclose()
            return


@pytest.mark.parametrize("closed", [False, True], ids=["read", "closed after the last event"])
def test_google_adk(watched: Path, closed: bool) -> None:
    pytest.importorskip("google.adk")

    asyncio.run(asked(google_adk(), closed=closed))

    found = shape(watched)
    assert {one["status"] for one in found} == {RolloutStatus.SUCCEEDED.value}
    check("google-adk", found, "google-adk")


def llama_index() -> Any:
    """Return two agents of llama-index, of which the first asks the second in its tool."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms.mock import MockFunctionCallingLLM
    from llama_index.core.tools import FunctionTool

    def look(at: int = 1) -> str:
        return f"seen {at}"

    async def looker(request: str = "look") -> str:
        return str(await inner.run(user_msg=request))

    def agent(name: str, tool: Any) -> Any:
        tools = [FunctionTool.from_defaults(tool)]
        return FunctionAgent(name=name, llm=MockFunctionCallingLLM(), tools=tools)

    inner = agent("looker", look)
    return agent("asker", looker)


def test_llama_index(watched: Path) -> None:
    instrumentation = pytest.importorskip("openinference.instrumentation.llama_index")

    async def ask() -> None:
        await llama_index().run(user_msg="What is there?")

    instrumentor = instrumentation.LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=PROVIDER)
    try:
        asyncio.run(ask())
    finally:
        instrumentor.uninstrument()

    check(
        "llama-index", shape(watched),
        "llama-index-core", "openinference-instrumentation-llama-index",
    )  # fmt: skip


def agent_framework() -> Any:
    """Return two agents of agent-framework, of which the first has the second as its tool."""
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionInvocationLayer,
        Message,
    )
    from agent_framework.observability import ChatTelemetryLayer

    class Offline(FunctionInvocationLayer, ChatTelemetryLayer, BaseChatClient):
        def _inner_get_response(
            self, *, messages: Any, stream: bool, options: Any, **_: Any
        ) -> Any:
            said = [part.type for message in messages for part in message.contents]
            tool = options["tools"][0].name
            arguments = {"task": "look"} if tool == "looker" else {"at": 1}
            call = Content.from_function_call("c1", tool, arguments=arguments)
            part = Content.from_text("Seen.") if "function_result" in said else call
            return self._streamed(part) if stream else self._answered(part)

        async def _answered(self, part: Any) -> Any:
            return ChatResponse(messages=[Message(role="assistant", contents=[part])])

        def _streamed(self, part: Any) -> Any:
            async def updates() -> Any:
                yield ChatResponseUpdate(role="assistant", contents=[part])

            return self._build_response_stream(updates())

    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    inner = Agent(client=Offline(), name="looker", tools=[look])
    return Agent(client=Offline(), name="asker", tools=[inner.as_tool()])


def test_agent_framework(watched: Path) -> None:
    pytest.importorskip("agent_framework")

    async def ask() -> None:
        await agent_framework().run("What is there?")

    asyncio.run(ask())

    check("agent-framework", shape(watched), "agent-framework-core")


def crewai() -> Any:
    """Return a crew of crewai, whose agent asks another crew in its tool."""
    from crewai import Agent, BaseLLM, Crew, Task
    from crewai.events.types.llm_events import LLMCallType
    from crewai.llms.base_llm import llm_call_context
    from crewai.tools import tool

    class Offline(BaseLLM):
        def supports_function_calling(self) -> bool:
            return True

        def call(self, messages: Any, tools: Any = None, *_: Any, **__: Any) -> Any:
            name = tools[0]["function"]["name"]
            call = {"id": "c1", "function": {"name": name, "arguments": '{"at": 1}'}}
            answered = any(one["role"] == "tool" for one in messages)
            with llm_call_context():  # as the classes do that crewai has for each provider
                self._emit_call_started_event(messages, tools)
                self._emit_call_completed_event("Seen.", LLMCallType.LLM_CALL, messages=messages)
            return "Seen." if answered else [call]

    @tool
    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    @tool
    def looker(at: int) -> str:
        """Let another crew look."""
        return f"{crew('looker', look).kickoff()} {at}"

    def crew(role: str, used: Any) -> Any:
        model = Offline(model="offline")
        agent = Agent(role=role, goal="See.", backstory="None.", llm=model, tools=[used])
        task = Task(description="What is there?", expected_output="Words.", agent=agent)
        return Crew(name=role, agents=[agent], tasks=[task])

    return crew("asker", looker)


@pytest.mark.parametrize("listens", [False, True], ids=["by its methods", "by its events"])
def test_crewai(watched: Path, listens: bool) -> None:
    instrumentation = pytest.importorskip("openinference.instrumentation.crewai")
    from crewai.events import crewai_event_bus

    instrumentor = instrumentation.CrewAIInstrumentor()
    instrumentor.instrument(tracer_provider=PROVIDER, use_event_listener=listens)
    try:
        crewai().kickoff()
        crewai_event_bus.flush()
    finally:
        instrumentor.uninstrument()

    check(
        "crewai-events" if listens else "crewai", shape(watched),
        "crewai", "openinference-instrumentation-crewai",
    )  # fmt: skip
