"""The spans that belong together, while they are of interest, and the run that each is of."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from tau_live.telemetry.kinds import Kind, kind_of
from tau_live.telemetry.spans import Around, Attributes, Begun, Ended
from tau_live.telemetry.steps import Tally

ENDED_KEPT = 1_000
"""So many spans of one trace are remembered after their end, for children that begin then."""

WAITING_LIMIT = 1_000
"""So many steps of one trace wait at most until it is known of which run they are, and so many runs
inside of one span."""

PREPARES = ("._prepare_chat_with_tools",)
"""How spans end that say to be of a model which they do not ask."""

AGENTS = ("Agent.run", "AgentWorkflow.run")
"""How chains are named that are agents, such as those of llama-index."""

_NONE: Attributes = {}


@dataclass(slots=True, eq=False)
class Run:
    """A run: a span that is one, or what stands for one where no span of a trace is.

    Attributes:
        key: The run's key at its host.
        node: The span that it is, or under which it is.
        whole: Whether it is a span, and not inferred.
        tally: What its steps come to.
        session: What is known of its session.
        agent: The agent's name.
        told: Whether its start was told, and with which session.
        behind: The span around it of which is not known yet whether it is a run.
        ended: Whether its end was.
    """

    key: str
    node: "Node"
    whole: bool
    tally: Tally = field(default_factory=lambda: Tally({}))
    session: str | None = None
    agent: str | None = None
    told: bool = False
    input_told: bool = False
    behind: "Node | None" = None
    ended: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A span of a trace.

    Attributes:
        begun: How it began.
        above: The span around it, where this process has seen it.
        around: The run of ours in which it began, if there was one.
        native: Whether its host has an adapter of its own that tells what it did.
        kind: What it is of; ``None`` while that is not known.
        run: The run that it is, or that stands for it.
        ended: Whether it has.
        inherited: Whether it is of the process that forked this one, which tells of it.
        inner: What spans of the same model's answer, inside of it, came to.
        waiting: Steps that wait until it is known what this is.
        unplaced: Runs inside of it that are told again once that is known.
    """

    begun: Begun
    above: "Node | None"
    around: Around | None
    native: bool
    kind: Kind | None = None
    run: Run | None = None
    ended: bool = False
    inherited: bool = False
    inner: Tally | None = None
    waiting: list[tuple["Node", Ended]] | None = None
    unplaced: OrderedDict[Run, None] | None = None

    def known(self) -> Kind | None:
        """Return what it is of, as far as that can be known by now."""
        if self.kind is None:
            kind = kind_of(self.begun.attributes, ended=self.ended)
            if self.begun.name.endswith(PREPARES):
                kind = Kind.NOTHING
            elif kind is Kind.CHAIN and self.begun.name.endswith(AGENTS):
                kind = Kind.RUN
            self.kind = kind
        return self.kind

    def is_late_run(self) -> bool:
        """Say whether it goes on and has said, after its beginning, that it is a run."""
        unheard = self.run is None or not self.run.whole
        return unheard and not self.ended and not self.inherited and self.is_run()

    def is_run(self) -> bool:
        """Say whether it is a run: an agent, or a chain with nothing of an agent around it."""
        kind = self.known()
        if self.native or kind not in {Kind.RUN, Kind.CHAIN}:
            return False
        return kind is Kind.RUN or self._is_top()

    def _is_top(self) -> bool:
        """Say whether nothing of an agent is around it.

        A span of the same instrumentation that does not say yet what it is counts as something.
        """
        scope, above = self.begun.scope, self.above
        while above is not None and above.around is self.around:
            kind = above.known()
            if kind is None and above.begun.scope == scope:
                return False
            if not above.native and kind not in {None, Kind.NOTHING}:
                return False
            above = above.above
        return True

    def may_hide_a_run(self, inside: "Node") -> bool:
        """Say whether it matters to what is inside that it does not say yet what it is.

        A step's run has the same key whether an outermost span is that run or it is inferred. A
        run is inside another only if that span is one.
        """
        return not self.inherited and (self.above is not None or inside.run is not None)

    def freed(self) -> None:
        """Let go of what was said, of which nothing is left to tell."""
        self.begun = self.begun._replace(attributes=_NONE)


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
    found = Home(around=node.around)
    top, above = node, node.above
    while above is not None:
        if node.around is not None and above.around is not node.around:
            return found  # it was entered further inside
        if above.native:
            return _in_native(above, node.around)
        kind = above.known()
        if kind is None and not settled and above.may_hide_a_run(node):
            return Home(behind=above)
        if kind is Kind.EVALUATION:
            return NOWHERE
        if kind is Kind.MODEL and found.model is None:
            found = found._replace(model=above)
        if above.run is not None and above.run.whole:
            return found._replace(run=above.run, around=None)
        top, above = top if above.inherited else above, above.above
    return found if node.around is not None else found._replace(root=top)


def _in_native(above: Node, around: Around | None) -> Home:
    """Return where a step in a span of a host with an adapter of its own belongs.

    What a model was asked there that adapter tells. A tool may ask models and tools of its own.
    """
    seen: Node | None = above
    while seen is not None and seen.native:
        if seen.known() in {Kind.TOOL, Kind.RETRIEVAL}:
            return Home(around=around, in_tool=True)
        if seen.known() in {Kind.MODEL, Kind.RUN, Kind.EMBEDDING}:
            return NOWHERE
        seen = seen.above
    return NOWHERE


@dataclass(slots=True, eq=False)
class Trace:
    """What is known of a trace in this process.

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
        self.nodes[node.begun.id] = node
        self.open += 1

    def close(self, node: Node) -> int:
        """Note that a span has ended; return how many others were forgotten for it."""
        node.ended = True
        self.open -= 1
        self.done[node.begun.id] = None
        if len(self.done) <= ENDED_KEPT:
            return 0
        self.nodes.pop(self.done.popitem(last=False)[0], None)
        return 1

    def rest(self) -> bool:
        """Free what was said, once nothing goes on; say whether there is any run to remember."""
        for node in self.nodes.values():
            node.freed()
        return any(node.run is not None for node in self.nodes.values())
