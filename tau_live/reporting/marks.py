"""What changed who decides, or whether anybody may: from the gate's history and the audit."""

from collections.abc import Mapping, Sequence

import numpy as np

from tau_live.reporting.facts import Mark, Stretch
from tau_live.store.roles import Store
from tau_live.trials.rules import Move

MOST = 200
"""So many marks are shown, the newest."""

LOOKED_AT = 2_000
"""So many lines of the audit are looked at, the newest."""

KINDS: Mapping[str, str] = {
    "champion_frozen": "promotion",
    "policy_freeze": "promotion",
    "policy_promote": "promotion",
    "champion_returned": "rollback",
    "policy_rollback": "rollback",
    "policy_reset": "rollback",
    "policy_use": "rollback",
    "exposure_climbed": "exposure",
    "exposure_lowered": "exposure",
    "policy_exposure": "exposure",
    "learner_stopped": "stop",
    "policy_stop": "stop",
}
"""Lines of the audit by action; what is not here changes nobody who decides."""

BY_ITSELF = frozenset(Move)
EVIDENCE = "evidence"
"""Who did what no operator did."""

GATE: Mapping[str, str] = {"hold": "hold", "held_in_memory": "hold", "reset": "reset"}


def marks_of(store: Store, stretches: Sequence[Stretch], *, look: int = LOOKED_AT) -> list[Mark]:
    """Return what happened, oldest first.

    Args:
        store: The store.
        stretches: All rollouts, which tell where in their order something happened.
        look: So many of the newest lines of the audit are looked at, and of the gate's history.
    """
    found = [
        Mark(
            at=entry.at,
            place=None,
            kind=KINDS[entry.action],
            point=_text(entry.details.get("point")),
            who=EVIDENCE if entry.action in BY_ITSELF else entry.who,
            said=f"{entry.action.replace('_', ' ')}: {entry.reason}",
        )
        for entry in store.audit.entries(limit=look)
        if entry.action in KINDS
    ]
    found += [
        Mark(
            at=entry.at,
            place=None,
            kind=GATE[entry.event],
            point=None,
            who=entry.who,
            said=f"gate {entry.event.replace('_', ' ')}: {entry.reason or 'no reason given'}",
        )
        for entry in store.gate.log(limit=min(look, MOST))
        if entry.event in GATE
    ]
    newest = sorted(found, key=lambda mark: mark.at)[-MOST:]
    return [
        Mark(
            at=mark.at,
            place=place,
            kind=mark.kind,
            point=mark.point,
            who=mark.who,
            said=mark.said,
        )
        for mark, place in zip(newest, _places([m.at for m in newest], stretches), strict=True)
    ]


def _places(times: Sequence[float], stretches: Sequence[Stretch]) -> list[float | None]:
    """Return about where in the order of rollouts something happened."""
    known = [(one.began_at, one.first) for one in stretches if one.began_at is not None]
    if not known:
        return [None] * len(times)
    began = np.maximum.accumulate([at for at, _ in known])  # imported rollouts may be older
    places = np.array([first for _, first in known], dtype=np.float64)
    last = float(stretches[-1].last)
    found = np.interp(times, began, places, right=last)
    return [float(place) for place in found]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
