"""Rollouts and decisions by the beginning of their id."""

import re

from tau_live.errors import AmbiguousIdError, UnknownError
from tau_live.rollouts import Decision, Rollout
from tau_live.store.roles import Store

CANDIDATES = 5
PARTS = re.compile(
    r"(?s)(?P<rollout>.+?)(:attempt-(?P<attempt>[0-9]{1,18}))?"
    r"(:(decision-)?(?P<ordinal>[0-9]{1,18}))?"
)


def rollout_of(store: Store, beginning: str) -> Rollout:
    """Return the rollout whose id this is or, alone among all, begins with this.

    The ``live-`` of an id may be left out.

    Raises:
        UnknownError: No id begins so.
        AmbiguousIdError: Several do; the message lists them.
    """
    exact = store.rollouts.find_rollout(beginning)
    if exact is not None:
        return exact
    found = _beginning_with(store, beginning) if beginning else []
    if not found:
        raise UnknownError("rollout", beginning)
    if len(found) > 1:
        listed = ", ".join(found[:CANDIDATES])
        more = ", ..." if len(found) > CANDIDATES else ""
        raise AmbiguousIdError(f"several rollouts begin with {beginning!r}: {listed}{more}")
    return store.rollouts.rollout(found[0])


def _beginning_with(store: Store, beginning: str) -> list[str]:
    found = {
        rollout_id
        for whole in (beginning, f"live-{beginning}")
        for rollout_id in store.rollouts.ids_beginning_with(whole, limit=CANDIDATES + 1)
    }
    return sorted(found)


def decision_of(store: Store, asked: str) -> Decision:
    """Return the decision that is meant: its id, or the beginning of its rollout's and its number.

    ``live-5f0d`` is the only decision of that rollout, ``live-5f0d:2`` the second of its last
    attempt, ``live-5f0d:attempt-1:decision-2`` the second of the first.

    Raises:
        UnknownError: There is none.
        AmbiguousIdError: Several fit; the message lists them.
    """
    try:
        return store.decisions.decision(asked)
    except UnknownError:
        found = PARTS.fullmatch(asked)
    if found is None:
        raise UnknownError("decision", asked)
    rollout = rollout_of(store, found["rollout"])
    decisions = store.decisions.decisions(rollout.rollout_id)
    last = max((one.attempt for one in decisions), default=0)
    attempt = int(found["attempt"]) if found["attempt"] else last
    fit = [
        one
        for one in decisions
        if found["ordinal"] is None
        or (one.attempt, one.ordinal) == (attempt, int(found["ordinal"]))
    ]
    if not fit:
        raise UnknownError("decision", asked)
    if len(fit) > 1:
        listed = ", ".join(one.decision_id for one in fit[:CANDIDATES])
        more = ", ..." if len(fit) > CANDIDATES else ""
        raise AmbiguousIdError(f"several decisions begin with {asked!r}: {listed}{more}")
    return fit[0]
