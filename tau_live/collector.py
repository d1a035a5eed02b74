"""Events become rollouts, attempts, spans, decisions and rewards; plain synchronous code.

No thread and no clock of its own: the time is the events', so that the same recording makes the
same rows. Every step may be repeated: what is already stored adds nothing.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tau_live import events as ev
from tau_live.rollouts import (
    ROLLOUT_ENDS,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    rollout_id_of,
)
from tau_live.spans import span_of
from tau_live.store.roles import Store

KNOWN_LIMIT = 20_000


class Ending(NamedTuple):
    """How a run's end is stored."""

    rollout: RolloutStatus
    attempt: AttemptStatus
    reason: Reason


_ENDINGS = {
    ev.Status.OK: Ending(RolloutStatus.SUCCEEDED, AttemptStatus.SUCCEEDED, Reason.COMPLETED),
    ev.Status.ERROR: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, Reason.ERROR),
    ev.Status.CANCELLED: Ending(RolloutStatus.CANCELLED, AttemptStatus.FAILED, Reason.CANCELLED),
    ev.Status.INTERRUPTED: Ending(
        RolloutStatus.CANCELLED, AttemptStatus.FAILED, Reason.INTERRUPTED
    ),
    ev.Status.LIMIT: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, Reason.LIMIT),
    ev.Status.VETOED: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, Reason.SAFETY_BLOCKED),
    ev.Status.RETRY: Ending(RolloutStatus.FAILED, AttemptStatus.FAILED, Reason.ERROR),
    ev.Status.UNKNOWN: Ending(RolloutStatus.CANCELLED, AttemptStatus.FAILED, Reason.ABANDONED),
}


class Rewarding(Protocol):
    """What decides whether a finished rollout may be learned from."""

    def settle(self, rollout: Rollout, *, store: Store, now: float) -> bool:
        """Mark a finished rollout ready, waiting or left out; ``True`` if it became ready."""
        ...


class Applied(NamedTuple):
    """What a batch of events changed.

    Attributes:
        finished: How many rollouts came to their end.
        ready: How many became fit to be learned from.
    """

    finished: int
    ready: int


class Collector:
    """Applies events to a store, inside the transaction that the caller opened.

    Args:
        store: Where everything goes.
        rewarding: Decides whether a finished rollout may be learned from.
        owner: The process that collects; ``None`` for a replay, whose open rollouts no later
            start may end.
    """

    def __init__(self, store: Store, *, rewarding: Rewarding, owner: str | None) -> None:
        self._store = store
        self._rewarding = rewarding
        self._owner = owner
        self._attempts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._finished = 0
        self._ready = 0
        self._open: dict[str, None] = {}

    def apply(self, events: Sequence[ev.Event]) -> Applied:
        """Store a batch of events.

        Raises:
            StoreError: The store failed; nothing of the caller's transaction may be kept.
        """
        self._finished = self._ready = 0
        for event in events:
            self._apply(event)
        return Applied(self._finished, self._ready)

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.RunStart():
                self._start_run(event)
            case ev.RunEnd():
                self._end_run(event)
            case ev.RunResume():
                self._resume_run(event)
            case ev.Decision():
                self._add_decision(event)
            case ev.Reward():
                self._add_reward(event)
            case _:
                self._add_span(event)

    def forget(self) -> None:
        """Drop what is remembered of the store, after a transaction that was not kept."""
        self._attempts.clear()
        self._open.clear()

    def expire(self, now: float, *, limit: int = 256) -> int:
        """Settle the finished rollouts whose wait for a reward is over; return how many."""
        overdue = self._store.rewards.overdue(now, limit=limit)
        for rollout_id in overdue:
            rollout = self._store.rollouts.rollout(rollout_id)
            self._rewarding.settle(rollout, store=self._store, now=now)
        return len(overdue)

    def end_open(self, *, reason: Reason, at: float) -> int:
        """End what this collector saw begin and not end, truthfully; return how many."""
        return self._end_all(list(self._open), reason=reason, at=at)

    def end_owned(self, owner: str, *, reason: Reason, at: float) -> int:
        """End what another process left open, truthfully; return how many rollouts that were."""
        return self._end_all(self._store.rollouts.open_rollouts(owner), reason=reason, at=at)

    def _end_all(self, rollout_ids: Sequence[str], *, reason: Reason, at: float) -> int:
        for rollout_id in rollout_ids:
            self._end(rollout_id, _ending_for(reason), at=at, error_type=None)
        self.forget()
        return len(rollout_ids)

    def _start_run(self, event: ev.RunStart) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        rollout = self._rollout_of(event, rollout_id)
        if self._store.rollouts.begin_rollout(rollout):
            self._begin_attempt(event, rollout_id, number=event.attempt or 1)
            return
        self._store.rollouts.amend_rollout(
            rollout_id,
            name=rollout.name,
            session_id=rollout.session_id,
            parent_id=rollout.parent_id,
            input_=rollout.input,
            metadata=rollout.metadata,
        )
        self._attempt_of(event, rollout_id)

    def _rollout_of(self, event: ev.Event, rollout_id: str) -> Rollout:
        start = event if isinstance(event, ev.RunStart) else None
        parent = event.parent_run_id
        metadata = dict(start.metadata) if start else {}
        for name in ("model", "tools", "trigger", "instructions_hash"):
            if start is not None and getattr(start, name):
                metadata[name] = getattr(start, name)
        return Rollout(
            rollout_id=rollout_id,
            host=event.host,
            run_id=event.run_id,
            session_id=event.session_id,
            parent_id=rollout_id_of(event.parent_host or event.host, parent) if parent else None,
            name=(start.name if start else "") or event.agent or "",
            status=RolloutStatus.RUNNING,
            input=_content(start.input) if start else None,
            metadata=metadata,
            owner=self._owner,
            started_at=event.at,
        )

    def _attempt_of(self, event: ev.Event, rollout_id: str) -> int:
        """Return the attempt that an event belongs to; begin it where it is the first."""
        key = (rollout_id, event.execution)
        number = self._attempts.get(key)
        if number is not None:
            self._attempts.move_to_end(key)
            return number
        existing = self._store.rollouts.attempts(rollout_id)
        if not existing:
            self._store.rollouts.begin_rollout(self._rollout_of(event, rollout_id))
            return self._begin_attempt(event, rollout_id, number=event.attempt or 1)
        for attempt in reversed(existing):
            same = attempt.execution.partition("/")[0] == event.execution
            if same or (attempt.number == event.attempt and not attempt.execution):
                return self._remember(key, attempt.number)
        number = event.attempt or existing[-1].number + 1
        self._reopen(rollout_id, at=event.at)
        return self._begin_attempt(event, rollout_id, number=number)

    def _reopen(self, rollout_id: str, *, at: float) -> None:
        """Let a failed rollout be tried again; one that succeeded or was cancelled stays so."""
        status = self._store.rollouts.rollout(rollout_id).status
        if status is RolloutStatus.FAILED:
            self._store.rollouts.set_status(rollout_id, RolloutStatus.REQUEUING, at=at)
            self._store.rollouts.set_status(rollout_id, RolloutStatus.RUNNING, at=at)
        elif status in ROLLOUT_ENDS:
            self._count("reruns_after_end")

    def _begin_attempt(
        self, event: ev.Event, rollout_id: str, *, number: int, execution: str | None = None
    ) -> int:
        self._store.rollouts.begin_attempt(
            Attempt(
                rollout_id=rollout_id,
                number=number,
                status=AttemptStatus.RUNNING,
                execution=event.execution if execution is None else execution,
                started_at=event.at,
                last_heartbeat_at=event.at,
            )
        )
        return self._remember((rollout_id, event.execution), number)

    def _remember(self, key: tuple[str, str], number: int) -> int:
        self._attempts[key] = number
        self._open[key[0]] = None
        if len(self._attempts) > KNOWN_LIMIT:
            self._attempts.popitem(last=False)
        return number

    def _resume_run(self, event: ev.RunResume) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        execution = f"{event.execution}/resume-{event.seq}"
        existing = self._store.rollouts.attempts(rollout_id)
        known = [a.number for a in existing if a.execution == execution]
        if known:
            self._remember((rollout_id, event.execution), known[0])
        else:
            last = self._attempt_of(event, rollout_id)
            self._close_attempt(rollout_id, last, AttemptStatus.SUCCEEDED, event.at)
            self._begin_attempt(
                event, rollout_id, number=event.attempt or last + 1, execution=execution
            )
        self._add_span(event)

    def _close_attempt(
        self, rollout_id: str, number: int, status: AttemptStatus, at: float
    ) -> None:
        attempts = self._store.rollouts.attempts(rollout_id)
        for attempt in attempts:
            if attempt.number == number and attempt.ended_at is None:
                self._store.rollouts.set_attempt_status(rollout_id, number, status, at=at)

    def _end_run(self, event: ev.RunEnd) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        number = self._attempt_of(event, rollout_id)
        ending = _ENDINGS[event.status or ev.Status.OK]
        if event.reason is not None:
            ending = ending._replace(reason=event.reason)
        attempts = self._store.rollouts.attempts(rollout_id)
        current = next(attempt for attempt in attempts if attempt.number == number)
        if current.ended_at is not None:
            if current.ended_at != event.at:
                self._count("late_ends")
            return
        closed = "cancelled" if ending.rollout is RolloutStatus.CANCELLED else "unknown"
        self._store.rollouts.close_spans(rollout_id, number, status=closed, at=event.at)
        self._store.rollouts.set_attempt_status(
            rollout_id,
            number,
            ending.attempt,
            at=event.at,
            error_message=event.error.type if event.error else None,
        )
        self._amend_with_end(event, rollout_id)
        if number == attempts[-1].number:
            error_type = event.error.type if event.error else None
            self._move(rollout_id, ending, at=event.at, error_type=error_type)

    def _amend_with_end(self, event: ev.RunEnd, rollout_id: str) -> None:
        found = {
            name: value
            for name in ("cost_usd", "turns", "duration_ms")
            if (value := getattr(event, name)) is not None
        }
        if event.usage:
            found["usage"] = dict(event.usage)
        if event.output is not None:
            found["output"] = _content(event.output)
        if found:
            self._store.rollouts.amend_rollout(rollout_id, metadata=found)

    def _end(self, rollout_id: str, ending: Ending, *, at: float, error_type: str | None) -> None:
        for attempt in self._store.rollouts.attempts(rollout_id):
            if attempt.ended_at is None:
                self._store.rollouts.close_spans(
                    rollout_id, attempt.number, status="unknown", at=at
                )
                self._store.rollouts.set_attempt_status(
                    rollout_id, attempt.number, ending.attempt, at=at
                )
        self._move(rollout_id, ending, at=at, error_type=error_type)

    def _move(self, rollout_id: str, ending: Ending, *, at: float, error_type: str | None) -> None:
        self._open.pop(rollout_id, None)
        if self._store.rollouts.rollout(rollout_id).status in ROLLOUT_ENDS:
            return
        self._store.rollouts.set_status(
            rollout_id, ending.rollout, at=at, reason=ending.reason, error_type=error_type
        )
        self._finished += 1
        self._settle(rollout_id, now=at)

    def _settle(self, rollout_id: str, *, now: float) -> None:
        rollout = self._store.rollouts.find_rollout(rollout_id)
        if rollout is None or rollout.status not in ROLLOUT_ENDS:
            return
        if self._rewarding.settle(rollout, store=self._store, now=now):
            self._ready += 1

    def _add_span(self, event: ev.Event) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        number = self._attempt_of(event, rollout_id)
        span = span_of(event, rollout_id=rollout_id, attempt=number)
        if span is not None:
            self._store.rollouts.add_span(span)

    def _add_decision(self, event: ev.Decision) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        number = self._attempt_of(event, rollout_id)
        self._store.decisions.add_decision(
            Decision(
                rollout_id=rollout_id,
                attempt=number,
                ordinal=event.ordinal,
                point=event.point,
                options=event.options,
                chosen=event.chosen,
                applied=event.applied,
                default=event.default,
                source=event.source,
                why_not=event.why_not,
                propensity=event.propensity,
                probabilities=event.probabilities,
                value=event.value,
                policy_version=event.policy_version,
                arm=event.arm,
                latency_us=event.latency_us,
                at=event.at,
                context=event.context,
                features=event.features,
                encoded=event.encoded,
            )
        )

    def _add_reward(self, event: ev.Reward) -> None:
        rollout_id = event.rollout_id or rollout_id_of(event.host, event.run_id)
        self._store.rewards.add_reward(
            Reward(
                rollout_id=rollout_id,
                decision_id=event.decision_id,
                name=event.name,
                value=event.value,
                label=event.label,
                comment=event.comment.text if event.comment else None,
                source=event.source,
                key=event.key,
                at=event.at,
            )
        )
        self._settle(rollout_id, now=event.at)

    def _count(self, name: str) -> None:
        self._store.counters.add({name: 1})


def _ending_for(reason: Reason) -> Ending:
    if reason is Reason.ABANDONED:
        return Ending(RolloutStatus.FAILED, AttemptStatus.UNRESPONSIVE, reason)
    return Ending(RolloutStatus.CANCELLED, AttemptStatus.FAILED, reason)


def _content(content: ev.Content | None) -> dict[str, object] | None:
    if content is None:
        return None
    found = {"chars": content.chars, "sha256": content.sha256, "text": content.text}
    return {name: value for name, value in found.items() if value is not None}
