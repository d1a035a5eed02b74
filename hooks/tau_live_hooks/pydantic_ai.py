"""The adapter of pydantic-ai: every run of every agent is seen, through its own capabilities.

The host has no list of capabilities for all agents. So one of ours is added where each way of
running an agent goes through: to those of the agent where all of its runs can have the same, and
else to those of the call.
"""

from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

MODULE = "pydantic_ai"
CALLBACKS = (
    "get_ordering",
    "wrap_run",
    "wrap_model_request",
    "before_model_request",
    "wrap_tool_execute",
    "on_tool_execute_error",
)
"""The methods of the host's ``AbstractCapability`` that are used."""


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
    import inspect

    from pydantic_ai import Agent, capabilities

    if "capabilities" not in inspect.signature(Agent.iter).parameters:
        return "Agent.iter(capabilities=...)"
    base = getattr(capabilities, "AbstractCapability", None)
    if base is None or not hasattr(capabilities, "CapabilityOrdering"):
        return "capabilities.AbstractCapability"
    missing = [name for name in CALLBACKS if not hasattr(base, name)]
    return f"AbstractCapability.{missing[0]}" if missing else None


PREPARES, BASE = "_prepare_run", "_base_run_capability"
"""The methods that give a run its capabilities, and its agent's; older hosts have neither."""


def attach(in_force: InForce) -> Detach:
    """Let every run of every agent be seen; return what undoes it."""
    from pydantic_ai import Agent

    from tau_live_hooks.pydantic_ai_record import Roots

    with Patches() as patches:
        roots = Roots(patches.while_live(in_force))
        joins = {PREPARES, BASE} <= vars(Agent).keys()
        ways = (
            {PREPARES: roots.prepare, BASE: roots.join_base} if joins else {"iter": roots.iterate}
        )
        for name, wrapper in {**ways, "_resolve_model_selection": roots.resolve}.items():
            if name in vars(Agent):
                patches.wrap(Agent, name, wrapper)
    return patches.undo


ADAPTER = Adapter(host="pydantic-ai", module=MODULE, probe=probe, attach=attach)
