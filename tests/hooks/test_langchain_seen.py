"""What is seen of chains, graphs and agents of langchain, and that they do not notice."""

import asyncio
import operator
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, TypedDict
from uuid import uuid4

import pytest

import tau_live
from tau_live.core.events import Content
from tau_live.core.records import Reason, RolloutStatus, rollout_id_of
from tau_live.runtime import api
from tau_live.testing.expected import Recorded
from tests.live.running import rewards

pytest.importorskip("langchain")

from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    PIIMiddleware,
)
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from tau_live_hooks.langchain_events import message_of
from tests.hooks.langchain_agents import HELLO, THREAD, Mirror, agent, seeing, stored

pytestmark = pytest.mark.slow

WAITS = RolloutStatus.FAILED, Reason.INTERRUPTED


def names(one: Recorded, kind: str) -> list[str]:
    return [span.name for span in one.of(kind)]


def test_parts_of_a_graph_that_run_at_once_share_a_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class State(TypedDict):
        said: Annotated[list[str], operator.add]

    graph: Any = StateGraph(State)
    graph.add_node("work", lambda one: {"said": [Mirror(says=one["x"]).invoke("hi").content]})
    graph.add_conditional_edges(START, lambda _: [Send("work", {"x": x}) for x in "abc"], ["work"])

    with seeing(path, monkeypatch) as wanted:
        said = graph.compile().invoke({"said": []})["said"]
        [one] = stored(wanted)

    assert sorted(said) == ["a", "b", "c"]
    assert names(one, "turn") == ["agent.turn.1"]
    assert one.statuses("model") == ["ok", "ok", "ok"]
    assert names(one, "step").count("step.work") == 3


@pytest.mark.parametrize("abatch", [False, True], ids=["batch", "abatch"])
def test_each_run_of_a_batch_is_a_rollout(
    path: Path, monkeypatch: pytest.MonkeyPatch, abatch: bool
) -> None:
    chain: Any = RunnableLambda(str.upper) | Mirror(says="done")

    with seeing(path, monkeypatch) as wanted:
        said = asyncio.run(chain.abatch(["a", "b"])) if abatch else chain.batch(["a", "b"])
        found = stored(wanted)

    assert [one.content for one in said] == ["done", "done"]
    assert [names(one, "step") for one in found] == [["step.upper"]] * 2
    assert [one.rollout.parent_id for one in found] == [None, None]


def test_a_model_by_itself_is_a_run_of_one_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeing(path, monkeypatch) as wanted:
        Mirror(says="done").invoke("hello")
        [one] = stored(wanted)

    assert one.rollout.status is RolloutStatus.SUCCEEDED
    assert (names(one, "turn"), names(one, "model")) == (["agent.turn.1"], ["model.mirror"])


@pytest.mark.parametrize("attached_too", [False, True], ids=["without us", "attached"])
def test_a_callback_is_told_of_a_model_without_messages_that_is_awaited(
    path: Path, monkeypatch: pytest.MonkeyPatch, attached_too: bool
) -> None:
    told: list[str] = []

    class Watch(BaseCallbackHandler):
        def on_llm_start(self, serialized: Any, prompts: Any, **_: Any) -> None:
            told.append(prompts[0])

        def on_llm_end(self, response: Any, **_: Any) -> None:
            told.append(response.generations[0][0].text)

    model = FakeListLLM(responses=["yes", "no"])
    with seeing(path, monkeypatch) if attached_too else nullcontext() as wanted:
        asyncio.run(model.agenerate(["a", "b"], callbacks=[Watch()]))
        found = stored(wanted) if wanted else []

    assert sorted(told) == ["a", "b", "no", "yes"]
    assert [one.statuses("model") for one in found] == [["ok"]] * 2 * attached_too


def test_a_model_that_falls_back_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Mirror):
        def _generate(self, *args: Any, **given: Any) -> Any:
            raise ConnectionError("nobody there")

    with seeing(path, monkeypatch) as wanted:
        said = Broken().with_fallbacks([Mirror(says="done")]).invoke("hello")
        [one] = stored(wanted)

    assert said.content == "done"
    assert one.statuses("model") == ["ok", "retry"]
    assert [span.attributes["what"] for span in one.of("retry")] == ["model"]


def test_a_node_that_is_tried_again_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def node(state: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("nobody there")
        return {"messages": ["done"]}

    graph: Any = StateGraph(MessagesState)
    again = RetryPolicy(initial_interval=0.0, jitter=False)
    graph.add_node("node", node, retry_policy=again)
    graph.add_edge(START, "node")

    with seeing(path, monkeypatch) as wanted:
        graph.compile().invoke(HELLO)
        [one] = stored(wanted)

    assert one.rollout.status is RolloutStatus.SUCCEEDED
    assert (one.statuses("step"), len(one.of("retry"))) == (["error", "ok"], 1)


def test_a_breakpoint_is_an_interruption(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = agent(checkpointer=InMemorySaver(), interrupt_before=["tools"])

    with seeing(path, monkeypatch) as wanted:
        made.invoke({"messages": "look"}, THREAD)
        made.invoke(None, THREAD)
        [one] = stored(wanted)

    assert one.rollout.status is RolloutStatus.SUCCEEDED
    assert [attempt.number for attempt in one.attempts] == [1, 2]
    assert names(one, "turn") == ["agent.turn.1", "agent.turn.2"]


def test_a_run_that_nobody_resumes_was_interrupted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    made = agent(middleware=[asks], checkpointer=InMemorySaver())

    with seeing(path, monkeypatch) as wanted:
        made.invoke({"messages": "look"}, THREAD)
        made.invoke(HELLO, THREAD)
        first, _ = stored(wanted)

    assert (first.rollout.status, first.rollout.reason) == WAITS


def asking_inside(wants: list[bool]) -> Any:
    """Return a graph that asks inside of another; each time it begins it may want to or not."""
    inner: Any = StateGraph(MessagesState)
    inner.add_node("ask", lambda _: {"messages": [("ai", interrupt("sure?"))]})
    inner.add_edge(START, "ask")
    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile(name="inner"))
    outer.add_node("done", lambda _: {})
    outer.add_conditional_edges(START, lambda _: "inner" if wants.pop(0) else "done")
    return outer.compile(name="outer", checkpointer=InMemorySaver())


def test_what_is_interrupted_inside_is_resumed_inside(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asking_inside(wants=[True])

    with seeing(path, monkeypatch) as wanted:
        made.invoke(HELLO, THREAD)
        made.invoke(Command(resume="yes"), THREAD)
        found = stored(wanted)

    assert [one.rollout.name for one in found] == ["outer", "inner"]
    assert [one.rollout.status for one in found] == [RolloutStatus.SUCCEEDED] * 2
    assert [len(one.attempts) for one in found] == [2, 2]


@pytest.mark.parametrize("goes_on", [HELLO, None], ids=["another question", "without it"])
def test_what_is_interrupted_inside_is_over_with_the_run_around_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: Any
) -> None:
    made = asking_inside(wants=[True, False])

    with seeing(path, monkeypatch) as wanted:
        made.invoke(HELLO, THREAD)
        if goes_on is None:
            made.update_state(THREAD, {}, as_node="inner")
        made.invoke(goes_on, THREAD)
        found = {one.rollout.name: one.rollout for one in reversed(stored(wanted))}

    assert (found["inner"].status, found["inner"].reason) == WAITS


def test_graphs_that_share_a_thread_wait_each_for_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asking_inside(wants=[True, True])
    beside = agent(checkpointer=InMemorySaver())

    with seeing(path, monkeypatch) as wanted:
        waits.invoke(HELLO, THREAD)
        beside.invoke(HELLO, THREAD)
        waits.invoke(Command(resume="yes"), THREAD)
        found = stored(wanted)

    assert [one.rollout.name for one in found] == ["outer", "inner", "asker"]
    assert [len(one.attempts) for one in found] == [2, 2, 1]


@pytest.mark.parametrize(
    ("strategy", "blocked", "reason"),
    [("redact", None, Reason.COMPLETED), ("block", True, Reason.SAFETY_BLOCKED)],
)
def test_a_guardrail_is_told(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategy: Any,
    blocked: bool | None,
    reason: Reason,
) -> None:
    made = agent(middleware=[PIIMiddleware("email", strategy=strategy, apply_to_input=True)])

    with seeing(path, monkeypatch) as wanted:
        try:
            made.invoke({"messages": "I am a@b.example"})
        except Exception as error:
            assert type(error).__name__ == "PIIDetectionError"
        [one] = stored(wanted)
        [policy] = one.of("policy")

    assert one.rollout.reason is reason
    assert policy.attributes["rules"] == ["PIIMiddleware[email]"]
    assert policy.attributes.get("blocked") or None is blocked


def test_a_limit_of_calls_ends_a_run_at_its_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = agent(middleware=[ModelCallLimitMiddleware(run_limit=1)])

    with seeing(path, monkeypatch) as wanted:
        made.invoke({"messages": "look"})
        [one] = stored(wanted)

    assert (one.rollout.status, one.rollout.reason) == (RolloutStatus.FAILED, Reason.LIMIT)
    assert one.of("policy") == []


def test_a_reward_in_a_tool_is_for_its_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []

    @tool
    def look(place: int) -> str:
        """Look at a place."""
        run = api.current()
        inside.append(run.id if run else "")
        return "seen"

    with seeing(path, monkeypatch) as wanted:
        agent(tools=[look]).invoke({"messages": "look"})
        [one] = stored(wanted)

    assert inside == [one.rollout.rollout_id]


def test_feedback_to_langsmith_is_a_reward(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from langsmith import Client

    run_id = uuid4()
    nowhere = Client(
        api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False, info={}
    )

    with seeing(path, monkeypatch):
        agent().invoke(HELLO, {"run_id": run_id})
        with pytest.raises(Exception, match=re.escape("127.0.0.1")):
            nowhere.create_feedback(
                run_id, "good", score=0.5, stop_after_attempt=1, session_id=uuid4()
            )
        assert tau_live.flush()
        [reward] = rewards(path, rollout_id_of("langchain", str(run_id)))

    assert (reward.name, reward.value, reward.source) == ("good", 0.5, "langsmith")


def test_a_run_inside_one_of_the_door_is_its_child(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeing(path, monkeypatch) as wanted:
        with tau_live.run("outer") as outer:
            agent().invoke(HELLO)
        found = {one.rollout.name: one.rollout for one in stored(wanted)}

    assert found["asker"].parent_id == outer.id


def test_a_stream_that_is_dropped_leaves_no_run_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeing(path, monkeypatch) as wanted:
        pieces = agent().stream({"messages": "look"}, stream_mode="updates")
        next(pieces)
        between = api.current()
        pieces.close()
        [one] = stored(wanted)

    assert (between, api.current()) == (None, None)
    assert one.rollout.status is RolloutStatus.CANCELLED


class Titled(HumanMessage):
    """A message of a class that says more than its fields do."""

    status: ClassVar[str] = "kept"


@pytest.mark.parametrize(
    ("message", "raw"),
    [
        pytest.param(HumanMessage("hi", id="m-1"), {"id": "m-1"}, id="fields"),
        pytest.param(HumanMessage("hi", status="odd"), {"status": "odd"}, id="more than fields"),
        pytest.param(Titled("hi", name="anna"), {"name": "anna", "status": "kept"}, id="a class's"),
        pytest.param(SimpleNamespace(content="hi", id=7), {"id": "7"}, id="no message"),
    ],
)
def test_what_a_message_says_of_itself_is_kept(message: Any, raw: dict[str, str]) -> None:
    found = message_of(message)

    assert (found["raw"], found["content"]) == (raw, Content(text="hi"))
