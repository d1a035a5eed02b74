"""The adapter of pydantic-ai: every run of every agent is seen, through its own capabilities.

The host has no list of capabilities for all agents. So ``Agent.iter``, through which each way of
running an agent goes, is wrapped to add one of ours to those of the call. A run that has
capabilities of its own resolves the names of models once for the agent's and once for its own, and
makes a model for each; so names are resolved as if ours were not there.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tau_live.adapters import Adapter, Detach, InForce
from tau_live.errors import pass_on
from tau_live_hooks.pydantic_ai_events import resumed_run

if TYPE_CHECKING:
    from tau_live_hooks.pydantic_ai_capability import TauCapability

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
        return wrapped(*args, **_with(kwargs, agent, in_force))

    def resolved(
        wrapped: Callable[..., Any], agent: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        named = isinstance(args[0] if args else kwargs.get("selection"), str)
        return wrapped(*args, **(_without_ours(kwargs, agent, TauCapability) if named else kwargs))

    wraps = {"iter": iterated, "_resolve_model_selection": resolved}
    originals = {name: Agent.__dict__[name] for name in wraps if name in Agent.__dict__}
    ours = {
        name: wrapt.FunctionWrapper(original, wraps[name]) for name, original in originals.items()
    }
    for name, wrapper in ours.items():
        setattr(Agent, name, wrapper)

    def detach() -> None:
        for name, wrapper in ours.items():
            if Agent.__dict__.get(name) is wrapper:  # whoever wrapped it after us keeps it
                setattr(Agent, name, originals[name])

    return detach


def _with(kwargs: dict[str, Any], agent: object, in_force: InForce) -> Mapping[str, Any]:
    """Return the arguments of a run with our capability among them, or as they are."""
    from tau_live_hooks.pydantic_ai_capability import (
        TauCapability,
        WatchingCapability,
        may_retry,
    )

    try:
        runtime = in_force()
        parts = _parts_of(agent)
        if runtime is None or any(getattr(one, "in_durable_context", False) for one in parts):
            return kwargs
        theirs = list(kwargs.get("capabilities") or ())
        if any(isinstance(one, TauCapability) for one in theirs):
            return kwargs
        deferred = kwargs.get("deferred_tool_results") is not None
        resumes = resumed_run(kwargs.get("message_history") or ()) if deferred else None
        watches = not runtime.settings.act and not any(map(may_retry, [*parts, *theirs]))
        capability = WatchingCapability if watches else TauCapability
        return {**kwargs, "capabilities": [capability(in_force, resumes), *theirs]}
    except Exception as error:  # noqa: BLE001  # the border to the host
        pass_on(error)
        return kwargs


def _without_ours(
    kwargs: dict[str, Any], agent: object, kind: type["TauCapability"]
) -> Mapping[str, Any]:
    """Return the arguments of a resolution with the capability that there would be without ours.

    The host remembers a resolved name by the identity of the capability that resolved it. Ours
    resolves none.
    """
    try:
        capability: Any = kwargs.get("capability")
        if capability is None:
            return kwargs
        parts = _parts(capability)
        ours = next((one for one in parts if isinstance(one, kind)), None)
        if ours is None:
            return kwargs
        own = _root_of(agent)
        if not ours.resolvers and own is not None:
            ours.resolvers[frozenset(map(id, _parts(own)))] = own
        others = frozenset(id(one) for one in parts if one is not ours)
        return {**kwargs, "capability": ours.resolvers.setdefault(others, capability)}
    except Exception:  # noqa: BLE001  # the border to the host
        return kwargs


def _root_of(agent: object) -> Any:
    """Return what holds the capabilities of an agent, which ``Agent.override`` may replace."""
    effective = getattr(agent, "_effective_root_capability", None)
    return effective() if callable(effective) else getattr(agent, "_root_capability", None)


def _parts_of(agent: object) -> list[object]:
    root = _root_of(agent)
    return [] if root is None else _parts(root)


def _parts(capability: Any) -> list[object]:
    found: list[object] = []
    capability.apply(found.append)
    return found


ADAPTER = Adapter(host="pydantic-ai", module=MODULE, probe=probe, attach=attach)
