"""The adapter of llm: every prompt and chain is seen, made in Python or by its command.

llm has no callbacks around its models. So the few methods that every prompt passes through are
wrapped: where a response drives its model, where a chain makes its responses, and where tools are
executed. The models of ``llm_models``, which our plugin registers, choose through it.
"""

import inspect

from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live_hooks.patches import Patches

MODULE = "llm"

WRAPPED = (
    ("Response", "_iter_events"),
    ("Response", "execute_tool_calls"),
    ("AsyncResponse", "_ensure_async_generator"),
    ("AsyncResponse", "execute_tool_calls"),
    ("ChainResponse", "responses"),
    ("AsyncChainResponse", "responses"),
)
"""The classes and methods of ``llm.models`` that are wrapped."""


def probe() -> str | None:
    """Return what is missing of the host's layout; ``None`` if nothing is."""
    from llm import models

    for owner, name in WRAPPED:
        if name not in vars(getattr(models, owner, object)):
            return f"models.{owner}.{name}"
    for owner in ("Response", "AsyncResponse"):
        taken = inspect.signature(getattr(models, owner).execute_tool_calls).parameters
        for name in ("before_call", "after_call", "tool_calls_list"):
            if name not in taken:
                return f"models.{owner}.execute_tool_calls({name}=...)"
    missing = [name for name in ("CancelToolCall", "PauseChain") if not hasattr(models, name)]
    return f"models.{missing[0]}" if missing else None


def attach(in_force: InForce) -> Detach:
    """Let every prompt and chain be seen, unless they are already; return what undoes it."""
    from llm import models

    from tau_live_hooks.llm_record import Watch

    with Patches() as patches:
        watch = Watch(patches.while_live(in_force))
        wrappers = (
            watch.watch_events,
            watch.watch_calls,
            watch.watch_stream,
            watch.watch_calls_async,
            watch.watch_chain,
            watch.watch_chain_async,
        )
        for (owner, name), wrapper in zip(WRAPPED, wrappers, strict=True):
            patches.wrap(getattr(models, owner), name, wrapper)
    return patches.undo


ADAPTER = Adapter(host="llm", module=MODULE, probe=probe, attach=attach)
