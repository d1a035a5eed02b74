"""What happened to the gate here and is not yet written down."""

from collections.abc import Sequence
from dataclasses import dataclass

from tau_live.gate.state import Gate, GateEntry, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that happened here and is not yet written down.

    Attributes:
        number: Counts the steps of this process.
        event: ``failed``, ``succeeded``, ``hold`` or ``reset``.
        at: Epoch seconds, UTC.
        who: The process or the person.
        kind: What failed or succeeded.
        reason: Why the gate holds, or the operator's words.
        detail: The error in words.
        held: Whether the gate as seen here went to hold by it; then it must in the store too.
        ended: Whether that hold is over already: by a later reset, or because the store works.
    """

    number: int
    event: str
    at: float
    who: str
    kind: Kind | None = None
    reason: str | None = None
    detail: str | None = None
    held: bool = False
    ended: bool = False

    def after(self, gate: Gate) -> Gate:
        """Return the gate after this step."""
        if self.event == "reset":
            return gate.reset(self.at)
        if self.ended:
            return gate
        if self.kind is not None and self.event == "succeeded":
            return gate.succeeded(self.kind)
        if self.kind is not None and self.event == "failed":
            gate = gate.failed(self.kind, self.detail or "", self.at)
        return gate.hold(self.reason or "", self.at, detail=self.detail) if self.held else gate

    def entry(self, old: Gate, new: Gate) -> GateEntry | None:
        """Return the line of history for this step; ``None`` when it changed no state."""
        if self.event == "reset":
            event = "reset"
        elif self.ended:
            event = "held_in_memory"
        elif self.held or (old.passes and not new.passes):
            event = "hold"
        else:
            return None
        return GateEntry(
            at=self.at,
            event=event,
            state=new.state.value,
            kind=self.kind.value if self.kind else None,
            reason=self.reason,
            who=self.who,
        )

    def is_in(self, log: Sequence[GateEntry]) -> bool:
        """Say whether it was written although writing it seemed to fail."""
        mine = (self.at, self.who, self.kind, self.reason)
        return any((line.at, line.who, line.kind, line.reason) == mine for line in log)


def failures(steps: Sequence[Step], kind: Kind) -> int:
    """Return how many of some steps are failures of a kind."""
    return sum(step.event == "failed" and step.kind is kind for step in steps)
