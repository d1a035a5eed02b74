"""Records that only the store and its readers know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from tau_live.core.errors import OddRowError
from tau_live.core.records import (
    Attempt,
    Decision,
    Finite,
    Natural,
    Reward,
    Rollout,
    Span,
)
from tau_live.core.sanitize import JsonObject


class Topic(StrEnum):
    """What processes that share a store read again only when it has changed."""

    GATE = "gate"
    PAUSES = "pauses"
    POLICIES = "policies"
    TRIALS = "trials"
    PROMPTS = "prompts"


ORDERS = ("seq", "started_at", "ended_at", "total_reward")
"""The columns by which a query may order rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert that was raised.

    Attributes:
        kind: Its name, such as ``gate-hold``.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns; empty for the whole store.
        sentence: What happened, as a sentence.
        todo: The command to run next.
        facts: The numbers behind it.
        at: Epoch seconds, UTC, when it happened.
        owner: The process that raised it.
        seq: The store's own sequence number; 0 before it is stored.
    """

    kind: str
    severity: str
    subject: str = ""
    sentence: str
    todo: str
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float
    owner: str
    seq: int = 0


STALE_S = 86_400.0
"""A lease that lasts longer than this was taken before a clock was put back, and is void."""


class Lease(NamedTuple):
    """An exclusive right that expires.

    Attributes:
        name: Its name.
        holder: Who took it.
        left_s: In how many seconds it expires; how long ago it did, below 0.
        report: What the holder has reported with its last renewal; ``None`` if nothing.
    """

    name: str
    holder: str
    left_s: float
    report: str | None = None

    @property
    def in_force(self) -> bool:
        """Whether it has not expired."""
        return 0.0 < self.left_s <= STALE_S


class RolloutColumns(NamedTuple):
    """The columns of a rollout for a report.

    Attributes:
        seq: The store's own sequence number.
        status: Its status.
        started_at: Epoch seconds, UTC; ``None`` before it began.
        ended_at: Epoch seconds, UTC; ``None`` while it is open.
        reward: Its total reward; ``None`` while unknown.
        left_out: Why it is left out of learning; ``None`` if it is not.
        cost_usd: Its cost in US dollars; ``None`` if unknown.
    """

    seq: Natural
    status: str
    started_at: Finite | None
    ended_at: Finite | None
    reward: float | None
    left_out: str | None
    cost_usd: Finite | None


class Choice(NamedTuple):
    """The columns of a decision for a report.

    Attributes:
        rollout: The ``seq`` of its rollout.
        point: The decision point.
        applied: The option that the host applied; ``None`` if unknown.
        latency_us: Microseconds in the host's thread.
        context: The policy's context, as JSON text; empty if it is too long.
    """

    rollout: int
    point: str
    applied: str | None
    latency_us: float
    context: str


class Assignment(NamedTuple):
    """The assignment of a rollout at a point.

    Attributes:
        rollout: The ``seq`` of the rollout.
        point: The decision point.
        learner: Whether the learner decided it, not the control.
        share: The probability of the learner, in ``[0, 1]``.
    """

    rollout: int
    point: str
    learner: bool
    share: float


class QueueBucket(NamedTuple):
    """What happened to the queues within a stretch of time.

    Attributes:
        start: When it begins, epoch seconds.
        enqueued: How many rollouts were put into a queue for the first time.
        claimed: How often a worker took one.
        requeued: How often one was put back.
        succeeded: How many of them succeeded.
        failed: How many failed.
        cancelled: How many were cancelled.
        depth: How many waited at its end.
    """

    start: float
    enqueued: int
    claimed: int
    requeued: int
    succeeded: int
    failed: int
    cancelled: int
    depth: int


class Condition(NamedTuple):
    """A condition on one field of a record.

    Attributes:
        field: The name of the field; of JSON data that of a member, as ``metadata.customer``. A
            further dot is part of the member's name, or else leads to a member of it.
        test: ``is``, ``in`` (of several; of none it is never true), ``contains`` (a text, by its
            letters as they are), ``from`` (at least) or ``before``.
        value: The value, or the values of ``in``.
    """

    field: str
    test: str
    value: object


class OptimizationState(StrEnum):
    """The state of an optimization; the last three are final, but that a failed one may resume."""

    PREPARING = "preparing"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Optimization(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of ``tau-live optimize`` or ``tau-live experience run``.

    Attributes:
        run_id: ``opt-`` or ``tfg-``, the beginning of the config's digest, and its number among the
            runs of that digest.
        kind: ``optimize``, or ``experience`` for a run of lessons.
        config_digest: SHA-256 of the config and its rows, in hex.
        config_path: The file of the config, absolute: workers read the rows there.
        config: The config in force, without rows, open-ended JSON data.
        model_ref: What is run: ``provider/name``, or ``agent:package.module:callable``.
        store_path: The store as the command was given it.
        state: Its state.
        phase: Its phase; empty before the first.
        reason_code: Why it ended or waits; ``None`` if there is no more to say.
        error: The error that ended it.
        control: What an operator did last: ``reason``, ``who`` and ``since_unix_ms``.
        owner: The process that leads it.
        created_at: Epoch seconds, UTC, like all that follow.
        ended_at: ``None`` while it has not ended.
        seconds: How long a process has led it.
        resources: The versions of the resources that it began with, by name.
        incumbent: The prompt version in force when it began.
        report: Scores, adoption, preflight and warnings, open-ended JSON data.
        calls: Model calls.
        rollouts: Items that workers took.
        tokens: Tokens that were used.
        tokens_reserved: The most tokens of the calls that have not returned.
        usd: US dollars that were spent.
        usd_reserved: The most that the calls cost that have not returned.
    """

    run_id: str
    kind: str = "optimize"
    config_digest: str
    config_path: str
    config: JsonObject
    model_ref: str
    store_path: str
    state: OptimizationState = OptimizationState.PREPARING
    phase: str = ""
    reason_code: str | None = None
    error: str | None = None
    control: JsonObject = msgspec.field(default_factory=dict)
    owner: str | None = None
    created_at: Finite
    ended_at: Finite | None = None
    seconds: Finite = 0.0
    resources: JsonObject = msgspec.field(default_factory=dict)
    incumbent: str
    report: JsonObject = msgspec.field(default_factory=dict)
    calls: Natural = 0
    rollouts: Natural = 0
    tokens: Natural = 0
    tokens_reserved: Natural = 0
    usd: Finite = 0.0
    usd_reserved: Finite = 0.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that an optimization executed or proposed.

    Attributes:
        run_id: The optimization.
        label: Its place in the search: ``incumbent``, ``initial-NAME``, ``r1-p1-c1``, ``i1``.
        version: Its prompt version; ``None`` where no prompt was made of a proposal.
        text: The prompt.
        parent: The prompt version that it was made from.
        round: The round that proposed it; 0 for those that the search begins with.
        state: ``proposed``, ``screened``, ``finalist``, ``rejected``, ``adopted``, ``withdrawn``
            or ``champion``; ``duplicate``, ``refused`` or ``empty`` where nothing is executed.
        why: Why it has this state.
        details: Models, digests, usage and cost of its calls, its search score; open-ended JSON
            data.
        made_at: Epoch seconds, UTC.
    """

    run_id: str
    label: str
    version: str | None = None
    text: str | None = None
    parent: str | None = None
    round: Natural = 0
    state: str
    why: str | None = None
    details: JsonObject = msgspec.field(default_factory=dict)
    made_at: Finite


class Limits(NamedTuple):
    """The most that an optimization may use; ``None`` is no limit.

    Attributes:
        calls: Model calls.
        rollouts: Items.
        tokens: Input and output tokens.
        usd: US dollars.
        tools: ``calls`` and ``usd`` of each tool that has a ceiling of its own.
    """

    calls: int | None = None
    rollouts: int | None = None
    tokens: int | None = None
    usd: float | None = None
    tools: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})


class ItemFailure(NamedTuple):
    """An error that items of an optimization failed with.

    Attributes:
        error: What their last attempts raised, or why they ended.
        items: How many.
    """

    error: str
    items: int


class ItemCounts(NamedTuple):
    """How many items an optimization has.

    Attributes:
        total: All of them.
        succeeded: Those that succeeded.
        failed: Those that failed, with a score or without.
        cancelled: Those that were cancelled.
        requeued: Attempts beyond the first of each.
        missing: Those that failed without a score.
    """

    total: Natural
    succeeded: Natural
    failed: Natural
    cancelled: Natural
    requeued: Natural
    missing: Natural

    @property
    def open(self) -> int:
        """Those that have not ended."""
        return self.total - self.succeeded - self.failed - self.cancelled


class ChainRow(NamedTuple):
    """A stamped record as it is stored, and nobody has verified.

    Attributes:
        seq: Its number among the records of all chains.
        name: What no two records of its chain share.
        content: JSON text.
    """

    seq: int
    name: str
    content: str


class Quarantined(NamedTuple):
    """A record that is not used, and why.

    Attributes:
        seq: Its number in the quarantine.
        lesson_seq: Its number among the records of all chains.
        chain: Its chain.
        name: What no two records of its chain share.
        content: JSON text.
        reason: Why, such as ``stamp_mismatch``.
        at: When that was seen: epoch seconds, UTC.
        state: ``held``, ``dropped`` or ``restamped``.
    """

    seq: int
    lesson_seq: int
    chain: str
    name: str
    content: str
    reason: str
    at: float
    state: str


class StepRow(NamedTuple):
    """What a run has done in one phase.

    Attributes:
        phase: ``train``, ``validation`` or ``test``.
        epoch: From 1; 0 outside of epochs.
        step: From 0.
        content: Open-ended JSON data.
    """

    phase: str
    epoch: int
    step: int
    content: JsonObject


class OddRows(NamedTuple):
    """The odd rows of a store.

    Attributes:
        rows: The newest of each table.
        counts: How many there are, by table.
        complete: Whether every row was looked at.
    """

    rows: list[OddRowError]
    counts: Mapping[str, int]
    complete: bool


class RolloutCopy(NamedTuple):
    """All that one store holds of a rollout, to be stored in another.

    Attributes:
        place: Its place among those that are to be sent.
        changes: How often it was changed when the copy was made.
        rollout_id: The rollout.
        rollout: The rollout, which has ended; ``None`` where there are only rewards for it.
        attempts: Its attempts, by number.
        spans: Its recorded spans as they came, each with the ends that were reported.
        decisions: Its decisions as they came.
        arms: Its assignments: point, arm, share, and whether the host's choice agreed.
        names: Its other ids.
        rewards: Its rewards as they came.
    """

    place: int
    changes: int
    rollout_id: str
    rollout: Rollout | None
    attempts: Sequence[Attempt]
    spans: Sequence[tuple[Span, int]]
    decisions: Sequence[Decision]
    arms: Sequence[Sequence[str | float | int | None]]
    names: Sequence[str]
    rewards: Sequence[Reward]


class SpoolState(NamedTuple):
    """What a spool still has to send.

    Attributes:
        unsent: How many rollouts, open ones too.
        oldest_at: Epoch seconds of the oldest of them; ``None`` without any.
        heard_at: Epoch seconds when the hub was last heard; ``None`` if it never was.
    """

    unsent: int
    oldest_at: float | None
    heard_at: float | None


class ServerFacts(NamedTuple):
    """What can be known of the server of a store.

    Attributes:
        version: Its major version.
        schema: The version of the schema; ``None`` if there is none to be read.
        tls: The version of TLS by which it is reached; ``None`` without.
        local: Whether it is reached by a socket of this machine.
        standby: Whether it follows another server, and cannot be written.
        synchronous_commit: Its setting for this login.
        free_connections: How many more connections it takes.
        round_trip_s: The median time that a short answer takes, in seconds.
        ahead_s: By how much its clock is ahead of this machine's, in seconds.
        roles: The roles all of whose rights this login has.
        lacking: What this login may not do of what a host does.
    """

    version: int
    schema: int | None
    tls: str | None
    local: bool
    standby: bool
    synchronous_commit: str
    free_connections: int
    round_trip_s: float
    ahead_s: float
    roles: Sequence[str]
    lacking: Sequence[str]
