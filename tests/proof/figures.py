"""The figures of proofs, each with the bound that it has to keep."""

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
    """One count or measurement.

    Attributes:
        promise: The number of the promise on the page that it proves.
        what: Its title with the unit, as a row of the page.
        found: The measured value.
        at_most: The upper bound; ``None`` if there is none.
        at_least: The lower bound; ``None`` if there is none.
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


Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of parts that are done, and of all."""

Prove: TypeAlias = Callable[[Tier, Progress], Iterator[Figure]]
"""The function ``prove`` of every module of a proof."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The figures of one proof.

    Attributes:
        name: The name of the proof.
        seconds: How long it took.
        figures: The figures, in their order.
    """

    name: str
    seconds: float
    figures: tuple[Figure, ...]

    @property
    def holds(self) -> bool:
        """Whether all figures keep their bounds."""
        return all(figure.holds for figure in self.figures)
