"""The plugin that ``llm`` loads by its entry points: it attaches, and adds models and a command.

An exception here would end every ``llm`` command, so none leaves it.
"""

from contextlib import suppress

from tau_live.boot.boot import boot

with suppress(Exception):  # also without llm itself, or with one that has other hooks
    from tau_live_hooks.llm_plugin import register_commands, register_models

    __all__ = ["register_commands", "register_models"]

boot("llm")
