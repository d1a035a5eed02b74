"""Which of the options a host allows this time, and which it lets be explored: read once.

A mask is absolute, and never a penalty.

With a mask, what comes back is always one of the options allowed, even where the host's own
choice comes back: a default that is not allowed gives way to the first option that is, and where
none is, nothing comes back (``None``). Only a mask that cannot be read is none.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tau_live.choices import Choice, fallback
from tau_live.errors import pass_on
from tau_live.handed.values import LISTED_LIMIT, listed, text_of


class Mask(NamedTuple):
    """What a host allows.

    Attributes:
        names: The options allowed, by name; ``None`` allows all. What is not offered is no harm.
        readable: Whether it could be read; if not, nobody knows what is allowed.
        unexplored: The options that are unsafe to explore, by name.
    """

    names: frozenset[str] | None = None
    readable: bool = True
    unexplored: frozenset[str] = frozenset()

    def allows(self, option: object) -> bool:
        """Say whether an option may be chosen."""
        return self.names is None or text_of(option) in self.names


def mask_of(allowed: object, exploit_only: object = None) -> Mask:
    """Return what a host's ``allowed`` and ``exploit_only`` mean: names, or the options themselves.

    A single text is one name. A mapping and a truth say nothing that could be relied on; they
    cannot be read, and neither can what raises or is longer than options may be.
    """
    if allowed is None and exploit_only is None:
        return Mask()
    names = None if allowed is None else _names(allowed)
    unexplored = frozenset[str]() if exploit_only is None else _names(exploit_only)
    if unexplored is None or (names is None and allowed is not None):
        return Mask(names, readable=False)
    return Mask(names, unexplored=unexplored)


def _names(given: object) -> frozenset[str] | None:
    """Return what was given as names; ``None`` if it cannot be read."""
    kind = type(given)
    try:
        if kind is bool or issubclass(kind, Mapping):
            return None
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return frozenset({text_of(given)})
        found = list(itertools.islice(given, LISTED_LIMIT + 1))  # type: ignore[call-overload]  # it is iterable
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is read
        pass_on(error)
        return None
    return frozenset(map(text_of, found)) if len(found) <= LISTED_LIMIT else None


def own_choice(options: object, default: object, mask: Mask) -> Choice:
    """Return the host's own choice as far as it is allowed: the default, else the first option."""
    if mask.names is None or (default is not None and mask.allows(default)):
        return fallback(options, default)
    return fallback((), next(filter(mask.allows, listed(options).originals), None))
