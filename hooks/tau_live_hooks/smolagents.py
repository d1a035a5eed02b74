"""The adapter of smolagents: every run of every agent is seen, by wrapping the host's classes.

The host reports nothing before it has happened, and hardly anything of models and tools. So the
methods of every agent are wrapped: ``run``, the end of each step, the checks of an answer, and the
calls of tools. Models and tools may be of anybody's classes; those of an agent are wrapped when it
runs, wherever they were made.
"""

from typing import Any

from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

MODULE = "smolagents"

_METHODS = (
    ("MultiStepAgent", "run"),
    ("MultiStepAgent", "_finalize_step"),
    ("MultiStepAgent", "_validate_final_answer"),
    ("MultiStepAgent", "__call__"),
    ("ToolCallingAgent", "process_tool_calls"),
    ("ToolCallingAgent", "execute_tool_call"),
)
"""The methods of the host's agents that are wrapped."""


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
    import inspect

    from smolagents import agents, models, tools

    for kind, name in _METHODS:
        if name not in vars(getattr(agents, kind, object)):
            return f"{kind}.{name}"
    run = inspect.signature(agents.MultiStepAgent.run).parameters
    missing = [name for name in ("task", "stream", "reset") if name not in run]
    if missing:
        return f"MultiStepAgent.run({missing[0]}=...)"
    for module, name in (
        (agents, "copy_context"),  # older: tools that run in parallel lose their run
        (models.Model, "generate"),
        (models, "agglomerate_stream_deltas"),
        (tools.Tool, "__call__"),
    ):
        if not hasattr(module, name):
            return f"{getattr(module, '__name__', module)}.{name}"
    return None


def attach(in_force: InForce) -> Detach:
    """Let every run of every agent be seen; return what undoes it."""
    from smolagents import agents, local_python_executor

    from tau_live_hooks.common import Border, few
    from tau_live_hooks.smolagents_choose import Requests
    from tau_live_hooks.smolagents_record import Watch

    with Patches() as patches:
        border = Border(patches.while_live(in_force))
        requests = Requests(border)

        def watch(agent: Any) -> None:
            """Wrap the classes of an agent's model and tools."""
            for name, wrapper in (
                ("generate", requests.watch_answer),
                ("generate_stream", requests.watch_stream),
            ):
                patches.wrap_where_defined(type(agent.model), name, wrapper)
            for tool in few(agent.tools.values()):
                patches.wrap_where_defined(type(tool), "__call__", watcher.watch_code_call)

        watcher = Watch(border, watch)
        wrappers = (
            watcher.watch_run,
            watcher.watch_step,
            watcher.watch_checks,
            watcher.watch_code_call,
            watcher.watch_calls,
            watcher.watch_call,
        )
        for (kind, name), wrapper in zip(_METHODS, wrappers, strict=True):
            patches.wrap(getattr(agents, kind), name, wrapper)
        if hasattr(local_python_executor, "timeout"):  # older: code runs in its agent's thread
            patches.wrap(local_python_executor, "timeout", watcher.carry_thread)
    return patches.undo


ADAPTER = Adapter(host="smolagents", module=MODULE, probe=probe, attach=attach)
