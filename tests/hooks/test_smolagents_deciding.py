"""What is decided before smolagents asks a model or calls a tool, and what the row says of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.records import Decision
from tau_live.core.settings import Content, Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward, Never
from tau_live.operate.trials import Order, expose
from tau_live.runtime.adapters import options
from tau_live.testing.expected import Recorded, recorded_in
from tests.live.running import decisions, opened

pytest.importorskip("smolagents")

from smolagents import (
    ApiModel,
    ChatMessage,
    CodeAgent,
    FinalAnswerStep,
    LogLevel,
    MessageRole,
    Model,
    OpenAIModel,
    TokenUsage,
    Tool,
    ToolCallingAgent,
)
from smolagents.models import ChatMessageStreamDelta

from tau_live_hooks.smolagents import ADAPTER
from tau_live_hooks.smolagents_choose import Request, RequestSeam
from tests.hooks.conformance.smolagents_play import Kind, Scripted, agent, told

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("kind", [ToolCallingAgent, CodeAgent])


class Mirror(ApiModel):
    """Answers with what it was asked, in the way of both kinds of agents."""

    def create_client(self) -> object:
        return object()

    def generate(
        self,
        messages: list[Any],
        stop_sequences: list[str] | None = None,
        response_format: Any = None,
        tools_to_call_from: Sequence[Tool] | None = None,
        temperature: float | None = None,
    ) -> ChatMessage:
        system = messages[0].content[0]["text"]
        said = [self.model_id, temperature, "kind" in system.lower(), "def look" in system]
        said.append([one.name for one in tools_to_call_from or ()])
        text = repr(said).replace("'", "")
        answer = f'{{"name": "final_answer", "arguments": {{"answer": "{text}"}}}}'
        code = f"<code>final_answer('{text}')</code>"
        usage = TokenUsage(input_tokens=1, output_tokens=1)
        content = answer if tools_to_call_from is not None else code
        return ChatMessage(role=MessageRole.ASSISTANT, content=content, token_usage=usage)

    def generate_stream(self, messages: list[Any], **kwargs: Any) -> Iterator[Any]:
        yield ChatMessageStreamDelta(content=self.generate(messages, **kwargs).content)


class Forced:
    """Answers every decision with the same option."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


OWN = "[mine, None, False, False, [look, fail, again, cancel, final_answer]]"
CODE_OWN = "[mine, None, False, True, []]"
PROMPTS = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})
PARAMS = DeclaredDecision(point="params", options={"cool": {"temperature": 0.0}})
MODELS = DeclaredDecision(point="model", options={"mine": "mine", "yours": "yours"})
TOOLS = DeclaredDecision(point="tools", options={"few": ["fail"]})


def settings(path: Path, *declared: DeclaredDecision, **more: Any) -> Settings:
    given: dict[str, Any] = {"act": True, "decide_deadline_ms": 60_000.0, **more}
    rewards = (DeclaredReward(name="good"),)
    return Settings(store=path, decisions=declared, learner=Learner.FLUSH, rewards=rewards, **given)


@contextmanager
def acting(
    wanted: Settings, monkeypatch: pytest.MonkeyPatch, *points: str, forced: str = ""
) -> Iterator[None]:
    """Attach, and let the learner decide everything at these points, beyond its shadow."""
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(wanted)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)
    try:
        for point in points:
            told(agent(ToolCallingAgent, "look"))
            assert tau_live.flush()
            with opened(wanted.store) as store:
                expose(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
        if points:
            detach()
            tau_live.detach()
            runtime = tau_live.attach(wanted)
            detach = ADAPTER.attach(lambda: runtime)
        if forced and runtime is not None:
            runtime.plugins.register(Forced(forced), name="forced")
        yield
    finally:
        detach()
        tau_live.detach()


def ask(kind: Kind, **more: Any) -> str:
    """Ask an agent that answers with what its model was asked."""
    given = {"instructions": "Be good.", **more}
    return str(agent(kind, model=Mirror("mine"), brief=False, **given).run("hello"))


def last(path: Path) -> tuple[Recorded, list[Decision]]:
    """Return the last run and what was decided in it."""
    assert tau_live.flush()
    found = recorded_in(Settings(store=path))[-1]
    return found, decisions(path, found.rollout.rollout_id)


@BOTH
def test_a_new_point_begins_in_shadow(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    with acting(settings(path, PROMPTS, TOOLS), monkeypatch):
        said = ask(kind)
        _, rows = last(path)

    assert said == (CODE_OWN if kind is CodeAgent else OWN)
    assert [(row.point, row.default) for row in rows] == [("prompt", "own"), ("tools", "own")]
    assert {(row.applied, row.why_not) for row in rows} == {("own", "control")}


@pytest.mark.parametrize(
    ("kind", "declared", "shown"),
    [
        pytest.param(ToolCallingAgent, PROMPTS, OWN.replace("False, F", "True, F"), id="prompt"),
        pytest.param(CodeAgent, PROMPTS, "[mine, None, True, True, []]", id="prompt of code"),
        pytest.param(ToolCallingAgent, PARAMS, OWN.replace("None", "0.0"), id="params"),
        pytest.param(CodeAgent, PARAMS, CODE_OWN.replace("None", "0.0"), id="params of code"),
        pytest.param(
            ToolCallingAgent, TOOLS, "[mine, None, False, False, [fail, final_answer]]", id="tools"
        ),
        pytest.param(CodeAgent, TOOLS, "[mine, None, False, False, []]", id="tools of code"),
        pytest.param(ToolCallingAgent, MODELS, OWN.replace("mine", "yours"), id="model"),
        pytest.param(CodeAgent, MODELS, CODE_OWN.replace("mine", "yours"), id="model of code"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_was_chosen_is_what_the_model_gets(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    declared: DeclaredDecision,
    shown: str,
    streams: bool,
) -> None:
    name = [*declared.options][-1]

    with acting(settings(path, declared), monkeypatch, declared.point, forced=name):
        said = ask(kind, stream_outputs=streams)
        _, [row] = last(path)

    assert said == shown
    assert (row.applied, row.source, row.why_not) == (name, "policy", None)


def test_a_choice_leaves_the_agent_and_its_memory_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = agent(ToolCallingAgent, model=Mirror("mine"), instructions="Be good.")

    with acting(settings(path, PROMPTS), monkeypatch, "prompt", forced="kind"):
        made.run("hello")

    [first, *_] = made.memory.steps[1].model_input_messages
    assert "kind" not in str(first.content)
    assert made.instructions == "Be good."


@pytest.mark.parametrize(
    ("model", "declared", "why_not"),
    [
        pytest.param(
            Mirror("mine", temperature=0.5), PARAMS, "error: ValueError", id="the model's own"
        ),
        pytest.param(
            Mirror("mine"),
            DeclaredDecision(point="params", options={"no": {"nothing": 1}}),
            "error: ValueError",
            id="not taken",
        ),
        pytest.param(
            Scripted(code=False), MODELS, "error: LookupError", id="no other model of its kind"
        ),
    ],
)
def test_what_cannot_be_applied_is_not(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Model,
    declared: DeclaredDecision,
    why_not: str,
) -> None:
    name = [*declared.options][-1]
    made = agent(ToolCallingAgent, model=model)
    plain = str(made.run("hello"))

    with acting(settings(path, declared), monkeypatch, declared.point, forced=name):
        said = str(made.run("hello"))
        _, [row] = last(path)

    assert said == plain
    assert (row.chosen, row.applied, row.why_not) == (name, None, why_not)


def test_models_of_the_host_are_named_by_class_and_id() -> None:
    pytest.importorskip("openai")
    own = OpenAIModel("small", api_key="none", api_base="http://127.0.0.1:9")
    request: Any = Request(run=None, model=own, method="generate", args=(), kwargs={})  # type: ignore[arg-type]  # not looked at
    seam = RequestSeam()

    assert seam.is_own(request, "OpenAIModel:small")
    assert seam.is_own(request, "small")


@BOTH
def test_a_veto_is_what_the_model_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    told_so = DeclaredDecision(point="tool_gate", options={"no": "Not today."})

    with acting(settings(path, told_so), monkeypatch, "tool_gate", forced="no"):
        made = agent(kind, "look")
        said = told(made)
        one, [row] = last(path)

    assert "Not today." in said
    assert "seen 0" not in said
    assert one.statuses("tool") == ["vetoed"]
    assert (row.applied, row.context["tool"]) == ("no", "look")


def test_plans_and_last_answers_have_no_instructions_to_choose(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = DeclaredDecision(point="prompt", options=PROMPTS.options, every="request")  # type: ignore[arg-type]  # as in TOML

    with acting(settings(path, every), monkeypatch):
        told(agent(ToolCallingAgent, "look", planning_interval=5), max_steps=1)
        one, rows = last(path)

    assert len(one.of("model")) == 3
    assert len(rows) == 1


def test_an_option_is_never_offered_where_it_must_not_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = (Never(option="kind", where={"customer": ["rude"]}),)
    declared = DeclaredDecision(point="prompt", options=PROMPTS.options, never=never)
    wanted = settings(path, declared, content=Content.REDACTED)

    with acting(wanted, monkeypatch, "prompt", forced="kind"):
        agent(ToolCallingAgent).run("hello", additional_args={"customer": "rude", "age": 3})
        _, [row] = last(path)

    assert (row.applied, row.allowed) == ("own", ("own",))
    assert (row.context["customer"], row.context["age"]) == ("rude", 3)


def test_texts_of_additional_args_are_known_where_texts_are_stored_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path, PROMPTS), monkeypatch):
        agent(ToolCallingAgent).run("hello", additional_args={"customer": "rude", "age": 3})
        _, [row] = last(path)

    assert "customer" not in row.context
    assert row.context["age"] == 3


def test_options_are_declared_in_python_and_learned(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    small = Mirror("small")

    @options("model")
    def models() -> dict[str, object]:
        return {"small": small, "large": Mirror("large")}

    def value(step: Any) -> None:
        tau_live.reward(step.output.startswith("[large"), name="good")

    def outcome() -> float:
        made = ToolCallingAgent(
            tools=[],
            model=small,
            verbosity_level=LogLevel.OFF,
            step_callbacks={FinalAnswerStep: value},
        )
        right = str(made.run("hello")).startswith("[large")
        assert tau_live.flush()
        return float(right)

    with acting(settings(path), monkeypatch, "model"):
        found = [outcome() for _ in range(60)]

    assert sum(found[-20:]) >= 18
    assert sum(found[-20:]) > sum(found[:20])
