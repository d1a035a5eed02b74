"""Holding the gate in the store itself, together with what it is held for."""

from dataclasses import replace

from tau_live.gate.keeper import GateStore
from tau_live.gate.state import Gate, GateEntry, plain


def hold_stored(  # what a hold is, all keyword-only
    store: GateStore, *, limit: int, reason: str, detail: str, who: str, at: float
) -> bool:
    """Let the stored gate hold, in the caller's transaction; ``False`` if it holds already.

    A keeper that is told of the same hold, with the same time, finds it written.
    """
    gate = Gate.from_row(store.load(), limit=limit)
    if not gate.passes:
        return False
    held = replace(gate.hold(plain(reason), at, detail=detail), revision=gate.revision + 1)
    entry = GateEntry(
        at=at, event="hold", state=held.state.value, kind=None, reason=plain(reason), who=plain(who)
    )
    return store.save(held.to_row(), entry=entry)
