"""The rows that only the store's roles speak of; the domain's own are in ``rollouts``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from tau_live.rollouts import Attempt, Decision, Reward, Rollout, RolloutMode, RolloutStatus

NO_COSTS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutQuery:
    """Which rollouts, in which order, and which page of them.

    Attributes:
        statuses: Only these; empty is all.
        mode: Only this one.
        ids: Only these; empty is all.
        host: Only of this host.
        name: Only of this name.
        session_id: Only of this session.
        parent_id: Only the children of this rollout.
        since: Only those that started at or after this time.
        until: Only those that started before this time.
        after: Only those behind this ``seq``: with ``limit``, the next page of a long listing
            without counting its way there. It does not change the total.
        order_by: ``seq`` (the order of arrival), ``started_at``, ``ended_at`` or ``total_reward``.
        descending: Newest or largest first.
        limit: The most rows; ``None`` is all.
        offset: How many to skip.
    """

    statuses: Sequence[RolloutStatus] = ()
    mode: RolloutMode | None = None
    ids: Sequence[str] = ()
    host: str | None = None
    name: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    since: float | None = None
    until: float | None = None
    after: int | None = None
    order_by: str = "seq"
    descending: bool = False
    limit: int | None = None
    offset: int = 0


class Page(NamedTuple):
    """A page of rollouts and the total."""

    rollouts: list[Rollout]
    total: int


class Claim(NamedTuple):
    """A rollout claimed by a worker, and its attempt."""

    rollout: Rollout
    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that takes rollouts from the queue."""

    worker_id: str
    registered_at: float
    last_heartbeat_at: float
    active_rollout_id: str | None = None
    active_attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesVersion:
    """An immutable set of prompts and settings that runs are made with."""

    version: int
    resources: Mapping[str, object]
    created_at: float

    @property
    def resources_id(self) -> str:
        """``resources-{version}``."""
        return f"resources-{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
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

    version: int
    point: str
    parent: int
    algorithm: str
    sha256: str
    file: str
    rollouts: int
    created_at: float
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InService:
    """Which version serves a decision point.

    Attributes:
        point: The decision point.
        version: The version that decides; 0 is the untrained policy.
        pinned: Whether an operator chose it, so that updates do not replace it.
        changed_at: Epoch seconds, UTC.
        revision: Grows with every change.
    """

    point: str
    version: int
    pinned: bool
    changed_at: float
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
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

    update: int
    point: str
    executed: bool
    skipped_reason: str | None
    version: int | None
    parent: int
    first_ready: int
    last_ready: int
    trajectories: int
    samples: int
    at: float
    report: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """What the monitors of a decision point remember from one update to the next.

    Attributes:
        point: The decision point.
        watermark: They have seen every rollout up to this ``ready_seq``, each once.
        since: Evidence up to this ``ready_seq`` is from before a change; 0 if none.
        numbers: The drift charts, the cost multiplier, and what held the gate.
        alarms: The last drift alarms, newest last.
    """

    point: str
    watermark: int = 0
    since: int = 0
    numbers: Mapping[str, object] = field(default_factory=dict)
    alarms: Sequence[Mapping[str, object]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Something that an operator did."""

    at: float
    who: str
    action: str
    reason: str
    details: Mapping[str, object] = field(default_factory=dict)
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
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
    exposure: float | None = None
    champion: int | None = None
    previous: int | None = None
    kept: int = 0
    stopped: str | None = None
    watermark: int = 0
    since: int = 0
    watched: int = 0
    test: int = 1
    evidence: Mapping[str, float] = field(default_factory=dict)
    tally: Mapping[str, float] = field(default_factory=dict)
    finding: Mapping[str, object] = field(default_factory=dict)
    changed_at: float = 0.0
    revision: int = 0

    @property
    def in_first_shadow(self) -> bool:
        """Whether it is in the shadow it began in: no order or evidence has changed it."""
        return self.ladder and self.exposure == 0.0 and not self.changed_at

    @property
    def control(self) -> int | None:
        """The version that the learner is compared with; ``None`` is the host's own choice."""
        return self.previous if self.kept else self.champion


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
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

    place: int
    rollout: Rollout
    arm: str
    share: float
    agreed: bool | None = None
    until: float | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """What is reported about a rollout after its start.

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
    metadata: Mapping[str, object] = field(default_factory=dict)
    started_at: float | None = None
    later: bool = False


class WholeRollout(NamedTuple):
    """A rollout that succeeded, with all that is its own.

    Attributes:
        rollout: As it ended, but for what it earned.
        attempt: Its only one.
        decisions: In their order, each of another ordinal, and none in an arm of ours.
        rewards: In their order, each of another target.
    """

    rollout: Rollout
    attempt: Attempt
    decisions: Sequence[Decision]
    rewards: Sequence[Reward]

    @property
    def at(self) -> float:
        """When it began, in epoch seconds."""
        return self.attempt.started_at


class LearnableRollout(NamedTuple):
    """A finished and rewarded rollout with its decisions and rewards."""

    rollout: Rollout
    decisions: list[Decision]
    rewards: list[Reward]


class Totals(NamedTuple):
    """What the newest rollouts were worth, those left out from which safety took something.

    Attributes:
        of: How many these are.
        outside: How many were worth less or more than they can be.
        lowest: ``None`` without any.
        highest: The same.
    """

    of: int
    outside: int
    lowest: float | None
    highest: float | None


class Passed(NamedTuple):
    """Ready rollouts of which nothing is learned, as far as an update tells of them.

    Attributes:
        rollouts: How many; everything else is 0 without any.
        first: The ``ready_seq`` of the first.
        last: The ``ready_seq`` of the last.
        known_at: When the last of them had ended and been rewarded, in epoch seconds.
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
    """Up to where the safety costs of a decision point have been counted.

    Attributes:
        ready: Of rollouts up to this ``ready_seq``.
        rewarded: Known from rewards up to this ``seq``.
        at: Epoch seconds, UTC, of the last check for rollouts whose wait for a reward had ended.
    """

    ready: int
    rewarded: int
    at: float


class Shadowed(NamedTuple):
    """A decision in shadow: the policy made a choice, and the host applied its own.

    Attributes:
        options: ``[A]``, the options offered.
        applied: The option that the host applied.
        probabilities: ``[A]``, the policy's probability of each.
    """

    options: tuple[str, ...]
    applied: str
    probabilities: tuple[float, ...]
