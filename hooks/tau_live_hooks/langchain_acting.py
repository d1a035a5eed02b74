"""Where langchain's agents are acted on: the request of a model, and the call of a tool.

The agent's graph stays as it is: ``create_agent`` makes each request by the name ``ModelRequest``,
and what stands behind that name here returns the request as it was decided. With a middleware of
ours instead, the graph would get other edges, and a node of tools where it has none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import wrapt

from tau_live.adapters import Detach, InForce
from tau_live.errors import pass_on
from tau_live.gate import Kind
from tau_live_hooks.common_border import Border
from tau_live_hooks.langchain_begun import in_tool
from tau_live_hooks.langchain_choices import RequestSeam, call_situation, situation
from tau_live_hooks.langchain_patches import replaced
from tau_live_hooks.langchain_raw import GRAPH, WAYS, RawRequest
from tau_live_hooks.langchain_run import Step
from tau_live_hooks.langchain_tree import Tree

CHAINS = ("_chain_model_call_handlers", "_chain_async_model_call_handlers")
"""What puts the agent's own middleware around the asking of a model."""

EXECUTES = ("_execute_tool_sync", "_execute_tool_async")
"""What runs a tool, in langgraph's node of tools."""


class Acting:
    """Decides what the agents of this process ask of models, and which tools run.

    Args:
        in_force: Returns the running system.
        tree: Knows what goes on.
    """

    def __init__(self, in_force: InForce, tree: Tree) -> None:
        self._border = Border(in_force)
        self._tree = tree

    def of_requests(self, factory: Any) -> Detach | None:
        """Decide the requests of the agents that ``create_agent`` made, and will make."""
        if not hasattr(getattr(factory, "ModelRequest", None), "override"):
            return None
        ours = {"ModelRequest": wrapt.FunctionWrapper(factory.ModelRequest, self._requested)}
        for name in CHAINS:
            if hasattr(factory, name):
                ours[name] = wrapt.FunctionWrapper(getattr(factory, name), self._chained)
        return replaced(factory, ours)

    def of_tools(self, module: Any) -> Detach | None:
        """Decide whether tools run."""
        node = getattr(module, "ToolNode", None)
        if not all(hasattr(node, name) for name in EXECUTES):
            return None
        sync, async_ = EXECUTES
        return replaced(
            node,
            {
                sync: wrapt.FunctionWrapper(node.__dict__[sync], self._executed),
                async_: wrapt.FunctionWrapper(node.__dict__[async_], self._executed_later),
            },
        )

    def of_models(self, module: Any) -> Detach | None:
        """Decide what the nodes of graphs ask of models by themselves."""
        model = getattr(module, "BaseChatModel", None)
        if not all(hasattr(model, name) for name in WAYS):
            return None
        return replaced(
            model,
            {
                name: wrapt.FunctionWrapper(vars(model)[name], self._asked)
                for name in WAYS
                if name in vars(model)
            },
        )

    def _asked(self, ask: Any, model: Any, args: Any, kwargs: Any) -> Any:
        changed = self._safely(self._decided_raw, model, args, kwargs) if self._acts() else None
        if changed is None:
            return ask(*args, **kwargs)
        if changed.model is model:
            return ask(changed.asked, *args[1:], **changed.given)
        return getattr(changed.model, ask.__name__)(changed.asked, *args[1:], **changed.given)

    def _acts(self) -> bool:
        runtime = self._border.safely(self._border.in_force)
        return runtime is not None and runtime.settings.act

    def _decided_raw(self, model: Any, args: Any, kwargs: Any) -> Any:
        step = self._here()
        if step is None or step.run.choices is None or step.pending is not None or not args:
            return None
        if step.run.metadata.get("ls_integration") != GRAPH or in_tool(step):
            return None
        request = RawRequest(model, args[0], kwargs)
        changed, pending = step.run.choices.changed(
            RequestSeam(), request, situation(step, request)
        )
        step.pending = (pending, changed)
        return changed

    def _requested(self, made: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        request = made(*args, **kwargs)
        changed = self._safely(self._decided, request)
        return request if changed is None else changed

    def _decided(self, request: Any) -> Any:
        step = self._here()
        if step is None or step.run.choices is None:
            return None
        changed, pending = step.run.choices.changed(
            RequestSeam(), request, situation(step, request)
        )
        step.pending = (pending, changed)
        return changed

    def _chained(self, chain: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        """Let what all middleware is around tell which request it was left with."""
        composed = chain(*args, **kwargs)
        if composed is None:
            return None

        def asked(request: Any, execute: Callable[[Any], Any]) -> Any:
            return composed(request, partial(self._sent, execute))

        return asked

    def _sent(self, execute: Callable[[Any], Any], request: Any) -> Any:
        self._safely(self._seen, request)
        return execute(request)

    def _seen(self, request: Any) -> None:
        step = self._here()
        if step is not None and step.pending is not None:
            step.pending = (step.pending[0], request)

    def _executed(self, execute: Any, node: Any, args: Any, kwargs: Any) -> Any:
        request = args[0] if args else kwargs.get("request")
        veto = self._safely(self._vetoed, request)
        if veto is not None:
            return veto
        try:
            return execute(*args, **kwargs)
        except Exception as error:
            pass_on(error)
            told = self._safely(self._refused, node, request, error)
            if told is None:
                raise
            return told

    async def _executed_later(self, execute: Any, node: Any, args: Any, kwargs: Any) -> Any:
        request = args[0] if args else kwargs.get("request")
        veto = self._safely(self._vetoed, request)
        if veto is not None:
            return veto
        try:
            return await execute(*args, **kwargs)
        except Exception as error:
            pass_on(error)
            told = self._safely(self._refused, node, request, error)
            if told is None:
                raise
            return told

    def _vetoed(self, request: Any) -> Any:
        """Return what the model is told instead of a tool's result; ``None`` to let it run."""
        step = self._here()
        if step is None or step.run.choices is None:
            return None
        call = request.tool_call
        text = step.run.choices.vetoed(call_situation(step, call))
        if text is None:
            return None
        told = _message(call, text)
        self._safely(step.run.vetoed, step, call, text)
        return told

    def _refused(self, node: Any, request: Any, error: Exception) -> Any:
        """Return what the model is told so that it tries again; ``None`` to fail as it would."""
        from langgraph.errors import GraphBubbleUp
        from langgraph.prebuilt import tool_node

        step = self._here()
        if step is None or step.run.choices is None or isinstance(error, GraphBubbleUp):
            return None
        if getattr(node, "_wrap_tool_call", None) or getattr(node, "_awrap_tool_call", None):
            return None  # the agent's own middleware sees to it
        known = {**call_situation(step, request.tool_call), "what": "tool"}
        if not step.run.choices.again({**known, "error": type(error).__name__}, own=False):
            return None
        told = tool_node.TOOL_CALL_ERROR_TEMPLATE.format(error=repr(error))
        self._safely(self._tree.tried_again, step, request.tool_call)
        return _message(request.tool_call, told)

    def _here(self) -> Step | None:
        """Return the run of the host in which this is asked."""
        from langchain_core.runnables.config import var_child_runnable_config

        config = var_child_runnable_config.get() or {}
        return self._tree.step(getattr(config.get("callbacks"), "parent_run_id", None))

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """Return what a step of ours returns, or ``None`` if it fails."""
        return self._border.safely(step, *args, kind=Kind.DECISION)


def _message(call: Any, text: str) -> Any:
    from langchain_core.messages import ToolMessage

    return ToolMessage(content=text, name=call["name"], tool_call_id=call["id"], status="error")
