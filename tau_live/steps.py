"""What happens inside a run: turns, models, tools, messages, and what a host does about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tau_live.envelope import Content, Event, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(Event):
    """One round of the agent's loop begins."""

    event: Literal["turn.start"] = "turn.start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(Event):
    """One round of the agent's loop is over.

    Attributes:
        usage: Tokens by kind.
        tool_calls: How many tools were called.
        finish_reason: Why the model stopped.
        duration_ms: How long it took, in milliseconds.
    """

    event: Literal["turn.end"] = "turn.end"
    usage: Mapping[str, float] = field(default_factory=dict)
    tool_calls: int | None = None
    finish_reason: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStart(Event):
    """A step of the host's own begins: a node of a graph, a link of a chain.

    Attributes:
        name: Its name.
        step_kind: What it is to the host: ``node``, ``chain``, ``retriever``.
    """

    event: Literal["step.start"] = "step.start"
    name: str = ""
    step_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd(Event):
    """A step of the host's own is over.

    Attributes:
        name: Its name.
        step_kind: What it is to the host.
        duration_ms: How long it took, in milliseconds.
    """

    event: Literal["step.end"] = "step.end"
    name: str = ""
    step_kind: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStart(Event):
    """A model is asked.

    Attributes:
        model_requested: The model that is asked for.
        provider: Who runs it.
        params: Temperature and the like; open-ended JSON data.
        messages: What it is sent.
        tools_offered: The names of the tools it may ask for.
        streaming: Whether the answer comes in pieces.
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
    """A model has answered, or failed to.

    Attributes:
        model_used: The model that answered.
        response_id: The provider's id of the answer.
        finish_reasons: Why it stopped, once for each answer.
        usage: Tokens by kind.
        ttft_ms: Milliseconds to the first token.
        duration_ms: Milliseconds to the last.
        cost_usd: What it cost, in US dollars.
        tool_calls: The tools it asked for.
        output: What it said.
        streaming: Whether the answer came in pieces, where that is known only now.
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
    """A tool is called.

    Attributes:
        call_id: The model's id of the call.
        tool: Its name.
        args: What it is called with.
        tool_kind: ``function``, ``mcp``, ``agent`` or ``builtin``.
    """

    event: Literal["tool.start"] = "tool.start"
    call_id: str | None = None
    tool: str = ""
    args: Content | None = None
    tool_kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd(Event):
    """A tool has returned, or failed to.

    Attributes:
        call_id: The model's id of the call.
        tool: Its name.
        result: What it returned.
        is_error: Whether it failed.
        retry_of: The call that this one repeats.
        duration_ms: How long it took, in milliseconds.
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
        content: What it says.
        index: Its place in the conversation, from 0.
        tool_calls: How many tools it asks for.
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
        from_agent: Who hands over.
        to_agent: Who takes over.
        reason: Why.
    """

    event: Literal["handoff"] = "handoff"
    from_agent: str | None = None
    to_agent: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInterrupt(Event):
    """A run stops to wait for somebody; its attempt ends, the rollout does not.

    Attributes:
        reason: What it waits for.
        resume_key: What it will be resumed with.
        payload: What somebody is asked.
    """

    event: Literal["run.interrupt"] = "run.interrupt"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResume(Event):
    """A run that waited goes on, as another attempt.

    Attributes:
        reason: Why it may go on.
        resume_key: What it is resumed with.
        payload: What somebody answered.
    """

    event: Literal["run.resume"] = "run.resume"
    reason: str | None = None
    resume_key: str | None = None
    payload: Content | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Event):
    """A guardrail of the host looked at something.

    Attributes:
        stage: What it looked at: ``input``, ``output`` or ``tool``.
        mode: What it does when it finds something: ``warn``, ``redact`` or ``block``.
        rules: The rules that matched.
        blocked: Whether it kept it from going on.
        reason_codes: What it found.
    """

    event: Literal["policy"] = "policy"
    stage: str = ""
    mode: str | None = None
    rules: tuple[str, ...] = ()
    blocked: bool = False
    reason_codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Event):
    """The host tries something again.

    Attributes:
        what: ``model``, ``tool`` or ``output``.
        number: Which try this is, from 1.
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
