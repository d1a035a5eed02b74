"""What a proof tells: figures, each with the bound that it has to keep."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Tier(StrEnum):
    """How much of a proof is run."""

    QUICK = "quick"
    """Seconds: with every change."""

    LONG = "long"
    """Minutes to hours: for a release; what the page shows."""


class Figure(NamedTuple):
    """One thing that was counted or measured.

    Attributes:
        promise: The number of the promise on the page that it holds.
        what: In words, with the unit, as a row of the page.
        found: What was found.
        at_most: What it may be at most, if there is such a bound.
        at_least: What it has to be at least, if there is such a bound.
    """

    promise: int
    what: str
    found: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it keeps its bounds."""
        low = self.at_least is None or self.found >= self.at_least
        return low and (self.at_most is None or self.found <= self.at_most)

    @property
    def bound(self) -> str:
        """Its bounds in words; empty where it has none."""
        low = "" if self.at_least is None else f"at least {self.at_least:g}"
        high = "" if self.at_most is None else f"at most {self.at_most:g}"
        return ", ".join(part for part in (low, high) if part)


Told: TypeAlias = Callable[[int, int], None]
"""Called with how many parts are done, and of how many."""

Prove: TypeAlias = Callable[[Tier, Told], Iterator[Figure]]
"""What every module of a proof has under the name ``prove``."""


@dataclass(frozen=True, slots=True)
class Proven:
    """What came of one proof.

    Attributes:
        name: Of its module.
        seconds: How long it took.
        figures: In the order in which they were found.
    """

    name: str
    seconds: float
    figures: tuple[Figure, ...]

    @property
    def holds(self) -> bool:
        """Whether all figures keep their bounds."""
        return all(figure.holds for figure in self.figures)
