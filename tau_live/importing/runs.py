"""Decisions of a log as runs: whole ones as far as they are, else as a host would have told them.

What a row earned is the run's where it is the run's last row, and else the decision's. So of every
run the newest reward waits until it is known whether more follows; so many runs are kept open.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter

from tau_live.collection.whole_runs import (
    StepOfRun,
    Told,
    event_of_decision,
    event_of_reward,
    steps_of,
)
from tau_live.handed.values import text_of
from tau_live.importing.logged import Logged
from tau_live.importing.records import HOST, Records
from tau_live.machine.quick import quick
from tau_live.privacy.redaction import clean_id
from tau_live.rollouts import (
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    rollout_id_of,
)
from tau_live.store.records import WholeRollout

OPEN_RUNS = 10_000
"""A run ends when so many others were heard of since; what follows of it comes late."""

RUNS_AT_ONCE = 2_048
"""So many are stored in one transaction, which writes each page that they share once."""

EVENTS_AT_ONCE = 4_096

ROWS_HELD = 32_768
"""So many rows, some 50 MB, wait for the ends of their runs; then they are told before these."""

_CONFIG = RolloutConfig()


@dataclass(slots=True, eq=False)
class _Run:
    """A run of the log, and what of it is held.

    Attributes:
        key: Its id.
        rollout_id: Its rollout.
        session: Its session.
        name: Of which kind it is.
        execution: Tells it from a run of the same id that is told again later.
        started_at: Epoch seconds of its first row.
        at: Those of its last.
        ordinal: The place of its last decision.
        reward: What that earned; ``None`` where nobody knows.
        places: Where among all steps of runs each of its steps stands.
        decisions: Its decisions.
        rewards: Those of its decisions, then its own.
        has_ended: Whether its last step is its end.
        is_told: Whether it is told event by event: too much of it would have to be held.
    """

    key: str
    rollout_id: str
    session: str | None
    name: str
    execution: str
    started_at: float
    at: float
    ordinal: int = 0
    reward: float | None = None
    places: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    has_ended: bool = False
    is_told: bool = False

    @property
    def ids(self) -> dict[str, str]:
        """By what its events are known to be its."""
        return {"host": HOST, "run_id": self.key, "execution": self.execution}


class Runs:
    """Turns the decisions of one log into runs.

    They come in batches, each with all that began before anything of it ended: so in the store
    they stand in the order in which they began, and became ready in that in which they ended.

    Args:
        stream: Names the log; with the line it makes the ids of runs that have none.
        otherwise: When decisions were made whose log does not say, in epoch seconds.
        records: Makes what is stored.
    """

    def __init__(self, stream: str, *, otherwise: float, records: Records) -> None:
        self._stream = stream
        self._execution = clean_id(stream)
        self._otherwise = otherwise
        self._records = records
        self._rollout, self._attempt = quick(Rollout), quick(Attempt)
        self._open: OrderedDict[str, _Run] = OrderedDict()
        self._held: deque[_Run] = deque()
        self._told: list[tuple[int, Sequence[Told]]] = []
        self._ended = self._rows = self._steps = self._last = 0

    def take(self, rows: Sequence[tuple[Logged, int]]) -> Iterator[list[Told]]:
        """Take some more decisions, each with its line; yield a batch whenever one is due.

        Each step is done for all of them before the next: that takes three quarters of the time,
        because its code and data stay in the processor's caches.
        """
        keys = [self._key_of(logged, line) for logged, line in rows]
        decisions = [
            self._records.decision_of(
                logged,
                rollout_id=rollout_id_of(HOST, key),
                ordinal=logged.step or (1 if logged.run is None else line),
                at=self._otherwise if logged.at is None else logged.at,
            )
            for key, (logged, line) in zip(keys, rows, strict=True)
        ]
        for key, (logged, _), decision in zip(keys, rows, decisions, strict=True):
            self._take(key, logged, decision)
            if self._is_due():
                yield self._batch()

    def finished(self) -> Iterator[list[Told]]:
        """End the runs that are still open, and yield the last batches."""
        while self._open:
            self._end(self._open.popitem(last=False)[1])
            if self._is_due():
                yield self._batch()
        yield self._batch()

    def _key_of(self, logged: Logged, line: int) -> str:
        return clean_id(f"{self._stream}#{line}" if logged.run is None else text_of(logged.run))

    def _take(self, key: str, logged: Logged, decision: Decision) -> None:
        run = self._open.pop(key, None)
        if run is None:
            run = self._begin(key, logged, decision)
        elif logged.at is None:
            decision = replace(decision, at=run.at)
        earned = self._earned(run, decision=run.ordinal)
        run.at, run.ordinal, run.reward = decision.at, decision.ordinal, logged.reward
        self._add(run, decision, earned)
        if logged.run is None or logged.end:
            self._end(run)
            return
        self._open[key] = run
        if len(self._open) > OPEN_RUNS:
            self._end(self._open.popitem(last=False)[1])

    def _begin(self, key: str, logged: Logged, decision: Decision) -> _Run:
        # Times tell a run from one of its id that is told again later, where the log has them.
        # Else they are when the file was last written, so the same line would look like a later
        # attempt once the file was copied or has grown: the log does.
        execution = self._execution if logged.at is None else ""
        at = decision.at
        run = _Run(
            key,
            decision.rollout_id,
            logged.session,
            logged.name,
            execution,
            at,
            at,
        )
        self._held.append(run)
        return run

    def _earned(self, run: _Run, *, decision: int | None) -> Sequence[Reward]:
        """Return what its last row has earned, for that decision or for the run."""
        if run.reward is None:
            return ()
        return (
            self._records.reward_of(
                run.reward, rollout_id=run.rollout_id, decision=decision, at=run.at
            ),
        )

    def _add(self, run: _Run, decision: Decision, earned: Sequence[Reward]) -> None:
        """Hold a decision and what the one before it has earned; or tell them."""
        self._steps += 1
        if run.is_told:
            rewards = [event_of_reward(reward, **run.ids) for reward in earned]
            self._told.append((self._steps, [*rewards, event_of_decision(decision, **run.ids)]))
            return
        run.places.append(self._steps)
        run.decisions.append(decision)
        run.rewards += earned
        self._rows += 1

    def _end(self, run: _Run) -> None:
        self._steps += 1
        run.has_ended = True
        run.places.append(self._steps)
        run.rewards += self._earned(run, decision=None)
        if run.is_told:
            [_, *end] = next(steps_of(self._rows_of(run)))  # the first event is its start
            self._told.append((self._steps, end))
        else:
            self._last = max(self._last, run.places[0])
            self._ended += 1

    def _is_due(self) -> bool:
        return (
            self._ended >= RUNS_AT_ONCE
            or len(self._told) >= EVENTS_AT_ONCE
            or self._rows >= ROWS_HELD
        )

    def _batch(self) -> list[Told]:
        """Return all that is told, and every run that began before one that has ended."""
        last = inf if self._rows >= ROWS_HELD else self._last
        placed, self._told, self._ended = self._told, [], 0
        while self._held and self._held[0].places[0] <= last:
            run = self._held.popleft()
            self._rows -= len(run.decisions)
            placed += zip(run.places, self._steps_of(run), strict=False)
        placed.sort(key=itemgetter(0))
        return [one for _, told in placed for one in told]

    def _steps_of(self, run: _Run) -> Iterable[Sequence[Told]]:
        """Return what stands at each place of a run, and hold it no longer.

        It is whole where it has ended and none of its decisions has another's ordinal.
        """
        rows, decisions = self._rows_of(run), run.decisions
        if run.has_ended and len({one.ordinal for one in decisions}) == len(decisions):
            later = [StepOfRun(run.rollout_id, one.at, is_last=False) for one in decisions[1:]]
            end = StepOfRun(run.rollout_id, run.at, is_last=True)
            return [[rows], *([one] for one in later), [end]]
        run.is_told, run.decisions, run.rewards = True, [], []
        return steps_of(rows)

    def _rows_of(self, run: _Run) -> WholeRollout:
        """Return what is held of a run, as if that was all of it."""
        rollout = self._records.clean(
            self._rollout(
                rollout_id=run.rollout_id,
                host=HOST,
                run_id=run.key,
                session_id=run.session,
                name=run.name,
                status=RolloutStatus.SUCCEEDED,
                reason=Reason.COMPLETED,
                config=_CONFIG,
                attempt_count=1,
                started_at=run.started_at,
                ended_at=run.at,
            )
        )
        attempt = self._attempt(
            rollout_id=run.rollout_id,
            number=1,
            status=AttemptStatus.SUCCEEDED,
            execution=run.execution,
            started_at=run.started_at,
            last_heartbeat_at=run.started_at,
            ended_at=run.at,
        )
        return WholeRollout(rollout, attempt, run.decisions, run.rewards)
