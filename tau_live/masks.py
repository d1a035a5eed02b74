"""Which of the options a host allows this time: read once, absolute, and never a penalty.

With a mask, what comes back is always one of the options allowed, even where the host's own
choice comes back: a default that is not allowed gives way to the first option that is, and where
none is, nothing comes back (``None``). Only a mask that cannot be read is none.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tau_live.choices import Choice, fallback
from tau_live.handed import LISTED_LIMIT, listed, text_of


class Mask(NamedTuple):
    """What a host allows.

    Attributes:
        names: The options allowed, by name; ``None`` allows all. What is not offered is no harm.
        readable: Whether it could be read; if not, nobody knows what is allowed.
    """

    names: frozenset[str] | None = None
    readable: bool = True

    def allows(self, option: object) -> bool:
        """Say whether an option may be chosen."""
        return self.names is None or text_of(option) in self.names


def mask_of(allowed: object) -> Mask:
    """Return what a host's ``allowed`` means: names, or the options themselves.

    A single text is one name. A mapping and a truth say nothing that could be relied on; they
    cannot be read, and neither can what raises or is longer than options may be.
    """
    if allowed is None:
        return Mask()
    kind = type(allowed)
    if kind is bool or issubclass(kind, Mapping):
        return Mask(readable=False)
    try:
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return Mask(frozenset({text_of(allowed)}))
        found = list(itertools.islice(allowed, LISTED_LIMIT + 1))  # type: ignore[call-overload]  # it is iterable
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is read
        return Mask(readable=False)
    if len(found) > LISTED_LIMIT:
        return Mask(readable=False)
    return Mask(frozenset(map(text_of, found)))


def own_choice(options: object, default: object, mask: Mask) -> Choice:
    """Return the host's own choice as far as it is allowed: the default, else the first option."""
    if mask.names is None or (default is not None and mask.allows(default)):
        return fallback(options, default)
    return fallback((), next(filter(mask.allows, listed(options).originals), None))
