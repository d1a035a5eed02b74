"""The rollout and attempt that an event belongs to, and how a run's end is stored.

The same events lead to the same attempts however they are cut into batches, and when they are
repeated. A host distinguishes attempts by their number, by executions, or not at all; a resumed run
goes on in the same execution, so there the time of the event decides.

An unwanted end (an error, a limit, a dead process, an interruption) is a failure: the same run may
be tried again. A cancelled run is not tried again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tau_live.core import events as ev
from tau_live.core.errors import AmbiguousIdError, UnknownError
from tau_live.core.events import Event, ModelEnd, Reward, RunStart
from tau_live.core.records import (
    RESUMED,
    Attempt,
    AttemptStatus,
    Reason,
    RolloutStatus,
    WholeRollout,
    attempt_id_of,
    rollout_id_of,
)
from tau_live.record.whole_runs import RecordItem
from tau_live.store.roles import Batch

Key: TypeAlias = tuple[str, str, int | None]
"""A rollout, its execution, and the attempt's number if the host counts attempts."""

_RESUMPTION = re.compile(rf"(?s)(?P<execution>.*){RESUMED}(?P<seq>-?[0-9]+)@.*")


def key_of(event: ev.Event, rollout_id: str) -> Key:
    """Return the key that the events of one attempt share, unless it was resumed."""
    return rollout_id, event.execution, _attempt_number(event)


def of_event(event: ev.Event, existing: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that an event belongs to; ``None`` for one that is not stored yet.

    The number decides, then the execution, then the time: of several attempts of one execution the
    latest that had started. An event that names no execution may belong to any.
    """
    number = _attempt_number(event)
    if number is not None:
        same = next((attempt for attempt in existing if attempt.number == number), None)
        if same is None or _may_belong(event, same):
            return same
    candidates = [attempt for attempt in existing if _may_belong(event, attempt)]
    if not candidates:
        return None
    started = [attempt for attempt in candidates if had_started(attempt, event)]
    return max(started, key=_begin) if started else min(candidates, key=_begin)


def had_started(attempt: Attempt, event: ev.Event) -> bool:
    """Return whether an attempt had started when the event happened."""
    return _begin(attempt) <= (event.at, event.seq)


def number_for(event: ev.Event, existing: Sequence[Attempt]) -> int:
    """Return the number of the attempt that an event begins."""
    taken = {attempt.number for attempt in existing}
    number = _attempt_number(event)
    if number is not None and number not in taken:
        return number
    return max(taken, default=0) + 1


def is_over(attempt: Attempt, start: ev.RunStart) -> bool:
    """Return whether a start begins a new attempt, of a host that does not distinguish them."""
    if start.execution or _attempt_number(start) is not None or attempt.ended_at is None:
        return False
    return start.at > attempt.ended_at


def is_certain(event: ev.Event, existing: Sequence[Attempt]) -> bool:
    """Return whether later events like this one belong to the same attempt, whatever their time."""
    return (
        _attempt_number(event) is not None
        or sum(_may_belong(event, attempt) for attempt in existing) == 1
    )


def is_last(attempt: Attempt, existing: Sequence[Attempt]) -> bool:
    """Return whether the end of an attempt is the rollout's: no later number, or no later start."""
    if len(existing) == 1:
        return True
    numbered = max(other.number for other in existing)
    latest = max(existing, key=lambda other: (_begin(other), other.number))
    return attempt.number in {numbered, latest.number}


def resumption(event: ev.RunResume) -> str:
    """Return the execution under which a resumed attempt is stored."""
    return f"{event.execution}{RESUMED}{event.seq}@{event.at!r}"


def resumed_attempt(event: ev.RunResume, existing: Sequence[Attempt]) -> int | None:
    """Return the number of the attempt that a resumption has started already, if any."""
    number, execution = _attempt_number(event), resumption(event)
    for attempt in existing:
        if attempt.execution == execution or attempt.number == number:
            return attempt.number
    return None


def decision_in(event: ev.Reward, existing: Sequence[Attempt]) -> str | None:
    """Return the id of the decision that a reward is for, with the attempt of its execution.

    A process that does not know of another's attempts numbers its own from 1.
    """
    attempt, mark, ordinal = (event.decision_id or "").rpartition(":decision-")
    rollout_id = attempt.rpartition(":attempt-")[0]
    own = [attempt for attempt in existing if _execution(attempt) == event.execution]
    if not mark or not rollout_id or len(own) != 1:
        return event.decision_id
    return f"{attempt_id_of(rollout_id, own[0].number)}:decision-{ordinal}"


def _attempt_number(event: ev.Event) -> int | None:
    return event.attempt if event.attempt is not None and event.attempt > 0 else None


def _may_belong(event: ev.Event, attempt: Attempt) -> bool:
    return not event.execution or event.execution in {attempt.execution, _execution(attempt)}


def _execution(attempt: Attempt) -> str:
    match = _RESUMPTION.fullmatch(attempt.execution)
    return match["execution"] if match else attempt.execution


def _begin(attempt: Attempt) -> tuple[float, int]:
    match = _RESUMPTION.fullmatch(attempt.execution)
    return attempt.started_at, int(match["seq"]) if match else 0


LISTED = 5


def rollout_named(batch: Batch, rollout_id: str) -> str:
    """Return the rollout with this id, or with this other id; else the id itself.

    Args:
        batch: The batch to search.
        rollout_id: A rollout's id, or ``rollout_id_of`` a host and its id.

    Raises:
        AmbiguousIdError: Several rollouts have it, none of which is inside another.
    """
    if batch.find_rollout(rollout_id) is not None:
        return rollout_id
    rollouts = batch.rollouts_of(rollout_id)
    if len(rollouts) > 1:
        raise AmbiguousIdError(
            f"several runs have this id: {_shorten(rollouts)}; say which by its own"
        )
    return rollouts[0] if rollouts else rollout_id


def last_run(batch: Batch, session_id: str, *, host: str = "") -> str:
    """Return the last outermost rollout of a session; runs inside it may have started later.

    Args:
        batch: The batch to search.
        session_id: The id that the runs of one conversation share.
        host: The host of the session; empty if only one host has a session with this id.

    Raises:
        UnknownError: Nothing of the session is stored.
        AmbiguousIdError: Several hosts have a session of this id.
    """
    by_host = batch.last_of(session_id, host or None)
    if not by_host:
        raise UnknownError("session", session_id)
    if len(by_host) > 1:
        raise AmbiguousIdError(
            f"several hosts have a session {session_id!r}: {_shorten(sorted(by_host))}; say which"
        )
    return next(iter(by_host.values()))


def names_in(event: Event) -> Sequence[str]:
    """Return the other ids of its run that an event holds."""
    if isinstance(event, RunStart):
        return event.aliases
    return (event.response_id,) if isinstance(event, ModelEnd) and event.response_id else ()


def ids_in(items: Iterable[RecordItem]) -> list[str]:
    """Return all ids of the runs in a batch, in their order, and of those that they run in."""
    ids: dict[str, None] = {}
    for event in items:
        if isinstance(event, Event):
            ids[rollout_id_of(event.host, event.run_id)] = None
            if isinstance(event, RunStart) and event.parent_run_id:
                ids[rollout_id_of(event.parent_host or event.host, event.parent_run_id)] = None
            for name in names_in(event):
                ids[rollout_id_of(event.host, name)] = None
        elif isinstance(event, WholeRollout):
            ids[event.rollout.rollout_id] = None
    return [*ids]


def rollout_of_reward(batch: Batch, reward: Reward) -> str:
    """Return the rollout that a reward is for: by its id, by the host's, or by its session.

    Raises:
        UnknownError: No rollout of the session is stored.
        AmbiguousIdError: Several rollouts, or sessions of several hosts, match.
    """
    if reward.rollout_id is None and reward.session_id and not reward.run_id:
        return last_run(batch, reward.session_id, host=reward.host)
    return rollout_named(batch, reward.rollout_id or rollout_id_of(reward.host, reward.run_id))


def _shorten(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


class Ending(NamedTuple):
    """The stored form of a run's end.

    Attributes:
        rollout: The status of the rollout.
        attempt: The status of its attempt.
        reason: The reason of the rollout's end.
        spans: The status of spans that the run left open.
    """

    rollout: RolloutStatus
    attempt: AttemptStatus
    reason: Reason
    spans: str = "unknown"


ENDINGS: Mapping[Reason, Ending] = {
    reason: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, reason) for reason in Reason
} | {
    Reason.COMPLETED: Ending(RolloutStatus.SUCCEEDED, AttemptStatus.SUCCEEDED, Reason.COMPLETED),
    Reason.CANCELLED: Ending(
        RolloutStatus.CANCELLED, AttemptStatus.FAILED, Reason.CANCELLED, spans="cancelled"
    ),
    Reason.TIMEOUT: Ending(RolloutStatus.FAILED, AttemptStatus.TIMEOUT, Reason.TIMEOUT),
    Reason.ABANDONED: Ending(RolloutStatus.FAILED, AttemptStatus.UNRESPONSIVE, Reason.ABANDONED),
}

"""The ending of a run, by its reason."""

_REASONS: Mapping[ev.Status, Reason] = {
    ev.Status.OK: Reason.COMPLETED,
    ev.Status.ERROR: Reason.ERROR,
    ev.Status.CANCELLED: Reason.CANCELLED,
    ev.Status.INTERRUPTED: Reason.INTERRUPTED,
    ev.Status.LIMIT: Reason.LIMIT,
    ev.Status.VETOED: Reason.SAFETY_BLOCKED,
    ev.Status.RETRY: Reason.ERROR,
    ev.Status.UNKNOWN: Reason.ABANDONED,
}


def ending_of(event: ev.RunEnd) -> Ending:
    """Return the ending of a run from the host's event.

    ``status`` is how it ended and ``reason`` why; if only one is given, it stands for both.
    """
    if event.status is None:
        default = Reason.COMPLETED if event.error is None else Reason.ERROR
        return ENDINGS[event.reason or default]
    ending = ENDINGS[_REASONS[event.status]]
    if event.reason is None:
        return ending
    by_reason = ENDINGS[event.reason]
    attempt = by_reason.attempt if by_reason.rollout is ending.rollout else ending.attempt
    return ending._replace(reason=event.reason, attempt=attempt)
