"""Records of the store: rollouts, attempts, spans, decisions, rewards, and legal transitions.

Ids are deterministic (law 4): a rollout's is derived from the host and the host's own key of the
run, an attempt's from its rollout and its number, a decision's from its attempt and its number.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from hashlib import sha1
from json.encoder import encode_basestring_ascii
from pathlib import Path
from sys import float_info
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Protocol, TypedDict
from uuid import UUID

import msgspec

from tau_live.core.sanitize import JsonObject

NAMESPACE = UUID("5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11")

QUEUE_HOST = "queue"
"""The host of rollouts that were enqueued; their run ids are their rollout ids."""

ITEM = "optimize"
"""The name of rollouts that are items of an optimization; each has a mode."""

LIVE = "live-"
"""How the ids of live rollouts begin."""

IMPORTED = "import"
"""The source of imported decisions."""


Natural = Annotated[int, msgspec.Meta(ge=0)]
"""A whole number from 0."""

Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
"""A number that is neither infinite nor NaN."""

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
"""A number from 0 to 1."""


class RolloutStatus(StrEnum):
    """The status of a rollout; the last three are final."""

    QUEUING = "queuing"
    PREPARING = "preparing"
    RUNNING = "running"
    REQUEUING = "requeuing"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"


class AttemptStatus(StrEnum):
    """The status of an attempt; all but the first two are final."""

    PREPARING = "preparing"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    UNRESPONSIVE = "unresponsive"
    TIMEOUT = "timeout"


class RolloutMode(StrEnum):
    """The purpose of a rollout; a live one has none of these."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class Reason(StrEnum):
    """Why a rollout ended (law 5)."""

    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    LIMIT = "limit"
    SAFETY_BLOCKED = "safety_blocked"
    ABANDONED = "abandoned"


class RewardSource(StrEnum):
    """Who gave a reward; any other short name is allowed too."""

    API = "api"
    USER = "user"
    JUDGE = "judge"
    ENVIRONMENT = "env"
    INFERRED = "inferred"
    DEFAULT = "default"


ROLLOUT_MOVES: Mapping[RolloutStatus, frozenset[RolloutStatus]] = {
    RolloutStatus.QUEUING: frozenset(
        {
            RolloutStatus.PREPARING,
            RolloutStatus.RUNNING,
            RolloutStatus.SUCCEEDED,
            RolloutStatus.FAILED,
            RolloutStatus.CANCELLED,
            RolloutStatus.REQUEUING,
        }
    ),
    RolloutStatus.PREPARING: frozenset(
        {
            RolloutStatus.RUNNING,
            RolloutStatus.SUCCEEDED,
            RolloutStatus.FAILED,
            RolloutStatus.CANCELLED,
            RolloutStatus.REQUEUING,
        }
    ),
    RolloutStatus.RUNNING: frozenset(
        {
            RolloutStatus.SUCCEEDED,
            RolloutStatus.FAILED,
            RolloutStatus.CANCELLED,
            RolloutStatus.REQUEUING,
        }
    ),
    RolloutStatus.FAILED: frozenset({RolloutStatus.REQUEUING, RolloutStatus.CANCELLED}),
    RolloutStatus.REQUEUING: frozenset(
        {
            RolloutStatus.PREPARING,
            RolloutStatus.RUNNING,
            RolloutStatus.SUCCEEDED,
            RolloutStatus.FAILED,
            RolloutStatus.CANCELLED,
        }
    ),
    RolloutStatus.SUCCEEDED: frozenset(),
    RolloutStatus.CANCELLED: frozenset(),
}
"""The legal transitions of a rollout; keeping its status is always allowed."""

ATTEMPT_MOVES: Mapping[AttemptStatus, frozenset[AttemptStatus]] = {
    AttemptStatus.PREPARING: frozenset(
        {
            AttemptStatus.RUNNING,
            AttemptStatus.FAILED,
            AttemptStatus.SUCCEEDED,
            AttemptStatus.TIMEOUT,
            AttemptStatus.UNRESPONSIVE,
        }
    ),
    AttemptStatus.RUNNING: frozenset(
        {
            AttemptStatus.FAILED,
            AttemptStatus.SUCCEEDED,
            AttemptStatus.TIMEOUT,
            AttemptStatus.UNRESPONSIVE,
        }
    ),
    AttemptStatus.FAILED: frozenset(),
    AttemptStatus.SUCCEEDED: frozenset(),
    AttemptStatus.UNRESPONSIVE: frozenset(),
    AttemptStatus.TIMEOUT: frozenset(),
}
"""The legal transitions of an attempt; keeping its status is always allowed."""

ROLLOUT_ENDS = frozenset({RolloutStatus.FAILED, RolloutStatus.SUCCEEDED, RolloutStatus.CANCELLED})
ATTEMPT_ENDS = frozenset(ATTEMPT_MOVES) - {AttemptStatus.PREPARING, AttemptStatus.RUNNING}


@cache
def rollout_may_become(new: RolloutStatus) -> tuple[RolloutStatus, ...]:
    """Return every status from which a rollout may become ``new``, itself included."""
    return tuple(old for old, moves in ROLLOUT_MOVES.items() if new in moves or new is old)


@cache
def attempt_may_become(new: AttemptStatus) -> tuple[AttemptStatus, ...]:
    """Return every status from which an attempt may become ``new``, itself included."""
    return tuple(old for old, moves in ATTEMPT_MOVES.items() if new in moves or new is old)


@lru_cache(maxsize=4_096)  # called for every event of a run
def rollout_id_of(host: str, run_id: str) -> str:
    """Return the id under which a host's run is stored: ``live-`` and a UUIDv5 of host and run.

    A rollout of a queue has the id that it was enqueued with, which no live rollout can have.
    """
    if host == QUEUE_HOST and not run_id.startswith(LIVE):
        return run_id
    name = f"[{encode_basestring_ascii(host)}, {encode_basestring_ascii(run_id)}]"
    digest = sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]  # as ``uuid.uuid5``, in a third of the time
    last = f"{variant}{digest[17:20]}-{digest[20:32]}"
    return f"{LIVE}{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{last}"


def attempt_id_of(rollout_id: str, attempt: int) -> str:
    """Return the id of the ``attempt``-th try, counted from 1."""
    return f"{rollout_id}:attempt-{attempt}"


def decision_id_of(rollout_id: str, attempt: int, ordinal: int) -> str:
    """Return the id of the ``ordinal``-th decision of an attempt, both counted from 1."""
    return f"{rollout_id}:attempt-{attempt}:decision-{ordinal}"


LONGEST_BACKOFF_S = 3_600.0


class RolloutConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The retry settings of a queued rollout.

    Attributes:
        max_attempts: The most attempts, at least 1.
        retry_on: The final statuses of an attempt after which it is retried.
        timeout_s: An attempt that runs longer is ended as ``timeout``; ``None`` is no limit.
        unresponsive_s: An attempt without a heartbeat or span for longer is ended as
            ``unresponsive``; ``None`` is no limit.
        backoff_s: How long a rollout waits before its second attempt; twice as long before each
            further one, at most ``LONGEST_BACKOFF_S``.
    """

    max_attempts: int = 1
    retry_on: tuple[AttemptStatus, ...] = (
        AttemptStatus.FAILED,
        AttemptStatus.TIMEOUT,
        AttemptStatus.UNRESPONSIVE,
    )
    timeout_s: Finite | None = None
    unresponsive_s: Finite | None = None
    backoff_s: Finite = 0.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts!r}")
        for name in ("timeout_s", "unresponsive_s"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} must be above 0, got {limit!r}")
        if not 0.0 <= self.backoff_s <= LONGEST_BACKOFF_S:
            raise ValueError(
                f"backoff_s must be from 0 to {LONGEST_BACKOFF_S:g}, got {self.backoff_s!r}"
            )

    def backoff_after(self, attempts: int) -> float:
        """Return the seconds to wait after that many attempts, at least one."""
        doublings = min(attempts - 1, 64)
        return float(min(self.backoff_s * 2**doublings, LONGEST_BACKOFF_S))


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one execution of an agent.

    Attributes:
        rollout_id: ``rollout_id_of(host, run_id)``, or the id given to a queued rollout.
        host: The framework that ran it; ``queue`` for one that was enqueued.
        run_id: The host's run id.
        session_id: The id that the runs of one conversation share.
        parent_id: Its parent rollout.
        name: The kind of run, for people and filters.
        status: Its status.
        mode: ``train``, ``val``, ``test``; ``None`` for a live one.
        reason: Why it ended; ``None`` while it has not.
        error_type: The class of the error it failed with.
        queue: The queue that it was put into; ``None`` if it never was in one.
        input: Input of a queued rollout, open-ended JSON data.
        output: The result that its worker handed back, open-ended JSON data.
        resources: The versions of the resources that it is made with, by name.
        config: Its retry settings.
        metadata: Open-ended JSON data.
        owner: The process that records it; ``None`` if no process owns it.
        worker_id: The worker that runs it.
        attempt_count: The number of attempts so far.
        started_at: Epoch seconds, UTC, of its first start; ``None`` before.
        ended_at: Epoch seconds, UTC, of its end; ``None`` before.
        seq: The store's own sequence number; 0 before it is stored.
        ready_seq: Its place among rollouts that are ready to be learned from; ``None`` before.
        total_reward: Its total reward, including its decisions, once it is ready.
        run_reward: The part of it given for the run, not for a decision; ``None`` is all of it.
    """

    rollout_id: str
    host: str = QUEUE_HOST
    run_id: str = ""
    session_id: str | None = None
    parent_id: str | None = None
    name: str = ""
    status: RolloutStatus = RolloutStatus.QUEUING
    mode: RolloutMode | None = None
    reason: Reason | None = None
    error_type: str | None = None
    queue: str | None = None
    input: object = None
    output: object = None
    resources: Mapping[str, int] = msgspec.field(default_factory=dict)
    config: RolloutConfig = msgspec.field(default_factory=RolloutConfig)
    metadata: JsonObject = msgspec.field(default_factory=dict)
    owner: str | None = None
    worker_id: str | None = None
    attempt_count: Natural = 0
    started_at: Finite | None = None
    ended_at: Finite | None = None
    seq: Natural = 0
    ready_seq: Natural | None = None
    total_reward: float | None = None
    run_reward: float | None = None

    def status_after(self, end: AttemptStatus) -> RolloutStatus:
        """Return its status once its newest attempt has ended: done, failed, or requeued."""
        if end is AttemptStatus.SUCCEEDED:
            return RolloutStatus.SUCCEEDED
        has_left = self.attempt_count < self.config.max_attempts
        if has_left and end in self.config.retry_on and self.queue is not None:
            return RolloutStatus.REQUEUING
        return RolloutStatus.FAILED


RESUMED = "/resume-"
"""Separates an execution from the number of its resumption."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt at a rollout.

    Attributes:
        rollout_id: The rollout.
        number: Counted from 1.
        status: Its status.
        execution: Distinguishes executions under the same key.
        worker_id: The worker that runs it.
        started_at: Epoch seconds, UTC.
        last_heartbeat_at: Epoch seconds, UTC; a span counts as a heartbeat.
        ended_at: Epoch seconds, UTC; ``None`` while it runs.
        error_message: Its error, if it failed.
        owner: The process that works on it, if it was claimed.
    """

    rollout_id: str
    number: Natural
    status: AttemptStatus
    execution: str = ""
    worker_id: str | None = None
    started_at: Finite
    last_heartbeat_at: Finite
    ended_at: Finite | None = None
    error_message: str | None = None
    owner: str | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One recorded step of an attempt, the attempt's run, or one of its decisions.

    Attributes:
        rollout_id: The rollout.
        attempt: The number of the attempt.
        span_id: The host's own id of a step, verbatim, unique within the attempt;
            ``{rollout_id}:attempt-{attempt}`` of a run, the decision's id of a decision.
        parent_span_id: Its parent span, which may be stored later or never; the run, if a step has
            no other; ``None`` of a run.
        kind: ``run``, ``decision``, ``turn``, ``model``, ``tool``, ``message``, and so on.
        name: Its name, for people; the rollout's of a run, the decision point of a decision.
        status: ``ok``, ``error``, ``cancelled`` and so on; ``unknown`` while it is open.
        attributes: Open-ended JSON data.
        started_at: Epoch seconds, UTC.
        ended_at: Epoch seconds, UTC; ``None`` while it is open.
        seq: The store's own sequence number; 0 before it is stored, and of runs and decisions,
            whose spans are made from their own rows.
    """

    rollout_id: str
    attempt: Natural
    span_id: str
    parent_span_id: str | None = None
    kind: str
    name: str
    status: str = "unknown"
    attributes: JsonObject = msgspec.field(default_factory=dict)
    started_at: Finite
    ended_at: Finite | None = None
    seq: Natural = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, with everything that learning from it needs (law 3).

    Attributes:
        rollout_id: The rollout.
        attempt: The number of the attempt.
        ordinal: Its place within the attempt, from 1.
        point: The decision point.
        options: The names offered, in order.
        allowed: Those that were allowed; ``None`` if all were.
        exploit_only: Those that were unsafe to explore; ``None`` if none was.
        chosen: The policy's choice; ``None`` if it made none.
        applied: The option that the host applied.
        default: The host's own choice, if it named one.
        source: ``policy``, ``default`` or ``import``.
        why_not: Why the policy did not decide, or why its choice was not applied.
        propensity: The probability with which ``applied`` was chosen, in (0, 1]; ``None``
            if unknown: such a decision is recorded and never learned from.
        probabilities: One per option, or empty.
        value: The policy's estimate of the return from here, in units of reward.
        policy_version: The version that decided; 0 is the untrained policy.
        arm: ``learner`` or ``control``, who decided the rollout here; ``import`` if imported.
        share: The probability that the learner decides it; ``None`` if it was not assigned.
        latency_us: Microseconds in the host's thread.
        at: Epoch seconds, UTC.
        context: The context of the policy, as far as it may be kept.
        features: The features of each option, likewise.
        encoded: The packed feature rows that the policy received.
        seq: The store's own sequence number; 0 before it is stored.
    """

    rollout_id: str
    attempt: Natural
    ordinal: Natural
    point: str
    options: tuple[str, ...]
    chosen: str | None
    applied: str | None
    default: str | None = None
    allowed: tuple[str, ...] | None = None
    exploit_only: tuple[str, ...] | None = None
    source: str = "policy"
    why_not: str | None = None
    propensity: float | None = None
    probabilities: tuple[float, ...] = ()
    value: float | None = None
    policy_version: Natural = 0
    arm: str = "learner"
    share: float | None = None
    latency_us: float = 0.0
    at: Finite
    context: JsonObject = msgspec.field(default_factory=dict)
    features: JsonObject = msgspec.field(default_factory=dict)
    encoded: bytes = b""
    seq: Natural = 0

    @property
    def decision_id(self) -> str:
        """``{rollout_id}:attempt-{attempt}:decision-{ordinal}``."""
        return decision_id_of(self.rollout_id, self.attempt, self.ordinal)


class Reward(msgspec.Struct, frozen=True, kw_only=True):
    """A named number for a rollout or for one of its decisions.

    Target, name, source and key identify a reward: repeating it changes nothing, and a
    later value replaces an earlier one.

    Attributes:
        rollout_id: The rollout; it need not be stored yet.
        decision_id: The decision it is for; ``None`` when it is for the whole rollout.
        name: The name of the reward.
        value: The number; ``None`` for a comment alone.
        label: Its label, if it was given as one (``true``, ``thumbs_up``).
        comment: A comment.
        source: Who gave it.
        key: Distinguishes rewards with the same name and source.
        at: Epoch seconds, UTC.
        decisions_before: How many decisions its run had made when it was given: only these can
            have earned it; ``None`` if unknown, or if the run had ended.
        seq: The store's own sequence number; 0 before it is stored.
    """

    rollout_id: str
    decision_id: str | None = None
    name: str = "reward"
    value: float | None = None
    label: str | None = None
    comment: str | None = None
    source: str = RewardSource.API
    key: str = ""
    at: Finite
    decisions_before: Natural | None = None
    seq: Natural = 0


NO_COSTS: Mapping[int, float] = MappingProxyType({})


class RolloutQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollouts, in which order, and which page of them.

    Attributes:
        statuses: Only these; ``None`` is all.
        mode: Only this one.
        ids: Only these; ``None`` is all.
        host: Only of this host.
        name: Only of this name.
        session_id: Only of this session.
        parent_id: Only the children of this rollout.
        text: Only those in which it stands, whatever the case of its ASCII letters: in an id, a
            name, an error, the metadata, the input, the output or a span.
        since: Only those that started at or after this time.
        until: Only those that started before this time.
        ended_since: Only those that ended at or after this time.
        after: Only those behind this ``seq``: with ``limit``, the next page of a long listing
            without counting its way there. It does not change the total.
        order_by: ``seq`` (the order of arrival), ``started_at``, ``ended_at`` or ``total_reward``.
        descending: Newest or largest first.
        limit: The most rows; ``None`` is all.
        offset: How many to skip.
    """

    statuses: Sequence[RolloutStatus] | None = None
    mode: RolloutMode | None = None
    ids: Sequence[str] | None = None
    host: str | None = None
    name: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None
    ended_since: float | None = None
    after: int | None = None
    order_by: str = "seq"
    descending: bool = False
    limit: int | None = None
    offset: int = 0


class Page(NamedTuple):
    """A page of rollouts and the total."""

    rollouts: list[Rollout]
    total: int


class Claims(Protocol):
    """The queue that a claim was taken from."""

    @property
    def path(self) -> Path:
        """The file of the store."""

    def finish(  # noqa: D102  # see ``Queue``
        self,
        rollout_id: str,
        number: int,
        status: AttemptStatus,
        *,
        error_message: str | None = None,
        output: object = None,
        retry_after_s: float | None = None,
    ) -> RolloutStatus: ...

    def cancel(self, rollout_id: str, *, number: int | None = None) -> bool:  # noqa: D102
        ...


class Claim(NamedTuple):
    """A rollout claimed by a worker, and its attempt.

    Attributes:
        rollout: The rollout.
        attempt: Its attempt.
        queue: The queue that it was taken from.
    """

    rollout: Rollout
    attempt: Attempt
    queue: Claims

    def finish(
        self,
        status: AttemptStatus | str = AttemptStatus.SUCCEEDED,
        *,
        output: object = None,
        error_message: str | None = None,
        retry_after_s: float | None = None,
    ) -> RolloutStatus:
        """End the attempt, as ``finish`` of the queue does, and return the rollout's status."""
        return self.queue.finish(
            self.rollout.rollout_id,
            self.attempt.number,
            AttemptStatus(status),
            output=output,
            error_message=error_message,
            retry_after_s=retry_after_s,
        )


class WorkerStatus(StrEnum):
    """The status of a worker."""

    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that takes rollouts from queues.

    Attributes:
        worker_id: Its id.
        status: ``idle``, ``busy``, or ``gone``: its process is, or its attempt ran out of time.
        owner: Its process; ``None`` if it named none.
        registered_at: Epoch seconds, UTC, like all that follow.
        last_heartbeat_at: The last sign of life.
        claimed_at: When it last claimed or found nothing; ``None`` before.
        busy_at: When it last began an attempt; ``None`` before.
        idle_at: When it last had nothing to do; ``None`` before.
        active_rollout_id: The rollout that it works on.
        active_attempt: The number of the attempt.
        stats: What it reports of itself, open-ended JSON data.
    """

    worker_id: str
    status: WorkerStatus = WorkerStatus.IDLE
    owner: str | None = None
    registered_at: Finite
    last_heartbeat_at: Finite
    claimed_at: Finite | None = None
    busy_at: Finite | None = None
    idle_at: Finite | None = None
    active_rollout_id: str | None = None
    active_attempt: Natural | None = None
    stats: JsonObject = msgspec.field(default_factory=dict)


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a prompt or setting that runs are made with; it never changes.

    Attributes:
        name: Its name.
        version: Its version, from 1; each name has versions of its own.
        content: Open-ended JSON data.
        created_at: Epoch seconds, UTC.
    """

    name: str
    version: Natural
    content: object
    created_at: Finite


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the policy of one decision point.

    Attributes:
        version: Its number among the versions of all points, from 1.
        point: The decision point.
        parent: Its parent version; 0 is the untrained policy.
        algorithm: The algorithm that made it.
        sha256: The checksum of its file.
        file: The name of its file in the checkpoint folder.
        rollouts: How many rollouts it has been trained on in all.
        created_at: Epoch seconds, UTC.
        metadata: Metadata such as the numpy version and the seed.
    """

    version: Natural
    point: str
    parent: Natural
    algorithm: str
    sha256: str
    file: str
    rollouts: Natural
    created_at: Finite
    metadata: JsonObject = msgspec.field(default_factory=dict)


class InService(msgspec.Struct, frozen=True, kw_only=True):
    """Which version serves a decision point.

    Attributes:
        point: The decision point.
        version: The version that decides; 0 is the untrained policy.
        pinned: Whether an operator chose it, so that updates do not replace it.
        changed_at: Epoch seconds, UTC.
        revision: Grows with every change.
    """

    point: str
    version: Natural
    pinned: bool
    changed_at: Finite
    revision: Natural


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One update of a policy, or the reason why it was skipped.

    Attributes:
        update: The number of the update, from 1.
        point: The decision point; empty where no rollout had a decision.
        executed: Whether weights changed.
        skipped_reason: Why not.
        version: The version that it made.
        parent: The version that it started from.
        first_ready: The first rollout it used, by ``ready_seq``.
        last_ready: The last of them: the watermark of the decision point.
        trajectories: How many rollouts were fit to learn from; a skipped update learned from none.
        samples: How many decisions these had.
        at: Epoch seconds, UTC.
        report: All other diagnostics.
    """

    update: Natural
    point: str
    executed: bool
    skipped_reason: str | None
    version: Natural | None
    parent: Natural
    first_ready: Natural
    last_ready: Natural
    trajectories: Natural
    samples: Natural
    at: Finite
    report: JsonObject = msgspec.field(default_factory=dict)


class StoredAlarm(TypedDict):
    """A drift alarm as a monitor keeps it."""

    option: str
    direction: Literal["worse", "better"]
    seen: int
    since: int
    shift: Finite
    ready_seq: int


class MonitorNumbers(TypedDict, total=False):
    """The numbers that a monitor keeps, each as its part of the learner writes it."""

    drift: Mapping[str, Mapping[str, Finite]]
    multiplier: Mapping[str, Finite]
    costs: Mapping[str, Finite]
    held: int
    streaks: Mapping[str, int]
    figures: JsonObject
    doubted: list[str]
    improved: bool
    fence: JsonObject
    limits: tuple[Finite, Finite] | None
    outliers: int


class Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a decision point's monitors between two updates.

    Attributes:
        point: The decision point.
        watermark: They have seen every rollout up to this ``ready_seq``, each once.
        since: Evidence up to this ``ready_seq`` is from before a change; 0 if none.
        numbers: The drift charts, the cost multiplier, and what held the gate.
        alarms: The last drift alarms, newest last.
    """

    point: str
    watermark: Natural = 0
    since: Natural = 0
    numbers: MonitorNumbers = msgspec.field(default_factory=MonitorNumbers)
    alarms: tuple[StoredAlarm, ...] = ()


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An action of an operator."""

    at: Finite
    who: str
    action: str
    reason: str
    details: JsonObject = msgspec.field(default_factory=dict)
    seq: Natural = 0


class StoredFinding(TypedDict, total=False):
    """The finding of ``rl.verdict`` as a trial keeps it; empty before the first.

    The three in the middle are intervals; what is infinite is ``None`` there.
    """

    verdict: str
    difference: dict[str, float | None]
    cost: dict[str, float | None]
    missing: dict[str, float | None]
    alpha: float


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a decision point's learner with its control, and the verdict.

    Attributes:
        point: The decision point.
        ladder: Whether it started in shadow, as the points of acting adapters do.
        exposure: The share of rollouts that the learner may decide; ``None`` is all but
            ``TAU_LIVE_RL_CONTROL_SHARE``.
        champion: The version last proven better; ``None`` is the host's own choice.
        previous: The previous champion.
        kept: Rollouts for which the previous champion still is the control and keeps a share.
        stopped: Why the learner is stopped; ``None`` while it is not.
        watermark: The place of the last rollout that was counted, among all assignments.
        since: Up to this place another control decided; its outcomes are not counted.
        watched: The ``seq`` of the last reward checked for critical violations.
        test: The number of the test, from 1; each spends less error than the one before.
        evidence: The numbers of ``rl.verdict.Evidence``; empty until rewards have a range.
        tally: Plain counts and sums of the arms since the test began.
        finding: The verdict when the evidence was last evaluated.
        changed_at: Epoch seconds, UTC, of the last change of who decides.
        revision: Grows with every change; 0 before it is stored.
    """

    point: str
    ladder: bool = False
    exposure: Share | None = None
    champion: Natural | None = None
    previous: Natural | None = None
    kept: Natural = 0
    stopped: str | None = None
    watermark: Natural = 0
    since: Natural = 0
    watched: Natural = 0
    test: Natural = 1
    evidence: Mapping[str, Finite] = msgspec.field(default_factory=dict)
    tally: Mapping[str, Finite] = msgspec.field(default_factory=dict)
    finding: StoredFinding = msgspec.field(default_factory=StoredFinding)
    changed_at: Finite = 0.0
    revision: Natural = 0

    @property
    def in_first_shadow(self) -> bool:
        """Whether it is in the shadow it began in: no order or evidence has changed it."""
        return self.ladder and self.exposure == 0.0 and not self.changed_at

    @property
    def control(self) -> int | None:
        """The version that the learner is compared with; ``None`` is the host's own choice."""
        return self.previous if self.kept else self.champion


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout and the arm that decided it at a point.

    Attributes:
        place: Its place among all assignments, in the order of their first decisions.
        rollout: The rollout.
        arm: ``learner`` or ``control``.
        share: The probability with which it would have been the learner.
        agreed: Whether the learner would have chosen what the host did; ``None`` if unknown.
        until: Epoch seconds until which its reward is awaited; ``None`` if it is not.
        version: The policy of its first decision at the point.
    """

    place: Natural
    rollout: Rollout
    arm: str
    share: Share
    agreed: bool | None = None
    until: Finite | None = None
    version: Natural | None = None


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """An amendment of a rollout after its start.

    Attributes:
        name: The kind of run; empty if not reported.
        session_id: The id that the runs of one conversation share.
        parent_id: Its parent rollout.
        input: Open-ended JSON data.
        metadata: Open-ended JSON data, by name.
        started_at: Epoch seconds, UTC.
        later: Whether it comes from a later attempt, whose metadata takes precedence.
    """

    name: str = ""
    session_id: str | None = None
    parent_id: str | None = None
    input: object = None
    metadata: JsonObject = msgspec.field(default_factory=dict)
    started_at: float | None = None
    later: bool = False


class WholeRollout(NamedTuple):
    """A rollout that succeeded, with its attempt, decisions and rewards.

    Attributes:
        rollout: The rollout at its end, without its total reward.
        attempt: Its only attempt.
        decisions: In their order, with distinct ordinals, and none in an arm of ours.
        rewards: In their order, with distinct targets.
    """

    rollout: Rollout
    attempt: Attempt
    decisions: Sequence[Decision]
    rewards: Sequence[Reward]

    @property
    def at(self) -> float:
        """Epoch seconds, UTC, of its start."""
        return self.attempt.started_at


class LearnableRollout(NamedTuple):
    """A finished and rewarded rollout with its decisions and rewards."""

    rollout: Rollout
    decisions: list[Decision]
    rewards: list[Reward]


class Totals(NamedTuple):
    """Total rewards of the newest rollouts, without those that safety penalised.

    Attributes:
        of: The number of rollouts.
        outside: How many totals were outside the declared range.
        lowest: The lowest total; ``None`` without any.
        highest: The highest total; ``None`` without any.
    """

    of: int
    outside: int
    lowest: float | None
    highest: float | None


class Passed(NamedTuple):
    """Ready rollouts from which nothing is learned, as far as an update reports them.

    Attributes:
        rollouts: How many; the other fields are 0 without any.
        first: The ``ready_seq`` of the first.
        last: The ``ready_seq`` of the last.
        known_at: Epoch seconds, UTC, when the last of them had ended and been rewarded.
    """

    rollouts: int = 0
    first: int = 0
    last: int = 0
    known_at: float = 0.0


class Charged(NamedTuple):
    """A rollout that was learned from, and whose safety cost may have changed since.

    Attributes:
        rollout: The rollout.
        rewards: All of its rewards.
        counted: Its cost as counted by the multiplier; ``None`` while it was unknown.
    """

    rollout: Rollout
    rewards: list[Reward]
    counted: float | None


class CostsSeen(NamedTuple):
    """How far the safety costs of a decision point have been counted.

    Attributes:
        ready: Of rollouts up to this ``ready_seq``.
        rewarded: Known from rewards up to this ``seq``.
        at: Epoch seconds, UTC, of the last check for rollouts whose wait for a reward had ended.
    """

    ready: int
    rewarded: int
    at: float


class Shadowed(msgspec.Struct, frozen=True):
    """A decision in shadow: the policy made a choice, and the host applied its own.

    Attributes:
        options: ``[A]``, the options offered.
        applied: The option that the host applied.
        probabilities: ``[A]``, the policy's probability of each.
    """

    options: tuple[str, ...]
    applied: str
    probabilities: tuple[float, ...]
