"""The adapter of llm: every prompt and chain is seen, made in Python or by its command.

llm has no callbacks around its models. So the few methods through which each way of asking one goes
are wrapped: where a response drives its model, where a chain makes its responses, and where tools
are executed. The models of ``llm_models``, which our plugin registers, choose through it.
"""

import inspect
from typing import Any

from tau_live.adapters import Adapter, Detach, InForce

MODULE = "llm"
MARK = "_self_tau_live"
"""Tells our wrappers from others; wrapt keeps what begins with ``_self_`` on the wrapper."""

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
    """Say what of the host's layout is missing, or ``None`` if all is there."""
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
    """Let every prompt and chain be seen; return what undoes it; nothing where that is so."""
    import wrapt
    from llm import models

    from tau_live_hooks.llm_tools import Tools
    from tau_live_hooks.llm_watch import Watch

    watch, tools = Watch(in_force), Tools(in_force)
    wrappers = (
        watch.streamed,
        tools.executed,
        watch.opened,
        tools.aexecuted,
        watch.chained,
        watch.achained,
    )
    undo: list[tuple[type, str, Any, Any]] = []
    for (owner, name), wrapper in zip(WRAPPED, wrappers, strict=True):
        theirs = getattr(models, owner)
        original = vars(theirs)[name]
        if hasattr(original, MARK):
            continue
        ours = wrapt.FunctionWrapper(original, wrapper)
        setattr(ours, MARK, True)
        setattr(theirs, name, ours)
        undo.append((theirs, name, original, ours))

    def detach() -> None:
        for theirs, name, original, ours in undo:
            if vars(theirs).get(name) is ours:  # whoever wrapped it after us keeps what is theirs
                setattr(theirs, name, original)

    return detach


ADAPTER = Adapter(host="llm", module=MODULE, probe=probe, attach=attach)
