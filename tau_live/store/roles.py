"""What a store can do, role by role; one contract suite holds every implementation to it.

A store object belongs to one thread. Everything that is written between ``begin`` and its end is
one transaction. Times are epoch seconds, UTC, and are always passed in: a store has no clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tau_live.rollouts import (
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
)
from tau_live.store.records import (
    AuditEntry,
    Claim,
    GateEntry,
    GateRow,
    InService,
    LearnableRollout,
    Page,
    PolicyVersion,
    ResourcesVersion,
    RolloutQuery,
    Update,
    Worker,
)


class RolloutLog(Protocol):
    """Rollouts, attempts and spans."""

    def begin_rollout(self, rollout: Rollout) -> bool:
        """Store a rollout as it is given; ``False`` if the id is already there."""
        ...

    def set_status(
        self,
        rollout_id: str,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None = None,
        error_type: str | None = None,
        worker_id: str | None = None,
    ) -> bool:
        """Move a rollout on, if its lifecycle allows it; ``False`` if it was there already.

        Compare and set in one statement. An end sets ``ended_at`` once. An end by a worker that
        no longer holds the rollout is refused. Requeueing puts it into the queue, cancelling
        takes it out of it.

        Raises:
            UnknownError: No such rollout is stored.
            InvalidTransitionError: It cannot become ``new`` from where it stands.
        """
        ...

    def amend_rollout(
        self,
        rollout_id: str,
        *,
        name: str = "",
        session_id: str | None = None,
        parent_id: str | None = None,
        input_: object = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Fill in what a late start tells; what is already known stays."""
        ...

    def begin_attempt(self, attempt: Attempt) -> bool:
        """Store an attempt; ``False`` if its number is already there."""
        ...

    def set_attempt_status(
        self,
        rollout_id: str,
        number: int,
        new: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> bool:
        """Move an attempt on; as ``set_status``."""
        ...

    def add_span(self, span: Span) -> bool:
        """Store a span, or the end of one that is open; ``False`` if it was there already.

        A span is a heartbeat of its attempt and moves a preparing attempt (and its rollout) to
        running. The same span id again within the attempt is ignored and counted
        (``duplicate_spans``), except that a closed form of an open span closes it.
        """
        ...

    def close_spans(self, rollout_id: str, number: int, *, status: str, at: float) -> int:
        """End every open span of an attempt; return how many there were."""
        ...

    def rollout(self, rollout_id: str) -> Rollout:
        """Return one rollout. Raises: UnknownError."""
        ...

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        """Return one rollout, or ``None``."""
        ...

    def query(self, query: RolloutQuery) -> Page:
        """Return the rollouts that are asked for, and how many there are in all."""
        ...

    def attempts(self, rollout_id: str) -> list[Attempt]:
        """Return the attempts of a rollout by number."""
        ...

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        """Return the spans of a rollout (or of one attempt) in the order of arrival."""
        ...

    def open_rollouts(self, owner: str) -> list[str]:
        """Return the ids of the rollouts that this process left running."""
        ...

    def owners(self) -> list[str]:
        """Return every process that owns a rollout which is not at its end."""
        ...

    def wait_for_rollouts(
        self, ids: Sequence[str], *, statuses: Sequence[RolloutStatus], timeout_s: float
    ) -> list[Rollout]:
        """Return those of ``ids`` that have one of ``statuses``, as soon as all of them have.

        After ``timeout_s`` it returns those that are there by then. Works across processes.
        """
        ...


class DecisionLog(Protocol):
    """Decisions."""

    def add_decision(self, decision: Decision) -> bool:
        """Store a decision; ``False`` if its place in the attempt is taken."""
        ...

    def decision(self, decision_id: str) -> Decision:
        """Return one decision. Raises: UnknownError."""
        ...

    def decisions(self, rollout_id: str) -> list[Decision]:
        """Return the decisions of a rollout in the order of their places."""
        ...


class RewardLog(Protocol):
    """Rewards, joined by id whenever they come, and what they make ready for learning."""

    def add_reward(self, reward: Reward) -> str:
        """Store a reward; return ``new``, ``same``, ``replaced`` or ``older``.

        One (target, name, source, key) is one reward. The same value again is ``same``; another
        value replaces it if its ``at`` is not earlier, and is counted (``conflicting_rewards``).
        """
        ...

    def rewards(self, rollout_id: str) -> list[Reward]:
        """Return the rewards of a rollout and of its decisions, in the order of arrival."""
        ...

    def mark_ready(self, rollout_id: str, *, total_reward: float) -> bool:
        """Give a rollout its place among those that may be learned from; ``False`` if it has one.

        Its ``ready_seq`` is the next of the store's; a rollout that has one keeps it, but takes
        the new ``total_reward``.
        """
        ...

    def await_reward(self, rollout_id: str, *, until: float) -> None:
        """Note that a finished rollout waits for its reward, and until when."""
        ...

    def overdue(self, now: float, *, limit: int) -> list[str]:
        """Return the finished rollouts whose wait is over, oldest first; they wait no longer."""
        ...

    def waiting(self) -> int:
        """Return how many finished rollouts wait for their reward."""
        ...

    def ready_points(self) -> list[str]:
        """Return every decision point that has decisions in ready rollouts, sorted."""
        ...

    def ready_count(self, point: str, *, after: int) -> int:
        """Return how many ready rollouts behind ``after`` have a decision at ``point``.

        An empty point counts the ready rollouts without any decision.
        """
        ...

    def ready_rollouts(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> list[LearnableRollout]:
        """Return ready rollouts with ``after < ready_seq <= upto``, by ``ready_seq``.

        With their decisions at every point. ``newest`` takes the last ``limit`` of them instead
        of the first (still in ascending order). An empty point asks for those without a decision.
        """
        ...


class RolloutQueue(Protocol):
    """First in, first out; claimed by one worker each."""

    def enqueue(self, rollout: Rollout, *, at: float) -> None:
        """Put a rollout into the queue, as queuing. Raises: DuplicateError."""
        ...

    def claim(self, worker_id: str, *, at: float) -> Claim | None:
        """Take the oldest waiting rollout, in one statement; ``None`` when there is none.

        Live rollouts are never claimed. The rollout becomes running with this worker and
        begins a new attempt, preparing until its first heartbeat or span. Registers an unknown
        worker.
        """
        ...

    def heartbeat(self, worker_id: str, rollout_id: str, number: int, *, at: float) -> bool:
        """Say that an attempt lives; ``False`` if it is over or another worker's.

        Raises:
            UnknownError: No such worker is registered.
        """
        ...

    def finish(
        self,
        rollout_id: str,
        number: int,
        status: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> RolloutStatus:
        """End an attempt and move its rollout: done, failed, or requeued for another try.

        It is requeued while fewer than ``max_attempts`` were made and the end is among
        ``retry_on``. Returns what the rollout became.
        """
        ...

    def requeue_overdue(self, *, now: float) -> list[str]:
        """End attempts over their limits (``timeout``, ``unresponsive``) and requeue or fail them.

        Returns the ids of the rollouts concerned. Rollouts without limits in their config are
        left alone.
        """
        ...

    def length(self) -> int:
        """Return how many rollouts wait."""
        ...


class Workers(Protocol):
    """The processes that take rollouts."""

    def register(self, worker_id: str, *, at: float) -> Worker:
        """Store a worker, or note that it lives."""
        ...

    def workers(self) -> list[Worker]:
        """Return every worker by id."""
        ...


class Resources(Protocol):
    """Immutable, versioned prompts and settings."""

    def publish(self, resources: Mapping[str, object], *, at: float) -> ResourcesVersion:
        """Store a new version, which becomes the latest; it replaces the whole of the last."""
        ...

    def latest(self) -> ResourcesVersion | None:
        """Return the newest version, if there is any."""
        ...

    def version(self, version: int) -> ResourcesVersion:
        """Return one version. Raises: UnknownError."""
        ...


class Policies(Protocol):
    """Versions of policies, which of them serve, and the updates that made them."""

    def next_version(self) -> int:
        """Return the number that the next version will have."""
        ...

    def add_update(self, update: Update, policy: PolicyVersion | None) -> Update:
        """Store an update and, if it made one, its version and put that into service.

        One transaction: the update, the watermark, the version, and the pointer to it unless
        the point is pinned. ``update.update`` is given by the store. A watermark that is not
        beyond the last one of the point is refused.

        Raises:
            StoreError: Somebody else has already learned from these rollouts.
        """
        ...

    def watermark(self, point: str) -> int:
        """Return the ``last_ready`` of the newest update of a point; 0 before the first."""
        ...

    def updates(self, *, limit: int | None = None, point: str | None = None) -> list[Update]:
        """Return updates, newest first."""
        ...

    def versions(self, point: str | None = None) -> list[PolicyVersion]:
        """Return versions by number."""
        ...

    def version(self, version: int) -> PolicyVersion:
        """Return one version. Raises: UnknownError."""
        ...

    def in_service(self) -> dict[str, InService]:
        """Return what serves, by decision point."""
        ...

    def put_in_service(self, point: str, version: int, *, pinned: bool, at: float) -> InService:
        """Let a version decide; 0 is the untrained policy. Raises: UnknownError."""
        ...

    def forget_version(self, version: int) -> None:
        """Remove the row of a version whose file was pruned; never one in service."""
        ...


class GateState(Protocol):
    """The gate and its history."""

    def load(self) -> GateRow:
        """Return the gate; it passes when nothing was ever stored."""
        ...

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        """Store the gate if its revision is still ``row.revision - 1``; ``False`` if it is not."""
        ...

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        """Return the history, newest first."""
        ...


class Leases(Protocol):
    """Who may do what only one may do at a time."""

    def acquire(self, name: str, holder: str, *, ttl_s: float, now: float) -> bool:
        """Take or renew a lease in one statement; ``False`` while somebody else holds it."""
        ...

    def release(self, name: str, holder: str) -> None:
        """Give a lease back; nothing happens if it is not held."""
        ...

    def holder(self, name: str, *, now: float) -> str | None:
        """Return who holds a lease that has not run out."""
        ...

    def held(self, prefix: str, *, now: float) -> dict[str, str]:
        """Return the leases in force whose name begins so, with their holders."""
        ...


class Counters(Protocol):
    """How often something happened."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        ...

    def counts(self) -> dict[str, int]:
        """Return every counter."""
        ...


class Audit(Protocol):
    """What operators did."""

    def add(self, entry: AuditEntry) -> None:
        """Write a line."""
        ...

    def entries(self, *, limit: int | None = None) -> list[AuditEntry]:
        """Return the lines, newest first."""
        ...


class Retention(Protocol):
    """What may be forgotten."""

    def collect(self, *, before: float, limit: int) -> int:
        """Delete up to ``limit`` rollouts that ended before a time, with all that is theirs.

        Never an open one, never one that waits for its reward, never one that some decision
        point has not yet learned from (behind its watermark).
        """
        ...

    def vacuum(self) -> None:
        """Give free pages back to the file system, in steps."""
        ...


class Store(Protocol):
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
    def gate(self) -> GateState:
        """The gate."""
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
    def retention(self) -> Retention:
        """Retention."""
        ...

    def begin(self) -> AbstractContextManager[None]:
        """Open a transaction that takes the write lock at once; may be nested (savepoints)."""
        ...

    def changed(self) -> bool:
        """Say whether another connection has written since the last call (cheap)."""
        ...

    def export(self) -> Iterable[dict[str, object]]:
        """Yield every row that a recording determines, in a fixed order.

        ``{"table": ..., ...}`` with public ids instead of keys, without anything that depends
        on this machine, process or clock; encoded features in base64.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
