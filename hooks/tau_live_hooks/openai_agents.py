"""The adapter of openai-agents: every run of every agent is seen, traced or not.

The host's lists of trace processors may be replaced by anybody, and its hooks are those of one
call. So what calls the processors is wrapped, and so are the two ways in which agents run: one that
returns, and one that streams. What finds the model of a request is wrapped too, where it is seen and
decided.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tau_live.adapters import Adapter, Detach, InForce

if TYPE_CHECKING:
    from tau_live_hooks.openai_agents_watch import Host

MODULE = "agents.run"
"""Not ``agents``, which may well be somebody's own package."""

MARK = "_self_tau_live"

STREAMED = frozenset({"streamed_result", "starting_agent", "starting_input", "hooks", "run_config"})
"""What a streamed run is given by name."""

HOOKS = ("on_agent_start", "on_tool_start", "on_tool_end", "on_handoff")

GATE = "_execute_tool_input_guardrails"
"""What a tool's call passes before it runs; without it there is no ``tool_gate``."""


class _Place(NamedTuple):
    """What is wrapped: whose attribute, and by which method of the watch."""

    owner: Any
    name: str
    by: str


def probe() -> str | None:
    """Say what of the host's layout is missing, or ``None`` if all is there."""
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
    found = getattr(run_loop, "get_model", None)
    if found is None or [*inspect.signature(found).parameters] != ["agent", "run_config"]:
        return "run_loop.get_model(agent, run_config)"
    if not hasattr(run_loop, "get_model_settings"):
        return "run_loop.get_model_settings"
    missing = [name for name in HOOKS if not hasattr(lifecycle.RunHooksBase, name)]
    missing += [name for name in ("get_response", "stream_response") if not hasattr(Model, name)]
    fan_out = getattr(provider, "SynchronousMultiTracingProcessor", None)
    missing += [name for name in ("on_span_start", "on_span_end") if not hasattr(fan_out, name)]
    return missing[0] if missing else None


def attach(in_force: InForce) -> Detach:
    """Let every run of every agent be seen; return what undoes it."""
    import wrapt

    from tau_live_hooks.openai_agents_watch import Watch

    places = _places()
    if any(getattr(place.owner.__dict__[place.name], MARK, False) for place in places):
        return lambda: None  # attached already
    watch = Watch(in_force, _host())
    undone: list[Callable[[], None]] = []
    for place in places:
        original = place.owner.__dict__[place.name]
        ours = wrapt.FunctionWrapper(original, getattr(watch, place.by))
        setattr(ours, MARK, True)
        setattr(place.owner, place.name, ours)
        undone.append(_undo(place, original, ours))

    def detach() -> None:
        for undo in undone:
            undo()

    return detach


def _undo(place: _Place, original: object, ours: object) -> Callable[[], None]:
    def undo() -> None:
        if place.owner.__dict__.get(place.name) is ours:  # who wrapped it after us keeps theirs
            setattr(place.owner, place.name, original)

    return undo


def _places() -> list[_Place]:
    from agents import run
    from agents.run_internal import run_loop, tool_execution
    from agents.tracing.provider import SynchronousMultiTracingProcessor as FanOut

    places = [
        _Place(run.AgentRunner, "run", "run"),
        _Place(run, "start_streaming", "stream"),
        _Place(run_loop, "get_model", "model"),
        _Place(FanOut, "on_span_start", "span_began"),
        _Place(FanOut, "on_span_end", "span_ended"),
    ]
    if hasattr(tool_execution, GATE):
        places.append(_Place(tool_execution, GATE, "guarded"))
    return places


def _host() -> "Host":
    from agents import RunHooks, run_config
    from agents.lifecycle import RunHooksBase
    from agents.run_internal import run_loop
    from agents.run_state import RunState
    from agents.tracing import get_current_span, get_current_trace

    from tau_live_hooks.openai_agents_watch import Host

    default = getattr(run_config, "_default_trace_include_sensitive_data", lambda: True)

    def keeps(config: Any) -> bool:
        said = getattr(config, "trace_include_sensitive_data", None)
        if isinstance(config, dict):
            said = config.get("trace_include_sensitive_data")
        return bool(default() if said is None else said)

    return Host(
        trace=get_current_trace,
        span=get_current_span,
        hooks=RunHooks,
        is_hooks=lambda hooks: isinstance(hooks, RunHooksBase),
        is_state=lambda given: isinstance(given, RunState),
        keeps=keeps,
        model=run_loop.get_model,
        settings=run_loop.get_model_settings,
    )


ADAPTER = Adapter(host="openai-agents", module=MODULE, probe=probe, attach=attach)
