"""What objects of openai-agents say, as fields of our events; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then tells less.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tau_live.envelope import Content, ToolCall
from tau_live_hooks.common_text import content_of, counted, few, printed

NO_OP = "no-op"
"""The host's id of what it does not trace."""

_KINDS: Mapping[str, str] = {"mcp": "mcp", "agent_as_tool": "agent", "function": "function"}


def of(item: Any, name: str, default: Any = None) -> Any:
    """Return what an item says, be it a mapping or an object."""
    if isinstance(item, Mapping):
        return item.get(name, default)
    return getattr(item, name, default)


def known_id(value: object) -> str | None:
    """Return an id of the host; ``None`` for none, and for that of what it does not trace."""
    return value if isinstance(value, str) and value not in ("", NO_OP) else None


def model_name(model: Any) -> str | None:
    """Return the name by which a model is asked for, or else that of its class."""
    if model is None or isinstance(model, str):
        return model
    name = getattr(model, "model", None)
    return printed(name) if isinstance(name, str) and name else model.__class__.__name__


def provider_of(model: Any) -> str | None:
    """Return who runs a model, where its class says it."""
    return "openai" if ".models.openai_" in model.__class__.__module__ else None


def usage_of(usage: Any) -> dict[str, float]:
    """Return the tokens of a request by kind, without those that are 0."""
    read = of(usage, "input_tokens_details")
    written = of(usage, "output_tokens_details")
    return counted(
        {
            "input_tokens": of(usage, "input_tokens"),
            "output_tokens": of(usage, "output_tokens"),
            "cache_read_tokens": of(read, "cached_tokens"),
            "cache_write_tokens": of(read, "cache_write_tokens"),
            "reasoning_tokens": of(written, "reasoning_tokens"),
        }
    )


def params_of(settings: Any) -> dict[str, object]:
    """Return what was set of a model's settings, without what may carry secrets."""
    if not is_dataclass(settings):
        return {}
    found = {one.name: getattr(settings, one.name, None) for one in fields(settings)}
    found["reasoning"] = of(found.get("reasoning"), "effort")
    return {
        name: value for name, value in found.items() if isinstance(value, bool | int | float | str)
    }


def names_of(tools: Any) -> tuple[str, ...]:
    """Return the names of tools, where they have one."""
    return tuple(name for tool in few(tools) if isinstance(name := of(tool, "name"), str))


def kind_of_tool(tool: Any) -> str:
    """Return what kind of tool it is: ``function``, ``mcp``, ``agent`` or ``builtin``."""
    if getattr(tool, "_is_agent_tool", False):
        return "agent"
    if not hasattr(tool, "on_invoke_tool"):
        return "builtin"
    origin = of(of(getattr(tool, "_tool_origin", None), "type"), "value")
    return _KINDS.get(printed(origin), "function")


def calls_of(output: Any) -> Iterator[tuple[str, str, object]]:
    """Yield id, name and arguments of the tools that a model asked for."""
    for item in few(output):
        if of(item, "type") == "function_call":
            yield printed(of(item, "call_id")), printed(of(item, "name")), of(item, "arguments")


def said_in(output: Any) -> str | None:
    """Return the text that a model answered; ``None`` if there is none."""
    texts = [text_of(of(item, "content")) for item in few(output) if of(item, "type") == "message"]
    return "".join(texts) if texts else None


def text_of(content: object) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "".join(text for part in few(content) if isinstance(text := of(part, "text"), str))


def answer_of(output: Any, *, keeps: bool) -> dict[str, object]:
    """Return the fields of a model's end that its answer says; its texts where they are kept."""
    answered = said_in(output) if keeps else None
    return {
        "tool_calls": tuple(
            ToolCall(id=id_, name=name, args=content_of(args) if keeps else None)
            for id_, name, args in calls_of(output)
        ),
        "output": None if answered is None else Content(text=answered),
    }


def message_of(item: Any, *, keeps: bool) -> dict[str, object]:
    """Return the fields of what one item adds to the conversation."""
    kind = printed(of(item, "type") or "message")
    raw: dict[str, object] = {"type": kind}
    for name in ("id", "call_id", "name"):
        if isinstance(of(item, name), str):
            raw[name] = of(item, name)
    told: object = of(item, "content")
    if kind == "message":
        told = text_of(told) or told
    elif told is None:
        told = of(item, "arguments") or of(item, "output")
    return {
        "role": _role_of(item, kind),
        "content": content_of(told) if keeps else None,
        "raw": raw,
    }


def _role_of(item: Any, kind: str) -> str:
    role = of(item, "role")
    if isinstance(role, str):
        return "system" if role == "developer" else role
    return "tool" if kind.endswith("_output") else "assistant"


def call_id_of(item: Any) -> str:
    """Return the id of the call that waits for an approval."""
    call = of(item, "raw_item")
    return printed(of(call, "call_id") or of(call, "id") or "")


def tool_name_of(item: Any) -> str:
    """Return the name of the tool that waits for an approval."""
    return printed(of(item, "tool_name") or of(of(item, "raw_item"), "name") or "tool")


def rejection_of(result: Any) -> tuple[str, str] | None:
    """Return the name of a guardrail of tools, and what it does; ``None`` if it lets it pass."""
    behaviour = of(of(of(result, "output"), "behavior"), "type")
    return None if behaviour == "allow" else (guardrail_name(of(result, "guardrail")), behaviour)


def guardrail_name(guardrail: Any) -> str:
    """Return the name of a guardrail."""
    told = getattr(guardrail, "get_name", None)
    return printed(told()) if callable(told) else printed(of(guardrail, "name") or "guardrail")
