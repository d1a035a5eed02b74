"""Lines of the reference host for the tests, and the way back from events to lines."""

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from tau_live.core.events import (
    Content,
    Context,
    Event,
    Fidelity,
    Message,
    ModelEnd,
    Policy,
    Retry,
    RunEnd,
    RunStart,
    Status,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
)
from tau_live.core.records import Reason
from tau_live_hooks.tau import TauStream

SESSION = Path(__file__).parents[1] / "golden" / "tau_session.jsonl"
Line = dict[str, object]

START: Line = {"type": "agent_start"}
END: Line = {"type": "agent_end", "new_messages": 2}
UNKNOWN: Line = {"type": "unknown_event"}


def user(text: str) -> Line:
    return {"type": "message_added", "role": "user", "text": text, "tool_calls": 0}


def reply(text: str) -> Line:
    return {"type": "message_added", "role": "assistant", "text": text, "tool_calls": 0}


def turn(number: int) -> Line:
    return {"type": "turn_start", "turn": number}


def turn_end(number: int) -> Line:
    return {
        "type": "turn_end",
        "turn": number,
        "tool_results": 0,
        "request_duration_ms": 5,
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        "finish_reason": None,
    }


def safety(stage: str, mode: str) -> Line:
    return {
        "type": "safety_policy_applied",
        "stage": stage,
        "mode": mode,
        "blocked": mode == "block",
        "matched_rules": ["r"],
        "reason_codes": ["prompt_injection.explicit_marker"],
    }


def tool_start(id_: str) -> Line:
    return {
        "type": "tool_execution_start",
        "tool_call_id": id_,
        "tool_name": "t",
        "arguments": {"a": [1, None]},
    }


def tool_end(id_: str, is_error: bool = False) -> Line:
    return {
        "type": "tool_execution_end",
        "tool_call_id": id_,
        "tool_name": "t",
        "is_error": is_error,
        "content": "said",
    }


def cost(cumulative: float, budget: float | None) -> Line:
    return {
        "type": "cost_updated",
        "turn": 1,
        "turn_cost_usd": 0.5,
        "cumulative_cost_usd": cumulative,
        "budget_usd": budget,
    }


REPLAN: Line = {"type": "replan_triggered", "turn": 1, "reason": "all failed"}
ALERT: Line = {
    "type": "cost_budget_alert",
    "turn": 1,
    "threshold_percent": 100,
    "cumulative_cost_usd": 1.5,
    "budget_usd": 1.5,
}
NEWER: list[Line] = [
    {
        "type": "tool_health_report",
        "tool_name": "t",
        "success_rate": 0.5,
        "avg_latency_ms": 3.5,
        "consecutive_failures": 2,
    },
    {"type": "circuit_breaker_tripped", "tool_name": "t", "reason": "five failures"},
    {
        "type": "context_compaction_triggered",
        "tier": "warn",
        "messages_before": 40,
        "messages_after": 12,
        "estimated_tokens_freed": 900,
    },
    {"type": "failure_detected", "signal": {"kind": "repeated_tool_call", "count": 3}},
    {"type": "recovery_attempted", "strategy": "replan", "attempt": 1},
    {"type": "escalation_required", "message": "need a person"},
    {"type": "graceful_termination", "summary": "gave up"},
]
EVERY: list[Line] = [
    *(START, END, turn(1), turn_end(1), user("hi"), reply("yes"), REPLAN, ALERT, UNKNOWN),
    *(
        tool_start("c"),
        tool_end("c"),
        tool_end("d", is_error=True),
        cost(0.5, None),
        cost(1.5, 1.5),
    ),
    *(safety("inbound_message", "block"), safety("inbound_message", "warn")),
    *(safety("tool_output", "block"), safety("outbound_http_payload", "block")),
    *NEWER,
]


def counting() -> Callable[[], float]:
    seconds = count(1)
    return lambda: float(next(seconds))


def heard(lines: Iterable[Line | bytes], *, end: bool = True) -> list[Event]:
    stream = TauStream("s", clock=counting())
    events = [event for line in lines for event in stream.events(line)]
    return events + (stream.end() if end else [])


def session() -> list[Line]:
    return [json.loads(line) for line in SESSION.read_bytes().splitlines()]


def ends(events: Iterable[Event]) -> list[tuple[str, Status | None, Reason | None]]:
    return [(e.run_id, e.status, e.reason) for e in events if isinstance(e, RunEnd)]


def text(content: Content | None) -> str:
    assert content is not None
    assert content.text is not None
    return content.text


def line_of(event: Event) -> Line | None:
    """Return the host's line that an event came from; the inverse of the adapter.

    ``None`` for what the adapter said by itself.
    """
    raw = {name: value for name, value in event.raw.items() if name != "synthetic"}
    if isinstance(event, (RunStart, RunEnd)):
        if event.fidelity is Fidelity.INFERRED:
            return None
        return {"type": "agent_start" if isinstance(event, RunStart) else "agent_end", **raw}
    found = _step_of(event)
    return {**found, **raw}


def _step_of(event: Event) -> Line:
    if isinstance(event, TurnStart):
        return {"type": "turn_start", "turn": event.turn}
    if isinstance(event, TurnEnd):
        return {
            "type": "turn_end",
            "turn": event.turn,
            "tool_results": event.tool_calls,
            "request_duration_ms": event.duration_ms,
            "usage": event.usage,
            "finish_reason": event.finish_reason,
        }
    if isinstance(event, Message):
        return {
            "type": "message_added",
            "role": event.role,
            "text": text(event.content),
            "tool_calls": event.tool_calls,
        }
    if isinstance(event, (ToolStart, ToolEnd)):
        return _tool_of(event)
    return _other_of(event)


def _tool_of(event: ToolStart | ToolEnd) -> Line:
    common: Line = {"tool_call_id": event.call_id, "tool_name": event.tool}
    if isinstance(event, ToolStart):
        arguments = json.loads(text(event.args))
        return {"type": "tool_execution_start", **common, "arguments": arguments}
    content = json.loads(text(event.result))
    return {
        "type": "tool_execution_end",
        **common,
        "is_error": event.is_error,
        "content": content,
    }


def _other_of(event: Event) -> Line:
    if isinstance(event, ModelEnd):
        return {"type": "cost_updated", "turn": event.turn, "turn_cost_usd": event.cost_usd}
    if isinstance(event, Policy) and event.stage == "cost_budget":
        return {"type": "cost_budget_alert", "turn": event.turn}
    if isinstance(event, Policy):
        return {
            "type": "safety_policy_applied",
            "stage": event.stage,
            "mode": event.mode,
            "blocked": event.blocked,
            "matched_rules": [*event.rules],
            "reason_codes": [*event.reason_codes],
        }
    return _rest_of(event)


def _rest_of(event: Event) -> Line:
    if isinstance(event, Retry) and event.what == "plan":
        return {"type": "replan_triggered", "turn": event.turn, "reason": event.reason}
    if isinstance(event, Retry):
        return {"type": "recovery_attempted", "attempt": event.number}
    assert isinstance(event, Context)
    if event.op == "compact":
        return {
            "type": "context_compaction_triggered",
            "messages_before": event.before,
            "messages_after": event.after,
        }
    return {"type": event.op}


def sorted_lines(lines: Iterable[Line]) -> list[str]:
    same = (json.loads(json.dumps(line), parse_int=float) for line in lines)
    return sorted(json.dumps(line, sort_keys=True) for line in same)


RUN = [user("a"), START, turn(1)]
NEXT = [user("b"), START, turn(1), END]
