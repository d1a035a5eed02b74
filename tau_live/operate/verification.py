"""Verification of a store: rows and files that were edited, removed or added behind our back.

The gate and the pauses are compared with their sealed history.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from tau_live.core.errors import CheckpointError, TauLiveError
from tau_live.core.gate import GateEntry, GateRow, HoldReason, State, plain
from tau_live.core.guard import text_of
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.decisions.policies import check_policy, required_versions
from tau_live.store.roles import Store
from tau_live.store.sealing import (
    SEALED,
    Finding,
    Head,
    Sealer,
    key_in,
    known_beginning,
)


class Verification(NamedTuple):
    """The findings of a verification, and how much was checked."""

    findings: list[Finding]
    seals: int
    without_key: int
    head: Head
    checkpoints: int


def verify_store(
    store: Store,
    settings: Settings,
    *,
    anchor: tuple[int, str] | None = None,
    report_progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Check the whole chain, every sealed row, the state that follows from them, every checkpoint.

    Args:
        store: The store, open for reading.
        settings: Where the key is.
        anchor: Position and link of an earlier head; ``None`` checks against none.
        report_progress: Called now and then with the number of seals checked so far.

    Raises:
        StoreUnavailableError: The store or the key cannot be read.
    """
    key_file = settings.audit_key_file
    sealer = Sealer(key_in(key_file))
    findings: list[Finding] = []
    begins = known_beginning(key_file, store.path)
    for n, finding in enumerate(store.seals.broken_links(sealer, start=begins)):
        if finding is not None:
            findings.append(finding)
        if n % 1000 == 0:
            report_progress(n)
    findings += store.seals.changed_rows(SEALED)
    findings += store.seals.contradictions()
    with store.reading():  # one snapshot, or the gate might be held in between
        findings += gate_contradictions(store)
        findings += pause_contradictions(store)
    findings += _check_anchor(store, anchor)
    files = list(_checkpoints(store))
    findings += [finding for finding in files if finding is not None]
    without = store.seals.count_without(sealer)
    return Verification(findings, store.seals.count(), without, store.seals.head(), len(files))


def _check_anchor(store: Store, anchor: tuple[int, str] | None) -> Iterator[Finding]:
    """Yield a finding if the chain does not contain a head that was kept elsewhere."""
    if anchor is None or anchor == (0, "0" * 32):  # of an empty chain
        return
    place, link = anchor
    held, head = store.seals.link_at(place), store.seals.head()
    if held == link:
        return
    if place > head.place:
        detail = f"the chain ends before it, at {head.place}"
    elif held is None:
        detail = "retention deleted that part of the chain; keep a newer head"
    else:
        detail = "the chain is another one there"
    yield Finding("not_the_head", f"seal {place}", detail)


def _checkpoints(store: Store) -> Iterator[Finding | None]:
    """Yield, for each version whose checkpoint exists or should, its problem or ``None``."""
    try:
        required, versions = required_versions(store), store.policies.versions()
        names = store.checkpoints.names()
    except (TauLiveError, ValueError) as error:  # rows may have been edited
        yield Finding("unreadable", "versions of policies", text_of(error))
        return
    for row in versions:
        if row.version not in required and row.file not in names:
            continue  # it was pruned, as keep_checkpoints says
        try:
            check_policy(store.checkpoints, row)
        except CheckpointError as error:
            yield Finding("checkpoint", f"version {row.version}", str(error))
        else:
            yield None


def gate_contradictions(store: Store) -> Iterator[Finding]:
    """Yield where the gate differs from its history and the audit.

    Streaks, and details that no operator gave, are in no history.
    """
    row, log = store.gate.load(), store.gate.log()
    if row.reason == HoldReason.GATE_REMOVED:
        yield Finding("gate", "the gate", "its row was removed or edited")
        return
    # streaks change the gate too, and are in no history; 2**40 is a thousand a second for 35 years
    if not len(log) <= row.revision <= 2**40:
        detail = f"it counts {row.revision} changes, and its history has {len(log)}"
        yield Finding("gate", "the gate", detail)
    state = log[0].state if log else State.PASS.value
    if row.state != state:
        detail = f"it is on {row.state}, and its history ends with {state}"
        yield Finding("gate", "the gate", detail)
        return
    yield from _detail_contradictions(row, log, store)


def _detail_contradictions(row: GateRow, log: list[GateEntry], store: Store) -> Iterator[Finding]:
    """Yield where the gate's reason, time or detail differs, its state being right."""
    holds = row.state != State.PASS
    began = _start_of_state(log, "hold" if holds else "reset")
    reason = began.reason if began is not None and holds else None
    if row.reason != reason:
        detail = f"its reason is {row.reason!r}, and its history says {reason!r}"
        yield Finding("gate", "the gate", detail)
    at = 0.0 if began is None else began.at
    if row.since != at:
        yield Finding("gate", "the gate", f"it is so since {row.since}, and its history says {at}")
    if holds and row.reason == HoldReason.OPERATOR and began is not None:
        holds_audited = (entry for entry in store.audit.entries() if entry.action == "gate_hold")
        recorded = next(
            (plain(entry.reason) for entry in holds_audited if entry.at == at), row.detail
        )
        if row.detail != recorded:
            detail = f"the operator's reason is {row.detail!r}, and the audit log says {recorded!r}"
            yield Finding("gate", "the gate", detail)


def _start_of_state(log: list[GateEntry], event: str) -> GateEntry | None:
    """Return the line with which the current state began: the first ``event`` since the other."""
    other = "reset" if event == "hold" else "hold"
    since = list(takewhile(lambda line: line.event != other, log))
    return next((line for line in reversed(since) if line.event == event), None)


def pause_contradictions(store: Store) -> Iterator[Finding]:
    """Yield where the pauses and who made them differ from the audit log."""
    audited, stored = _audited_pauses(store.audit.entries()), store.pauses.pauses()
    for part in Part:
        expected, pause = audited.get(part), stored.get(part)
        if (expected is None) != (pause is None):
            is_now = "is not paused" if pause is None else "is paused"
            yield Finding("pauses", part.value, f"it {is_now}, and the audit log disagrees")
        elif expected is not None and expected != pause:
            detail = f"the audit log says that {expected.who} paused it: {expected.reason}"
            yield Finding("pauses", part.value, f"{detail}; that was changed")


def _audited_pauses(entries: list[AuditEntry]) -> Mapping[Part, Pause]:
    """Return the pauses that the audit log implies; ``entries`` are newest first."""
    pauses: dict[Part, Pause] = {}
    for entry in reversed(entries):
        parts = entry.details.get("parts")
        for part in Part:
            if not isinstance(parts, list) or part.value not in parts:
                continue
            if entry.action == "pause":
                pause = Pause(part=part, reason=entry.reason, who=entry.who, at=entry.at)
                pauses.setdefault(part, pause)
            elif entry.action == "resume":
                pauses.pop(part, None)
    return pauses
