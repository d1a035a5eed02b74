"""A rollout that began in an open transaction: its state until the commit, in memory.

The rules are those of the statements in ``sqlite_rollouts``, ``sqlite_moves``, ``sqlite_decisions``
and ``sqlite_rewards``, for what is regular alone. What is not, an end that contradicts another say,
is answered with ``None``: then all is written, and the statements decide.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tau_live.machine.quick import changed
from tau_live.rollouts import (
    ATTEMPT_ENDS,
    RESUMED,
    ROLLOUT_ENDS,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
    attempt_may_become,
    rollout_may_become,
)
from tau_live.store.connection import Value
from tau_live.store.json_text import json_of, mapping_of, merged
from tau_live.store.records import Amendment, WholeRollout
from tau_live.store.sqlite_moves import REASONS
from tau_live.store.sqlite_rollouts import END, START
from tau_live.store.sqlite_rows import values_of_span
from tau_live.store.sqlite_trials import arm_of

_NOTHING = Amendment()
OPEN = (AttemptStatus.PREPARING, AttemptStatus.RUNNING)


class Told:
    """A span, and which of its two ends were told.

    Attributes:
        attributes: As JSON text.
        told: ``START``, ``END`` or both; one that was closed with its attempt was told no end.
    """

    __slots__ = ("_read", "_span", "attributes", "told")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.attributes = json_of(span.attributes)
        self.told = _end_of(span)
        self._read: Span | None = None

    @property
    def span(self) -> Span:
        """The span as it will be read back; the end of a run asks several times."""
        if self._read is None:
            read = mapping_of(self.attributes)
            self._read = msgspec.structs.replace(self._span, attributes=read)
        return self._read

    def join(self, other: Span) -> bool:
        """Add the other end of it; ``False`` if that was told already."""
        mine, end = self._span, _end_of(other)
        if self.told & end:
            return False
        self.told |= end
        self._read = None
        theirs, parent = json_of(other.attributes), mine.parent_span_id
        parent = other.parent_span_id if parent is None else parent
        if end == START:
            began = min(mine.started_at, other.started_at)
            self._span = msgspec.structs.replace(mine, started_at=began, parent_span_id=parent)
            self.attributes = merged(theirs, self.attributes)
        else:
            self._span = msgspec.structs.replace(
                mine, status=other.status, ended_at=other.ended_at, parent_span_id=parent
            )
            self.attributes = merged(self.attributes, theirs)
        return True

    def close(self, *, status: str, at: float) -> bool:
        """End it with its attempt; ``False`` if it has ended."""
        if self._span.ended_at is not None:
            return False
        self._read = None
        ended_at = max(self._span.started_at, at)
        self._span = msgspec.structs.replace(self._span, status=status, ended_at=ended_at)
        return True

    def values(self, rollout_seq: int) -> Sequence[Value]:
        """Return the parameters of ``INSERT_SPAN``."""
        return values_of_span(self._span, rollout_seq, attributes=self.attributes, told=self.told)


class Fresh:
    """A rollout with all that is its own.

    Attributes:
        rollout: As it would be stored; what is open-ended in it is read back from JSON.
        attempts: By number, in the order of their beginning.
        spans: By attempt and id, in the order of arrival.
        decisions: By attempt and ordinal, in the order of arrival.
        arms: The arm that decided it at each point, as parameters of ``ASSIGN``.
        rewards: By what makes them one, in the order of arrival.
        until: How long it waits for a reward; ``None`` if it does not.
        left_out: Why nothing is learned of it; ``None`` if something may be.
    """

    __slots__ = (
        "arms",
        "attempts",
        "decisions",
        "left_out",
        "rewards",
        "rollout",
        "spans",
        "until",
    )

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        if rollout.input is not None or rollout.metadata:
            self.rollout = changed(
                rollout,
                input=None if rollout.input is None else _decoded(rollout.input),
                metadata=_plain(rollout.metadata),
            )
        self.attempts: dict[int, Attempt] = {}
        self.spans: dict[tuple[int, str], Told] = {}
        self.decisions: dict[tuple[int, int], Decision] = {}
        self.arms: dict[str, Sequence[Value]] = {}
        self.rewards: dict[tuple[str, str, str, str], Reward] = {}
        self.until: float | None = None
        self.left_out: str | None = None

    @classmethod
    def of(cls, whole: WholeRollout) -> "Fresh":
        """Return one that has ended and is not settled yet."""
        made = cls(whole.rollout)
        made.attempts = {whole.attempt.number: whole.attempt}
        made.decisions = {(one.attempt, one.ordinal): one for one in whole.decisions}
        for reward in whole.rewards:
            made.add_reward(reward)
        return made

    def amend(self, told: Amendment) -> None:
        """Fill in what is not known yet."""
        if told == _NOTHING:
            return
        known, metadata = self.rollout, dict(self.rollout.metadata)
        started_at, input_ = known.started_at, known.input
        if started_at is not None and told.started_at is not None:
            started_at = min(started_at, told.started_at)
        if input_ is None and told.input is not None:
            input_ = _decoded(told.input)
        if told.metadata:
            new = _plain(told.metadata)
            metadata = metadata | new if told.later else new | metadata
        self.rollout = changed(
            known,
            name=known.name or told.name,
            session_id=told.session_id if known.session_id is None else known.session_id,
            parent_id=told.parent_id if known.parent_id is None else known.parent_id,
            input=input_,
            metadata=metadata,
            started_at=started_at,
        )

    def tried(self, *, newest: int | None, unended: bool, execution: str | None) -> list[Attempt]:
        """Return attempts as ``SqliteRollouts.attempts`` does."""
        found = [
            attempt
            for _, attempt in sorted(self.attempts.items())
            if (attempt.ended_at is None or not unended)
            and (
                execution is None
                or attempt.execution == execution
                or attempt.execution.startswith(execution + RESUMED)
            )
        ]
        return found if newest is None else found[-newest:]

    def begin_attempt(self, attempt: Attempt) -> bool:
        """Add an attempt; ``False`` if its number is there."""
        if attempt.number in self.attempts:
            return False
        self.attempts[attempt.number] = attempt
        known = self.rollout
        count = max(known.attempt_count, attempt.number)
        started_at = attempt.started_at if known.started_at is None else known.started_at
        self.rollout = changed(known, attempt_count=count, started_at=started_at)
        return True

    def move_attempt(
        self, number: int, new: AttemptStatus, *, at: float, error: str | None
    ) -> bool | None:
        """End an open attempt; ``None`` for any other move."""
        attempt = self.attempts.get(number)
        if attempt is None or new not in ATTEMPT_ENDS or attempt.status is new:
            return None
        if attempt.status not in attempt_may_become(new):
            return None
        self._end_attempt(attempt, new, at=at, error=error)
        return True

    def move(
        self, new: RolloutStatus, *, at: float, reason: Reason | None, error_type: str | None
    ) -> bool | None:
        """End it, and the attempts that are open; ``None`` for any other move."""
        known = self.rollout
        if new not in ROLLOUT_ENDS or known.status is new:
            return None
        if known.status not in rollout_may_become(new):
            return None
        self.rollout = changed(
            known,
            status=new,
            ended_at=at if known.ended_at is None else known.ended_at,
            reason=reason or REASONS[new],
            error_type=known.error_type if error_type is None else error_type,
        )
        succeeded = new is RolloutStatus.SUCCEEDED
        status = AttemptStatus.SUCCEEDED if succeeded else AttemptStatus.FAILED
        error = None if succeeded else error_type or reason or new
        for attempt in list(self.attempts.values()):
            if attempt.status in OPEN:
                kept = error if attempt.error_message is None else attempt.error_message
                self._end_attempt(attempt, status, at=at, error=kept)
        return True

    def add_span(self, span: Span) -> bool | None:
        """Add a span, or its other end; ``False`` if it is there, ``None`` without an attempt."""
        attempt = self.attempts.get(span.attempt)
        if attempt is None or attempt.status is AttemptStatus.PREPARING:
            return None
        at = span.started_at
        if span.ended_at is not None and span.ended_at > at:
            at = span.ended_at
        if attempt.status is AttemptStatus.RUNNING and at > attempt.last_heartbeat_at:
            self.attempts[span.attempt] = changed(attempt, last_heartbeat_at=at)
        place = (span.attempt, span.span_id)
        told = self.spans.get(place)
        if told is not None:
            return told.join(span)
        self.spans[place] = Told(span)
        return True

    def close_spans(self, number: int, *, status: str, at: float) -> int:
        """End what is open of an attempt; return how many that were."""
        mine = [told for place, told in self.spans.items() if place[0] == number]
        return sum(told.close(status=status, at=at) for told in mine)

    def add_decision(self, decision: Decision, *, assigned: bool) -> bool | None:
        """Add a decision; ``False`` if its place is taken, ``None`` without an attempt."""
        if decision.attempt not in self.attempts:
            return None
        place = (decision.attempt, decision.ordinal)
        if place in self.decisions:
            return False
        self.decisions[place] = decision
        arm = arm_of(decision) if assigned else None
        if arm is not None:
            self.arms.setdefault(decision.point, arm)
        return True

    def add_reward(self, reward: Reward) -> bool | None:
        """Add a reward; ``None`` if it was given before, equal or not."""
        target = reward.decision_id or ""
        key = (target, reward.name, reward.source, reward.key)
        if key in self.rewards:
            return None
        self.rewards[key] = (
            changed(reward, decision_id=None) if reward.decision_id == "" else reward
        )
        return True

    def earn(self, total: float, *, run_reward: float | None, ready_seq: int) -> None:
        """Give it its place among those that are ready, and what it earned."""
        self.until = None
        self.rollout = changed(
            self.rollout,
            ready_seq=ready_seq,
            total_reward=total,
            run_reward=total if run_reward is None else run_reward,
        )

    def _end_attempt(
        self, attempt: Attempt, new: AttemptStatus, *, at: float, error: str | None
    ) -> None:
        ended_at = at if attempt.ended_at is None else attempt.ended_at
        self.attempts[attempt.number] = changed(
            attempt, status=new, ended_at=ended_at, error_message=error
        )


def _end_of(span: Span) -> int:
    return START if span.ended_at is None else END


def _plain(data: Mapping[str, object]) -> dict[str, object]:
    """Return data as it will be read back."""
    return mapping_of(json_of(data)) if data else {}


def _decoded(data: object) -> object:
    return msgspec.json.decode(json_of(data))
