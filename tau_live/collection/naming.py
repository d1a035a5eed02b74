"""Which rollout is meant by a host's own id, or by a session."""

from collections.abc import Container, Iterable, Sequence

from tau_live.collection.whole_runs import Told
from tau_live.errors import AmbiguousIdError, UnknownError
from tau_live.events import Event, ModelEnd, Reward, RunStart
from tau_live.rollouts import rollout_id_of
from tau_live.store.records import WholeRollout
from tau_live.store.roles import Batch

LISTED = 5


def rollout_named(store: Batch, rollout_id: str) -> str:
    """Return the rollout that has an id: as its own, or as one of its others; else the id itself.

    Args:
        store: Where it is looked for.
        rollout_id: A rollout's id, or what ``rollout_id_of`` makes of a host and its id.

    Raises:
        AmbiguousIdError: Several rollouts have it, none of which is inside another.
    """
    if store.rollouts.find_rollout(rollout_id) is not None:
        return rollout_id
    found = store.names.rollouts_of(rollout_id)
    if len(found) > 1:
        raise AmbiguousIdError(f"several runs have this id: {_listed(found)}; say which by its own")
    return found[0] if found else rollout_id


def last_run(store: Batch, session_id: str, *, host: str = "") -> str:
    """Return the rollout that began last in a session; inside it, others may have begun later.

    Args:
        store: Where it is looked for.
        session_id: What the runs of one conversation share.
        host: Whose session it is; empty where only one host has such a session.

    Raises:
        UnknownError: Nothing of the session is stored.
        AmbiguousIdError: Several hosts have a session of this id.
    """
    if host:
        last = store.names.last_of_host(session_id, host)
        found = {} if last is None else {host: last}
    else:
        found = dict(store.names.last_of(session_id))
    if not found:
        raise UnknownError("session", session_id)
    if len(found) > 1:
        raise AmbiguousIdError(
            f"several hosts have a session {session_id!r}: {_listed(sorted(found))}; say which"
        )
    return next(iter(found.values()))


def names_in(event: Event) -> Sequence[str]:
    """Return the other ids of its run that an event tells."""
    if isinstance(event, RunStart):
        return event.aliases
    return (event.response_id,) if isinstance(event, ModelEnd) and event.response_id else ()


def ids_in(told: Iterable[Told], *, known: Container[str]) -> set[str]:
    """Return all ids of the runs that a batch is about, but for those that are known."""
    ids: set[str] = set()
    for event in told:
        if not isinstance(event, Event):
            if isinstance(event, WholeRollout):
                ids.add(event.rollout.rollout_id)
            continue
        rollout_id = rollout_id_of(event.host, event.run_id)
        if rollout_id not in known:
            ids.add(rollout_id)
            for name in names_in(event):
                ids.add(rollout_id_of(event.host, name))
    return ids


def meant(store: Batch, reward: Reward) -> str:
    """Return the rollout that a reward is for: by its id, by the host's, or by its session.

    Raises:
        UnknownError: Nothing of the session is stored.
        AmbiguousIdError: Several are.
    """
    if reward.rollout_id is None and reward.session_id and not reward.run_id:
        return last_run(store, reward.session_id, host=reward.host)
    return rollout_named(store, reward.rollout_id or rollout_id_of(reward.host, reward.run_id))


def _listed(found: Sequence[str]) -> str:
    more = ", ..." if len(found) > LISTED else ""
    return ", ".join(found[:LISTED]) + more
