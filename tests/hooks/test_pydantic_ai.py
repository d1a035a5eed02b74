"""What is decided before pydantic-ai asks a model, and what the row says of it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.prompts import trial_of_prompt
from tau_live.core.records import Decision, RolloutQuery, Trial, rollout_id_of
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward, Never
from tau_live.operate.trials import Order, expose
from tau_live.runtime.adapters import options
from tau_live.testing.expected import Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version
from tests.adopted import BETTER, adopt, publish
from tests.live.running import decisions, opened

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from tau_live_hooks.pydantic_ai import ADAPTER
from tau_live_hooks.pydantic_ai_record import PREPARES
from tests.hooks.conformance.pydantic_ai_play import play

pytestmark = pytest.mark.slow


def said(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer with what was asked of the model."""
    temperature = (info.model_settings or {}).get("temperature")
    return ModelResponse(parts=[TextPart(f"{info.instructions!r} at {temperature}")])


class Forced:
    """Answers every decision with the same option."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


OWN = FunctionModel(said, model_name="mirror")
PROMPTS = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})
PARAMS = DeclaredDecision(point="params", options={"cool": {"temperature": 0.0}})


def settings(path: Path, *told: DeclaredDecision, **more: Any) -> Settings:
    given: dict[str, Any] = {"store": path, "act": True, "decisions": told, **more}
    return Settings(
        learner=Learner.FLUSH,
        decide_deadline_ms=given.pop("decide_deadline_ms", 60_000.0),
        rewards=(DeclaredReward(name="good"),),
        **given,
    )


@contextmanager
def acting(
    wanted: Settings,
    monkeypatch: pytest.MonkeyPatch,
    *points: str,
    forced: str = "",
    ask: Callable[[], Any] | None = None,
) -> Iterator[None]:
    """Attach, and let the learner decide everything at these points, beyond its shadow."""
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(wanted)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)
    try:
        for point in points:
            (ask or question)()
            assert tau_live.flush()
            with opened(wanted.store) as store:
                expose(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
        if points:
            tau_live.detach()
            detach()
            runtime = tau_live.attach(wanted)
            detach = ADAPTER.attach(lambda: runtime)
        if forced and runtime is not None:
            runtime.plugins.register(Forced(forced), name="forced")
        yield
    finally:
        detach()
        tau_live.detach()


def question(metadata: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Ask the agent one question and value the run; return the host's own result."""
    agent: Agent[Any, Any] = Agent(OWN, name="asker", instructions="Be good.")
    result = asyncio.run(agent.run("hello", metadata=dict(metadata or {}), **more))
    tau_live.reward(1.0, run=rollout_id_of("pydantic-ai", result.run_id), name="good")
    return result


def decided(path: Path, result: Any) -> list[Decision]:
    assert tau_live.flush()
    return decisions(path, rollout_id_of("pydantic-ai", result.run_id))


def test_a_new_point_begins_in_shadow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, PROMPTS), monkeypatch):
        result = question()

        [row] = decided(path, result)

    assert result.output == "'Be good.' at None"
    assert (row.point, row.options, row.default) == ("prompt", ("kind", "own"), "own")
    assert (row.applied, row.why_not, row.source) == ("own", "control", "default")


def test_without_act_nothing_is_decided(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, PROMPTS, act=False), monkeypatch):
        result = question()

        assert decided(path, result) == []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        pytest.param(PROMPTS, "'Be good. Be kind.' at None", id="prompt"),
        pytest.param(PARAMS, "'Be good.' at 0.0", id="params"),
    ],
)
def test_what_was_chosen_is_what_the_model_gets(
    path: Path, monkeypatch: pytest.MonkeyPatch, told: DeclaredDecision, shown: str
) -> None:
    [name] = told.options

    with acting(settings(path, told), monkeypatch, told.point, forced=name):
        result = question()
        [row] = decided(path, result)

    assert result.output == shown
    assert (row.applied, row.source, row.why_not) == (name, "policy", None)


def test_an_adopted_prompt_reaches_the_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = DeclaredDecision(point="prompt", options_from="resources")
    with opened(path) as store:
        version = publish(store, BETTER)

    with acting(settings(path, told), monkeypatch, "prompt", forced=version):
        result = question()
        [row] = decided(path, result)

    assert result.output == "'Be good. Be exact.' at None"
    assert (row.applied, row.source, row.why_not) == (version, "policy", None)


def test_an_adopted_prompt_that_is_withheld_does_not_reach_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = DeclaredDecision(point="prompt", options_from="resources")
    with opened(path) as store:
        version = adopt(store, BETTER)
        trial = Trial(point=trial_of_prompt(version), exposure=1e-9, revision=1)
        store.trials.save(trial)

    with acting(settings(path, told), monkeypatch, "prompt", forced=version):
        result = question()
        [row] = decided(path, result)
        with opened(path) as store:
            assigned = store.trials.assignments(trial.point, after=0, limit=9)

    assert result.output == "'Be good.' at None"
    assert (row.options, row.allowed) == ((version, "own"), ("own",))
    assert [one.arm for one in assigned] == ["control"]


@pytest.mark.parametrize(
    ("forced", "applied", "why_not", "shown"),
    [
        pytest.param("test", "test", None, "success (no tool calls)", id="swapped"),
        pytest.param("no-such:model", None, "error: ", "'Be good.' at None", id="cannot be made"),
        pytest.param("thing", None, "error: TypeError", "'Be good.' at None", id="is no model"),
        pytest.param("own", "own", None, "'Be good.' at None", id="the host's own"),
    ],
)
def test_a_model_is_swapped_where_it_can_be(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forced: str,
    applied: str | None,
    why_not: str | None,
    shown: str,
) -> None:
    told = DeclaredDecision(
        point="model",
        options={"test": "test", "no-such:model": "no-such:model", "thing": object()},
    )

    with acting(settings(path, told), monkeypatch, "model", forced=forced):
        result = question()
        [row] = decided(path, result)

    assert (row.chosen, row.applied) == (forced, applied)
    assert (row.why_not or "").startswith(why_not or "")
    assert (row.why_not is None) == (why_not is None)
    assert result.output == shown


@pytest.mark.parametrize("forced", ["test", "own"])
def test_what_a_capability_behind_us_replaces_was_not_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch, forced: str
) -> None:
    class Always(AbstractCapability[Any]):
        async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
            request_context.model = TestModel(custom_output_text="always")
            return request_context

    told = DeclaredDecision(point="model", options={"test": "test"})

    with acting(settings(path, told), monkeypatch, "model", forced=forced):
        result = question(capabilities=[Always()])
        [row] = decided(path, result)

    assert result.output == "always"
    assert (row.applied, row.why_not, row.source) == (None, "replaced", "default")


def shelf(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the first tool that is offered, and then say what came of it."""
    parts = [part for part in messages[-1].parts if part.part_kind == "tool-return"]
    told = [part for part in parts if getattr(part, "outcome", "") != "retried"]
    if told or not info.function_tools:
        names = [tool.name for tool in info.function_tools]
        return ModelResponse(parts=[TextPart(f"{names}: {[part.content for part in told]}")])
    return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {})])


def use(**more: Any) -> Any:
    """Ask an agent that has two tools, of which the second fails at first."""
    agent: Agent[Any, Any] = Agent(FunctionModel(shelf), name="asker")
    failed: list[str] = []

    @agent.tool_plain
    def look() -> str:
        return "seen"

    @agent.tool_plain
    def take() -> str:
        failed.append("take")
        if len(failed) == 1:
            raise RuntimeError("slipped")
        return "taken"

    result = asyncio.run(agent.run("hello", **more))
    tau_live.reward(1.0, run=rollout_id_of("pydantic-ai", result.run_id), name="good")
    return result


LESS = DeclaredDecision(point="tools", options={"less": ["take", "no such"], "none": []})
GATE = DeclaredDecision(point="tool_gate", options={"veto": "Not now."})
AGAIN = DeclaredDecision(point="retry", options={"again": True, "stop": False})


@pytest.mark.parametrize(
    ("told", "forced", "shown", "applied"),
    [
        pytest.param(LESS, "none", "[]: []", ["none"], id="no tool"),
        pytest.param(LESS, "own", "['look', 'take']: ['seen']", ["own"], id="all tools"),
        pytest.param(GATE, "veto", "['look', 'take']: ['Not now.']", ["veto"], id="vetoed"),
        pytest.param(GATE, "own", "['look', 'take']: ['seen']", ["own"], id="not vetoed"),
    ],
)
def test_tools_are_taken_away_and_vetoed(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: DeclaredDecision,
    forced: str,
    shown: str,
    applied: list[str],
) -> None:
    with acting(settings(path, told), monkeypatch, told.point, forced=forced, ask=use):
        result = use()
        rows = decided(path, result)

    assert result.output == shown
    assert [(row.point, row.applied, row.why_not) for row in rows] == [
        (told.point, name, None) for name in applied
    ]


@pytest.mark.parametrize("forced", ["again", "stop"])
def test_a_failed_tool_is_tried_again_where_that_is_decided(
    path: Path, monkeypatch: pytest.MonkeyPatch, forced: str
) -> None:
    def dropped(**more: Any) -> Any:
        try:
            return use(capabilities=[Dropping()], **more)
        except RuntimeError as error:
            return error

    with acting(settings(path, AGAIN), monkeypatch, "retry", forced=forced, ask=dropped):
        found = dropped()
        assert tau_live.flush()
        with opened(path) as store:
            *_, newest = store.rollouts.query(RolloutQuery(limit=9)).rollouts
            [row] = store.decisions.decisions(newest.rollout_id)

    assert (row.applied, row.default, row.why_not) == (forced, "stop", None)
    assert str(getattr(found, "output", found)) == (
        "['take']: ['taken']" if forced == "again" else "slipped"
    )


def broken(**more: Any) -> Any:
    """Ask an agent whose one tool always fails; return what came of it."""
    agent: Agent[Any, Any] = Agent(FunctionModel(shelf), name="asker")

    @agent.tool_plain
    def fetch() -> str:
        raise ConnectionError("no route")

    try:
        found: Any = asyncio.run(agent.run("hello", **more))
    except Exception as error:  # what reaches the program is what is tested
        found = error
    return found


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_tool_that_fails_for_good_fails_with_its_own_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    with acting(settings(path, exposing(AGAIN)), monkeypatch, forced="again"):
        found = broken(retries=retries)
        assert tau_live.flush()
        with opened(path) as store:
            [only] = store.rollouts.query(RolloutQuery(limit=9)).rollouts
            rows = store.decisions.decisions(only.rollout_id)

    assert type(found) is ConnectionError
    assert [(row.applied, row.why_not) for row in rows] == [("again", None)] * retries


@pytest.mark.skipif(not PREPARES, reason="this version asks about a failure after the call")
def test_a_retry_that_a_capability_behind_us_prevents_was_not_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mending(AbstractCapability[Any]):
        async def wrap_tool_execute(self, ctx: Any, *, handler: Any, args: Any, **_: Any) -> Any:
            try:
                return await handler(args)
            except ModelRetry:
                return "mended"

    with acting(settings(path, exposing(AGAIN)), monkeypatch, forced="again"):
        result = broken(capabilities=[Mending()])
        [row] = decided(path, result)

    assert result.output == "['fetch']: ['mended']"
    assert (row.chosen, row.applied, row.why_not) == ("again", None, "replaced")


def exposing(told: DeclaredDecision) -> DeclaredDecision:
    return replace(told, exposure=1.0)


def test_a_point_may_act_from_its_first_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = DeclaredDecision(point="model", options={"test": "test"}, exposure=1.0)

    with acting(settings(path, told), monkeypatch, forced="test"):
        result = question()
        [row] = decided(path, result)

    assert result.output == "success (no tool calls)"
    assert (row.arm, row.share, row.applied) == ("learner", 1.0, "test")


class Dropping(AbstractCapability[Any]):
    """Takes the first tool away, as a user's own capability may."""

    async def prepare_tools(self, ctx: Any, tool_defs: list[Any]) -> list[Any]:
        return tool_defs[1:]


def test_an_option_is_never_offered_where_it_must_not_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = (Never(option="kind", where={"customer": ["rude", "none"]}),)
    told = DeclaredDecision(point="prompt", options=PROMPTS.options, never=never)

    with acting(settings(path, told), monkeypatch, "prompt"):
        rows = [decided(path, question({"customer": "rude"}))[0] for _ in range(8)]

    assert {row.applied for row in rows} == {"own"}
    assert {row.allowed for row in rows} == {("own",)}
    assert rows[0].context["customer"] == "rude"


def test_a_decision_past_its_deadline_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = settings(path, PROMPTS, decide_deadline_ms=1e-9)

    with acting(late, monkeypatch, "prompt"):
        results = [question() for _ in range(4)]
        rows = [decided(path, result)[0] for result in results]

    assert {result.output for result in results} == {"'Be good.' at None"}
    assert {(row.applied, row.why_not) for row in rows} == {("own", "deadline")}


def test_options_are_declared_in_python_and_learned(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    right = TestModel(custom_output_text="right")

    @options("model")
    def models() -> dict[str, object]:
        return {"mirror": OWN, "right": right}

    def outcome(number: int) -> float:
        agent: Agent[Any, Any] = Agent(OWN, name="asker")
        result = asyncio.run(agent.run("hello", run_id=f"run-{number}"))
        value = float(result.output == "right")
        tau_live.reward(value, run=rollout_id_of("pydantic-ai", result.run_id), name="good")
        assert tau_live.flush()
        return value

    with acting(settings(path), monkeypatch, "model"):
        found = [outcome(number) for number in range(60)]

    assert sum(found[-20:]) >= 18
    assert sum(found[-20:]) > sum(found[:20])


@pytest.mark.parametrize("scenario", [Scenario.TOOL_CALL, Scenario.NESTED_AGENT, Scenario.HANDOFF])
def test_an_older_host_gets_ours_with_each_call_and_the_same_is_recorded(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = Path(__file__).parent / "golden" / "pydantic-ai"
    recorded, here = golden_version(golden), host_version(ADAPTER)
    if recorded != here:
        pytest.skip(f"the recordings are of {recorded}, and this is {here}")
    monkeypatch.setattr("tau_live_hooks.pydantic_ai.BASE", "what_it_does_not_have")

    assert golden_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []
