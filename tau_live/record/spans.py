"""Conversion of events to the spans, decisions and rewards of the store."""

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import blake2b
from math import isfinite
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import fields

from tau_live.core import events as ev
from tau_live.core.records import (
    Amendment,
    Decision,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
    rollout_id_of,
)

_ENVELOPE = frozenset(f.name for f in fields(ev.Event)) - {"raw"}
_PLAIN = frozenset({str, int, float, bool})
_UNKNOWN = ev.Status.UNKNOWN.value
_STARTS = frozenset({"turn.start", "step.start", "model.start", "tool.start"})

_NAMES: Mapping[str, Callable[[ev.Event], str]] = {
    "turn.start": lambda event: f"agent.turn.{event.turn}",
    "turn.end": lambda event: f"agent.turn.{event.turn}",
    "step.start": lambda event: _span_name("step", getattr(event, "name", None)),
    "step.end": lambda event: _span_name("step", getattr(event, "name", None)),
    "model.start": lambda event: _span_name("model", getattr(event, "model_requested", None)),
    "model.end": lambda event: _span_name("model", getattr(event, "model_used", None)),
    "tool.start": lambda event: _span_name("tool", getattr(event, "tool", None)),
    "tool.end": lambda event: _span_name("tool", getattr(event, "tool", None)),
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
    """The fields of a class of events besides the envelope's.

    Attributes:
        names: The names of these fields.
        values: Returns their values, in one call, and the event's kind.
        lasts: Whether the events have a duration.
        may_fail: Whether they have an error flag besides their status.
    """

    names: tuple[str, ...]
    values: Callable[[ev.Event], tuple[object, ...]]
    lasts: bool
    may_fail: bool


def span_of(event: ev.Event, *, rollout_id: str, attempt: int) -> Span | None:
    """Return the span that an event begins, ends or is; ``None`` if it is none.

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
        span_id=event.span_id or _derived_id(event),
        parent_span_id=event.parent_span_id,
        kind=event.event.partition(".")[0],
        name=name(event),
        status=_UNKNOWN if open_ else _status_of(event, form).value,
        attributes=attributes_of(event),
        started_at=at - _took_s(event) if form.lasts and not open_ else at,
        ended_at=None if open_ else at,
    )


def attributes_of(event: ev.Event) -> dict[str, object]:
    """Return the non-empty fields of an event besides the envelope's, and the host's ``raw`` ones.

    From the envelope, the fields without a place in a span: the turn, the agent, the error, and the
    fidelity if it is not native.
    """
    attributes: dict[str, object] = {}
    form = _form(type(event))
    for name, value in zip(form.names, form.values(event), strict=False):
        if value is None or (not value and value in ("", (), {})):
            continue
        attributes[name] = value if type(value) in _PLAIN else msgspec.to_builtins(value)
    if event.error is not None:
        attributes["error"] = msgspec.to_builtins(event.error)
    if event.agent:
        attributes["agent"] = event.agent
    if event.turn is not None:
        attributes["turn"] = event.turn
    if event.fidelity is not ev.Fidelity.NATIVE:
        attributes["fidelity"] = event.fidelity.value
    return attributes


@cache
def _form(kind: type[ev.Event]) -> _Form:
    names = tuple(field.name for field in fields(kind) if field.name not in _ENVELOPE)
    values = attrgetter(*names, "event")  # for a single name it returns no tuple
    return _Form(names, values, "duration_ms" in names, "is_error" in names)


def _status_of(event: ev.Event, form: _Form) -> ev.Status:
    if event.status:
        return event.status
    failed = event.error is not None or (form.may_fail and getattr(event, "is_error", None))
    return ev.Status.ERROR if failed else ev.Status.OK


def _took_s(event: ev.Event) -> float:
    """Return the duration of an event, by which its start is dated: a start may never come."""
    took_ms = getattr(event, "duration_ms", None)
    return took_ms / 1000.0 if took_ms is not None and isfinite(took_ms) and took_ms > 0 else 0.0


def _span_name(kind: str, name: str | None) -> str:
    return f"{kind}.{name}" if name else kind


def _derived_id(event: ev.Event) -> str:
    kind = event.event.partition(".")[0]
    call_id = getattr(event, "call_id", None)
    if call_id:
        return f"{kind}:{call_id}"
    if kind == "turn" and event.turn is not None:
        return f"turn:{event.turn}"
    if event.seq:
        return f"{event.event}:{event.pid}-{event.seq}"
    content = repr([event.at, attributes_of(event)])  # a host that does not count its events
    return f"{event.event}:{blake2b(content.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


_OF_A_START = ("model", "tools", "trigger", "instructions_hash", "host_version", "adapter_version")
DROPPED = "dropped_events"
"""The key in a rollout's metadata of the number of its events that were lost."""

_OF_AN_END = ("cost_usd", "turns", "duration_ms")

OF_DECISIONS = tuple(
    name
    for name in Decision.__struct_fields__
    if name in ev.Decision.__struct_fields__
    and name not in {"attempt", "seq"}  # an event's are counted by its host and its process
)
"""The fields that a decision and its event share."""

_shared_by = attrgetter(*OF_DECISIONS)
_NUMBERS = [
    field.name
    for field in fields(Decision)
    if field.type in (float, float | None) and not field.required
]


def rollout_of(event: ev.Event, *, owner: str | None) -> Rollout:
    """Return the rollout that an event begins."""
    start = event if isinstance(event, ev.RunStart) else None
    parent = event.parent_run_id
    return Rollout(
        rollout_id=rollout_id_of(event.host, event.run_id),
        host=event.host,
        run_id=event.run_id,
        session_id=event.session_id,
        parent_id=rollout_id_of(event.parent_host or event.host, parent) if parent else None,
        name=(start.name or start.agent or "") if start else "",
        status=RolloutStatus.RUNNING,
        input=content_of(start.input) if start else None,
        metadata=_metadata_of(start) if start else {},
        owner=owner,
        started_at=event.at,
    )


def _metadata_of(start: ev.RunStart) -> dict[str, object]:
    own = {name: getattr(start, name) for name in _OF_A_START if getattr(start, name)}
    return {**start.metadata, **own}


def amendment_by_start(rollout: Rollout) -> Amendment:
    """Return the amendment of a started rollout by another start."""
    return Amendment(
        name=rollout.name,
        session_id=rollout.session_id,
        parent_id=rollout.parent_id,
        input=rollout.input,
        metadata=rollout.metadata,
        started_at=rollout.started_at,
    )


def amendment_by_end(end: ev.RunEnd, *, later: bool) -> Amendment:
    """Return the amendment of a rollout by the end of its run."""
    metadata = {name: getattr(end, name) for name in _OF_AN_END if getattr(end, name) is not None}
    if end.usage:
        metadata["usage"] = dict(end.usage)
    if end.output is not None:
        metadata["output"] = content_of(end.output)
    if end.dropped > 0:
        metadata[DROPPED] = end.dropped
    return Amendment(name=end.agent or "", metadata=metadata, later=later)


def decision_of(event: ev.Decision, *, rollout_id: str, attempt: int) -> Decision:
    """Return the decision in an event; numbers that are not finite become their defaults."""
    shared = dict(zip(OF_DECISIONS, _shared_by(event), strict=True))
    for name in _NUMBERS:
        if shared[name] is not None and not isfinite(shared[name]):
            del shared[name]
    if not all(map(isfinite, event.probabilities)):
        del shared["probabilities"]
    return Decision(rollout_id=rollout_id, attempt=attempt, **shared)


def reward_of(event: ev.Reward) -> Reward | None:
    """Return the reward in an event; ``None`` if its value is not finite."""
    if event.value is not None and not isfinite(event.value):
        return None
    return Reward(
        rollout_id=event.rollout_id or rollout_id_of(event.host, event.run_id),
        decision_id=event.decision_id,
        name=event.name,
        value=event.value,
        label=event.label,
        comment=event.comment.text if event.comment else None,
        source=event.source,
        key=event.key,
        at=event.at,
        decisions_before=event.decisions_before,
    )


def content_of(content: ev.Content | None) -> dict[str, object] | None:
    """Return the known parts of a text, by name."""
    if content is None:
        return None
    parts = {"chars": content.chars, "sha256": content.sha256, "text": content.text}
    return {name: value for name, value in parts.items() if value is not None}
