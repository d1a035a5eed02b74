"""Records that only the store and its readers know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ORDERS = ("seq", "started_at", "ended_at", "total_reward")
"""By what a query may order rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert that was raised.

    Attributes:
        kind: Its name, such as ``gate-hold``.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns; empty for all of it.
        sentence: What happened, in words.
        todo: The command to look next.
        facts: The numbers behind it.
        at: When it happened; epoch seconds, UTC.
        owner: The process that raised it.
        seq: Its place in the order of arrival; 0 before it is stored.
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


class Surveyed(NamedTuple):
    """The columns of a rollout for a report.

    Attributes:
        seq: Its place in the order of arrival.
        status: Where it stands.
        started_at: Epoch seconds, UTC; ``None`` before it began.
        ended_at: Epoch seconds, UTC; ``None`` while it is open.
        reward: What it earned in all; ``None`` while that is not known.
        left_out: Why its rewards teach nothing; ``None`` where nothing is against them.
        cost_usd: What it cost, in US dollars; ``None`` where nobody knows.
    """

    seq: int
    status: str
    started_at: float | None
    ended_at: float | None
    reward: float | None
    left_out: str | None
    cost_usd: float | None


class Choice(NamedTuple):
    """The columns of a decision for a report.

    Attributes:
        rollout: The ``seq`` of its rollout.
        point: The decision point.
        applied: What the host really did; ``None`` where nobody knows.
        latency_us: Microseconds in the host's thread.
        context: The context given to the policy, as JSON text; empty where that is too long.
    """

    rollout: int
    point: str
    applied: str | None
    latency_us: float
    context: str


class Assignment(NamedTuple):
    """Who decided a rollout at a point.

    Attributes:
        rollout: The ``seq`` of the rollout.
        point: The decision point.
        learner: Whether the learner did.
        share: The probability with which it would, in ``[0, 1]``.
    """

    rollout: int
    point: str
    learner: bool
    share: float
