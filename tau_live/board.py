"""What one process knows of its store, in memory."""

from typing import TYPE_CHECKING, TypeGuard

from tau_live.envelope import OWN_HOST
from tau_live.events import RunStart
from tau_live.machine.latch import Latch
from tau_live.pauses import Part, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tau_live.events import Event
    from tau_live.gate import GateKeeper
    from tau_live.operators.kill_switch import Killed
    from tau_live.pauses import Pause


class Board:
    """What is known of the store in memory, for whoever asks without wanting to wait.

    The threads of the writer, the learner and the kill switch write it; replacing a value is
    atomic.

    Attributes:
        stored: Everything that an operator asks first, as of a moment ago.
        last_report: What the last update of this process came to.
        hosts: What the adapter of each is doing.
        started: Set when the store is known for the first time.
        pauses: What rests.
        killed: What the kill switch says, while it is on.
    """

    def __init__(self) -> None:
        self.stored: Mapping[str, object] = {}
        self.last_report: Mapping[str, object] | None = None
        self.hosts: dict[str, str] = {OWN_HOST: "attached"}
        self.started = Latch()
        self.pauses: Mapping[Part, Pause] = {}
        self.killed: Killed | None = None

    def rests(self, part: Part) -> bool:
        """Say whether a part is paused."""
        return part in self.pauses

    def may_begin(self, gate: "GateKeeper") -> bool:
        """Say whether a run that begins now is recorded."""
        return gate.passes and Part.COLLECTION not in self.pauses

    def why_left_out(self, gate: "GateKeeper") -> str:
        """Return what a run that is not recorded is counted as."""
        while_ = "paused" if gate.passes else "held"
        return f"runs_not_recorded_while_{while_}"

    def is_too_late(self, event: "Event") -> TypeGuard[RunStart]:
        """Say whether an event begins a run that is not to be recorded."""
        return Part.COLLECTION in self.pauses and isinstance(event, RunStart)

    def told(self) -> dict[str, object]:
        """Return what is known here, as plain data."""
        return {
            **self.stored,
            "hosts": dict(self.hosts),
            "paused": told(self.pauses),
            "kill_switch": None if self.killed is None else self.killed._asdict(),
        }
