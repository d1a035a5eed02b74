"""Fields of our events from langchain's objects; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then reports less.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tau_live.core.events import Content, Fields
from tau_live.core.sanitize import JsonObject, plain
from tau_live_hooks.common import as_text, content_of, few, positive_counts, tool_call

ROLES: Mapping[str, str] = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""The role of a message, by the host's name for its type."""

SESSIONS = ("thread_id", "session_id", "conversation_id")
"""The names of the conversation's id in a run's metadata, by precedence."""

_TOKENS: Mapping[str, str] = {
    "cache_read": "cache_read_tokens",
    "cache_creation": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
_ENTRIES, _PARTS, _DEPTH = 100, 2_000, 16
_OF_A_MESSAGE = ("id", "name", "tool_call_id", "status")
_NAMES = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})


def session_of(metadata: JsonObject) -> str | None:
    """Return the conversation that a run belongs to, where its caller named one."""
    return next((as_text(metadata[name]) for name in SESSIONS if metadata.get(name)), None)


def own_metadata(metadata: JsonObject) -> JsonObject:
    """Return the metadata of a run's caller, without what the host adds."""
    return {
        name: item
        for name, item in metadata.items()
        if not name.startswith(("langgraph_", "ls_", "lc_", "checkpoint_", "__pregel"))
    }


def text_of(value: Any) -> Content | None:
    """Return the text of an input or output: the last message's text where it holds messages."""
    if type(value) is str or _is_flat(value):
        return content_of(value)
    inner = value
    if isinstance(inner, Mapping) and isinstance(inner.get("messages"), str | Sequence):
        inner = inner["messages"]
    if isinstance(inner, list | tuple) and inner and hasattr(inner[-1], "content"):
        inner = inner[-1]
    content = getattr(inner, "content", inner)
    if isinstance(content, str):
        return Content(text=as_text(content))
    return content_of(_readable(content, iter(range(_PARTS)), depth=0))


def _is_flat(value: Any) -> bool:
    """Return whether a value is a dictionary of names and scalars, without messages."""
    if type(value) is not dict or len(value) > _ENTRIES or "messages" in value:
        return False
    return _NAMES.issuperset(map(type, value)) and _SCALARS.issuperset(map(type, value.values()))


def _readable(value: Any, room: Iterator[int], *, depth: int) -> Any:
    """Return a value with each message in it as its role and content, as far as there is room."""
    if next(room, None) is None or depth > _DEPTH or type(value) in _SCALARS:
        return value
    if hasattr(value, "content") and hasattr(value, "type"):
        return {
            "role": ROLES.get(as_text(value.type), as_text(value.type)),
            "content": value.content,
        }
    if isinstance(value, Mapping):
        pairs = few(value.items())[:_ENTRIES]
        return {as_text(name): _readable(item, room, depth=depth + 1) for name, item in pairs}
    if isinstance(value, list | tuple):
        return [_readable(item, room, depth=depth + 1) for item in few(value)[:_ENTRIES]]
    return value


def request_of(serialized: Any, params: Mapping[str, Any], metadata: Mapping[str, Any]) -> Fields:
    """Return the fields of a model request's start."""
    settings = {
        name: item
        for name, item in params.items()
        if name not in {"_type", "model", "model_name", "tools", "functions"} and item is not None
    }
    return {
        "model_requested": model_name(serialized, params, metadata),
        "provider": metadata.get("ls_provider"),
        "params": plain(settings),
        "tools_offered": tuple(tool_names(params.get("tools") or params.get("functions") or ())),
    }


def model_name(
    serialized: Any, params: Mapping[str, Any], metadata: Mapping[str, Any]
) -> str | None:
    """Return the name of the requested model."""
    for name in (
        metadata.get("ls_model_name"),
        params.get("model"),
        params.get("model_name"),
        params.get("_type"),
        serialized.get("name") if isinstance(serialized, Mapping) else None,
    ):
        if isinstance(name, str) and name:
            return name
    return None


def tool_names(tools: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tools, however a provider writes them."""
    for tool in few(tools):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else tool
        if isinstance(function, Mapping):
            name = function.get("name") or function.get("type")
        else:
            name = getattr(function, "name", None) or function
        if isinstance(name, str):
            yield name


def usage_of(message: Any) -> dict[str, float]:
    """Return the tokens of an answer by kind."""
    usage = getattr(message, "usage_metadata", None)
    if not isinstance(usage, Mapping):
        return {}
    tokens = {name: usage.get(name) for name in ("input_tokens", "output_tokens")}
    for details in ("input_token_details", "output_token_details"):
        for name, number in (usage.get(details) or {}).items():
            tokens[_TOKENS.get(name, name)] = number
    return positive_counts(tokens)


def messages_in(response: Any) -> list[Any]:
    """Return the messages, or texts, of an answer: of the host's ``LLMResult``."""
    batches = few(getattr(response, "generations", ()))
    generations = [generation for batch in batches for generation in few(batch)]
    return [getattr(generation, "message", generation) for generation in generations]


def tokens_of(response: Any, messages: Sequence[Any]) -> dict[str, float]:
    """Return the tokens of an answer by kind."""
    total: dict[str, float] = {}
    for message in messages:
        for kind, number in usage_of(message).items():
            total[kind] = total.get(kind, 0.0) + number
    usage = (getattr(response, "llm_output", None) or {}).get("token_usage")
    if total or not isinstance(usage, Mapping):
        return total
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    return positive_counts({names[name]: number for name, number in usage.items() if name in names})


def answer_of(response: Any, messages: Sequence[Any]) -> Fields:
    """Return the fields of a model request's end."""
    metadata = [getattr(message, "response_metadata", None) or {} for message in messages]
    names = [item.get("model_name") or item.get("model") for item in metadata]
    names.append((getattr(response, "llm_output", None) or {}).get("model_name"))
    reasons = [item.get("finish_reason") or item.get("stop_reason") for item in metadata]
    ids = [item.get("id") for item in metadata]
    texts = [_text_of_message(message) for message in messages]
    return {
        "model_used": next((as_text(name) for name in names if name), None),
        "response_id": next((as_text(id_) for id_ in ids if id_), None),
        "finish_reasons": tuple(as_text(reason) for reason in reasons if reason),
        "tool_calls": tuple(
            tool_call(call.get("id") or "", call["name"], call.get("args"))
            for message in messages
            for call in few(getattr(message, "tool_calls", None))
        ),
        "output": Content(text="\n".join(texts)) if any(texts) else None,
    }


def _text_of_message(message: Any) -> str:
    text = getattr(message, "text", "")
    return as_text(text() if callable(text) and not isinstance(text, str) else text)


def message_of(message: Any) -> Fields:
    """Return the fields of a message that is part of a conversation."""
    read = _reader_of(message)
    kind = as_text(read("type") or "")
    raw = {name: as_text(value) for name in _OF_A_MESSAGE if (value := read(name))}
    calls = read("tool_calls")
    return {
        "role": ROLES.get(kind, "user"),
        "content": content_of(read("content")),
        "tool_calls": len(calls) if calls else None,
        "raw": raw,
    }


def _reader_of(message: Any) -> Callable[[str], Any]:
    """Return a function that reads an attribute of a message, ``None`` where it has none.

    Pydantic takes 2 us for an attribute that a model lacks, and most lack most of those read.
    """
    fields_alone = _has_fields_alone(type(message))  # type: ignore[arg-type]  # it can be hashed
    if fields_alone and getattr(message, "__pydantic_extra__", None) == {}:
        attributes: dict[str, Any] = vars(message)
        return attributes.get
    return lambda name: getattr(message, name, None)


@lru_cache(maxsize=_PARTS)
def _has_fields_alone(kind: Hashable) -> bool:
    return not any(
        hasattr(kind, name) for name in (*_OF_A_MESSAGE, "type", "content", "tool_calls")
    )


def message_key(message: Any) -> Hashable:
    """Return a key that distinguishes a message from others."""
    read = _reader_of(message)
    own = read("id")
    if own:
        return as_text(own)
    content = as_text(read("content") or "")
    return as_text(read("type") or ""), len(content), content[:256], content[-64:]
