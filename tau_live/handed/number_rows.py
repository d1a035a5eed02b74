"""Rows of numbers, as most options and contexts are, taken over sooner than by a walk."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tau_live.errors import pass_on
from tau_live.handed.plain import DEFAULT_LIMITS, Limits

_REMEMBERED = 512
_REMEMBERED_CHARS = 4_096


def number_names(row: Mapping[str, object], *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return the names of a row, with NULs between, if ``plain`` would keep it as it is.

    Only for rows of finite floats, which is what most options and contexts are: looking at one
    takes a quarter of the time of a walk. For every other row the result is empty.

    Args:
        row: One that nobody else writes to meanwhile.
        limits: How much is kept.
    """
    size = len(row)
    if (
        size > min(limits.items, limits.nodes)
        or not _are_all(float, row.values(), size)
        or not _are_all(str, row, size)
        or not math.isfinite(sum(row.values()))  # type: ignore[arg-type]  # they are floats
    ):
        return ""
    names = "\0".join(row)
    if len(names) > limits.total_chars:
        return ""
    tell = _known_names if len(names) <= _REMEMBERED_CHARS else _are_kept
    return names if tell(names, size, limits.key_chars) else ""


def _are_all(kind: type, values: Iterable[object], size: int) -> bool:
    """Tell whether so many values are of exactly a class; a class of classes may refuse to say."""
    try:
        return [*map(type, values)].count(kind) == size
    except Exception as error:  # noqa: BLE001  # whatever a host's class of classes does
        pass_on(error)
        return False


def _are_kept(names: str, size: int, longest: int) -> bool:
    """Tell whether so many names, with NULs between, are all kept as they are."""
    each = names.split("\0")
    return len(each) == size and names.isascii() and max(map(len, each)) <= longest


@lru_cache(maxsize=_REMEMBERED)
def _known_names(names: str, size: int, longest: int) -> bool:
    return _are_kept(names, size, longest)
