"""Events of one run, and what the collector made of them."""

from typing import Any

from tau_live.core import events as ev
from tau_live.core.records import AttemptStatus, Reason, RolloutStatus, rollout_id_of
from tau_live.store.roles import Store
from tests.contracts.making import steps
from tests.streams import HOST, event

R = rollout_id_of(HOST, "r")
SUCCEEDED = (RolloutStatus.SUCCEEDED, Reason.COMPLETED)
CANCELLED = (RolloutStatus.CANCELLED, Reason.CANCELLED)


def ended(store: Store, run: str = "r") -> tuple[RolloutStatus, Reason | None]:
    rollout = store.rollouts.rollout(rollout_id_of(HOST, run))
    return rollout.status, rollout.reason


def attempts(store: Store, run: str = "r") -> list[tuple[int, AttemptStatus, float | None]]:
    found = store.rollouts.attempts(rollout_id_of(HOST, run))
    return [(attempt.number, attempt.status, attempt.ended_at) for attempt in found]


def spans(store: Store, run: str = "r") -> list[tuple[int, str, str]]:
    found = steps(store, rollout_id_of(HOST, run))
    return [(span.attempt, span.span_id, span.status) for span in found]


def start(at: float = 1.0, **fields: Any) -> ev.RunStart:
    return event(ev.RunStart, at=at, **fields)


def end(at: float = 9.0, status: ev.Status | None = ev.Status.OK, **fields: Any) -> ev.RunEnd:
    return event(ev.RunEnd, at=at, status=status, **fields)


def tool(at: float, call: str = "c", **fields: Any) -> ev.ToolStart:
    return event(ev.ToolStart, at=at, tool="grep", call_id=call, **fields)


def tool_end(at: float, call: str = "c", **fields: Any) -> ev.ToolEnd:
    return event(ev.ToolEnd, at=at, tool="grep", call_id=call, **fields)


def decision(at: float, ordinal: int = 1, **fields: Any) -> ev.Decision:
    known: dict[str, Any] = {"options": ("a", "b"), "chosen": "a", "applied": "a"}
    known |= {"propensity": 0.5} | fields
    return event(ev.Decision, at=at, ordinal=ordinal, point="model", **known)
