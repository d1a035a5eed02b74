"""Points where long work may be interrupted on request; they change no number."""

from collections.abc import Callable
from typing import TypeAlias

Breathe: TypeAlias = Callable[[], None]
"""Called between two small pieces of work, as often as one likes."""


def at_once() -> None:
    """Go on: nobody waits."""
