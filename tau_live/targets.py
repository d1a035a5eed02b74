"""Whom a host means by what it attaches: plugins that take part."""

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
