"""What is still stored of events that wait when a process has no more time for all of them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tau_live.events import Event, Reward, RunEnd, RunStart, Status
from tau_live.rollouts import Reason, rollout_id_of

ROOM = 512
"""So many events of runs that were begun are stored all the same."""

Run: TypeAlias = tuple[str, str, str]
"""The host, the id and the execution of a run."""

Later: TypeAlias = tuple[Callable[..., Event], Run, *tuple[object, ...]]
"""What makes an event in the thread that writes, of which run it is, and what it is made of.

Nothing of it may change meanwhile. It is one tuple and no object of a class, because each object
that waits brings the next collection of Python's garbage nearer, in whichever thread that is.
"""


class Left(NamedTuple):
    """What became of events for which there was no time.

    Attributes:
        kept: Those that are stored all the same, in their order.
        dropped: How many are not.
    """

    kept: list[Event | Later]
    dropped: int


def left(waiting: Iterable[Event | Later], *, at: float) -> Left:
    """Return what of waiting events has to be stored, so that no rollout is kept by half.

    Runs that are not stored yet are left out whole, with their rewards. Those that are get the
    next ``ROOM`` events, all of their rewards, and their end, which says how many are missing.

    Args:
        waiting: The events, in their order.
        at: Epoch seconds; when runs end that have not ended by themselves.
    """
    unbegun: set[Run] = set()
    ids: set[str | None] = set()
    missing: dict[Run, int] = {}
    kept: list[Event | Later] = []
    dropped, room = 0, ROOM
    for one in waiting:
        run = run_of(one)
        if isinstance(one, RunStart):
            unbegun.add(run)
            ids.add(rollout_id_of(run[0], run[1]))
        if isinstance(one, Reward):
            is_kept = ids.isdisjoint(_ids_of(one))
        elif isinstance(one, RunEnd) and run not in unbegun:
            kept.append(replace(one, dropped=one.dropped + missing.pop(run, 0)))
            continue
        else:
            is_kept = run not in unbegun and room > 0 and run not in missing
            room -= is_kept
            if not is_kept and run not in unbegun:
                missing[run] = missing.get(run, 0) + 1
        if is_kept:
            kept.append(one)
        else:
            dropped += 1
    kept += [_abandoned(run, lost, at=at) for run, lost in missing.items()]
    return Left(kept, dropped)


def made(later: Later) -> Event:
    """Return the event. Raises: whatever kept it from being made."""
    return later[0](*later[2:])


def run_of(one: Event | Later) -> Run:
    """Return the run of an event."""
    return one[1] if isinstance(one, tuple) else (one.host, one.run_id, one.execution)


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
