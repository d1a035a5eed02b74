"""What plugins are given: each gets its own, so that what it changes there reaches nobody else."""

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def own(given: T) -> T:
    """Return a copy of plain data, or of a frozen object with data in it, for one plugin alone.

    Of one without such data too: ``object.__setattr__`` changes what is frozen.
    """
    if isinstance(given, dict):
        return deepcopy(given)
    if not is_dataclass(given) or isinstance(given, type):
        return given
    found = {name: getattr(given, name) for name in _names(type(given))}
    copies = {name: deepcopy(value) for name, value in found.items() if _may_change(value)}
    return replace(given, **copies)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _may_change(value: object) -> bool:
    """Say whether there may be something in it that can be changed."""
    return bool(value) and isinstance(value, dict | list | tuple)
