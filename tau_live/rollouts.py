"""What is stored: rollouts, attempts, spans, decisions, rewards, and the legal transitions.

Ids are deterministic (law 4): a rollout's is derived from the host and the host's own key of the
run, an attempt's from its rollout and its number, a decision's from its attempt and its number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from hashlib import sha1
from json.encoder import encode_basestring_ascii
from uuid import UUID

import msgspec

NAMESPACE = UUID("5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11")

IMPORTED = "import"
"""The source of decisions that were imported."""


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
    """What a rollout is for; a live one has none of these."""

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
            RolloutStatus.CANCELLED,
            RolloutStatus.REQUEUING,
        }
    ),
    RolloutStatus.PREPARING: frozenset(
        {
            RolloutStatus.RUNNING,
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
        {RolloutStatus.PREPARING, RolloutStatus.RUNNING, RolloutStatus.CANCELLED}
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


@lru_cache(maxsize=4_096)  # every event of a run asks
def rollout_id_of(host: str, run_id: str) -> str:
    """Return the id under which a host's run is stored: ``live-`` and a UUIDv5 of both."""
    name = f"[{encode_basestring_ascii(host)}, {encode_basestring_ascii(run_id)}]"
    hashed = sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(hashed[16], 16) & 3]  # as ``uuid.uuid5`` has it, in a third of the time
    last = f"{variant}{hashed[17:20]}-{hashed[20:32]}"
    return f"live-{hashed[:8]}-{hashed[8:12]}-5{hashed[13:16]}-{last}"


def attempt_id_of(rollout_id: str, attempt: int) -> str:
    """Return the id of the ``attempt``-th try, counted from 1."""
    return f"{rollout_id}:attempt-{attempt}"


def decision_id_of(rollout_id: str, attempt: int, ordinal: int) -> str:
    """Return the id of the ``ordinal``-th decision of an attempt, both counted from 1."""
    return f"{attempt_id_of(rollout_id, attempt)}:decision-{ordinal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """The retry settings of a queued rollout.

    Attributes:
        max_attempts: The most attempts, at least 1.
        retry_on: The final statuses of an attempt after which it is retried.
        timeout_s: An attempt that runs longer is ended as ``timeout``; ``None`` is no limit.
        unresponsive_s: An attempt without a heartbeat or span for longer is ended as
            ``unresponsive``; ``None`` is no limit.
    """

    max_attempts: int = 1
    retry_on: tuple[AttemptStatus, ...] = (
        AttemptStatus.FAILED,
        AttemptStatus.TIMEOUT,
        AttemptStatus.UNRESPONSIVE,
    )
    timeout_s: float | None = None
    unresponsive_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts!r}")
        for name in ("timeout_s", "unresponsive_s"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} must be above 0, got {limit!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
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
        input: Input of a queued rollout, open-ended JSON data.
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
    host: str = "queue"
    run_id: str = ""
    session_id: str | None = None
    parent_id: str | None = None
    name: str = ""
    status: RolloutStatus = RolloutStatus.QUEUING
    mode: RolloutMode | None = None
    reason: Reason | None = None
    error_type: str | None = None
    input: object = None
    config: RolloutConfig = field(default_factory=RolloutConfig)
    metadata: Mapping[str, object] = field(default_factory=dict)
    owner: str | None = None
    worker_id: str | None = None
    attempt_count: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    seq: int = 0
    ready_seq: int | None = None
    total_reward: float | None = None
    run_reward: float | None = None


RESUMED = "/resume-"
"""Stands between an execution and which resumption of it an attempt is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
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
    """

    rollout_id: str
    number: int
    status: AttemptStatus
    execution: str = ""
    worker_id: str | None = None
    started_at: float
    last_heartbeat_at: float
    ended_at: float | None = None
    error_message: str | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded step of an attempt; a struct, made in a tenth of a dataclass's time.

    Attributes:
        rollout_id: The rollout.
        attempt: The number of the attempt.
        span_id: The host's own id, verbatim; unique within the attempt.
        parent_span_id: Its parent span, if any; it may be stored later or never.
        kind: ``run``, ``turn``, ``model``, ``tool``, ``message``, and so on.
        name: Its name, for people.
        status: ``ok``, ``error``, ``cancelled`` and so on; ``unknown`` while it is open.
        attributes: Open-ended JSON data.
        started_at: Epoch seconds, UTC.
        ended_at: Epoch seconds, UTC; ``None`` while it is open.
        seq: The store's own sequence number; 0 before it is stored.
    """

    rollout_id: str
    attempt: int
    span_id: str
    parent_span_id: str | None = None
    kind: str
    name: str
    status: str = "unknown"
    attributes: Mapping[str, object] = msgspec.field(default_factory=dict)
    started_at: float
    ended_at: float | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
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
    attempt: int
    ordinal: int
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
    policy_version: int = 0
    arm: str = "learner"
    share: float | None = None
    latency_us: float = 0.0
    at: float
    context: Mapping[str, object] = field(default_factory=dict)
    features: Mapping[str, object] = field(default_factory=dict)
    encoded: bytes = b""
    seq: int = 0

    @property
    def decision_id(self) -> str:
        """``{rollout_id}:attempt-{attempt}:decision-{ordinal}``."""
        return decision_id_of(self.rollout_id, self.attempt, self.ordinal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
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
    at: float
    decisions_before: int | None = None
    seq: int = 0
