"""Defaults that are not among the options offered: counted, and logged once per point."""

from collections.abc import Callable

from tau_live.errors import suppress
from tau_live.guard import logger
from tau_live.privacy.redaction import clean_id
from tau_live.reasons import FOREIGN_DEFAULT

POINTS = 64
"""So many points are named; the defaults of others are counted under ``OTHERS``."""

OTHERS = "(others)"


class ForeignDefaults:
    """Takes note of them, in whichever thread makes the events of decisions; never raises.

    Args:
        count: Counts by name.
    """

    def __init__(self, count: Callable[[str, int], None]) -> None:
        self._count = count
        self._said: set[str] = set()

    def note(self, point: str, default: str, options: tuple[str, ...]) -> None:
        """Count one, and say so where it is the first of its point in this process.

        Args:
            point: Where it was met.
            default: What the host would do by itself.
            options: What was offered instead.
        """
        point = clean_id(point)
        is_new = point not in self._said
        if is_new and len(self._said) >= POINTS:
            self._count(f"{FOREIGN_DEFAULT}{OTHERS}", 1)
            return
        self._said.add(point)
        self._count(f"{FOREIGN_DEFAULT}{point}", 1)
        if is_new:
            with suppress(Exception):  # a host's logging may be broken
                logger().warning(
                    "default_not_offered",
                    point=point,
                    default=clean_id(default),
                    options=", ".join(map(clean_id, options[:8])),
                    effect="no prior and no comparison: no policy ever chooses it",
                    todo="offer it under exactly the same name",
                )
