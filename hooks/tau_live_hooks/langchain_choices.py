"""How a request of an agent of langchain is read and changed; nothing at import needs the host."""

from collections.abc import Mapping
from typing import Any

from tau_live.settings.decisions import Point
from tau_live_hooks.common_text import few, printed, situation_of
from tau_live_hooks.langchain_events import own_metadata, tool_names
from tau_live_hooks.langchain_run import Step

HOST_GIVES = frozenset(
    {
        "messages",
        "input",
        "config",
        "callbacks",
        "run_manager",
        "tags",
        "metadata",
        "run_id",
        "run_name",
    }
)
"""What the host itself gives to a model, so that it cannot be a setting of one."""


class RequestSeam:
    """Reads and changes the host's ``ModelRequest``; nothing of it is kept."""

    def said(self, point: Point, request: Any) -> object:
        """Return what a request says at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            return dict(request.model_settings or {})
        if point is Point.TOOLS:
            return [*tool_names(request.tools)] or None
        return self.instructions(request) if getattr(request, "has_prompt", True) else None

    def is_own(self, request: Any, model: object) -> bool:
        """Say whether an option is the model that is asked anyway."""
        named = isinstance(model, str) and model in model_names(request.model)
        return named or model is request.model

    def instructions(self, request: Any) -> str:
        """Return the agent's own instructions."""
        message = request.system_message
        return "" if message is None else printed(message.text)

    def put(self, point: Point, request: Any, value: Any) -> Any:
        """Return the request with a choice in it."""
        if point is Point.MODEL:
            return request.override(model=made(value, tools=bool(request.tools)))
        if point is Point.PARAMS:
            return request.override(
                model_settings={**(request.model_settings or {}), **settable(value)}
            )
        if point is Point.TOOLS:
            stay = [tool for tool in few(request.tools) if {*tool_names([tool])} & {*value}]
            return request.override(tools=stay)
        from langchain_core.messages import SystemMessage

        return request.override(system_message=SystemMessage(content=value))


def made(value: object, *, tools: bool) -> Any:
    """Return the model that an option stands for.

    Raises:
        TypeError: It is not a model, or does not accept tools, and is to be.
    """
    from langchain_core.runnables import Runnable

    model: Any = value
    if isinstance(value, str):
        from langchain.chat_models import init_chat_model

        model = init_chat_model(value)
    if not isinstance(model, Runnable):
        raise TypeError(f"{model!r} is not a model")
    if tools and not takes_tools(model):
        raise TypeError(f"{type(model).__name__} does not accept tools")
    return model


def takes_tools(model: Any) -> bool:
    """Say whether a model can be given tools."""
    from langchain_core.language_models import BaseChatModel

    own = getattr(type(model), "bind_tools", None)
    return callable(getattr(model, "bind_tools", None)) and own is not BaseChatModel.bind_tools


def settable(value: object) -> dict[str, object]:
    """Return the settings that an option stands for.

    Raises:
        ValueError: There is one among them that the host gives by itself.
    """
    found = (
        {printed(name): one for name, one in value.items()} if isinstance(value, Mapping) else {}
    )
    taken = sorted(found.keys() & HOST_GIVES)
    if taken:
        raise ValueError(f"{', '.join(taken)} cannot be a setting: the host gives it")
    return found


def model_names(model: Any) -> set[str]:
    """Return the names by which a model may be selected, as ``init_chat_model`` would take them."""
    told = [getattr(model, name, None) for name in ("model_name", "model", "model_id")]
    names = {name for name in told if isinstance(name, str)}
    provider = printed(getattr(model, "_llm_type", "")).removesuffix("-chat")
    return names | {f"{provider}:{name}" for name in names}


def situation(step: Step, request: Any) -> dict[str, object]:
    """Return what is known before a model is asked: of the request, and the run's own metadata."""
    messages = request.messages
    first = next((one for one in few(messages) if getattr(one, "type", "") == "human"), None)
    text = getattr(first, "content", "")
    known = {
        **_of_run(step),
        "messages": len(messages),
        "tools": len(request.tools),
        "prompt_chars": len(text) if isinstance(text, str) else 0,
    }
    return situation_of(known, own_metadata(step.run.metadata))


def call_situation(step: Step, call: Mapping[str, Any]) -> dict[str, object]:
    """Return what is known before a tool is run."""
    known = {**_of_run(step), "tool": printed(call.get("name"))}
    return situation_of(known, own_metadata(step.run.metadata))


def _of_run(step: Step) -> dict[str, object]:
    known = {"agent": printed(step.run.book.agent or "agent"), "step": step.run.turns + 1}
    node = step.task.rpartition("|")[2].partition(":")[0]
    return {**known, "node": node} if node else known
