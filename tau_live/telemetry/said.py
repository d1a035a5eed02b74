"""Attributes of a span as fields of events: one reading of every convention."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import msgspec

from tau_live import events as ev
from tau_live.handed.values import COMMENT_LIMIT, text_of
from tau_live.telemetry.spans import TEXT_LIMIT, Attributes, Ended, number, text, texts

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
_RESULTS = ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output")
_AGENTS = ("gen_ai.agent.name", "agent.name", "agent_name", "traceloop.entity.name")
_SESSIONS = ("gen_ai.conversation.id", "session.id",
             "traceloop.association.properties.session_id")  # fmt: skip
_INPUTS = ("input.value", "gen_ai.input.messages", "traceloop.entity.input")
_OUTPUTS = ("output.value", "gen_ai.output.messages", "final_result", "traceloop.entity.output")

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
"""Tokens by the names of the conventions, as ours."""

_COUNTS = ("gen_ai.usage.", "llm.token_count.")
_SUMS = "gen_ai.aggregated_usage."
_NO_TOKENS = frozenset({"total", "total_tokens", "cost"})
_CANCELLED = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit"})
_LATE = frozenset({"TimeoutError", "Timeout", "timeout", "APITimeoutError", "ReadTimeout"})
_LIMITS = frozenset(
    {
        *("UsageLimitExceeded", "MaxTurnsExceeded", "GraphRecursionError", "AgentMaxStepsError"),
        *("LlmCallsLimitExceededError", "PipelineMaxComponentRuns"),
    }
)
_RETRIES = frozenset({"ToolRetryError", "ModelRetry"})
_WAITS = frozenset({"GraphInterrupt", "NodeInterrupt", "CallDeferred", "ApprovalRequired"})
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
"""What has a place of its own, or is content that is kept nowhere."""

_RAW_ENTRIES = 48
_CALLS_READ = 256


def session_of(said: Attributes) -> str | None:
    """Return what runs of one conversation share."""
    return text(said, *_SESSIONS)


def agent_of(said: Attributes) -> str | None:
    """Return the agent's name."""
    return text(said, *_AGENTS)


def content_of(said: Attributes, *names: str) -> ev.Content | None:
    """Return the first of these texts."""
    for name in names:
        value = said.get(name)
        if isinstance(value, str) and value:
            return ev.Content(text=value[:TEXT_LIMIT])
        if isinstance(value, bool | int | float):
            return ev.Content(text=str(value))
    return None


def input_of(said: Attributes) -> ev.Content | None:
    """Return what a run is to work on."""
    return content_of(said, *_INPUTS)


def output_of(said: Attributes) -> ev.Content | None:
    """Return what came out of a run."""
    return content_of(said, *_OUTPUTS)


def usage_of(said: Attributes, *, summed: bool = False) -> dict[str, float]:
    """Return tokens by kind; with ``summed`` those of all that a run did."""
    prefixes = (_SUMS, *_COUNTS) if summed else _COUNTS
    found: dict[str, float] = {}
    for name, value in said.items():
        if not name.startswith(prefixes) or not isinstance(value, int | float) or not value > 0:
            continue
        kind = next(name[len(prefix) :] for prefix in prefixes if name.startswith(prefix))
        if kind not in _NO_TOKENS and isfinite(value):
            found.setdefault(_TOKENS.get(kind, kind), float(value))
    return found


def cost_of(said: Attributes) -> float | None:
    """Return what it cost in US dollars, where the span says it."""
    cost = number(said, *_COSTS)
    return cost if cost is not None and cost >= 0 else None


def model_of(said: Attributes) -> str | None:
    """Return the model that a run asks first, where its span names one."""
    return text(said, *_MODELS_ASKED)


def request_of(said: Attributes) -> dict[str, object]:
    """Return the fields of a model request's start."""
    streaming = said.get("gen_ai.request.stream", said.get("llm.is_streaming"))
    first = number(said, *_FIRST)
    return {
        "model_requested": model_of(said),
        "provider": text(said, *_PROVIDERS),
        "params": _params(said),
        "tools_offered": _offered(said),
        "streaming": bool(streaming) if streaming is not None else (True if first else None),
        "raw": _raw(said),
    }


def response_of(said: Attributes) -> dict[str, object]:
    """Return the fields of a model request's end."""
    first = number(said, *_FIRST)
    output, calls = _answered(said)
    return {
        "model_used": text(said, *_MODELS_USED),
        "response_id": text(said, "gen_ai.response.id"),
        "finish_reasons": finish_reasons(said),
        "usage": usage_of(said),
        "cost_usd": cost_of(said),
        "ttft_ms": None if first is None else first * 1e3,
        "tool_calls": tuple(calls),
        "output": output,
    }


def finish_reasons(said: Attributes) -> tuple[str, ...]:
    """Return why a model stopped, once for each answer."""
    found = said.get("gen_ai.response.finish_reasons", said.get("llm.finish_reason"))
    return texts(found)


def call_of(said: Attributes, name: str) -> dict[str, object]:
    """Return the fields that the start and the end of a tool's call share."""
    tool = text(said, *_TOOLS) or name.removeprefix("execute_tool ").removeprefix("tools/call ")
    return {"tool": tool, "call_id": text(said, *_CALLS)}


def asked_of(said: Attributes) -> dict[str, object]:
    """Return the fields of a tool call's start."""
    mcp = "mcp.method.name" in said or said.get("gen_ai.tool.type") == "extension"
    return {
        "args": content_of(said, *_ARGS),
        "tool_kind": "mcp" if mcp else "function",
        "raw": _raw(said),
    }


def result_of(said: Attributes) -> ev.Content | None:
    """Return what a tool returned."""
    return content_of(said, *_RESULTS)


def looked_of(said: Attributes, name: str, *, failed: bool) -> dict[str, object]:
    """Return the fields of what a guardrail says."""
    told = _object(said.get("output.value"))
    flags = [said.get("guardrail.triggered"), said.get("guardrail.blocked")]
    flags += [told.get(name) for name in ("tripwire_triggered", "triggered", "blocked")]
    blocked = failed or any(flag is True for flag in flags)
    rule = text(said, "guardrail.name") or name
    return {
        "stage": text(said, "guardrail.stage", "guardrail.type") or "",
        "rules": (rule,) if blocked else (),
        "blocked": blocked,
        "raw": {"name": rule, **_raw(said)},
    }


class Problem(NamedTuple):
    """How something ended.

    Attributes:
        status: How.
        error: What went wrong.
        reason: Why a run ended so, where that is known.
    """

    status: ev.Status = ev.Status.OK
    error: ev.ErrorInfo | None = None
    reason: ev.Reason | None = None


def problem_of(ended: Ended, *, fatal: bool = False) -> Problem:
    """Return how a span ended, by its status, its exceptions, and what went through it."""
    said = ended.begun.attributes
    if not ended.failed:
        broken = "error" in finish_reasons(said)  # of a stream that nobody read to its end
        if ended.raised is None and not broken:
            return Problem()
        error = ev.ErrorInfo(type=ended.raised, fatal=fatal) if ended.raised else None
        return Problem(ev.Status.CANCELLED, error, ev.Reason.CANCELLED)
    raised = next((one for one in reversed(ended.happened) if one.name == "exception"), None)
    thrown = {} if raised is None else raised.attributes
    type_ = text(said, "error.type") or text(thrown, "exception.type") or "error"
    name = type_.rpartition(".")[2]
    message = text(thrown, "exception.message", limit=COMMENT_LIMIT) or ended.description
    error = ev.ErrorInfo(type=name, message=message, fatal=fatal)
    return _ending(name, error)


def _ending(name: str, error: ev.ErrorInfo) -> Problem:
    if name in _CANCELLED:
        return Problem(ev.Status.CANCELLED, error, ev.Reason.CANCELLED)
    if name in _LATE:
        return Problem(ev.Status.ERROR, error, ev.Reason.TIMEOUT)
    if name in _LIMITS:
        return Problem(ev.Status.LIMIT, error, ev.Reason.LIMIT)
    if name in _RETRIES:
        return Problem(ev.Status.RETRY, error)
    if name in _WAITS:
        return Problem(ev.Status.INTERRUPTED, error, ev.Reason.INTERRUPTED)
    return Problem(ev.Status.ERROR, error)


def _params(said: Attributes) -> dict[str, object]:
    given = _object(said.get("llm.invocation_parameters"))
    asked = "gen_ai.request."
    named = {
        name.removeprefix(asked): value
        for name, value in said.items()
        if name.startswith(asked) and name not in {"gen_ai.request.model", "gen_ai.request.stream"}
    }
    return {**{name: value for name, value in given.items() if name != "messages"}, **named}


def _offered(said: Attributes) -> tuple[str, ...]:
    defined = _listed(said.get("gen_ai.tool.definitions"))
    if not defined:
        defined = [
            _object(value)
            for name, value in said.items()
            if name.startswith("llm.tools.") and name.endswith(".tool.json_schema")
        ]
    found: list[str] = []
    for one in defined:
        own = one if isinstance(one, Mapping) else {}
        inner = own.get("function")
        name = own.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
        if isinstance(name, str):
            found.append(text_of(name))
    return tuple(found)


def _answered(said: Attributes) -> tuple[ev.Content | None, list[ev.ToolCall]]:
    """Return what a model said, and which tools it asked for."""
    messages = _listed(said.get("gen_ai.output.messages"))
    if messages:
        parts = [part for message in messages for part in _parts(message)]
        words = [str(part.get("content") or "") for part in parts if part.get("type") == "text"]
        calls = [_call(part) for part in parts if part.get("type") == "tool_call"]
        return (ev.Content(text="".join(words)) if any(words) else None), calls[:_CALLS_READ]
    output = content_of(said, "llm.output_messages.0.message.content", "output.value")
    return output, list(_flat_calls(said))[:_CALLS_READ]


def _parts(message: object) -> list[Mapping[str, object]]:
    found = message.get("parts") if isinstance(message, Mapping) else None
    listed = found if isinstance(found, list) else []
    return [part for part in listed if isinstance(part, Mapping)]


def _call(part: Mapping[str, object]) -> ev.ToolCall:
    args = part.get("arguments")
    shown = args if isinstance(args, str) else _json(args)
    return ev.ToolCall(
        id=text_of(part.get("id") or ""),
        name=text_of(part.get("name") or ""),
        args=ev.Content(text=shown) if args is not None else None,
    )


def _flat_calls(said: Attributes) -> Iterator[ev.ToolCall]:
    """Yield the calls that OpenInference spreads over attributes with numbers in their names."""
    end = ".tool_call.function.name"
    for name, value in said.items():
        if name.startswith("llm.output_messages.") and name.endswith(end):
            at = name.removesuffix(end)
            args = said.get(f"{at}.tool_call.function.arguments")
            yield ev.ToolCall(
                id=text(said, f"{at}.tool_call.id") or "",
                name=text_of(value),
                args=ev.Content(text=args) if isinstance(args, str) else None,
            )


def _raw(said: Attributes) -> dict[str, object]:
    """Return what has no place of its own and is no content."""
    found: dict[str, object] = {}
    for name, value in said.items():
        if len(found) >= _RAW_ENTRIES:
            break
        if not name.startswith(_CONTENT):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _object(value: object) -> Mapping[str, object]:
    found = _decoded(value) if isinstance(value, str) and value.startswith("{") else value
    return found if isinstance(found, Mapping) else {}


def _listed(value: object) -> Sequence[object]:
    found = _decoded(value) if isinstance(value, str) and value.startswith("[") else value
    return found if isinstance(found, list | tuple) else []


def _decoded(value: str) -> object:
    try:
        found: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return found


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return text_of(value)
