"""The lifecycle of a rollout: how events change it and its attempts, spans, decisions and rewards.

Whoever changes a rollout has the store's write lock, so the loaded state stays true until it is
written: a rollout is loaded, or created; events are applied to it; its changes are written once.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from tau_live.core.errors import InvalidTransitionError
from tau_live.core.events import PromptArm
from tau_live.core.prompts import trial_of_prompt
from tau_live.core.records import (
    ATTEMPT_ENDS,
    RESUMED,
    ROLLOUT_ENDS,
    Amendment,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
    WorkerStatus,
    attempt_id_of,
    attempt_may_become,
    rollout_may_become,
)
from tau_live.store.sql.connection import Row, Value, json_of, mapping_of, merge_json

_NOTHING = Amendment()
OPEN = (AttemptStatus.PREPARING, AttemptStatus.RUNNING)
SILENT = (AttemptStatus.UNRESPONSIVE, AttemptStatus.TIMEOUT)
WAITING = (RolloutStatus.QUEUING, RolloutStatus.REQUEUING)

REASONS = {
    RolloutStatus.SUCCEEDED: Reason.COMPLETED,
    RolloutStatus.FAILED: Reason.ERROR,
    RolloutStatus.CANCELLED: Reason.CANCELLED,
}
"""The default reason of each end of a rollout."""

START, END = 1, 2
"""The known ends of a span; one that ``close`` ended may still get an end of its own."""

CHANGING = (
    *("name", "session_id", "parent_id", "status", "reason", "error_type", "owner", "worker_id"),
    *("attempt_count", "started_at", "ended_at", "ready_seq", "total_reward", "run_reward"),
    *("input", "metadata", "output", "left_out"),
)
"""The columns of a rollout that events change."""

_changing_of = attrgetter(*CHANGING[:-4])

RewardKey = tuple[str, str, str, str]
"""The identity of a reward within its rollout: target, name, source and key."""


class SpanState(msgspec.Struct, eq=False, gc=False):
    """A span, and which of its two ends are known.

    Attributes:
        state: The span, except its attributes.
        attributes: Its attributes, as JSON text.
        ends: ``START``, ``END`` or both; one that was closed with its attempt has no end.
        read: The span as it will be read back; made at the first request.
    """

    state: Span
    attributes: str
    ends: int
    read: Span | None = None

    @property
    def span(self) -> Span:
        """The span as it will be read back; the end of a run reads it several times."""
        if self.read is None:
            self.read = replace(self.state, attributes=mapping_of(self.attributes))
        return self.read

    def join(self, other: Span) -> bool:
        """Add the other end; ``False`` if it is known already."""
        own, end = self.state, end_of(other)
        if self.ends & end:
            return False
        self.ends |= end
        self.read = None
        attributes, parent = json_of(other.attributes), own.parent_span_id
        parent = other.parent_span_id if parent is None else parent
        if end == START:
            started_at = min(own.started_at, other.started_at)
            self.state = replace(own, started_at=started_at, parent_span_id=parent)
            self.attributes = merge_json(attributes, self.attributes)
        else:
            self.state = replace(
                own, status=other.status, ended_at=other.ended_at, parent_span_id=parent
            )
            self.attributes = merge_json(self.attributes, attributes)
        return True

    def close(self, *, status: str, at: float) -> bool:
        """End the span with its attempt; ``False`` if it has ended."""
        if self.state.ended_at is not None:
            return False
        self.read = None
        ended_at = max(self.state.started_at, at)
        self.state = replace(self.state, status=status, ended_at=ended_at)
        return True

    def values(self, rollout_seq: int) -> Sequence[Value]:
        """Return the parameters of ``WRITE_SPAN``."""
        span = self.state
        return (
            rollout_seq,
            span.attempt,
            span.span_id,
            span.parent_span_id,
            span.kind,
            span.name,
            span.status,
            self.attributes,
            span.started_at,
            span.ended_at,
            self.ends,
        )


def end_of(span: Span) -> int:
    """Return which end of a span an event reports."""
    return START if span.ended_at is None else END


class RolloutState(msgspec.Struct, kw_only=True, eq=False):
    """A rollout with its loaded rows, and the changes that are still to be written.

    Attributes:
        seq: The number of its row; 0 before it is stored.
        rollout: The rollout as it is read back.
        input: Its input, as JSON text.
        metadata: Its metadata, as JSON text.
        output: Its output, as JSON text.
        attempts: By number; all those above ``floor``, and some of the others.
        floor: Up to this number, stored attempts may not be loaded.
        decided: The highest ordinal of a stored decision, by attempt.
        spans: By attempt and id, in the order of arrival; of stored ones only some.
        all_spans: Whether all its spans are loaded.
        whole: The numbers of attempts that are not stored yet, so that all their spans are here.
        points: The points of its decisions, of stored ones only if ``all_points``.
        all_points: Whether the points of all its decisions are loaded.
        assigned: The points at which it is assigned to an arm.
        until: Epoch seconds until which it waits for a reward; ``None`` if it does not.
        stored_until: The stored value of ``until``.
        left_out: Why it is left out of learning; ``None`` if it is not.
        stored: The stored values of the columns ``CHANGING``; ``None`` before it is stored.
        was_ready: Whether it is stored as ready.
        queued_at: Epoch seconds when it entered the queue, if that is still to be written.
        due_at: Epoch seconds from which it may be claimed.
        unqueued: Whether it left the queue, if that is still to be written.
        freed: The status of the worker that is done with it, if that is still to be written.
        freed_at: Epoch seconds when it was done.
        changed_attempts: Numbers of attempts to be written.
        changed_spans: Keys of spans to be written.
        decisions: Decisions to be written, by attempt and ordinal, in the order of arrival.
        arms: Assignments to be written, as parameters of ``ASSIGN``, by point.
        places: The points at which it becomes ready, to be written.
    """

    rollout: Rollout
    input: str | None
    metadata: str
    seq: int = 0
    attempts: dict[int, Attempt] = {}
    floor: int = 0
    decided: dict[int, int] = {}
    spans: dict[tuple[int, str], SpanState] = {}
    whole: set[int] = set()
    points: set[str] = set()
    all_points: bool = True
    assigned: set[str] = set()
    until: float | None = None
    stored_until: float | None = None
    left_out: str | None = None
    output: str | None = None
    queued_at: float | None = None
    due_at: float = 0.0
    unqueued: bool = False
    freed: WorkerStatus | None = None
    freed_at: float = 0.0
    changed_attempts: dict[int, None] = {}
    changed_spans: dict[tuple[int, str], None] = {}
    decisions: dict[tuple[int, int], Decision] = {}
    arms: dict[str, Sequence[Value]] = {}
    places: dict[str, None] = {}
    all_spans: bool = True
    stored: Sequence[Value] | None = None
    was_ready: bool = False

    @classmethod
    def begin(cls, rollout: Rollout) -> "RolloutState":
        """Return the state of a new rollout, with open-ended data as JSON will read it back."""
        input_ = None if rollout.input is None else json_of(rollout.input)
        metadata = json_of(rollout.metadata) if rollout.metadata else "{}"
        if input_ is not None or rollout.metadata or rollout.ready_seq is not None:
            rollout = replace(
                rollout,
                input=None if input_ is None else msgspec.json.decode(input_),
                metadata=mapping_of(metadata),
                ready_seq=None,
                total_reward=None,
                run_reward=None,
            )
        return cls(rollout=rollout, input=input_, metadata=metadata)

    def take_stored(self, row: Row) -> None:
        """Take over a stored row of the rollout."""
        self.seq = row["seq"]
        self.until = self.stored_until = row["until"]
        self.left_out = row["left_out"]
        self.output = row["output"]
        self.all_points = self.all_spans = False
        self.stored = self._changing()
        self.was_ready = self.rollout.ready_seq is not None

    def mark_written(self) -> None:
        """Mark all changes as stored."""
        self.stored = self._changing()
        self.was_ready = self.rollout.ready_seq is not None
        self.stored_until = self.until
        for attempt, ordinal in self.decisions:
            self.decided[attempt] = max(ordinal, self.decided.get(attempt, ordinal))
        self.changed_attempts, self.changed_spans, self.decisions = {}, {}, {}
        self.arms, self.places = {}, {}
        self.unqueued, self.queued_at, self.freed = False, None, None

    def changes(self) -> Mapping[str, Value]:
        """Return the changed columns of a stored rollout; none before it is stored."""
        if self.stored is None:
            return {}
        row = zip(CHANGING, self.stored, self._changing(), strict=True)
        return {column: value for column, before, value in row if value != before}

    def _changing(self) -> Sequence[Value]:
        """Return the values of the columns ``CHANGING``."""
        return (
            *_changing_of(self.rollout), self.input, self.metadata, self.output, self.left_out
        )  # fmt: skip

    def amend(self, amendment: Amendment) -> None:
        """Fill in unknown fields."""
        if amendment == _NOTHING:
            return
        known = self.rollout
        started_at, input_, metadata = known.started_at, known.input, known.metadata
        if started_at is not None and amendment.started_at is not None:
            started_at = min(started_at, amendment.started_at)
        if self.input is None and amendment.input is not None:
            self.input = json_of(amendment.input)
            input_ = msgspec.json.decode(self.input)
        if amendment.metadata:
            new = json_of(amendment.metadata)
            pair = (self.metadata, new) if amendment.later else (new, self.metadata)
            self.metadata = merge_json(*pair)
            metadata = mapping_of(self.metadata)
        self.rollout = replace(
            known,
            name=known.name or amendment.name,
            session_id=amendment.session_id if known.session_id is None else known.session_id,
            parent_id=amendment.parent_id if known.parent_id is None else known.parent_id,
            input=input_,
            metadata=metadata,
            started_at=started_at,
        )

    def matching_attempts(
        self, *, newest: int | None, unended: bool, execution: str | None
    ) -> list[Attempt] | None:
        """Return attempts as ``Batch.attempts``; ``None`` if some may not be loaded."""
        attempts = [
            attempt
            for number, attempt in sorted(self.attempts.items())
            if number > self.floor
            and (attempt.ended_at is None or not unended)
            and (
                execution is None
                or attempt.execution == execution
                or attempt.execution.startswith(execution + RESUMED)
            )
        ]
        if self.floor > 0 and (newest is None or len(attempts) < newest):
            return None
        return attempts if newest is None else attempts[-newest:]

    def begin_attempt(self, attempt: Attempt) -> None:
        """Add an attempt with a new number."""
        number, known = attempt.number, self.rollout
        self.attempts[number] = attempt
        self.changed_attempts[number] = None
        self.whole.add(number)
        self.rollout = replace(
            known,
            attempt_count=max(known.attempt_count, number),
            started_at=attempt.started_at if known.started_at is None else known.started_at,
        )

    def move_attempt(
        self, attempt: Attempt, new: AttemptStatus, *, at: float, error: str | None
    ) -> bool:
        """Move an attempt on; ``False`` if it was there already.

        Raises:
            InvalidTransitionError: Its status cannot become ``new``.
        """
        if attempt.status is new:
            return False
        if attempt.status not in attempt_may_become(new):
            attempt_id = attempt_id_of(attempt.rollout_id, attempt.number)
            raise InvalidTransitionError("attempt", attempt_id, old=attempt.status, new=new)
        if new in ATTEMPT_ENDS:
            self._end_attempt(attempt, new, at=at, error=error)
        else:
            heartbeat_at = max(attempt.last_heartbeat_at, at)
            self._set_attempt(
                replace(attempt, status=new, last_heartbeat_at=heartbeat_at, error_message=error)
            )
        return True

    def touch(self, attempt: Attempt, *, at: float) -> bool:
        """Record a heartbeat, which starts an attempt and its rollout; ``False`` if it is over."""
        if attempt.status is AttemptStatus.UNRESPONSIVE and self.may_recover(attempt):
            attempt = self.recover(attempt)
        if attempt.status not in OPEN:
            return False
        if attempt.status is AttemptStatus.PREPARING or at > attempt.last_heartbeat_at:
            heartbeat_at = max(attempt.last_heartbeat_at, at)
            self._set_attempt(
                replace(attempt, status=AttemptStatus.RUNNING, last_heartbeat_at=heartbeat_at)
            )
        known = self.rollout
        if known.status is RolloutStatus.PREPARING and attempt.number == known.attempt_count:
            self.rollout = replace(known, status=RolloutStatus.RUNNING)
        return True

    def adopt(self, attempt: Attempt, worker_id: str | None, *, owner: str | None) -> Attempt:
        """Give a queued rollout's attempt without a worker to one, and return the attempt.

        The process that shows its life is the one that works on it.
        """
        if self.rollout.queue is None or attempt.worker_id not in {None, worker_id}:
            return attempt
        adopted = replace(attempt, worker_id=worker_id, owner=owner or attempt.owner)
        if adopted == attempt:
            return attempt
        self._set_attempt(adopted)
        if attempt.number == self.rollout.attempt_count:
            self.rollout = replace(self.rollout, worker_id=worker_id)
        return adopted

    def may_recover(self, attempt: Attempt) -> bool:
        """Return whether a sign of life of an unresponsive attempt still counts.

        It does for a queued rollout until a newer attempt begins or the rollout ends otherwise.
        """
        known = self.rollout
        return (
            known.queue is not None
            and attempt.number == known.attempt_count
            and known.status not in {RolloutStatus.SUCCEEDED, RolloutStatus.CANCELLED}
            and known.reason is not Reason.ERROR  # failed by hand
        )

    def recover(self, attempt: Attempt) -> Attempt:
        """Let an unresponsive attempt go on, with its rollout if that still counts; return it."""
        goes_on = self.may_recover(attempt)
        if self.rollout.status in ROLLOUT_ENDS and not goes_on:
            return attempt
        running = replace(attempt, status=AttemptStatus.RUNNING, ended_at=None, error_message=None)
        self._set_attempt(running)
        if not goes_on:
            return running
        self.rollout = replace(
            self.rollout, status=RolloutStatus.RUNNING, ended_at=None, reason=None,
            error_type=None, worker_id=attempt.worker_id,
        )  # fmt: skip
        self.unqueued, self.queued_at = True, None
        return running

    def may_move(self, new: RolloutStatus) -> bool:
        """Return whether the rollout is to be moved; ``False`` if it was there already.

        Raises:
            InvalidTransitionError: Its status cannot become ``new``.
        """
        known = self.rollout
        if known.status is new:
            return False
        if known.status not in rollout_may_become(new):
            raise InvalidTransitionError("rollout", known.rollout_id, old=known.status, new=new)
        return True

    def move(
        self,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None,
        error_type: str | None,
        error_message: str | None,
        due_at: float | None,
    ) -> None:
        """Move the rollout on, with its place in the queue and its open attempts (all loaded)."""
        known = self.rollout
        if new in ROLLOUT_ENDS:
            self.rollout = replace(
                known,
                status=new,
                ended_at=at if known.ended_at is None else known.ended_at,
                reason=reason or REASONS[new],
                error_type=known.error_type if error_type is None else error_type,
            )
        elif new in WAITING:
            self.rollout = replace(
                known, status=new, ended_at=None, reason=None, error_type=None, worker_id=None
            )
        else:
            self.rollout = replace(
                known,
                status=new,
                started_at=at if known.started_at is None else known.started_at,
                ended_at=None,
                reason=None,
                error_type=None,
            )
        if known.queue is not None:
            self.unqueued = self.unqueued or new not in WAITING
            self.queued_at = at if new in WAITING else None
            wait_s = known.config.backoff_after(max(known.attempt_count, 1))
            later = at + wait_s if wait_s > 0.0 else 0.0  # the clock may be set back
            self.due_at = later if due_at is None else due_at
        if new in ROLLOUT_ENDS or new is RolloutStatus.REQUEUING:
            error = error_message or error_type or reason or new
            self._end_attempts(new, at=at, error=error)
            workers = {attempt.worker_id for attempt in self.attempts.values()} - {None}
            if known.queue is not None or self.floor > 0 or workers:
                newest = self.attempts.get(known.attempt_count)
                is_silent = newest is not None and newest.status in SILENT
                self.freed = WorkerStatus.GONE if is_silent else WorkerStatus.IDLE
                self.freed_at = at

    def _end_attempts(self, new: RolloutStatus, *, at: float, error: str) -> None:
        succeeded = new is RolloutStatus.SUCCEEDED
        status = AttemptStatus.SUCCEEDED if succeeded else AttemptStatus.FAILED
        for attempt in list(self.attempts.values()):
            if attempt.status in OPEN:
                kept = attempt.error_message
                kept = error if kept is None and not succeeded else kept
                self._end_attempt(attempt, status, at=at, error=kept)

    def _end_attempt(
        self, attempt: Attempt, new: AttemptStatus, *, at: float, error: str | None
    ) -> None:
        ended_at = at if attempt.ended_at is None else attempt.ended_at
        self._set_attempt(replace(attempt, status=new, ended_at=ended_at, error_message=error))

    def _set_attempt(self, attempt: Attempt) -> None:
        self.attempts[attempt.number] = attempt
        self.changed_attempts[attempt.number] = None

    def add_spans(self, spans: Sequence[Span], *, at: float | None) -> int:
        """Add spans of stored attempts, or their other ends; return how many were unknown.

        Args:
            spans: The spans, in the order of arrival.
            at: When they arrived; ``None`` takes their own times, as of a recording.
        """
        added, signs = 0, dict[int, float]()
        for span in spans:
            number, key = span.attempt, (span.attempt, span.span_id)
            ended_at, sign = span.ended_at, span.started_at
            if ended_at is not None and ended_at > sign:
                sign = ended_at
            if number not in signs or sign > signs[number]:
                signs[number] = sign
            state = self.spans.get(key)
            if state is None:
                ends = START if ended_at is None else END
                self.spans[key] = SpanState(span, json_of(span.attributes), ends)
            elif not state.join(span):
                continue
            self.changed_spans[key] = None
            added += 1
        for number, sign in signs.items():
            attempt = self.attempts[number]
            if attempt.status is AttemptStatus.UNRESPONSIVE and self.rollout.queue is not None:
                attempt = self.recover(attempt)
            self.touch(attempt, at=sign if at is None else at)
        return added

    def close_spans(self, number: int, *, status: str, at: float) -> int:
        """End the open spans of an attempt; return how many there were."""
        closed = [
            key
            for key, state in self.spans.items()
            if key[0] == number and state.close(status=status, at=at)
        ]
        self.changed_spans |= dict.fromkeys(closed)
        return len(closed)

    def add_decision(self, decision: Decision, *, assigned: bool) -> None:
        """Add a decision whose ordinal is free."""
        self.decisions[decision.attempt, decision.ordinal] = decision
        point = decision.point
        self.points.add(point)
        if self.rollout.ready_seq is not None:
            self.places.pop("", None)
            self.places[point] = None
        if assigned and point not in self.assigned:
            arm = arm_of(decision)
            if arm is not None:
                self.assigned.add(point)
                self.arms[point] = arm

    def add_prompts(self, prompts: Sequence[PromptArm]) -> None:
        """Add which prompts were offered to the rollout, and which withheld; the first counts."""
        for prompt in prompts:
            point = trial_of_prompt(prompt.version)
            arm = "learner" if prompt.offered else "control"
            if point not in self.assigned and _is_possible(arm, prompt.share):
                self.assigned.add(point)
                self.arms[point] = point, arm, prompt.share, None

    def take_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Take over attempts of another store's copy; one that was enqueued here just ends."""
        for attempt in attempts:
            known = self.attempts.get(attempt.number)
            if known is None:
                self.begin_attempt(attempt)
            elif self.rollout.queue is not None and known.status in OPEN:
                end = attempt.ended_at or attempt.last_heartbeat_at
                self._end_attempt(known, attempt.status, at=end, error=attempt.error_message)
            elif self.rollout.queue is None and known != attempt:
                self._set_attempt(attempt)

    def take_spans(self, spans: Sequence[tuple[Span, int]]) -> None:
        """Take over spans of another store's copy, each with the ends that were reported."""
        for span, ends in spans:
            key = span.attempt, span.span_id
            known = self.spans.get(key)
            if known is None or known.ends != ends or replace(known.span, seq=span.seq) != span:
                self.spans[key] = SpanState(span, json_of(span.attributes), ends)
                self.changed_spans[key] = None

    def take_arms(self, arms: Sequence[Sequence[Value]]) -> None:
        """Take over assignments of another store's copy: point, arm, share, agreed."""
        for arm in arms:
            point = str(arm[0])
            if point not in self.assigned:
                self.assigned.add(point)
                self.arms[point] = arm

    def catch_up(self, copy: Rollout) -> None:
        """Take over the columns of another store's copy, which has ended.

        What this store gave it stays. One that was enqueued here ends as its attempt did.
        """
        known = self.rollout
        if known.queue is not None:
            if known.status not in ROLLOUT_ENDS and copy.ended_at is not None:
                self.move(
                    copy.status, at=copy.ended_at, reason=copy.reason, error_type=copy.error_type,
                    error_message=None, due_at=None,
                )  # fmt: skip
            return
        fresh = RolloutState.begin(copy)
        self.input, self.metadata = fresh.input, fresh.metadata
        self.rollout = replace(
            fresh.rollout, seq=known.seq, mode=known.mode, ready_seq=known.ready_seq,
            total_reward=known.total_reward, run_reward=known.run_reward,
        )  # fmt: skip

    def is_changed(self) -> bool:
        """Return whether anything of it is still to be written."""
        rows = (self.changed_attempts, self.changed_spans, self.decisions, self.arms)
        return not self.stored or any(rows) or bool(self.changes())

    def earn(self, total: float, *, run_reward: float | None, ready_seq: int | None) -> None:
        """Set its total reward, and its ``ready_seq`` if it gets one now."""
        self.until = None
        if ready_seq is not None:
            self.places = dict.fromkeys(sorted(self.points)) or {"": None}
        self.rollout = replace(
            self.rollout,
            ready_seq=self.rollout.ready_seq if ready_seq is None else ready_seq,
            total_reward=total,
            run_reward=total if run_reward is None else run_reward,
        )


class RewardsState(msgspec.Struct, kw_only=True, eq=False):
    """The rewards of one rollout id, as far as they are loaded.

    Attributes:
        rewards: By key, in the order of arrival.
        whole: Whether all stored ones are loaded.
        new: Keys of rewards to be inserted.
        gone: Keys of rewards to be deleted before.
        later: Keys of rewards whose time is to be changed.
    """

    whole: bool
    rewards: dict[RewardKey, Reward] = {}
    new: dict[RewardKey, None] = {}
    gone: dict[RewardKey, None] = {}
    later: dict[RewardKey, None] = {}

    def mark_written(self) -> None:
        """Mark all changes as stored."""
        self.new, self.gone, self.later = {}, {}, {}

    def load(self, rewards: Mapping[RewardKey, Reward]) -> None:
        """Take over all stored rewards, in their order; changes made here take precedence."""
        self.whole = True
        if not self.rewards and not self.gone:
            self.rewards = {**rewards}
            return
        stored = {key: reward for key, reward in rewards.items() if key not in self.gone}
        self.rewards = {
            key: self.rewards.get(key, reward)
            for key, reward in stored.items()
            if key not in self.new
        } | {key: self.rewards[key] for key in self.new}

    def clear(self) -> None:
        """Delete all rewards, all of which are loaded."""
        self.gone |= {key: None for key in self.rewards if key not in self.new}
        self.rewards, self.new, self.later = {}, {}, {}

    def add(self, key: RewardKey, reward: Reward) -> str:
        """Add a reward, whose stored form is loaded if there is one; return as ``add_reward``."""
        known = self.rewards.get(key)
        if known is None:
            self.rewards[key] = reward
            self.new[key] = None
            return "new"
        if (known.value, known.label, known.comment) == (
            reward.value,
            reward.label,
            reward.comment,
        ):
            if reward.at > known.at:
                self.rewards[key] = replace(known, at=reward.at)
                if key not in self.new:
                    self.later[key] = None
            return "same"
        if known.at > reward.at:
            return "older"
        del self.rewards[key]
        self.rewards[key] = reward
        if self.new.pop(key, True):  # it is stored
            self.gone[key] = None
            self.later.pop(key, None)
        self.new[key] = None
        return "replaced"


def key_of(reward: Reward) -> RewardKey:
    """Return the key of a reward within its rollout."""
    return reward.decision_id or "", reward.name, reward.source, reward.key


def arm_of(decision: Decision) -> Sequence[Value] | None:
    """Return the parameters of ``ASSIGN`` after the rollout; ``None`` for an impossible arm."""
    share = decision.share
    if share is None or not _is_possible(decision.arm, share):
        return None
    is_known = None not in (decision.chosen, decision.applied) and decision.arm == "control"
    agreed = decision.chosen == decision.applied if is_known else None
    return decision.point, decision.arm, share, agreed


def _is_possible(arm: str, share: float) -> bool:
    """Return whether the arm could have been assigned with that share."""
    return 0.0 < share <= 1.0 if arm == "learner" else arm == "control" and 0.0 <= share < 1.0
