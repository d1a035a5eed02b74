"""Values a finished run: what it achieved, less what it cost."""

from collections.abc import Iterable

from tau_live.core.hookspecs import RewardPart, RolloutSummary, hookimpl
from tau_live.core.records import RolloutStatus

CALL_PRICE = 0.05
"""What each step of a model or a tool takes from the reward."""


@hookimpl
def infer_reward(summary: RolloutSummary) -> Iterable[RewardPart] | None:
    """Return the parts of a run's reward; ``None`` for one that says nothing about its worth."""
    if summary.status is RolloutStatus.CANCELLED:
        return None  # whoever cancelled it has not judged it
    ended_well = summary.session_completed and not summary.tool_errors
    calls = sum(span.kind in {"model", "tool"} for span in summary.spans)
    return [
        RewardPart(name="acme.ended-well", value=1.0 if ended_well else -1.0),
        RewardPart(name="acme.calls", value=-CALL_PRICE * calls),
    ]
