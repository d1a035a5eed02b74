"""The spans that belong together, while they are of interest, and the run that each is of."""

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
"""How the tool's calls begin by which one agent hands over to another."""

EventFields = tuple[type[ev.Event], dict[str, Any]]
"""A kind of event, and its fields but for those that say of which run it is."""


@dataclass(slots=True)
class Tally:
    """Totals of a run's steps.

    Attributes:
        usage: Tokens by kind.
        cost: US dollars; ``None`` while no step has any.
        turns: How many turns there were.
    """

    usage: dict[str, float]
    cost: float | None = None
    turns: int = 0

    def add(self, usage: Mapping[str, float], cost: float | None) -> None:
        """Count what a model's answer took."""
        for kind, number in usage.items():
            self.usage[kind] = self.usage.get(kind, 0.0) + number
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


def steps_of(
    ended: SpanEnd, kind: Kind, tally: Tally | None, inner: Tally | None
) -> Iterator[EventFields]:
    """Yield what a span tells, and count it.

    Args:
        ended: The span.
        kind: Its kind.
        tally: Of its run; ``None`` for one that others tell, which has turns of its own.
        inner: What spans of the same answer came to, made by another instrumentation inside of
            this one; counts where this one says nothing.
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
    if inner is not None:  # counts where this one says nothing
        usage, cost = usage or inner.usage, inner.cost if cost is None else cost
    response |= {"usage": usage, "cost_usd": cost}
    if tally is not None:
        tally.add(usage, cost)
        tally.turns += kind is Kind.MODEL
    turn = {"turn": _turn(tally)}
    took = {"duration_ms": took_ms(ended)}
    ending = {"status": problem.status, "error": problem.error}
    yield ev.ModelStart, {**_within(start, at=start.at), **request, **turn}
    yield ev.ModelEnd, {**_within(start, at=ended.at), **response, **ending, **turn, **took}
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
    arguments = semconv.arguments_of(attributes)
    if kind is Kind.RETRIEVAL:
        arguments["tool_kind"] = "builtin"
    yield ev.ToolStart, {**_within(start, at=start.at), **call, **arguments}
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
    """Return for how long a span went on, in milliseconds."""
    return max(0.0, ended.at - ended.start.at) * 1e3


WAITING_LIMIT = 1_000
"""So many steps of one trace wait at most until it is known of which run they are, and so many runs
inside of one span."""


@dataclass(slots=True, eq=False)
class Run:
    """A run: a span that is one, or what stands for one where no span of a trace is.

    Attributes:
        key: The run's key at its host.
        node: The span that it is, or under which it is.
        whole: Whether it is a span, and not inferred.
        tally: Totals of its steps.
        session: Its session, if known.
        agent: The agent's name.
        announced: Whether its start was announced, and with which session.
        behind: The span around it of which is not known yet whether it is a run.
        ended: Whether its end was.
    """

    key: str
    node: "Node"
    whole: bool
    tally: Tally = field(default_factory=lambda: Tally({}))
    session: str | None = None
    agent: str | None = None
    announced: bool = False
    input_told: bool = False
    behind: "Node | None" = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A span of a trace.

    Attributes:
        start: Its start.
        above: The span around it, where this process has seen it.
        around: The run of ours in which it began, if there was one.
        native: Whether its host has an adapter of its own that tells what it did.
        kind: Its kind; ``None`` while that is not known.
        run: The run that it is, or that stands for it.
        ended: Whether it has.
        inherited: Whether it is of the process that forked this one, which tells of it.
        inner: What spans of the same model's answer, inside of it, came to.
        waiting: Steps that wait until it is known what this is.
        unplaced: Runs inside of it that are announced again once that is known.
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
    unplaced: OrderedDict[Run, None] | None = None

    def known_kind(self) -> Kind | None:
        """Return what it is of, as far as that can be known by now."""
        if self.kind is None:
            kind = kind_of(self.start.attributes, ended=self.ended)
            if self.start.name.endswith("._prepare_chat_with_tools"):  # no call of the model
                kind = Kind.NOTHING
            elif kind is Kind.CHAIN and self.start.name.endswith(
                ("Agent.run", "AgentWorkflow.run")
            ):
                kind = Kind.RUN
            self.kind = kind
        return self.kind

    def is_late_run(self) -> bool:
        """Return whether it goes on and became known as a run after its beginning."""
        unheard = self.run is None or not self.run.whole
        return unheard and not self.ended and not self.inherited and self.is_run()

    def is_run(self) -> bool:
        """Return whether it is a run: an agent, or a chain with nothing of an agent around it."""
        kind = self.known_kind()
        if self.native or kind not in {Kind.RUN, Kind.CHAIN}:
            return False
        return kind is Kind.RUN or self._is_top()

    def _is_top(self) -> bool:
        """Return whether nothing of an agent is around it.

        A span of the same instrumentation that does not say yet what it is counts as something.
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
        """Return whether it matters to what is inside that it does not say yet what it is.

        A step's run has the same key whether an outermost span is that run or it is inferred. A
        run is inside another only if that span is one.
        """
        return not self.inherited and (self.above is not None or inside.run is not None)


class Home(NamedTuple):
    """Where a step belongs: to a run, into a run of ours, behind a span that goes on, or nowhere.

    Attributes:
        run: The run around it.
        around: The run of ours around it.
        behind: The span around it of which is not known yet what it is.
        root: Under which span a run is to be inferred.
        model: The model's answer inside of which it is.
        in_tool: Whether it is inside a tool's call that another adapter tells.
    """

    run: Run | None = None
    around: Around | None = None
    behind: Node | None = None
    root: Node | None = None
    model: Node | None = None
    in_tool: bool = False


NOWHERE = Home()


def home_of(node: Node, *, settled: bool) -> Home:  # one case after the other
    """Return where a step belongs.

    Args:
        node: The step's span.
        settled: Whether spans that do not say yet what they are count as nothing.
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
            return Home(behind=above)
        if kind is Kind.EVALUATION:
            return NOWHERE
        if kind is Kind.MODEL and home.model is None:
            home = home._replace(model=above)
        if above.run is not None and above.run.whole:
            return home._replace(run=above.run, around=None)
        top, above = top if above.inherited else above, above.above
    return home if node.around is not None else home._replace(root=top)


def _in_native(above: Node, around: Around | None) -> Home:
    """Return where a step in a span of a host with an adapter of its own belongs.

    Model calls there are recorded by that adapter. A tool may ask models and tools of its own.
    """
    seen: Node | None = above
    while seen is not None and seen.native:
        if seen.known_kind() in {Kind.TOOL, Kind.RETRIEVAL}:
            return Home(around=around, in_tool=True)
        if seen.known_kind() in {Kind.MODEL, Kind.RUN, Kind.EMBEDDING}:
            return NOWHERE
        seen = seen.above
    return NOWHERE


@dataclass(slots=True, eq=False)
class Trace:
    """The spans of a trace in this process.

    Attributes:
        nodes: Its spans by id: those that go on, and the last that ended.
        open: How many of them go on.
        heard: When something was last heard of it, in epoch seconds.
        waiting: How many steps wait.
        settled: Whether so many waited that none does any more.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    done: OrderedDict[str, None] = field(default_factory=OrderedDict)
    open: int = 0
    heard: float = 0.0
    waiting: int = 0
    settled: bool = False

    def add(self, node: Node) -> None:
        """Take a span that begins."""
        self.nodes[node.start.id] = node
        self.open += 1

    def close(self, node: Node) -> int:
        """Note that a span has ended; return how many others were forgotten for it."""
        node.ended = True
        self.open -= 1
        self.done[node.start.id] = None
        if len(self.done) <= 1_000:  # for children that begin after its end
            return 0
        self.nodes.pop(self.done.popitem(last=False)[0], None)
        return 1

    def rest(self) -> bool:
        """Free all attributes once nothing goes on; say whether there is any run to remember."""
        for node in self.nodes.values():
            node.start = node.start._replace(attributes={})
        return any(node.run is not None for node in self.nodes.values())
