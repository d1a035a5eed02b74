"""Where long work may be interrupted, by whoever asked for it; it changes no number."""

from collections.abc import Callable
from typing import TypeAlias

Breathe: TypeAlias = Callable[[], None]
"""Called between two small pieces of work, as often as one likes."""


def at_once() -> None:
    """Go on: nobody waits."""
