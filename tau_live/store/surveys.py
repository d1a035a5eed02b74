"""Queries of a report: a bounded number of rollouts out of any number."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Surveyed(NamedTuple):
    """What a report wants to know of a rollout.

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
    """What a report wants to know of a decision.

    Attributes:
        rollout: The ``seq`` of its rollout.
        point: The decision point.
        applied: What the host really did; ``None`` where nobody knows.
        latency_us: Microseconds in the host's thread.
        context: What the policy was told, as JSON text; empty where that is too long.
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


class Surveys(Protocol):
    """Reads what a report needs of the rollouts that it picked by their ``seq``."""

    def span(self) -> tuple[int, int] | None:
        """Return the ``seq`` of the first and of the last rollout; ``None`` without any."""
        ...

    def places(self, *, limit: int) -> list[int]:
        """Return the ``seq`` of the first so many rollouts, in their order."""
        ...

    def rollouts(self, seqs: Sequence[int]) -> list[Surveyed]:
        """Return those rollouts that are there, by ``seq``."""
        ...

    def choices(self, seqs: Sequence[int], *, limit: int) -> list[Choice]:
        """Return at most so many of their decisions, in their order."""
        ...

    def assignments(self, seqs: Sequence[int]) -> list[Assignment]:
        """Return who decided them, at every point."""
        ...
