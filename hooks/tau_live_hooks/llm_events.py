"""Fields of our events from llm's objects; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then reports less.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tau_live.core.events import Content, Fields
from tau_live.core.sanitize import JsonObject
from tau_live_hooks.common import as_text, content_of, few, positive_counts, tool_call

_KINDS: Mapping[str, str] = {
    "TextPart": "text",
    "ReasoningPart": "reasoning",
    "ToolCallPart": "tool-call",
    "ToolResultPart": "tool-result",
    "AttachmentPart": "attachment",
}
"""The kinds of parts of a message, by the host's names of their classes."""

_DETAIL_LIMIT = 20
"""The most kinds of tokens that are read of each mapping of details."""


def usage_of(response: Any) -> dict[str, float]:
    """Return the tokens of an answer: of input and output, and the provider's details."""
    details: dict[str, object] = {}
    _flatten(getattr(response, "token_details", None), details)
    counts = {
        "input_tokens": getattr(response, "input_tokens", None),
        "output_tokens": getattr(response, "output_tokens", None),
        "cache_read_tokens": details.pop("cached_tokens", None),
    }
    return positive_counts({**details, **counts})


def _flatten(details: object, flat: dict[str, object], *, depth: int = 4) -> None:
    for name, value in few(details.items())[:_DETAIL_LIMIT] if isinstance(details, Mapping) else ():
        if isinstance(value, Mapping) and depth:
            _flatten(value, flat, depth=depth - 1)
        else:
            flat[as_text(name)] = value


def model_name(model: Any) -> str | None:
    """Return the name of a model as the host selects it."""
    return as_text(getattr(model, "model_id", None) or "") or None


def provider_of(model: Any) -> str | None:
    """Return the provider of a model, which is the name of the key that it needs."""
    needs = getattr(model, "needs_key", None)
    return needs if isinstance(needs, str) else None


def params_of(prompt: Any) -> JsonObject:
    """Return the options that were given for a model."""
    options = getattr(prompt, "options", None)
    dump = getattr(options, "model_dump", None)
    return dict(dump(exclude_none=True)) if callable(dump) else {}


def start_of(prompt: Any, model: Any) -> Fields:
    """Return the fields of a run's start."""
    return {
        "input": content_of(prompt.prompt or None),
        "model": model_name(model),
        "tools": tuple(as_text(tool.name) for tool in few(prompt.tools)),
    }


def request_of(response: Any, messages: Sequence[Any]) -> Fields:
    """Return the fields of a request's start."""
    prompt, model = response.prompt, response.model
    raw: dict[str, object] = {"response_id": response.id, "messages": len(messages)}
    if prompt.system:
        raw["instructions"] = as_text(prompt.system)
    if prompt.schema:
        raw["schema"] = True
    if prompt.attachments:
        raw["attachments"] = [as_text(attachment.type) for attachment in few(prompt.attachments)]
    return {
        "model_requested": model_name(model),
        "provider": provider_of(model),
        "params": params_of(prompt),
        "tools_offered": tuple(as_text(tool.name) for tool in few(prompt.tools)),
        "streaming": bool(response.stream and getattr(model, "can_stream", False)),
        "raw": raw,
    }


def answer_of(response: Any) -> Fields:
    """Return the fields of a model's answer, read while the host still keeps its pieces."""
    return {
        "model_used": response.resolved_model or model_name(response.model),
        "response_id": response.id,
        "finish_reasons": tuple(_reasons(response.response_json)),
        "tool_calls": tuple(
            tool_call(call.tool_call_id or "", call.name, call.arguments)
            for call in few(response._tool_calls)  # noqa: SLF001
        ),
        "output": content_of(text_of(response) or None),
    }


def text_of(response: Any) -> str:
    """Return the answer so far; reading the response itself would drive it."""
    return "".join(map(str, response._chunks))  # noqa: SLF001


def _reasons(answer: object) -> Iterator[str]:
    if not isinstance(answer, Mapping):
        return
    choices = answer.get("choices")
    for part in (answer, *few(choices)):
        reason = part.get("finish_reason") if isinstance(part, Mapping) else None
        if isinstance(reason, str):
            yield reason


def messages_of(message: Any) -> Iterator[Fields]:
    """Yield the fields of each part that a message of the host adds to the conversation."""
    for part in few(message.parts):
        name = type(part).__name__
        raw: dict[str, object] = {"part": _KINDS.get(name, name)}
        if getattr(part, "tool_call_id", None) is not None:
            raw |= {"tool_name": as_text(part.name), "tool_call_id": as_text(part.tool_call_id)}
        yield {"role": as_text(message.role), "content": _content(part), "raw": raw}


def _content(part: Any) -> Content | None:
    for name in ("text", "arguments", "output"):
        if hasattr(part, name):
            return content_of(getattr(part, name))
    attached = getattr(part, "attachment", None)
    label = getattr(attached, "type", None) or getattr(attached, "url", None)
    return None if label is None else content_of(as_text(label))


def first_new(messages: Sequence[Any]) -> int:
    """Return the index of the first new message: after the last one of an assistant."""
    answers = [n for n, message in enumerate(few(messages)) if message.role == "assistant"]
    return answers[-1] + 1 if answers else 0
