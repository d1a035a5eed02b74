"""OpenTelemetry's spans, as its collector's file exporter writes them, as the events of runs.

A trace becomes what the same spans become when they are seen live (``tau_live.telemetry``), but
that its root is a run whatever it says. Spans with ``tau.decision.*`` are decisions; the model that
a span asked for is a choice of the host's at the point ``model``. What has no root is left open,
and abandoned.

Source:
    OpenTelemetry semantic conventions for generative AI; OTLP 1.x, JSON encoding.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tau_live import events as ev
from tau_live.collection.whole_runs import event_of_decision
from tau_live.handed.values import text_of
from tau_live.importing.fields import FieldError
from tau_live.importing.logged import Logged, Reader
from tau_live.importing.records import SOURCE, Records
from tau_live.importing.values import Options, name_of, number_of
from tau_live.privacy.redaction import clean_id
from tau_live.rollouts import rollout_id_of
from tau_live.telemetry.announced import HOST, Ids
from tau_live.telemetry.runs import Runs
from tau_live.telemetry.spans import Begun, Ended, Happened
from tau_live.telemetry.values import RESULT, REWARD

OPEN_TRACES = 10_000
"""A trace is over when so many others were heard of since."""

OPEN_SPANS = 200_000
"""Likewise when so many spans wait for the end of their traces."""

POINT = "model"
DECISION = "tau.decision."

Attributes = dict[str, object]


class _Choice(NamedTuple):
    """A decision that a span tells."""

    at: float
    span: str
    logged: Logged


@dataclass(slots=True)
class _Trace:
    """A trace that may go on."""

    spans: dict[str, Ended] = field(default_factory=dict)
    choices: dict[str, _Choice] = field(default_factory=dict)


class Traces:
    """Turns the spans of one log into events.

    Args:
        records: Makes decisions.
        reward: How rewards are called that have no name.
    """

    def __init__(self, records: Records, *, reward: str) -> None:
        self._records = records
        self._reader = Reader({}, point=POINT, offered=(), cells=False)
        self._runs = Runs(native=lambda _: False, reward=reward, source=SOURCE, roots=True)
        self._open: OrderedDict[str, _Trace] = OrderedDict()
        self._spans = 0

    def told(self, batch: Mapping[str, object]) -> Iterator[ev.Event | FieldError]:
        """Yield the events that a line tells, and what is wrong with it."""
        resources = _list(batch.get("resourceSpans"))
        if not resources:
            yield FieldError("resourceSpans", "expected the spans of resources")
        for r, resource in enumerate(resources):
            own = _mapping(_mapping(resource).get("resource"))
            try:
                service = _attributes(own.get("attributes")).get("service.name")
            except (ValueError, OverflowError) as error:  # its spans may be whole
                yield FieldError(f"resourceSpans[{r}].resource", str(error))
                service = None
            for s, scope in enumerate(_list(_mapping(resource).get("scopeSpans"))):
                made_by = _text(_mapping(_mapping(scope).get("scope")).get("name")) or ""
                for n, one in enumerate(_list(_mapping(scope).get("spans"))):
                    at = f"resourceSpans[{r}].scopeSpans[{s}].spans[{n}]"
                    try:
                        span = _span(_mapping(one), made_by, _text(service))
                        yield from self._taken(span)
                    except (ValueError, OverflowError) as error:
                        yield FieldError(at, str(error))

    def finished(self) -> Iterator[ev.Event | FieldError]:
        """Yield what ends the traces that are still open."""
        while self._open:
            yield from self._ended(*self._open.popitem(last=False))

    def _taken(self, span: Ended) -> Iterator[ev.Event | FieldError]:
        choice = self._choice(span.begun.attributes)  # may be malformed: nothing is told then
        begun = span.begun
        trace = self._open.pop(begun.trace, None) or _Trace()
        self._open[begun.trace] = trace  # the last to be given up
        self._spans += begun.id not in trace.spans
        trace.spans[begun.id] = span
        if choice is not None:
            trace.choices[begun.id] = _Choice(begun.at, begun.id, choice)
        while len(self._open) > OPEN_TRACES or (self._spans > OPEN_SPANS and len(self._open) > 1):
            yield from self._ended(*self._open.popitem(last=False))

    def _choice(self, said: Mapping[str, object]) -> Logged | None:
        """Return the decision of a span, or the host's choice of a model; ``None`` without."""
        row = {
            name.removeprefix(DECISION): value
            for name, value in said.items()
            if name.startswith(DECISION)
        }
        if row:
            context = {n.removeprefix("context."): row[n] for n in row if n.startswith("context.")}
            applied = row.get("applied", row.get("option", row.get("chosen")))
            named = {**row, "option": applied}
            if "applied" not in row and "option" not in row:
                named["chosen"] = None  # the only one that is told was applied
            return self._reader.logged({**named, **({"context": context} if context else {})})
        model = name_of(said.get("gen_ai.request.model"))
        if model is None:
            return None
        return Logged(point=POINT, option=model, options=Options((model,), (None,)))

    def _ended(self, key: str, trace: _Trace) -> Iterator[ev.Event]:
        self._spans -= len(trace.spans)
        found: list[ev.Event] = []
        for begun, ended in _in_order(key, trace.spans):
            if begun is not None:
                found += self._runs.begun(begun, around=None, now=begun.at)
            if ended is not None:
                found += self._runs.ended(ended, around=None, now=ended.at)
        decisions = self._decisions(key, trace)
        found += self._runs.finished()
        for event in found:
            if isinstance(event, ev.RunEnd):
                yield from decisions.pop(event.run_id, ())
            yield event
        for left in decisions.values():
            yield from left

    def _decisions(self, key: str, trace: _Trace) -> dict[str, list[ev.Event]]:
        """Return the decisions of a trace, in their order, by the key of their run."""
        chosen: dict[Ids, list[Logged]] = {}
        times: dict[Ids, list[float]] = {}
        for choice in sorted(trace.choices.values(), key=lambda one: one[:2]):
            ids = self._runs.run_of(key, choice.span) or (HOST, key, "")
            chosen.setdefault(ids, []).append(choice.logged)
            times.setdefault(ids, []).append(choice.at)
        return {
            ids[1]: [
                event_of_decision(
                    self._records.decision_of(
                        logged,
                        rollout_id=rollout_id_of(HOST, ids[1]),
                        ordinal=logged.step or ordinal,
                        at=at,
                    ),
                    host=HOST,
                    run_id=ids[1],
                )
                for ordinal, (logged, at) in enumerate(zip(those, times[ids], strict=True), start=1)
            ]
            for ids, those in chosen.items()
        }


def _in_order(key: str, spans: Mapping[str, Ended]) -> Iterator[tuple[Begun | None, Ended | None]]:
    """Yield how spans begin, each behind the one around it, and then how they end.

    A span that is missing stands for nothing: under the root, or where there is none as one that
    never ended.
    """
    below: dict[str | None, list[Ended]] = {}
    for span in sorted(spans.values(), key=lambda one: (one.begun.at, one.begun.id)):
        below.setdefault(span.begun.parent, []).append(span)
    roots = below.get(None, ())
    root = roots[0].begun.id if roots else None
    for parent in [one for one in below if one is not None and one not in spans]:
        missing = _missing(key, parent, root, below[parent])
        below.setdefault(root, []).append(missing)
    left = dict(spans)  # what goes round in circles is reached from nowhere
    ends: list[tuple[float, int, str, Ended]] = []
    waiting = [(span, 0) for span in reversed(below.get(None, ()))]
    while waiting or left:
        span, depth = waiting.pop() if waiting else (next(iter(left.values())), 0)
        known = left.pop(span.begun.id, None) is not None
        if not known and span.begun.id in spans:
            continue
        yield span.begun, None
        if known or span.begun.parent is not None:
            ends.append((span.at, -depth, span.begun.id, span))
        waiting += [(one, depth + 1) for one in reversed(below.get(span.begun.id, ()))]
    for *_, span in sorted(ends, key=lambda one: one[:3]):
        yield None, span


def _missing(key: str, id_: str, root: str | None, inside: Sequence[Ended]) -> Ended:
    """Return what stands for a span that is missing."""
    began = min(span.begun.at for span in inside)
    return Ended(Begun(key, id_, root, "", "", began, {}), began)


def _span(one: Mapping[str, object], scope: str, service: str | None) -> Ended:
    """Return a span. Raises: ValueError."""
    trace, id_ = one.get("traceId"), one.get("spanId")
    if not isinstance(trace, str) or not trace or not isinstance(id_, str) or not id_:
        raise ValueError(f"expected traceId and spanId, got {trace!r} and {id_!r}")
    parent = one.get("parentSpanId")
    attributes = _attributes(one.get("attributes"))
    began = _seconds(one, "startTimeUnixNano")
    ended = _seconds(one, "endTimeUnixNano") if one.get("endTimeUnixNano") else began
    status = _mapping(one.get("status"))
    happened = [
        Happened(text_of(event.get("name") or ""), _attributes(event.get("attributes")))
        for event in map(_mapping, _list(one.get("events")))
    ]
    number_of(attributes.get(REWARD))  # may be malformed
    for result in happened:
        if result.name == RESULT:
            number_of(result.attributes.get("gen_ai.evaluation.score.value"))
    around = clean_id(parent) if isinstance(parent, str) and parent.strip("0") else None
    return Ended(
        Begun(
            clean_id(trace),
            clean_id(id_),
            None if around == clean_id(id_) else around,
            text_of(one.get("name") or ""),
            scope,
            began,
            attributes,
            (lambda: service) if service else None,
        ),
        ended,
        status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
        _text(status.get("message")) or "",
        happened,
        [
            (clean_id(str(link.get("traceId"))), clean_id(str(link.get("spanId"))))
            for link in map(_mapping, _list(one.get("links")))
        ],
    )


def _seconds(one: Mapping[str, object], name: str) -> float:
    found = number_of(one.get(name))
    if found is None or found < 0.0:
        raise ValueError(f"expected {name} in nanoseconds, got {one.get(name)!r}")
    return round(found / 1e3) / 1e6


def _attributes(listed: object) -> Attributes:
    """Return attributes by key, their values as plain data. Raises: ValueError."""
    found: Attributes = {}
    for one in map(_mapping, _list(listed)):
        key = _text(one.get("key"))
        if key is None:
            raise ValueError("expected the key of an attribute, got none")
        found[key] = _value(_mapping(one.get("value")), 0)
    return found


def _value(value: Mapping[str, object], depth: int) -> object:
    """Return what an ``AnyValue`` holds; whole numbers come as text. Raises: ValueError."""
    for kind, held in value.items():
        if kind == "intValue":
            return int(str(held))
        if kind == "arrayValue" and depth < 8:
            return [_value(_mapping(one), depth + 1) for one in _list(_mapping(held).get("values"))]
        if kind == "kvlistValue" and depth < 8:
            pairs = map(_mapping, _list(_mapping(held).get("values")))
            return {str(p.get("key")): _value(_mapping(p.get("value")), depth + 1) for p in pairs}
        if kind in {"stringValue", "boolValue", "doubleValue"}:
            return held
    return None


def _text(value: object) -> str | None:
    return text_of(value) if isinstance(value, str | int) and value != "" else None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
