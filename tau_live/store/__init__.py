"""The store: everything that lasts, in one SQLite file.

Programs that enqueue tasks and work on them import its public names from here: ``open_store`` opens
a store; ``store.queue`` holds the queues, ``store.workers`` the workers, and ``store.resources``
the prompts and settings that rollouts are made with.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tau_live.core.errors import (
        ConflictError,
        DuplicateError,
        EndedError,
        InvalidTransitionError,
        StoreBusyError,
        StoreError,
        UnknownError,
    )
    from tau_live.core.records import (
        Attempt,
        AttemptStatus,
        Claim,
        Resource,
        Rollout,
        RolloutConfig,
        RolloutMode,
        RolloutStatus,
        Span,
        Worker,
    )
    from tau_live.store.opening import open_at as open_store
    from tau_live.store.records import Condition

__all__ = [
    "Attempt",
    "AttemptStatus",
    "Claim",
    "Condition",
    "ConflictError",
    "DuplicateError",
    "EndedError",
    "InvalidTransitionError",
    "Resource",
    "Rollout",
    "RolloutConfig",
    "RolloutMode",
    "RolloutStatus",
    "Span",
    "StoreBusyError",
    "StoreError",
    "UnknownError",
    "Worker",
    "open_store",
]


def __getattr__(name: str) -> object:
    """Return a public name, imported when it is first used: parts of the store load without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tau_live.core import errors, records
    from tau_live.store import opening
    from tau_live.store import records as own

    if name == "open_store":
        return opening.open_at
    return next(getattr(module, name) for module in (records, errors, own) if hasattr(module, name))
