"""Turns events into rollouts, attempts, spans, decisions and rewards; plain synchronous code.

No thread and no clock of its own: the time is the events', so that the same recording makes the
same rows. Every step may be repeated: events that are stored already add nothing.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.errors import AmbiguousIdError, UnknownError
from tau_live.core.guard import logger, text_of
from tau_live.core.reasons import RERUNS, WhyNot
from tau_live.core.records import (
    ROLLOUT_ENDS,
    Attempt,
    AttemptStatus,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
    WholeRollout,
    attempt_id_of,
    rollout_id_of,
)
from tau_live.record import attempts
from tau_live.record.attempts import ENDINGS, Ending, ending_of
from tau_live.record.rewards import Rewarding
from tau_live.record.spans import (
    amendment_by_end,
    amendment_by_start,
    decision_of,
    reward_of,
    rollout_of,
    span_of,
)
from tau_live.record.whole_runs import RecordItem, StepOfRun, steps_of
from tau_live.rl.config import PPOConfig
from tau_live.rl.throttle import yield_gil
from tau_live.store.records import RolloutCopy
from tau_live.store.roles import Batch, Store

FORGOTTEN = "arrived_forgotten"
"""Counts copies of rollouts that had been deleted."""

KNOWN_LIMIT = 20_000
NEWEST = 32
"""How many attempts of a rollout are read for an event; all if it belongs to none of them."""
SPANS_AT_ONCE = 512  # one look-up for a batch: each lets others have the interpreter for 5 ms


class Applied(NamedTuple):
    """Changes made by a batch of events.

    Attributes:
        finished: How many rollouts ended.
        ready: How many became ready to be learned from.
        refused: How many events could not be stored.
    """

    finished: int
    ready: int
    refused: int = 0


class Collector:
    """Applies events to a store, inside the transaction that the caller opened.

    Args:
        store: The store.
        rewarding: Decides whether a finished rollout may be learned from.
        owner: The process that collects; ``None`` for a replay, whose open rollouts no later
            start may end.
        redact: Passes a span through plugins before it is written.
        settles: Whether finished rollouts are settled here; in a spool the hub does.
        stale_s: How long after its end a copy of a rollout may come and be learned from.
    """

    def __init__(
        self,
        store: Store,
        *,
        rewarding: Rewarding,
        owner: str | None,
        redact: Callable[[Span], Span] = lambda span: span,
        settles: bool = True,
        stale_s: float = inf,
    ) -> None:
        self._store = store
        self._settles = settles
        self._stale_s = stale_s
        self._batch: Batch  # while events are applied
        self._rewarding = rewarding
        self._owner = owner
        self._redact = redact
        self._known: OrderedDict[attempts.Key, int] = OrderedDict()
        self._open: OrderedDict[str, None] = OrderedDict()
        self._spans: list[Span] = []
        self._steps: dict[str, Iterator[list[ev.Event]] | None] = {}  # of runs that are over
        self._finished = self._ready = 0
        self._has_warned = self._has_warned_early = False
        self._handlers: Mapping[type[ev.Event], Callable[..., None]] = {
            ev.RunStart: self._start_run,
            ev.RunEnd: self._end_run,
            ev.RunInterrupt: self._interrupt_run,
            ev.RunResume: self._resume_run,
            ev.Decision: self._add_decision,
            ev.Reward: self._add_reward,
        }

    def apply(self, items: Sequence[RecordItem]) -> Applied:
        """Store a batch of events, and of runs that are over.

        Raises:
            StoreError: The store failed; nothing of the caller's transaction may be kept, and
                ``forget`` must be called before the next batch.
        """
        self._finished = self._ready = 0
        self._spans.clear()
        with self._store.batch(attempts.ids_in(items)) as self._batch:
            for item in items:
                if isinstance(item, ev.Event):
                    self._apply(item)
                elif isinstance(item, StepOfRun):
                    self._take_step(item)
                else:
                    self._add_whole(item)
                if len(self._spans) >= SPANS_AT_ONCE:
                    self._store_spans()
                yield_gil()
            self._store_spans()
        return Applied(self._finished, self._ready)

    def _apply(self, event: ev.Event) -> None:
        rollout_id = rollout_id_of(event.host, event.run_id)
        step = self._handlers.get(type(event))
        if step is None:
            self._add_span(event, rollout_id, self._attempt_of(event, rollout_id))
        else:
            step(event, rollout_id)
        for name in attempts.names_in(event):
            self._add_name(rollout_id_of(event.host, name), rollout_id, now=event.at)

    def take_in(
        self, copies: Sequence[RolloutCopy], *, now: float, ahead_s: float = 0.0
    ) -> Applied:
        """Store copies of rollouts from another store, inside the caller's transaction.

        A rollout that comes too late is stored and counted like any other, and never learned from.
        One that was deleted here after its start does not come back: of its copy only rewards
        are stored, those that it got since then.

        Args:
            copies: The copies.
            now: Epoch seconds, from which a wait for a reward is counted.
            ahead_s: By how much that clock is ahead of the one that the copies are dated by.
        """
        self._finished = self._ready = 0
        moved_on_at = cache(self._moved_on_at)
        ids = [copy.rollout_id for copy in copies]
        with self._store.batch(ids) as self._batch:
            forgotten = self._batch.forgotten(ids)
            for each in copies:
                copy = self._redirect(self._without_forgotten(each, forgotten, ahead_s=ahead_s))
                ended_at = self._newly_ended_at(copy)
                is_late = ended_at is not None and (
                    now - (ended_at + ahead_s) > self._stale_s
                    or any(moved_on_at(own.point) > ended_at + ahead_s for own in copy.decisions)
                )
                if self._batch.take_in(copy):
                    if is_late:
                        self._batch.leave_out(copy.rollout_id, WhyNot.ARRIVED_LATE)
                    self._finished += copy.rollout is not None
                    self._settle_late(copy.rollout_id, now=now)
                yield_gil()
        return Applied(self._finished, self._ready)

    def _without_forgotten(
        self, copy: RolloutCopy, forgotten: Mapping[str, float], *, ahead_s: float
    ) -> RolloutCopy:
        """Return a copy without what was deleted here with its rollout."""
        gone_at = forgotten.get(copy.rollout_id)
        if gone_at is None:
            return copy
        if copy.rollout is not None:
            if (copy.rollout.started_at or 0.0) + ahead_s > gone_at:
                return copy  # another run with the id of the one that was deleted
            self._batch.count(FORGOTTEN)
        rewards = [reward for reward in copy.rewards if reward.at + ahead_s > gone_at]
        return copy._replace(rollout=None, rewards=rewards)

    def _newly_ended_at(self, copy: RolloutCopy) -> float | None:
        """Return when a rollout ended, if its end is new here and may still be learned from."""
        known = self._batch.find_rollout(copy.rollout_id)
        if copy.rollout is None or (known is not None and known.ready_seq is not None):
            return None
        ended_at = copy.rollout.ended_at
        return None if known is not None and known.ended_at == ended_at else ended_at

    def _moved_on_at(self, point: str) -> float:
        """Return since when what was decided at a point before is too old for the actor."""
        bound = PPOConfig().lag_bound
        newest = self._store.policies.versions(point, limit=bound + 1)
        return newest[0].created_at if len(newest) > bound else -inf

    def _redirect(self, copy: RolloutCopy) -> RolloutCopy:
        """Return rewards for another id of a run as rewards for the run."""
        if copy.rollout is not None or self._batch.find_rollout(copy.rollout_id) is not None:
            return copy
        try:
            own = attempts.rollout_named(self._batch, copy.rollout_id)
        except AmbiguousIdError:
            return copy
        rewards = [replace(reward, rollout_id=own) for reward in copy.rewards]
        return copy._replace(rollout_id=own, rewards=rewards)

    def _settle_late(self, rollout_id: str, *, now: float) -> None:
        """Settle a rollout that came long after its end, as if it had just ended."""
        rollout = self._batch.find_rollout(rollout_id)
        if rollout is not None and rollout.ended_at is not None:
            self._settle(rollout_id, now=min(now, rollout.ended_at))
            self._batch.put_off(rollout_id, max(0.0, now - rollout.ended_at))

    def forget(self) -> None:
        """Drop the cache of the store, after a transaction that was rolled back."""
        self._known.clear()
        self._spans.clear()
        self._steps.clear()

    def expire(self, now: float, *, limit: int = 256) -> int:
        """Settle the finished rollouts whose wait for a reward is over; return how many."""
        overdue = self._store.rewards.overdue(now, limit=limit)
        with self._store.begin(), self._store.batch(overdue) as self._batch:
            for rollout_id in self._batch.readable(overdue):
                self._settle(rollout_id, now=now)
        return len(overdue)

    def end_open(self, *, reason: Reason, at: float) -> int:
        """End the open rollouts of this process; return how many there were."""
        owned = [] if self._owner is None else self._store.rollouts.open_rollouts(self._owner)
        return self._end_all([*dict.fromkeys([*owned, *self._open])], ENDINGS[reason], at=at)

    def end_owned(self, owner: str, *, reason: Reason, at: float) -> int:
        """End the open rollouts of another process; return how many there were."""
        return self._end_all(self._store.rollouts.open_rollouts(owner), ENDINGS[reason], at=at)

    def _end_all(self, rollout_ids: Sequence[str], ending: Ending, *, at: float) -> int:
        ended = 0
        with self._store.begin(), self._store.batch(rollout_ids) as self._batch:
            for rollout_id in self._batch.readable(rollout_ids):
                self._open.pop(rollout_id, None)
                rollout = self._batch.find_rollout(rollout_id)
                if rollout is None or rollout.status in ROLLOUT_ENDS:
                    continue
                newest = self._batch.attempts(rollout_id, newest=1)
                waits = bool(newest) and newest[-1].status is AttemptStatus.SUCCEEDED
                self._end(rollout, ENDINGS[Reason.INTERRUPTED] if waits else ending, at=at)
                ended += 1
        self.forget()
        return ended

    def _start_run(self, event: ev.RunStart, rollout_id: str) -> None:
        rollout = self._with_mode(rollout_of(event, owner=self._owner))
        if self._batch.begin_rollout(rollout):
            self._begin_attempt(event, rollout_id, existing=[])
            return
        self._batch.amend_rollout(rollout_id, amendment_by_start(rollout))
        attempt, existing = self._find_attempt(event, rollout_id)
        if attempt is None or attempts.is_over(attempt, event):
            self._begin_attempt(event, rollout_id, existing=existing)
        else:
            if self._batch.is_queued(rollout_id):  # the start of a claimed run is a sign of life
                self._batch.touch(
                    rollout_id, attempt.number, at=event.at, worker_id=attempt.worker_id,
                    owner=self._owner,
                )  # fmt: skip
            if self._is_certain(event, existing):
                self._remember(attempts.key_of(event, rollout_id), attempt.number)

    def _with_mode(self, rollout: Rollout) -> Rollout:
        """Return a new rollout with the mode of the one that it runs in."""
        if rollout.parent_id is None:
            return rollout
        parent = self._batch.find_rollout(rollout.parent_id)
        if parent is None or parent.mode is None:
            return rollout
        return replace(rollout, mode=parent.mode)

    def _add_whole(self, rows: WholeRollout) -> None:
        """Store a run that is over, without its end; only its first step if it is known already."""
        rollout_id = rows.rollout.rollout_id
        if not any(map(self._is_odd, rows.rewards)) and self._batch.add_whole(rows):
            self._steps[rollout_id] = None
            return
        steps = self._steps[rollout_id] = steps_of(rows)
        for event in next(steps):
            self._apply(event)

    def _is_odd(self, reward: Reward) -> bool:
        """Return whether a reward is refused or counted as a mistake."""
        return self._rewarding.refuses(reward) or self._rewarding.mistake_in(reward) is not None

    def _take_step(self, step: StepOfRun) -> None:
        steps = self._steps[step.rollout_id]
        if steps is not None:
            for event in next(steps):
                self._apply(event)
        elif step.is_last:
            self._finished += 1
            self._settle(step.rollout_id, now=step.at)
        if step.is_last:
            del self._steps[step.rollout_id]

    def _attempt_of(self, event: ev.Event, rollout_id: str) -> int:
        """Return the number of the attempt that an event belongs to; begin it if it is new."""
        key = attempts.key_of(event, rollout_id)
        number = self._known.get(key)
        if number is not None:
            self._known.move_to_end(key)
            return number
        attempt, existing = self._find_attempt(event, rollout_id)
        if attempt is not None:
            if self._is_certain(event, existing):
                self._remember(key, attempt.number)
            return attempt.number
        if not existing:
            self._batch.begin_rollout(rollout_of(event, owner=self._owner))
        return self._begin_attempt(event, rollout_id, existing=existing)

    def _find_attempt(
        self, event: ev.Event, rollout_id: str
    ) -> tuple[Attempt | None, Sequence[Attempt]]:
        """Return the attempt that an event belongs to, if it is stored, and the attempts read.

        The newest attempts are mostly enough, so that a key used for every run stays cheap.
        """
        newest = self._batch.attempts(rollout_id, newest=NEWEST)
        stored = attempts.of_event(event, newest)
        if len(newest) < NEWEST or (stored is not None and attempts.had_started(stored, event)):
            return stored, newest
        own = event.execution if event.execution and event.attempt is None else None
        older = self._batch.attempts(rollout_id, execution=own)
        by_number = {attempt.number: attempt for attempt in [*older, *newest]}
        existing = [by_number[number] for number in sorted(by_number)]
        return attempts.of_event(event, existing), existing

    def _is_certain(self, event: ev.Event, existing: Sequence[Attempt]) -> bool:
        return len(existing) < NEWEST and attempts.is_certain(event, existing)

    def _around(self, rollout_id: str, number: int) -> tuple[Attempt, Sequence[Attempt]]:
        """Return an attempt and the newest ones; all of them if it is older."""
        for newest in (NEWEST, None):
            existing = self._batch.attempts(rollout_id, newest=newest)
            for attempt in existing:
                if attempt.number == number:
                    return attempt, existing
        raise UnknownError("attempt", attempt_id_of(rollout_id, number))

    def _begin_attempt(
        self,
        event: ev.Event,
        rollout_id: str,
        *,
        existing: Sequence[Attempt],
        execution: str | None = None,
    ) -> int:
        if existing:
            self._reopen(rollout_id, at=event.at)
        number = attempts.number_for(event, existing)
        self._batch.begin_attempt(
            Attempt(
                rollout_id=rollout_id, number=number, status=AttemptStatus.RUNNING,
                execution=event.execution if execution is None else execution,
                started_at=event.at, last_heartbeat_at=event.at,
            )
        )  # fmt: skip
        self._open[rollout_id] = None
        if len(self._open) > KNOWN_LIMIT:
            self._open.popitem(last=False)
        if existing:  # the attempts known for these keys are no longer certain
            self._known.pop((rollout_id, event.execution, None), None)
            self._known.pop((rollout_id, "", None), None)
        else:
            self._remember(attempts.key_of(event, rollout_id), number)
        return number

    def _remember(self, key: attempts.Key, number: int) -> None:
        self._known[key] = number
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def _reopen(self, rollout_id: str, *, at: float) -> None:
        """Let a failed rollout be tried again; one that succeeded or was cancelled stays so."""
        rollout = self._batch.rollout(rollout_id)
        if rollout.status not in ROLLOUT_ENDS or at < (rollout.ended_at or 0.0):
            return  # it goes on, or this happened before its end
        if rollout.status is RolloutStatus.FAILED:
            self._batch.set_status(rollout_id, RolloutStatus.REQUEUING, at=at)
            self._batch.set_status(rollout_id, RolloutStatus.RUNNING, at=at)
            self._batch.take_over(rollout_id, self._owner)
        else:
            self._batch.count(RERUNS)

    def _interrupt_run(self, event: ev.RunInterrupt, rollout_id: str) -> None:
        number = self._attempt_of(event, rollout_id)
        self._add_span(event, rollout_id, number)
        attempt, _ = self._around(rollout_id, number)
        self._close(attempt, AttemptStatus.SUCCEEDED, spans="interrupted", at=event.at)

    def _resume_run(self, event: ev.RunResume, rollout_id: str) -> None:
        existing = self._batch.attempts(rollout_id)
        number = attempts.resumed_attempt(event, existing)
        if number is None:
            interrupted = attempts.of_event(event, existing)
            if interrupted is None and not existing:
                self._batch.begin_rollout(rollout_of(event, owner=self._owner))
            elif interrupted is not None:
                self._close(interrupted, AttemptStatus.SUCCEEDED, spans="interrupted", at=event.at)
            number = self._begin_attempt(
                event, rollout_id, existing=existing, execution=attempts.resumption(event)
            )
        self._add_span(event, rollout_id, number)

    def _end_run(self, event: ev.RunEnd, rollout_id: str) -> None:
        number = self._attempt_of(event, rollout_id)
        ending = ending_of(event)
        if self._batch.is_queued(rollout_id) and self._is_late(rollout_id, number):
            self._settle(rollout_id, now=event.at)
            return
        rollout = self._batch.rollout(rollout_id)
        current, existing = self._around(rollout_id, number)
        last = attempts.is_last(current, existing)
        if current.ended_at is not None and (rollout.status in ROLLOUT_ENDS or not last):
            if event.at not in (current.ended_at, rollout.ended_at):
                self._batch.count("late_ends")
            return
        self._store_spans()
        succeeded = last and ending.rollout is RolloutStatus.SUCCEEDED
        if succeeded and self._rewarding.rejects(rollout, batch=self._batch):
            ending = ENDINGS[Reason.SAFETY_BLOCKED]
        error_type = event.error.type if event.error else None
        self._close(current, ending.attempt, spans=ending.spans, at=event.at, error=error_type)
        amendment = amendment_by_end(event, later=len(existing) > 1)
        self._batch.amend_rollout(rollout_id, amendment)
        if last:
            self._end(rollout, ending, at=event.at, error_type=error_type)

    def _is_late(self, rollout_id: str, number: int) -> bool:
        """Return whether a claimed attempt is over, by ``finish``, which counts it, or for good."""
        attempt = self._batch.attempt(rollout_id, number)
        return attempt.ended_at is not None and not self._batch.recover(rollout_id, number)

    def _end(
        self, rollout: Rollout, ending: Ending, *, at: float, error_type: str | None = None
    ) -> None:
        """End a rollout with all of its attempts, unless it has ended already."""
        self._open.pop(rollout_id := rollout.rollout_id, None)
        if rollout.status in ROLLOUT_ENDS:
            return
        status = ending.attempt
        if status is AttemptStatus.SUCCEEDED:  # an open attempt did not succeed by itself
            status = AttemptStatus.UNRESPONSIVE
        for attempt in self._batch.attempts(rollout_id, unended=True):
            self._close(attempt, status, spans=ending.spans, at=at)
        after = ending.rollout
        if rollout.queue is not None and after is RolloutStatus.FAILED:
            after = rollout.status_after(ending.attempt)
        if after is RolloutStatus.REQUEUING:
            self._batch.set_status(rollout_id, after, at=at)
            return
        self._batch.set_status(
            rollout_id, ending.rollout, at=at, reason=ending.reason, error_type=error_type
        )
        self._finished += 1
        if self._settles:
            ended = self._batch.rollout(rollout_id)
            self._ready += self._rewarding.settle(ended, batch=self._batch, now=at)

    def _close(
        self,
        attempt: Attempt,
        status: AttemptStatus,
        *,
        spans: str,
        at: float,
        error: str | None = None,
    ) -> None:
        """End an attempt that is open, with its spans."""
        if attempt.ended_at is not None:
            return
        self._store_spans()
        self._batch.close_spans(attempt.rollout_id, attempt.number, status=spans, at=at)
        self._batch.set_attempt_status(
            attempt.rollout_id, attempt.number, status, at=at, error_message=error
        )

    def _settle(self, rollout_id: str, *, now: float) -> None:
        self._store_spans()
        rollout = self._batch.find_rollout(rollout_id) if self._settles else None
        if rollout is not None and rollout.status in ROLLOUT_ENDS:
            self._ready += self._rewarding.settle(rollout, batch=self._batch, now=now)

    def _add_span(self, event: ev.Event, rollout_id: str, number: int) -> None:
        span = span_of(event, rollout_id=rollout_id, attempt=number)
        if span is not None:
            self._spans.append(self._redact(span))

    def _store_spans(self) -> None:
        if self._spans:
            self._batch.add_spans(self._spans)
            self._spans.clear()

    def _add_decision(self, event: ev.Decision, rollout_id: str) -> None:
        number = self._attempt_of(event, rollout_id)
        self._batch.add_decision(
            decision_of(event, rollout_id=rollout_id, attempt=number),
            assigned=self._owner is not None,  # the arms of a recording were another store's
            prompts=event.prompts,
        )

    def _add_reward(self, event: ev.Reward, _: str) -> None:
        reward = reward_of(event)
        if reward is None or self._rewarding.refuses(reward):
            self._batch.count("refused_rewards" if reward is None else "rewards_refused_source")
            return
        try:
            reward = replace(reward, rollout_id=attempts.rollout_of_reward(self._batch, event))
        except (UnknownError, AmbiguousIdError) as error:
            self._batch.count("rewards_without_a_run")
            if not self._has_warned:  # once, or a flood of them would fill the log
                logger().warning("reward_refused", name=reward.name, error=text_of(error))
            self._has_warned = True
            return
        if reward.decision_id and event.execution:
            existing = self._batch.attempts(reward.rollout_id, newest=NEWEST)
            reward = replace(reward, decision_id=attempts.decision_in(event, existing))
        self._note_early(reward)
        mistake = self._rewarding.mistake_in(reward)
        if self._batch.add_reward(reward) == "same":
            self._batch.count("duplicate_rewards")
        elif mistake is not None:
            self._batch.count(mistake)
        self._settle(reward.rollout_id, now=event.at)

    def _note_early(self, reward: Reward) -> None:
        """Count a reward whose run is not stored, which may come or have another id."""
        if self._batch.find_rollout(reward.rollout_id) is not None:
            return
        self._batch.count("rewards_before_their_run")
        if not self._has_warned_early:  # legal, so once
            logger().warning(
                "reward_before_its_run",
                rollout_id=reward.rollout_id,
                name=reward.name,
                effect="it is kept until that run arrives; check the id if none will",
            )
        self._has_warned_early = True

    def _add_name(self, name_id: str, rollout_id: str, *, now: float) -> None:
        """Record another id of a run, which gets the rewards that had come for it."""
        if name_id != rollout_id and self._batch.add_name(name_id, rollout_id):
            self._settle(rollout_id, now=now)
