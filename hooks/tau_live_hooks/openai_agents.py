"""The adapter of openai-agents: every run of every agent is seen, traced or not.

Anybody may replace the host's list of trace processors, and its hooks are those of one call. So the
callers of the processors are wrapped, and so are the two functions that run agents: one that
returns, and one that streams. The function that gets the model of a request is wrapped too, to see
the request and to decide it.
"""

from typing import Any

from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

MODULE = "agents.run"
"""Not ``agents``, which may well be somebody's own package."""

STREAMED = frozenset({"streamed_result", "starting_agent", "starting_input", "hooks", "run_config"})
"""The named arguments of a streamed run."""

OPTIONAL = (
    ("agents.run_internal.tool_execution", "_execute_tool_input_guardrails", "gate_tool"),
    ("agents.run_internal.tool_execution", "_invoke_function_tool_with_metadata", "note_timeout"),
    ("agents.tool", "maybe_invoke_function_tool_failure_error_function", "note_failure"),
)
"""Functions that may be missing: without the first there is no ``tool_gate``; without the others a
tool's error that its model sees has no type, and is a result like any other in untraced runs.
"""


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
    import inspect

    from agents import lifecycle, run
    from agents.models.interface import Model
    from agents.run_internal import run_loop
    from agents.tracing import provider

    runner = getattr(run, "AgentRunner", None)
    if not inspect.iscoroutinefunction(getattr(runner, "run", None)):
        return "run.AgentRunner.run"
    streaming = getattr(run, "start_streaming", None)
    if streaming is None or not inspect.signature(streaming).parameters.keys() >= STREAMED:
        return f"run.start_streaming({', '.join(sorted(STREAMED))})"
    get_model = getattr(run_loop, "get_model", None)
    if get_model is None or [*inspect.signature(get_model).parameters] != ["agent", "run_config"]:
        return "run_loop.get_model(agent, run_config)"
    if not hasattr(run_loop, "get_model_settings"):
        return "run_loop.get_model_settings"
    fan_out = getattr(provider, "SynchronousMultiTracingProcessor", None)
    for owner, names in (
        (lifecycle.RunHooksBase, ("on_agent_start", "on_tool_start", "on_tool_end", "on_handoff")),
        (Model, ("get_response", "stream_response")),
        (fan_out, ("on_span_start", "on_span_end")),
    ):
        for name in names:
            if not hasattr(owner, name):
                return name
    return None


def attach(in_force: InForce) -> Detach:
    """Let every run of every agent be seen; return what undoes it."""
    from tau_live_hooks.openai_agents_record import Watch

    with Patches() as patches:
        watch = Watch(patches.while_live(in_force))
        for owner, name, wrapper in _targets():
            patches.wrap(owner, name, getattr(watch, wrapper))
    return patches.undo


def _targets() -> list[tuple[Any, str, str]]:
    """Return what to wrap: owner, attribute, and the method of the watch that wraps it."""
    import inspect
    from importlib import import_module

    from agents import run
    from agents.run_internal import run_loop
    from agents.tracing.provider import SynchronousMultiTracingProcessor as FanOut

    targets = [
        (run.AgentRunner, "run", "run"),
        (run, "start_streaming", "stream"),
        (run_loop, "get_model", "model"),
        (FanOut, "on_span_start", "watch_span_start"),
        (FanOut, "on_span_end", "watch_span_end"),
    ]
    for module, name, wrapper in OPTIONAL:
        owner = import_module(module)
        if inspect.iscoroutinefunction(getattr(owner, name, None)):
            targets.append((owner, name, wrapper))
    return targets


ADAPTER = Adapter(host="openai-agents", module=MODULE, probe=probe, attach=attach)
