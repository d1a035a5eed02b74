"""Rollouts by the beginning of their id."""

from tau_live.errors import TauLiveError, UnknownError
from tau_live.rollouts import Rollout
from tau_live.store.roles import Store

CANDIDATES = 5


class AmbiguousIdError(TauLiveError):
    """Several rollouts have an id that begins so."""


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
