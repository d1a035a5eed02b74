"""The open traces of spans, and the run that each span belongs to."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tau_live.core import events as ev
from tau_live.record.telemetry import semconv
from tau_live.record.telemetry.semconv import (
    Around,
    Attributes,
    Kind,
    SpanEnd,
    SpanStart,
    kind_of,
    text,
)

HANDS_OVER = "handoff to "
"""The prefix of tool calls by which one agent hands over to another."""

EventFields = tuple[type[ev.Event], dict[str, Any]]
"""A kind of event, and its fields without the ids of its run."""


@dataclass(slots=True)
class Tally:
    """Totals of a run's steps.

    Attributes:
        usage: Tokens by kind.
        cost: US dollars; ``None`` while no step has a cost.
        turns: The number of turns.
    """

    usage: dict[str, float]
    cost: float | None = None
    turns: int = 0

    def add(self, usage: Mapping[str, float], cost: float | None) -> None:
        """Add the tokens and the cost of a model's answer."""
        for kind, number in usage.items():
            self.usage[kind] = self.usage.get(kind, 0.0) + number
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


def steps_of(
    ended: SpanEnd, kind: Kind, tally: Tally | None, inner: Tally | None
) -> Iterator[EventFields]:
    """Yield the events of a span, and count it in its run.

    Args:
        ended: The span.
        kind: Its kind.
        tally: The totals of its run; ``None`` for a run of another adapter, which counts its own
            turns.
        inner: The totals of spans of the same answer, made by another instrumentation inside this
            one; used where this span has no value.
    """
    if kind in {Kind.MODEL, Kind.EMBEDDING}:
        yield from _answer(ended, kind, tally, inner)
    elif kind in {Kind.TOOL, Kind.RETRIEVAL}:
        yield from _call(ended, kind, tally)
    elif kind is Kind.POLICY:
        start, problem = ended.start, semconv.problem_of(ended)
        fields = semconv.check_of(start.attributes, start.name, failed=ended.failed)
        yield ev.Policy, {
            **_within(start, at=ended.at), **fields, "error": problem.error,
            "turn": _turn(tally),
        }  # fmt: skip


def _turn(tally: Tally | None) -> int | None:
    return None if tally is None else tally.turns or None


def left_open(start: SpanStart, kind: Kind, tally: Tally) -> Iterator[EventFields]:
    """Yield the start of a step without an end, so that the end of its run closes it."""
    attributes, within = start.attributes, _within(start, at=start.at)
    if kind is Kind.MODEL:
        yield ev.ModelStart, {**within, **semconv.request_of(attributes)}
    elif kind is Kind.TOOL:
        call = {**semconv.call_of(attributes, start.name), "turn": tally.turns or None}
        yield ev.ToolStart, {**within, **call, **semconv.arguments_of(attributes)}


def _answer(
    ended: SpanEnd, kind: Kind, tally: Tally | None, inner: Tally | None
) -> Iterator[EventFields]:
    start, problem = ended.start, semconv.problem_of(ended)
    attributes = start.attributes
    request, response = semconv.request_of(attributes), semconv.response_of(attributes)
    usage, cost = semconv.usage_of(attributes), semconv.cost_of(attributes)
    if inner is not None:  # used where this span has no value
        usage, cost = usage or inner.usage, inner.cost if cost is None else cost
    if tally is not None:
        tally.add(usage, cost)
        tally.turns += kind is Kind.MODEL
    turn = {"turn": _turn(tally)}
    took = {"duration_ms": took_ms(ended)}
    spent = {"usage": usage, "cost_usd": cost}
    ending = {"status": problem.status, "error": problem.error}
    yield ev.ModelStart, {**_within(start, at=start.at), **request, **turn}
    yield ev.ModelEnd, {
        **_within(start, at=ended.at), **response, **spent, **ending, **turn, **took,
    }  # fmt: skip
    if problem.status is ev.Status.RETRY:
        yield _retry(ended, "model", attributes)
    if kind is Kind.MODEL and tally is not None:
        calls = response["tool_calls"]
        yield ev.TurnEnd, {
            "at": ended.at, **turn, **took, "span_id": f"turn:{tally.turns}",
            "parent_span_id": start.parent, "status": problem.status, "usage": usage,
            "tool_calls": len(calls) if isinstance(calls, tuple) else None,
            "fidelity": ev.Fidelity.INFERRED,
        }  # fmt: skip


def _call(ended: SpanEnd, kind: Kind, tally: Tally | None) -> Iterator[EventFields]:
    start, problem = ended.start, semconv.problem_of(ended)
    attributes = start.attributes
    if start.name.startswith(HANDS_OVER):
        yield ev.Handoff, {
            **_within(start, at=ended.at), "status": problem.status, "error": problem.error,
            "from_agent": text(attributes, "input.value"), "turn": _turn(tally),
            "to_agent": start.name.removeprefix(HANDS_OVER),
        }  # fmt: skip
        return
    call = {
        **semconv.call_of(attributes, start.name),
        "turn": _turn(tally),
    }
    builtin = {"tool_kind": "builtin"} if kind is Kind.RETRIEVAL else {}
    arguments = semconv.arguments_of(attributes)
    yield ev.ToolStart, {**_within(start, at=start.at), **call, **arguments, **builtin}
    waits = problem.status is ev.Status.INTERRUPTED
    yield ev.ToolEnd, {
        **_within(start, at=ended.at), **call,
        "result": semconv.content_of(attributes, *semconv.RESULTS),
        "is_error": problem.error is not None and not waits, "status": problem.status,
        "error": problem.error, "duration_ms": took_ms(ended),
    }  # fmt: skip
    if problem.status is ev.Status.RETRY:
        yield _retry(ended, "tool", attributes)


def _retry(ended: SpanEnd, what: str, attributes: Attributes) -> EventFields:
    start = ended.start
    number = attributes.get("pydantic_ai.tool.retry.attempt")
    return ev.Retry, {
        **_within(start, at=ended.at), "span_id": f"{start.id}:retry", "what": what,
        "number": number if isinstance(number, int) else None,
        "reason": semconv.call_of(attributes, start.name)["tool"] if what == "tool" else None,
    }  # fmt: skip


def _within(start: SpanStart, *, at: float) -> dict[str, Any]:
    return {
        "at": at,
        "span_id": start.id,
        "parent_span_id": start.parent,
        "fidelity": ev.Fidelity.END_ONLY,
    }


def took_ms(ended: SpanEnd) -> float:
    """Return the duration of a span, in milliseconds."""
    return max(0.0, ended.at - ended.start.at) * 1e3


WAITING_LIMIT = 1_000
"""The most steps of one trace that wait until their run is known, and the most runs that wait in
one span."""


@dataclass(slots=True, eq=False)
class Run:
    """A run: a span that is one, or an inferred one if no span of a trace is.

    Attributes:
        key: The run's key at its host.
        node: The span that is the run, or below which it was inferred.
        whole: Whether it is a span, and not inferred.
        tally: Totals of its steps.
        session: Its session, if known.
        agent: The agent's name.
        announced: Whether its start was sent.
        has_input: Whether its start was sent with the input.
        pending: The span around it that may still turn out to be a run.
        ended: Whether its end was sent.
    """

    key: str
    node: "Node"
    whole: bool
    tally: Tally = field(default_factory=lambda: Tally({}))
    session: str | None = None
    agent: str | None = None
    announced: bool = False
    has_input: bool = False
    pending: "Node | None" = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A span of a trace.

    Attributes:
        start: Its start.
        above: The parent span, if this process has seen it.
        around: The run of ours in which it began, if any.
        native: Whether its host has an adapter of its own, which reports its steps.
        kind: Its kind; ``None`` while unknown.
        run: The run that it is, or that was inferred below it.
        ended: Whether it has ended.
        inherited: Whether it belongs to the process that forked this one, which reports it.
        inner: The totals of spans of the same model's answer inside it.
        waiting: Steps that wait until its kind is known.
        pending_runs: Runs inside it that are sent again once its kind is known.
    """

    start: SpanStart
    above: "Node | None"
    around: Around | None
    native: bool
    kind: Kind | None = None
    run: Run | None = None
    ended: bool = False
    inherited: bool = False
    inner: Tally | None = None
    waiting: list[tuple["Node", SpanEnd]] | None = None
    pending_runs: OrderedDict[Run, None] | None = None

    def known_kind(self) -> Kind | None:
        """Return its kind, as far as it is known by now."""
        if self.kind is None:
            kind = kind_of(self.start.attributes, ended=self.ended)
            if self.start.name.endswith("._prepare_chat_with_tools"):  # not a model call
                kind = Kind.NOTHING
            elif kind is Kind.CHAIN and self.start.name.endswith(
                ("Agent.run", "AgentWorkflow.run")
            ):
                kind = Kind.RUN
            self.kind = kind
        return self.kind

    def is_late_run(self) -> bool:
        """Return whether it is open and was recognised as a run only after its start."""
        is_new = self.run is None or not self.run.whole
        return is_new and not self.ended and not self.inherited and self.is_run()

    def is_run(self) -> bool:
        """Return whether it is a run: an agent, or a chain with no agent's span around it."""
        kind = self.known_kind()
        if self.native or kind not in {Kind.RUN, Kind.CHAIN}:
            return False
        return kind is Kind.RUN or self._is_top()

    def _is_top(self) -> bool:
        """Return whether no agent's span is around it.

        A span of the same instrumentation counts as an agent's while its kind is unknown.
        """
        scope, above = self.start.scope, self.above
        while above is not None and above.around is self.around:
            kind = above.known_kind()
            if kind is None and above.start.scope == scope:
                return False
            if not above.native and kind not in {None, Kind.NOTHING}:
                return False
            above = above.above
        return True

    def may_hide_a_run(self, inside: "Node") -> bool:
        """Return whether its unknown kind matters for a span inside it.

        A step's run has the same key whether the outermost span is that run or it is inferred. A
        run is inside another only if that span is one.
        """
        return not self.inherited and (self.above is not None or inside.run is not None)


class Home(NamedTuple):
    """Where a step belongs: to a run, to a run of ours, to a span of unknown kind, or nowhere.

    Attributes:
        run: The run around it.
        around: The run of ours around it.
        pending: The span around it whose kind is not known yet.
        root: The span below which a run is to be inferred.
        model: The span of a model's answer around it.
        in_tool: Whether it is inside a tool call that another adapter reports.
    """

    run: Run | None = None
    around: Around | None = None
    pending: Node | None = None
    root: Node | None = None
    model: Node | None = None
    in_tool: bool = False


NOWHERE = Home()


def home_of(node: Node, *, settled: bool) -> Home:  # one case after the other
    """Return where a step belongs.

    Args:
        node: The step's span.
        settled: Whether spans of unknown kind count as nothing.
    """
    home = Home(around=node.around)
    top, above = node, node.above
    while above is not None:
        if node.around is not None and above.around is not node.around:
            return home  # it was entered further inside
        if above.native:
            return _in_native(above, node.around)
        kind = above.known_kind()
        if kind is None and not settled and above.may_hide_a_run(node):
            return Home(pending=above)
        if kind is Kind.EVALUATION:
            return NOWHERE
        if kind is Kind.MODEL and home.model is None:
            home = home._replace(model=above)
        if above.run is not None and above.run.whole:
            return home._replace(run=above.run, around=None)
        top, above = top if above.inherited else above, above.above
    return home if node.around is not None else home._replace(root=top)


def _in_native(above: Node, around: Around | None) -> Home:
    """Return where a step inside a span of a host with an adapter of its own belongs.

    Model calls there are recorded by that adapter. A tool may call models and tools of its own.
    """
    node: Node | None = above
    while node is not None and node.native:
        if node.known_kind() in {Kind.TOOL, Kind.RETRIEVAL}:
            return Home(around=around, in_tool=True)
        if node.known_kind() in {Kind.MODEL, Kind.RUN, Kind.EMBEDDING}:
            return NOWHERE
        node = node.above
    return NOWHERE


@dataclass(slots=True, eq=False)
class Trace:
    """The spans of a trace in this process.

    Attributes:
        nodes: Its spans by id: the open ones, and the last that ended.
        done: The ids of ended spans that are still remembered, the oldest first.
        open: How many of them are open.
        updated_at: Epoch seconds of its last span event.
        waiting: How many steps wait.
        settled: Whether so many steps waited that none does any more.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    done: OrderedDict[str, None] = field(default_factory=OrderedDict)
    open: int = 0
    updated_at: float = 0.0
    waiting: int = 0
    settled: bool = False

    def add(self, node: Node) -> None:
        """Add a span that begins."""
        self.nodes[node.start.id] = node
        self.open += 1

    def close(self, node: Node) -> int:
        """Mark a span as ended; return how many others were forgotten."""
        node.ended = True
        self.open -= 1
        self.done[node.start.id] = None
        if len(self.done) <= 1_000:  # for children that begin after its end
            return 0
        self.nodes.pop(self.done.popitem(last=False)[0], None)
        return 1

    def free_attributes(self) -> bool:
        """Free all attributes once no span is open; return whether it has a run to remember."""
        for node in self.nodes.values():
            node.start = node.start._replace(attributes={})
        return any(node.run is not None for node in self.nodes.values())
