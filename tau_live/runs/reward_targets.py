"""The target of a reward, as a host names it."""

from typing import NamedTuple

from tau_live.handed.values import ID_LIMIT, KEY_LIMIT, text_of
from tau_live.privacy.redaction import clean_id
from tau_live.rollouts import rollout_id_of
from tau_live.runs.handles import RunHandle


class Target(NamedTuple):
    """What a reward is for: a rollout, a host's run, or the last run of a session.

    Attributes:
        rollout_id: The rollout's id, where it is known by that.
        host: The host whose run or session it is; empty where that is not said.
        run_id: The host's id of the run, or another id that it gave to it.
        session_id: The session whose last run is meant.
    """

    rollout_id: str | None = None
    host: str = ""
    run_id: str = ""
    session_id: str | None = None

    @property
    def known_id(self) -> str | None:
        """The id of the rollout, unless only the store can tell."""
        return rollout_id_of(self.host, self.run_id) if self.run_id else self.rollout_id


def target_of(
    *, run: object, decision: object, host: object, session: object, inside: RunHandle | None
) -> Target | None:
    """Return what a reward is for; a decision's id begins with its rollout's.

    Returns:
        ``None`` where nothing is meant, or two things are: a run and a session; or one that is
        not recorded.
    """
    of_decision = "" if decision is None else text_of(decision, limit=ID_LIMIT)
    if ":attempt-" in of_decision:
        return Target(of_decision.rpartition(":attempt-")[0])
    if decision is not None and run is None:
        return None
    theirs = "" if host is None else text_of(host)
    if session is not None:
        return Target(host=theirs, session_id=text_of(session)) if run is None else None
    if run is not None:
        own = text_of(run, limit=ID_LIMIT if not theirs else KEY_LIMIT)
        if not own or (not theirs and _is_left_out(inside, own)):
            return None
        return Target(host=theirs, run_id=clean_id(own)) if theirs else Target(own)
    return Target(inside.rollout_id) if inside and inside.recorded and not theirs else None


def _is_left_out(inside: RunHandle | None, rollout_id: str) -> bool:
    """Say whether what is meant is the run around, and that is not recorded."""
    return inside is not None and not inside.recorded and inside.rollout_id == rollout_id


def decided_before(target: Target, inside: RunHandle | None, *, home: object) -> int | None:
    """Return how many decisions the run that is meant has made, if it goes on here and now."""
    known, run = target.known_id, inside
    while run is not None and run.rollout_id != known:
        run = run.parent
    return run.decided if run is not None and run.home is home and not run.ended else None
