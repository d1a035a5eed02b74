"""The gate and the pauses as they stand, compared with what their sealed history makes of them."""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from tau_live.gate import GateEntry, GateRow, HoldReason, State
from tau_live.gate.state import plain
from tau_live.pauses import Part, Pause
from tau_live.store.records import AuditEntry
from tau_live.store.roles import Store

MOST_CHANGES = 2**40
"""A thousand a second for 35 years. Streaks change the gate as well, and are in no history."""


class Contradiction(NamedTuple):
    """Something that stands otherwise than its history says.

    Attributes:
        what: The gate, or the part that is or is not paused.
        detail: A sentence.
    """

    what: str
    detail: str


def gate_contradictions(store: Store) -> Iterator[Contradiction]:
    """Yield what of the gate is not as its history, and the audit, left it.

    Streaks, and the last error where no operator gave it, are in no history.
    """
    row, log = store.gate.load(), store.gate.log()
    if row.reason == HoldReason.GATE_REMOVED:
        yield Contradiction("the gate", "its row was removed")
        return
    if not len(log) <= row.revision <= MOST_CHANGES:
        detail = f"it counts {row.revision} changes, and its history has {len(log)}"
        yield Contradiction("the gate", detail)
    state = log[0].state if log else State.PASS.value
    if row.state != state:
        detail = f"it is on {row.state}, and its history ends with {state}"
        yield Contradiction("the gate", detail)
        return
    yield from _other_words(row, log, store)


def _other_words(row: GateRow, log: list[GateEntry], store: Store) -> Iterator[Contradiction]:
    """Yield what is said of a gate whose state is right, and was not what made it so."""
    holds = row.state != State.PASS
    began = _beginning(log, "hold" if holds else "reset")
    reason = began.reason if began is not None and holds else None
    if row.reason != reason:
        detail = f"its reason is {row.reason!r}, and its history says {reason!r}"
        yield Contradiction("the gate", detail)
    at = 0.0 if began is None else began.at
    if row.since != at:
        yield Contradiction("the gate", f"it is so since {row.since}, and its history says {at}")
    if holds and row.reason == HoldReason.OPERATOR and began is not None:
        given = (one for one in store.audit.entries() if one.action == "gate_hold")
        said = next((plain(one.reason) for one in given if one.at == at), row.detail)
        if row.detail != said:
            detail = f"the operator's reason is {row.detail!r}, and the audit log says {said!r}"
            yield Contradiction("the gate", detail)


def _beginning(log: list[GateEntry], event: str) -> GateEntry | None:
    """Return the line by which the state began that goes on: the first since the other one."""
    other = "reset" if event == "hold" else "hold"
    since = list(takewhile(lambda line: line.event != other, log))
    return next((line for line in reversed(since) if line.event == event), None)


def pause_contradictions(store: Store) -> Iterator[Contradiction]:
    """Yield what rests, or does not, and by whose word, other than the audit log says."""
    known, held = _paused_by(store.audit.entries()), store.pauses.pauses()
    for part in Part:
        said, stands = known.get(part), held.get(part)
        if (said is None) != (stands is None):
            is_now = "is not paused" if stands is None else "is paused"
            yield Contradiction(part.value, f"it {is_now}, and the audit log disagrees")
        elif said is not None and said != stands:
            detail = f"the audit log says that {said.who} paused it: {said.reason}"
            yield Contradiction(part.value, f"{detail}; that was changed")


def _paused_by(entries: list[AuditEntry]) -> Mapping[Part, Pause]:
    """Return what the audit log lets rest, from its newest line to its oldest."""
    found: dict[Part, Pause] = {}
    for entry in reversed(entries):
        parts = entry.details.get("parts")
        for part in Part:
            if not isinstance(parts, list) or part.value not in parts:
                continue
            if entry.action == "pause":
                pause = Pause(part=part, reason=entry.reason, who=entry.who, at=entry.at)
                found.setdefault(part, pause)
            elif entry.action == "resume":
                found.pop(part, None)
    return found
