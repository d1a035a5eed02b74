"""What is stored of smolagents' runs beyond what every host has."""

import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import Reason, RolloutStatus
from tau_live.core.settings import Content, Learner, Settings
from tau_live.testing.conditions import faults
from tau_live.testing.expected import Recorded, Scenario, recorded_in

pytest.importorskip("smolagents")

import smolagents
from smolagents import (
    ActionStep,
    ChatMessage,
    CodeAgent,
    FinalAnswerStep,
    MessageRole,
    Model,
    PlanningStep,
    TokenUsage,
    ToolCallingAgent,
    tool,
)

from tau_live_hooks.smolagents import ADAPTER
from tests.hooks.conformance.smolagents_play import (
    CANNOT,
    CODE_CANNOT,
    Kind,
    Scripted,
    agent,
    cancellation,
    play_code,
    told,
)

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("kind", [ToolCallingAgent, CodeAgent])
USER: ContextVar[str] = ContextVar("user", default="nobody")
Stored = Callable[[], list[Recorded]]


@pytest.fixture
def stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    """Attach, and return what returns all that was stored."""
    settings = Settings(store=path, learner=Learner.FLUSH, content=Content.REDACTED)
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(settings)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)

    def recorded() -> list[Recorded]:
        assert tau_live.flush()
        return recorded_in(settings)

    yield recorded
    detach()
    tau_live.detach()


def told_of(one: Recorded, kind: str, name: str) -> list[object]:
    return [span.attributes.get(name) for span in one.of(kind)]


@BOTH
def test_too_many_steps_are_a_limit(stored: Stored, kind: Kind) -> None:
    told(agent(kind, "look"), max_steps=1)

    [one] = stored()
    assert (one.rollout.status, one.rollout.reason) == (RolloutStatus.FAILED, Reason.LIMIT)
    assert [span.status for span in one.of("turn")] == ["ok", "limit"]
    assert one.of("retry") == []


@BOTH
def test_an_interrupted_run_goes_on_as_another_attempt(stored: Stored, kind: Kind) -> None:
    made: Any = None

    @tool
    def stop(place: int) -> str:
        """Stop.

        Args:
            place: Where.
        """
        made.interrupt()
        return "stopping"

    made = agent(kind, "stop", tools=[stop])
    told(made)
    [waiting] = stored()
    told(made, "go on", reset=False)
    told(made, "something else", reset=False)

    went_on, other = stored()
    assert (waiting.rollout.status, waiting.rollout.reason) == (
        RolloutStatus.FAILED,
        Reason.INTERRUPTED,
    )
    assert went_on.rollout.rollout_id == waiting.rollout.rollout_id
    assert went_on.rollout.status is RolloutStatus.SUCCEEDED
    assert {span.attempt for span in went_on.spans} == {1, 2}
    assert other.rollout.session_id == went_on.rollout.session_id


def test_a_conversation_is_a_session_until_it_is_reset(stored: Stored) -> None:
    made = agent(ToolCallingAgent)
    for reset in (True, False, True):
        made.run("hello", reset=reset)

    first, second, third = (one.rollout.session_id for one in stored())
    assert first == second
    assert third not in {None, first}


@BOTH
def test_what_an_agent_checks_is_told(stored: Stored, kind: Kind) -> None:
    answers: list[object] = []

    def at_last(answer: object, memory: object, agent: object) -> bool:
        answers.append(answer)
        return len(answers) == 2

    told(agent(kind, final_answer_checks=[at_last]))

    [one] = stored()
    assert told_of(one, "policy", "blocked") == [True, False]
    assert told_of(one, "policy", "rules") == [["at_last"], None]
    assert told_of(one, "retry", "what") == ["output"]
    assert one.rollout.status is RolloutStatus.SUCCEEDED


def test_tries_after_errors_are_counted(stored: Stored) -> None:
    class Stubborn(Scripted):
        def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatMessage:
            done = str(messages[1:]).count("Error executing") == 2
            return super().generate(messages if done else messages[:2], *args, **kwargs)

    told(agent(ToolCallingAgent, model=Stubborn("fail", code=False)))

    [one] = stored()
    assert told_of(one, "retry", "number") == [2, 3]
    assert set(told_of(one, "retry", "reason")) == {"AgentToolExecutionError"}
    assert {str(error["type"]) for error in told_of(one, "tool", "error")} == {"RuntimeError"}  # type: ignore[index]  # JSON data


@BOTH
def test_plans_are_told(stored: Stored, kind: Kind) -> None:
    told(agent(kind, "look", planning_interval=1))

    [one] = stored()
    said = [span for span in one.of("message") if span.attributes["raw"] == {"part": "plan"}]
    assert [len(one.of("model")), len(one.of("turn")), len(said)] == [4, 2, 2]


def test_calls_keep_the_ids_that_the_model_gave(stored: Stored) -> None:
    told(agent(ToolCallingAgent, "look", "look"))
    told(agent(ToolCallingAgent, "look", stream_outputs=True))

    two, streamed = stored()
    assert sorted(map(str, told_of(two, "tool", "call_id"))) == ["call-0", "call-1"]
    assert told_of(streamed, "tool", "call_id") == ["call-0"]
    assert set(told_of(two, "tool", "fidelity")) == {None}


def test_code_that_is_cancelled_lets_its_tool_finish(stored: Stored) -> None:
    said = cancellation(CodeAgent)

    [one] = stored()
    assert "KeyboardInterrupt" in said
    assert one.rollout.status is RolloutStatus.CANCELLED
    assert one.statuses("tool") == ["ok"]


def test_what_code_gets_wrong_is_an_error_of_its_turn(stored: Stored) -> None:
    class Wrong(Scripted):
        def generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatMessage:
            answer = super().generate(messages, *args, **kwargs)
            answer.content = answer.content.replace("look", "nothing")
            return answer

    told(agent(CodeAgent, model=Wrong("look", code=True)))

    [one] = stored()
    assert [span.status for span in one.of("turn")] == ["error", "ok"]
    assert told_of(one, "retry", "what") == ["tool"]


@BOTH
def test_a_tool_is_in_its_run_and_sees_what_it_sees_without_us(stored: Stored, kind: Kind) -> None:
    seen: list[str] = []

    @tool
    def value(place: int) -> str:
        """Value the run.

        Args:
            place: Where.
        """
        seen.append(USER.get())
        assert tau_live.reward(0.5, name="inside")
        return "valued"

    token = USER.set("anna")
    told(agent(kind, "value", tools=[value]))
    USER.reset(token)

    [one] = stored()
    assert seen == ["nobody" if kind is CodeAgent else "anna"]
    assert one.rollout.status is RolloutStatus.SUCCEEDED
    assert tau_live.runtime.api.current() is None


def test_callbacks_of_the_user_are_in_the_run(stored: Stored) -> None:
    seen: list[str] = []

    def value(step: object, agent: object) -> None:
        seen.append(type(step).__name__)
        assert tau_live.reward(1.0, name=type(step).__name__)

    steps = dict.fromkeys([ActionStep, PlanningStep, FinalAnswerStep], value)
    made = agent(ToolCallingAgent, step_callbacks=steps, planning_interval=3)
    made.run("hello")

    assert len(stored()) == 1
    assert seen == ["PlanningStep", "ActionStep", "FinalAnswerStep"]
    assert set(made.step_callbacks._callbacks) == {ActionStep, PlanningStep, FinalAnswerStep}


def test_a_callback_that_raises_fails_the_run_as_it_does_without_us(stored: Stored) -> None:
    def refuse(step: object) -> None:
        raise ArithmeticError("no more")

    with pytest.raises(ArithmeticError, match="no more"):
        agent(ToolCallingAgent, step_callbacks=[refuse]).run("hello")

    [one] = stored()
    assert (one.rollout.status, one.rollout.reason) == (RolloutStatus.FAILED, Reason.ERROR)


def test_a_stream_that_nobody_reads_is_cancelled(stored: Stored) -> None:
    stream = agent(ToolCallingAgent, "look").run("hello", stream=True)
    del stream

    [one] = stored()
    assert one.rollout.status is RolloutStatus.CANCELLED
    assert one.of("model") == []


@BOTH
def test_a_stream_closed_in_the_middle_is_cancelled(stored: Stored, kind: Kind) -> None:
    stream: Any = agent(kind, "look").run("hello", stream=True)
    while type(next(stream)).__name__ != "ActionStep":
        pass
    stream.close()

    [one] = stored()
    assert one.rollout.status is RolloutStatus.CANCELLED
    assert one.statuses("tool") == ["ok"]


def test_a_model_inside_a_model_is_one_request(stored: Stored) -> None:
    inner = Scripted("look", code=False)

    class Router(Model):
        def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
            return inner.generate(*args, **kwargs)

    told(agent(ToolCallingAgent, model=inner))
    told(agent(ToolCallingAgent, model=Router(model_id="router")))

    _, routed = stored()
    assert told_of(routed, "model", "model_requested") == ["router", "router"]


@BOTH
def test_a_model_that_a_tool_asks_is_told_inside_the_tool(stored: Stored, kind: Kind) -> None:
    made: Any = None

    @tool
    def think(place: int) -> str:
        """Think.

        Args:
            place: Where.
        """
        return str(made.model.generate([], stop_sequences=["."]).content)[:4]

    made = agent(kind, "think", tools=[think])
    told(made)

    [one] = stored()
    [called] = one.of("tool")
    parents = [span.parent_span_id for span in one.of("model")]
    assert parents == ["turn:1", called.span_id, "turn:2"]


def test_a_model_that_cannot_be_wrapped_is_told_from_its_step(stored: Stored) -> None:
    class Bare:
        pass

    bare: Any = Bare()
    usage = TokenUsage(input_tokens=3, output_tokens=4)
    said = '{"name": "final_answer", "arguments": {"answer": "done"}}'
    bare.generate = lambda *args, **kwargs: ChatMessage(
        role=MessageRole.ASSISTANT, content=said, token_usage=usage
    )
    bare.parse_tool_calls = Model().parse_tool_calls

    told(agent(ToolCallingAgent, model=bare))

    [one] = stored()
    assert told_of(one, "model", "fidelity") == ["end_only"]
    assert one.rollout.metadata["usage"] == {"input_tokens": 3.0, "output_tokens": 4.0}


def test_an_agent_in_a_thread_is_a_run_of_its_own(stored: Stored) -> None:
    made = agent(ToolCallingAgent, "look")
    with tau_live.run("around") as around:
        thread = threading.Thread(target=told, args=(agent(ToolCallingAgent),))
        thread.start()
        thread.join()
        told(made)

    runs = {(one.rollout.host, one.rollout.parent_id) for one in stored()}
    assert runs == {("tau_live", None), ("smolagents", None), ("smolagents", around.id)}


def test_an_agent_that_cannot_be_a_key_is_seen(stored: Stored) -> None:
    class Unhashable(ToolCallingAgent):
        __hash__ = None  # type: ignore[assignment]  # as a dataclass has it

    told(agent(Unhashable))

    [one] = stored()
    assert one.rollout.status is RolloutStatus.SUCCEEDED


def test_errors_before_the_first_step_end_the_run(stored: Stored) -> None:
    made = agent(ToolCallingAgent)
    made.prompt_templates["system_prompt"] = "{{ nobody_knows }}"

    with pytest.raises(Exception, match="nobody_knows"):
        made.run("hello", stream=True)

    [one] = stored()
    assert one.rollout.status is RolloutStatus.FAILED


def test_the_host_refuses_wrong_arguments_itself(stored: Stored) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        agent(ToolCallingAgent).run("hello", nothing=1)

    assert smolagents.MultiStepAgent.run.__name__ == "run"


@pytest.mark.parametrize("scenario", [one for one in CODE_CANNOT if one not in CANNOT])
def test_what_code_does_otherwise_is_recorded_all_the_same(
    scenario: Scenario, tmp_path: Path
) -> None:
    found = faults(ADAPTER, play_code, scenario, folder=tmp_path)

    assert [fault for fault in found if "the host shows" in fault] == []
