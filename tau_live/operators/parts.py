"""What operators do about the parts of tau-live, and about all of it: pause, resume, hold.

Each is one transaction with its audit row; running processes hear of it within a second. What is
so already stays as it is, and is written down all the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tau_live.pauses import Part, Pause
from tau_live.store.records import AuditEntry
from tau_live.store.roles import Store


class Rested(NamedTuple):
    """What became of parts that were to be paused or resumed.

    Attributes:
        changed: Those of which it was not so already.
        paused: What rests now, by part.
    """

    changed: list[Part]
    paused: dict[Part, Pause]


def paused(store: Store, parts: Sequence[Part], *, reason: str, who: str, at: float) -> Rested:
    """Let parts rest until they are resumed; those that rest already keep their reason."""
    with store.begin():
        changed = [
            part
            for part in parts
            if store.pauses.begin(Pause(part=part, reason=reason, who=who, at=at))
        ]
        _write_down(store, "pause", parts, changed, reason=reason, who=who, at=at)
        return Rested(changed, dict(store.pauses.pauses()))


def resumed(store: Store, parts: Sequence[Part], *, reason: str, who: str, at: float) -> Rested:
    """Let parts go on."""
    with store.begin():
        changed = [part for part in parts if store.pauses.end(part)]
        _write_down(store, "resume", parts, changed, reason=reason, who=who, at=at)
        return Rested(changed, dict(store.pauses.pauses()))


def _write_down(  # noqa: PLR0913  # a row's columns
    store: Store,
    action: str,
    parts: Sequence[Part],
    changed: Sequence[Part],
    *,
    reason: str,
    who: str,
    at: float,
) -> None:
    details = {"parts": [part.value for part in parts], "idempotent": not changed}
    store.audit.add(AuditEntry(at=at, who=who, action=action, reason=reason, details=details))
