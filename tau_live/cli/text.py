"""Values in words: safe for a terminal, with units, in UTC."""

import math
import re
import time
from datetime import UTC, datetime

import click

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
AHEAD_S = 2.0
"""Clocks of several machines may differ by so much, and nobody need hear of it."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]b)")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])")


def shown(text: object) -> str:
    """Return a text on one line, with everything that could steer a terminal made visible."""
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def clipped(text: str, most: int) -> str:
    """Return a text of so many characters at most; an ellipsis tells that it was longer."""
    return text if len(text) <= most else f"{text[: max(0, most - 1)].rstrip()}…"


def seconds(duration: float | None) -> str:
    """Return a duration, in the unit that suits it."""
    if duration is None or not math.isfinite(duration):
        return "-"
    if abs(duration) < 0.9995:
        return f"{duration * 1000:.0f} ms"
    if abs(duration) < 120:
        return f"{duration:.1f} s"
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if abs(duration) >= 2 * unit or unit == 60:
            return f"{duration / unit:.1f} {name}"
    raise AssertionError("unreachable")


def moment(at: float | None) -> str:
    """Return a time in UTC, to the second."""
    if at is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(at)


def ago(at: float | None, *, now: float) -> str:
    """Return a time and how long it has been since."""
    return "-" if at is None else f"{moment(at)} ({since(at, now=now)})"


def since(at: float, *, now: float) -> str:
    """Return how long it has been; of a clock that goes ahead, by how much it does."""
    if at - now >= AHEAD_S:
        return f"{seconds(at - now)} ahead of this clock"
    return f"{seconds(max(0.0, now - at))} ago"


def number(value: float | None) -> str:
    """Return a number as short as it can be said."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value + 0.0:.4g}"  # -0.0 is 0


def percent(share: float) -> str:
    """Return a share as a percentage, exact enough that a small one is not nothing."""
    return f"{100.0 * share:.3g}%"


def duration(text: str) -> float:
    """Return the seconds that ``30d``, ``12h`` or ``90s`` means, for click.

    Raises:
        click.BadParameter: It means nothing.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a length of time like 30d, 12h, 15m or 90s")
    return float(found[1]) * UNITS[found[2]]


def size(text: str) -> float:
    """Return the bytes that ``500MB``, ``2GB`` or ``800 kB`` means, for click.

    Raises:
        click.BadParameter: It means nothing.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size like 500MB or 2GB")
    return float(found[1]) * SIZES[found[2]]


def when(text: str) -> float:
    """Return epoch seconds for ``2026-01-31T12:00`` (UTC), or ``2h`` for two hours ago, for click.

    Raises:
        click.BadParameter: It is neither.
    """
    if _DURATION.fullmatch(text.strip().lower()):
        return time.time() - duration(text)
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        message = f"{text!r} is neither a time like 2026-01-31T12:00 nor one like 2h"
        raise click.BadParameter(message) from None
