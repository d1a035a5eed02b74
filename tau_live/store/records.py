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
        limit: At most so many; ``None`` is all.
        offset: Leaves out so many first.
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
    """Some rollouts and how many there are in all."""

    rollouts: list[Rollout]
    total: int


class Claim(NamedTuple):
    """A rollout that a worker took, and the attempt it makes."""

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
        version: Numbers every version of every point, from 1.
        point: The decision point.
        parent: The version it was made from; 0 is the untrained policy.
        algorithm: What made it.
        sha256: The checksum of its file.
        file: The name of its file in the checkpoint folder.
        rollouts: How many rollouts it has been trained on in all.
        created_at: Epoch seconds, UTC.
        metadata: The numpy version, the seed, and so on.
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
        version: What decides; 0 is the untrained policy.
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
    """One update of a policy, or the reason why there was none.

    Attributes:
        update: The number of the update, from 1.
        point: The decision point; empty where no rollout had a decision.
        executed: Whether weights changed.
        skipped_reason: Why not.
        version: The version that it made.
        parent: The version that it began from.
        first_ready: The first of the rollouts it took, by ``ready_seq``.
        last_ready: The last of them: the watermark of the decision point.
        trajectories: How many rollouts were learned from.
        samples: How many decisions.
        at: Epoch seconds, UTC.
        report: Everything else there is to say about it.
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
        since: What was learned up to this ``ready_seq`` is of a world that has changed; 0 if none.
        numbers: The charts of drift, the price of safety, what has held the gate.
        alarms: The last alarms of drift, newest last.
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
    """What is known of the learner of a decision point against its control, and what follows.

    Attributes:
        point: The decision point.
        ladder: Whether it began in shadow, as the points of acting adapters do.
        exposure: The share of rollouts that the learner may decide; ``None`` is all but
            ``TAU_LIVE_RL_CONTROL_SHARE``.
        champion: The version last proven better; ``None`` is the host's own choice.
        previous: The champion before.
        kept: For so many rollouts more the champion before is the control and keeps a share.
        stopped: Why the learner decides nothing; ``None`` while it may.
        watermark: The place of the last rollout that was counted, among all assignments.
        since: Up to this place another control decided; what came of that is not counted.
        watched: The ``seq`` of the last reward that was looked at for critical violations.
        test: Which test this is, from 1; each spends less than the one before.
        evidence: The numbers of ``rl.verdict.Evidence``; empty until rewards have a range.
        tally: Plain counts and sums of the arms since the test began.
        finding: What followed from the evidence when it was last looked at.
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
        until: Epoch seconds until which its reward is waited for; ``None`` if it is not.
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
    """What is told of a rollout after its beginning.

    Attributes:
        name: What kind of run it is; empty where that is not told.
        session_id: What runs of one conversation share.
        parent_id: The rollout inside which it ran.
        input: Open-ended JSON data.
        metadata: Open-ended JSON data, by name.
        started_at: Epoch seconds, UTC.
        later: Whether a later attempt tells it, whose metadata counts more than what is known.
    """

    name: str = ""
    session_id: str | None = None
    parent_id: str | None = None
    input: object = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    started_at: float | None = None
    later: bool = False


class LearnableRollout(NamedTuple):
    """A finished and rewarded rollout with its decisions and rewards."""

    rollout: Rollout
    decisions: list[Decision]
    rewards: list[Reward]


class Charged(NamedTuple):
    """A rollout that was learned from, and whose safety cost may be another by now.

    Attributes:
        rollout: The rollout.
        rewards: All of its rewards.
        counted: The cost that the price has counted of it; ``None`` while that was unknown.
    """

    rollout: Rollout
    rewards: list[Reward]
    counted: float | None


class CostsSeen(NamedTuple):
    """Up to where the safety costs of a decision point have been counted.

    Attributes:
        ready: Of rollouts up to this ``ready_seq``.
        rewarded: As far as rewards up to this ``seq`` tell them.
        at: Epoch seconds, UTC, when it was last looked whose wait for a reward had ended.
    """

    ready: int
    rewarded: int
    at: float


class Shadowed(NamedTuple):
    """A decision in shadow: the policy was asked, the host did what it does without us.

    Attributes:
        options: ``[A]``, what was offered.
        applied: What the host did.
        probabilities: ``[A]``, what the policy gave to each.
    """

    options: tuple[str, ...]
    applied: str
    probabilities: tuple[float, ...]
