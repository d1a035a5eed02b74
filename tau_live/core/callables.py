"""Functions of users, by name."""

from collections.abc import Callable
from functools import reduce
from importlib import import_module

from tau_live.core.errors import ConfigError, pass_on
from tau_live.core.settings.kinds import show_value


def load_callable(ref: str) -> Callable[..., object]:
    """Return what ``package.module:name`` names.

    Raises:
        ConfigError: It cannot be imported, or cannot be called.
    """
    module, _, name = ref.partition(":")
    try:
        value = reduce(getattr, name.split("."), import_module(module))
    except Exception as error:  # whatever the user's module does
        pass_on(error)
        raise ConfigError([f"cannot import '{ref}': {type(error).__name__}: {error}"]) from error
    if not callable(value):
        raise ConfigError([f"'{ref}' must be callable, got {show_value(value)}"])
    return value
