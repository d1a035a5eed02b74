"""What an operator can do on the dashboard: each acts as the command of its name does."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tau_live.cli.gate import hold_gate, reset_gate
from tau_live.cli.options import has_words, operator, redact_reason
from tau_live.core.reasons import Part
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.operate import trials
from tau_live.operate.access import ACTION, check, principal_of
from tau_live.operate.optimizations import (
    optimization_status,
    publish_optimization,
    state_now,
)
from tau_live.operate.status import status_file
from tau_live.operate.stops import pause_parts, resume_parts
from tau_live.operate.trials import Changed, Order
from tau_live.prompts.control import move
from tau_live.serve.guard import RefusedError
from tau_live.store.records import OptimizationState as State
from tau_live.store.roles import Store

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]

ACTIONS: Mapping[str, str] = {
    "pause": "pause", "resume": "resume", "cancel": "cancel",
    "hold": "hold", "reset": "reset",
    "promote": "promote", "rollback": "rollback", "stop": "stop", "exposure": "exposure",
}  # fmt: skip
"""The command whose permission each action needs."""


MOVES_OF_RUNS = frozenset({"pause", "resume", "cancel"})


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator wants.

    Attributes:
        action: What to do.
        reason: Why; it is recorded in the audit. ``refresh`` alone needs none.
        part: The part of the live loop that is paused or resumed.
        run: The run of an optimization or of lessons that is paused, resumed or cancelled. Without
            a part and a run, the newest run that goes on is; without any, learning is.
        point: The decision point that is promoted, rolled back, stopped or exposed.
        share: The share of rollouts that the learner decides then.
    """

    action: Literal[
        "refresh",
        "pause",
        "resume",
        "cancel",
        "hold",
        "reset",
        "promote",
        "rollback",
        "stop",
        "exposure",
    ]
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    part: Part | None = None
    run: Name | None = None
    point: Name | None = None
    share: Share | None = None


def read_action(content: bytes) -> Action:
    """Return what a request wants. Raises: RefusedError: It is malformed."""
    try:
        action = msgspec.json.decode(content, type=Action)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(str(error)) from None
    if action.action != "refresh" and not has_words(action.reason):
        raise _invalid("give a reason")
    of_point = action.action in {"promote", "rollback", "stop", "exposure"}
    if of_point != (action.point is not None):
        raise _invalid("name a point to promote, roll back, stop or expose, and for nothing else")
    if (action.action == "exposure") != (action.share is not None):
        raise _invalid("give a share to expose, and for nothing else")
    if action.part is not None and action.action not in {"pause", "resume"}:
        raise _invalid("only parts to pause or to resume can be named")
    if action.run is not None and (action.part or action.action not in MOVES_OF_RUNS):
        raise _invalid("name a run to pause, resume or cancel, and for nothing else")
    if action.action == "cancel" and action.run is None:
        raise _invalid("name the run to cancel")
    return action


def _invalid(text: str) -> RefusedError:
    return RefusedError(400, "invalid_dashboard_action", text)


def permit(action: Action, settings: Settings, environ: Mapping[str, str]) -> None:
    """Check the caller's permission by the file of access rules.

    Raises:
        AccessError: The caller may not do this.
    """
    if action.action == "refresh":
        return
    name = f"{ACTION}{ACTIONS[action.action]}"
    check(settings.access, principal_of(environ, settings.principal), name)


def act(action: Action, store: Store, settings: Settings) -> JsonObject:
    """Do what an operator wants, and return what the command of the same name prints as JSON.

    Raises:
        TauLiveError: It cannot be done; the message says why.
    """
    reason, who, at = redact_reason(action.reason), operator(), time.time()
    match action.action:
        case "refresh":  # the answer has the newest state
            return {}
        case "pause" | "resume" | "cancel":
            run = None if action.part else action.run or _led(action, store)
            if run is not None:
                moved = move(store, run, action.action, reason=reason, who=who)
                status = optimization_status(store, store.optimizations.run(run))
                with suppress(OSError):  # the store has it
                    publish_optimization(status_file(settings), status)
                return {"run_id": run, "state": moved.state.value, "idempotent": moved.idempotent}
            parts = (action.part,) if action.part else _parts(action, store)
            change = pause_parts if action.action == "pause" else resume_parts
            changed = change(store, parts, reason=reason, who=who, at=at)
            return {"changed": [*changed]}
        case "hold":
            return {"state": hold_gate(store, settings, reason=reason, who=who, at=at).state}
        case "reset":
            return {"state": reset_gate(store, settings, reason=reason, who=who, at=at).state}
    order = Order(f"policy_{action.action}", action.point or "", reason, who, at)
    done: JsonObject = msgspec.to_builtins(_change(action)(store, settings, order))
    return done


def _led(action: Action, store: Store) -> str | None:
    """Return the newest run that can be paused, or resumed."""
    wanted = {"pause": {State.PREPARING, State.RUNNING}, "resume": {State.PAUSED}}
    runs = store.optimizations.runs()
    return next((run.run_id for run in runs if state_now(run)[0] in wanted[action.action]), None)


def _parts(action: Action, store: Store) -> Sequence[Part]:
    return (Part.LEARNING,) if action.action == "pause" else tuple(store.pauses.pauses())


def _change(action: Action) -> Callable[[Store, Settings, Order], Changed]:
    if action.action == "promote":
        from tau_live.evidence.artifacts import Root
        from tau_live.evidence.promotion import promote_on_proof

        return partial(promote_on_proof, act=trials.promote, proof=None, root=Root(Path()))
    if action.action == "rollback":
        return partial(trials.roll_back, pin=False)
    if action.action == "stop":
        return trials.stop
    return partial(trials.expose, share=action.share or 0.0)
