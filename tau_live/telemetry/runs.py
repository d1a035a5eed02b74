"""Spans as they begin and end, and the events of the runs that they are of.

A run is a span of an agent or a workflow, or a chain with nothing of an agent around it; a run
inside of another is its child. Where steps are of no such span, one run is inferred for the trace.
Spans may end in any order and begin after the end of those around them; a step whose run cannot be
known yet waits for the span that will tell, and no longer than the bounds below.

Plain synchronous code without a clock; whoever owns it keeps threads apart.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from tau_live import events as ev
from tau_live.envelope import OWN_HOST
from tau_live.telemetry import said as says
from tau_live.telemetry.announced import (
    HOST,
    Ids,
    end_of,
    event_of,
    ids_around,
    key_of,
    knows_all,
    run_around,
    run_of,
    start_of,
)
from tau_live.telemetry.kinds import STEPS, Kind, host_of
from tau_live.telemetry.spans import Around, Begun, Ended
from tau_live.telemetry.steps import Tally, left_open, steps_of
from tau_live.telemetry.tree import WAITING_LIMIT, Home, Node, Run, Trace, home_of
from tau_live.telemetry.values import REWARD, Value, reward_of, values_of

OPEN_TRACES = 10_000
"""So many traces are remembered of which spans go on; of more, the one heard of longest ago is not:
what still comes of it counts as what was not seen to begin."""

REST_TRACES = 1_000
"""So many traces are remembered of which nothing goes on."""

SPANS_KEPT = 100_000
"""So many spans of all traces are remembered."""

IDLE_S = 6 * 3_600.0
"""What has not ended of a trace is given up when nothing was heard of it for so long."""

ORPHANS_SOUGHT = 1_000
"""Steps that a run leaves open are told if no more spans of its trace go on."""


class Runs:
    """Turns spans into events.

    Args:
        native: Says of a host whether an adapter of its own tells what it did.
        reward: How rewards are called that have no name.
        source: Who said so, of rewards of which nobody says it.
        roots: Whether the root of a trace is a run whatever it says, and is told at once.
    """

    def __init__(
        self,
        *,
        native: Callable[[str], bool],
        reward: str = "reward",
        source: str = HOST,
        roots: bool = False,
    ) -> None:
        self._native = native
        self._roots = roots
        self._reward = reward
        self._source = source
        self._open: OrderedDict[str, Trace] = OrderedDict()
        self._rest: OrderedDict[str, Trace] = OrderedDict()
        self._kept = 0
        self.given_up = 0

    def sizes(self) -> tuple[int, int]:
        """Return how many traces and spans are remembered."""
        return len(self._open) + len(self._rest), self._kept

    def begun(self, begun: Begun, *, around: Around | None, now: float) -> list[ev.Event]:
        """Return what the beginning of a span tells.

        Args:
            begun: The span.
            around: The run of ours in which it begins.
            now: Epoch seconds.
        """
        found = list(self._idle(now))
        trace = self._trace(begun.trace, now)
        if begun.id in trace.nodes:
            return found
        node = self._added(trace, begun, around)
        if node.is_run():
            found += self._woken(trace, node.above)
            node.run = Run(key_of(node), node, whole=True)
        elif self._roots and begun.parent is None:
            node.run = Run(key_of(node), node, whole=False)
        if node.run is not None:
            found += self._started(trace, node.run)
        while len(self._open) > OPEN_TRACES or self._has_too_many():
            found += self._forgotten()
        return found

    def ended(self, ended: Ended, *, around: Around | None, now: float) -> list[ev.Event]:
        """Return what the end of a span tells; of one that was not seen to begin, all that it is.

        Args:
            ended: The span.
            around: The run of ours in which it ends.
            now: Epoch seconds.
        """
        found = list(self._idle(now))
        begun = ended.begun
        trace = self._trace(begun.trace, now)
        node = trace.nodes.get(begun.id) or self._added(trace, begun, around)
        if node.ended or node.inherited:
            return found
        node.begun = begun
        self._kept -= trace.close(node)
        found += self._told(trace, node, ended)
        if trace.open <= 0:
            self._put_to_rest(begun.trace, trace)
        return found

    def valued(
        self, trace: str, span: str, values: Mapping[str, Value], *, at: float
    ) -> list[ev.Event]:
        """Return the rewards that are told of a span, maybe long after it.

        Args:
            trace: The trace of the span.
            span: The span.
            values: What it was worth, each by a key that tells it from others.
            at: When that was said, in epoch seconds.
        """
        known = self._open.get(trace)
        found = [] if known is None else [*self._woken(known, known.nodes.get(span))]
        target = self.run_of(trace, span) or (HOST, trace, "")
        return found + [
            event_of(
                ev.Reward,
                target,
                {"at": at, **reward_of(value, name=self._reward, source=self._source, key=key)},
            )
            for key, value in values.items()
        ]

    def run_of(self, trace: str, span: str) -> Ids | None:
        """Return the ids of the run that a span is, or is of, where that is remembered."""
        known = self._open.get(trace) or self._rest.get(trace)
        node = None if known is None else known.nodes.get(span)
        return None if node is None else run_of(node)

    def remembered(self, trace: str, span: str) -> Begun | None:
        """Return how a span began that is remembered and goes on."""
        known = self._open.get(trace)
        node = None if known is None else known.nodes.get(span)
        return None if node is None else node.begun

    def hurried(self) -> list[ev.Event]:
        """Return what waits, told as far as it can be known by now."""
        return [event for trace in self._open.values() for event in self._settled(trace)]

    def finished(self) -> list[ev.Event]:
        """Return what still waits, told as far as it can be known; nothing is remembered."""
        found: list[ev.Event] = []
        while self._open:
            found += self._forgotten()
        self._rest.clear()
        self._kept = 0
        return found

    def forked(self) -> None:
        """Leave what went on to the process that forked this one."""
        for trace in (*self._open.values(), *self._rest.values()):
            for node in trace.nodes.values():
                node.inherited = not node.ended
                node.waiting = node.unplaced = None

    def _trace(self, id_: str, now: float) -> Trace:
        trace = self._open.get(id_)
        if trace is None:
            trace = self._rest.pop(id_) if id_ in self._rest else Trace()
            self._open[id_] = trace
        elif now > trace.heard:
            self._open.move_to_end(id_)
        trace.heard = now
        return trace

    def _added(self, trace: Trace, begun: Begun, around: Around | None) -> Node:
        above = trace.nodes.get(begun.parent) if begun.parent is not None else None
        native = self._native(host_of(begun.scope)) if begun.scope else False
        node = Node(begun, above, around, native)
        self._kept += 1
        trace.add(node)
        return node

    def _told(self, trace: Trace, node: Node, ended: Ended) -> Iterator[ev.Event]:
        yield from self._woken(trace, node.above)
        if node.is_run():
            node.run = node.run or Run(key_of(node), node, whole=True)
            node.run.whole = True
        yield from self._heard(trace, node)
        kind = node.known()
        if not node.native and kind in STEPS:
            yield from self._step(trace, node, ended)
        if kind is not Kind.NOTHING or ended.happened or REWARD in ended.begun.attributes:
            yield from self._valued_by(node, ended)
        if node.run is not None:
            yield from self._ended(trace, node.run, ended)

    def _woken(self, trace: Trace, node: Node | None) -> Iterator[ev.Event]:
        """Yield the starts of runs that said what they are after they began, the outermost first.

        Their steps were looked at before that, or are now: agents of google-adk say it just after
        their span began, others as late as its end.
        """
        late: list[Node] = []
        while node is not None:
            if node.is_late_run():
                late.append(node)
            node = node.above
        for one in reversed(late):
            one.run = one.run or Run(key_of(one), one, whole=True)
            one.run.whole = True
            if not one.run.told:
                yield from self._started(trace, one.run)
            yield from self._heard(trace, one)

    def _heard(self, trace: Trace, node: Node) -> Iterator[ev.Event]:
        """Yield what waited until it was known what a span is."""
        waiting, node.waiting = node.waiting or (), None
        trace.waiting -= len(waiting)
        for one, its in waiting:
            yield from self._step(trace, one, its)
        unplaced, node.unplaced = node.unplaced or (), None
        for run in unplaced:
            yield from self._placed(trace, run)

    def _valued_by(self, node: Node, ended: Ended) -> Iterator[ev.Event]:
        """Yield what a span says of its run, or one that evaluates of the spans it points to."""
        begun = node.begun
        values = {f"{begun.id}:{n}": one for n, one in enumerate(values_of(ended))}
        linked = ended.linked if node.known() is Kind.EVALUATION else ()
        for trace, span in (linked or [(begun.trace, begun.id)]) if values else ():
            yield from self.valued(trace, span, values, at=ended.at)

    def _step(
        self, trace: Trace, node: Node, ended: Ended, *, settled: bool = False
    ) -> Iterator[ev.Event]:
        home = home_of(node, settled=settled or trace.settled)
        if home.behind is not None:
            yield from self._wait(trace, home.behind, node, ended)
            return
        kind = node.known() or Kind.NOTHING
        if home.model is not None and kind in {Kind.MODEL, Kind.EMBEDDING}:
            said = ended.begun.attributes
            home.model.inner = home.model.inner or Tally({})
            home.model.inner.add(says.usage_of(said), says.cost_of(said))
            return  # the same answer, seen by another instrumentation
        run = self._run_at(home)
        if run is not None:
            run.session = run.session or says.session_of(ended.begun.attributes)
            if not run.told:
                yield from self._started(trace, run)
        elif home.around is None or not (home.in_tool or home.around.host == OWN_HOST):
            return  # its own adapter tells what it asked its models
        of = run or (ids_around(home.around) if home.around is not None else None)
        if of is not None:
            tally = None if run is None else run.tally
            for event, fields in steps_of(ended, kind, tally, node.inner):
                yield event_of(event, of, fields)

    def _wait(self, trace: Trace, behind: Node, node: Node, ended: Ended) -> Iterator[ev.Event]:
        behind.waiting = [*(behind.waiting or ()), (node, ended)]
        trace.waiting += 1
        if trace.waiting > WAITING_LIMIT:
            trace.settled = True
            yield from self._settled(trace)

    def _settled(self, trace: Trace) -> Iterator[ev.Event]:
        """Tell what waits, taking what does not say yet what it is for nothing."""
        for node in [*trace.nodes.values()]:
            waiting, node.waiting = node.waiting or (), None
            for one, its in waiting:
                yield from self._step(trace, one, its, settled=True)
            unplaced, node.unplaced = node.unplaced or (), None
            for run in unplaced:
                yield from self._placed(trace, run, settled=True)
        trace.waiting = 0

    def _run_at(self, home: Home) -> Run | None:
        """Return the run of ours that a step is of, inferred where there has to be one."""
        root = home.root
        if root is None:
            return home.run
        root.run = root.run or Run(key_of(root), root, whole=False)
        return root.run

    def _started(self, trace: Trace, run: Run) -> Iterator[ev.Event]:
        yield from self._put(trace, run, settled=trace.settled)
        yield event_of(ev.RunStart, run, start_of(run))

    def _placed(self, trace: Trace, run: Run, *, settled: bool = False) -> Iterator[ev.Event]:
        """Yield the start of a run that was told, if it is inside of another, as is known now."""
        yield from self._put(trace, run, settled=settled or trace.settled)
        if run.behind is None and run_around(run) is not None:
            yield event_of(ev.RunStart, run, start_of(run))

    def _put(self, trace: Trace, run: Run, *, settled: bool) -> Iterator[ev.Event]:
        """Put a run behind the span around it of which is not known yet whether it is a run."""
        known = settled or not run.whole
        behind = run.behind = None if known else home_of(run.node, settled=False).behind
        if behind is None:
            return
        behind.unplaced = behind.unplaced or OrderedDict()
        behind.unplaced[run] = None
        if len(behind.unplaced) > WAITING_LIMIT:
            yield from self._placed(trace, behind.unplaced.popitem(last=False)[0], settled=True)

    def _ended(self, trace: Trace, run: Run, ended: Ended) -> Iterator[ev.Event]:
        if not run.told and not run.whole:
            return
        yield from self._orphans(trace, run)
        if not knows_all(run, ended):
            yield from self._started(trace, run)
        run.ended = True
        yield event_of(ev.RunEnd, run, end_of(run, ended))

    def _orphans(self, trace: Trace, run: Run) -> Iterator[ev.Event]:
        """Yield the starts of steps that go on as their run ends, which is all that is sure."""
        if not 0 < trace.open <= ORPHANS_SOUGHT:
            return
        for node in trace.nodes.values():
            kind = None if node.ended or node.native else node.known()
            if kind is None or kind not in STEPS:
                continue
            home = home_of(node, settled=True)
            mine = home.run is run or (home.root is not None and home.root.run is run)
            if mine and home.model is None:
                for event, fields in left_open(node.begun, kind, run.tally):
                    yield event_of(event, run, fields)

    def _put_to_rest(self, id_: str, trace: Trace) -> None:
        self._open.pop(id_, None)
        if not trace.rest():
            self._kept -= len(trace.nodes)
            return
        self._rest[id_] = trace
        if len(self._rest) > REST_TRACES:
            self._kept -= len(self._rest.popitem(last=False)[1].nodes)

    def _has_too_many(self) -> bool:
        """Make room of what is at rest; say whether that was not enough."""
        while self._rest and self._kept > SPANS_KEPT:
            self._kept -= len(self._rest.popitem(last=False)[1].nodes)
        return self._kept > SPANS_KEPT and bool(self._open)

    def _forgotten(self) -> list[ev.Event]:
        """Forget the trace that was heard of longest ago; return what waited."""
        _, trace = self._open.popitem(last=False)
        self.given_up += 1
        self._kept -= len(trace.nodes)
        return [*self._settled(trace)]

    def _idle(self, now: float) -> Iterator[ev.Event]:
        """Yield what ends the traces of which nothing was heard for long."""
        while self._open:
            id_ = next(iter(self._open))
            trace = self._open[id_]
            if now - trace.heard <= IDLE_S:
                return
            runs = [node.run for node in trace.nodes.values() if node.run is not None]
            yield from self._forgotten()
            for run in runs:
                if run.told and not run.ended:
                    unheard = {"at": trace.heard, "status": ev.Status.UNKNOWN}
                    yield event_of(ev.RunEnd, run, unheard)
