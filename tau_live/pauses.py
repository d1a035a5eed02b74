"""What an operator may let rest: collection, learning, deciding, each apart."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType

PAUSED = "paused"
"""Why a decision is the host's own while deciding is paused; stored with it."""


class Part(StrEnum):
    """A part of tau-live that can be paused by itself."""

    COLLECTION = "collection"
    LEARNING = "learning"
    DECIDING = "deciding"


MEANS: Mapping[Part, str] = MappingProxyType(
    {
        Part.COLLECTION: (
            "no run that begins now is recorded, nor decided; those under way go on to their end, "
            "and rewards are taken"
        ),
        Part.LEARNING: (
            "no update is made; rollouts are kept and learned from later, and what serves is "
            "still weighed against the control"
        ),
        Part.DECIDING: "the host's own choice is served, and recorded as `paused`",
    }
)
"""What it means that a part is paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """That a part rests until somebody resumes it.

    Attributes:
        part: What rests.
        reason: Why.
        who: Who says so.
        at: Since when; epoch seconds, UTC.
    """

    part: Part
    reason: str
    who: str
    at: float


def told(pauses: Mapping[Part, Pause]) -> dict[str, object]:
    """Return what rests, as plain data by part."""
    return {
        part.value: {name: value for name, value in asdict(pause).items() if name != "part"}
        for part, pause in pauses.items()
    }
