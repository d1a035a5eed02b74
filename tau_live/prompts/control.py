"""Control of an optimization from any process: pause, resume, cancel."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from tau_live.core.errors import InvalidTransitionError, TauLiveError
from tau_live.core.records import AuditEntry
from tau_live.operate.optimizations import (
    CANCELLED,
    FILE,
    OWNER_DIED,
    optimization_status,
    publish_optimization,
    state_now,
)
from tau_live.store.records import OptimizationState
from tau_live.store.roles import Store

State = OptimizationState

INTERRUPTED = "interrupted"
STORE_UNAVAILABLE = "store_unavailable"
RESUMABLE = frozenset({INTERRUPTED, OWNER_DIED, STORE_UNAVAILABLE})
"""Why a failed run may be resumed."""

KILLED = "kill_switch"
HELD = "gate_hold"
OURS = frozenset({KILLED, HELD})
"""Why a run pauses by itself, and goes on by itself."""

MOVES: Mapping[tuple[State, str], State] = {
    (State.PREPARING, "pause"): State.PAUSED,
    (State.RUNNING, "pause"): State.PAUSED,
    (State.PAUSED, "pause"): State.PAUSED,
    (State.PREPARING, "resume"): State.PREPARING,
    (State.RUNNING, "resume"): State.RUNNING,
    (State.PAUSED, "resume"): State.RUNNING,
    (State.PREPARING, "cancel"): State.CANCELLING,
    (State.RUNNING, "cancel"): State.CANCELLING,
    (State.PAUSED, "cancel"): State.CANCELLED,
    (State.CANCELLING, "cancel"): State.CANCELLING,
    (State.COMPLETED, "cancel"): State.COMPLETED,
    (State.FAILED, "cancel"): State.FAILED,
    (State.CANCELLED, "cancel"): State.CANCELLED,
}
"""What a command makes of a run; a move that is not here is refused."""


IDS_AT_ONCE = 500
"""Items that are cancelled in one transaction."""


class Moved(NamedTuple):
    """The state of a run after a command.

    Attributes:
        state: Its state now.
        idempotent: Whether it had it before.
        audit_seq: The number of the line of the audit.
    """

    state: State
    idempotent: bool
    audit_seq: int


def move(store: Store, run_id: str, command: str, *, reason: str, who: str) -> Moved:
    """Pause, resume or cancel a run, with a line of the audit, in one transaction.

    Every worker and whoever leads the run see it within a second.

    Args:
        store: The store.
        run_id: The run.
        command: ``pause``, ``resume`` or ``cancel``.
        reason: Why.
        who: Who is on record for it.

    Raises:
        TauLiveError: The run is in a state that does not allow it.
        UnknownError: No such run is stored.
    """
    at = time.time()
    with store.begin():
        run = store.optimizations.run(run_id)
        state, why = state_now(run)
        new = MOVES.get((state, command))
        if state is State.FAILED and command == "cancel" and why in RESUMABLE:
            new = State.CANCELLED
        if new is None:
            hint = " (`tau-live optimize --resume` resumes it)" if why in RESUMABLE else ""
            raise TauLiveError(f"cannot {command} a run that is {state}{hint}")
        is_ours = state is State.PAUSED and why in OURS and command == "pause"
        if new is not state or is_ours:  # or it would go on by itself
            control = {"reason": reason, "who": who, "since_unix_ms": round(at * 1000)}
            ended_at = at if new is State.CANCELLED else run.ended_at
            store.optimizations.change(
                run_id, state=new, control=control, ended_at=ended_at,
                reason_code=CANCELLED if new in {State.CANCELLING, State.CANCELLED} else None,
            )  # fmt: skip
            if command == "cancel":
                cancel_items(store, run_id, all_of_them=new is State.CANCELLED)
        details = {"run_id": run_id, "state": new.value, "idempotent": new is state}
        store.audit.add(
            AuditEntry(at=at, who=who, action=f"optimize {command}", reason=reason, details=details)
        )
        seq = store.audit.entries(limit=1)[0].seq
    return Moved(new, new is state, seq)


def cancel_items(store: Store, run_id: str, *, all_of_them: bool) -> None:
    """Cancel the items of a run that wait, or all that have not ended."""
    ids = store.optimizations.open_items(run_id)
    for start in range(0, len(ids), IDS_AT_ONCE):
        with store.begin():
            for rollout_id in ids[start : start + IDS_AT_ONCE]:
                waits = store.rollouts.rollout(rollout_id).status in {"queuing", "requeuing"}
                if waits or all_of_them:
                    with suppress(InvalidTransitionError):
                        store.queue.cancel(rollout_id)


def store_deaths(store: Store) -> None:
    """Store that the runs ended whose process died, and publish how the newest run stands."""
    has_changed = False
    for run in store.optimizations.runs():
        state, why = state_now(run)
        if state is run.state:
            continue
        with store.begin():
            is_first = store.optimizations.change(
                run.run_id, states=[run.state], state=state, reason_code=why, ended_at=time.time()
            )
            if is_first and state is State.CANCELLED:
                cancel_items(store, run.run_id, all_of_them=True)
        has_changed = True
    if has_changed:
        newest = store.optimizations.runs(limit=1)[0]
        with suppress(OSError):
            publish_optimization(store.path.with_name(FILE), optimization_status(store, newest))
