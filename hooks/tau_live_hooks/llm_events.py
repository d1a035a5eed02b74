"""What llm's objects say, as fields of our events; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then tells less.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tau_live.envelope import Content, ToolCall
from tau_live_hooks.common_text import content_of, counted, few, printed

_KINDS: Mapping[str, str] = {
    "TextPart": "text",
    "ReasoningPart": "reasoning",
    "ToolCallPart": "tool-call",
    "ToolResultPart": "tool-result",
    "AttachmentPart": "attachment",
}
"""The kinds of parts of a message, by the host's names of their classes."""

_CACHED = "cached_tokens"
_COUNTS = 20
"""So many kinds of tokens are looked at, of each kind of detail."""


def usage_of(response: Any) -> dict[str, float]:
    """Return the tokens of an answer: what went in and came out, and the provider's details."""
    details: dict[str, object] = {}
    _flatten(getattr(response, "token_details", None), details)
    cached = details.pop(_CACHED, None)
    given = {
        "input_tokens": getattr(response, "input_tokens", None),
        "output_tokens": getattr(response, "output_tokens", None),
        "cache_read_tokens": cached,
    }
    return counted({**details, **given})


def _flatten(details: object, found: dict[str, object], *, depth: int = 4) -> None:
    for name, value in few(details.items())[:_COUNTS] if isinstance(details, Mapping) else ():
        if isinstance(value, Mapping) and depth:
            _flatten(value, found, depth=depth - 1)
        else:
            found[printed(name)] = value


def model_name(model: Any) -> str | None:
    """Return the name of a model as the host selects it."""
    return printed(getattr(model, "model_id", None) or "") or None


def provider_of(model: Any) -> str | None:
    """Return who runs a model, as far as the name of the key that it needs says so."""
    needs = getattr(model, "needs_key", None)
    return needs if isinstance(needs, str) else None


def params_of(prompt: Any) -> dict[str, object]:
    """Return the options that were given for a model."""
    options = getattr(prompt, "options", None)
    dump = getattr(options, "model_dump", None)
    return dict(dump(exclude_none=True)) if callable(dump) else {}


def start_of(prompt: Any, model: Any) -> dict[str, object]:
    """Return the fields of a run's start."""
    return {
        "input": content_of(prompt.prompt or None),
        "model": model_name(model),
        "tools": tuple(printed(tool.name) for tool in few(prompt.tools)),
    }


def request_of(response: Any, messages: Sequence[Any]) -> dict[str, object]:
    """Return the fields of a model's being asked."""
    prompt, model = response.prompt, response.model
    raw: dict[str, object] = {"response_id": response.id, "messages": len(messages)}
    if prompt.system:
        raw["instructions"] = printed(prompt.system)
    if prompt.schema:
        raw["schema"] = True
    if prompt.attachments:
        raw["attachments"] = [printed(one.type) for one in few(prompt.attachments)]
    return {
        "model_requested": model_name(model),
        "provider": provider_of(model),
        "params": params_of(prompt),
        "tools_offered": tuple(printed(tool.name) for tool in few(prompt.tools)),
        "streaming": bool(response.stream and getattr(model, "can_stream", False)),
        "raw": raw,
    }


def answer_of(response: Any) -> dict[str, object]:
    """Return the fields of a model's answer, read while the host still keeps its pieces."""
    return {
        "model_used": response.resolved_model or model_name(response.model),
        "response_id": response.id,
        "finish_reasons": tuple(_reasons(response.response_json)),
        "tool_calls": tuple(calls_of(response._tool_calls)),  # noqa: SLF001
        "output": content_of(text_of(response) or None),
    }


def text_of(response: Any) -> str:
    """Return what a model has said so far; asking the response itself would drive it."""
    return "".join(map(str, response._chunks))  # noqa: SLF001


def _reasons(answer: object) -> Iterator[str]:
    if not isinstance(answer, Mapping):
        return
    choices = answer.get("choices")
    for one in (answer, *few(choices)):
        reason = one.get("finish_reason") if isinstance(one, Mapping) else None
        if isinstance(reason, str):
            yield reason


def calls_of(calls: Sequence[Any]) -> Iterator[ToolCall]:
    """Yield the tools that a model asked for."""
    for call in few(calls):
        yield ToolCall(
            id=printed(call.tool_call_id or ""),
            name=printed(call.name),
            args=content_of(call.arguments),
        )


def messages_of(message: Any) -> Iterator[dict[str, object]]:
    """Yield the fields of what one message of the host adds to the conversation."""
    for part in few(message.parts):
        name = type(part).__name__
        raw: dict[str, object] = {"part": _KINDS.get(name, name)}
        if getattr(part, "tool_call_id", None) is not None:
            raw |= {"tool_name": printed(part.name), "tool_call_id": printed(part.tool_call_id)}
        yield {"role": printed(message.role), "content": _content(part), "raw": raw}


def _content(part: Any) -> Content | None:
    for name in ("text", "arguments", "output"):
        if hasattr(part, name):
            return content_of(getattr(part, name))
    attached = getattr(part, "attachment", None)
    told = getattr(attached, "type", None) or getattr(attached, "url", None)
    return None if told is None else content_of(printed(told))


def new_of(messages: Sequence[Any]) -> int:
    """Return the place of the first message that is new: after the last one of an assistant."""
    answered = [n for n, message in enumerate(few(messages)) if message.role == "assistant"]
    return answered[-1] + 1 if answered else 0
