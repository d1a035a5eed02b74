"""Fields of our events from objects of openai-agents; nothing here imports the host.

Everything is read by name and may be missing: an older or newer host then reports less.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tau_live.core.events import Content, Fields
from tau_live.core.sanitize import JsonObject
from tau_live_hooks.common import as_text, content_of, few, positive_counts, tool_call

NO_OP = "no-op"
"""The host's id of traces and spans that it does not record."""


def of(item: Any, name: str, default: Any = None) -> Any:
    """Return an item's value of a name, be the item a mapping or an object."""
    if isinstance(item, Mapping):
        return item.get(name, default)
    return getattr(item, name, default)


def known_id(value: object) -> str | None:
    """Return an id of the host; ``None`` for anything else, and for ``NO_OP``."""
    return value if isinstance(value, str) and value not in ("", NO_OP) else None


def model_name(model: Any) -> str | None:
    """Return the name by which a model is requested, or else that of its class."""
    if model is None or isinstance(model, str):
        return model
    name = getattr(model, "model", None)
    return as_text(name) if isinstance(name, str) and name else model.__class__.__name__


def provider_of(model: Any) -> str | None:
    """Return the provider of a model, where its class shows it."""
    return "openai" if ".models.openai_" in model.__class__.__module__ else None


def usage_of(usage: Any) -> dict[str, float]:
    """Return the tokens of a request by kind, without those that are 0."""
    inputs = of(usage, "input_tokens_details")
    outputs = of(usage, "output_tokens_details")
    return positive_counts(
        {
            "input_tokens": of(usage, "input_tokens"),
            "output_tokens": of(usage, "output_tokens"),
            "cache_read_tokens": of(inputs, "cached_tokens"),
            "cache_write_tokens": of(inputs, "cache_write_tokens"),
            "reasoning_tokens": of(outputs, "reasoning_tokens"),
        }
    )


def params_of(settings: Any) -> JsonObject:
    """Return those of a model's settings that were set, without any that may carry secrets."""
    if not is_dataclass(settings):
        return {}
    params = {item.name: getattr(settings, item.name, None) for item in fields(settings)}
    params["reasoning"] = of(params.get("reasoning"), "effort")
    return {
        name: value for name, value in params.items() if isinstance(value, bool | int | float | str)
    }


def names_of(tools: Any) -> tuple[str, ...]:
    """Return the names of tools, where they have one."""
    return tuple(name for tool in few(tools) if isinstance(name := of(tool, "name"), str))


def kind_of_tool(tool: Any) -> str:
    """Return the kind of a tool: ``function``, ``mcp``, ``agent`` or ``builtin``."""
    if getattr(tool, "_is_agent_tool", False):
        return "agent"
    if not hasattr(tool, "on_invoke_tool"):
        return "builtin"
    origin = of(of(getattr(tool, "_tool_origin", None), "type"), "value")
    return {"mcp": "mcp", "agent_as_tool": "agent"}.get(as_text(origin), "function")


def text_of(content: object) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str):
        return content
    return "".join(text for part in few(content) if isinstance(text := of(part, "text"), str))


def answer_of(output: Any, *, keeps: bool) -> Fields:
    """Return the fields of a model's end that its answer has; texts only if ``keeps``."""
    items = few(output)
    messages = [item for item in items if of(item, "type") == "message"]
    text = "".join(text_of(of(item, "content")) for item in messages)
    return {
        "tool_calls": tuple(
            tool_call(
                of(item, "call_id"), of(item, "name"), of(item, "arguments") if keeps else None
            )
            for item in items
            if of(item, "type") == "function_call"
        ),
        "output": Content(text=text) if messages and keeps else None,
    }


def message_of(item: Any, *, keeps: bool) -> Fields:
    """Return the fields of the message that one item adds to the conversation."""
    kind = as_text(of(item, "type") or "message")
    raw: dict[str, object] = {"type": kind}
    for name in ("id", "call_id", "name"):
        if isinstance(of(item, name), str):
            raw[name] = of(item, name)
    content: object = of(item, "content")
    if kind == "message":
        content = text_of(content) or content
    elif content is None:
        content = of(item, "arguments") or of(item, "output")
    return {
        "role": _role_of(item, kind),
        "content": content_of(content) if keeps else None,
        "raw": raw,
    }


def _role_of(item: Any, kind: str) -> str:
    role = of(item, "role")
    if isinstance(role, str):
        return "system" if role == "developer" else role
    return "tool" if kind.endswith("_output") else "assistant"


def call_id_of(item: Any) -> str:
    """Return the id of a call that waits for an approval."""
    call = of(item, "raw_item")
    return as_text(of(call, "call_id") or of(call, "id") or "")


def tool_name_of(item: Any) -> str:
    """Return the name of a tool that waits for an approval."""
    return as_text(of(item, "tool_name") or of(of(item, "raw_item"), "name") or "tool")


def is_rejection(result: Any) -> bool:
    """Return whether a guardrail of tools does anything but let the call pass."""
    return bool(of(of(of(result, "output"), "behavior"), "type") != "allow")


def guardrail_name(guardrail: Any) -> str:
    """Return the name of a guardrail."""
    name = getattr(guardrail, "get_name", None)
    return as_text(name()) if callable(name) else as_text(of(guardrail, "name") or "guardrail")
