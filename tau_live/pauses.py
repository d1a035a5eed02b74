"""What an operator can pause: collection, learning and deciding, each separately."""

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
            "new runs are neither recorded nor decided; runs in progress continue to their end, "
            "and rewards are accepted"
        ),
        Part.LEARNING: (
            "no updates; rollouts are kept and learned from later, and the serving version is "
            "still compared with the control"
        ),
        Part.DECIDING: "the host's own choice is served, and recorded as `paused`",
    }
)
"""What it means that a part is paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A part that is paused until an operator resumes it.

    Attributes:
        part: What is paused.
        reason: Why.
        who: Who paused it.
        at: Since when; epoch seconds, UTC.
    """

    part: Part
    reason: str
    who: str
    at: float


def told(pauses: Mapping[Part, Pause]) -> dict[str, object]:
    """Return what is paused, as plain data by part."""
    return {
        part.value: {name: value for name, value in asdict(pause).items() if name != "part"}
        for part, pause in pauses.items()
    }
