"""Events inside a run: turns, models, tools, messages, guardrails and retries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tau_live.envelope import Content, Event, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(Event):
    """A round of the agent's loop starts."""

    event: Literal["turn.start"] = "turn.start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(Event):
    """A round of the agent's loop ended.

    Attributes:
        usage: Tokens by kind.
        tool_calls: How many tools were called.
        finish_reason: Why the model stopped.
        duration_ms: Its duration in milliseconds.
    """

    event: Literal["turn.end"] = "turn.end"
    usage: Mapping[str, float] = field(default_factory=dict)
    tool_calls: int | None = None
    finish_reason: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStart(Event):
    """A step of the host starts: a node of a graph, a link of a chain.

    Attributes:
        name: Its name.
        step_kind: The host's kind of step: ``node``, ``chain``, ``retriever``.
    """

    event: Literal["step.start"] = "step.start"
    name: str = ""
    step_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart(Event):
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
    params: Mapping[str, object] = field(default_factory=dict)
    messages: Content | None = None
    tools_offered: tuple[str, ...] = ()
    streaming: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEnd(Event):
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
    usage: Mapping[str, float] = field(default_factory=dict)
    ttft_ms: float | None = None
    duration_ms: float | None = None
    cost_usd: float | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    output: Content | None = None
    streaming: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInterrupt(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResume(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Event):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Event):
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
