"""What langchain's objects say, as fields of our events; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then tells less.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tau_live.envelope import Content, ToolCall
from tau_live.handed.plain import plain
from tau_live.machine.quick import made
from tau_live_hooks.common_text import content_of, counted, few, printed

ROLES: Mapping[str, str] = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""Who says a message, by the host's name of its type."""

SESSIONS = ("thread_id", "session_id", "conversation_id")
"""By which names a run's metadata may tell the conversation, the first one first."""

_TOKENS: Mapping[str, str] = {
    "cache_read": "cache_read_tokens",
    "cache_creation": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
_INTERNAL = ("langgraph_", "ls_", "lc_", "checkpoint_", "__pregel")
_ENTRIES, _PARTS, _DEPTH = 100, 2_000, 16
_OF_A_MESSAGE = ("id", "name", "tool_call_id", "status")
_NAMES = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_PARAMS = frozenset({"_type", "model", "model_name", "tools", "functions"})


def session_of(metadata: Mapping[str, object]) -> str | None:
    """Return the conversation that a run belongs to, where its caller told one."""
    return next((printed(metadata[name]) for name in SESSIONS if metadata.get(name)), None)


def own_metadata(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return what a run's caller told of it, without what the host adds."""
    return {name: one for name, one in metadata.items() if not name.startswith(_INTERNAL)}


def text_of(value: Any) -> Content | None:
    """Return what an input or output says: the last message's text where it holds messages."""
    if type(value) is str or _is_flat(value):
        return content_of(value)
    found = value
    if isinstance(found, Mapping) and isinstance(found.get("messages"), str | Sequence):
        found = found["messages"]
    if isinstance(found, list | tuple) and found and hasattr(found[-1], "content"):
        found = found[-1]
    said = getattr(found, "content", found)
    if isinstance(said, str):
        return made(Content, text=printed(said))
    return content_of(_readable(said, iter(range(_PARTS)), depth=0))


def _is_flat(value: Any) -> bool:
    """Say whether a value is a dictionary of names with scalars, none of which is a message."""
    if type(value) is not dict or len(value) > _ENTRIES or "messages" in value:
        return False
    return _NAMES.issuperset(map(type, value)) and _SCALARS.issuperset(map(type, value.values()))


def _readable(value: Any, room: Iterator[int], *, depth: int) -> Any:
    """Return a value with what each message in it says in its place, as far as there is room."""
    if next(room, None) is None or depth > _DEPTH or type(value) in _SCALARS:
        return value
    if hasattr(value, "content") and hasattr(value, "type"):
        return {
            "role": ROLES.get(printed(value.type), printed(value.type)),
            "content": value.content,
        }
    if isinstance(value, Mapping):
        pairs = few(value.items())[:_ENTRIES]
        return {printed(name): _readable(one, room, depth=depth + 1) for name, one in pairs}
    if isinstance(value, list | tuple):
        return [_readable(one, room, depth=depth + 1) for one in few(value)[:_ENTRIES]]
    return value


def request_of(
    serialized: Any, params: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, object]:
    """Return the fields of a model request's start."""
    told = {name: one for name, one in params.items() if name not in _PARAMS and one is not None}
    return {
        "model_requested": model_name(serialized, params, metadata),
        "provider": metadata.get("ls_provider"),
        "params": plain(told),
        "tools_offered": tuple(tool_names(params.get("tools") or params.get("functions") or ())),
    }


def model_name(
    serialized: Any, params: Mapping[str, Any], metadata: Mapping[str, Any]
) -> str | None:
    """Return the name of the model that is asked."""
    for found in (
        metadata.get("ls_model_name"),
        params.get("model"),
        params.get("model_name"),
        params.get("_type"),
        serialized.get("name") if isinstance(serialized, Mapping) else None,
    ):
        if isinstance(found, str) and found:
            return found
    return None


def tool_names(tools: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tools, however a provider writes them."""
    for tool in few(tools):
        named = tool.get("function", tool) if isinstance(tool, Mapping) else tool
        if isinstance(named, Mapping):
            name = named.get("name") or named.get("type")
        else:
            name = getattr(named, "name", None) or named
        if isinstance(name, str):
            yield name


def usage_of(message: Any) -> dict[str, float]:
    """Return the tokens of an answer by kind."""
    told = getattr(message, "usage_metadata", None)
    if not isinstance(told, Mapping):
        return {}
    found = {name: told.get(name) for name in ("input_tokens", "output_tokens")}
    for details in ("input_token_details", "output_token_details"):
        for name, number in (told.get(details) or {}).items():
            found[_TOKENS.get(name, name)] = number
    return counted(found)


class Answer:
    """What a model answered.

    Args:
        response: The host's ``LLMResult``.
    """

    def __init__(self, response: Any) -> None:
        generations = [
            one for many in few(getattr(response, "generations", ())) for one in few(many)
        ]
        self.messages = [getattr(one, "message", one) for one in generations]
        self._output = getattr(response, "llm_output", None) or {}

    def usage(self) -> dict[str, float]:
        """Return the tokens by kind."""
        total: dict[str, float] = {}
        for message in self.messages:
            for kind, number in usage_of(message).items():
                total[kind] = total.get(kind, 0.0) + number
        return total or self._old_usage()

    def _old_usage(self) -> dict[str, float]:
        told = self._output.get("token_usage") or {}
        if not isinstance(told, Mapping):
            return {}
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
        return counted({names[name]: one for name, one in told.items() if name in names})

    def fields(self) -> dict[str, object]:
        """Return the fields of a model request's end."""
        about = [getattr(one, "response_metadata", None) or {} for one in self.messages]
        names = [one.get("model_name") or one.get("model") for one in about]
        reasons = [one.get("finish_reason") or one.get("stop_reason") for one in about]
        ids = [one.get("id") for one in about]
        said = [_said(one) for one in self.messages]
        return {
            "model_used": next(
                (printed(one) for one in names if one), self._output.get("model_name")
            ),
            "response_id": next((printed(one) for one in ids if one), None),
            "finish_reasons": tuple(printed(one) for one in reasons if one),
            "tool_calls": tuple(call for one in self.messages for call in calls_of(one)),
            "output": Content(text="\n".join(said)) if any(said) else None,
        }


def _said(message: Any) -> str:
    text = getattr(message, "text", "")
    return printed(text() if callable(text) and not isinstance(text, str) else text)


def calls_of(message: Any) -> Iterator[ToolCall]:
    """Yield the tools that a model asked for."""
    for call in few(getattr(message, "tool_calls", None)):
        yield ToolCall(
            id=printed(call.get("id") or ""),
            name=printed(call["name"]),
            args=content_of(call.get("args")),
        )


def message_of(message: Any) -> dict[str, object]:
    """Return the fields of a message that is part of a conversation."""
    read = _reading(message)
    kind = printed(read("type") or "")
    raw = {name: printed(found) for name in _OF_A_MESSAGE if (found := read(name))}
    calls = read("tool_calls")
    return {
        "role": ROLES.get(kind, "user"),
        "content": content_of(read("content")),
        "tool_calls": len(calls) if calls else None,
        "raw": raw,
    }


def _reading(message: Any) -> Callable[[str], Any]:
    """Return what reads an attribute of a message, ``None`` where it has none.

    Pydantic takes 2 us to say that a model has none, and most have none of what is asked for.
    """
    fields_alone = _has_fields_alone(type(message))  # type: ignore[arg-type]  # it can be hashed
    if fields_alone and getattr(message, "__pydantic_extra__", None) == {}:
        held: dict[str, Any] = vars(message)
        return held.get
    return lambda name: getattr(message, name, None)


@lru_cache(maxsize=_PARTS)
def _has_fields_alone(kind: Hashable) -> bool:
    return not any(
        hasattr(kind, name) for name in (*_OF_A_MESSAGE, "type", "content", "tool_calls")
    )


def message_key(message: Any) -> Hashable:
    """Return what tells a message from others."""
    read = _reading(message)
    own = read("id")
    if own:
        return printed(own)
    said = printed(read("content") or "")
    return printed(read("type") or ""), len(said), said[:256], said[-64:]
