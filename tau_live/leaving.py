"""What is still stored of events that wait when a process has no more time for all of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tau_live.events import Event, Reward, RunEnd, RunStart, Status
from tau_live.rollouts import Reason, rollout_id_of

Run: TypeAlias = tuple[str, str, str]
"""The host, the id and the execution of a run."""


class Left(NamedTuple):
    """What became of events for which there was no time.

    Attributes:
        kept: Those that are stored all the same, in their order.
        dropped: How many are not.
    """

    kept: list[Event]
    dropped: int


def left(waiting: Iterable[tuple[Run, Event | None]], *, at: float) -> Left:
    """Return what of waiting events has to be stored, so that no rollout is kept by half.

    Runs that are not stored yet are left out whole, with their rewards. Those that are get their
    end, which says how many of their events are missing, and all of their rewards.

    Args:
        waiting: The run of each event, and the event where it is made already.
        at: Epoch seconds; when runs end that have not ended by themselves.
    """
    unbegun: set[Run] = set()
    ids: set[str | None] = set()
    missing: dict[Run, int] = {}
    kept: list[Event] = []
    dropped = 0
    for run, event in waiting:
        if isinstance(event, RunStart):
            unbegun.add(run)
            ids.add(rollout_id_of(run[0], run[1]))
        if isinstance(event, Reward) and ids.isdisjoint(_ids_of(event)):
            kept.append(event)
        elif isinstance(event, RunEnd) and run not in unbegun:
            kept.append(replace(event, dropped=event.dropped + missing.pop(run, 0)))
        else:
            dropped += 1
            if run not in unbegun and not isinstance(event, Reward):
                missing[run] = missing.get(run, 0) + 1
    kept += [_abandoned(run, lost, at=at) for run, lost in missing.items()]
    return Left(kept, dropped)


def _ids_of(reward: Reward) -> tuple[str | None, str]:
    return reward.rollout_id, rollout_id_of(reward.host, reward.run_id)


def _abandoned(run: Run, dropped: int, *, at: float) -> RunEnd:
    host, run_id, execution = run
    return RunEnd(
        host=host,
        run_id=run_id,
        execution=execution,
        at=at,
        status=Status.ERROR,
        reason=Reason.ABANDONED,
        dropped=dropped,
    )
