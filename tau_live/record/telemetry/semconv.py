"""Conversion of a span's attributes to fields of events, for every convention.

Source:
    OpenTelemetry semantic conventions for generative AI 1.38 and for MCP; OpenInference's semantic
    conventions 0.1.42; OpenLLMetry's ``traceloop.*``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import NamedTuple, Protocol

import msgspec

from tau_live.core import events as ev
from tau_live.core.offers import COMMENT_LIMIT, text_of
from tau_live.core.records import Reason
from tau_live.core.sanitize import JsonObject

Attributes = JsonObject
"""The attributes of a span: texts, numbers, booleans, and sequences of them, by name."""

TEXT_LIMIT = 1_000_000


class SpanEvent(NamedTuple):
    """An event of a span.

    Attributes:
        name: Its name: ``exception``, ``gen_ai.evaluation.result``.
        attributes: Its attributes.
    """

    name: str
    attributes: Attributes


class SpanStart(NamedTuple):
    """The start of a span.

    Attributes:
        trace: The id of its trace, in hexadecimal.
        id: Its id, in hexadecimal.
        parent: The id of its parent span; ``None`` for a trace's root.
        name: Its name.
        scope: The name of the instrumentation that made it.
        at: Epoch seconds, UTC.
        attributes: Its attributes so far; more are added while it is open.
        service: Returns the name of its service, if known.
    """

    trace: str
    id: str
    parent: str | None
    name: str
    scope: str
    at: float
    attributes: Attributes
    service: Callable[[], str | None] | None = None


class SpanEnd(NamedTuple):
    """The end of a span.

    Attributes:
        start: Its start, with all its attributes.
        at: Epoch seconds, UTC.
        failed: Whether its status is an error.
        description: The description of that status.
        events: Its events.
        links: The spans that it links to, as trace and id.
        raised: The class of an exception that passed through it as a cancellation, if any.
    """

    start: SpanStart
    at: float
    failed: bool = False
    description: str = ""
    events: Sequence[SpanEvent] = ()
    links: Sequence[tuple[str, str]] = ()
    raised: str | None = None


class Around(Protocol):
    """A run of ours around a span: the fields of its handle that are used here."""

    host: str
    run_id: str
    execution: str
    session_id: str | None


def text(attributes: Attributes, *names: str, limit: int = 200) -> str | None:
    """Return the first of these attributes that is a text or a whole number, as text."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str | int) and value != "":
            return text_of(value, limit=limit)
    return None


def number(attributes: Attributes, *names: str) -> float | None:
    """Return the first of these attributes that is a finite number."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, int | float) and isfinite(value):
            return float(value)
    return None


def texts(value: object) -> tuple[str, ...]:
    """Return one text, or a sequence of values, as texts."""
    if isinstance(value, str):
        return (text_of(value),)
    return tuple(text_of(item) for item in value) if isinstance(value, list | tuple) else ()


_MODELS_USED = ("gen_ai.response.model", "llm.response.model_name", "llm.model_name",
                "embedding.model_name", "reranker.model_name", "gen_ai.request.model")  # fmt: skip
_MODELS_ASKED = ("gen_ai.request.model", "llm.request.model_name", "llm.model_name",
                 "embedding.model_name", "model_name")  # fmt: skip
_PROVIDERS = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_COSTS = ("llm.cost.total", "operation.cost", "gen_ai.usage.cost")
_FIRST = ("gen_ai.response.time_to_first_chunk", "gen_ai.client.operation.time_to_first_chunk",
          "gen_ai.server.time_to_first_token")  # fmt: skip
_TOOLS = ("gen_ai.tool.name", "tool.name", "mcp.tool.name", "traceloop.entity.name")
_CALLS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")
_ARGS = ("gen_ai.tool.call.arguments", "input.value", "tool.parameters", "traceloop.entity.input")
RESULTS = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
AGENTS = ("gen_ai.agent.name", "agent.name", "agent_name", "traceloop.entity.name")
_SESSIONS = ("gen_ai.conversation.id", "session.id",
             "traceloop.association.properties.session_id")  # fmt: skip
_INPUTS = ("input.value", "gen_ai.input.messages", "traceloop.entity.input")
OUTPUTS = ("output.value", "gen_ai.output.messages", "final_result", "traceloop.entity.output")

_TOKENS: Mapping[str, str] = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cache_read.input_tokens": "cache_read_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation.input_tokens": "cache_write_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
    "cache_write_input_tokens": "cache_write_tokens",
    "reasoning.output_tokens": "reasoning_tokens",
    "prompt": "input_tokens",
    "completion": "output_tokens",
    "prompt_details.cache_read": "cache_read_tokens",
    "prompt_details.cache_write": "cache_write_tokens",
    "completion_details.reasoning": "reasoning_tokens",
}
"""Our kinds of tokens, by the names of the conventions."""

_COUNTS = ("gen_ai.usage.", "llm.token_count.")
_CONTENT = (
    *("llm.input_messages", "llm.output_messages", "llm.tools", "llm.prompt", "input.", "output."),
    *("gen_ai.input.", "gen_ai.output.", "gen_ai.tool.", "gen_ai.prompt", "gen_ai.completion"),
    *("gen_ai.usage.", "llm.token_count.", "retrieval.documents"),
    *("embedding.embeddings", "reranker.input", "reranker.output", "logfire.", "final_result"),
    *("model_request_parameters", "pydantic_ai.all_messages", "traceloop.entity.", "tau."),
    *("gen_ai.request.", "gen_ai.response.", "gen_ai.operation.name", "gen_ai.provider.name"),
    *("gen_ai.system", "gen_ai.agent.name", "gen_ai.conversation.id", "gen_ai.aggregated_usage."),
    *("gen_ai.client.operation.time_to_first_chunk", "gen_ai.server.time_to_first_token"),
    *("openinference.span.kind", "llm.model_name", "llm.provider", "llm.invocation_parameters"),
    *("llm.system", "llm.finish_reason", "llm.cost.total", "session.id", "agent.name"),
    *("tool.name", "tool.parameters", "tool.id", "tool_call.id", "error.type", "mcp.tool.name"),
    *("all_messages_events", "gcp.vertex.agent.", "tool.description", "tool.json_schema"),
)
"""Prefixes of attributes that have a field of their own, or are content, which is not kept."""

_CALLS_READ = 256


def session_of(attributes: Attributes) -> str | None:
    """Return the id that the runs of one conversation share."""
    return text(attributes, *_SESSIONS)


def content_of(attributes: Attributes, *names: str) -> ev.Content | None:
    """Return the first of these attributes that holds content."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value:
            return ev.Content(text=value[:TEXT_LIMIT])
        if isinstance(value, bool | int | float):
            return ev.Content(text=str(value))
    return None


def input_of(attributes: Attributes) -> ev.Content | None:
    """Return the input of a run."""
    return content_of(attributes, *_INPUTS)


def usage_of(attributes: Attributes, *, summed: bool = False) -> dict[str, float]:
    """Return tokens by kind; with ``summed`` those of a whole run."""
    prefixes = ("gen_ai.aggregated_usage.", *_COUNTS) if summed else _COUNTS
    usage: dict[str, float] = {}
    for name, value in attributes.items():
        if not name.startswith(prefixes) or not isinstance(value, int | float) or not value > 0:
            continue
        kind = next(name[len(prefix) :] for prefix in prefixes if name.startswith(prefix))
        if kind not in {"total", "total_tokens", "cost"} and isfinite(value):
            usage.setdefault(_TOKENS.get(kind, kind), float(value))
    return usage


def cost_of(attributes: Attributes) -> float | None:
    """Return the cost in US dollars, if the span has one."""
    cost = number(attributes, *_COSTS)
    return cost if cost is not None and cost >= 0 else None


def model_of(attributes: Attributes) -> str | None:
    """Return the requested model, if the span names one."""
    return text(attributes, *_MODELS_ASKED)


def request_of(attributes: Attributes) -> ev.Fields:
    """Return the fields of a model request's start."""
    streaming = attributes.get("gen_ai.request.stream", attributes.get("llm.is_streaming"))
    first = number(attributes, *_FIRST)
    return {
        "model_requested": model_of(attributes),
        "provider": text(attributes, *_PROVIDERS),
        "params": _params(attributes),
        "tools_offered": _tools_offered(attributes),
        "streaming": bool(streaming) if streaming is not None else (True if first else None),
        "raw": _raw(attributes),
    }


def response_of(attributes: Attributes) -> ev.Fields:
    """Return the fields of a model request's end, without tokens and cost."""
    first = number(attributes, *_FIRST)
    output, calls = _answer(attributes)
    return {
        "model_used": text(attributes, *_MODELS_USED),
        "response_id": text(attributes, "gen_ai.response.id"),
        "finish_reasons": finish_reasons(attributes),
        "ttft_ms": None if first is None else first * 1e3,
        "tool_calls": tuple(calls),
        "output": output,
    }


def finish_reasons(attributes: Attributes) -> tuple[str, ...]:
    """Return why a model stopped, once for each answer."""
    reasons = attributes.get("gen_ai.response.finish_reasons", attributes.get("llm.finish_reason"))
    return texts(reasons)


def call_of(attributes: Attributes, name: str) -> ev.Fields:
    """Return the fields that the start and the end of a tool's call share."""
    tool = text(attributes, *_TOOLS) or name.removeprefix("execute_tool ").removeprefix(
        "tools/call "
    )
    return {"tool": tool, "call_id": text(attributes, *_CALLS)}


def arguments_of(attributes: Attributes) -> ev.Fields:
    """Return the fields of a tool call's start."""
    mcp = "mcp.method.name" in attributes or attributes.get("gen_ai.tool.type") == "extension"
    return {
        "args": content_of(attributes, *_ARGS),
        "tool_kind": "mcp" if mcp else "function",
        "raw": _raw(attributes),
    }


def check_of(attributes: Attributes, name: str, *, failed: bool) -> ev.Fields:
    """Return the fields of a guardrail's check."""
    output = _object(attributes.get("output.value"))
    flags = [attributes.get("guardrail.triggered"), attributes.get("guardrail.blocked")]
    flags += [output.get(name) for name in ("tripwire_triggered", "triggered", "blocked")]
    blocked = failed or any(flag is True for flag in flags)
    rule = text(attributes, "guardrail.name") or name
    return {
        "stage": text(attributes, "guardrail.stage", "guardrail.type") or "",
        "rules": (rule,) if blocked else (),
        "blocked": blocked,
        "raw": {"name": rule, **_raw(attributes)},
    }


class Problem(NamedTuple):
    """How a span ended.

    Attributes:
        status: The status.
        error: The error; ``None`` without one.
        reason: Why a run ended so, if known.
    """

    status: ev.Status = ev.Status.OK
    error: ev.ErrorInfo | None = None
    reason: Reason | None = None


_ENDINGS: Mapping[tuple[str, ...], tuple[ev.Status, Reason | None]] = {
    ("CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"): (
        ev.Status.CANCELLED,
        Reason.CANCELLED,
    ),
    ("TimeoutError", "Timeout", "timeout", "APITimeoutError", "ReadTimeout"): (
        ev.Status.ERROR,
        Reason.TIMEOUT,
    ),
    (
        *("UsageLimitExceeded", "MaxTurnsExceeded", "GraphRecursionError", "AgentMaxStepsError"),
        *("LlmCallsLimitExceededError", "PipelineMaxComponentRuns"),
    ): (ev.Status.LIMIT, Reason.LIMIT),
    ("ToolRetryError", "ModelRetry"): (ev.Status.RETRY, None),
    ("GraphInterrupt", "NodeInterrupt", "CallDeferred", "ApprovalRequired"): (
        ev.Status.INTERRUPTED,
        Reason.INTERRUPTED,
    ),
}
"""Status and reason by the names of special errors."""


def problem_of(ended: SpanEnd, *, fatal: bool = False) -> Problem:
    """Return how a span ended, by its status, its exceptions, and its cancellation."""
    attributes = ended.start.attributes
    if not ended.failed:
        broken = "error" in finish_reasons(attributes)  # a stream that was not read to its end
        if ended.raised is None and not broken:
            return Problem()
        error = ev.ErrorInfo(type=ended.raised, fatal=fatal) if ended.raised else None
        return Problem(ev.Status.CANCELLED, error, Reason.CANCELLED)
    raised = next((event for event in reversed(ended.events) if event.name == "exception"), None)
    thrown = {} if raised is None else raised.attributes
    type_ = text(attributes, "error.type") or text(thrown, "exception.type") or "error"
    name = type_.rpartition(".")[2]
    message = text(thrown, "exception.message", limit=COMMENT_LIMIT) or ended.description
    known = (ending for names, ending in _ENDINGS.items() if name in names)
    status, reason = next(known, (ev.Status.ERROR, None))
    return Problem(status, ev.ErrorInfo(type=name, message=message, fatal=fatal), reason)


def _params(attributes: Attributes) -> JsonObject:
    params = _object(attributes.get("llm.invocation_parameters"))
    prefix = "gen_ai.request."
    named = {
        name.removeprefix(prefix): value
        for name, value in attributes.items()
        if name.startswith(prefix) and name not in {"gen_ai.request.model", "gen_ai.request.stream"}
    }
    return {**{name: value for name, value in params.items() if name != "messages"}, **named}


def _tools_offered(attributes: Attributes) -> tuple[str, ...]:
    defined = _as_list(attributes.get("gen_ai.tool.definitions"))
    if not defined:
        defined = [
            _object(value)
            for name, value in attributes.items()
            if name.startswith("llm.tools.") and name.endswith(".tool.json_schema")
        ]
    owns = [_object(definition) for definition in defined]
    names = [own.get("name") or _object(own.get("function")).get("name") for own in owns]
    return tuple(text_of(name) for name in names if isinstance(name, str))


def _answer(attributes: Attributes) -> tuple[ev.Content | None, list[ev.ToolCall]]:
    """Return the output of a model and its tool calls."""
    messages = _as_list(attributes.get("gen_ai.output.messages"))
    if messages:
        parts = [part for message in messages for part in _parts(message)]
        words = [str(part.get("content") or "") for part in parts if part.get("type") == "text"]
        calls = [_call(part) for part in parts if part.get("type") == "tool_call"]
        return (ev.Content(text="".join(words)) if any(words) else None), calls[:_CALLS_READ]
    output = content_of(attributes, "llm.output_messages.0.message.content", "output.value")
    return output, list(_flat_calls(attributes))[:_CALLS_READ]


def _parts(message: object) -> list[JsonObject]:
    parts = message.get("parts") if isinstance(message, Mapping) else None
    listed = parts if isinstance(parts, list) else []
    return [part for part in listed if isinstance(part, Mapping)]


def _call(part: JsonObject) -> ev.ToolCall:
    args = part.get("arguments")
    shown = args if isinstance(args, str) else _json(args)
    return ev.ToolCall(
        id=text_of(part.get("id") or ""),
        name=text_of(part.get("name") or ""),
        args=ev.Content(text=shown) if args is not None else None,
    )


def _flat_calls(attributes: Attributes) -> Iterator[ev.ToolCall]:
    """Yield the calls that OpenInference spreads over attributes with numbers in their names."""
    end = ".tool_call.function.name"
    for name, value in attributes.items():
        if name.startswith("llm.output_messages.") and name.endswith(end):
            at = name.removesuffix(end)
            args = attributes.get(f"{at}.tool_call.function.arguments")
            yield ev.ToolCall(
                id=text(attributes, f"{at}.tool_call.id") or "",
                name=text_of(value),
                args=ev.Content(text=args) if isinstance(args, str) else None,
            )


def _raw(attributes: Attributes) -> JsonObject:
    """Return the attributes that have no field of their own and are not content."""
    rest = (
        (name, list(value) if isinstance(value, tuple) else value)
        for name, value in attributes.items()
        if not name.startswith(_CONTENT)
    )
    return dict(islice(rest, 48))


def _object(value: object) -> JsonObject:
    decoded = _decode(value) if isinstance(value, str) and value.startswith("{") else value
    return decoded if isinstance(decoded, Mapping) else {}


def _as_list(value: object) -> Sequence[object]:
    decoded = _decode(value) if isinstance(value, str) and value.startswith("[") else value
    return decoded if isinstance(decoded, list | tuple) else []


def _decode(value: str) -> object:
    try:
        decoded: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return decoded


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return text_of(value)


class Kind(Enum):
    """The kind of a span.

    ``CHAIN`` is a run if no agent's span is around it, and else nothing. ``RETRIEVAL`` is a tool
    call that no model requested, ``EMBEDDING`` a model request that is not a turn.
    """

    RUN = auto()
    CHAIN = auto()
    MODEL = auto()
    EMBEDDING = auto()
    TOOL = auto()
    RETRIEVAL = auto()
    POLICY = auto()
    EVALUATION = auto()
    NOTHING = auto()


STEPS = frozenset({Kind.MODEL, Kind.EMBEDDING, Kind.TOOL, Kind.RETRIEVAL, Kind.POLICY})

_BY_ATTRIBUTE: Mapping[str, Mapping[str, Kind]] = {
    "gen_ai.operation.name": {
        "chat": Kind.MODEL,
        "generate_content": Kind.MODEL,
        "text_completion": Kind.MODEL,
        "call_llm": Kind.MODEL,
        "embeddings": Kind.EMBEDDING,
        "retrieval": Kind.RETRIEVAL,
        "execute_tool": Kind.TOOL,
        "invoke_agent": Kind.RUN,
        "invoke_workflow": Kind.RUN,
        "create_agent": Kind.NOTHING,
    },
    "openinference.span.kind": {
        "AGENT": Kind.RUN,
        "CHAIN": Kind.CHAIN,
        "LLM": Kind.MODEL,
        "EMBEDDING": Kind.EMBEDDING,
        "TOOL": Kind.TOOL,
        "RETRIEVER": Kind.RETRIEVAL,
        "RERANKER": Kind.RETRIEVAL,
        "GUARDRAIL": Kind.POLICY,
        "EVALUATOR": Kind.EVALUATION,
        "PROMPT": Kind.NOTHING,
    },
    "traceloop.span.kind": {
        "workflow": Kind.CHAIN,
        "agent": Kind.RUN,
        "tool": Kind.TOOL,
        "task": Kind.NOTHING,
    },
    "mcp.method.name": {"tools/call": Kind.TOOL},
    "llm.request.type": {
        "chat": Kind.MODEL,
        "completion": Kind.MODEL,
        "embedding": Kind.EMBEDDING,
        "rerank": Kind.RETRIEVAL,
    },
}
"""The kind by the attribute that states it, the most reliable first."""

_BY_PRESENCE: Mapping[str, Kind] = {
    "gen_ai.tool.name": Kind.TOOL,
    "gen_ai.response.model": Kind.MODEL,
    "gen_ai.request.model": Kind.MODEL,
}
"""The kind of a span of an older convention, by an attribute that it has."""


def kind_of(attributes: Attributes, *, ended: bool = True) -> Kind | None:
    """Return the kind of a span; ``None`` if it is open and its kind is unknown yet."""
    for name, kinds in _BY_ATTRIBUTE.items():
        value = attributes.get(name)
        if isinstance(value, str) and value in kinds:
            return kinds[value]
    if not ended:
        return None
    for name, kind in _BY_PRESENCE.items():
        if name in attributes:
            return kind
    return Kind.NOTHING


@lru_cache(maxsize=256)
def host_of(scope: str) -> str:
    """Return the host that an instrumentation is for: ``openai-agents``, ``langchain``.

    It is the last part of the scope's name: ``openinference.instrumentation.openai_agents``.
    """
    last = scope.rpartition(".")[2].lower().replace("_", "-").replace(" ", "-").removesuffix("-v2")
    return "langchain" if last in {"langsmith", "langgraph"} else last


RESULT = "gen_ai.evaluation.result"
"""The event of an evaluation, in a span or as a log record."""

REWARD = "tau.reward"

_PART = re.compile(
    r"(?:(?P<list>(?:trace\.)?(?:evaluations|annotations)\.[0-9]{1,4})\.)?"
    r"(?P<kind>gen_ai\.evaluation|evaluation|annotation)\."
    r"(?P<part>name|score|score\.value|score\.label|label|explanation|annotator_kind)"
)
_SOURCES: Mapping[str, str] = {"HUMAN": "user", "LLM": "judge", "CODE": "auto"}
_BEGINNINGS = ("gen_ai.evaluation", "evaluation", "annotation", "trace.", REWARD)


class Value(NamedTuple):
    """An evaluation.

    Attributes:
        name: Its name; ``None`` if unknown.
        value: The score.
        label: The score as a label.
        comment: Its comment.
        source: Who gave it; ``None`` if unknown.
    """

    name: str | None
    value: float | None
    label: str | None = None
    comment: str | None = None
    source: str | None = None


def values_of(ended: SpanEnd) -> list[Value]:
    """Return the evaluations and rewards in a span, in its own order."""
    values = [
        value
        for event in ended.events
        if event.name == RESULT
        for value in evaluation_values(event.attributes)
    ]
    attributes = ended.start.attributes
    if any(name.startswith(_BEGINNINGS) for name in attributes):
        values += evaluation_values(attributes)
        own = number(attributes, REWARD)
        if own is not None:
            values.append(Value(text(attributes, f"{REWARD}.name"), own))
    return values


def evaluation_values(attributes: Attributes) -> Iterator[Value]:
    """Yield the evaluations in attributes, without those with neither score nor label."""
    groups: dict[tuple[str, str], dict[str, object]] = {}
    for name, value in attributes.items():
        match = _PART.fullmatch(name)
        if match is not None:
            group = groups.setdefault((match["list"] or "", match["kind"]), {})
            group[match["part"]] = value
    for parts in groups.values():
        value = number(parts, "score.value", "score")
        label = text(parts, "score.label", "label")
        if value is None and label is None:
            continue
        kind = text(parts, "annotator_kind") or ""
        yield Value(
            text(parts, "name"),
            value,
            label,
            text(parts, "explanation", limit=COMMENT_LIMIT),
            _SOURCES.get(kind.upper()),
        )


def reward_of(value: Value, *, name: str, source: str, key: str) -> dict[str, object]:
    """Return the fields of a reward, with defaults where the value has none."""
    return {
        "name": value.name or name,
        "value": value.value,
        "label": value.label,
        "comment": None if value.comment is None else ev.Content(text=value.comment),
        "source": value.source or source,
        "key": key,
    }
