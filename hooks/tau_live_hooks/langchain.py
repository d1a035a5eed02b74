"""The adapter of langchain and langgraph: every chain, graph and agent is seen, by one callback.

The host asks a list of hooks for callbacks whenever something runs; ours adds one. An agent's
requests to its model are decided where ``create_agent`` makes them, and whether a tool runs where
langgraph's node of tools would run it.

People, evaluators and judges rate a run by ``create_feedback``, with the id that langchain gave it.
"""

from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from tau_live.core.errors import pass_on, suppress
from tau_live.runtime import api
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

if TYPE_CHECKING:
    from tau_live_hooks.langchain_record import TauHandler

MODULE = "langchain_core"
CALLBACKS = (
    "run_inline",
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
"""The attributes of the host's ``BaseCallbackHandler`` that are used."""

CONTEXTS = ("langchain_core.runnables.config", "langgraph._internal._runnable")
"""The modules in which the host enters the context of the steps in a run."""


_HOOK = "tau_live_langchain"


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.tracers import context

    if not callable(getattr(context, "register_configure_hook", None)):
        return "tracers.context.register_configure_hook"
    if not isinstance(getattr(context, "_configure_hooks", None), list):
        return "tracers.context._configure_hooks"
    missing = [name for name in CALLBACKS if not hasattr(BaseCallbackHandler, name)]
    return f"BaseCallbackHandler.{missing[0]}" if missing else None


def attach(in_force: InForce) -> Detach:
    """Let everything that runs be seen; return what undoes it."""
    from tau_live_hooks.langchain_choose import Acting, wrap_managers
    from tau_live_hooks.langchain_record import Feedback, TauHandler

    with Patches() as patches:
        handler = TauHandler(in_force)
        acting = Acting(in_force, handler)
        _register(handler, _HOOK, patches)
        for name in CONTEXTS:
            patches.when(name, partial(_enter_runs, handler, patches))
        patches.when("langchain_core.callbacks.manager", partial(wrap_managers, patches))
        patches.when("langgraph.pregel.main", partial(_report_interruptions, handler, patches))
        patches.when("langchain.agents.factory", partial(acting.wrap_requests, patches))
        patches.when("langgraph.prebuilt.tool_node", partial(acting.wrap_tools, patches))
        models = "langchain_core.language_models.chat_models"
        patches.when(models, partial(acting.wrap_models, patches))
        feedback = Feedback(in_force, handler)
        patches.when("langsmith.schemas", partial(feedback.wrap_schemas, patches))
    return patches.undo


def _register(handler: Any, name: str, patches: Patches) -> None:
    """Give the host a callback for whatever runs, in place of an earlier one of the same name."""
    from langchain_core.tracers import context

    hooks = context._configure_hooks  # noqa: SLF001  # the host has no way to take one out again
    for hook in [hook for hook in hooks if getattr(hook[0], "name", "") == name]:
        hooks.remove(hook)
    variable: ContextVar[Any] = ContextVar(name, default=handler)
    context.register_configure_hook(variable, inheritable=True)

    def undo() -> None:
        for hook in [hook for hook in hooks if hook[0] is variable]:
            hooks.remove(hook)

    patches.add(undo)


def _report_interruptions(ours: "TauHandler", patches: Patches, module: Any) -> None:
    """Let graphs report interruptions, which they do not to the callbacks of hooks."""
    from tau_live_hooks.langchain_graphs import TauGraphHandler

    handler = TauGraphHandler(ours)

    def configure(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        manager = wrapped(*args, **kwargs)
        with suppress(Exception):  # the border to the host
            if not any(type(known).__name__ == "TauGraphHandler" for known in manager.handlers):
                manager.add_handler(handler)
        return manager

    # they return the callbacks to which a graph reports that it is interrupted
    for name in (
        "get_sync_graph_callback_manager_for_config",
        "get_async_graph_callback_manager_for_config",
    ):
        if hasattr(module, name):
            patches.wrap(module, name, configure)


def _enter_runs(ours: "TauHandler", patches: Patches, module: Any) -> None:
    """Make a run the current one for the code in it, such as ``tau_live.reward`` in a tool."""

    def enter(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        context = wrapped(*args, **kwargs)
        try:
            config = args[0] if args else kwargs["config"]
            handle = ours.handle_of(getattr(config.get("callbacks"), "parent_run_id", None))
            current = api.current()  # what runs inside gets a copy of the context
            if handle is not None and (current is None or current.handle is not handle):
                api.enter(handle)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
        return context

    if hasattr(module, "_set_config_context"):  # it alone runs in that context
        patches.wrap(module, "_set_config_context", enter)


ADAPTER = Adapter(host="langchain", module=MODULE, probe=probe, attach=attach)
