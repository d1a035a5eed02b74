"""Events as spans: which kind, under which name, with which attributes."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from hashlib import blake2b
from math import isfinite
from operator import attrgetter
from typing import NamedTuple

import msgspec

from tau_live import events as ev
from tau_live.rollouts import Span

_ENVELOPE = frozenset(f.name for f in fields(ev.Event)) - {"raw"}
_PLAIN = frozenset({str, int, float, bool})
_UNKNOWN = ev.Status.UNKNOWN.value
_STARTS = frozenset({"turn.start", "step.start", "model.start", "tool.start"})

_NAMES: Mapping[str, Callable[[ev.Event], str]] = {
    "turn.start": lambda event: f"agent.turn.{event.turn}",
    "turn.end": lambda event: f"agent.turn.{event.turn}",
    "step.start": lambda event: _named("step", getattr(event, "name", None)),
    "step.end": lambda event: _named("step", getattr(event, "name", None)),
    "model.start": lambda event: _named("model", getattr(event, "model_requested", None)),
    "model.end": lambda event: _named("model", getattr(event, "model_used", None)),
    "tool.start": lambda event: _named("tool", getattr(event, "tool", None)),
    "tool.end": lambda event: _named("tool", getattr(event, "tool", None)),
    "message": lambda _: "message.added",
    "policy": lambda _: "agent.safety_policy_applied",
    "retry": lambda _: "agent.retry",
    "context": lambda _: "agent.context",
    "handoff": lambda _: "agent.handoff",
    "run.interrupt": lambda _: "agent.interrupt",
    "run.resume": lambda _: "agent.resume",
    "tau.error": lambda _: "tau_live.error",
}


class _Form(NamedTuple):
    """What the events of a class have of their own.

    Attributes:
        names: Of their own fields.
        values: Returns the values of these, in one call, and the event's kind.
        lasts: Whether they tell how long it took.
        may_fail: Whether they tell that it failed, besides their status.
    """

    names: tuple[str, ...]
    values: Callable[[ev.Event], tuple[object, ...]]
    lasts: bool
    may_fail: bool


_FORMS: dict[type[ev.Event], _Form] = {}


def span_of(event: ev.Event, *, rollout_id: str, attempt: int) -> Span | None:
    """Return the span that an event begins, ends or is; ``None`` for one that is none.

    Starts and ends of one step share the host's span id; where the host has none, an id is made
    from what the two have in common (the call id, the turn) or from the event's place.
    """
    name = _NAMES.get(event.event)
    if name is None:
        return None
    form, at = _form(type(event)), event.at
    open_ = event.event in _STARTS
    return Span(
        rollout_id=rollout_id,
        attempt=attempt,
        span_id=event.span_id or _made_id(event),
        parent_span_id=event.parent_span_id,
        kind=event.event.partition(".")[0],
        name=name(event),
        status=_UNKNOWN if open_ else _status_of(event, form).value,
        attributes=attributes_of(event),
        started_at=at - _took_s(event) if form.lasts and not open_ else at,
        ended_at=None if open_ else at,
    )


def attributes_of(event: ev.Event) -> dict[str, object]:
    """Return the fields of an event's own that hold something, and what the host had besides.

    Of the envelope what a span has no place for: the turn, the agent, the error, and how the host
    told us, where that is not directly.
    """
    found: dict[str, object] = {}
    form = _form(type(event))
    for name, value in zip(form.names, form.values(event), strict=False):
        if value is None or (not value and value in ("", (), {})):
            continue
        found[name] = value if type(value) in _PLAIN else msgspec.to_builtins(value)
    if event.error is not None:
        found["error"] = msgspec.to_builtins(event.error)
    if event.agent:
        found["agent"] = event.agent
    if event.turn is not None:
        found["turn"] = event.turn
    if event.fidelity is not ev.Fidelity.NATIVE:
        found["fidelity"] = event.fidelity.value
    return found


def _form(kind: type[ev.Event]) -> _Form:
    found = _FORMS.get(kind)
    return _made_form(kind) if found is None else found


def _made_form(kind: type[ev.Event]) -> _Form:
    names = tuple(field.name for field in fields(kind) if field.name not in _ENVELOPE)
    values = attrgetter(*names, "event")  # of one name it gives no tuple
    found = _FORMS[kind] = _Form(names, values, "duration_ms" in names, "is_error" in names)
    return found


def _status_of(event: ev.Event, form: _Form) -> ev.Status:
    if event.status:
        return event.status
    failed = event.error is not None or (form.may_fail and getattr(event, "is_error", None))
    return ev.Status.ERROR if failed else ev.Status.OK


def _took_s(event: ev.Event) -> float:
    """Return for how long an event went on before it was told: a start may never be."""
    took_ms = getattr(event, "duration_ms", None)
    return took_ms / 1000.0 if took_ms is not None and isfinite(took_ms) and took_ms > 0 else 0.0


def _named(kind: str, name: str | None) -> str:
    return f"{kind}.{name}" if name else kind


def _made_id(event: ev.Event) -> str:
    kind = event.event.partition(".")[0]
    call_id = getattr(event, "call_id", None)
    if call_id:
        return f"{kind}:{call_id}"
    if kind == "turn" and event.turn is not None:
        return f"turn:{event.turn}"
    if event.seq:
        return f"{event.event}:{event.pid}-{event.seq}"
    told = repr([event.at, attributes_of(event)])  # a host that does not count its events
    return f"{event.event}:{blake2b(told.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"
