"""The lines of the reference host's event JSON, each validated as it comes in.

Named by their ``type``, as in the host. Fields that are not named here are no error: they are what
newer versions of the host add.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

_COUNT = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_AMOUNT = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_TEXTS = tuple[str, ...]
_Field: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]

_FIELDS: Mapping[str, list[_Field]] = {
    "agent_start": [],  # the loop begins; the user's message came before
    "agent_end": [("new_messages", _COUNT)],  # the run succeeded
    "turn_start": [("turn", _COUNT)],
    "turn_end": [
        ("turn", _COUNT),
        ("tool_results", _COUNT),
        ("request_duration_ms", _AMOUNT),
        ("usage", dict[str, _AMOUNT] | None, None),
        ("finish_reason", str | None, None),
    ],
    "message_added": [("role", str), ("text", str), ("tool_calls", _COUNT, 0)],
    "tool_execution_start": [("tool_call_id", str), ("tool_name", str), ("arguments", Any, None)],
    "tool_execution_end": [
        ("tool_call_id", str),
        ("tool_name", str),
        ("is_error", bool),
        ("content", Any, None),
    ],
    # all tools of a turn failed, and the host asks for another plan
    "replan_triggered": [("turn", _COUNT), ("reason", str)],
    # a model has answered, at this cost
    "cost_updated": [
        ("turn", _COUNT),
        ("turn_cost_usd", _AMOUNT),
        ("cumulative_cost_usd", _AMOUNT),
        ("budget_usd", _AMOUNT | None, None),
    ],
    # a share of the budget is used up
    "cost_budget_alert": [
        ("turn", _COUNT),
        ("threshold_percent", _COUNT),
        ("cumulative_cost_usd", _AMOUNT),
        ("budget_usd", _AMOUNT),
    ],
    # a safety rule matched something
    "safety_policy_applied": [
        ("stage", str),
        ("mode", str),
        ("blocked", bool),
        ("matched_rules", _TEXTS, ()),
        ("reason_codes", _TEXTS, ()),
    ],
    "tool_health_report": [],
    # a tool is not called any more
    "circuit_breaker_tripped": [("tool_name", str), ("reason", str, "")],
    # the conversation was shortened
    "context_compaction_triggered": [("messages_before", _COUNT), ("messages_after", _COUNT)],
    "failure_detected": [],  # the host noticed that it is stuck
    "recovery_attempted": [("attempt", _COUNT)],  # it tries to get on
    "escalation_required": [("message", str, "")],  # it wants somebody's help
    "graceful_termination": [("summary", str, "")],  # it gives up
    "unknown_event": [],  # something that the host does not show in its JSON
}
"""The fields of a line by its type, each with its default where it may be missing."""

LINES: Mapping[str, type[msgspec.Struct]] = {
    type_: msgspec.defstruct(type_, fields, tag_field="type", frozen=True)
    for type_, fields in _FIELDS.items()
}
"""The class of every line by its type."""
