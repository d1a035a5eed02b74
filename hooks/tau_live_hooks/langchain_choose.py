"""The seams of langchain's agents: the request of a model, and the call of a tool.

The agent's graph stays as it is: ``create_agent`` makes each request by the name ``ModelRequest``,
and the wrapper of that name returns the request with the choices in it. With a middleware of ours
instead, the graph would get other edges, and a node of tools where it has none.

For models of plain text alone, the host's async manager calls either the callbacks that run inline
or the others, never both; and ours runs inline. So it is called without ours, as it would be if we
were not there, and ours is called afterwards, before the request is sent.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tau_live.core.errors import pass_on, suppress
from tau_live.core.gate import Kind
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings.tables import Point
from tau_live.runtime.adapters import InForce
from tau_live_hooks.common import Border, Situation, as_text, few, situation_of
from tau_live_hooks.langchain_events import own_metadata, tool_names
from tau_live_hooks.langchain_record import Step, TauHandler, in_tool
from tau_live_hooks.patches import Patches

RESERVED = frozenset(
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
"""The arguments that the host itself passes to a model, so that they cannot be settings of one."""


class RequestSeam:
    """Reads and changes the host's ``ModelRequest``; nothing of it is kept."""

    def value_at(self, point: Point, request: Any) -> object:
        """Return a request's value at a point, as a copy that can be compared."""
        if point is Point.MODEL:
            return id(request.model)
        if point is Point.PARAMS:
            return dict(request.model_settings or {})
        if point is Point.TOOLS:
            return [*tool_names(request.tools)] or None
        return self.instructions(request) if getattr(request, "has_prompt", True) else None

    def is_own(self, request: Any, model: object) -> bool:
        """Return whether an option is the request's own model."""
        is_named = isinstance(model, str) and model in model_names(request.model)
        return is_named or model is request.model

    def instructions(self, request: Any) -> str:
        """Return the agent's own instructions."""
        message = request.system_message
        return "" if message is None else as_text(message.text)

    def put(self, point: Point, request: Any, value: Any) -> Any:
        """Return the request with a choice in it."""
        if point is Point.MODEL:
            return request.override(model=model_of(value, tools=bool(request.tools)))
        if point is Point.PARAMS:
            return request.override(
                model_settings={**(request.model_settings or {}), **settable(value)}
            )
        if point is Point.TOOLS:
            tools = [tool for tool in few(request.tools) if {*tool_names([tool])} & {*value}]
            return request.override(tools=tools)
        from langchain_core.messages import SystemMessage

        return request.override(system_message=SystemMessage(content=value))


def model_of(value: object, *, tools: bool) -> Any:
    """Return the model that an option stands for.

    Raises:
        TypeError: It is not a model, or does not accept tools although there are some.
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
    """Return whether a model accepts tools."""
    from langchain_core.language_models import BaseChatModel

    own = getattr(type(model), "bind_tools", None)
    return callable(getattr(model, "bind_tools", None)) and own is not BaseChatModel.bind_tools


def settable(value: object) -> JsonObject:
    """Return the settings that an option stands for.

    Raises:
        ValueError: One of them is an argument that the host passes itself.
    """
    settings = (
        {as_text(name): item for name, item in value.items()} if isinstance(value, Mapping) else {}
    )
    reserved = sorted(settings.keys() & RESERVED)
    if reserved:
        raise ValueError(f"{', '.join(reserved)} cannot be a setting: the host gives it")
    return settings


def model_names(model: Any) -> set[str]:
    """Return the names by which a model may be selected, as ``init_chat_model`` would take them."""
    known = [getattr(model, name, None) for name in ("model_name", "model", "model_id")]
    names = {name for name in known if isinstance(name, str)}
    provider = as_text(getattr(model, "_llm_type", "")).removesuffix("-chat")
    return names | {f"{provider}:{name}" for name in names}


def situation(step: Step, request: Any) -> Situation:
    """Return the situation before a request: from the request, and the run's own metadata."""
    messages = request.messages
    first = next(
        (message for message in few(messages) if getattr(message, "type", "") == "human"), None
    )
    text = getattr(first, "content", "")
    known = {
        **_of_run(step),
        "messages": len(messages),
        "tools": len(request.tools),
        "prompt_chars": len(text) if isinstance(text, str) else 0,
    }
    return situation_of(known, own_metadata(step.run.metadata))


def call_situation(step: Step, call: Mapping[str, Any]) -> Situation:
    """Return the situation before a tool is run."""
    known = {**_of_run(step), "tool": as_text(call.get("name"))}
    return situation_of(known, own_metadata(step.run.metadata))


def _of_run(step: Step) -> Situation:
    known = {"agent": as_text(step.run.book.agent or "agent"), "step": step.run.turns + 1}
    node = step.task.rpartition("|")[2].partition(":")[0]
    return {**known, "node": node} if node else known


METHODS = ("invoke", "ainvoke", "stream", "astream")
"""The methods of the host's ``BaseChatModel`` that send a request."""

_FORMATS = ("tool_choice", "response_format", "ls_structured_output_format")


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A call of a model, with the attributes of ``create_agent``'s request, to be read alike.

    Attributes:
        model: The model.
        content: The prompt or messages.
        kwargs: The named arguments.
    """

    model: Any
    content: Any
    kwargs: Mapping[str, Any]

    @property
    def messages(self) -> list[Any]:
        """The messages, if its content is a list of them."""
        return self.content if isinstance(self.content, list) else []

    @property
    def system_message(self) -> Any:
        """The first message, if it is the system's."""
        first = next(iter(self.messages), None)
        return first if getattr(first, "type", None) == "system" else None

    @property
    def has_prompt(self) -> bool:
        """True if its instructions can be replaced."""
        return bool(self.messages)

    @property
    def tools(self) -> list[Any]:
        """The tools it may call; none where the answer has to have a given format."""
        is_formatted = any(self.kwargs.get(name) for name in _FORMATS)
        return [] if is_formatted else few(self.kwargs.get("tools"))

    @property
    def model_settings(self) -> dict[str, Any]:
        """The other arguments of the call."""
        bound = {"tools", "tool_choice", "stop", "response_format", "config"}
        return {name: value for name, value in self.kwargs.items() if name not in bound}

    def override(self, **changed: Any) -> "RawRequest":
        """Return the request with changes.

        Raises:
            TypeError: Its bound tools or format are written for models of its own class.
        """
        if "model" in changed:
            other = changed["model"]
            is_bound = any(self.kwargs.get(name) for name in ("tools", *_FORMATS))
            if is_bound and type(other) is not type(self.model):
                raise TypeError(f"its tools are written for {type(self.model).__name__}")
            return replace(self, model=other)
        if "model_settings" in changed:
            return replace(self, kwargs={**self.kwargs, **changed["model_settings"]})
        if "tools" in changed:
            return replace(self, kwargs={**self.kwargs, "tools": changed["tools"]})
        rest = self.messages[1:] if self.system_message is not None else self.messages
        return replace(self, content=[changed["system_message"], *rest])


EXECUTES = ("_execute_tool_sync", "_execute_tool_async")
"""The methods that run a tool, in langgraph's node of tools."""


class Acting:
    """Decides the requests of this process's agents to models, and which tools run.

    Args:
        in_force: Returns the running system.
        handler: Knows the open runs.
    """

    def __init__(self, in_force: InForce, handler: TauHandler) -> None:
        self._border = Border(in_force)
        self._handler = handler

    def wrap_requests(self, patches: Patches, factory: Any) -> None:
        """Decide the requests of the agents that ``create_agent`` made, and will make."""
        if not hasattr(getattr(factory, "ModelRequest", None), "override"):
            return
        patches.wrap(factory, "ModelRequest", self._new_request)
        # these compose the agent's own middleware around a model's request
        for name in ("_chain_model_call_handlers", "_chain_async_model_call_handlers"):
            if hasattr(factory, name):
                patches.wrap(factory, name, self._chain)

    def wrap_tools(self, patches: Patches, module: Any) -> None:
        """Decide whether tools run."""
        node = getattr(module, "ToolNode", None)
        if all(hasattr(node, name) for name in EXECUTES):
            for name, wrapper in zip(EXECUTES, (self._run_tool, self._run_tool_later), strict=True):
                patches.wrap(node, name, wrapper)

    def wrap_models(self, patches: Patches, module: Any) -> None:
        """Decide the requests that the nodes of graphs make by themselves."""
        model = getattr(module, "BaseChatModel", None)
        if all(hasattr(model, name) for name in METHODS):
            for name in METHODS:
                if name in vars(model):
                    patches.wrap(model, name, self._request_model)

    def _request_model(self, ask: Any, model: Any, args: Any, kwargs: Any) -> Any:
        changed = self._safely(self._change_raw, model, args, kwargs) if self._acts() else None
        if changed is None:
            return ask(*args, **kwargs)
        if changed.model is model:
            return ask(changed.content, *args[1:], **changed.kwargs)
        return getattr(changed.model, ask.__name__)(changed.content, *args[1:], **changed.kwargs)

    def _acts(self) -> bool:
        runtime = self._border.safely(self._border.in_force)
        return runtime is not None and runtime.settings.act

    def _change_raw(self, model: Any, args: Any, kwargs: Any) -> Any:
        step = self._current_step()
        if step is None or step.pending is not None or not args or in_tool(step):
            return None
        if step.run.metadata.get("ls_integration") != "langgraph":  # a graph of its author's own
            return None
        return self._change_request(RawRequest(model, args[0], kwargs), step)

    def _new_request(self, make: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        request = make(*args, **kwargs)
        changed = self._safely(self._change_created, request)
        return request if changed is None else changed

    def _change_created(self, request: Any) -> Any:
        return self._change_request(request, self._current_step())

    @staticmethod
    def _change_request(request: Any, step: Step | None) -> Any:
        if step is None or step.run.choices is None:
            return None
        changed, pending = step.run.choices.change_request(
            RequestSeam(), request, situation(step, request)
        )
        step.pending = (pending, changed)
        return changed

    def _chain(self, chain: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Let the innermost handler report the request that all middleware has left it with."""
        composed = chain(*args, **kwargs)
        if composed is None:
            return None

        def request_model(request: Any, execute: Callable[[Any], Any]) -> Any:
            return composed(request, partial(self._send, execute))

        return request_model

    def _send(self, execute: Callable[[Any], Any], request: Any) -> Any:
        self._safely(self._note_sent, request)
        return execute(request)

    def _note_sent(self, request: Any) -> None:
        step = self._current_step()
        if step is not None and step.pending is not None:
            step.pending = (step.pending[0], request)

    def _run_tool(self, execute: Any, node: Any, args: Any, kwargs: Any) -> Any:
        request = args[0] if args else kwargs.get("request")
        veto = self._safely(self._veto, request)
        if veto is not None:
            return veto
        try:
            return execute(*args, **kwargs)
        except Exception as error:
            pass_on(error)
            message = self._safely(self._retry_message, node, request, error)
            if message is None:
                raise
            return message

    async def _run_tool_later(self, execute: Any, node: Any, args: Any, kwargs: Any) -> Any:
        request = args[0] if args else kwargs.get("request")
        veto = self._safely(self._veto, request)
        if veto is not None:
            return veto
        try:
            return await execute(*args, **kwargs)
        except Exception as error:
            pass_on(error)
            message = self._safely(self._retry_message, node, request, error)
            if message is None:
                raise
            return message

    def _veto(self, request: Any) -> Any:
        """Return the message in place of a tool's result; ``None`` to let it run."""
        step = self._current_step()
        if step is None or step.run.choices is None:
            return None
        call = request.tool_call
        text = step.run.choices.veto(call_situation(step, call))
        if text is None:
            return None
        message = _message(call, text)
        self._safely(step.run.veto_tool, step, call, text)
        return message

    def _retry_message(self, node: Any, request: Any, error: Exception) -> Any:
        """Return the message that makes the model try again; ``None`` to fail as it would."""
        from langgraph.errors import GraphBubbleUp
        from langgraph.prebuilt import tool_node

        step = self._current_step()
        if step is None or step.run.choices is None or isinstance(error, GraphBubbleUp):
            return None
        if getattr(node, "_wrap_tool_call", None) or getattr(node, "_awrap_tool_call", None):
            return None  # the agent's own middleware handles it
        known = {**call_situation(step, request.tool_call), "what": "tool"}
        if not step.run.choices.should_retry({**known, "error": type(error).__name__}, own=False):
            return None
        text = tool_node.TOOL_CALL_ERROR_TEMPLATE.format(error=repr(error))
        self._safely(self._handler.note_retry, step, request.tool_call)
        return _message(request.tool_call, text)

    def _current_step(self) -> Step | None:
        """Return the host's step in which this is called."""
        from langchain_core.runnables.config import var_child_runnable_config

        config = var_child_runnable_config.get() or {}
        return self._handler.step(getattr(config.get("callbacks"), "parent_run_id", None))

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """Run a step of ours and return its result, or ``None`` if it fails."""
        return self._border.safely(step, *args, kind=Kind.DECISION)


def _message(call: Any, text: str) -> Any:
    from langchain_core.messages import ToolMessage

    return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"], status="error")


def wrap_managers(patches: Patches, module: Any) -> None:
    """Let the host call other callbacks as if ours were not among them."""

    async def on_llm_start(wrapped: Any, manager: Any, args: Any, kwargs: Any) -> Any:
        ours, others = _without_ours(manager)
        if ours is None:
            return await wrapped(*args, **kwargs)
        runs = await wrapped.__func__(others, *args, **kwargs)
        with suppress(Exception):  # the border to the host
            _start_models(ours, manager, *args, runs=runs, **kwargs)
        return runs

    manager = getattr(module, "AsyncCallbackManager", None)
    if manager is not None and "on_llm_start" in vars(manager):
        patches.wrap(manager, "on_llm_start", on_llm_start)


def _without_ours(manager: Any) -> tuple[TauHandler | None, Any]:
    """Return our callback, if the manager has it, and the manager without it."""
    with suppress(Exception):  # the border to the host
        ours = next(
            (handler for handler in manager.handlers if isinstance(handler, TauHandler)), None
        )
        if ours is not None:
            others = copy.copy(manager)
            others.handlers = [handler for handler in manager.handlers if handler is not ours]
            return ours, others
    return None, manager


def _start_models(
    ours: TauHandler, manager: Any, serialized: Any, prompts: Any, *, runs: Any, **details: Any
) -> None:
    """Report the requests to our callback, and add it to those that see how each ends."""
    details.pop("run_id", None)
    for prompt, run in zip(prompts, runs, strict=True):
        run.handlers = manager.handlers
        ours.on_llm_start(
            serialized,
            [prompt],
            run_id=run.run_id,
            parent_run_id=manager.parent_run_id,
            tags=manager.tags,
            metadata=manager.metadata,
            **details,
        )
