"""The adapter of openai-agents: every run of every agent is seen, traced or not.

The host's lists of trace processors may be replaced by anybody, and its hooks are those of one
call. So what calls the processors is wrapped, and so are the two ways in which agents run: one that
returns, and one that streams. What finds the model of a request is wrapped too, to see the request
and to decide it.
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

OPTIONAL = (
    ("agents.run_internal.tool_execution", "_execute_tool_input_guardrails", "guarded"),
    ("agents.run_internal.tool_execution", "_invoke_function_tool_with_metadata", "invoked"),
    ("agents.tool", "maybe_invoke_function_tool_failure_error_function", "failed"),
)
"""What may be missing: without the first there is no ``tool_gate``, without the others an error of
a tool that its model is told of has no type, and is a result like any other in runs without trace.
"""


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
    marks = [getattr(place.owner.__dict__[place.name], MARK, None) for place in places]
    if any(mark is not None and mark.attached for mark in marks):
        return lambda: None
    watch = Watch(in_force, _host())
    undone: list[Callable[[], None]] = []
    for place in places:
        original = place.owner.__dict__[place.name]
        ours = wrapt.FunctionWrapper(original, getattr(watch, place.by))
        setattr(ours, MARK, watch)
        setattr(place.owner, place.name, ours)
        undone.append(_undo(place, original, ours))

    def detach() -> None:
        watch.attached = False  # what somebody keeps of ours does nothing from now on
        for undo in undone:
            undo()

    return detach


def _undo(place: _Place, original: object, ours: object) -> Callable[[], None]:
    def undo() -> None:
        if place.owner.__dict__.get(place.name) is ours:  # who wrapped it after us keeps theirs
            setattr(place.owner, place.name, original)

    return undo


def _places() -> list[_Place]:
    import inspect
    from importlib import import_module

    from agents import run
    from agents.run_internal import run_loop
    from agents.tracing.provider import SynchronousMultiTracingProcessor as FanOut

    places = [
        _Place(run.AgentRunner, "run", "run"),
        _Place(run, "start_streaming", "stream"),
        _Place(run_loop, "get_model", "model"),
        _Place(FanOut, "on_span_start", "span_began"),
        _Place(FanOut, "on_span_end", "span_ended"),
    ]
    for module, name, by in OPTIONAL:
        owner = import_module(module)
        if inspect.iscoroutinefunction(getattr(owner, name, None)):
            places.append(_Place(owner, name, by))
    return places


def _host() -> "Host":
    from agents import RunHooks, run_config
    from agents.lifecycle import RunHooksBase
    from agents.run_internal import run_loop
    from agents.run_state import RunState
    from agents.tracing import get_current_span, get_current_trace
    from agents.tracing.setup import get_trace_provider

    from tau_live_hooks.openai_agents_watch import Host

    default = getattr(run_config, "_default_trace_include_sensitive_data", lambda: True)

    def keeps(config: Any) -> bool:
        said = getattr(config, "trace_include_sensitive_data", None)
        if isinstance(config, dict):
            said = config.get("trace_include_sensitive_data")
        return bool(default() if said is None else said)

    def is_traced(config: Any) -> bool:
        off = getattr(config, "tracing_disabled", False)
        if isinstance(config, dict):
            off = config.get("tracing_disabled", False)
        provider = get_trace_provider()
        refresh = getattr(provider, "_refresh_disabled_flag", None)
        if refresh is not None:  # it reads the environment when it is first asked
            refresh()
        trace = get_current_trace()
        inside = getattr(trace, "trace_id", "") == "no-op"
        return not (off or inside or getattr(provider, "_disabled", False))

    return Host(
        trace=get_current_trace,
        span=get_current_span,
        hooks=RunHooks,
        is_hooks=lambda hooks: isinstance(hooks, RunHooksBase),
        is_state=lambda given: isinstance(given, RunState),
        keeps=keeps,
        is_traced=is_traced,
        model=run_loop.get_model,
        settings=run_loop.get_model_settings,
    )


ADAPTER = Adapter(host="openai-agents", module=MODULE, probe=probe, attach=attach)
