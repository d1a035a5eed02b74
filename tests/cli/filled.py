"""A store with one of everything, written through the store's own roles."""

import time
from dataclasses import replace
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace as changed

from tau_live.core.gate import GateEntry, GateRow
from tau_live.core.records import (
    AuditEntry,
    Monitor,
    Reason,
    RolloutMode,
    RolloutStatus,
    StoredAlarm,
    StoredFinding,
    Trial,
    Update,
)
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.decisions.policies import policy_config
from tau_live.learn.monitoring import Figures
from tau_live.operate.alerts import AlertRaiser
from tau_live.operate.status import status_of
from tau_live.rl.state import LearnerState
from tau_live.store.records import Candidate, Optimization
from tau_live.store.roles import Store
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import attempt, decision, policy, reward, rollout, span, update
from tests.writes import writes

SOLVED = "live-5f0d7f0e-0000-5000-8000-000000000001"
FAILED = "live-5f0d7f0e-0000-5000-8000-000000000002"
CHILD = "live-aa0d7f0e-0000-5000-8000-000000000003"
OPEN = "live-bb0d7f0e-0000-5000-8000-000000000004"
QUEUED = "job-1"
EARLY = "live-cc0d7f0e-0000-5000-8000-000000000005"
FIGURES = Figures(
    rollouts=9,
    decisions=9,
    entropy=0.5,
    option="small",
    option_share=0.75,
    reward_mean=0.5,
    reward_spread=0.25,
    sources={"user": 1.0},
    costs=4,
    cost=0.125,
)
WORSE: StoredAlarm = {
    "option": "large",
    "direction": "worse",
    "seen": 90,
    "since": 30,
    "shift": -0.8,
    "ready_seq": 9,
}
HOST_PROCESS = "machine:1:2"


def fill(path: Path) -> None:
    """Write one of everything into a new store."""
    store = SqliteStore.open(path)
    with store.begin():
        add_runs(store)
        _add_policies(store, Settings(store=path))
        _add_trials(store)
        _add_gate(store)
        store.leases.acquire(f"process:{HOST_PROCESS}", HOST_PROCESS, ttl_s=600.0)
        store.counters.add({"dropped_queue": 2, "duplicate_spans": 1})
    _add_optimization(store)
    _add_alerts(store, Settings(store=path))
    store.close()


def add_runs(store: Store) -> None:
    """Add a run that succeeded, one that failed, and one each in all other states."""
    _add_solved(store)
    _add_failed(store)
    _add_others(store)


def _add_solved(store: Store) -> None:
    row = rollout(SOLVED, started_at=1_700_000_000.0)
    writes(store).begin_rollout(
        structs.replace(row, name="triage", session_id="anna", metadata={"ticket": 17})
    )
    writes(store).begin_attempt(attempt(SOLVED))
    writes(store).add_span(changed(span("run", SOLVED, ended_at=3.5, status="ok"), kind="run"))
    inner = span("search", SOLVED, ended_at=2.4, status="ok", attributes={"chars": 7})
    writes(store).add_span(changed(inner, parent_span_id="run"))
    writes(store).add_decision(decision(1, SOLVED))
    writes(store).add_decision(
        structs.replace(decision(2, SOLVED, point="tools"), why_not="too late")
    )
    writes(store).add_decision(structs.replace(decision(3, SOLVED), propensity=None))
    writes(store).add_reward(reward(1.0, SOLVED))
    comment = reward(None, SOLVED, name="note", decision_id=f"{SOLVED}:attempt-1:decision-1")
    writes(store).add_reward(structs.replace(comment, comment="well done"))
    _end(store, SOLVED, RolloutStatus.SUCCEEDED, Reason.COMPLETED)
    writes(store).mark_ready(SOLVED, total_reward=1.0)


def _add_failed(store: Store) -> None:
    row = rollout(FAILED, started_at=1_700_000_100.0)
    writes(store).begin_rollout(structs.replace(row, name="triage"))
    writes(store).begin_attempt(attempt(FAILED))
    writes(store).add_decision(decision(1, FAILED))
    _end(store, FAILED, RolloutStatus.FAILED, Reason.ERROR)
    writes(store).mark_ready(FAILED, total_reward=-0.5)


def _add_others(store: Store) -> None:
    child = rollout(CHILD, started_at=1_700_000_000.5)
    writes(store).begin_rollout(structs.replace(child, name="look up", parent_id=SOLVED))
    _end(store, CHILD, RolloutStatus.CANCELLED, Reason.CANCELLED)
    writes(store).await_reward(CHILD, until=4e9)
    writes(store).begin_rollout(rollout(OPEN, owner=HOST_PROCESS, started_at=1_700_000_200.0))
    queued = rollout(QUEUED, RolloutStatus.QUEUING, started_at=None)
    store.queue.enqueue(
        structs.replace(queued, host="queue", mode=RolloutMode.TRAIN, input={"question": "why"}),
        at=1.0,
    )


def _end(store: Store, rollout_id: str, status: RolloutStatus, reason: Reason) -> None:
    began = store.rollouts.rollout(rollout_id).started_at or 0.0
    writes(store).set_status(rollout_id, status, at=began + 2.5, reason=reason)


def _add_policies(store: SqliteStore, settings: Settings) -> None:
    """Two versions for ``model``, the second made from the first, and an update that made none."""
    arrays = LearnerState.initial(policy_config(settings)).arrays()
    parent_sha256 = ""
    for version in (1, 2):
        made = checkpoints.Checkpoint(
            version=version,
            point="model",
            parent=version - 1,
            parent_sha256=parent_sha256,
            arrays=arrays,
        )
        file = checkpoints.save(store.checkpoints, made)
        parent_sha256 = made.sha256
        row = structs.replace(policy(version, parent=version - 1), sha256=made.sha256, file=file)
        store.policies.add_update(_learned(version), row)
    store.policies.put_in_service("pinned", 0, pinned=True, at=150.0)
    skipped = structs.replace(update(9, executed=False), at=200.0)
    store.policies.add_update(skipped, None)
    store._connection.change("update sequences set value = 9 where name = 'ready'")  # some are gone
    store.monitors.save(
        Monitor(
            point="model",
            watermark=9,
            numbers={"figures": structs.asdict(FIGURES)},
            alarms=(WORSE,),
        )
    )


def _add_trials(store: Store) -> None:
    """A trial at ``model`` that has counted every rollout, with a champion."""
    interval: dict[str, float | None] = {"estimate": 0.1, "lower": 0.02, "upper": 0.2}
    finding: StoredFinding = {
        "verdict": "promote", "difference": interval, "cost": interval, "missing": interval
    }  # fmt: skip
    tally = {"learner": 8.0, "learner_known": 7.0, "control": 2.0, "asked": 2.0, "agreed": 1.0}
    store.trials.save(
        Trial(
            point="model", champion=1, watermark=9, tally=tally, finding=finding,
            changed_at=60.0, revision=1,
        )
    )  # fmt: skip
    store.trials.save(Trial(point="tools", watermark=9, revision=1))
    store.trials.save(
        Trial(
            point="prompt@p-fa07597c3d9b", exposure=0.25, watermark=9, tally=tally,
            finding=finding, changed_at=60.0, revision=1,
        )
    )  # fmt: skip


def _add_optimization(store: Store) -> None:
    """Add a run that waits for somebody to lead it, with its first prompts."""
    for text in ("Be brief.", "Be exact."):
        store.resources.publish({"system_prompt": text}, at=50.0)
    run = store.optimizations.create(
        Optimization(
            run_id="", config_digest="ab" * 32, config_path="/tasks.json", config={"seed": 3},
            model_ref="test/any", store_path="store.sqlite", created_at=60.0,
            resources={"system_prompt": 2}, incumbent="p-1",
            report={"limits": {"calls": 10}, "preflight": {}},
        )
    )  # fmt: skip
    for label, state in (("incumbent", "screened"), ("r1-p1-c1", "refused")):
        store.optimizations.keep(
            Candidate(run_id=run.run_id, label=label, version="p-1", state=state, made_at=61.0)
        )


def _add_alerts(store: Store, settings: Settings) -> None:
    """What somebody would have been told of all that by now."""
    alerting = AlertRaiser(
        settings, owner=HOST_PROCESS, tell=lambda _alert: None, count=lambda _name: None
    )
    alerting.check(store, status_of(store, settings, now=time.time()))


def _learned(version: int) -> Update:
    report = {
        "mean_total_loss": 0.25,
        "observed_approx_kl": 0.01,
        "early_stop_triggered": False,
        "left_out": {"no_reward": 1},
    }
    return structs.replace(update(version), version=version, parent=version - 1, report=report)


def _add_gate(store: Store) -> None:
    row = GateRow(
        state="pass",
        reason=None,
        detail="disk full",
        since=50.0,
        streaks={"collection": 2},
        revision=1,
    )
    entry = GateEntry(
        at=50.0, event="reset", state="pass", kind="collection", reason="replaced", who="anna"
    )
    store.gate.save(row, entry=entry)
    store.audit.add(AuditEntry(at=50.0, who="anna", action="gate_reset", reason="replaced"))


def hold(path: Path) -> None:
    """Let the gate of a store hold."""
    store = SqliteStore.open(path)
    found = store.gate.load()
    row = replace(
        found,
        state="hold",
        reason="collection_failures",
        detail="disk full",
        since=60.0,
        streaks={"collection": 3},
        revision=found.revision + 1,
    )
    store.gate.save(row, entry=None)
    store.close()


def version_in_service(path: Path, point: str = "model") -> int:
    """Return what serves a point, as any other process sees it."""
    store = SqliteStore.open(path, read_only=True)
    version = store.policies.in_service()[point].version
    store.close()
    return version
