"""What a store can do, role by role; one contract suite holds every implementation to it.

A store object belongs to one thread. Everything that is written between ``begin`` and its end is
one transaction. Times are epoch seconds, UTC, and are always passed in: a store has no clock.
Every method may raise ``StoreUnavailableError``; a value that cannot be stored is a ``StoreError``.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from tau_live.store.alert_log import Alerts
from tau_live.store.history import (
    DecisionLog,
    DecisionRecord,
    RewardLog,
    RewardRecord,
    RolloutLog,
    RunRecord,
)
from tau_live.store.names import Names
from tau_live.store.records import WholeRollout
from tau_live.store.serving import (
    Audit,
    Counters,
    Counting,
    GateState,
    Leases,
    Monitors,
    Pauses,
    Policies,
    Resources,
    Retention,
    RolloutQueue,
    Workers,
)
from tau_live.store.surveys import Surveys
from tau_live.store.trials import Trials

__all__ = [
    "Alerts",
    "Audit",
    "Batch",
    "Counters",
    "DecisionLog",
    "GateState",
    "Leases",
    "Monitors",
    "Names",
    "Pauses",
    "Policies",
    "Resources",
    "Retention",
    "RewardLog",
    "RolloutLog",
    "RolloutQueue",
    "Store",
    "Surveys",
    "Trials",
    "Workers",
]


class Batch(Protocol):
    """What a batch of events is told to."""

    @property
    def rollouts(self) -> RunRecord:
        """Rollouts, attempts and spans."""
        ...

    @property
    def decisions(self) -> DecisionRecord:
        """Decisions."""
        ...

    @property
    def rewards(self) -> RewardRecord:
        """Rewards and what they make ready."""
        ...

    @property
    def names(self) -> Names:
        """Other ids of rollouts, and sessions."""
        ...

    @property
    def counters(self) -> Counting:
        """Counters."""
        ...

    def add_whole(self, whole: WholeRollout) -> bool:
        """Store a rollout that has ended, which nobody has told of before.

        ``False`` where something of it is known, be it a reward: then nothing of it is stored, and
        it has to be told step by step. It is not settled.
        """
        ...


class Store(Batch, Protocol):
    """All roles of one open store."""

    @property
    def rollouts(self) -> RolloutLog:
        """Rollouts, attempts and spans."""
        ...

    @property
    def decisions(self) -> DecisionLog:
        """Decisions."""
        ...

    @property
    def rewards(self) -> RewardLog:
        """Rewards and what they make ready."""
        ...

    @property
    def names(self) -> Names:
        """Other ids of rollouts, and sessions."""
        ...

    @property
    def queue(self) -> RolloutQueue:
        """The queue."""
        ...

    @property
    def workers(self) -> Workers:
        """The workers."""
        ...

    @property
    def resources(self) -> Resources:
        """Prompts and settings."""
        ...

    @property
    def policies(self) -> Policies:
        """Policies and updates."""
        ...

    @property
    def monitors(self) -> Monitors:
        """What monitors remember."""
        ...

    @property
    def trials(self) -> Trials:
        """Trials of learners."""
        ...

    @property
    def gate(self) -> GateState:
        """The gate."""
        ...

    @property
    def pauses(self) -> Pauses:
        """What rests."""
        ...

    @property
    def leases(self) -> Leases:
        """Leases."""
        ...

    @property
    def counters(self) -> Counters:
        """Counters."""
        ...

    @property
    def audit(self) -> Audit:
        """The audit."""
        ...

    @property
    def alerts(self) -> Alerts:
        """Alerts."""
        ...

    @property
    def retention(self) -> Retention:
        """Retention."""
        ...

    @property
    def surveys(self) -> Surveys:
        """What a report asks."""
        ...

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; may be nested (savepoints)."""
        ...

    def batch(self, ids: Collection[str]) -> AbstractContextManager[Batch]:
        """Open a batch, inside a transaction; it is stored when it is left without an error.

        Until then only the batch knows all that it was told, and nothing else may be written. Rows
        of several rollouts may be numbered by these, not by the order in which they were told.

        Args:
            ids: The rollouts that may be told of and are not known to be stored, by all ids that
                they may have.
        """
        ...

    def is_there(self) -> bool:
        """Say whether what was opened is still what others find under its name (cheap)."""
        ...

    def set_leftovers_aside(self) -> None:
        """Let nothing of what was opened be taken for part of what is there instead of it."""
        ...

    def changed(self) -> bool:
        """Say whether another connection has written since the last call (cheap)."""
        ...

    def export(self) -> Iterable[dict[str, object]]:
        """Yield every row that a recording determines, in a fixed order.

        ``{"table": ..., ...}`` with public ids instead of keys, without anything that depends
        on this machine, process or clock; encoded features in base64. All rows are of one
        moment, and the store may be written to while they are read.
        """
        ...

    def restore(self, rows: Iterable[Mapping[str, object]]) -> Mapping[str, int]:
        """Put rows of an export or an archive back, rollouts before what is theirs.

        What is stored already is left alone, and so are rollouts that had not ended. Returns how
        many rows were put back, by table, and how many rollouts were ``known`` or ``open``.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
