"""What langchain's own guardrails did, read off the nodes in which its middleware runs."""

from collections.abc import Iterator, Mapping
from typing import Any

from tau_live import events as ev

_STAGES: Mapping[str, str] = {
    "before_agent": "input",
    "before_model": "input",
    "after_model": "output",
    "after_agent": "output",
}
_BLOCKS = frozenset({"PIIDetectionError", "GuardrailError", "ModerationError"})
_REDACTS = ("PIIMiddleware",)
_LIMITS = ("ModelCallLimitMiddleware", "ToolCallLimitMiddleware")
_SHORTENS: Mapping[str, str] = {
    "SummarizationMiddleware": "summarise",
    "ContextEditingMiddleware": "truncate",
}


def guarded(
    node: str, output: Any, error: BaseException | None
) -> Iterator[tuple[type[ev.Event], dict[str, object]]]:
    """Yield what a node of middleware did: kinds of events, and their fields.

    A node that jumps to the end, and an error that says so, kept the run from going on.
    """
    name, _, hook = node.rpartition(".")
    stage = _STAGES.get(hook)
    if stage is None or not name:
        return
    rule = {"stage": stage, "rules": (name,)}
    if error is not None:
        if type(error).__name__ in _BLOCKS:
            yield ev.Policy, {**rule, "blocked": True, "mode": "block"}
        return
    found = output if isinstance(output, Mapping) else {}
    if found.get("jump_to") == "end":
        yield ev.Policy, {**rule, "blocked": True, "mode": "block"}
    elif found.get("messages") and name.startswith(_REDACTS):
        yield ev.Policy, {**rule, "blocked": False, "mode": "redact"}
    elif found.get("messages"):
        op = next((op for known, op in _SHORTENS.items() if name.startswith(known)), None)
        if op is not None:
            yield ev.Context, {"op": op, "after": len(found["messages"])}


def at_limit(node: str, output: Any) -> bool:
    """Say whether a node of middleware ended the run because it asked too often."""
    if not node.startswith(_LIMITS):
        return False
    return isinstance(output, Mapping) and output.get("jump_to") == "end"
