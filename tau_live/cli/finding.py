"""Rollouts by the beginning of their id."""

from collections.abc import Iterator

from tau_live.errors import TauLiveError, UnknownError
from tau_live.rollouts import Rollout
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store

PAGE = 1000
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
    found: list[Rollout] = []
    for rollout in _beginning_with(store, beginning):
        found.append(rollout)
        if len(found) > CANDIDATES:
            break
    if not found:
        raise UnknownError("rollout", beginning)
    if len(found) > 1:
        listed = ", ".join(rollout.rollout_id for rollout in found[:CANDIDATES])
        more = ", ..." if len(found) > CANDIDATES else ""
        raise AmbiguousIdError(f"several rollouts begin with {beginning!r}: {listed}{more}")
    return found[0]


def _beginning_with(store: Store, beginning: str) -> Iterator[Rollout]:
    if not beginning:
        return
    after = 0
    while True:
        page = store.rollouts.query(RolloutQuery(after=after, limit=PAGE)).rollouts
        yield from (
            rollout
            for rollout in page
            if rollout.rollout_id.removeprefix("live-").startswith(beginning)
            or rollout.rollout_id.startswith(beginning)
        )
        if len(page) < PAGE:
            return
        after = page[-1].seq
