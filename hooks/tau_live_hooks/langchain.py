"""The adapter of langchain and langgraph: every chain, graph and agent is seen, by one callback.

The host asks a list of hooks for callbacks whenever something runs; ours has one in it. What an
agent asks of its model is decided where ``create_agent`` makes the request, and whether a tool runs
where langgraph's node of tools would run it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tau_live.adapters import Adapter, Detach, InForce
from tau_live.errors import pass_on, suppress

MODULE = "langchain_core"
CALLBACKS = (
    "on_chain_start",
    "on_chain_end",
    "on_chain_error",
    "on_chat_model_start",
    "on_llm_end",
    "on_llm_error",
    "on_tool_start",
    "on_tool_end",
    "on_tool_error",
)
"""What is used of the host's ``BaseCallbackHandler``."""

CONTEXTS = ("langchain_core.runnables.config", "langgraph._internal._runnable")
"""Where the host enters the context of what runs inside a run."""

GRAPHS = (
    "get_sync_graph_callback_manager_for_config",
    "get_async_graph_callback_manager_for_config",
)
"""Whom a graph tells that it is interrupted."""

_OURS = "tau_live_langchain"


def probe() -> str | None:
    """Say what of the host's layout is missing, or ``None`` if all is there."""
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.tracers import context

    if not callable(getattr(context, "register_configure_hook", None)):
        return "tracers.context.register_configure_hook"
    if not isinstance(getattr(context, "_configure_hooks", None), list):
        return "tracers.context._configure_hooks"
    if not hasattr(BaseCallbackHandler, "run_inline"):
        return "BaseCallbackHandler.run_inline"
    missing = [name for name in CALLBACKS if not hasattr(BaseCallbackHandler, name)]
    return f"BaseCallbackHandler.{missing[0]}" if missing else None


def attach(in_force: InForce) -> Detach:
    """Let everything that runs be seen; return what undoes it."""
    from tau_live_hooks.langchain_acting import Acting
    from tau_live_hooks.langchain_feedback import Feedback
    from tau_live_hooks.langchain_handler import TauHandler
    from tau_live_hooks.langchain_patches import when_whole
    from tau_live_hooks.langchain_texts import of_managers
    from tau_live_hooks.langchain_tree import Tree

    tree = Tree(in_force)
    undo: list[Detach] = [_registered(TauHandler(in_force, tree), _OURS)]
    live = [True]

    def when(module: str, wrap: Callable[[Any], Detach | None]) -> None:
        def imported(found: Any) -> None:
            with suppress(Exception):  # the border to the host's import
                undone = wrap(found) if live[0] else None
                if undone is not None:
                    undo.append(undone)

        when_whole(module, imported)

    for name in CONTEXTS:
        when(name, lambda module: _entering(module, tree))
    when("langchain_core.callbacks.manager", of_managers)
    when("langgraph.pregel.main", lambda module: _interrupting(module, tree))
    acting = Acting(in_force, tree)
    when("langchain.agents.factory", acting.of_requests)
    when("langgraph.prebuilt.tool_node", acting.of_tools)
    when("langchain_core.language_models.chat_models", acting.of_models)
    when("langsmith.schemas", Feedback(in_force, tree).of_schemas)

    def detach() -> None:
        live[0] = False
        while undo:
            undo.pop()()

    return detach


def _registered(handler: Any, name: str) -> Detach:
    """Let the host have a callback whenever something runs; the latest of a name is the one."""
    from langchain_core.tracers import context

    hooks = context._configure_hooks  # noqa: SLF001  # the host has no way to take one out again
    for hook in [hook for hook in hooks if getattr(hook[0], "name", "") == name]:
        hooks.remove(hook)
    variable: ContextVar[Any] = ContextVar(name, default=handler)
    context.register_configure_hook(variable, inheritable=True)

    def undo() -> None:
        for hook in [hook for hook in hooks if hook[0] is variable]:
            hooks.remove(hook)

    return undo


def _interrupting(module: Any, tree: Any) -> Detach | None:
    """Let graphs tell that they are interrupted, which they tell nobody that a hook brought."""
    import wrapt

    from tau_live_hooks.langchain_graphs import TauGraphHandler
    from tau_live_hooks.langchain_patches import replaced

    handler = TauGraphHandler(tree)

    def configured(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        found = wrapped(*args, **kwargs)
        with suppress(Exception):  # the border to the host
            if not any(type(one).__name__ == "TauGraphHandler" for one in found.handlers):
                found.add_handler(handler)
        return found

    there = [name for name in GRAPHS if hasattr(module, name)]
    ours = {name: wrapt.FunctionWrapper(getattr(module, name), configured) for name in there}
    return replaced(module, ours)


def _entering(module: Any, tree: Any) -> Detach | None:
    """Let what runs inside a run know that it does, such as ``tau_live.reward`` in a tool."""
    from tau_live import door

    original = getattr(module, "_set_config_context", None)
    if original is None:
        return None

    def entered(config: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(config, *args, **kwargs)
        try:
            handle = tree.handle_of(getattr(config.get("callbacks"), "parent_run_id", None))
            around = door.current()  # what runs inside gets a copy of the context
            if handle is not None and (around is None or around.handle is not handle):
                door.enter(handle)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
        return found

    module._set_config_context = entered  # noqa: SLF001  # which alone runs in that context

    def undo() -> None:
        if module._set_config_context is entered:  # noqa: SLF001  # likewise
            module._set_config_context = original  # noqa: SLF001  # likewise

    return undo


ADAPTER = Adapter(host="langchain", module=MODULE, probe=probe, attach=attach)
"""How langchain is attached."""
