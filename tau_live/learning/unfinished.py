"""Checkpoints that are being made, noted in the store so that none is left behind.

The name of a file is noted before the file is there, and the note goes in the very transaction
that makes the version known. A note that is found while nobody else may learn is of an update that
died, and so is the file that it names.
"""

import math
from pathlib import Path

from tau_live import fault
from tau_live.errors import LeaseLostError
from tau_live.machine.whole_files import left_behind, sweep
from tau_live.policies.checkpoints import is_checkpoint
from tau_live.store.roles import Store

NOTE = "checkpoint:"
"""Begins the name of the lease that notes a file."""


def note(store: Store, file: str, holder: str, *, ttl_s: float, now: float) -> None:
    """Note that a checkpoint of this name is about to be made.

    Only for the holder of the lease. The same rollouts and settings make the same name again, so
    a note of whoever died at it is taken over.
    """
    name = NOTE + file
    with store.begin():
        other = store.leases.holder(name, now=0.0)
        if other is not None:
            store.leases.release(name, other)
        store.leases.acquire(name, holder, ttl_s=ttl_s, now=now)
    fault.point("update.meant")


def settle(store: Store, path: Path, holder: str) -> None:
    """Take the note back, inside the transaction that makes the version known.

    Raises:
        LeaseLostError: Another learner has swept the file away, or has noted it for itself.
    """
    name = NOTE + path.name
    if store.leases.holder(name, now=0.0) != holder or not path.exists():
        raise LeaseLostError(f"the checkpoint {path.name} was deleted before it was recorded")
    store.leases.release(name, holder)


def _noted(store: Store) -> dict[str, str]:
    """Return every note with its holder, whether its time has run out or not."""
    return store.leases.ending(NOTE, after=-math.inf, until=math.inf)


def has_left(store: Store, folder: Path) -> bool:
    """Say whether an update was begun that is not done, by this process or another."""
    return bool(_noted(store) or left_behind(folder))


def swept(store: Store, folder: Path) -> list[str]:
    """Delete what updates left behind that died, and return its names.

    Only for the holder of the lease: nobody else may be making a checkpoint.
    """
    found = sweep(folder)
    for name, holder in _noted(store).items():
        file = name.removeprefix(NOTE)
        with store.begin():  # or it might become known between the look and the deletion
            known = file in {row.file for row in store.policies.versions()}
            if not known and is_checkpoint(file) and (folder / file).exists():
                (folder / file).unlink()
                found.append(file)
            store.leases.release(name, holder)
        fault.point("learner.swept")
    return found
