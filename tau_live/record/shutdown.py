"""Waiting events that are still stored when a process has no time for all of them.

The number is the size of a sparse file beside the store, because that needs no room on a disk.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from tau_live.core.events import Event, Reward, RunEnd, RunStart, Status
from tau_live.core.files import give_to_owner_of_folder
from tau_live.core.reasons import UNWRITTEN
from tau_live.core.records import Reason, rollout_id_of
from tau_live.store.roles import Store

ROOM = 512
"""So many events of runs that were started are stored all the same."""

Run: TypeAlias = tuple[str, str, str]
"""The host, the id and the execution of a run."""

LazyEvent: TypeAlias = tuple[Callable[..., Event], Run, *tuple[object, ...]]
"""What makes an event in the thread that writes, of which run it is, and what it is made of.

Nothing of it may change meanwhile. It is one tuple and no object of a class, because each object
that waits brings the next collection of Python's garbage nearer, in whichever thread that is.
"""


def keep_whole(
    waiting: Iterable[Event | LazyEvent], *, at: float
) -> tuple[list[Event | LazyEvent], int]:
    """Return what of waiting events has to be stored, so that no rollout is kept by half.

    In their order, and how many others are dropped.

    Runs that are not stored yet are left out whole, with their rewards. Those that are get the
    next ``ROOM`` events, all of their rewards, and their end, which says how many are missing.

    Args:
        waiting: The events, in their order.
        at: Epoch seconds; when runs end that have not ended by themselves.
    """
    unbegun: set[Run] = set()
    ids: set[str | None] = set()
    missing: dict[Run, int] = {}
    kept: list[Event | LazyEvent] = []
    dropped, room = 0, ROOM
    for item in waiting:
        run = run_of(item)
        if isinstance(item, RunStart):
            unbegun.add(run)
            ids.add(rollout_id_of(run[0], run[1]))
        if isinstance(item, Reward):
            is_kept = ids.isdisjoint(_ids_of(item))
        elif isinstance(item, RunEnd) and run not in unbegun:
            kept.append(replace(item, dropped=item.dropped + missing.pop(run, 0)))
            continue
        else:
            is_kept = run not in unbegun and room > 0 and run not in missing
            room -= is_kept
            if not is_kept and run not in unbegun:
                missing[run] = missing.get(run, 0) + 1
        if is_kept:
            kept.append(item)
        else:
            dropped += 1
    kept += [_abandoned_end(run, lost, at=at) for run, lost in missing.items()]
    return kept, dropped


def make_event(later: LazyEvent) -> Event:
    """Return the event. Raises: whatever kept it from being made."""
    return later[0](*later[2:])


def run_of(item: Event | LazyEvent) -> Run:
    """Return the run of an event."""
    return item[1] if isinstance(item, tuple) else (item.host, item.run_id, item.execution)


def _ids_of(reward: Reward) -> tuple[str | None, str]:
    return reward.rollout_id, rollout_id_of(reward.host, reward.run_id)


def _abandoned_end(run: Run, dropped: int, *, at: float) -> RunEnd:
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


SUFFIX = ".lost"
MOST = 2**40


def leave_losses(path: Path, number: int) -> None:
    """Leave how many events were lost; never fails, since the process ends.

    Args:
        path: The store's file.
        number: How many more.
    """
    if number <= 0 or not path.exists():
        return
    with suppress(OSError), _alone(path, os.O_RDWR | os.O_CREAT) as file:
        os.ftruncate(file, min(os.fstat(file).st_size + number, MOST))
        give_to_owner_of_folder(_file_of(path))


def losses_left(path: Path) -> int:
    """Return how many lost events wait to be counted in a store; never fails."""
    try:
        status = _file_of(path).lstat()
    except OSError:
        return 0
    return status.st_size if _is_ours(status) else 0


def take_in_losses(store: Store, path: Path) -> None:
    """Count in a store that works again what was lost.

    A file that somebody is at work on is left for the next time.

    Raises:
        StoreUnavailableError: The store cannot take it after all; it waits on.
    """
    if not losses_left(path):
        return
    with suppress(OSError), _alone(path, os.O_RDWR) as file:
        store.counters.add({UNWRITTEN: os.fstat(file).st_size})
        _file_of(path).unlink(missing_ok=True)


def _file_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _is_ours(status: os.stat_result) -> bool:
    ours = status.st_uid in {0, os.geteuid()} and not status.st_mode & 0o022
    return ours and stat.S_ISREG(status.st_mode) and status.st_size <= MOST


@contextmanager
def _alone(path: Path, flags: int) -> Iterator[int]:
    """Open the file while nobody else counts there.

    Raises:
        OSError: Somebody else does, took it away, or made it.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a pipe may never end
    file = os.open(_file_of(path), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        if not status.st_nlink or not _is_ours(status):
            raise FileNotFoundError(path)
        yield file
    finally:
        os.close(file)
