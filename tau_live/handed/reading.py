"""Reads plain data of which nothing is known but that it may be JSON."""

import math
from collections.abc import Mapping, Sequence


def mapping(value: object) -> Mapping[str, object]:
    """Return what is an object; empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[object]:
    """Return what is a list; empty where it is none."""
    return value if isinstance(value, list | tuple) else ()


def counts(value: object) -> dict[str, int]:
    """Return the whole numbers of an object."""
    return {name: integer(count) for name, count in mapping(value).items()}


def integer(value: object) -> int:
    """Return a whole number; 0 where it is none."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def real(value: object) -> float | None:
    """Return a number; ``None`` where it is none."""
    return float(value) if isinstance(value, int | float) else None
