"""OpenTelemetry's traces, as its collector's file exporter writes them, as the events of runs.

One trace is one rollout. Spans with attributes of the GenAI conventions become its spans; those
with ``tau.decision.*`` its decisions; the model that a span asked for is a choice of the host's at
the point ``model``. A trace ends as its root does; what has no root is left open, and abandoned.

Source:
    OpenTelemetry semantic conventions for generative AI; OTLP 1.x, JSON encoding.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from tau_live import events as ev
from tau_live.handed import text_of
from tau_live.importing.fields import FieldError
from tau_live.importing.logged import Logged, Reader
from tau_live.importing.runs import SOURCE, decision_of
from tau_live.importing.values import Options, name_of, number_of
from tau_live.plain import Limits
from tau_live.redaction import clean_id

HOST = "otel"
OPEN_TRACES = 10_000
"""A trace is over when so many others were heard of since."""

POINT = "model"
DECISION = "tau.decision."
REWARD = "tau.reward"
EVALUATION = "gen_ai.evaluation.result"
TOOLS = frozenset({"execute_tool"})
AGENTS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})

Attributes = dict[str, object]


class _Span(NamedTuple):
    """A span as far as it matters."""

    trace: str
    id: str
    parent: str | None
    name: str
    began: float
    ended: float
    attributes: Attributes
    error: str | None
    results: tuple[Attributes, ...]


@dataclass(slots=True)
class _Trace:
    """A trace that may go on."""

    root: _Span | None = None
    last: float = 0.0
    choices: list[tuple[float, str, Logged]] = field(default_factory=list)


class Traces:
    """Turns the spans of one log into events.

    Args:
        width: How wide the policy's features are.
        limits: Bounds of what is taken over.
        reward: How rewards are called that have no name.
    """

    def __init__(self, *, width: int, limits: Limits, reward: str) -> None:
        self._width = width
        self._limits = limits
        self._reward = reward
        self._reader = Reader({}, point=POINT, offered=(), cells=False)
        self._open: OrderedDict[str, _Trace] = OrderedDict()

    def told(self, batch: Mapping[str, object]) -> Iterator[ev.Event | FieldError]:
        """Yield the events that a line tells, and what is wrong with it."""
        resources = _list(batch.get("resourceSpans"))
        if not resources:
            yield FieldError("resourceSpans", "expected the spans of resources")
        for r, resource in enumerate(resources):
            own = _mapping(_mapping(resource).get("resource"))
            service = _attributes(own.get("attributes")).get("service.name")
            for s, scope in enumerate(_list(_mapping(resource).get("scopeSpans"))):
                for n, one in enumerate(_list(_mapping(scope).get("spans"))):
                    at = f"resourceSpans[{r}].scopeSpans[{s}].spans[{n}]"
                    try:
                        yield from self._of_span(_span(_mapping(one)), service)
                    except (ValueError, OverflowError) as error:
                        yield FieldError(at, str(error))

    def finished(self) -> Iterator[ev.Event | FieldError]:
        """Yield what ends the traces that are still open."""
        while self._open:
            yield from self._ended(*self._open.popitem(last=False))

    def _of_span(self, span: _Span, service: object) -> Iterator[ev.Event | FieldError]:
        choice = self._choice(span)  # may be malformed: nothing is told then
        rewards = [self._earned(span, at, found) for at, found in enumerate(span.results)]
        trace = self._open.pop(span.trace, None) or _Trace()
        self._open[span.trace] = trace  # the last to be given up
        trace.last = max(trace.last, span.ended)
        if span.parent is None:
            trace.root = span
            yield ev.RunStart(
                host=HOST,
                run_id=span.trace,
                at=span.began,
                name=span.name,
                session_id=_text(span.attributes.get("gen_ai.conversation.id")),
                agent=_text(span.attributes.get("gen_ai.agent.name")),
                metadata={"service": text_of(service)} if service else {},
            )
        event = _event(span)
        if event is not None:
            yield event
        if choice is not None:
            trace.choices.append((span.began, span.id, choice))
        yield from (reward for reward in rewards if reward is not None)
        if len(self._open) > OPEN_TRACES:
            yield from self._ended(*self._open.popitem(last=False))

    def _choice(self, span: _Span) -> Logged | None:
        """Return the decision of a span, or the host's choice of a model; ``None`` without."""
        row = {
            name.removeprefix(DECISION): value
            for name, value in span.attributes.items()
            if name.startswith(DECISION)
        }
        if row:
            context = {n.removeprefix("context."): row[n] for n in row if n.startswith("context.")}
            applied = row.get("applied", row.get("option", row.get("chosen")))
            named = {**row, "option": applied}
            if "applied" not in row and "option" not in row:
                named["chosen"] = None  # the only one that is told was applied
            return self._reader.logged({**named, **({"context": context} if context else {})})
        model = name_of(span.attributes.get("gen_ai.request.model"))
        if model is None:
            return None
        return Logged(point=POINT, option=model, options=Options((model,), (None,)))

    def _earned(self, span: _Span, at: int, found: Attributes) -> ev.Reward | None:
        value = number_of(found.get("gen_ai.evaluation.score.value"))
        if value is None:
            return None
        return ev.Reward(
            host=HOST,
            run_id=span.trace,
            at=span.ended,
            name=_text(found.get("gen_ai.evaluation.name")) or self._reward,
            value=value,
            source=SOURCE,
            key=f"{span.id}:{at}",
        )

    def _ended(self, key: str, trace: _Trace) -> Iterator[ev.Event]:
        trace.choices.sort(key=lambda choice: choice[:2])
        for ordinal, (at, _, logged) in enumerate(trace.choices, start=1):
            yield decision_of(
                logged, host=HOST, run_id=key, at=at, ordinal=logged.step or ordinal,
                width=self._width, limits=self._limits,
            )  # fmt: skip
        if trace.root is not None:
            error = trace.root.error
            yield ev.RunEnd(
                host=HOST,
                run_id=key,
                at=max(trace.root.ended, trace.last),
                status=ev.Status.OK if error is None else ev.Status.ERROR,
                error=None if error is None else ev.ErrorInfo(type=error, fatal=True),
            )


def _event(span: _Span) -> ev.Event | None:
    """Return a span of the GenAI conventions as an event; ``None`` for any other."""
    found = span.attributes
    operation = found.get("gen_ai.operation.name")
    took_ms = max(0.0, span.ended - span.began) * 1e3
    error = None if span.error is None else ev.ErrorInfo(type=span.error)
    common = _Common(span.trace, span.ended, span.id, span.parent, error)
    if operation in TOOLS or "gen_ai.tool.name" in found:
        return ev.ToolEnd(
            host=HOST, **common._asdict(),
            tool=_text(found.get("gen_ai.tool.name")) or span.name,
            call_id=_text(found.get("gen_ai.tool.call.id")),
            is_error=span.error is not None,
            duration_ms=took_ms,
        )  # fmt: skip
    if operation in AGENTS:
        if span.parent is None:
            return None
        to = _text(found.get("gen_ai.agent.name")) or span.name
        return ev.Handoff(host=HOST, **common._asdict(), to_agent=to)
    if not any(name.startswith("gen_ai.") for name in found):
        return None
    return ev.ModelEnd(
        host=HOST, **common._asdict(),
        model_used=_text(found.get("gen_ai.response.model", found.get("gen_ai.request.model"))),
        response_id=_text(found.get("gen_ai.response.id")),
        finish_reasons=tuple(
            text_of(one) for one in _list(found.get("gen_ai.response.finish_reasons"))
        ),
        usage=_usage(found),
        duration_ms=took_ms,
    )  # fmt: skip


class _Common(NamedTuple):
    """What all events of spans share."""

    run_id: str
    at: float
    span_id: str
    parent_span_id: str | None
    error: ev.ErrorInfo | None


def _usage(found: Attributes) -> dict[str, float]:
    prefix = "gen_ai.usage."
    return {
        name.removeprefix(prefix): float(value)
        for name, value in found.items()
        if name.startswith(prefix) and isinstance(value, int | float) and isfinite(value)
    }


def _span(one: Mapping[str, object]) -> _Span:
    """Return a span. Raises: ValueError."""
    trace, id_ = one.get("traceId"), one.get("spanId")
    if not isinstance(trace, str) or not trace or not isinstance(id_, str) or not id_:
        raise ValueError(f"expected traceId and spanId, got {trace!r} and {id_!r}")
    parent = one.get("parentSpanId")
    attributes = _attributes(one.get("attributes"))
    began = _seconds(one, "startTimeUnixNano")
    ended = _seconds(one, "endTimeUnixNano") if one.get("endTimeUnixNano") else began
    status = _mapping(one.get("status"))
    failed = status.get("code") in {2, "2", "STATUS_CODE_ERROR"}
    results = [
        _attributes(event.get("attributes"))
        for event in map(_mapping, _list(one.get("events")))
        if event.get("name") == EVALUATION
    ]
    if REWARD in attributes:
        name, value = attributes.get(f"{REWARD}.name"), attributes[REWARD]
        results.append({"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value})
    return _Span(
        clean_id(trace),
        clean_id(id_),
        clean_id(parent) if isinstance(parent, str) and parent.strip("0") else None,
        text_of(one.get("name") or ""),
        began,
        ended,
        attributes,
        (_text(attributes.get("error.type")) or "error") if failed else None,
        tuple(results),
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
