"""Which attempt of a rollout an event belongs to: read off what is stored and the event alone.

So the same events lead to the same attempts however they are cut into batches, and when they come
again. A host tells attempts apart by their number, by executions, or not at all; a resumed run goes
on in the same execution, so there the time of the event decides.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias

from tau_live import events as ev
from tau_live.rollouts import RESUMED, Attempt, attempt_id_of

Key: TypeAlias = tuple[str, str, int | None]
"""A rollout, an execution of it, and the attempt where the host counts them."""

_RESUMPTION = re.compile(rf"(?s)(?P<execution>.*){RESUMED}(?P<seq>-?[0-9]+)@.*")


def key_of(event: ev.Event, rollout_id: str) -> Key:
    """Return what events of one attempt have in common, unless it was resumed."""
    return rollout_id, event.execution, _counted(event)


def of_event(event: ev.Event, existing: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that an event belongs to; ``None`` for one that is not stored yet.

    The number decides, then the execution, then the time: of several attempts of one execution the
    latest that had begun. An event that names no execution may belong to any.
    """
    counted = _counted(event)
    if counted is not None:
        same = next((attempt for attempt in existing if attempt.number == counted), None)
        if same is None or _may_be(event, same):
            return same
    mine = [attempt for attempt in existing if _may_be(event, attempt)]
    if not mine:
        return None
    begun = [attempt for attempt in mine if had_begun(attempt, event)]
    return max(begun, key=_begin) if begun else min(mine, key=_begin)


def had_begun(attempt: Attempt, event: ev.Event) -> bool:
    """Say whether an attempt had begun when the event happened."""
    return _begin(attempt) <= (event.at, event.seq)


def number_for(event: ev.Event, existing: Sequence[Attempt]) -> int:
    """Return the number of the attempt that an event begins."""
    taken = {attempt.number for attempt in existing}
    counted = _counted(event)
    if counted is not None and counted not in taken:
        return counted
    return max(taken, default=0) + 1


def is_over(attempt: Attempt, start: ev.RunStart) -> bool:
    """Say whether a start is that of a new attempt, by a host that does not tell them apart."""
    if start.execution or _counted(start) is not None or attempt.ended_at is None:
        return False
    return start.at > attempt.ended_at


def is_certain(event: ev.Event, existing: Sequence[Attempt]) -> bool:
    """Say whether later events like this one belong to the same attempt, whatever their time."""
    return _counted(event) is not None or sum(_may_be(event, one) for one in existing) == 1


def is_last(attempt: Attempt, existing: Sequence[Attempt]) -> bool:
    """Say whether the end of an attempt is the rollout's: no later number, or no later start."""
    if len(existing) == 1:
        return True
    numbered = max(other.number for other in existing)
    begun = max(existing, key=lambda other: (_begin(other), other.number))
    return attempt.number in {numbered, begun.number}


def resumption(event: ev.RunResume) -> str:
    """Return the execution under which a resumed attempt is stored."""
    return f"{event.execution}{RESUMED}{event.seq}@{event.at!r}"


def resumed(event: ev.RunResume, existing: Sequence[Attempt]) -> int | None:
    """Return the attempt that a resumption has begun already, if it has."""
    counted, execution = _counted(event), resumption(event)
    for attempt in existing:
        if attempt.execution == execution or attempt.number == counted:
            return attempt.number
    return None


def decision_in(event: ev.Reward, existing: Sequence[Attempt]) -> str | None:
    """Return the id of the decision that a reward is for, by the attempt of its execution.

    A process that does not know of another's attempts counts its own from 1.
    """
    attempt, mark, ordinal = (event.decision_id or "").rpartition(":decision-")
    rollout_id = attempt.rpartition(":attempt-")[0]
    mine = [one for one in existing if _execution(one) == event.execution]
    if not mark or not rollout_id or len(mine) != 1:
        return event.decision_id
    return f"{attempt_id_of(rollout_id, mine[0].number)}:decision-{ordinal}"


def _counted(event: ev.Event) -> int | None:
    return event.attempt if event.attempt is not None and event.attempt > 0 else None


def _may_be(event: ev.Event, attempt: Attempt) -> bool:
    return not event.execution or event.execution in {attempt.execution, _execution(attempt)}


def _execution(attempt: Attempt) -> str:
    found = _RESUMPTION.fullmatch(attempt.execution)
    return found["execution"] if found else attempt.execution


def _begin(attempt: Attempt) -> tuple[float, int]:
    found = _RESUMPTION.fullmatch(attempt.execution)
    return attempt.started_at, int(found["seq"]) if found else 0
