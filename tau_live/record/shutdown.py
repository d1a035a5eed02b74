"""The end of a process: which waiting events are still stored, and the count of lost ones.

The count is the size of a sparse file beside the store, because that needs no room on a disk.
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
"""How many events of started runs are still stored."""

Run: TypeAlias = tuple[str, str, str]
"""The host, the id and the execution of a run."""

LazyEvent: TypeAlias = tuple[Callable[..., Event], Run, *tuple[object, ...]]
"""A function that makes an event in the writer's thread, the event's run, and the arguments.

The arguments must not change meanwhile. It is a single tuple, because each waiting object brings
Python's next garbage collection nearer, in whichever thread that runs.
"""


def keep_whole(
    waiting: Iterable[Event | LazyEvent], *, at: float
) -> tuple[list[Event | LazyEvent], int]:
    """Return the waiting events to store so that no rollout is stored by half, and how many drop.

    Runs that are not stored yet are dropped whole, with their rewards. Of the others, the next
    ``ROOM`` events, all rewards and the ends are kept; an end holds the number of missing events.

    Args:
        waiting: The events, in their order.
        at: Epoch seconds of the ends of runs that have not ended by themselves.
    """
    not_stored: set[Run] = set()
    ids: set[str | None] = set()
    missing: dict[Run, int] = {}
    kept: list[Event | LazyEvent] = []
    dropped, room = 0, ROOM
    for item in waiting:
        run = run_of(item)
        if isinstance(item, RunStart):
            not_stored.add(run)
            ids.add(rollout_id_of(run[0], run[1]))
        if isinstance(item, Reward):
            is_kept = ids.isdisjoint(_ids_of(item))
        elif isinstance(item, RunEnd) and run not in not_stored:
            kept.append(replace(item, dropped=item.dropped + missing.pop(run, 0)))
            continue
        else:
            is_kept = run not in not_stored and room > 0 and run not in missing
            room -= is_kept
            if not is_kept and run not in not_stored:
                missing[run] = missing.get(run, 0) + 1
        if is_kept:
            kept.append(item)
        else:
            dropped += 1
    kept += [_abandoned_end(run, lost, at=at) for run, lost in missing.items()]
    return kept, dropped


def make_event(later: LazyEvent) -> Event:
    """Return the event of a lazy one. Raises: whatever its function raises."""
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
    """Add to the count of lost events beside the store; never raises, since the process ends.

    Args:
        path: The store's file.
        number: How many events were lost.
    """
    if number <= 0 or not path.exists():
        return
    with suppress(OSError), _open_locked(path, os.O_RDWR | os.O_CREAT) as file:
        os.ftruncate(file, min(os.fstat(file).st_size + number, MOST))
        give_to_owner_of_folder(_file_of(path))


def losses_left(path: Path) -> int:
    """Return how many lost events wait to be counted in a store; never raises."""
    try:
        status = _file_of(path).lstat()
    except OSError:
        return 0
    return status.st_size if _is_ours(status) else 0


def take_in_losses(store: Store, path: Path) -> None:
    """Count lost events in a store that works again.

    A file that another process has locked is left for the next time.

    Raises:
        StoreUnavailableError: The store fails after all; the count is kept.
    """
    if not losses_left(path):
        return
    with suppress(OSError), _open_locked(path, os.O_RDWR) as file:
        store.counters.add({UNWRITTEN: os.fstat(file).st_size})
        _file_of(path).unlink(missing_ok=True)


def _file_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _is_ours(status: os.stat_result) -> bool:
    ours = status.st_uid in {0, os.geteuid()} and not status.st_mode & 0o022
    return ours and stat.S_ISREG(status.st_mode) and status.st_size <= MOST


@contextmanager
def _open_locked(path: Path, flags: int) -> Iterator[int]:
    """Open and lock the file.

    Raises:
        OSError: Another process has locked or removed it, or it belongs to another user.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe may never end
    file = os.open(_file_of(path), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file)
        if not status.st_nlink or not _is_ours(status):
            raise FileNotFoundError(path)
        yield file
    finally:
        os.close(file)
