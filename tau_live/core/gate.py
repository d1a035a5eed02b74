"""The pass/hold gate as a value, and its stored form."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

_TEXT = 500


def plain(text: str) -> str:
    """Return a text as it may be stored: cut to its limit, and valid in UTF-8."""
    return text[:_TEXT].encode(errors="replace").decode()


class State(StrEnum):
    """``pass`` while tau-live may act, ``hold`` once it may not."""

    PASS = "pass"  # noqa: S105 - not a password
    HOLD = "hold"


class Kind(StrEnum):
    """The kinds of failure; each has a streak of its own."""

    COLLECTION = "collection"
    UPDATE = "update"
    DECISION = "decision"


class HoldReason(StrEnum):
    """Our reasons for holding the gate; callers may give others."""

    COLLECTION_FAILURES = "collection_failures"
    UPDATE_FAILURES = "update_failures"
    DECISION_FAILURES = "decision_failures"
    STORE_UNAVAILABLE = "store_unavailable"
    STORE_REPLACED = "store_replaced"
    GATE_REMOVED = "gate_removed"
    OPERATOR = "operator"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """The gate as it is stored.

    Attributes:
        state: ``pass`` or ``hold``.
        reason: The code of the reason for holding.
        detail: The last error, in words.
        since: Epoch seconds, UTC, of the last change of state.
        streaks: Consecutive failures, by kind.
        revision: Grows with every change.
    """

    state: str
    reason: str | None
    detail: str | None
    since: float
    streaks: Mapping[str, int]
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateEntry:
    """A line of the gate's history.

    Attributes:
        at: Epoch seconds, UTC.
        event: ``hold``, ``reset``, or ``held_in_memory`` for a hold that one process had while
            the store failed, and that was over before it could be written.
        state: The state after it.
        kind: What failed; ``None`` if nothing did.
        reason: The code of the reason for holding, or the operator's text.
        who: The process or the person.
        seq: The store's own sequence number; 0 before it is stored.
    """

    at: float
    event: str
    state: str
    kind: str | None
    reason: str | None
    who: str
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Passes until ``limit`` consecutive failures of one kind; then holds until it is reset.

    Attributes:
        limit: At least 1.
        state: Whether tau-live may act.
        reason: The code of the reason for holding; ``None`` while it passes.
        detail: The last error, in words; kept until a reset or until every streak is over.
        since: Epoch seconds, UTC, of the last change of state; 0 when there was none.
        streaks: Consecutive failures, by kind; a kind without any is left out.
        revision: How many changes were stored.
    """

    limit: int
    state: State = State.PASS
    reason: str | None = None
    detail: str | None = None
    since: float = 0.0
    streaks: Mapping[Kind, int] = field(default_factory=lambda: MappingProxyType({}))
    revision: int = 0

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"limit must be at least 1, got {self.limit!r}")

    @property
    def passes(self) -> bool:
        """Whether tau-live may act."""
        return self.state is State.PASS

    def streak(self, kind: Kind) -> int:
        """Return the number of consecutive failures of a kind."""
        return self.streaks.get(kind, 0)

    def after_failure(self, kind: Kind, error_text: str, at: float) -> "Gate":
        """Return the gate after one more failure, which a holding gate does not count."""
        if not self.passes:
            return self
        streak = self.streak(kind) + 1
        failed = replace(self, streaks={**self.streaks, kind: streak}, detail=plain(error_text))
        if streak < self.limit:
            return failed
        return failed.hold(f"{kind}_failures", at, detail=error_text)

    def after_success(self, kind: Kind) -> "Gate":
        """Return the gate after a success, which ends the kind's streak while the gate passes."""
        if not self.passes or kind not in self.streaks:
            return self
        streaks = {other: count for other, count in self.streaks.items() if other is not kind}
        return replace(self, streaks=streaks, detail=self.detail if streaks else None)

    def hold(self, reason: str, at: float, *, detail: str | None = None) -> "Gate":
        """Return the gate holding; one that holds already keeps its first reason."""
        if not self.passes:
            return self
        words = self.detail if detail is None else plain(detail)
        return replace(self, state=State.HOLD, reason=reason, detail=words, since=at)

    def reset(self, at: float) -> "Gate":
        """Return the gate passing, with every streak over."""
        since = self.since if self.passes and self.since else at
        return Gate(limit=self.limit, since=since, revision=self.revision)

    @classmethod
    def from_row(cls, row: GateRow, *, limit: int) -> "Gate":
        """Return the gate that a row holds; an unknown state is a hold."""
        return cls(
            limit=limit,
            state=State.PASS if row.state == State.PASS else State.HOLD,
            reason=row.reason,
            detail=row.detail,
            since=row.since,
            streaks={kind: row.streaks[kind] for kind in Kind if row.streaks.get(kind, 0) > 0},
            revision=row.revision,
        )

    def to_row(self) -> GateRow:
        """Return the row that stores it."""
        return GateRow(
            state=self.state.value,
            reason=self.reason,
            detail=self.detail,
            since=self.since,
            streaks={kind.value: self.streak(kind) for kind in Kind},
            revision=self.revision,
        )
