"""What pydantic-ai's objects say, as fields of our events; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then tells less.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from tau_live.envelope import Content, ToolCall
from tau_live_hooks.common_text import content_of, counted, few, printed

ROLES: Mapping[str, str] = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "assistant",
    "thinking": "assistant",
    "tool-call": "assistant",
    "tool-return": "tool",
    "retry-prompt": "user",
    "retry-feedback": "user",
}
"""Who says a part of a message, by the host's name of its kind."""


def usage_of(usage: Any) -> dict[str, float]:
    """Return the tokens of a request by the host's own names, without those that are 0."""
    if not is_dataclass(usage):
        return {}
    found = {field.name: getattr(usage, field.name, None) for field in fields(usage)}
    details = found.pop("details", None)
    kinds = {**(details if isinstance(details, Mapping) else {}), **found}
    kinds.pop("cost", None)
    return counted(kinds)


def cost_of(usage: Any) -> float | None:
    """Return what a request cost in US dollars, where the host knows its price."""
    cost = getattr(usage, "cost", None)
    return None if cost is None or callable(cost) else float(cost)


def model_name(model: Any) -> str | None:
    """Return the name of a model as the host selects it: ``openai:gpt-5``."""
    if model is None or isinstance(model, str):
        return model
    return (
        printed(getattr(model, "model_id", None) or getattr(model, "model_name", None) or "")
        or None
    )


def start_of(ctx: Any) -> dict[str, object]:
    """Return the fields of a run's start."""
    agent = getattr(getattr(ctx, "agent", None), "name", None)
    return {
        "input": content_of(getattr(ctx, "prompt", None)),
        "model": model_name(getattr(ctx, "model", None)),
        "agent": None if agent is None else printed(agent),
    }


def request_of(request: Any) -> dict[str, object]:
    """Return the fields of a model request's start."""
    parameters = request.model_request_parameters
    instructions = [printed(part.content) for part in few(parameters.instruction_parts)]
    raw: dict[str, object] = {
        "messages": len(request.messages),
        "output_tools": [tool.name for tool in few(parameters.output_tools)],
    }
    if instructions:
        raw["instructions"] = instructions
    return {
        "model_requested": model_name(request.model),
        "provider": getattr(request.model, "system", None),
        "params": dict(request.model_settings or {}),
        "tools_offered": tuple(tool.name for tool in few(parameters.function_tools)),
        "streaming": bool(getattr(request, "streaming", False)),
        "raw": raw,
    }


def response_of(response: Any) -> dict[str, object]:
    """Return the fields of a model request's end."""
    reason = getattr(response, "finish_reason", None)
    said = [part.content for part in few(response.parts) if part.part_kind == "text"]
    return {
        "model_used": response.model_name,
        "response_id": getattr(response, "provider_response_id", None),
        "finish_reasons": () if reason is None else (printed(reason),),
        "tool_calls": tuple(calls_of(response.parts)),
        "output": Content(text="".join(said)) if said else None,
    }


def calls_of(parts: Sequence[Any]) -> Iterator[ToolCall]:
    """Yield the tools that a model asked for."""
    for part in few(parts):
        if part.part_kind == "tool-call":
            yield ToolCall(
                id=printed(part.tool_call_id),
                name=printed(part.tool_name),
                args=content_of(part.args),
            )


def messages_of(message: Any) -> Iterator[dict[str, object]]:
    """Yield the fields of what one message of the host adds to the conversation."""
    for part in few(message.parts):
        kind = printed(part.part_kind)
        raw: dict[str, object] = {"part": kind}
        for name in ("tool_name", "tool_call_id", "outcome"):
            if getattr(part, name, None) is not None:
                raw[name] = printed(getattr(part, name))
        told = part.args if kind == "tool-call" else getattr(part, "content", None)
        yield {
            "role": ROLES.get(kind, "assistant" if message.kind == "response" else "user"),
            "content": content_of(told),
            "raw": raw,
        }


def resumed_run(messages: Sequence[Any]) -> str | None:
    """Return the id of the run that waited for the results with which a history goes on.

    A run that was itself such a continuation begins with the results of what the one before had
    asked for; the first of them is meant, and known from the history alone, in any process.
    """
    runs: list[tuple[str, Any, Any]] = []
    for message in few(messages):
        run_id = getattr(message, "run_id", None)
        if run_id and runs and runs[-1][0] == run_id:
            runs[-1] = (run_id, runs[-1][1], message)
        elif run_id:
            runs.append((run_id, message, message))
    while len(runs) > 1 and _calls_in(runs[-2][2]) & _calls_in(runs[-1][1]):
        runs.pop()
    return runs[-1][0] if runs else None


def _calls_in(message: Any) -> set[str]:
    found = {getattr(part, "tool_call_id", None) for part in few(message.parts)}
    return {printed(one) for one in found if one}
