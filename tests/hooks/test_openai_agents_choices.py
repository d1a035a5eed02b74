"""What is decided before openai-agents asks a model or runs a tool, and what the row says of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.records import Decision, rollout_id_of
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward, Never
from tau_live.operate.trials import Order, expose
from tau_live.runtime.adapters import options
from tests.live.running import decisions, opened, rollouts

pytest.importorskip("agents.run")

from agents import (
    Agent,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    set_trace_processors,
)
from agents.models.interface import ModelProvider
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from tau_live_hooks.openai_agents import ADAPTER

pytestmark = pytest.mark.slow


class Mirror(Model):
    """Answers with what it was asked."""

    def __init__(self, name: str = "mirror") -> None:
        self.model = name

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        said = f"{named['system_instructions']!r} at {named['model_settings'].temperature}"
        said += f" with {[tool.name for tool in named['tools']]} by {self.model}"
        return ModelResponse(output=[assistant_message(said)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class Provider(ModelProvider):
    """Knows mirrors by name, and no other model."""

    def get_model(self, model_name: str | None) -> Model:
        if model_name is None or not model_name.startswith("mirror"):
            raise LookupError(f"no model {model_name!r}")
        return Mirror(model_name)


class Forced:
    """Answers every decision with the same option."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


@function_tool
def look() -> str:
    return "seen"


@function_tool
def leave() -> str:
    return "left"


PROMPTS = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})
PARAMS = DeclaredDecision(point="params", options={"cool": {"temperature": 0.0}})
MODELS = DeclaredDecision(
    point="model", options={"mirror-2": "mirror-2", "no-such": "no-such", "thing": object()}
)
TOOLS = DeclaredDecision(point="tools", options={"one": ["look", "fly"]})
GATE = DeclaredDecision(point="tool_gate", options={"veto": "Not this one."})

OWN = "'Be good.' at 0.5 with ['look', 'leave'] by mirror-1"


def settings(path: Path, *told: DeclaredDecision, **more: Any) -> Settings:
    given: dict[str, Any] = {"act": True, "decide_deadline_ms": 60_000.0, **more}
    return Settings(
        store=path,
        learner=Learner.FLUSH,
        decisions=told,
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
    set_trace_processors([])
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    assert tau_live.attach(wanted) is not None
    detach = ADAPTER.attach(tau_live.attach)
    try:
        for point in points:
            (ask or question)()
            assert tau_live.flush()
            with opened(wanted.store) as store:
                expose(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
        if points:
            tau_live.detach()
        runtime = tau_live.attach(wanted)
        if forced and runtime is not None:
            runtime.plugins.register(Forced(forced), name="forced")
        yield
    finally:
        detach()
        tau_live.detach()


def asker(**more: Any) -> Agent[Any]:
    given: dict[str, Any] = {"model": "mirror-1", "tools": [look, leave], **more}
    return Agent(
        "asker", instructions="Be good.", model_settings=ModelSettings(temperature=0.5), **given
    )


def question(metadata: Mapping[str, Any] | None = None, **more: Any) -> str:
    """Ask the agent one question; return what it said."""
    config = RunConfig(model_provider=Provider(), trace_metadata=dict(metadata or {}))
    return str(asyncio.run(Runner.run(asker(**more), "hello", run_config=config)).final_output)


def last(path: Path, point: str) -> Decision:
    """Return what was decided in the last run."""
    assert tau_live.flush()
    newest = rollouts(path)[-1]
    [row] = [one for one in decisions(path, newest.rollout_id) if one.point == point]
    return row


def test_a_new_point_begins_in_shadow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, PROMPTS), monkeypatch):
        said = question()

        row = last(path, "prompt")

    assert said == OWN
    assert (row.options, row.default) == (("kind", "own"), "own")
    assert (row.applied, row.why_not, row.source) == ("own", "control", "default")


def test_without_act_nothing_is_decided(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, PROMPTS, act=False), monkeypatch):
        said = question()
        tau_live.flush()

    [found] = rollouts(path)
    assert said == OWN
    assert decisions(path, found.rollout_id) == []


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        pytest.param(
            PROMPTS, "'Be good. Be kind.' at 0.5 with ['look', 'leave'] by mirror-1", id="prompt"
        ),
        pytest.param(PARAMS, "'Be good.' at 0.0 with ['look', 'leave'] by mirror-1", id="params"),
        pytest.param(TOOLS, "'Be good.' at 0.5 with ['look'] by mirror-1", id="tools"),
    ],
)
def test_what_was_chosen_is_what_the_model_gets(
    path: Path, monkeypatch: pytest.MonkeyPatch, told: DeclaredDecision, shown: str
) -> None:
    [name] = told.options

    with acting(settings(path, told), monkeypatch, told.point, forced=name):
        said = question()
        row = last(path, told.point)

    assert said == shown
    assert (row.applied, row.source, row.why_not) == (name, "policy", None)


def test_settings_that_the_host_would_drop_are_not_told_as_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typo = DeclaredDecision(point="params", options={"cool": {"temprature": 0.0}})

    with acting(settings(path, typo), monkeypatch, "params", forced="cool"):
        said = question()
        row = last(path, "params")

    assert said == OWN
    assert (row.chosen, row.applied, row.why_not) == ("cool", None, "error: TypeError")


def test_what_was_chosen_is_what_a_streaming_model_gets(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ModelCall] = []

    def answer(call: ModelCall) -> Any:
        asked.append(call)
        return [assistant_message("done")]

    def ask() -> Any:
        async def main() -> Any:
            made = asker(model=ScriptedModel([ModelStep.respond(answer)], emit_traces=True))
            result = Runner.run_streamed(made, "hello")
            async for _ in result.stream_events():
                pass
            return result.final_output

        return asyncio.run(main())

    with acting(settings(path, PROMPTS), monkeypatch, "prompt", forced="kind", ask=ask):
        said = ask()
        row = last(path, "prompt")

    assert said == "done"
    assert (asked[-1].system_instructions, asked[-1].streamed) == ("Be good. Be kind.", True)
    assert (row.applied, row.why_not) == ("kind", None)


@pytest.mark.parametrize(
    ("forced", "applied", "why_not", "by"),
    [
        pytest.param("mirror-2", "mirror-2", None, "mirror-2", id="swapped"),
        pytest.param("no-such", None, "error: LookupError", "mirror-1", id="cannot be made"),
        pytest.param("thing", None, "error: TypeError", "mirror-1", id="is no model"),
        pytest.param("own", "own", None, "mirror-1", id="the host's own"),
    ],
)
def test_a_model_is_swapped_where_it_can_be(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forced: str,
    applied: str | None,
    why_not: str | None,
    by: str,
) -> None:
    with acting(settings(path, MODELS), monkeypatch, "model", forced=forced):
        said = question()
        row = last(path, "model")

    assert (row.chosen, row.applied, row.why_not) == (forced, applied, why_not)
    assert said == OWN.replace("mirror-1", by)


def test_another_model_has_the_settings_that_the_host_has_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent leaves to the host differs by model; what it says itself does not."""
    from agents.models.default_models import get_default_model_settings

    seen: list[ModelSettings] = []

    class Keeping(Provider):
        def get_model(self, model_name: str | None) -> Model:
            return ScriptedModel([ModelStep.respond(answer)])

    def answer(call: ModelCall) -> Any:
        seen.append(call.model_settings)
        return [assistant_message("done")]

    def ask() -> None:
        config = RunConfig(model_provider=Keeping())
        asyncio.run(Runner.run(Agent("asker", model="gpt-4.1"), "hello", run_config=config))

    told = DeclaredDecision(point="model", options={"gpt-5": "gpt-5"})

    with acting(settings(path, told), monkeypatch, "model", forced="gpt-5", ask=ask):
        ask()

    own, swapped = (get_default_model_settings(name) for name in ("gpt-4.1", "gpt-5"))
    assert own != swapped
    assert (seen[0].reasoning, seen[-1].reasoning) == (own.reasoning, swapped.reasoning)


def test_a_veto_is_what_the_model_is_told_instead(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @function_tool
    def act() -> str:
        ran.append("act")
        return "acted"

    def ask() -> str:
        calls = [[function_call("act", {}, call_id="c")], ModelStep.respond(echo)]
        asked = asker(model=ScriptedModel(calls, emit_traces=True), tools=[act])
        return str(asyncio.run(Runner.run(asked, "hello")).final_output)

    def echo(call: ModelCall) -> Any:
        return [assistant_message(str(call.input[-1]["output"]))]

    with acting(settings(path, GATE), monkeypatch, "tool_gate", forced="veto", ask=ask):
        ran.clear()
        said = ask()
        row = last(path, "tool_gate")
        newest = rollouts(path)[-1]

    assert (said, ran) == ("Not this one.", [])
    assert (row.applied, row.context["tool"]) == ("veto", "act")
    with opened(path) as store:
        spans = store.rollouts.spans(newest.rollout_id)
    assert [span.status for span in spans if span.kind == "tool"] == ["vetoed"]


def test_an_option_is_never_offered_where_it_must_not_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = (Never(option="kind", where={"customer": ["rude", "none"]}),)
    told = DeclaredDecision(point="prompt", options=PROMPTS.options, never=never)

    with acting(settings(path, told), monkeypatch, "prompt", forced="kind"):
        said = question({"customer": "rude"})
        row = last(path, "prompt")

    assert said == OWN
    assert (row.applied, row.allowed, row.context["customer"]) == ("own", ("own",), "rude")


def test_a_decision_past_its_deadline_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = settings(path, PROMPTS, decide_deadline_ms=1e-9)

    with acting(late, monkeypatch, "prompt", forced="kind"):
        said = question()
        row = last(path, "prompt")

    assert said == OWN
    assert (row.applied, row.why_not) == ("own", "deadline")


@pytest.mark.parametrize("off", [False, True], ids=["traced", "not traced"])
def test_options_are_declared_in_python_and_learned(
    path: Path, monkeypatch: pytest.MonkeyPatch, off: bool
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    wrong, right = Mirror("wrong"), Mirror("right")

    @options("model")
    def models() -> dict[str, object]:
        return {"wrong": wrong, "right": right}

    def outcome(number: int) -> float:
        config = RunConfig(trace_id=f"trace_{number:032x}", tracing_disabled=off)
        asked = Agent("asker", model=wrong)
        result = asyncio.run(Runner.run(asked, "hello", run_config=config))
        value = float(str(result.final_output).endswith("right"))
        run = rollout_id_of("openai-agents", f"trace_{number:032x}")
        tau_live.reward(value, run=run, name="good")
        assert tau_live.flush()
        return value

    with acting(settings(path), monkeypatch, "model", ask=lambda: outcome(1_000)):
        found = [outcome(number) for number in range(60)]

    assert sum(found[-20:]) >= 18
    assert sum(found[-20:]) > sum(found[:20])
