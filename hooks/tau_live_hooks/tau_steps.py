"""What each line of the reference host says, given the run that it belongs to."""

import json
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, NamedTuple

from tau_live.events import (
    Content,
    Context,
    ErrorInfo,
    Event,
    Fidelity,
    Message,
    ModelEnd,
    Policy,
    Reason,
    Retry,
    Status,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from tau_live_hooks import tau_records as told

_REMEMBERED = 4_096


@dataclass(slots=True)
class Run:
    """What is known of a run.

    Attributes:
        run_id: ``{stream}#{ordinal}``.
        began_at: Epoch seconds of its first line.
        stamped: Whether the host itself told that time.
        last_at: Epoch seconds of its last line so far.
        last_type: That line's type.
        started: Whether its start was said.
        ended: Whether its end was said.
        prompt: The last of the user's messages before the start.
        reply: The last of the assistant's messages.
        turn: The turn that was heard of last.
        turns: How many turns began.
        messages: How many messages were added.
        usage: Sums over the turns.
        cost_usd: Sum over the turns; ``None`` if nothing was told.
        replanning: Whether the next message of the user will be one the host writes itself.
        blocked: Whether a safety rule blocked, and nothing has come after it.
        over_budget: Whether the cost reached the budget.
        gave_up: What the host said when it gave up, if it did.
        names: How often each span name was used; only the newest are remembered.
        tools: The span and turn of each call that is open; only the newest are remembered.
    """

    run_id: str
    began_at: float
    stamped: bool
    last_at: float
    last_type: str = ""
    started: bool = False
    ended: bool = False
    prompt: str | None = None
    reply: str | None = None
    turn: int | None = None
    turns: int = 0
    messages: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    replanning: bool = False
    blocked: bool = False
    over_budget: bool = False
    gave_up: ErrorInfo | None = None
    names: dict[str, int] = field(default_factory=dict)
    tools: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def span(self, name: str) -> str:
        """Return an id for a span so called, unlike any before it in this run."""
        number = self.names.pop(name, 0) + 1
        self.names[name] = number
        if len(self.names) > _REMEMBERED:
            del self.names[next(iter(self.names))]
        return name if number == 1 else f"{name}#{number}"

    def turn_span(self, turn: int | None) -> str | None:
        """Return the id of a turn's span, if it is known."""
        number = self.names.get(f"agent.turn.{turn}", 0)
        return None if not number else f"agent.turn.{turn}" + f"#{number}" * (number > 1)


class Step(NamedTuple):
    """An event to be made: its class and what it holds besides the envelope's beginning."""

    kind: type[Event]
    fields: dict[str, Any]


class Verdict(NamedTuple):
    """How a run ended whose end was not told."""

    status: Status
    reason: Reason
    error: ErrorInfo | None


def verdict(run: Run, *, next_came: bool) -> Verdict:
    """Return how a run ended, from what was last heard of it, before the next one or the end."""
    if run.blocked:
        return Verdict(Status.CANCELLED, Reason.SAFETY_BLOCKED, None)
    if run.over_budget:
        return Verdict(Status.LIMIT, Reason.LIMIT, None)
    if run.gave_up is not None:
        return Verdict(Status.ERROR, Reason.ERROR, run.gave_up)
    if next_came:
        error = ErrorInfo(type="run_not_completed", message="the next run came", fatal=True)
        return Verdict(Status.ERROR, Reason.ERROR, error)
    return Verdict(Status.UNKNOWN, Reason.ABANDONED, None)


@singledispatch
def step(record: told.Record, run: Run) -> Step:
    """Return what a line says, and note in the run what will matter for its end.

    A line that has no event of its own becomes a ``context`` event that names it.
    """
    return Step(Context, {"op": record.type, "span_id": run.span(f"agent.{record.type}")})


def _goes_on(run: Run) -> None:
    run.blocked = run.replanning = False


def _json(value: object) -> Content:
    return Content(text=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@step.register
def _(record: told.TurnStart, run: Run) -> Step:
    _goes_on(run)
    run.gave_up = None
    run.turn = record.turn
    run.turns += 1
    return Step(TurnStart, {"span_id": run.span(f"agent.turn.{record.turn}")})


@step.register
def _(record: told.TurnEnd, run: Run) -> Step:
    run.blocked = False
    for name, count in (record.usage or {}).items():
        run.usage[name] = run.usage.get(name, 0.0) + count
    span_id = run.turn_span(record.turn)
    fields = {
        "turn": record.turn,
        "span_id": span_id or run.span(f"agent.turn.{record.turn}"),
        "usage": record.usage or {},
        "tool_calls": record.tool_results,
        "finish_reason": record.finish_reason,
        "duration_ms": record.request_duration_ms,
        "status": Status.OK,
        "fidelity": Fidelity.NATIVE if span_id else Fidelity.END_ONLY,
    }
    return Step(TurnEnd, fields)


@step.register
def _(record: told.MessageAdded, run: Run) -> Step:
    _goes_on(run)
    if record.role == "user" and not run.started:
        run.prompt = record.text
    if record.role == "assistant":
        run.reply = record.text
    index = run.messages
    run.messages += 1
    fields = {
        "span_id": f"message.added.{index}",
        "parent_span_id": run.turn_span(run.turn),
        "role": record.role,
        "content": Content(text=record.text),
        "tool_calls": record.tool_calls,
        "index": index,
    }
    return Step(Message, fields)


@step.register
def _(record: told.ToolExecutionStart, run: Run) -> Step:
    _goes_on(run)
    span_id = run.span(record.tool_call_id or f"tool.{record.tool_name}")
    run.tools.pop(record.tool_call_id, None)
    run.tools[record.tool_call_id] = (span_id, run.turn)
    if len(run.tools) > _REMEMBERED:
        del run.tools[next(iter(run.tools))]
    fields = {
        "span_id": span_id,
        "parent_span_id": run.turn_span(run.turn),
        "call_id": record.tool_call_id,
        "tool": record.tool_name,
        "args": _json(record.arguments),
    }
    return Step(ToolStart, fields)


@step.register
def _(record: told.ToolExecutionEnd, run: Run) -> Step:
    run.blocked = False
    known = run.tools.pop(record.tool_call_id, None)
    span_id, turn = known or (run.span(record.tool_call_id or "tool"), run.turn)
    fields = {
        "span_id": span_id,
        "parent_span_id": run.turn_span(turn),
        "turn": turn,
        "call_id": record.tool_call_id,
        "tool": record.tool_name,
        "result": _json(record.content),
        "is_error": record.is_error,
        "status": Status.ERROR if record.is_error else Status.OK,
        "fidelity": Fidelity.NATIVE if known else Fidelity.END_ONLY,
    }
    return Step(ToolEnd, fields)


@step.register
def _(record: told.ReplanTriggered, run: Run) -> Step:
    run.replanning = True
    fields = {
        "turn": record.turn,
        "span_id": run.span("agent.replan_triggered"),
        "parent_span_id": run.turn_span(record.turn),
        "what": "plan",
        "reason": record.reason,
    }
    return Step(Retry, fields)


@step.register
def _(record: told.RecoveryAttempted, run: Run) -> Step:
    span_id = run.span("agent.recovery_attempted")
    return Step(Retry, {"span_id": span_id, "what": "recovery", "number": record.attempt})


@step.register
def _(record: told.CostUpdated, run: Run) -> Step:
    run.cost_usd = (run.cost_usd or 0.0) + record.turn_cost_usd
    if record.budget_usd is not None:
        run.over_budget = record.cumulative_cost_usd >= record.budget_usd
    fields = {
        "turn": record.turn,
        "span_id": run.span("agent.cost_updated"),
        "parent_span_id": run.turn_span(record.turn),
        "cost_usd": record.turn_cost_usd,
        "status": Status.OK,
        "fidelity": Fidelity.END_ONLY,
        "raw": {
            "cumulative_cost_usd": record.cumulative_cost_usd,
            "budget_usd": record.budget_usd,
        },
    }
    return Step(ModelEnd, fields)


@step.register
def _(record: told.CostBudgetAlert, run: Run) -> Step:
    run.over_budget = run.over_budget or record.cumulative_cost_usd >= record.budget_usd
    fields = {
        "turn": record.turn,
        "span_id": run.span("agent.cost_budget_alert"),
        "stage": "cost_budget",
        "mode": "warn",
        "rules": (f"cost_budget.{record.threshold_percent}_percent",),
        "raw": {
            "threshold_percent": record.threshold_percent,
            "cumulative_cost_usd": record.cumulative_cost_usd,
            "budget_usd": record.budget_usd,
        },
    }
    return Step(Policy, fields)


@step.register
def _(record: told.SafetyPolicyApplied, run: Run) -> Step:
    run.blocked = record.blocked
    fields = {
        "span_id": run.span("agent.safety_policy_applied"),
        "parent_span_id": run.turn_span(run.turn),
        "stage": record.stage,
        "mode": record.mode,
        "blocked": record.blocked,
        "rules": record.matched_rules,
        "reason_codes": record.reason_codes,
        "status": Status.VETOED if record.blocked else Status.OK,
    }
    return Step(Policy, fields)


@step.register
def _(record: told.ContextCompactionTriggered, run: Run) -> Step:
    fields = {
        "span_id": run.span("agent.context_compaction_triggered"),
        "op": "compact",
        "before": record.messages_before,
        "after": record.messages_after,
    }
    return Step(Context, fields)


@step.register(told.CircuitBreakerTripped)
@step.register(told.EscalationRequired)
@step.register(told.GracefulTermination)
def _(
    record: told.CircuitBreakerTripped | told.EscalationRequired | told.GracefulTermination,
    run: Run,
) -> Step:
    message = {
        told.CircuitBreakerTripped: "reason",
        told.EscalationRequired: "message",
        told.GracefulTermination: "summary",
    }[type(record)]
    run.gave_up = ErrorInfo(type=record.type, message=getattr(record, message), fatal=True)
    raw = {name: getattr(record, name) for name in record.__struct_fields__}
    return Step(
        Context, {"op": record.type, "span_id": run.span(f"agent.{record.type}"), "raw": raw}
    )
