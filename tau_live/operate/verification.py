"""What was edited, removed or added behind tau-live's back: seals, rows, files.

The gate and the pauses are compared with what their sealed history makes of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from tau_live.core.errors import CheckpointError, TauLiveError
from tau_live.core.gate import GateEntry, GateRow, HoldReason, State, plain
from tau_live.core.guard import text_of
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.decisions.policy_files import check_policy, checkpoint_folder, required_versions
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
    """Look at the whole chain, every sealed row, what has to agree with them, every checkpoint.

    Args:
        store: Open, for reading.
        settings: Where the key and the checkpoints are.
        anchor: Place and link of an earlier head.
        report_progress: Called now and then with how many seals were checked.

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
    for table in SEALED:
        findings += store.seals.changed_rows(table)
    findings += store.seals.contradictions()
    with store.reading():  # one moment: between two, the gate may have been held
        findings += gate_contradictions(store)
        findings += pause_contradictions(store)
    findings += _against(store, anchor)
    files = list(_checkpoints(store, checkpoint_folder(settings)))
    findings += [finding for finding in files if finding is not None]
    without = store.seals.count_without(sealer)
    return Verification(findings, store.seals.count(), without, store.seals.head(), len(files))


def _against(store: Store, anchor: tuple[int, str] | None) -> Iterator[Finding]:
    """Yield that the chain does not lead through a head that was kept elsewhere."""
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


def _checkpoints(store: Store, folder: Path) -> Iterator[Finding | None]:
    """Yield, for each version whose file should be there or is, what is wrong with it."""
    try:
        required, versions = required_versions(store), store.policies.versions()
    except (TauLiveError, ValueError) as error:  # edited rows may hold anything
        yield Finding("unreadable", "versions of policies", text_of(error))
        return
    for row in versions:
        if row.version not in required and not os.path.lexists(folder / row.file):
            continue  # its file was given up, as keep_checkpoints says
        try:
            check_policy(folder, row)
        except CheckpointError as error:
            yield Finding("checkpoint", f"version {row.version}", str(error))
        else:
            yield None


def gate_contradictions(store: Store) -> Iterator[Finding]:
    """Yield where the gate differs from its history and the audit.

    Streaks, and the last error where no operator gave it, are in no history.
    """
    row, log = store.gate.load(), store.gate.log()
    if row.reason == HoldReason.GATE_REMOVED:
        yield Finding("gate", "the gate", "its row was removed")
        return
    # a thousand a second for 35 years. Streaks change the gate as well, and are in no history
    if not len(log) <= row.revision <= 2**40:
        detail = f"it counts {row.revision} changes, and its history has {len(log)}"
        yield Finding("gate", "the gate", detail)
    state = log[0].state if log else State.PASS.value
    if row.state != state:
        detail = f"it is on {row.state}, and its history ends with {state}"
        yield Finding("gate", "the gate", detail)
        return
    yield from _other_words(row, log, store)


def _other_words(row: GateRow, log: list[GateEntry], store: Store) -> Iterator[Finding]:
    """Yield the contradictions of a gate whose state is right, but not its reason or time."""
    holds = row.state != State.PASS
    began = _beginning(log, "hold" if holds else "reset")
    reason = began.reason if began is not None and holds else None
    if row.reason != reason:
        detail = f"its reason is {row.reason!r}, and its history says {reason!r}"
        yield Finding("gate", "the gate", detail)
    at = 0.0 if began is None else began.at
    if row.since != at:
        yield Finding("gate", "the gate", f"it is so since {row.since}, and its history says {at}")
    if holds and row.reason == HoldReason.OPERATOR and began is not None:
        given = (entry for entry in store.audit.entries() if entry.action == "gate_hold")
        recorded = next((plain(entry.reason) for entry in given if entry.at == at), row.detail)
        if row.detail != recorded:
            detail = f"the operator's reason is {row.detail!r}, and the audit log says {recorded!r}"
            yield Finding("gate", "the gate", detail)


def _beginning(log: list[GateEntry], event: str) -> GateEntry | None:
    """Return the line by which the state began that goes on: the first since the other one."""
    other = "reset" if event == "hold" else "hold"
    since = list(takewhile(lambda line: line.event != other, log))
    return next((line for line in reversed(since) if line.event == event), None)


def pause_contradictions(store: Store) -> Iterator[Finding]:
    """Yield where the pauses and who made them differ from the audit log."""
    known, held = _paused_by(store.audit.entries()), store.pauses.pauses()
    for part in Part:
        expected, stands = known.get(part), held.get(part)
        if (expected is None) != (stands is None):
            is_now = "is not paused" if stands is None else "is paused"
            yield Finding("pauses", part.value, f"it {is_now}, and the audit log disagrees")
        elif expected is not None and expected != stands:
            detail = f"the audit log says that {expected.who} paused it: {expected.reason}"
            yield Finding("pauses", part.value, f"{detail}; that was changed")


def _paused_by(entries: list[AuditEntry]) -> Mapping[Part, Pause]:
    """Return the pauses that the audit log implies, read from its newest line to its oldest."""
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
