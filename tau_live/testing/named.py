"""What stands in a module, by a name like ``package.module:attribute``."""

from importlib import import_module
from typing import TypeVar

T = TypeVar("T")


def named(name: str, kind: type[T]) -> T:
    """Return what is found under a name.

    Raises:
        TypeError: It is not of that kind.
        ImportError: There is no such module.
        AttributeError: It has no such attribute.
    """
    module, _, attribute = name.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, kind):
        raise TypeError(f"expected {name} to be a {kind.__name__}, got {found!r}")
    return found
