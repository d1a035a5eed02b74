"""What a store can do for those who work on it: workers, learners, the gate, operators."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from tau_live.gate import GateEntry, GateRow
from tau_live.pauses import Part, Pause
from tau_live.rollouts import AttemptStatus, Rollout, RolloutStatus
from tau_live.store.keeping import OLDEST, Archive, Kept, Place, Size, Swept
from tau_live.store.records import (
    NO_COSTS,
    AuditEntry,
    Charged,
    Claim,
    CostsSeen,
    InService,
    Monitor,
    PolicyVersion,
    ResourcesVersion,
    Update,
    Worker,
)


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
        ``retry_on``. Only the newest attempt moves its rollout. Returns what the rollout became.

        Raises:
            ValueError: ``status`` is no end of an attempt.
            UnknownError: No such attempt is stored.
            InvalidTransitionError: The attempt is over; its rollout is left alone.
        """
        ...

    def requeue_overdue(self, *, now: float) -> list[str]:
        """End attempts over their limits (``timeout``, ``unresponsive``) and requeue or fail them.

        Of two limits the one that ran out first counts. Returns the ids of the rollouts
        concerned, in that order. Rollouts without limits in their config are left alone.
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

    def watermark(self, point: str, *, executed: bool = False) -> int:
        """Return the ``last_ready`` of the newest update of a point; 0 before the first.

        With ``executed`` of the newest that learned something: a skipped update moves the
        schedule on, but its rollouts are still to be learned from.
        """
        ...

    def newest_update(self, point: str) -> int:
        """Return the number of the newest update of a point; 0 before the first."""
        ...

    def updates(self, *, limit: int | None = None, point: str | None = None) -> list[Update]:
        """Return updates, newest first."""
        ...

    def versions(
        self, point: str | None = None, *, limit: int | None = None
    ) -> list[PolicyVersion]:
        """Return versions by number, of which only the newest ``limit``."""
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


class Monitors(Protocol):
    """What the monitors of each decision point remember from one update to the next."""

    def monitors(self) -> dict[str, Monitor]:
        """Return every monitor by its point."""
        ...

    def monitor(self, point: str) -> Monitor:
        """Return the monitor of a point; one that has seen nothing if none is stored."""
        ...

    def save(self, monitor: Monitor, costs: Mapping[int, float] = NO_COSTS) -> bool:
        """Store a monitor if it has seen more than the stored one; ``False`` if not.

        Belongs into the transaction that stores the update which showed it the rollouts.

        Args:
            monitor: What is to be remembered.
            costs: What the price has counted of rollouts, by ``ready_seq``.
        """
        ...

    def charged(
        self, point: str, seen: CostsSeen, *, at: float, waits: Sequence[float]
    ) -> list[Charged]:
        """Return rollouts whose cost may be another than was counted, by ``ready_seq``.

        Those that got a reward meanwhile, and those whose wait for a reward has ended meanwhile.

        Args:
            point: The decision point.
            seen: Up to where costs were counted before.
            at: Epoch seconds, until when a wait may have ended.
            waits: How long rewards are waited for after the end of a rollout, in seconds.
        """
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

    def until(self, name: str) -> float | None:
        """Return when a lease runs out or has run out; ``None`` if nobody took it."""
        ...

    def held(self, prefix: str, *, now: float) -> dict[str, str]:
        """Return the leases in force whose name begins so, with their holders."""
        ...

    def ending(self, prefix: str, *, after: float, until: float) -> dict[str, str]:
        """Return the leases whose name begins so and that end in a time, with their holders.

        Args:
            prefix: How their names begin.
            after: Epoch seconds, UTC; those that ended then or before are passed over.
            until: Epoch seconds, UTC; those that end later are passed over.
        """
        ...


class Counting(Protocol):
    """Counts how often something happens."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Add to counters."""
        ...


class Counters(Counting, Protocol):
    """How often something happened."""

    def counts(self) -> dict[str, int]:
        """Return every counter."""
        ...


class Pauses(Protocol):
    """What an operator lets rest."""

    def pauses(self) -> Mapping[Part, Pause]:
        """Return what rests, by part."""
        ...

    def begin(self, pause: Pause) -> bool:
        """Let a part rest; ``False`` if it rests already, for the reason that it has."""
        ...

    def end(self, part: Part) -> bool:
        """Let a part go on; ``False`` if it does already."""
        ...


class Audit(Protocol):
    """What operators did."""

    def add(self, entry: AuditEntry) -> None:
        """Write a line."""
        ...

    def entries(self, *, limit: int | None = None) -> list[AuditEntry]:
        """Return the lines, newest first."""
        ...

    def since(self, seq: int, *, limit: int) -> list[AuditEntry]:
        """Return the lines behind one, oldest first."""
        ...


class Retention(Protocol):
    """What may be forgotten.

    Never an open rollout, never one that waits for its reward, never one that some decision point
    has not yet looked at (behind its watermark), or whose trial has not counted it. One without
    decisions need not be looked at.
    """

    def collect(self, *, before: float, limit: int) -> int:
        """Forget up to ``limit`` rollouts that ended before a time, with all that is theirs.

        Rewards of that age whose rollout never came are forgotten as well.
        """
        ...

    def sweep(
        self,
        *,
        before: float,
        limit: int,
        look: int | None = None,
        after: Place = OLDEST,
        archive: Archive | None = None,
    ) -> Swept:
        """Forget up to ``limit`` rollouts of the next ``look``, the oldest ends first.

        Args:
            before: Epoch seconds: only what ended before.
            limit: How many at most.
            look: How many may be looked at, those that are kept too; ``None`` all.
            after: How far an earlier step has come.
            archive: Is first given all that is theirs; where it raises, nothing is forgotten.
        """
        ...

    def sweep_rewards(
        self,
        *,
        before: float,
        limit: int,
        look: int | None = None,
        after: Place = OLDEST,
        archive: Archive | None = None,
    ) -> Swept:
        """Forget rewards that came before a time and whose rollout never did; as ``sweep``."""
        ...

    def count(self, *, before: float, limit: int) -> int:
        """Return how many rollouts ``collect`` would forget, counted up to ``limit``."""
        ...

    def kept(self, *, before: float, look: int) -> Kept:
        """Return what keeps the oldest ``look`` rollouts that ended before a time."""
        ...

    def size(self) -> Size:
        """Return how large the store is; costs the same however large that is."""
        ...

    def give_back(self, pages: int) -> int:
        """Give up to ``pages`` free pages back to the file system; return how many are left."""
        ...

    def empty_log(self) -> bool:
        """Leave nothing of what was forgotten in the log; ``False`` while somebody needs it."""
        ...

    def vacuum(self) -> None:
        """Give all free pages back to the file system, in steps, and empty the log."""
        ...

    def rewrite(self) -> None:
        """Write the whole file anew, so that no byte of what was forgotten is left anywhere.

        Others wait meanwhile, and it needs as much of the disk again.
        """
        ...
