"""What is stored of frameworks that only OpenTelemetry sees, by their own SDK, as it was recorded.

Each runs an agent inside of a tool of another one, offline. A recording is compared with what the
version that it is of does now; delete it to record another.
"""

import asyncio
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tau_live.rollouts import RolloutStatus

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from tests.hooks.opentelemetry_spans import attached, stored

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # theirs are their own

GOLDEN = Path(__file__).parent / "golden" / "frameworks"
PROVIDER = TracerProvider(shutdown_on_exit=False)
"""The one of this process: frameworks keep the tracer that they once got."""


@pytest.fixture
def watched(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
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


def check(framework: str, found: list[dict[str, Any]]) -> None:
    """Compare what was stored with the recording of this version; record where there is none."""
    file, version = GOLDEN / f"{framework}.json", metadata.version(framework)
    if not file.exists():
        kept = {"version": version, "rollouts": found}
        file.write_text(json.dumps(kept, indent=1) + "\n")
    recorded = json.loads(file.read_text())
    if recorded["version"] != version:
        pytest.skip(f"the recording is of {recorded['version']}, and this is {version}")
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
    check("google-adk", found)
