"""The pass/hold gate: a value, what of it is stored, and one process's view of it.

The gate holds when one kind of work has failed ``limit`` times in a row, or when it is told to;
only an operator's reset lets it pass again (law 10).
"""

from tau_live.gate.holding import hold_stored
from tau_live.gate.keeper import GateKeeper, GateStore
from tau_live.gate.memory_holds import MemoryHold, MemoryHoldSign, memory_holds
from tau_live.gate.state import Gate, GateEntry, GateRow, HoldReason, Kind, State

__all__ = [
    "Gate",
    "GateEntry",
    "GateKeeper",
    "GateRow",
    "GateStore",
    "HoldReason",
    "Kind",
    "MemoryHold",
    "MemoryHoldSign",
    "State",
    "hold_stored",
    "memory_holds",
]
