"""Whom a host means: plugins that take part, and rollouts that are rewarded."""

from tau_live.handed import ID_LIMIT, text_of
from tau_live.handles import RunHandle
from tau_live.plugins import Plugins


def adopt(plugins: Plugins, manager: object) -> int:
    """Let the plugins of a host's pluggy manager take part in our hooks; return how many do."""
    listed = getattr(manager, "list_name_plugin", None)
    if listed is None:
        raise TypeError(f"expected a pluggy manager or Settings, got {type(manager).__name__}")
    return sum(
        plugins.register(plugin, name=f"host:{name}")
        for name, plugin in listed()
        if plugin is not None and plugins.implements(plugin)
    )


def target_of(run: object, decision: object, inside: RunHandle | None) -> str | None:
    """Return the id of the rollout that a reward is for; a decision's id begins with it."""
    of_decision = "" if decision is None else text_of(decision, limit=ID_LIMIT)
    if ":attempt-" in of_decision:
        return of_decision.rpartition(":attempt-")[0]
    if run is not None:
        return text_of(run, limit=ID_LIMIT)
    if decision is not None:
        return None
    return inside.rollout_id if inside is not None else None
