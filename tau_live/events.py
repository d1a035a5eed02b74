"""What hosts tell us: one frozen dataclass for each event, and a lossless JSON form, one a line.

Every event carries the same envelope; the fields of its own stand beside it. Ends may come late or
never, children may end after their parents: events are linked by ids, never by their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Literal

import msgspec

from tau_live.errors import EventError
from tau_live.rollouts import Reason as Reason  # noqa: PLC0414  # adapters take it from here

VERSION = 1


class Status(StrEnum):
    """How a span or a run ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    RETRY = "retry"
    VETOED = "vetoed"
    LIMIT = "limit"
    UNKNOWN = "unknown"


class Fidelity(StrEnum):
    """How directly the host told us."""

    NATIVE = "native"
    HOOKS = "hooks"
    END_ONLY = "end_only"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """What went wrong in the host.

    Attributes:
        type: The class of the exception.
        message: Its text; kept only where content may be kept.
        fatal: Whether it ended the run.
    """

    type: str
    message: str = ""
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A text that went in or out, or what may be kept of it.

    Attributes:
        text: The text; ``None`` where only its size and hash are kept.
        chars: Its length in characters.
        sha256: The hash of its UTF-8 form, in hexadecimal.
    """

    text: str | None = None
    chars: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that a model asked for."""

    id: str
    name: str
    args: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The envelope of every event.

    Attributes:
        event: The name of its kind.
        host: The framework that runs.
        run_id: The host's own key of the run.
        at: Epoch seconds, UTC.
        v: The version of this form.
        mono_ns: The process's monotonic clock.
        seq: Counts the events of a process from 1; order is by ``(pid, seq)``.
        pid: The process.
        host_version: The host's version.
        adapter_version: The adapter's.
        session_id: What runs of one conversation share.
        parent_run_id: The run inside which this one runs.
        parent_host: That run's host, where it is another one.
        execution: Tells one execution of a run from another under the same key.
        span_id: The host's id of this step, verbatim.
        parent_span_id: The step around it.
        agent: The agent's name.
        turn: The turn, from 1.
        attempt: The try, from 1; ``None`` where the host does not count them.
        status: How it ended; ``None`` for what has no end.
        error: What went wrong.
        fidelity: How directly the host told us.
        raw: The host's attributes that have no place of their own.
    """

    event: str
    host: str
    run_id: str
    at: float
    v: int = VERSION
    mono_ns: int = 0
    seq: int = 0
    pid: int = 0
    host_version: str | None = None
    adapter_version: str | None = None
    session_id: str | None = None
    parent_run_id: str | None = None
    parent_host: str | None = None
    execution: str = ""
    span_id: str | None = None
    parent_span_id: str | None = None
    agent: str | None = None
    turn: int | None = None
    attempt: int | None = None
    status: Status | None = None
    error: ErrorInfo | None = None
    fidelity: Fidelity = Fidelity.NATIVE
    raw: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(Event):
    """A run begins; it may be announced after other events of the run."""

    event: Literal["run.start"] = "run.start"
    name: str = ""
    input: Content | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    instructions_hash: str | None = None
    trigger: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(Event):
    """A run is over; ``status`` says how, ``reason`` why where that is known."""

    event: Literal["run.end"] = "run.end"
    output: Content | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    turns: int | None = None
    duration_ms: float | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(Event):
    """One round of the agent's loop begins."""

    event: Literal["turn.start"] = "turn.start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(Event):
    """One round of the agent's loop is over."""

    event: Literal["turn.end"] = "turn.end"
    usage: Mapping[str, float] = field(default_factory=dict)
    tool_calls: int | None = None
    finish_reason: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart(Event):
    """A model is asked."""

    event: Literal["model.start"] = "model.start"
    model_requested: str | None = None
    provider: str | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    messages: Content | None = None
    tools_offered: tuple[str, ...] = ()
    streaming: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEnd(Event):
    """A model has answered, or failed to."""

    event: Literal["model.end"] = "model.end"
    model_used: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    ttft_ms: float | None = None
    duration_ms: float | None = None
    cost_usd: float | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    output: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart(Event):
    """A tool is called."""

    event: Literal["tool.start"] = "tool.start"
    call_id: str | None = None
    tool: str = ""
    args: Content | None = None
    tool_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd(Event):
    """A tool has returned, or failed to."""

    event: Literal["tool.end"] = "tool.end"
    call_id: str | None = None
    tool: str = ""
    result: Content | None = None
    is_error: bool | None = None
    retry_of: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """A message was added to the conversation."""

    event: Literal["message"] = "message"
    role: str = ""
    content: Content | None = None
    index: int | None = None
    tool_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(Event):
    """One agent hands over to another."""

    event: Literal["handoff"] = "handoff"
    from_agent: str | None = None
    to_agent: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInterrupt(Event):
    """A run stops to wait for somebody; its attempt ends, the rollout does not."""

    event: Literal["run.interrupt"] = "run.interrupt"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResume(Event):
    """A run that waited goes on, as another attempt."""

    event: Literal["run.resume"] = "run.resume"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Event):
    """A guardrail of the host looked at something."""

    event: Literal["policy"] = "policy"
    stage: str = ""
    mode: str | None = None
    rules: tuple[str, ...] = ()
    blocked: bool = False
    reason_codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Event):
    """The host tries something again."""

    event: Literal["retry"] = "retry"
    what: str = ""
    number: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Event):
    """The host shortened its context."""

    event: Literal["context"] = "context"
    op: str = ""
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Event):
    """Something was chosen; the fields are those of ``rollouts.Decision``."""

    event: Literal["decision"] = "decision"
    ordinal: int
    point: str
    options: tuple[str, ...]
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
    latency_us: float = 0.0
    context: Mapping[str, object] = field(default_factory=dict)
    features: Mapping[str, object] = field(default_factory=dict)
    encoded: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(Event):
    """Somebody valued a run or a decision; the fields are those of ``rollouts.Reward``.

    Attributes:
        rollout_id: The rollout that is meant, where it is known by its id alone; else it is the
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TauError(Event):
    """Something of ours failed and the host went on without it."""

    event: Literal["tau.error"] = "tau.error"
    where: str = ""
    type: str = ""
    disabled: bool = False


KINDS: Mapping[str, type[Event]] = {
    "run.start": RunStart,
    "run.end": RunEnd,
    "turn.start": TurnStart,
    "turn.end": TurnEnd,
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
"""Every kind of event by the name that stands in ``event``."""


class _Head(msgspec.Struct):
    event: str
    v: int = VERSION


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(KINDS[kind])


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON, without the newline.

    Raises:
        EventError: It holds what JSON cannot say.
    """
    try:
        return msgspec.json.encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"cannot write a {event.event} event: {error}") from error


def decode(line: bytes | str) -> Event:
    """Return the event that a line of JSON holds; ``decode(encode(event)) == event``.

    Raises:
        EventError: It is not JSON, not an event, of an unknown kind, or of a newer form.
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
