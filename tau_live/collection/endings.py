"""How the end of a run is stored: one table from the host's status to the rollout's.

An end that nobody wanted (an error, a limit, a process that died, an interruption) is a failure:
the same run may be tried again. Cancelled is what somebody cancelled; nothing follows on that.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tau_live import events as ev
from tau_live.rollouts import AttemptStatus, Reason, RolloutStatus


class Ending(NamedTuple):
    """How a run's end is stored."""

    rollout: RolloutStatus
    attempt: AttemptStatus
    reason: Reason


_BY_REASON: Mapping[Reason, Ending] = {
    reason: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, reason) for reason in Reason
} | {
    Reason.COMPLETED: Ending(RolloutStatus.SUCCEEDED, AttemptStatus.SUCCEEDED, Reason.COMPLETED),
    Reason.CANCELLED: Ending(RolloutStatus.CANCELLED, AttemptStatus.FAILED, Reason.CANCELLED),
    Reason.TIMEOUT: Ending(RolloutStatus.FAILED, AttemptStatus.TIMEOUT, Reason.TIMEOUT),
    Reason.ABANDONED: Ending(RolloutStatus.FAILED, AttemptStatus.UNRESPONSIVE, Reason.ABANDONED),
}

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


def ending_for(reason: Reason) -> Ending:
    """Return what a run becomes that ends for this reason."""
    return _BY_REASON[reason]


def ending_of(event: ev.RunEnd) -> Ending:
    """Return what a host's end makes of a run.

    ``status`` says how it ended and ``reason`` why; where there is but one of them it says both.
    """
    if event.status is None:
        unsaid = Reason.COMPLETED if event.error is None else Reason.ERROR
        return ending_for(event.reason or unsaid)
    ending = ending_for(_REASONS[event.status])
    if event.reason is None:
        return ending
    said = ending_for(event.reason)
    attempt = said.attempt if said.rollout is ending.rollout else ending.attempt
    return ending._replace(reason=event.reason, attempt=attempt)
