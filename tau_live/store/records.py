"""Records that only the store and its readers know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tau_live.core.records import Finite, Natural

ORDERS = ("seq", "started_at", "ended_at", "total_reward")
"""The columns by which a query may order rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert that was raised.

    Attributes:
        kind: Its name, such as ``gate-hold``.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns; empty for the whole store.
        sentence: What happened, as a sentence.
        todo: The command to run next.
        facts: The numbers behind it.
        at: Epoch seconds, UTC, when it happened.
        owner: The process that raised it.
        seq: The store's own sequence number; 0 before it is stored.
    """

    kind: str
    severity: str
    subject: str = ""
    sentence: str
    todo: str
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float
    owner: str
    seq: int = 0


class RolloutColumns(NamedTuple):
    """The columns of a rollout for a report.

    Attributes:
        seq: The store's own sequence number.
        status: Its status.
        started_at: Epoch seconds, UTC; ``None`` before it began.
        ended_at: Epoch seconds, UTC; ``None`` while it is open.
        reward: Its total reward; ``None`` while unknown.
        left_out: Why it is left out of learning; ``None`` if it is not.
        cost_usd: Its cost in US dollars; ``None`` if unknown.
    """

    seq: Natural
    status: str
    started_at: Finite | None
    ended_at: Finite | None
    reward: float | None
    left_out: str | None
    cost_usd: Finite | None


class Choice(NamedTuple):
    """The columns of a decision for a report.

    Attributes:
        rollout: The ``seq`` of its rollout.
        point: The decision point.
        applied: The option that the host applied; ``None`` if unknown.
        latency_us: Microseconds in the host's thread.
        context: The policy's context, as JSON text; empty if it is too long.
    """

    rollout: int
    point: str
    applied: str | None
    latency_us: float
    context: str


class Assignment(NamedTuple):
    """The assignment of a rollout at a point.

    Attributes:
        rollout: The ``seq`` of the rollout.
        point: The decision point.
        learner: Whether the learner decided it, not the control.
        share: The probability of the learner, in ``[0, 1]``.
    """

    rollout: int
    point: str
    learner: bool
    share: float


class Condition(NamedTuple):
    """A condition on one field of a record.

    Attributes:
        field: The name of the field.
        test: ``is``, ``in`` (of several; of none it is never true), ``contains`` (a text, by its
            letters as they are), ``from`` (at least) or ``before``.
        value: The value, or the values of ``in``.
    """

    field: str
    test: str
    value: object
