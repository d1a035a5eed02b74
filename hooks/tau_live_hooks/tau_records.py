"""The lines of the reference host's event JSON, one class for each, checked as they come in.

Named as in the host; the line's ``type`` is the name in snake case. Fields that a class does not
name are no error: they are what newer versions of the host add.
"""

import re
from typing import Annotated, Any, TypeAlias, get_args

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Record(msgspec.Struct, tag_field="type", tag=_snake, frozen=True):
    """What every line is."""

    @property
    def type(self) -> str:
        """The line's ``type``."""
        return str(self.__struct_config__.tag)


class AgentStart(Record, frozen=True):
    """The loop begins; the user's message came before."""


class AgentEnd(Record, frozen=True):
    """The run succeeded."""

    new_messages: Count


class TurnStart(Record, frozen=True):
    """A turn begins."""

    turn: Count


class TurnEnd(Record, frozen=True):
    """A turn is over."""

    turn: Count
    tool_results: Count
    request_duration_ms: Amount
    usage: dict[str, Amount] | None = None
    finish_reason: str | None = None


class MessageAdded(Record, frozen=True):
    """A message was added to the conversation."""

    role: str
    text: str
    tool_calls: Count = 0


class ToolExecutionStart(Record, frozen=True):
    """A tool is called."""

    tool_call_id: str
    tool_name: str
    arguments: Any = None


class ToolExecutionEnd(Record, frozen=True):
    """A tool has returned."""

    tool_call_id: str
    tool_name: str
    is_error: bool
    content: Any = None


class ReplanTriggered(Record, frozen=True):
    """All tools of a turn failed and the host asks for another plan."""

    turn: Count
    reason: str


class CostUpdated(Record, frozen=True):
    """A model has answered and was paid."""

    turn: Count
    turn_cost_usd: Amount
    cumulative_cost_usd: Amount
    budget_usd: Amount | None = None


class CostBudgetAlert(Record, frozen=True):
    """A share of the budget is used up."""

    turn: Count
    threshold_percent: Count
    cumulative_cost_usd: Amount
    budget_usd: Amount


class SafetyPolicyApplied(Record, frozen=True):
    """A safety rule matched something."""

    stage: str
    mode: str
    blocked: bool
    matched_rules: tuple[str, ...] = ()
    reason_codes: tuple[str, ...] = ()


class ToolHealthReport(Record, frozen=True):
    """How a tool fares."""


class CircuitBreakerTripped(Record, frozen=True):
    """A tool is not called any more."""

    tool_name: str
    reason: str = ""


class ContextCompactionTriggered(Record, frozen=True):
    """The conversation was shortened."""

    messages_before: Count
    messages_after: Count


class FailureDetected(Record, frozen=True):
    """The host noticed that it is stuck."""


class RecoveryAttempted(Record, frozen=True):
    """The host tries to get on."""

    attempt: Count


class EscalationRequired(Record, frozen=True):
    """The host wants somebody's help."""

    message: str = ""


class GracefulTermination(Record, frozen=True):
    """The host gives up."""

    summary: str = ""


class UnknownEvent(Record, frozen=True):
    """Something that the host does not show in its JSON."""


Line: TypeAlias = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageAdded
    | ToolExecutionStart
    | ToolExecutionEnd
    | ReplanTriggered
    | CostUpdated
    | CostBudgetAlert
    | SafetyPolicyApplied
    | ToolHealthReport
    | CircuitBreakerTripped
    | ContextCompactionTriggered
    | FailureDetected
    | RecoveryAttempted
    | EscalationRequired
    | GracefulTermination
    | UnknownEvent
)
"""Every line there is."""

TYPES = frozenset(_snake(kind.__name__) for kind in get_args(Line))
"""Their types."""


def read(fields: dict[str, object]) -> Line:
    """Return the line that holds these fields.

    Raises:
        msgspec.ValidationError: It is no line of the host's.
    """
    found: Line = msgspec.convert(fields, Line)
    return found
