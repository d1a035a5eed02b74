"""The options of a decision, as the host has them, become names with plain features."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tau_live.handed.masks import Mask
from tau_live.handed.values import OPTIONS_LIMIT, Listed, text_of
from tau_live.rl.remembered import Kept, size_of

Read = Callable[[str, object], Kept | None]

PARTS_LIMIT = 65_536
"""When so much of features was read, those of further options are left out."""

_WALKED = 4  # times as long as a row of numbers takes a part of another


class Offer(NamedTuple):
    """The options of one decision, ready to be encoded.

    Attributes:
        names: ``[A]``, what they are called, each once.
        originals: ``[A]``, as the host handed them over.
        features: ``[A]``, plain data or ``None``.
        default: The index of the host's own choice; ``None`` if it is not among them.
        own: The index of what the host does without us; ``None`` if it is not among them.
        cut: How many options were too many.
        unread: Of how many options the features were too much.
        allowed: ``[A]``, which may be chosen this time; ``None`` if all may.
        explored: ``[A]``, which may be explored; ``None`` if all may.
    """

    names: tuple[str, ...]
    originals: tuple[object, ...]
    features: tuple[Kept | None, ...]
    default: int | None
    own: int | None
    cut: int
    allowed: tuple[bool, ...] | None = None
    explored: tuple[bool, ...] | None = None
    unread: int = 0

    def choosable(self) -> dict[str, Mapping[str, object]]:
        """Return the options that may be chosen, with copies of their features."""
        named = zip(self.names, self.features, strict=True)
        may = self.allowed or itertools.repeat(True)
        return {
            name: {**(found or {})} for (name, found), ok in zip(named, may, strict=False) if ok
        }

    def choosable_default(self) -> str | None:
        """Return the host's own choice, if it may be chosen."""
        at = self.default
        may = at is not None and (self.allowed is None or self.allowed[at])
        return self.names[at] if at is not None and may else None

    def allowed_names(self) -> tuple[str, ...] | None:
        """Return what may be chosen; ``None`` if all may."""
        return None if self.allowed is None else tuple(itertools.compress(self.names, self.allowed))

    def exploit_only_names(self) -> tuple[str, ...] | None:
        """Return what is unsafe to explore; ``None`` if nothing is."""
        if self.explored is None:
            return None
        named = zip(self.names, self.explored, strict=True)
        return tuple(name for name, may in named if not may)


def offer_of(listed: Listed, default: object, *, mask: Mask, read: Read) -> Offer | None:
    """Return what may be chosen, as plain data; ``None`` if nothing may.

    Options that are called the same are one; what is beyond ``OPTIONS_LIMIT`` is left out
    and counted, unless it is the default. Of so many, those not allowed are left out first.

    Args:
        listed: The options as the host has them.
        default: The host's own choice.
        mask: What may be chosen.
        read: Returns an option's features as plain data.
    """
    room, unread = PARTS_LIMIT, 0
    masks = mask.names if len(listed.originals) > OPTIONS_LIMIT else None
    wanted = None if default is None else text_of(default)
    names: dict[str, int] = {}
    kept: list[object] = []
    features: list[Kept | None] = []
    cut = listed.beyond
    for original, own in zip(listed.originals, listed.features, strict=True):
        name = text_of(original)
        if name in names:
            continue
        too_many = len(names) >= OPTIONS_LIMIT or (masks is not None and name not in masks)
        if too_many and name != wanted:
            cut += 1
            continue
        names[name] = len(names)
        kept.append(original)
        row = None if own is None or room <= 0 else read(name, own)
        unread += own is not None and room <= 0
        room -= 0 if row is None else _parts_of(row)
        features.append(row)
    if not names:
        return None
    at = None if wanted is None else names.get(wanted)
    own = 0 if wanted is None else at
    may: tuple[bool, ...] | None = None
    if mask.names is not None:
        may = tuple(name in mask.names for name in names)
        if not any(may):
            return None
        own = at if wanted is not None and mask.allows(wanted) else may.index(True)
    return Offer(
        tuple(names),
        tuple(kept),
        tuple(features),
        at,
        own,
        cut,
        None if may is None or all(may) else may,
        _explored(names, mask.unexplored),
        unread,
    )


def _parts_of(row: Kept) -> int:
    if row.names:
        return len(row)
    if not row.parts:
        row.parts = _WALKED * size_of(row)
    return row.parts


def _explored(names: Iterable[str], unexplored: frozenset[str]) -> tuple[bool, ...] | None:
    if unexplored.isdisjoint(names):
        return None
    return tuple(name not in unexplored for name in names)
