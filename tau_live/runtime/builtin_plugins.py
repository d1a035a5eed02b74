"""The built-in rewarder, and loading the plugins of a process."""

from collections.abc import Iterable

from tau_live.core.hookspecs import RewardPart, RolloutSummary, hookimpl
from tau_live.core.plugins import Plugins
from tau_live.core.reward_rules import infer
from tau_live.core.settings import Settings
from tau_live.record.rewards import REFERENCE


@hookimpl(trylast=True)
def infer_reward(summary: RolloutSummary) -> Iterable[RewardPart]:
    """Return the reference's composite and its parts.

    They measure the form of a run, not its success, and are a last resort.
    """
    inferred = infer(summary)
    return [
        RewardPart(name=f"{REFERENCE}{name}", value=value)
        for name, value in inferred._asdict().items()
    ]


def load_plugins(settings: Settings) -> Plugins:
    """Return the plugins of this process: those of installed packages, ours first."""
    plugins = Plugins(off=settings.plugins_off)
    plugins.load()
    return plugins


def adopt(plugins: Plugins, manager: object) -> int:
    """Register the plugins of a host's pluggy manager that implement our hooks; return how many."""
    list_plugins = getattr(manager, "list_name_plugin", None)
    if list_plugins is None:
        raise TypeError(f"expected a pluggy manager or Settings, got {type(manager).__name__}")
    return sum(
        plugins.register(plugin, name=f"host:{name}")
        for name, plugin in list_plugins()
        if plugin is not None and plugins.implements(plugin)
    )
