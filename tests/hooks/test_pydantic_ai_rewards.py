"""Rewards for runs of pydantic-ai: by its own ids, and by plugins that judge what they see."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.hookspecs import RewardPart, RolloutSummary, hookimpl
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import Settings
from tests.live.running import rewards, rollout

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tau_live_hooks.pydantic_ai import ADAPTER

pytestmark = pytest.mark.slow


@pytest.fixture
def attached(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(Settings(store=path))
    detach = ADAPTER.attach(lambda: runtime)
    yield path
    detach()
    tau_live.detach()


def asked(agent: Agent[Any, Any], **more: Any) -> Any:
    return asyncio.run(agent.run("what is baked?", **more))


def earned(path: Path, run_id: str) -> dict[str, float | None]:
    assert tau_live.flush(30)
    return {one.name: one.value for one in rewards(path, rollout_id_of("pydantic-ai", run_id))}


def test_user_feedback_comes_by_the_runs_own_id_or_that_of_its_conversation(
    attached: Path,
) -> None:
    first = asked(Agent(TestModel()))
    second = asked(Agent(TestModel()), message_history=first.all_messages())

    tau_live.reward(0.25, host="pydantic-ai", run=first.run_id, name="stars")
    tau_live.reward(1.0, session=second.conversation_id, name="stars")

    assert first.conversation_id == second.conversation_id
    assert earned(attached, first.run_id)["stars"] == 0.25
    assert earned(attached, second.run_id)["stars"] == 1.0


def test_feedback_comes_by_the_id_of_a_models_response(attached: Path) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("rye")], provider_response_id="response-7")

    tau_live.reward(0.5, host="pydantic-ai", run="response-7", name="early")
    result = asked(Agent(FunctionModel(answer)))
    tau_live.reward(1.0, host="pydantic-ai", run="response-7", name="late")

    found = earned(attached, result.run_id)
    assert (found["early"], found["late"]) == (0.5, 1.0)


def test_a_tool_values_its_own_run(attached: Path) -> None:
    agent: Agent[Any, Any] = Agent(TestModel())

    @agent.tool
    def bake(ctx: RunContext[Any]) -> str:
        assert ctx.run_id is not None
        tau_live.reward(1.0, host="pydantic-ai", run=ctx.run_id, name="baked")
        tau_live.reward(2.0, name="again")  # of the current run
        return "rye"

    result = asked(agent)

    found = earned(attached, result.run_id)
    assert (found["baked"], found["again"]) == (1.0, 2.0)


class Judge:
    """Values a run by what its tools and models did."""

    def __init__(self) -> None:
        self.seen: list[RolloutSummary] = []

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> list[RewardPart]:
        self.seen.append(summary)
        tools = [span for span in summary.spans if span.kind == "tool"]
        return [RewardPart(name="tools", value=float(len(tools)))]


def test_a_rewarder_sees_the_finished_run_with_its_spans(attached: Path) -> None:
    judge = Judge()
    runtime = tau_live.attach()
    assert runtime is not None
    runtime.plugins.register(judge, name="judge")
    agent: Agent[Any, Any] = Agent(TestModel())
    agent.tool_plain(lambda grain: grain, name="bake")
    agent.tool_plain(lambda: "hot", name="look")

    result = asked(agent)

    assert earned(attached, result.run_id) == {"inferred": 2.0}
    assert rollout(attached, judge.seen[0].rollout_id).total_reward == 2.0
    [summary] = judge.seen
    assert (summary.host, summary.run_id) == ("pydantic-ai", result.run_id)
    assert summary.session_id == result.conversation_id
    assert [span.name for span in summary.spans if span.kind == "tool"] == [
        "tool.bake",
        "tool.look",
    ]
    assert [span.kind for span in summary.spans].count("model") == 2
    assert all(span.status == "ok" for span in summary.spans if span.kind == "tool")
    assert summary.metadata["turns"] == 2
