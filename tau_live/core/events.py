"""Events from hosts: one frozen struct per event, and a lossless JSON form, one per line.

Every event has the same envelope plus its own fields. Ends may arrive late or
never, and children may end after their parents: events are linked by ids, never by order.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from math import isfinite
from typing import Literal, TypeAlias, TypeVar

import msgspec

from tau_live.core.errors import EventError
from tau_live.core.records import Reason
from tau_live.core.sanitize import JsonObject

E = TypeVar("E", bound="Event")

Fields: TypeAlias = Mapping[str, object]
"""Fields of an event by their names, before the writer's thread makes it."""

VERSION = 1
_LATEST = 2**53

OWN_HOST = "tau_live"
"""The host of runs of the public API; their rewards may arrive much later."""


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
    """How directly the host reported it."""

    NATIVE = "native"
    HOOKS = "hooks"
    END_ONLY = "end_only"
    INFERRED = "inferred"


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the host.

    Attributes:
        type: The class of the exception.
        message: Its text; kept only if content may be kept.
        fatal: Whether it ended the run.
    """

    type: str
    message: str = ""
    fatal: bool = False


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output text, or what may be kept of it.

    Attributes:
        text: The text; ``None`` if only its size and hash are kept.
        chars: Its length in characters.
        sha256: The SHA-256 of its UTF-8 form, in hexadecimal.
    """

    text: str | None = None
    chars: int | None = None
    sha256: str | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call requested by a model.

    Attributes:
        id: The model's id of the call.
        name: The tool.
        args: Its arguments.
    """

    id: str
    name: str
    args: Content | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of every event.

    Attributes:
        event: The name of its kind.
        host: The framework.
        run_id: The host's run id.
        at: Epoch seconds, UTC.
        v: The version of the format.
        mono_ns: The process's monotonic clock.
        seq: Number of the event in its process, from 1; the order is ``(pid, seq)``.
        pid: The process.
        host_version: The host's version.
        adapter_version: The adapter's version.
        session_id: The id that the runs of one conversation share.
        parent_run_id: The parent run.
        parent_host: The parent run's host, if it is another one.
        execution: Distinguishes executions under the same key.
        span_id: The host's id of this step, verbatim.
        parent_span_id: The parent step.
        agent: The agent's name.
        turn: The turn, from 1.
        attempt: The attempt, from 1; ``None`` if the host does not count them.
        status: How it ended; ``None`` if it has no end.
        error: The error.
        fidelity: How directly the host reported it.
        raw: The host's attributes that have no field of their own.
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
    raw: JsonObject = msgspec.field(default_factory=dict)


def is_sound(event: object) -> bool:
    """Return whether something is an event with a valid run and time."""
    if not issubclass(type(event), Event) or not isinstance(event, Event):
        return False
    if not type(event.event) is type(event.host) is type(event.run_id) is str:
        return False
    at = event.at
    if type(event.execution) is not str:
        return False
    return (type(at) is float and isfinite(at)) or (type(at) is int and abs(at) < _LATEST)


class TurnStart(Event, frozen=True, kw_only=True):
    """A round of the agent's loop starts."""

    event: Literal["turn.start"] = "turn.start"


class TurnEnd(Event, frozen=True, kw_only=True):
    """A round of the agent's loop ended.

    Attributes:
        usage: Tokens by kind.
        tool_calls: How many tools were called.
        finish_reason: Why the model stopped.
        duration_ms: Its duration in milliseconds.
    """

    event: Literal["turn.end"] = "turn.end"
    usage: Mapping[str, float] = msgspec.field(default_factory=dict)
    tool_calls: int | None = None
    finish_reason: str | None = None
    duration_ms: float | None = None


class StepStart(Event, frozen=True, kw_only=True):
    """A step of the host starts: a node of a graph, a link of a chain.

    Attributes:
        name: Its name.
        step_kind: The host's kind of step: ``node``, ``chain``, ``retriever``.
    """

    event: Literal["step.start"] = "step.start"
    name: str = ""
    step_kind: str | None = None


class StepEnd(Event, frozen=True, kw_only=True):
    """A step of the host ended.

    Attributes:
        name: Its name.
        step_kind: The host's kind of step.
        duration_ms: Its duration in milliseconds.
    """

    event: Literal["step.end"] = "step.end"
    name: str = ""
    step_kind: str | None = None
    duration_ms: float | None = None


class ModelStart(Event, frozen=True, kw_only=True):
    """A model request starts.

    Attributes:
        model_requested: The requested model.
        provider: Its provider.
        params: Parameters such as the temperature; open-ended JSON data.
        messages: The messages sent.
        tools_offered: The names of the tools offered.
        streaming: Whether the response is streamed.
    """

    event: Literal["model.start"] = "model.start"
    model_requested: str | None = None
    provider: str | None = None
    params: JsonObject = msgspec.field(default_factory=dict)
    messages: Content | None = None
    tools_offered: tuple[str, ...] = ()
    streaming: bool | None = None


class ModelEnd(Event, frozen=True, kw_only=True):
    """A model request ended, successfully or not.

    Attributes:
        model_used: The model that responded.
        response_id: The provider's id of the response.
        finish_reasons: Why it stopped, once per response.
        usage: Tokens by kind.
        ttft_ms: Milliseconds to the first token.
        duration_ms: Milliseconds to the last token.
        cost_usd: Its cost in US dollars.
        tool_calls: The tool calls requested.
        output: The response.
        streaming: Whether the response was streamed, if known only at the end.
    """

    event: Literal["model.end"] = "model.end"
    model_used: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Mapping[str, float] = msgspec.field(default_factory=dict)
    ttft_ms: float | None = None
    duration_ms: float | None = None
    cost_usd: float | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    output: Content | None = None
    streaming: bool | None = None


class ToolStart(Event, frozen=True, kw_only=True):
    """A tool call starts.

    Attributes:
        call_id: The model's id of the call.
        tool: Its name.
        args: Its arguments.
        tool_kind: ``function``, ``mcp``, ``agent`` or ``builtin``.
    """

    event: Literal["tool.start"] = "tool.start"
    call_id: str | None = None
    tool: str = ""
    args: Content | None = None
    tool_kind: str | None = None


class ToolEnd(Event, frozen=True, kw_only=True):
    """A tool call ended, successfully or not.

    Attributes:
        call_id: The model's id of the call.
        tool: Its name.
        result: Its result.
        is_error: Whether it failed.
        retry_of: The call that this one repeats.
        duration_ms: Its duration in milliseconds.
    """

    event: Literal["tool.end"] = "tool.end"
    call_id: str | None = None
    tool: str = ""
    result: Content | None = None
    is_error: bool | None = None
    retry_of: str | None = None
    duration_ms: float | None = None


class Message(Event, frozen=True, kw_only=True):
    """A message was added to the conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        content: Its text.
        index: Its place in the conversation, from 0.
        tool_calls: How many tool calls it requests.
    """

    event: Literal["message"] = "message"
    role: str = ""
    content: Content | None = None
    index: int | None = None
    tool_calls: int | None = None


class Handoff(Event, frozen=True, kw_only=True):
    """One agent hands over to another.

    Attributes:
        from_agent: The agent that hands over.
        to_agent: The agent that takes over.
        reason: Why.
    """

    event: Literal["handoff"] = "handoff"
    from_agent: str | None = None
    to_agent: str | None = None
    reason: str | None = None


class RunInterrupt(Event, frozen=True, kw_only=True):
    """A run stops to wait for input; its attempt ends, the rollout does not.

    Attributes:
        reason: What it waits for.
        resume_key: The key to resume it with.
        payload: The question.
    """

    event: Literal["run.interrupt"] = "run.interrupt"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


class RunResume(Event, frozen=True, kw_only=True):
    """A run that waited is resumed, as another attempt.

    Attributes:
        reason: Why it is resumed.
        resume_key: The key it is resumed with.
        payload: The answer.
    """

    event: Literal["run.resume"] = "run.resume"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


class Policy(Event, frozen=True, kw_only=True):
    """A guardrail of the host checked something.

    Attributes:
        stage: What it checked: ``input``, ``output`` or ``tool``.
        mode: What it does on a finding: ``warn``, ``redact`` or ``block``.
        rules: The rules that matched.
        blocked: Whether it blocked.
        reason_codes: Its findings.
    """

    event: Literal["policy"] = "policy"
    stage: str = ""
    mode: str | None = None
    rules: tuple[str, ...] = ()
    blocked: bool = False
    reason_codes: tuple[str, ...] = ()


class Retry(Event, frozen=True, kw_only=True):
    """The host retries something.

    Attributes:
        what: ``model``, ``tool`` or ``output``.
        number: The number of the try, from 1.
        reason: Why.
    """

    event: Literal["retry"] = "retry"
    what: str = ""
    number: int | None = None
    reason: str | None = None


class Context(Event, frozen=True, kw_only=True):
    """The host shortened its context.

    Attributes:
        op: ``compact``, ``summarise`` or ``truncate``.
        before: Messages or tokens before.
        after: Messages or tokens after.
    """

    event: Literal["context"] = "context"
    op: str = ""
    before: int | None = None
    after: int | None = None


class RunStart(Event, frozen=True, kw_only=True):
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
    metadata: JsonObject = msgspec.field(default_factory=dict)


class RunEnd(Event, frozen=True, kw_only=True):
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
    usage: Mapping[str, float] = msgspec.field(default_factory=dict)
    cost_usd: float | None = None
    turns: int | None = None
    duration_ms: float | None = None
    reason: Reason | None = None
    dropped: int = 0


class PromptArm(msgspec.Struct, frozen=True):
    """Whether a prompt version was offered to a rollout, or withheld from it.

    Attributes:
        version: The prompt version.
        offered: Whether it was offered.
        share: The probability with which it was, in ``(0, 1)``.
    """

    version: str
    offered: bool
    share: float


class Decision(Event, frozen=True, kw_only=True):
    """A decision was made; the fields are those of ``records.Decision``.

    Attributes:
        prompts: The prompt versions on trial, each offered to the run or withheld from it.
    """

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
    context: JsonObject = msgspec.field(default_factory=dict)
    features: JsonObject = msgspec.field(default_factory=dict)
    encoded: bytes = b""
    prompts: tuple[PromptArm, ...] = ()


class Reward(Event, frozen=True, kw_only=True):
    """A run or a decision got a reward; the fields are those of ``records.Reward``.

    Attributes:
        rollout_id: The rollout, if only its id is known; else it is the run of the envelope.
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


class TauError(Event, frozen=True, kw_only=True):
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

    JSON has no NaN, no infinity, no tuples and only text keys. An event that would not decode
    unchanged is refused.

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
            f"cannot write a {event.event} event: JSON has no form for {_first_loss(event, back)}"
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


def _first_loss(event: Event, back: Event) -> str:
    """Return the names of the fields that changed when read back."""
    if type(back) is not type(event):
        return type(event).__name__
    names = event.__struct_fields__
    return ", ".join(name for name in names if getattr(event, name) != getattr(back, name))
