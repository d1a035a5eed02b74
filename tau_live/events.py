"""Events from hosts: one frozen dataclass per event, and a lossless JSON form, one per line.

Every event has the same envelope plus its own fields. Ends may arrive late or
never, and children may end after their parents: events are linked by ids, never by order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Literal

import msgspec

from tau_live.envelope import VERSION, Content, ErrorInfo, Event, Fidelity, Status, ToolCall
from tau_live.errors import EventError
from tau_live.rollouts import Reason
from tau_live.steps import (
    Context,
    Handoff,
    Message,
    ModelEnd,
    ModelStart,
    Policy,
    Retry,
    RunInterrupt,
    RunResume,
    StepEnd,
    StepStart,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
)

__all__ = [
    "KINDS",
    "VERSION",
    "Content",
    "Context",
    "Decision",
    "ErrorInfo",
    "Event",
    "Fidelity",
    "Handoff",
    "Message",
    "ModelEnd",
    "ModelStart",
    "Policy",
    "Reason",
    "Retry",
    "Reward",
    "RunEnd",
    "RunInterrupt",
    "RunResume",
    "RunStart",
    "Status",
    "StepEnd",
    "StepStart",
    "TauError",
    "ToolCall",
    "ToolEnd",
    "ToolStart",
    "TurnEnd",
    "TurnStart",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(Event):
    """A run starts; it may arrive after other events of the run.

    Attributes:
        name: The kind of run, for people and filters.
        input: Its input.
        model: Its first model, if the host names one.
        tools: The names of the tools it has.
        instructions_hash: Hash of its instructions.
        trigger: What started it: ``user``, ``tool``, ``handoff`` or ``resume``.
        aliases: Other ids that the host gives the run.
        metadata: Open-ended JSON data.
    """

    event: Literal["run.start"] = "run.start"
    name: str = ""
    input: Content | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    instructions_hash: str | None = None
    trigger: str | None = None
    aliases: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(Event):
    """A run ended; ``status`` is how, ``reason`` is why, if known.

    Attributes:
        output: Its output.
        usage: Tokens by kind.
        cost_usd: Its cost in US dollars.
        turns: The number of turns.
        duration_ms: Its duration in milliseconds.
        reason: Why it ended; ``None`` derives it from ``status``.
        dropped: How many events of the run were dropped before they were stored.
    """

    event: Literal["run.end"] = "run.end"
    output: Content | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    turns: int | None = None
    duration_ms: float | None = None
    reason: Reason | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Event):
    """A decision was made; the fields are those of ``rollouts.Decision``."""

    event: Literal["decision"] = "decision"
    ordinal: int
    point: str
    options: tuple[str, ...]
    allowed: tuple[str, ...] | None = None
    exploit_only: tuple[str, ...] | None = None
    chosen: str | None = None
    applied: str | None = None
    default: str | None = None
    source: str = "policy"
    why_not: str | None = None
    propensity: float | None = None
    probabilities: tuple[float, ...] = ()
    value: float | None = None
    policy_version: int = 0
    arm: str = "learner"
    share: float | None = None
    latency_us: float = 0.0
    context: Mapping[str, object] = field(default_factory=dict)
    features: Mapping[str, object] = field(default_factory=dict)
    encoded: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(Event):
    """A run or a decision got a reward; the fields are those of ``rollouts.Reward``.

    Attributes:
        rollout_id: The rollout, if only its id is known; else it is the
            run of the envelope.
    """

    event: Literal["reward"] = "reward"
    rollout_id: str | None = None
    decision_id: str | None = None
    name: str = "reward"
    value: float | None = None
    label: str | None = None
    comment: Content | None = None
    source: str = "api"
    key: str = ""
    decisions_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TauError(Event):
    """A part of tau-live failed and the host continued without it.

    Attributes:
        where: The part of tau-live.
        type: The class of the exception.
        disabled: Whether that part is disabled from now on.
    """

    event: Literal["tau.error"] = "tau.error"
    where: str = ""
    type: str = ""
    disabled: bool = False


KINDS: Mapping[str, type[Event]] = {
    "run.start": RunStart,
    "run.end": RunEnd,
    "turn.start": TurnStart,
    "turn.end": TurnEnd,
    "step.start": StepStart,
    "step.end": StepEnd,
    "model.start": ModelStart,
    "model.end": ModelEnd,
    "tool.start": ToolStart,
    "tool.end": ToolEnd,
    "message": Message,
    "handoff": Handoff,
    "run.interrupt": RunInterrupt,
    "run.resume": RunResume,
    "policy": Policy,
    "retry": Retry,
    "context": Context,
    "decision": Decision,
    "reward": Reward,
    "tau.error": TauError,
}
"""Every kind of event by its name in ``event``."""


class _Head(msgspec.Struct):
    event: str
    v: int = VERSION


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(KINDS[kind])


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON, without a newline; nothing is lost.

    JSON has no NaN, no infinity, no tuples and only text keys. An event that would not be read
    back unchanged is refused.

    Raises:
        EventError: It contains a value that JSON cannot represent.
    """
    try:
        line = msgspec.json.encode(event, enc_hook=_plain)
        back = _decoder(event.event).decode(line)
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise EventError(f"cannot write a {event.event} event: {error}") from error
    if back != event:
        raise EventError(
            f"cannot write a {event.event} event: JSON has no form for {_lost(event, back)}"
        )
    return line


def decode(line: bytes | str) -> Event:
    """Return the event that a line of JSON holds; ``decode(encode(event)) == event``.

    Fields that this version does not know are ignored.

    Raises:
        EventError: It is not JSON, not an event, or of an unknown kind or version.
    """
    try:
        head = msgspec.json.decode(line, type=_Head)
        if head.v != VERSION:
            raise EventError(f"unsupported event version {head.v!r}, expected {VERSION}")
        if head.event not in KINDS:
            raise EventError(f"unknown event {head.event!r}")
        return _decoder(head.event).decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EventError(f"not an event: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _lost(event: Event, back: Event) -> str:
    """Return which fields changed when read back."""
    if type(back) is not type(event):
        return type(event).__name__
    names = [f.name for f in fields(event) if getattr(event, f.name) != getattr(back, f.name)]
    return ", ".join(names)
