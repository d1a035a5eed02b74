"""What is decided before an agent of langchain asks a model or runs a tool, and what it applied."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import Decision
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision, Never
from tests.live.running import decisions

pytest.importorskip("langchain")

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from tests.hooks.langchain_agents import Mirror, agent, ask, attached, look, settings, stored

pytestmark = pytest.mark.slow

PROMPTS = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})
PARAMS = DeclaredDecision(point="params", options={"cool": {"temperature": 0.0}})
LESS = DeclaredDecision(point="tools", options={"none": [], "some": ["look", "no-such"]})
GATE = DeclaredDecision(point="tool_gate", options={"veto": "Not now."})
AGAIN = DeclaredDecision(point="retry", options={"again": True, "stop": False})
OWN = "['Be good.'] at None with ['look', 'fail']: []"


def rows(wanted: Settings) -> list[Decision]:
    """Return the decisions of the last run."""
    last = stored(wanted)[-1].rollout.rollout_id
    return decisions(wanted.store, last)


def test_a_new_point_begins_in_shadow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = settings(path, PROMPTS)

    with attached(wanted, monkeypatch):
        said = ask()
        [row] = rows(wanted)

    assert said == OWN
    assert (row.point, row.options, row.default) == ("prompt", ("kind", "own"), "own")
    assert (row.applied, row.why_not, row.source) == ("own", "control", "default")


def test_without_act_nothing_is_decided(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = settings(path, PROMPTS, act=False)

    with attached(wanted, monkeypatch):
        ask()

        assert rows(wanted) == []


@pytest.mark.parametrize("ainvoke", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize(
    ("told", "forced", "shown"),
    [
        (PROMPTS, "kind", "['Be good. Be kind.'] at None with ['look', 'fail']: []"),
        (PARAMS, "cool", "['Be good.'] at 0.0 with ['look', 'fail']: []"),
        (LESS, "some", "['Be good.'] at None with ['look']: []"),
        (LESS, "own", OWN),
    ],
)
def test_what_was_chosen_is_what_the_model_gets(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: DeclaredDecision,
    forced: str,
    shown: str,
    ainvoke: bool,
) -> None:
    wanted = settings(path, told)

    with attached(wanted, monkeypatch, told.point, forced=forced):
        said = later() if ainvoke else ask()
        [row] = rows(wanted)

    assert said == shown
    assert (row.applied, row.source, row.why_not) == (forced, "policy", None)


def later(question: str = "hello", made: Any = None) -> str:
    found = asyncio.run((made or agent()).ainvoke({"messages": question}))
    return str(found["messages"][-1].content)


@pytest.mark.parametrize(
    ("forced", "applied", "why_not", "said"),
    [
        pytest.param("right", "right", None, "right", id="swapped"),
        pytest.param("no-such:model", None, "error: ImportError", OWN, id="cannot be made"),
        pytest.param("own", "own", None, OWN, id="the host's own"),
    ],
)
def test_a_model_is_swapped_where_it_can_be(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forced: str,
    applied: str | None,
    why_not: str | None,
    said: str,
) -> None:
    told = DeclaredDecision(
        point="model", options={"right": Mirror(says="right"), "no-such:model": "openai:gpt-5"}
    )
    wanted = settings(path, told)

    with attached(wanted, monkeypatch, "model", forced=forced):
        found = ask()
        [row] = rows(wanted)

    assert (row.chosen, row.applied, row.why_not) == (forced, applied, why_not)
    assert found == said


@pytest.mark.parametrize(
    ("told", "why_not"),
    [
        pytest.param(
            DeclaredDecision(point="model", options={"wrong": len}), "error: TypeError", id="model"
        ),
        pytest.param(
            DeclaredDecision(point="params", options={"wrong": {"run_manager": 1}}),
            "error: ValueError",
            id="params",
        ),
    ],
)
def test_what_the_host_cannot_take_is_not_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch, told: DeclaredDecision, why_not: str
) -> None:
    wanted = settings(path, told)

    with attached(wanted, monkeypatch, told.point, forced="wrong"):
        said = ask()
        [row] = rows(wanted)

    assert (row.chosen, row.applied, row.why_not) == ("wrong", None, why_not)
    assert said == OWN


@pytest.mark.parametrize("ainvoke", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize(
    ("question", "told", "forced", "heard", "status"),
    [
        pytest.param("look", GATE, "veto", "['Not now.']", "vetoed", id="vetoed"),
        pytest.param("look", GATE, "own", "['seen 1']", "ok", id="not vetoed"),
        pytest.param("fail", AGAIN, "again", 'Please fix your mistakes."]', "retry", id="again"),
    ],
)
def test_tools_are_vetoed_and_tried_again(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
    told: DeclaredDecision,
    forced: str,
    heard: str,
    status: str,
    ainvoke: bool,
) -> None:
    def asking() -> str:
        try:
            return later(question) if ainvoke else ask(question)
        except RuntimeError as error:
            return str(error)

    wanted = settings(path, told)

    with attached(wanted, monkeypatch, told.point, forced=forced, asking=asking):
        said = asking()
        [row] = rows(wanted)
        last = stored(wanted)[-1]

    assert said.endswith(heard)
    assert (row.applied, row.why_not) == (forced, None)
    assert last.statuses("tool") == [status]


def test_a_failing_tool_that_is_not_tried_again_fails_the_run(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings(path, AGAIN)

    with attached(wanted, monkeypatch), pytest.raises(RuntimeError, match="failed at 1"):
        ask("fail")


def always(request: ModelRequest, handler: Callable[[Any], Any]) -> Any:
    return handler(request.override(system_message=SystemMessage("Always.")))


class Always(AgentMiddleware):
    """Chooses the prompt itself, whatever was chosen before."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return always(request, handler)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await always(request, handler)


@pytest.mark.parametrize("ainvoke", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize("forced", ["kind", "own"])
def test_what_the_agents_middleware_replaces_was_not_applied(
    path: Path, monkeypatch: pytest.MonkeyPatch, forced: str, ainvoke: bool
) -> None:
    wanted = settings(path, PROMPTS)

    with attached(wanted, monkeypatch, "prompt", forced=forced):
        made = agent(middleware=[Always()])
        said = later(made=made) if ainvoke else ask(made=made)
        [row] = rows(wanted)

    assert said.startswith("['Always.']")
    assert (row.applied, row.why_not, row.source) == (None, "replaced", "default")


def test_what_is_never_asked_was_not_applied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cached(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return AIMessage("cached")

    wanted = settings(path, PROMPTS)

    with attached(wanted, monkeypatch, "prompt", forced="kind"):
        said = ask(made=agent(middleware=[Cached()]))
        [row] = rows(wanted)

    assert said == "cached"
    assert (row.applied, row.why_not) == (None, "not_asked")


def test_an_agent_without_instructions_is_given_no_empty_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = agent(system_prompt=None)
    wanted = settings(path, DeclaredDecision(point="prompt", options={"same": "{instructions}"}))

    with attached(wanted, monkeypatch, "prompt", forced="same", asking=lambda: ask(made=made)):
        said = ask(made=made)
        [row] = rows(wanted)

    assert said.startswith("[] at")
    assert (row.applied, row.why_not) == ("same", None)


def test_an_agent_that_was_made_before_us_is_decided_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, wanted = agent(), settings(path, PROMPTS)

    with attached(wanted, monkeypatch, "prompt", forced="kind"):
        said = ask(made=made)

    assert said.startswith("['Be good. Be kind.']")


def test_an_option_is_never_offered_where_it_must_not_be(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = (Never(option="kind", where={"customer": ["rude", "none"]}),)
    wanted = settings(path, DeclaredDecision(point="prompt", options=PROMPTS.options, never=never))

    with attached(wanted, monkeypatch, "prompt"):
        found = []
        for _ in range(8):
            ask(config={"metadata": {"customer": "rude"}})
            found += rows(wanted)

    assert {row.applied for row in found} == {"own"}
    assert {row.allowed for row in found} == {("own",)}
    assert found[0].context["customer"] == "rude"


def test_a_decision_past_its_deadline_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings(path, PROMPTS, decide_deadline_ms=1e-9)

    with attached(wanted, monkeypatch, "prompt", forced="kind"):
        said = ask()
        [row] = rows(wanted)

    assert said == OWN
    assert (row.applied, row.why_not) == ("own", "deadline")


def test_acting_leaves_the_agents_graph_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> list[str]:
        made = [agent(), agent(tools=[]), agent(tools=[], middleware=[Always()])]
        return [str(one.get_graph().to_json()) for one in made]

    expected = drawn()

    with attached(settings(path, PROMPTS, GATE), monkeypatch):
        assert drawn() == expected


def drawn(*, tools: bool) -> Any:
    """A graph of one node, which asks a model by itself."""
    model: Any = Mirror().bind_tools([look]) if tools else Mirror()

    def node(state: Any) -> Any:
        return {"messages": [model.invoke([SystemMessage("Be good."), *state["messages"]])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph.compile()


class Other(Mirror):
    """A model of another provider."""


@pytest.mark.parametrize("way", ["ask", "later"])
@pytest.mark.parametrize(
    ("point", "option", "tools", "said", "why_not"),
    [
        ("model", Mirror(says="right"), True, "right", None),
        ("model", Other(says="other"), False, "other", None),
        ("model", Other(), True, "['Be good.'] at None with ['look']: []", "error: TypeError"),
        ("prompt", "{instructions} Be kind.", False, "['Be good. Be kind.'] at", None),
        ("params", {"temperature": 0.0}, False, "['Be good.'] at 0.0 with []: []", None),
        ("tools", [], True, "['Be good.'] at None with []: []", None),
    ],
    ids=["model", "other class", "other class with tools", "prompt", "params", "tools"],
)
def test_what_a_node_asks_by_itself_is_decided_too(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    option: Any,
    tools: bool,
    said: str,
    why_not: str | None,
    way: str,
) -> None:
    made: Any = drawn(tools=tools)
    ways: dict[str, Callable[..., str]] = {"ask": ask, "later": later}
    how = ways[way]
    wanted = settings(path, DeclaredDecision(point=point, options={"chosen": option}))

    with attached(wanted, monkeypatch, point, forced="chosen", asking=lambda: how(made=made)):
        found = how(made=made)
        [row] = rows(wanted)

    assert found.startswith(said)
    assert (row.why_not, row.context["node"]) == (why_not, "node")


def test_a_model_that_a_tool_asks_is_left_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def look(place: int) -> str:
        """Ask a model of its own."""
        return str(Mirror(says="its own").invoke("hello").content)

    told = DeclaredDecision(point="model", options={"right": Mirror(says="right")})
    wanted = settings(path, told)

    with attached(wanted, monkeypatch, "model", forced="own"):
        said = ask("look", made=agent(tools=[look]))
        found = rows(wanted)

    assert said.endswith("['its own']")
    assert len(found) == 1
