"""The records of a status: what ``tau-live status --json`` prints, key by key."""

from collections.abc import Mapping, Sequence

import msgspec

from tau_live.core.memory_holds import MemoryHold
from tau_live.core.sanitize import JsonObject
from tau_live.learn.monitoring import PointFigures
from tau_live.learn.promotion.outcomes import Agreement
from tau_live.learn.promotion.rules import PromptStatus, TrialStatus
from tau_live.operate.stops import DisabledPlugin, Stop
from tau_live.store.retention import Kept


class GateStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the gate.

    Attributes:
        state: ``pass`` or ``hold``.
        reason: The code of the reason for holding.
        detail: The last error, in words.
        since: Epoch seconds of the last change; ``None`` before the first.
        streaks: Consecutive failures, by kind.
    """

    state: str = "pass"
    reason: str | None = None
    detail: str | None = None
    since: float | None = None
    streaks: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the host makes its own choices."""
        return self.state != "pass"


class HostHold(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a fleet that holds because of its own failures, alone.

    Attributes:
        host: Its machine, or container.
        process: The process.
        reason: The code of the reason for holding.
        detail: The last error, in words.
        since: Epoch seconds, UTC, by the clock of the machine.
    """

    host: str
    process: str
    reason: str
    detail: str | None
    since: float


class Unaware(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a fleet that may not act by the newest order about the gate yet.

    Attributes:
        process: The process.
        silent_s: How long ago its last heartbeat was, in seconds.
    """

    process: str
    silent_s: float


class RewardSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest and the highest of some rewards."""

    lowest: float
    highest: float


class RewardsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The range of the newest rewards.

    Attributes:
        of: How many rollouts with a reward were looked at.
        outside: How many of them are outside the declared range.
        lowest: The lowest total; ``None`` without any.
        highest: The highest total; ``None`` without any.
        names: The range of the newest rewards, by name.
    """

    of: int = 0
    outside: int = 0
    lowest: float | None = None
    highest: float | None = None
    names: Mapping[str, RewardSpan] = msgspec.field(default_factory=dict)


class RewardsMissing(msgspec.Struct, frozen=True, kw_only=True):
    """Too many missing rewards.

    Attributes:
        since: Epoch seconds; ``None`` if no check has noticed it yet.
        missing: How many of the newest settled rollouts have no reward.
        settled: How many were looked at.
    """

    since: float | None
    missing: int
    settled: int


class RewardFall(msgspec.Struct, frozen=True, kw_only=True):
    """The mean reward of a point before and after a fall."""

    was: float
    fell_to: float


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """A point where more rollouts wait than an update usually takes.

    Attributes:
        ready: How many wait.
        update_takes: How many of them the next update takes.
    """

    ready: int
    update_takes: int


class MeanReward(msgspec.Struct, frozen=True, kw_only=True):
    """The mean reward of the first and of the last rollouts that became ready.

    Attributes:
        first: ``None`` while the first are also among the last.
        last: ``None`` without any.
        of: The most rollouts that each mean covers.
    """

    first: float | None = None
    last: float | None = None
    of: int = 0


class ServingVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version that serves a decision point.

    Attributes:
        version: 0 is untrained.
        pinned: Whether it is pinned.
        since: Epoch seconds.
        rollouts: How many rollouts it was trained on.
        parent: The version it was trained from.
    """

    version: int
    pinned: bool
    since: float
    rollouts: int
    parent: int | None


class RetentionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of retention, and what exceeds them.

    Attributes:
        days: The limit of age; ``None`` if unset.
        rollouts: The limit of rollouts; ``None`` if unset.
        mb: The limit of size; ``None`` if unset.
        used_mb: The size of the store.
        over: The limits that are exceeded.
        kept: Why the oldest ended rollouts are kept.
    """

    days: float | None = None
    rollouts: int | None = None
    mb: float | None = None
    used_mb: float = 0.0
    over: Sequence[str] = ()
    kept: Kept = Kept()


class SpoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the spool of this host has yet to send.

    Attributes:
        unsent: How many rollouts, open ones too.
        oldest_at: Epoch seconds of the oldest of them; ``None`` without any.
        heard_at: Epoch seconds when an agent here last heard the database; ``None`` if none did.
    """

    unsent: int
    oldest_at: float | None
    heard_at: float | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a store; ``alert_facts`` gives no more of it than alerts need.

    Attributes:
        enabled: Whether tau-live is switched on here.
        store: The store's file.
        at: Epoch seconds, UTC.
        store_fails: Why the store cannot be written; ``None`` if it can, or nobody has tried.
        gate: The gate.
        held_in_memory: The processes that hold although the store has no record of it.
        hosts_holding: The processes of a fleet whose own failures hold them alone.
        paused: The pauses, by part.
        kill_switch: The kill switch; ``None`` while it is off.
        rollouts: How many rollouts have ended, by status, and how many are open.
        waiting_for_reward: Ended rollouts that wait for a reward.
        became_ready: Rollouts whose reward became known, including those deleted since.
        rewards_seen: The range of the newest rewards.
        last_reward_at: Epoch seconds of the newest reward; ``None`` before the first.
        rewards_missing: ``None`` while few rewards are missing.
        reward_fell: The falls of the mean reward that last, by point.
        not_learned_from: Rollouts and decisions not learned from, by reason.
        ready_to_learn: Rollouts that wait to be learned from, by point; those in shadow never are.
        behind: The points where more of them wait than an update usually takes.
        mean_reward: The mean reward of the first and of the last rollouts.
        agreement: How often policy and host agree in shadow, by point.
        last_report: The report of the last update, with its open-ended diagnostics.
        in_service: The versions that serve, by point.
        monitors: The figures of the newest rollouts, by point.
        trials: The comparisons with the control, by point.
        prompts: The prompts that are or were on trial, by prompt version.
        retention: The limits of retention, and what exceeds them.
        spool: What the spool of this host has yet to send; ``None`` where there is none.
        counters: The counters, by name.
        counters_grew: When each counter of drops last grew; ``None`` since the last check.
        plugins_disabled: The plugins that a process no longer calls.
        processes: The processes that are attached.
        silent: The processes that cannot write, and for how many seconds.
        learner: The process that is making an update.
    """

    enabled: bool = True
    store: str = ""
    at: float = 0.0
    store_fails: str | None = None
    gate: GateStatus = GateStatus()
    held_in_memory: Sequence[MemoryHold] = ()
    hosts_holding: Sequence[HostHold] = ()
    paused: Mapping[str, Stop] = msgspec.field(default_factory=dict)
    kill_switch: Stop | None = None
    rollouts: Mapping[str, int] = msgspec.field(default_factory=dict)
    waiting_for_reward: int = 0
    became_ready: int = 0
    rewards_seen: RewardsSeen = RewardsSeen()
    last_reward_at: float | None = None
    rewards_missing: RewardsMissing | None = None
    reward_fell: Mapping[str, RewardFall] = msgspec.field(default_factory=dict)
    not_learned_from: Mapping[str, int] = msgspec.field(default_factory=dict)
    ready_to_learn: Mapping[str, int] = msgspec.field(default_factory=dict)
    behind: Mapping[str, Backlog] = msgspec.field(default_factory=dict)
    mean_reward: MeanReward = MeanReward()
    agreement: Mapping[str, Agreement] = msgspec.field(default_factory=dict)
    last_report: JsonObject | None = None
    in_service: Mapping[str, ServingVersion] = msgspec.field(default_factory=dict)
    monitors: Mapping[str, PointFigures] = msgspec.field(default_factory=dict)
    trials: Mapping[str, TrialStatus] = msgspec.field(default_factory=dict)
    prompts: Mapping[str, PromptStatus] = msgspec.field(default_factory=dict)
    retention: RetentionStatus = RetentionStatus()
    spool: SpoolStatus | None = None
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    counters_grew: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    plugins_disabled: Sequence[DisabledPlugin] = ()
    processes: Sequence[str] = ()
    silent: Mapping[str, float] = msgspec.field(default_factory=dict)
    learner: str | None = None
