"""Of which run a span is, in whichever order spans begin and end, and within which bounds."""

from collections.abc import Mapping

import pytest

from tau_live.core import events as ev
from tau_live.record.telemetry import runs as bounds
from tau_live.record.telemetry.runs import IDLE_S, OPEN_TRACES, SPANS_KEPT
from tau_live.record.telemetry.semconv import SpanEvent, Value
from tests.record.telling import AGENT, CHAIN, CHAT, HTTP, TOOL, Door, Told

EVALUATOR = {"openinference.span.kind": "EVALUATOR"}


def parents(told: Told) -> dict[str, str | None]:
    return {event.run_id: event.parent_run_id for event in told.of(ev.RunStart)}


def test_agents_inside_of_agents_are_runs_inside_of_runs() -> None:
    told = Told()

    told.begin("outer", AGENT)
    told.begin("tool", TOOL, inside="outer")
    told.begin("inner", AGENT, inside="tool")
    told.span("chat", CHAT, inside="inner")
    told.end("inner")
    told.end("tool")
    told.end("outer")

    assert parents(told) == {"t1": None, "t1:inner": "t1"}
    assert told.models() == [("t1:inner", "chat")]
    assert told.ends() == [("t1:inner", "ok"), ("t1", "ok")]
    inner = next(one for one in told.of(ev.RunStart) if one.run_id == "t1:inner")
    assert isinstance(inner, ev.RunStart)
    assert inner.trigger == "tool"


def test_a_chain_that_is_named_as_an_agent_is_one() -> None:
    told = Told()

    told.begin("FunctionAgent.run", CHAIN)
    told.begin("tool", TOOL, inside="FunctionAgent.run")
    told.begin("ReActAgent.run", CHAIN, inside="tool")
    told.begin("ReActAgent.step", CHAIN, inside="ReActAgent.run")
    for name in ("ReActAgent.step", "ReActAgent.run", "tool", "FunctionAgent.run"):
        told.end(name)

    assert parents(told) == {"t1": None, "t1:ReActAgent.run": "t1"}


@pytest.mark.parametrize("root", [HTTP, CHAT], ids=["a request", "the model itself"])
def test_a_trace_without_an_agent_is_one_run(root: Mapping[str, object]) -> None:
    told = Told()

    told.begin("root", root)
    told.span("chat", TOOL, inside="root")
    told.end("root")

    assert parents(told) == {"t1": None}
    assert told.ends() == [("t1", "ok")]
    assert {event.fidelity for event in told.of(ev.RunStart)} == {ev.Fidelity.INFERRED}


def test_a_trace_without_any_step_is_nothing() -> None:
    told = Told()

    told.begin("root", HTTP)
    told.span("query", {"db.system": "sqlite"}, inside="root")
    told.end("root")

    assert told.events == []
    assert told.runs.sizes() == (0, 0)


def test_an_agent_below_a_request_is_a_run_of_its_own() -> None:
    told = Told()

    told.begin("root", HTTP)
    told.begin("agent", AGENT, inside="root")
    told.span("chat", CHAT, inside="agent")
    told.end("agent")
    told.end("root")

    assert parents(told) == {"t1:agent": None}
    assert told.models() == [("t1:agent", "chat")]


@pytest.mark.parametrize("scope", ["their.instrumentation", "fastapi"])
def test_only_the_outermost_chain_is_a_run(scope: str) -> None:
    told = Told()

    told.begin("root", {}, scope=scope)
    told.begin("chain", {}, inside="root")
    told.begin("step", {}, inside="chain")
    told.end("step", CHAIN)
    told.end("chain", CHAIN)
    told.end("root", CHAIN if scope != "fastapi" else {})

    assert parents(told) == {"t1:chain" if scope == "fastapi" else "t1": None}


def test_what_a_span_is_may_be_said_as_it_ends() -> None:
    told = Told()

    told.begin("root", {})
    told.begin("agent", {}, inside="root")
    told.begin("chat", {}, inside="agent")
    told.end("chat", CHAT)
    told.end("agent", AGENT)
    told.end("root", AGENT)

    assert told.models() == [("t1:agent", "chat")]
    assert parents(told) == {"t1": None, "t1:agent": "t1"}
    assert told.ends() == [("t1:agent", "ok"), ("t1", "ok")]


def test_runs_wait_for_what_is_around_them_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "WAITING_LIMIT", 3)
    told = Told()

    told.begin("root", {})
    for number in range(5):
        told.span(f"agent{number}", AGENT, inside="root")
    told.end("root", AGENT)

    around = [parents(told)[f"t1:agent{number}"] for number in range(5)]
    assert around == [None, None, "t1", "t1", "t1"]


@pytest.mark.parametrize("root", [AGENT, HTTP], ids=["in an agent", "in a request"])
def test_what_a_span_is_may_be_said_just_after_it_began(root: Mapping[str, object]) -> None:
    told = Told()

    told.begin("root", root)
    told.begin("agent", {}, inside="root")
    told.say("agent", AGENT)
    told.span("chat", CHAT, inside="agent")
    told.begin("tool", TOOL, inside="agent")
    told.begin("inner", {}, inside="tool")
    told.say("inner", AGENT)
    told.span("deeper", CHAT, inside="inner")
    told.end("inner")
    told.end("tool")
    told.end("agent")
    told.end("root")

    assert told.models() == [("t1:agent", "chat"), ("t1:inner", "deeper")]
    above = "t1" if root is AGENT else None
    assert parents(told) | {"t1": None} == {"t1": None, "t1:agent": above, "t1:inner": "t1:agent"}
    assert told.ends()[:2] == [("t1:inner", "ok"), ("t1:agent", "ok")]


def test_a_step_before_a_span_said_that_it_is_a_run_is_that_runs() -> None:
    told = Told()

    told.begin("root", AGENT)
    told.begin("agent", {}, inside="root")
    told.span("before", CHAT, inside="agent")
    told.say("agent", AGENT)
    told.span("after", CHAT, inside="agent")
    told.end("agent")
    told.end("root")

    assert told.models() == [("t1:agent", "before"), ("t1:agent", "after")]
    assert [event.turn for event in told.of(ev.TurnEnd)] == [1, 2]


@pytest.mark.parametrize("between", [AGENT, HTTP], ids=["a run", "nothing"])
@pytest.mark.parametrize("first", ["child", "between"])
def test_a_run_that_came_before_what_is_around_it_is_put_right(
    between: Mapping[str, object], first: str
) -> None:
    told = Told()

    told.begin("root", AGENT)
    told.begin("between", {}, inside="root")
    told.begin("child", AGENT, inside="between")
    early = parents(told)
    for id_ in ("child", "between") if first == "child" else ("between", "child"):
        told.end(id_, between if id_ == "between" else None)
    told.end("root")

    assert early["t1:child"] is None
    assert parents(told)["t1:child"] == ("t1:between" if between is AGENT else "t1")


def test_a_run_whose_surroundings_are_never_known_is_put_where_it_can_be() -> None:
    told = Told()

    told.begin("root", AGENT)
    told.begin("between", {}, inside="root")
    told.begin("child", AGENT, inside="between")
    told.events += told.runs.finish()

    assert parents(told)["t1:child"] == "t1"


def test_what_is_said_later_of_a_span_that_is_a_run_by_now_is_its_own() -> None:
    told = Told()

    told.begin("root", AGENT)
    told.begin("agent", {}, inside="root")
    told.say("agent", AGENT)
    told.events += told.runs.add_values("t1", "agent", {"k": Value("good", 1.0)}, at=told.now)

    [reward] = told.of(ev.Reward)
    assert reward.run_id == "t1:agent"


def test_a_step_may_end_and_even_begin_after_its_run() -> None:
    told = Told()

    told.begin("agent", AGENT)
    told.begin("late", CHAT, inside="agent")
    told.end("agent")
    told.end("late")
    told.span("later", CHAT, inside="agent")

    assert told.models() == [("t1", "late"), ("t1", "later")]
    assert told.ends() == [("t1", "ok")]


def test_a_step_that_never_ends_is_closed_by_its_run() -> None:
    told = Told()

    told.begin("agent", AGENT)
    told.begin("chat", CHAT, inside="agent")
    told.begin("tool", TOOL, inside="agent")
    told.end("agent")

    assert [event.event for event in told.events] == [
        "run.start", "model.start", "tool.start", "run.start", "run.end",
    ]  # fmt: skip


def test_a_run_sums_up_what_its_own_steps_took() -> None:
    told = Told()
    priced = {**CHAT, "llm.cost.total": 0.25}

    told.begin("outer", AGENT)
    told.span("chat", priced, inside="outer")
    told.begin("inner", AGENT, inside="outer")
    told.span("other", priced, inside="inner")
    told.end("inner")
    told.span("again", priced, inside="outer")
    told.end("outer")

    inner, outer = told.of(ev.RunEnd)
    assert isinstance(outer, ev.RunEnd)
    assert isinstance(inner, ev.RunEnd)
    assert (outer.usage, outer.cost_usd, outer.turns) == (
        {"input_tokens": 14.0, "output_tokens": 6.0}, 0.5, 2,
    )  # fmt: skip
    assert inner.cost_usd == 0.25


def test_one_answer_that_two_instrumentations_saw_counts_once() -> None:
    told = Told()

    told.begin("agent", AGENT)
    told.begin("outer", {"openinference.span.kind": "LLM"}, inside="agent")
    told.span("inner", CHAT, inside="outer")
    told.end("outer")
    told.end("agent")

    [answer] = told.of(ev.ModelEnd)
    assert isinstance(answer, ev.ModelEnd)
    assert answer.span_id == "outer"
    assert answer.usage == {"input_tokens": 7.0, "output_tokens": 3.0}


def test_what_an_evaluator_asks_is_not_its_runs() -> None:
    told = Told()

    told.begin("agent", AGENT)
    told.begin("judge", EVALUATOR, inside="agent")
    told.span("chat", CHAT, inside="judge")
    told.end("judge", {"evaluation.name": "tone", "evaluation.score": 0.5})
    told.end("agent")

    [reward] = told.of(ev.Reward)
    assert isinstance(reward, ev.Reward)
    assert (reward.run_id, reward.name, reward.value) == ("t1", "tone", 0.5)
    assert told.models() == []


def test_an_evaluator_elsewhere_means_what_it_points_to() -> None:
    told = Told()
    told.begin("agent", AGENT)
    told.begin("inner", AGENT, inside="agent")
    told.end("inner")
    told.end("agent")

    told.begin("judge", EVALUATOR, trace="t2")
    told.end("judge", {"annotation.score": 1.0}, linked=(("t1", "inner"),))

    [reward] = told.of(ev.Reward)
    assert reward.run_id == "t1:inner"


@pytest.mark.parametrize(
    ("type_", "raised", "status", "reason"),
    [
        pytest.param("ValueError", None, "error", None, id="an error"),
        pytest.param("builtins.TimeoutError", None, "error", "timeout", id="too late"),
        pytest.param("asyncio.CancelledError", None, "cancelled", "cancelled", id="cancelled"),
        pytest.param("pydantic_ai.UsageLimitExceeded", None, "limit", "limit", id="a limit"),
        pytest.param(None, "CancelledError", "cancelled", "cancelled", id="cancelled, unsaid"),
        pytest.param(None, None, "ok", None, id="nothing"),
    ],
)
def test_a_run_ends_as_its_span_says(
    type_: str | None, raised: str | None, status: str, reason: str | None
) -> None:
    told = Told()
    happened = (SpanEvent("exception", {"exception.type": type_}),) if type_ else ()

    told.begin("agent", AGENT)
    told.end("agent", failed=type_ is not None, happened=happened, raised=raised)

    [end] = told.of(ev.RunEnd)
    assert isinstance(end, ev.RunEnd)
    assert (end.status, end.reason) == (status, reason)


def test_a_host_with_an_adapter_of_its_own_is_told_by_it_alone() -> None:
    told = Told("smolagents")
    theirs = "openinference.instrumentation.smolagents"

    told.begin("agent", AGENT, scope=theirs)
    told.begin("chat", CHAT, inside="agent", scope=theirs)
    told.span("provider", CHAT, inside="chat")
    told.end("chat")
    told.end("agent")

    assert told.events == []


def test_another_framework_in_a_tool_of_such_a_host_is_a_run_inside_of_its_run() -> None:
    told, run = Told("pydantic-ai"), Door()

    told.begin("agent", AGENT, scope="pydantic-ai", around=run)
    told.begin("tool", TOOL, inside="agent", scope="pydantic-ai", around=run)
    told.begin("pipeline", CHAIN, inside="tool", around=run)
    told.span("chat", CHAT, inside="pipeline", around=run)
    told.end("pipeline")
    told.span("own", CHAT, inside="tool", around=run)
    told.end("tool")
    told.end("agent")

    [start, *_] = told.of(ev.RunStart)
    assert (start.run_id, start.parent_host, start.parent_run_id) == (
        "t1:pipeline", "pydantic-ai", "theirs",
    )  # fmt: skip
    assert told.models() == [("t1:pipeline", "chat"), ("theirs", "own")]


def test_what_a_run_of_another_adapter_asks_is_not_told_twice() -> None:
    told = Told()

    told.span("chat", CHAT, around=Door())

    assert told.events == []


def test_steps_inside_a_run_of_the_door_are_its_steps() -> None:
    told, run = Told(), Door(host="tau_live", run_id="mine/1")

    told.span("chat", CHAT, around=run)

    [answer] = told.of(ev.ModelEnd)
    assert (answer.host, answer.run_id, answer.execution) == ("tau_live", "mine/1", "once")
    assert told.of(ev.RunStart) == []


def test_a_run_of_the_door_inside_an_agent_is_nearer_than_it() -> None:
    told = Told()

    told.begin("agent", AGENT)
    told.span("chat", CHAT, inside="agent", around=Door(host="tau_live", run_id="mine/1"))
    told.end("agent")

    assert told.models() == [("mine/1", "chat")]


def test_steps_wait_for_what_is_around_them_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "WAITING_LIMIT", 3)
    told = Told()

    told.begin("root", {})
    told.begin("unsaid", {}, inside="root")
    for number in range(3):
        told.span(f"chat{number}", CHAT, inside="unsaid")
    waiting = told.models()
    told.span("one too many", CHAT, inside="unsaid")

    assert waiting == []
    assert len(told.models()) == 4


def test_what_waits_is_told_when_the_provider_shuts_down() -> None:
    told = Told()
    told.begin("root", {})
    told.begin("unsaid", {}, inside="root")
    told.span("chat", CHAT, inside="unsaid")

    told.events += told.runs.flush()

    assert told.models() == [("t1", "chat")]


def test_a_trace_of_which_nothing_is_heard_is_given_up() -> None:
    told = Told()
    told.begin("agent", AGENT)
    heard = told.now

    told.now += IDLE_S + 1.0
    told.begin("other", AGENT, trace="t2")

    [end] = told.of(ev.RunEnd)
    assert (end.run_id, end.status, end.at) == ("t1", "unknown", heard)
    assert told.runs.sizes() == (1, 1)


@pytest.mark.slow
def test_a_hundred_thousand_open_traces_take_bounded_memory() -> None:
    told = Told()

    for number in range(100_000):
        told.begin(f"s{number}", AGENT, trace=f"t{number}")
        told._begun.clear()
        told.events.clear()

    traces, spans = told.runs.sizes()
    assert traces == OPEN_TRACES
    assert spans == OPEN_TRACES


@pytest.mark.slow
def test_one_trace_without_an_end_takes_bounded_memory() -> None:
    told = Told()
    told.begin("root", {})

    for number in range(SPANS_KEPT + 10_000):
        told.begin(f"s{number}", HTTP, inside="root")
        if number % 2:
            told.end(f"s{number}")
        told._begun.pop(f"s{number - 1}", None)

    assert told.runs.sizes()[1] <= SPANS_KEPT


def test_what_comes_of_a_forgotten_run_is_told_all_the_same() -> None:
    told = Told()
    told.begin("agent", AGENT)
    told.begin("chat", CHAT, inside="agent")
    told.events += told.runs.finish()

    told.end("agent")

    assert told.ends() == [("t1", "ok")]


def test_a_fork_leaves_open_spans_to_its_parent() -> None:
    told = Told()
    told.begin("agent", AGENT)
    told.begin("tool", TOOL, inside="agent")
    told.runs.after_fork()
    told.events.clear()

    told.span("chat", CHAT, inside="tool")
    told.begin("inner", AGENT, inside="tool")
    told.end("inner")
    told.end("tool")
    told.end("agent")

    assert told.models() == [("t1", "chat")]
    assert parents(told) == {"t1:inner": "t1"}
    assert told.ends() == [("t1:inner", "ok")]
