"""The status of an optimization of prompts, as ``status.json`` shows it."""

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tau_live.core.files import write_whole
from tau_live.core.processes import is_alive
from tau_live.core.records import Worker, WorkerStatus
from tau_live.core.sanitize import JsonObject
from tau_live.store.records import Condition, Optimization, OptimizationState
from tau_live.store.roles import Store

FILE = "status.json"
LED = frozenset(
    {
        OptimizationState.PREPARING,
        OptimizationState.RUNNING,
        OptimizationState.PAUSED,
        OptimizationState.CANCELLING,
    }
)
"""The states of a run that some process leads."""

OWNER_DIED = "owner_died"
CANCELLED = "cancelled"

KEYS = (
    *("schema_version", "updated_unix_ms", "run_state", "model_ref", "store_path"),
    *("total_rollouts", "succeeded", "failed", "cancelled", "open", "requeued", "missing"),
    *("late_results", "run_id", "config_digest", "seed", "owner", "started_unix_ms"),
    *("ended_unix_ms", "phase", "progress", "reason_code", "error", "scores", "adoption"),
    *("candidates", "budget", "workers", "control", "deprecations", "rl_optimizer"),
)
"""The keys of the status of a run, the last only where it is on."""

NO_PROMPT = ("duplicate", "refused", "empty")
"""The states of proposals of which nothing was executed."""


def state_now(run: Optimization) -> tuple[OptimizationState, str | None]:
    """Return the state of a run and why it has it; that of a run whose process died is failed."""
    if run.state not in LED or run.owner is None or is_alive(run.owner) is not False:
        return run.state, run.reason_code
    if run.state is OptimizationState.CANCELLING:  # what its process was doing is done
        return OptimizationState.CANCELLED, CANCELLED
    return OptimizationState.FAILED, OWNER_DIED


def optimization_status(store: Store, run: Optimization) -> JsonObject:
    """Return the status of a run, as ``status.json`` and ``optimize show`` have it.

    The first nine keys and ``rl_optimizer`` are those of the reference's own artifact.
    """
    state, reason_code = state_now(run)
    items = store.optimizations.items(run.run_id)
    report = run.report
    status = {
        "schema_version": 1,
        "updated_unix_ms": _ms(time.time()),
        "run_state": state.value,
        "model_ref": run.model_ref,
        "store_path": run.store_path,
        "total_rollouts": items.total,
        "succeeded": items.succeeded,
        "failed": items.failed,
        "cancelled": items.cancelled,
        "open": items.open,
        "requeued": items.requeued,
        "missing": items.missing,
        "late_results": store.optimizations.late_results(run.run_id),
        "run_id": run.run_id,
        "config_digest": run.config_digest,
        "seed": run.config.get("seed"),
        "owner": run.owner,
        "started_unix_ms": _ms(run.created_at),
        "ended_unix_ms": _ms(run.ended_at),
        "phase": run.phase,
        "progress": {"done": items.total - items.open, "total": items.total},
        "reason_code": reason_code,
        "error": run.error,
        "scores": report.get("scores", {}),
        "adoption": report.get("adoption"),
        "candidates": _candidates(store, run),
        "budget": budget_of(run),
        "workers": _workers(store, run),
        "control": {
            "state": state.value,
            **{key: run.control.get(key) for key in ("reason", "who", "since_unix_ms")},
        },
        "deprecations": report.get("deprecations", []),
    }
    if "rl_optimizer" in report:
        status["rl_optimizer"] = report["rl_optimizer"]
    return status


def budget_of(run: Optimization) -> JsonObject:
    """Return what a run has used and reserved, and its limits."""
    limits, configured = run.report.get("limits"), run.config.get("budget")
    seconds = configured.get("seconds") if isinstance(configured, dict) else None
    known = dict(limits) if isinstance(limits, dict) else {}
    if not known.get("tools"):
        known.pop("tools", None)
    return {
        "limits": {**known, "seconds": seconds},
        "calls": run.calls,
        "rollouts": run.rollouts,
        "tokens": run.tokens,
        "tokens_reserved": run.tokens_reserved,
        "usd": run.usd,
        "usd_reserved": run.usd_reserved,
        "seconds": run.seconds,
    }


def _candidates(store: Store, run: Optimization) -> JsonObject:
    candidates = store.optimizations.candidates(run.run_id)
    states = Counter(known.state for known in candidates if known.state not in NO_PROMPT)
    refused = Counter(known.why or "" for known in candidates if known.state == "refused")
    return {
        **states,
        "duplicates": sum(known.state == "duplicate" for known in candidates),
        "empty": sum(known.state == "empty" for known in candidates),
        "refused": dict(refused),
    }


def _workers(store: Store, run: Optimization) -> list[JsonObject]:
    if state_now(run)[0] not in LED:
        return []
    found = store.find(Worker, Condition("status", "in", [WorkerStatus.IDLE, WorkerStatus.BUSY]))
    return [
        {
            "worker_id": worker.worker_id,
            "state": worker.status.value,
            "rollout_id": worker.active_rollout_id,
            "last_heartbeat_unix_ms": _ms(worker.last_heartbeat_at),
        }
        for worker in found.records
        if worker.owner is None or is_alive(worker.owner) is not False
    ]


def _ms(at: float | None) -> int | None:
    return None if at is None else round(at * 1000)


def publish_optimization(path: Path, status: JsonObject) -> None:
    """Write the status of a run into ``status.json``, beside what the live loop has there.

    Raises:
        OSError: It could not be written; the old file stays.
    """
    others = {key: value for key, value in read_status(path).items() if key not in KEYS}
    content = {**others, **status}
    write_whole(path, json.dumps(content, indent=2).encode() + b"\n")


def read_status(path: Path) -> JsonObject:
    """Return what ``status.json`` holds; nothing if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        known = json.loads(path.read_text())
        if isinstance(known, dict):
            return known
    return {}


def published_optimization(path: Path) -> JsonObject:
    """Return what ``status.json`` holds of an optimization, which the live loop leaves there."""
    known = read_status(path)
    return {name: known[name] for name in KEYS if name in known} if "run_state" in known else {}
