"""The store's role for alerts: those raised, and the last mark of each condition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Noted(NamedTuple):
    """What was last noted of a condition.

    Attributes:
        mark: Tells one occurrence from the next; empty once it is over.
        told: Whether somebody was told of it.
    """

    mark: str
    told: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert that was told.

    Attributes:
        kind: Its name, such as ``gate-hold``.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns; empty for all of it.
        sentence: What happened, in words.
        todo: The command to look next.
        facts: The numbers behind it.
        at: When it happened; epoch seconds, UTC.
        suppressed: Alerts of its kind and subject that were not told since the last one that was.
        owner: The process that told it.
        seq: Its place in the order of arrival; 0 before it is stored.
    """

    kind: str
    severity: str
    subject: str = ""
    sentence: str
    todo: str
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float
    suppressed: int = 0
    owner: str
    seq: int = 0


class Alerts(Protocol):
    """Alerts, and what keeps each from being told twice by processes that share the store."""

    def noted(self) -> Mapping[tuple[str, str], Noted]:
        """Return what was last noted, by kind and subject."""
        ...

    def note(self, kind: str, subject: str, mark: str, *, told: bool) -> None:
        """Note a condition; in the transaction that read what was noted before."""
        ...

    def last_told(self) -> Mapping[tuple[str, str], float]:
        """Return when an alert of each kind and subject was last told, in epoch seconds."""
        ...

    def suppress(self, kind: str, subject: str = "") -> None:
        """Count an alert that is not told because another like it was told just now."""
        ...

    def suppressed(self) -> Mapping[str, int]:
        """Return how many alerts of each kind wait to be told of by the next ones."""
        ...

    def release(self, kind: str, subject: str = "") -> None:
        """Let the next alert of a kind and subject be told at once."""
        ...

    def tell(self, row: AlertRow, *, at: float) -> AlertRow:
        """Store an alert that is told now, with how many like it were suppressed before it.

        The oldest beyond 1,000 are forgotten.
        """
        ...

    def latest(self, *, limit: int) -> list[AlertRow]:
        """Return the alerts that were told, newest first."""
        ...
