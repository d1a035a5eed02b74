"""The moves of the two lifecycles, each checked and made in one statement.

Every function here but ``move_attempt`` expects to run inside ``Connection.begin``: what follows a
move belongs to it.
"""

from collections.abc import Iterable
from functools import cache
from sqlite3 import Row
from typing import NamedTuple

from tau_live.errors import InvalidTransitionError, UnknownError
from tau_live.rollouts import (
    ATTEMPT_ENDS,
    ROLLOUT_ENDS,
    AttemptStatus,
    Reason,
    RolloutStatus,
    attempt_id_of,
    attempt_may_become,
    rollout_may_become,
)
from tau_live.store.connection import Connection

WAITING = (RolloutStatus.QUEUING, RolloutStatus.REQUEUING)

REASONS = {
    RolloutStatus.SUCCEEDED: Reason.COMPLETED,
    RolloutStatus.FAILED: Reason.ERROR,
    RolloutStatus.CANCELLED: Reason.CANCELLED,
}
"""Why a rollout ended when nobody says more."""

_OPEN = "status in ('preparing', 'running')"

END_ATTEMPTS = f"""
update attempts set status = ?, ended_at = coalesce(ended_at, ?),
    error_message = coalesce(error_message, ?)
where rollout_seq = ? and {_OPEN}
"""

TOUCH_ATTEMPT = f"""
update attempts set status = 'running', last_heartbeat_at = max(last_heartbeat_at, :at)
where rollout_seq = :rollout_seq and number = :number and {_OPEN}
and (:worker_id is null or worker_id = :worker_id)
"""


class Ending(NamedTuple):
    """Why a rollout moves, and who says so."""

    at: float
    reason: Reason | None = None
    error_type: str | None = None
    worker_id: str | None = None


def move_rollout(
    connection: Connection, rollout_id: str, new: RolloutStatus, ending: Ending
) -> bool:
    """Move a rollout on, with its place in the queue and its open attempts.

    Returns:
        ``False`` if it was there already.

    Raises:
        UnknownError: No such rollout is stored.
        InvalidTransitionError: It cannot become ``new`` from where it stands, or is another
            worker's.
    """
    ends = new in ROLLOUT_ENDS
    reason = ending.reason or REASONS.get(new)
    moved = connection.row(
        _rollout_move(new),
        {
            "rollout_id": rollout_id,
            "at": ending.at,
            "reason": reason if ends else None,
            "error_type": ending.error_type if ends else None,
            "worker_id": ending.worker_id,
        },
    )
    if moved is None:
        return _refuse_rollout(connection, rollout_id, new)
    if moved["enqueued"]:
        _place_in_queue(connection, moved["seq"], new, at=ending.at)
    if ends or new is RolloutStatus.REQUEUING:
        _end_attempts(connection, moved, rollout_id, new=new, ending=ending)
    return True


@cache
def _rollout_move(new: RolloutStatus) -> str:
    if new in ROLLOUT_ENDS:
        change = """
            ended_at = coalesce(ended_at, :at), reason = :reason,
            error_type = coalesce(:error_type, error_type)
        """
        holder = "worker_id = :worker_id"
    elif new in WAITING:
        change = "ended_at = null, reason = null, error_type = null, worker_id = null"
        holder = "worker_id = :worker_id"
    else:
        change = """
            started_at = coalesce(started_at, :at), ended_at = null, reason = null,
            error_type = null, worker_id = coalesce(worker_id, :worker_id)
        """
        holder = "worker_id is null or worker_id = :worker_id"
    return f"""
        update rollouts set status = '{new}', {change}
        where rollout_id = :rollout_id
        and status in ({_listed(old for old in rollout_may_become(new) if old is not new)})
        and (:worker_id is null or {holder})
        returning seq, enqueued
    """


def _refuse_rollout(connection: Connection, rollout_id: str, new: RolloutStatus) -> bool:
    found = connection.row("select status from rollouts where rollout_id = ?", (rollout_id,))
    if found is None:
        raise UnknownError("rollout", rollout_id)
    if found["status"] == new:
        return False
    raise InvalidTransitionError("rollout", rollout_id, old=found["status"], new=new)


def _place_in_queue(
    connection: Connection, rollout_seq: int, new: RolloutStatus, *, at: float
) -> None:
    if new in WAITING:
        connection.change(
            "insert into queue (rollout_seq, at) values (?, ?) on conflict do nothing",
            (rollout_seq, at),
        )
    else:
        connection.change("delete from queue where rollout_seq = ?", (rollout_seq,))


def _end_attempts(
    connection: Connection, moved: Row, rollout_id: str, *, new: RolloutStatus, ending: Ending
) -> None:
    succeeded = new is RolloutStatus.SUCCEEDED
    connection.change(
        END_ATTEMPTS,
        (
            AttemptStatus.SUCCEEDED if succeeded else AttemptStatus.FAILED,
            ending.at,
            None if succeeded else ending.error_type or ending.reason or new,
            moved["seq"],
        ),
    )
    free_worker(connection, rollout_id)


def move_attempt(
    connection: Connection,
    rollout_id: str,
    number: int,
    new: AttemptStatus,
    *,
    at: float,
    error_message: str | None,
) -> bool:
    """Move an attempt on; ``False`` if it was there already.

    Raises:
        UnknownError: No such attempt is stored.
        InvalidTransitionError: It cannot become ``new`` from where it stands.
    """
    moved = connection.change(
        _attempt_move(new),
        {"rollout_id": rollout_id, "number": number, "at": at, "error": error_message},
    )
    if moved:
        return True
    found = connection.row(
        """
        select status from attempts
        where rollout_seq = (select seq from rollouts where rollout_id = ?) and number = ?
        """,
        (rollout_id, number),
    )
    if found is None:
        raise UnknownError("attempt", attempt_id_of(rollout_id, number))
    if found["status"] == new:
        return False
    raise InvalidTransitionError(
        "attempt", attempt_id_of(rollout_id, number), old=found["status"], new=new
    )


@cache
def _attempt_move(new: AttemptStatus) -> str:
    if new in ATTEMPT_ENDS:
        change = "ended_at = coalesce(ended_at, :at), error_message = :error"
    else:
        change = "last_heartbeat_at = max(last_heartbeat_at, :at), error_message = :error"
    return f"""
        update attempts set status = '{new}', {change}
        where rollout_seq = (select seq from rollouts where rollout_id = :rollout_id)
        and number = :number
        and status in ({_listed(old for old in attempt_may_become(new) if old is not new)})
    """


def touch_attempt(
    connection: Connection,
    rollout_seq: int,
    number: int,
    *,
    at: float,
    worker_id: str | None = None,
) -> bool:
    """Note that an open attempt lives, which begins it and its rollout if they were preparing.

    Returns:
        ``False`` if it is over, or another worker's than ``worker_id``.
    """
    touched = connection.change(
        TOUCH_ATTEMPT,
        {"rollout_seq": rollout_seq, "number": number, "at": at, "worker_id": worker_id},
    )
    if touched:
        connection.change(
            "update rollouts set status = 'running' where seq = ? and status = 'preparing'",
            (rollout_seq,),
        )
    return touched > 0


def free_worker(connection: Connection, rollout_id: str) -> None:
    """Note that nobody works on a rollout any more."""
    connection.change(
        """
        update workers set active_rollout_id = null, active_attempt = null
        where active_rollout_id = ?
        """,
        (rollout_id,),
    )


def _listed(statuses: Iterable[str]) -> str:
    return ", ".join(f"'{status}'" for status in statuses)
