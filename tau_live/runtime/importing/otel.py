"""Turns spans written by the file exporter of OpenTelemetry's collector into events of runs.

A trace gives the same events as live spans (``tau_live.record.telemetry``), except that its root is
a run whatever its attributes. Spans with ``tau.decision.*`` are decisions; the model that a span
requested is a choice of the host's at the point ``model``. A run without a root is left open, and
abandoned.

Source:
    OpenTelemetry semantic conventions for generative AI; OTLP 1.x, JSON encoding.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from operator import itemgetter

from tau_live.core import events as ev
from tau_live.core.offers import text_of
from tau_live.core.records import IMPORTED, rollout_id_of
from tau_live.core.redaction import clean_id
from tau_live.core.sanitize import JsonObject, mapping, sequence
from tau_live.record.telemetry.runs import HOST, Runs
from tau_live.record.telemetry.semconv import (
    RESULT,
    REWARD,
    Attributes,
    SpanEnd,
    SpanEvent,
    SpanStart,
)
from tau_live.record.whole_runs import event_of_decision
from tau_live.runtime.importing.rows import FieldError, Options, name_of, number_of
from tau_live.runtime.importing.runs import Logged, Reader, Records

OPEN_TRACES = 10_000
"""A trace ends after spans of so many others."""


POINT = "model"
DECISION = "tau.decision."


_Trace = tuple[dict[str, SpanEnd], dict[str, tuple[float, str, Logged]]]
"""The spans of an open trace, by id; and their decisions, by span: time, span id, decision."""


class Traces:
    """Turns the spans of one log into events.

    Args:
        records: Makes decisions.
        reward: The name of rewards without one.
    """

    def __init__(self, records: Records, *, reward: str) -> None:
        self._records = records
        self._reader = Reader({}, point=POINT, offered=(), cells=False)
        self._runs = Runs(native=lambda _: False, reward=reward, source=IMPORTED, roots=True)
        self._open: OrderedDict[str, _Trace] = OrderedDict()
        self._spans = 0

    def events(self, batch: JsonObject) -> Iterator[ev.Event | FieldError]:
        """Yield the events of a line, and its errors."""
        resources = sequence(batch.get("resourceSpans"))
        if not resources:
            yield FieldError("resourceSpans", "expected the spans of resources")
        for r, resource in enumerate(resources):
            own = mapping(mapping(resource).get("resource"))
            try:
                service = _attributes(own.get("attributes")).get("service.name")
            except (ValueError, OverflowError) as error:  # its spans may still be readable
                yield FieldError(f"resourceSpans[{r}].resource", str(error))
                service = None
            for s, scope in enumerate(sequence(mapping(resource).get("scopeSpans"))):
                instrumentation = _text(mapping(mapping(scope).get("scope")).get("name")) or ""
                for n, item in enumerate(sequence(mapping(scope).get("spans"))):
                    at = f"resourceSpans[{r}].scopeSpans[{s}].spans[{n}]"
                    try:
                        span = _span(mapping(item), instrumentation, _text(service))
                        yield from self._take(span)
                    except (ValueError, OverflowError) as error:
                        yield FieldError(at, str(error))

    def finish(self) -> Iterator[ev.Event | FieldError]:
        """Yield the last events of the traces that are still open."""
        while self._open:
            yield from self._end_trace(*self._open.popitem(last=False))

    def _take(self, span: SpanEnd) -> Iterator[ev.Event | FieldError]:
        choice = self._choice(span.start.attributes)  # first, as it may raise
        start = span.start
        trace = self._open.pop(start.trace, None) or ({}, {})
        self._open[start.trace] = trace  # the last to be ended
        spans, choices = trace
        self._spans += start.id not in spans
        spans[start.id] = span
        if choice is not None:
            choices[start.id] = start.at, start.id, choice
        # The oldest trace also ends when too many spans wait.
        while len(self._open) > OPEN_TRACES or (self._spans > 200_000 and len(self._open) > 1):
            yield from self._end_trace(*self._open.popitem(last=False))

    def _choice(self, attributes: Attributes) -> Logged | None:
        """Return the decision of a span, or the host's choice of a model; ``None`` without one."""
        row = {
            name.removeprefix(DECISION): value
            for name, value in attributes.items()
            if name.startswith(DECISION)
        }
        if row:
            context = {n.removeprefix("context."): row[n] for n in row if n.startswith("context.")}
            applied = row.get("applied", row.get("option", row.get("chosen")))
            if "applied" not in row and "option" not in row:
                row["chosen"] = None  # the only option named was applied
            more = {"context": context} if context else {}
            return self._reader.decision({**row, "option": applied, **more})
        model = name_of(attributes.get("gen_ai.request.model"))
        if model is None:
            return None
        return Logged(point=POINT, option=model, options=Options((model,), (None,)))

    def _end_trace(self, key: str, trace: _Trace) -> Iterator[ev.Event]:
        self._spans -= len(trace[0])
        events: list[ev.Event] = []
        for start, ended in _in_order(key, trace[0]):
            if start is not None:
                events += self._runs.start_span(start, around=None, now=start.at)
            if ended is not None:
                events += self._runs.end_span(ended, around=None, now=ended.at)
        decisions = self._decisions(key, trace)
        events += self._runs.finish()
        for event in events:
            if isinstance(event, ev.RunEnd):
                yield from decisions.pop(event.run_id, ())
            yield event
        for left in decisions.values():
            yield from left

    def _decisions(self, key: str, trace: _Trace) -> dict[str, list[ev.Event]]:
        """Return the decisions of a trace, in their order, by the key of their run."""
        decisions: dict[str, list[ev.Event]] = {}
        for at, span, logged in sorted(trace[1].values(), key=itemgetter(0, 1)):
            _, run, _ = self._runs.run_of(key, span) or (HOST, key, "")
            of_run = decisions.setdefault(run, [])
            decision = self._records.decision_of(
                logged,
                rollout_id=rollout_id_of(HOST, run),
                ordinal=logged.step or len(of_run) + 1,
                at=at,
            )
            of_run.append(event_of_decision(decision, {"host": HOST, "run_id": run}))
        return decisions


def _in_order(
    key: str, spans: Mapping[str, SpanEnd]
) -> Iterator[tuple[SpanStart | None, SpanEnd | None]]:
    """Yield the starts of spans, each after its parent's, and then their ends.

    A missing parent is replaced by an empty span below the root; without a root, by one that never
    ends.
    """
    below: dict[str | None, list[SpanEnd]] = {}
    for span in sorted(spans.values(), key=lambda span: (span.start.at, span.start.id)):
        below.setdefault(span.start.parent, []).append(span)
    roots = below.get(None, ())
    root = roots[0].start.id if roots else None
    for parent in [id_ for id_ in below if id_ is not None and id_ not in spans]:
        began = min(span.start.at for span in below[parent])
        missing = SpanEnd(SpanStart(key, parent, root, "", "", began, {}), began)
        below.setdefault(root, []).append(missing)
    left = dict(spans)  # spans in a cycle are not reached from a root
    ends: list[tuple[float, int, str, SpanEnd]] = []
    waiting = [(span, 0) for span in reversed(below.get(None, ()))]
    while waiting or left:
        span, depth = waiting.pop() if waiting else (next(iter(left.values())), 0)
        known = left.pop(span.start.id, None) is not None
        if not known and span.start.id in spans:
            continue
        yield span.start, None
        if known or span.start.parent is not None:
            ends.append((span.at, -depth, span.start.id, span))
        waiting += [(child, depth + 1) for child in reversed(below.get(span.start.id, ()))]
    for *_, span in sorted(ends, key=lambda end: end[:3]):
        yield None, span


def _span(span: JsonObject, scope: str, service: str | None) -> SpanEnd:
    """Return a span. Raises: ValueError."""
    trace, id_ = span.get("traceId"), span.get("spanId")
    if not isinstance(trace, str) or not trace or not isinstance(id_, str) or not id_:
        raise ValueError(f"expected traceId and spanId, got {trace!r} and {id_!r}")
    parent = span.get("parentSpanId")
    attributes = _attributes(span.get("attributes"))
    began = _seconds(span, "startTimeUnixNano")
    ended = _seconds(span, "endTimeUnixNano") if span.get("endTimeUnixNano") else began
    status = mapping(span.get("status"))
    events = [
        SpanEvent(text_of(event.get("name") or ""), _attributes(event.get("attributes")))
        for event in map(mapping, sequence(span.get("events")))
    ]
    number_of(attributes.get(REWARD))  # may be malformed
    for result in events:
        if result.name == RESULT:
            number_of(result.attributes.get("gen_ai.evaluation.score.value"))
    parent_id = clean_id(parent) if isinstance(parent, str) and parent.strip("0") else None
    return SpanEnd(
        SpanStart(
            clean_id(trace),
            clean_id(id_),
            None if parent_id == clean_id(id_) else parent_id,
            text_of(span.get("name") or ""),
            scope,
            began,
            attributes,
            (lambda: service) if service else None,
        ),
        ended,
        status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
        _text(status.get("message")) or "",
        events,
        [
            (clean_id(str(link.get("traceId"))), clean_id(str(link.get("spanId"))))
            for link in map(mapping, sequence(span.get("links")))
        ],
    )


def _seconds(span: JsonObject, name: str) -> float:
    number = number_of(span.get(name))
    if number is None or number < 0.0:
        raise ValueError(f"expected {name} in nanoseconds, got {span.get(name)!r}")
    return round(number / 1e3) / 1e6


def _attributes(listed: object) -> Attributes:
    """Return attributes by key, their values as plain data. Raises: ValueError."""
    attributes: dict[str, object] = {}
    for item in map(mapping, sequence(listed)):
        key = _text(item.get("key"))
        if key is None:
            raise ValueError("expected the key of an attribute, got none")
        attributes[key] = _value(mapping(item.get("value")), 0)
    return attributes


def _value(value: JsonObject, depth: int) -> object:
    """Return the value of an ``AnyValue``; integers come as text. Raises: ValueError."""
    for kind, content in value.items():
        if kind == "intValue":
            return int(str(content))
        if kind == "arrayValue" and depth < 8:
            return [
                _value(mapping(item), depth + 1)
                for item in sequence(mapping(content).get("values"))
            ]
        if kind == "kvlistValue" and depth < 8:
            pairs = map(mapping, sequence(mapping(content).get("values")))
            return {str(p.get("key")): _value(mapping(p.get("value")), depth + 1) for p in pairs}
        if kind in {"stringValue", "boolValue", "doubleValue"}:
            return content
    return None


def _text(value: object) -> str | None:
    return text_of(value) if isinstance(value, str | int) and value != "" else None
