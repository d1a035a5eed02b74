"""What an operator checks first, as plain data from the store, and as ``status.json``."""

import json
from collections.abc import Mapping
from pathlib import Path

from tau_live.alerts.growing import grew
from tau_live.alerts.rules import fallen_now, missing_now
from tau_live.collection.forgetting import MB, excess, limits_of
from tau_live.collection.losses import losses_left
from tau_live.errors import UnknownError
from tau_live.gate import GateRow, memory_holds
from tau_live.learning.learner import LARGER, report_of
from tau_live.learning.lease import LEASE
from tau_live.learning.monitoring import told
from tau_live.machine.processes import PROCESSES, is_alive
from tau_live.machine.whole_files import write_whole
from tau_live.operators.disabled_plugins import disabled_plugins
from tau_live.operators.kill_switch import kill_file, now_killed
from tau_live.operators.killed_processes import killed_inside
from tau_live.pauses import told as paused
from tau_live.reasons import CRITIC_ONLY, LEFT_OUT, UNWRITTEN, WhyNot
from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.rewards.settling import reward_range
from tau_live.rollouts import RolloutStatus
from tau_live.settings import Settings
from tau_live.store.records import InService
from tau_live.store.roles import Store
from tau_live.trials.agreement import agreements
from tau_live.trials.facts import trial_facts

FILE = "status.json"
REWARDS = 100
SEEN = 256
LAPSED_S = 7 * 86_400.0
COUNTED = 10_000
"""So far is counted what may be many: status is told after each update."""
ENDS = (RolloutStatus.SUCCEEDED, RolloutStatus.FAILED, RolloutStatus.CANCELLED)


def status_of(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool = True,
    store_fails: str | None = None,
) -> dict[str, object]:
    """Return what an operator asks first, as JSON data.

    Args:
        store: The store, in the thread that it belongs to.
        settings: Where it is.
        now: Epoch seconds, UTC: which leases are in force.
        enabled: Whether tau-live is switched on here.
        store_fails: Why the store cannot be written; ``None`` where nobody has tried.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    latest = store.policies.updates(limit=1)
    points = store.rewards.ready_points()
    killed = now_killed(kill_file(settings.store, settings.kill_file))
    killed = killed_inside(store.leases, now=now) if killed is None else killed
    counts, waiting = counted(store, settings.store), store.rewards.waiting(limit=COUNTED)
    noted, ready_so_far = store.alerts.noted(), store.rewards.became_ready()
    ready = {
        point: store.rewards.ready_count(
            point, after=store.policies.watermark(point), limit=COUNTED
        )
        for point in points
    }
    return {
        "enabled": enabled,
        "store": str(settings.store),
        "at": now,
        "store_fails": store_fails,
        "gate": _gate(store.gate.load()),
        "held_in_memory": [hold._asdict() for hold in memory_holds(settings.store)],
        "paused": paused(store.pauses.pauses()),
        "kill_switch": None if killed is None else killed._asdict(),
        "rollouts": rollouts_by_status(store),
        "waiting_for_reward": waiting,
        "became_ready": ready_so_far,
        "rewards_seen": rewards_seen(store, settings),
        "last_reward_at": store.rewards.newest_at(),
        "rewards_missing": missing_now(*store.rewards.newest_missing(of=REWARDS), noted, settings),
        "reward_fell": fallen_now(noted),
        "not_learned_from": not_learned_from(counts, waiting),
        "ready_to_learn": ready,
        "behind": behind(ready, settings),
        "mean_reward": {
            "first": store.rewards.mean_reward(of=REWARDS, newest=False)
            if ready_so_far >= 2 * REWARDS
            else None,
            "last": store.rewards.mean_reward(of=REWARDS, newest=True),
            "of": REWARDS,
        },
        "agreement": {point: one._asdict() for point, one in agreements(store).items()},
        "last_report": report_of(latest[0]) if latest else None,
        "in_service": in_service(store),
        "monitors": {name: told(one) for name, one in store.monitors.monitors().items()},
        "trials": {
            point: trial_facts(store, trial, settings, now=now)
            for point, trial in store.trials.trials().items()
        },
        "retention": _retention(store, settings, now=now),
        "counters": counts,
        "counters_grew": grew(counts, noted),
        "plugins_disabled": disabled_plugins(store.leases, now=now),
        "processes": attached_processes(store, now=now),
        "silent": silent_processes(store, now=now),
        "learner": now_learning(store, now=now),
    }


def counted(store: Store, path: Path) -> dict[str, int]:
    """Return what was dropped, refused and so on, with what waits to be counted in the store."""
    counts, left = store.counters.counts(), losses_left(path)
    return {**counts, UNWRITTEN: counts.get(UNWRITTEN, 0) + left} if left else counts


def rewards_seen(store: Store, settings: Settings) -> dict[str, object]:
    """Return what the newest rewards were, and how many are outside the range set for them."""
    totals = store.rewards.newest_totals(reward_range(settings), of=SEEN, without=SAFETY)
    names = store.rewards.newest_by_name(of=SEEN, without=SAFETY)
    seen = {name: {"lowest": low, "highest": high} for name, (low, high) in names.items()}
    return {**totals._asdict(), "names": seen}


def _gate(row: GateRow) -> dict[str, object]:
    return {
        "state": row.state,
        "reason": row.reason,
        "detail": row.detail,
        "since": row.since or None,
        "streaks": dict(row.streaks),
    }


def attached_processes(store: Store, *, now: float) -> list[str]:
    """Return the processes that write to a store, but for those known to be dead."""
    holders = store.leases.held(PROCESSES, now=now).values()
    return sorted(owner for owner in holders if is_alive(owner) is not False)


def silent_processes(store: Store, *, now: float) -> dict[str, float]:
    """Return which processes live but cannot write, with since how many seconds about.

    Each renews its lease every few seconds while the store works for it.
    """
    lapsed = store.leases.ending(PROCESSES, after=now - LAPSED_S, until=now).values()
    silent = {owner for owner in lapsed if is_alive(owner)}
    until = {owner: store.leases.until(PROCESSES + owner) for owner in sorted(silent)}
    return {owner: now - at for owner, at in until.items() if at is not None}


def status_file(settings: Settings) -> Path:
    """Return where ``publish`` should put the status of a store: a file beside it."""
    return settings.store.with_name(FILE)


def publish(path: Path, status: Mapping[str, object]) -> None:
    """Write ``status.json``, for its owner's eyes alone; a reader sees the old or the new one.

    Raises:
        OSError: It could not be written; what stood there before still does.
    """
    write_whole(path, json.dumps(status, indent=2).encode() + b"\n")


def _retention(store: Store, settings: Settings, *, now: float) -> dict[str, object]:
    """Return how much may be kept, how much is, and what keeps what is beyond it."""
    size, found = store.retention.size(), excess(store.retention, limits_of(settings), now=now)
    return {
        "days": settings.retention_days,
        "rollouts": settings.retention_rollouts,
        "mb": settings.retention_mb,
        "used_mb": size.used_bytes / MB,
        "over": found.over,
        "kept": found.kept._asdict(),
    }


def now_learning(store: Store, *, now: float) -> str | None:
    """Return the process that makes an update; ``None`` where none does, or it is dead."""
    owner = store.leases.holder(LEASE, now=now)
    return None if owner is None or is_alive(owner) is False else owner


def behind(ready: Mapping[str, int], settings: Settings) -> dict[str, dict[str, int]]:
    """Return the points where more waits than an update usually takes, so that it takes more.

    Args:
        ready: How many rollouts wait to be learned from, by decision point.
        settings: How many an update takes.
    """
    usual = settings.max_rollouts_per_update
    return {
        point: {"ready": waiting, "update_takes": min(LARGER * usual, waiting)}
        for point, waiting in ready.items()
        if waiting > usual
    }


def not_learned_from(counts: Mapping[str, int], waiting: int) -> dict[str, int]:
    """Return by reason how many rollouts and decisions taught nothing, or the critic alone."""
    waits = {WhyNot.REWARD_NOT_DUE.value: waiting} if waiting else {}
    left_out = {reason.value: counts.get(f"{LEFT_OUT}{reason}", 0) for reason in WhyNot}
    critic = {
        f"{reason} (critic only)": counts.get(f"{CRITIC_ONLY}{reason}", 0) for reason in WhyNot
    }
    found = {**left_out, **critic, **waits}
    return {reason: count for reason, count in found.items() if count}


def rollouts_by_status(store: Store) -> dict[str, int]:
    """Return how many rollouts are at each of their ends, and how many are still open."""
    counts = store.rollouts.counts_by_status()
    ends = {end.value: counts[end] for end in ENDS}
    completed = sum(ends.values())
    return {"completed": completed, **ends, "open": sum(counts.values()) - completed}


def in_service(store: Store) -> dict[str, dict[str, object]]:
    """Return what serves each decision point, and what it was trained on."""
    serving = store.policies.in_service()
    return {point: _serving(store, serving[point]) for point in sorted(serving)}


def _serving(store: Store, serving: InService) -> dict[str, object]:
    try:
        row = store.policies.version(serving.version) if serving.version else None
    except UnknownError:
        row = None
    return {
        "version": serving.version,
        "pinned": serving.pinned,
        "since": serving.changed_at,
        "rollouts": row.rollouts if row else 0,
        "parent": row.parent if row else None,
    }
