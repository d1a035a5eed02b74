"""The status of a store, and its file ``status.json``."""

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tau_live.core.errors import OddRowError, StoreError, UnknownError
from tau_live.core.files import write_whole
from tau_live.core.gate import GateRow
from tau_live.core.memory_holds import memory_holds
from tau_live.core.processes import PROCESSES, is_alive
from tau_live.core.prompts import prompt_of_trial
from tau_live.core.reasons import CRITIC_ONLY, LEFT_OUT, UNWRITTEN, WhyNot
from tau_live.core.records import InService, RolloutStatus
from tau_live.core.reward_rules import SOURCE as SAFETY
from tau_live.core.settings import Settings, reach_s, spool_of
from tau_live.learn.learner import CATCH_UP_FACTOR, LEASE, report_of
from tau_live.learn.monitoring import monitor_figures
from tau_live.learn.promotion.outcomes import agreements
from tau_live.learn.promotion.prompts import prompt_statuses
from tau_live.learn.promotion.rules import trial_status
from tau_live.operate.alert_rules import growth_times, missing_now, reward_falls
from tau_live.operate.optimizations import FILE, published_optimization
from tau_live.operate.records import (
    Backlog,
    GateStatus,
    HostHold,
    MeanReward,
    RetentionStatus,
    RewardSpan,
    RewardsSeen,
    ServingVersion,
    SpoolStatus,
    Status,
    Unaware,
)
from tau_live.operate.stops import disabled_plugins, killed_of, pauses_by_part
from tau_live.record.archive import MB, excess, limits_of
from tau_live.record.heartbeats import SEEN_S, heartbeats, holding_alone, unaware
from tau_live.record.rewards import totals_within
from tau_live.record.shutdown import losses_left
from tau_live.store.opening import open_spool
from tau_live.store.roles import Store

REWARDS = 100
SEEN = 256
COUNTED = 10_000
"""The limit of counts that may be large, because the status is made after each update."""
ENDS = (RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED)


def spool_status(settings: Settings) -> SpoolStatus | None:
    """Return what the spool of this host has yet to send; ``None`` if it cannot be read."""
    path = spool_of(settings)
    if path is None or not path.is_file():
        return None
    with suppress(StoreError), closing(open_spool(path, read_only=True)) as spool:
        return SpoolStatus(**spool.state()._asdict())
    return None


def status_of(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool = True,
    store_fails: str | None = None,
) -> Status:
    """Return the status of a store.

    Args:
        store: The store, in the thread that it belongs to.
        settings: Its address, limits and ranges.
        now: Epoch seconds, UTC; tells which leases are in force.
        enabled: Whether tau-live is switched on here.
        store_fails: Why the store cannot be written; ``None`` if it can, or nobody has tried.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    latest, trials = store.policies.updates(limit=1), store.trials.trials()
    facts = alert_facts(store, settings, now=now)
    is_long = facts.became_ready >= 2 * REWARDS
    return replace(
        facts,
        enabled=enabled,
        store_fails=store_fails,
        held_in_memory=memory_holds(settings.store),
        rollouts=rollouts_by_status(store),
        ready_to_learn=ready_to_learn(store, facts.ready_to_learn, settings),
        rewards_seen=rewards_seen(store, settings),
        last_reward_at=store.rewards.newest_at(),
        not_learned_from=not_learned_from(facts.counters, facts.waiting_for_reward),
        mean_reward=MeanReward(
            first=store.rewards.mean_reward(of=REWARDS, newest=False) if is_long else None,
            last=store.rewards.mean_reward(of=REWARDS, newest=True),
            of=REWARDS,
        ),
        agreement=agreements(store),
        last_report=report_of(latest[0]) if latest else None,
        in_service=in_service(store),
        trials={
            point: trial_status(store, trial, settings, now=now)
            for point, trial in trials.items()
            if prompt_of_trial(point) is None
        },
        prompts=prompt_statuses(store, settings, now=now),
        retention=_retention(store, settings, now=now),
        spool=spool_status(settings),
        processes=attached_processes(store),
        silent=silent_processes(store),
        learner=now_learning(store),
    )


def ready_to_learn(store: Store, ready: Mapping[str, int], settings: Settings) -> Mapping[str, int]:
    """Return how many of the ready rollouts teach the policy, by point: none in shadow does."""
    if settings.learn_from_host:
        return ready
    return {
        point: store.rewards.learnable_count(
            point, after=store.policies.watermark(point), limit=COUNTED
        )
        if count
        else 0
        for point, count in ready.items()
    }


def alert_facts(store: Store, settings: Settings, *, now: float) -> Status:
    """Return the part of the status that alerts need, at a third of its SQL statements.

    Args:
        store: The store, in the thread that it belongs to.
        settings: Its address, limits and ranges.
        now: Epoch seconds, UTC; tells which leases are in force.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    counters, notes = counters_of(store, settings.store), store.alerts.notes()
    ready = {
        point: store.rewards.ready_count(
            point, after=store.policies.watermark(point), limit=COUNTED
        )
        for point in store.rewards.ready_points()
    }
    return Status(
        store=str(settings.store),
        at=now,
        gate=_gate(store.gate.load()),
        hosts_holding=hosts_holding(store),
        paused=pauses_by_part(store.pauses.pauses()),
        kill_switch=killed_of(store, settings),
        waiting_for_reward=store.rewards.waiting(limit=COUNTED),
        became_ready=store.rewards.became_ready(),
        rewards_missing=missing_now(*store.rewards.newest_missing(of=REWARDS), notes, settings),
        reward_fell=reward_falls(notes),
        ready_to_learn=ready,
        behind=behind(ready, settings),
        monitors={
            name: monitor_figures(monitor) for name, monitor in store.monitors.monitors().items()
        },
        counters=counters,
        counters_grew=growth_times(counters, notes),
        plugins_disabled=disabled_plugins(store.leases),
    )


def counters_of(store: Store, path: Path) -> dict[str, int]:
    """Return the counters of a store, with the losses not yet counted there."""
    counts, left = store.counters.counts(), losses_left(path)
    return {**counts, UNWRITTEN: counts.get(UNWRITTEN, 0) + left} if left else counts


def rewards_seen(store: Store, settings: Settings) -> RewardsSeen:
    """Return the range of the newest rewards, and how many are outside theirs."""
    totals = store.rewards.newest_totals(totals_within(settings), of=SEEN, without=SAFETY)
    names = store.rewards.newest_by_name(of=SEEN, without=SAFETY)
    spans = {name: RewardSpan(lowest=low, highest=high) for name, (low, high) in names.items()}
    return RewardsSeen(**totals._asdict(), names=spans)


def _gate(row: GateRow) -> GateStatus:
    return GateStatus(
        state=row.state,
        reason=row.reason,
        detail=row.detail,
        since=row.since or None,
        streaks=dict(row.streaks),
    )


def hosts_holding(store: Store) -> list[HostHold]:
    """Return the processes of a fleet that hold alone."""
    if not store.is_shared:
        return []
    return [
        HostHold(
            host=each.host,
            process=each.process,
            reason=str(each.report.reason),
            detail=each.report.detail,
            since=each.report.since,
        )
        for each in holding_alone(store)
    ]


def unaware_processes(store: Store, settings: Settings, *, revision: int) -> list[Unaware]:
    """Return the processes of a fleet that do not act by a revision of the gate yet.

    One that has been silent for longer than its permit leaves decisions to its host.
    """
    if not store.is_shared:
        return []
    seen = heartbeats(store.leases, within_s=max(SEEN_S, reach_s(settings)))
    return [
        Unaware(process=each.process, silent_s=max(0.0, each.ago_s))
        for each in unaware(seen, revision)
    ]


def attached_processes(store: Store) -> list[str]:
    """Return the processes that write to a store, except those known to be dead."""
    holders = store.leases.holders(PROCESSES).values()
    return sorted(owner for owner in holders if is_alive(owner) is not False)


def silent_processes(store: Store) -> dict[str, float]:
    """Return the processes that live but cannot write, with about how many seconds they could not.

    Each renews its lease every few seconds while it can write.
    """
    return {
        lease.holder: -lease.left_s
        for lease in store.leases.all(PROCESSES)
        if -7 * 86_400.0 < lease.left_s <= 0.0 and is_alive(lease.holder)
    }


def status_file(settings: Settings) -> Path:
    """Return the path of a store's ``status.json``, which is beside it."""
    return settings.store.with_name(FILE)


def publish(path: Path, status: Status | Mapping[str, object]) -> None:
    """Write ``status.json`` atomically, readable by its owner alone.

    What it holds of an optimization of prompts stays there.

    Raises:
        OSError: It could not be written; the old file stays.
    """
    content = {**published_optimization(path), **msgspec.to_builtins(status)}
    write_whole(path, json.dumps(content, indent=2).encode() + b"\n")


def _retention(store: Store, settings: Settings, *, now: float) -> RetentionStatus:
    """Return the limits of retention, the size, and the reasons for what exceeds them."""
    size, surplus = store.retention.size(), excess(store.retention, limits_of(settings), now=now)
    return RetentionStatus(
        days=settings.retention_days,
        rollouts=settings.retention_rollouts,
        mb=settings.retention_mb,
        used_mb=size.used_bytes / MB,
        over=surplus.over,
        kept=surplus.kept,
    )


def now_learning(store: Store) -> str | None:
    """Return a process that makes an update; ``None`` if there is none, or it is dead."""
    holders = sorted(store.leases.holders(LEASE).values())
    return next((owner for owner in holders if is_alive(owner) is not False), None)


def behind(ready: Mapping[str, int], settings: Settings) -> dict[str, Backlog]:
    """Return the points where more rollouts wait than an update usually takes.

    Args:
        ready: How many rollouts wait to be learned from, by decision point.
        settings: How many an update takes.
    """
    usual = settings.max_rollouts_per_update
    return {
        point: Backlog(ready=waiting, update_takes=min(CATCH_UP_FACTOR * usual, waiting))
        for point, waiting in ready.items()
        if waiting > usual
    }


def not_learned_from(counts: Mapping[str, int], waiting: int) -> dict[str, int]:
    """Return, by reason, how many rollouts and decisions taught nothing, or the critic only."""
    waits = {WhyNot.REWARD_NOT_DUE.value: waiting} if waiting else {}
    left_out = {reason.value: counts.get(f"{LEFT_OUT}{reason}", 0) for reason in WhyNot}
    critic = {
        f"{reason} (critic only)": counts.get(f"{CRITIC_ONLY}{reason}", 0) for reason in WhyNot
    }
    reasons = {**left_out, **critic, **waits}
    return {reason: count for reason, count in reasons.items() if count}


def rollouts_by_status(store: Store) -> dict[str, int]:
    """Return how many rollouts have ended, by status, and how many are still open."""
    counts = store.rollouts.counts_by_status()
    ends = {end.value: counts[end] for end in ENDS}
    completed = sum(ends.values())
    return {"completed": completed, **ends, "open": sum(counts.values()) - completed}


def in_service(store: Store) -> dict[str, ServingVersion]:
    """Return the version that serves each decision point, and its training."""
    serving = store.policies.in_service()
    return {point: _serving(store, serving[point]) for point in sorted(serving)}


def _serving(store: Store, serving: InService) -> ServingVersion:
    try:
        row = store.policies.version(serving.version) if serving.version else None
    except (UnknownError, OddRowError):
        row = None
    return ServingVersion(
        version=serving.version,
        pinned=serving.pinned,
        since=serving.changed_at,
        rollouts=row.rollouts if row else 0,
        parent=row.parent if row else None,
    )
