"""Turns spans, as they begin and end, into events of runs.

A run is a span of an agent or a workflow, or a chain with no agent's span around it; a run inside
another is its child. If no span around a step is a run, one run is inferred for the trace. Spans
may end in any order and begin after the end of those around them; a step whose run is not known
yet waits for the span that decides it, within the bounds below.

Plain synchronous code without a clock; whoever owns it keeps threads apart.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tau_live.core import events as ev
from tau_live.core.events import OWN_HOST
from tau_live.record.telemetry import semconv
from tau_live.record.telemetry.semconv import (
    REWARD,
    STEPS,
    Around,
    Kind,
    SpanEnd,
    SpanStart,
    Value,
    host_of,
    reward_of,
    values_of,
)
from tau_live.record.telemetry.tree import (
    WAITING_LIMIT,
    Home,
    Node,
    Run,
    Tally,
    Trace,
    home_of,
    left_open,
    steps_of,
    took_ms,
)

HOST = "opentelemetry"

Ids = tuple[str, str, str]
"""The ids of a run: its host, its key there, and its execution."""


def ids_of(run: Run) -> Ids:
    """Return the ids of a run of ours."""
    return HOST, run.key, ""


def ids_around(around: Around) -> Ids:
    """Return the ids of another adapter's run, or one of the public API."""
    return around.host, around.run_id, around.execution


def event_of(kind: type[ev.Event], of: Run | Ids, fields: Mapping[str, Any]) -> ev.Event:
    """Return an event of a run."""
    named: dict[str, Any] = {}
    if isinstance(of, Run):
        named = {"session_id": of.session, "agent": of.agent}
        of = ids_of(of)
    host, run_id, execution = of
    return kind(**{"host": host, "run_id": run_id, "execution": execution, **named, **fields})


def key_of(node: Node) -> str:
    """Return the key of the run that a span is: a root's is the trace's id."""
    start = node.start
    return start.trace if start.parent is None else f"{start.trace}:{start.id}"


def start_of(run: Run) -> dict[str, Any]:
    """Return the known fields of a run's start, and mark it as announced.

    The parent run is left out while a span around it may turn out to be one: a store keeps the
    first parent that it is given.
    """
    start = run.node.start
    attributes, above = start.attributes, run_around(run) if run.pending is None else None
    run.announced = True
    run.session = run.session or _session(run.node)
    run.agent = run.agent or (semconv.text(attributes, *semconv.AGENTS) if run.whole else None)
    fidelity = ev.Fidelity.END_ONLY if run.whole else ev.Fidelity.INFERRED
    known = {
        "trace_id": start.trace,
        "span_id": start.id,
        "scope": start.scope,
        "service": None if start.service is None else start.service(),
        "fidelity": fidelity.value,
    }
    fields: dict[str, Any] = {
        "at": start.at,
        "name": run.agent or start.name.removeprefix("invoke_agent "),
        "session_id": run.session,
        "input": semconv.input_of(attributes) if run.whole else None,
        "model": semconv.model_of(attributes) if run.whole else None,
        "trigger": "tool" if above is not None and _in_tool(run.node) else None,
        "metadata": {name: value for name, value in known.items() if value},
        "fidelity": fidelity,
        "parent_run_id": above[1] if above else None,
        "parent_host": above[0] if above and above[0] != HOST else None,
    }
    run.has_input = fields["input"] is not None
    return fields


def complete_start(run: Run, ended: SpanEnd) -> bool:
    """Set a run's session at its end, and return whether its start was sent complete."""
    session, attributes = run.session, ended.start.attributes
    run.session = session or _session(run.node) or ended.start.trace
    has_input = run.whole and semconv.input_of(attributes) is not None
    return run.announced and run.session == session and (run.has_input or not has_input)


def end_of(run: Run, ended: SpanEnd) -> dict[str, Any]:
    """Return the fields of a run's end."""
    attributes, tally = ended.start.attributes, run.tally
    problem = semconv.problem_of(ended, fatal=True)
    retried = problem.status is ev.Status.RETRY
    usage = (
        semconv.usage_of(attributes, summed=True) if run.whole and not tally.usage else tally.usage
    )
    return {
        "at": ended.at,
        "status": ev.Status.ERROR if retried else problem.status,
        "error": problem.error,
        "reason": problem.reason,
        "output": semconv.content_of(attributes, *semconv.OUTPUTS) if run.whole else None,
        "usage": usage,
        "cost_usd": semconv.cost_of(attributes) if tally.cost is None else tally.cost,
        "turns": tally.turns or None,
        "duration_ms": took_ms(ended),
        "fidelity": ev.Fidelity.END_ONLY if run.whole else ev.Fidelity.INFERRED,
    }


def run_of(node: Node) -> Ids | None:
    """Return the ids of the run that a span is, or belongs to."""
    if node.run is not None:
        return ids_of(node.run)
    home = home_of(node, settled=True)
    run = home.run or (home.root.run if home.root is not None else None)
    if run is not None:
        return ids_of(run)
    return None if home.around is None else ids_around(home.around)


def run_around(run: Run) -> tuple[str, str] | None:
    """Return host and key of the run around a run."""
    home = home_of(run.node, settled=True) if run.whole else Home()
    if home.run is not None:
        return HOST, home.run.key
    around = run.node.around
    return None if around is None else (around.host, around.run_id)


def _session(node: Node) -> str | None:
    """Return the session of a run, or of a span around it."""
    above: Node | None = node
    while above is not None:
        session = semconv.session_of(above.start.attributes)
        if session is not None:
            return session
        above = above.above
    return None if node.around is None else node.around.session_id


def _in_tool(node: Node) -> bool:
    above = node.above
    while above is not None and above.run is None:
        if above.known_kind() is Kind.TOOL:
            return True
        above = above.above
    return False


OPEN_TRACES = 10_000
"""How many traces with open spans are remembered; beyond, the least recent one is forgotten: its
further spans count as spans whose start was not seen."""


SPANS_KEPT = 100_000
"""How many spans of all traces are remembered."""

IDLE_S = 6 * 3_600.0
"""A trace without a span event for so long is given up, with its open runs."""


class Runs:
    """Turns spans into events.

    Args:
        native: Returns whether a host has an adapter of its own, which reports its steps.
        reward: The name of rewards without one.
        source: The source of rewards without one.
        roots: Whether the root of a trace is a run whatever its attributes, and is announced
            at once.
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
        self._closed: OrderedDict[str, Trace] = OrderedDict()
        self._kept = 0

    def sizes(self) -> tuple[int, int]:
        """Return how many traces and spans are remembered."""
        return len(self._open) + len(self._closed), self._kept

    def start_span(self, start: SpanStart, *, around: Around | None, now: float) -> list[ev.Event]:
        """Return the events of the start of a span.

        Args:
            start: The span.
            around: The run of ours in which it begins.
            now: Epoch seconds, UTC.
        """
        events = list(self._idle(now))
        trace = self._trace(start.trace, now)
        if start.id in trace.nodes:
            return events
        node = self._add(trace, start, around)
        if node.is_run():
            events += self._wake_runs(trace, node.above)
            node.run = Run(key_of(node), node, whole=True)
        elif self._roots and start.parent is None:
            node.run = Run(key_of(node), node, whole=False)
        if node.run is not None:
            events += self._start_run(trace, node.run)
        while len(self._open) > OPEN_TRACES or self._has_too_many():
            events += self._forget_oldest()
        return events

    def end_span(self, ended: SpanEnd, *, around: Around | None, now: float) -> list[ev.Event]:
        """Return the events of the end of a span; all its events if its start was not seen.

        Args:
            ended: The span.
            around: The run of ours in which it ends.
            now: Epoch seconds, UTC.
        """
        events = list(self._idle(now))
        start = ended.start
        trace = self._trace(start.trace, now)
        node = trace.nodes.get(start.id) or self._add(trace, start, around)
        if node.ended or node.inherited:
            return events
        node.start = start
        self._kept -= trace.close(node)
        events += self._end_events(trace, node, ended)
        if trace.open <= 0:
            self._close_trace(start.trace, trace)
        return events

    def add_values(
        self, trace: str, span: str, values: Mapping[str, Value], *, at: float
    ) -> list[ev.Event]:
        """Return the rewards of a span, maybe long after it.

        Args:
            trace: The id of the trace.
            span: The id of the span.
            values: Its evaluations, each by a distinct key.
            at: Epoch seconds, UTC, of the rewards.
        """
        known = self._open.get(trace)
        events = [] if known is None else [*self._wake_runs(known, known.nodes.get(span))]
        target = self.run_of(trace, span) or (HOST, trace, "")
        return events + [
            event_of(
                ev.Reward,
                target,
                {"at": at, **reward_of(value, name=self._reward, source=self._source, key=key)},
            )
            for key, value in values.items()
        ]

    def run_of(self, trace: str, span: str) -> Ids | None:
        """Return the ids of the run that a span is, or belongs to, if it is remembered."""
        known = self._open.get(trace) or self._closed.get(trace)
        node = None if known is None else known.nodes.get(span)
        return None if node is None else run_of(node)

    def span_start(self, trace: str, span: str) -> SpanStart | None:
        """Return the start of a span in an open trace; ``None`` if it is not remembered."""
        known = self._open.get(trace)
        node = None if known is None else known.nodes.get(span)
        return None if node is None else node.start

    def flush(self) -> list[ev.Event]:
        """Return the events that wait, with spans of unknown kind as nothing."""
        return [event for trace in self._open.values() for event in self._settle(trace)]

    def finish(self) -> list[ev.Event]:
        """Return the events that still wait, as ``flush``, and forget everything."""
        events: list[ev.Event] = []
        while self._open:
            events += self._forget_oldest()
        self._closed.clear()
        self._kept = 0
        return events

    def after_fork(self) -> None:
        """Leave the open spans to the process that forked this one."""
        for trace in (*self._open.values(), *self._closed.values()):
            for node in trace.nodes.values():
                node.inherited = not node.ended
                node.waiting = node.pending_runs = None

    def _trace(self, id_: str, now: float) -> Trace:
        trace = self._open.get(id_)
        if trace is None:
            trace = self._closed.pop(id_) if id_ in self._closed else Trace()
            self._open[id_] = trace
        elif now > trace.updated_at:
            self._open.move_to_end(id_)
        trace.updated_at = now
        return trace

    def _add(self, trace: Trace, start: SpanStart, around: Around | None) -> Node:
        above = trace.nodes.get(start.parent) if start.parent is not None else None
        native = self._native(host_of(start.scope)) if start.scope else False
        node = Node(start, above, around, native)
        self._kept += 1
        trace.add(node)
        return node

    def _end_events(self, trace: Trace, node: Node, ended: SpanEnd) -> Iterator[ev.Event]:
        yield from self._wake_runs(trace, node.above)
        if node.is_run():
            node.run = node.run or Run(key_of(node), node, whole=True)
            node.run.whole = True
        yield from self._resume_waiting(trace, node)
        kind = node.known_kind()
        if not node.native and kind in STEPS:
            yield from self._step(trace, node, ended)
        if kind is not Kind.NOTHING or ended.events or REWARD in ended.start.attributes:
            yield from self._rewards(node, ended)
        if node.run is not None:
            yield from self._end_run(trace, node.run, ended)

    def _wake_runs(self, trace: Trace, node: Node | None) -> Iterator[ev.Event]:
        """Yield the starts of runs that are recognised after they began, the outermost first.

        Agents of google-adk set their kind just after their span began, others as late as its end.
        """
        late: list[Node] = []
        while node is not None:
            if node.is_late_run():
                late.append(node)
            node = node.above
        for late_node in reversed(late):
            late_node.run = late_node.run or Run(key_of(late_node), late_node, whole=True)
            late_node.run.whole = True
            if not late_node.run.announced:
                yield from self._start_run(trace, late_node.run)
            yield from self._resume_waiting(trace, late_node)

    def _resume_waiting(
        self, trace: Trace, node: Node, *, settled: bool = False
    ) -> Iterator[ev.Event]:
        """Yield the events that waited for the kind of a span; if ``settled``, it is nothing."""
        waiting, node.waiting = node.waiting or (), None
        trace.waiting -= len(waiting)
        for waiting_node, ended in waiting:
            yield from self._step(trace, waiting_node, ended, settled=settled)
        runs, node.pending_runs = node.pending_runs or (), None
        for run in runs:
            yield from self._place_run(trace, run, settled=settled)

    def _rewards(self, node: Node, ended: SpanEnd) -> Iterator[ev.Event]:
        """Yield the rewards in a span: of its run, or of the spans that an evaluation links to."""
        start = node.start
        values = {f"{start.id}:{n}": value for n, value in enumerate(values_of(ended))}
        linked = ended.links if node.known_kind() is Kind.EVALUATION else ()
        for trace, span in (linked or [(start.trace, start.id)]) if values else ():
            yield from self.add_values(trace, span, values, at=ended.at)

    def _step(
        self, trace: Trace, node: Node, ended: SpanEnd, *, settled: bool = False
    ) -> Iterator[ev.Event]:
        home = home_of(node, settled=settled or trace.settled)
        if home.pending is not None:
            yield from self._delay_step(trace, home.pending, node, ended)
            return
        kind = node.known_kind() or Kind.NOTHING
        if home.model is not None and kind in {Kind.MODEL, Kind.EMBEDDING}:
            attributes = ended.start.attributes
            home.model.inner = home.model.inner or Tally({})
            home.model.inner.add(semconv.usage_of(attributes), semconv.cost_of(attributes))
            return  # the same answer, seen by another instrumentation
        run = self._run_at(home)
        if run is not None:
            run.session = run.session or semconv.session_of(ended.start.attributes)
            if not run.announced:
                yield from self._start_run(trace, run)
        elif home.around is None or not (home.in_tool or home.around.host == OWN_HOST):
            return  # its own adapter records its model calls
        of = run or (None if home.around is None else ids_around(home.around))
        if of is not None:
            tally = None if run is None else run.tally
            for event, fields in steps_of(ended, kind, tally, node.inner):
                yield event_of(event, of, fields)

    def _delay_step(
        self, trace: Trace, pending: Node, node: Node, ended: SpanEnd
    ) -> Iterator[ev.Event]:
        pending.waiting = [*(pending.waiting or ()), (node, ended)]
        trace.waiting += 1
        if trace.waiting > WAITING_LIMIT:
            trace.settled = True
            yield from self._settle(trace)

    def _settle(self, trace: Trace) -> Iterator[ev.Event]:
        """Yield the events that wait, with spans of unknown kind as nothing."""
        for node in [*trace.nodes.values()]:
            yield from self._resume_waiting(trace, node, settled=True)
        trace.waiting = 0

    def _run_at(self, home: Home) -> Run | None:
        """Return the run of ours that a step belongs to, inferred if necessary."""
        root = home.root
        if root is None:
            return home.run
        root.run = root.run or Run(key_of(root), root, whole=False)
        return root.run

    def _start_run(self, trace: Trace, run: Run) -> Iterator[ev.Event]:
        yield from self._hold_back(trace, run, settled=trace.settled)
        yield event_of(ev.RunStart, run, start_of(run))

    def _place_run(self, trace: Trace, run: Run, *, settled: bool = False) -> Iterator[ev.Event]:
        """Yield the start of an announced run again, now that its parent run is known."""
        yield from self._hold_back(trace, run, settled=settled or trace.settled)
        if run.pending is None and run_around(run) is not None:
            yield event_of(ev.RunStart, run, start_of(run))

    def _hold_back(self, trace: Trace, run: Run, *, settled: bool) -> Iterator[ev.Event]:
        """Note a run at the span around it that may still turn out to be a run."""
        known = settled or not run.whole
        pending = run.pending = None if known else home_of(run.node, settled=False).pending
        if pending is None:
            return
        pending.pending_runs = pending.pending_runs or OrderedDict()
        pending.pending_runs[run] = None
        if len(pending.pending_runs) > WAITING_LIMIT:
            oldest, _ = pending.pending_runs.popitem(last=False)
            yield from self._place_run(trace, oldest, settled=True)

    def _end_run(self, trace: Trace, run: Run, ended: SpanEnd) -> Iterator[ev.Event]:
        if not run.announced and not run.whole:
            return
        yield from self._orphans(trace, run)
        if not complete_start(run, ended):
            yield from self._start_run(trace, run)
        run.ended = True
        yield event_of(ev.RunEnd, run, end_of(run, ended))

    def _orphans(self, trace: Trace, run: Run) -> Iterator[ev.Event]:
        """Yield the starts of steps that are open as their run ends."""
        if not 0 < trace.open <= 1_000:  # too many to search
            return
        for node in trace.nodes.values():
            kind = None if node.ended or node.native else node.known_kind()
            if kind is None or kind not in STEPS:
                continue
            home = home_of(node, settled=True)
            is_own = home.run is run or (home.root is not None and home.root.run is run)
            if is_own and home.model is None:
                for event, fields in left_open(node.start, kind, run.tally):
                    yield event_of(event, run, fields)

    def _close_trace(self, id_: str, trace: Trace) -> None:
        self._open.pop(id_, None)
        if not trace.free_attributes():
            self._kept -= len(trace.nodes)
            return
        self._closed[id_] = trace
        if len(self._closed) > 1_000:  # traces without open spans
            self._kept -= len(self._closed.popitem(last=False)[1].nodes)

    def _has_too_many(self) -> bool:
        """Forget closed traces if there are too many spans; return whether that was not enough."""
        while self._closed and self._kept > SPANS_KEPT:
            self._kept -= len(self._closed.popitem(last=False)[1].nodes)
        return self._kept > SPANS_KEPT and bool(self._open)

    def _forget_oldest(self) -> list[ev.Event]:
        """Forget the least recent open trace; return its waiting events."""
        _, trace = self._open.popitem(last=False)
        self._kept -= len(trace.nodes)
        return [*self._settle(trace)]

    def _idle(self, now: float) -> Iterator[ev.Event]:
        """Yield the events that end idle traces."""
        while self._open:
            id_ = next(iter(self._open))
            trace = self._open[id_]
            if now - trace.updated_at <= IDLE_S:
                return
            runs = [node.run for node in trace.nodes.values() if node.run is not None]
            yield from self._forget_oldest()
            for run in runs:
                if run.announced and not run.ended:
                    fields = {"at": trace.updated_at, "status": ev.Status.UNKNOWN}
                    yield event_of(ev.RunEnd, run, fields)
