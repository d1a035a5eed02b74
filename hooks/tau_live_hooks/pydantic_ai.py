"""The adapter of pydantic-ai: every run of every agent is seen, through its own capabilities.

The host has no list of capabilities for all agents. So ``Agent.iter``, through which each way of
running an agent goes, is wrapped to add one of ours to those of the call.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tau_live.adapters import Adapter, Detach, InForce
from tau_live_hooks.pydantic_ai_events import resumed_run

MODULE = "pydantic_ai"
CALLBACKS = (
    "get_ordering",
    "wrap_run",
    "wrap_model_request",
    "before_model_request",
    "wrap_tool_execute",
    "wrap_output_process",
    "on_tool_execute_error",
)
"""What is used of the host's ``AbstractCapability``."""


def probe() -> str | None:
    """Say what of the host's layout is missing, or ``None`` if all is there."""
    import inspect

    from pydantic_ai import Agent, capabilities

    if "capabilities" not in inspect.signature(Agent.iter).parameters:
        return "Agent.iter(capabilities=...)"
    base = getattr(capabilities, "AbstractCapability", None)
    if base is None or not hasattr(capabilities, "CapabilityOrdering"):
        return "capabilities.AbstractCapability"
    missing = [name for name in CALLBACKS if not hasattr(base, name)]
    return f"AbstractCapability.{missing[0]}" if missing else None


def attach(in_force: InForce) -> Detach:
    """Let every run of every agent be seen; return what undoes it."""
    import wrapt
    from pydantic_ai import Agent

    from tau_live_hooks.pydantic_ai_capability import TauCapability

    def iterated(
        wrapped: Callable[..., Any], agent: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return wrapped(*args, **_with(kwargs, agent, in_force, TauCapability))

    original = Agent.__dict__["iter"]
    ours = wrapt.FunctionWrapper(original, iterated)
    Agent.iter = ours

    def detach() -> None:
        if Agent.__dict__.get("iter") is ours:  # whoever wrapped it after us keeps what is theirs
            Agent.iter = original

    return detach


def _with(
    kwargs: dict[str, Any],
    agent: object,
    in_force: InForce,
    capability: Callable[[InForce, str | None], Any],
) -> Mapping[str, Any]:
    """Return the arguments of a run with our capability among them, or as they are."""
    try:
        if in_force() is None or _is_durable(agent):
            return kwargs
        theirs = list(kwargs.get("capabilities") or ())
        if any(type(one).__name__ == "TauCapability" for one in theirs):
            return kwargs
        deferred = kwargs.get("deferred_tool_results") is not None
        resumes = resumed_run(kwargs.get("message_history") or ()) if deferred else None
        return {**kwargs, "capabilities": [capability(in_force, resumes), *theirs]}
    except Exception:  # noqa: BLE001  # the border to the host
        return kwargs


def _is_durable(agent: object) -> bool:
    """Say whether a run may be replayed from a journal, where nothing may be added to it."""
    found: list[bool] = []
    root = getattr(agent, "_root_capability", None)
    if root is not None:
        root.apply(lambda one: found.append(bool(getattr(one, "in_durable_context", False))))
    return any(found)


ADAPTER = Adapter(host="pydantic-ai", module=MODULE, probe=probe, attach=attach)
