"""A batch of events in SQLite: what begins in it is kept in memory, and stored at its end at once.

Where a process is busy, most runs begin and end within a batch. Told move by move, each is some
forty statements, each of which lets go of the interpreter and, beside a thread that computes all
the time, waits five milliseconds (Python's switch interval) to have it back: a run took half a
second. At once it is a few statements for hundreds of runs.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from tau_live.errors import UnknownError
from tau_live.reasons import LEFT_OUT
from tau_live.rollouts import (
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
)
from tau_live.store.connection import Connection
from tau_live.store.records import Amendment, WholeRollout
from tau_live.store.sqlite_decisions import SqliteDecisions
from tau_live.store.sqlite_names import SqliteNames
from tau_live.store.sqlite_rewards import SqliteRewards
from tau_live.store.sqlite_rollouts import SqliteRollouts
from tau_live.store.sqlite_stage import Stage


class SqliteBatch(AbstractContextManager["SqliteBatch"]):
    """Implements ``Batch``; it is stored when it is left without an error.

    Args:
        connection: In a transaction.
        ids: The rollouts that the events of the batch are about, by all ids they may have there.

    Attributes:
        rollouts: Rollouts, attempts and spans.
        decisions: Decisions.
        rewards: Rewards and what they make ready.
        names: Other ids of rollouts, and sessions.
        counters: Counters.
    """

    def __init__(self, connection: Connection, ids: Collection[str]) -> None:
        self._stage = Stage(connection, ids)
        self.rollouts = _Rollouts(self._stage, connection)
        self.decisions = _Decisions(self._stage, connection)
        self.rewards = _Rewards(self._stage, connection)
        self.names = _Names(self._stage, connection)
        self.counters = _Counters(self._stage)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._stage.write()

    def add_whole(self, whole: WholeRollout) -> bool:
        """Store a rollout that has ended; ``False`` if something of it is known."""
        return self._stage.add(whole)


class _Rollouts:
    """Implements ``RunRecord``."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self._stage = stage
        self._stored = SqliteRollouts(connection)

    def begin_rollout(self, rollout: Rollout) -> bool:
        if self._stage.get(rollout.rollout_id) is not None:
            return False
        return self._stage.begin(rollout) or self._stored.begin_rollout(rollout)

    def set_status(
        self,
        rollout_id: str,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None = None,
        error_type: str | None = None,
        worker_id: str | None = None,
    ) -> bool:
        fresh = self._stage.get(rollout_id)
        if fresh is not None and worker_id is None:
            moved = fresh.move(new, at=at, reason=reason, error_type=error_type)
            if moved is not None:
                return moved
        self._stage.leave(rollout_id)
        return self._stored.set_status(
            rollout_id, new, at=at, reason=reason, error_type=error_type, worker_id=worker_id
        )

    def amend_rollout(self, rollout_id: str, told: Amendment) -> None:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            self._stored.amend_rollout(rollout_id, told)
        else:
            fresh.amend(told)

    def take_over(self, rollout_id: str, owner: str | None) -> None:
        self._stage.leave(rollout_id)
        self._stored.take_over(rollout_id, owner)

    def begin_attempt(self, attempt: Attempt) -> bool:
        fresh = self._stage.get(attempt.rollout_id)
        if fresh is None:
            return self._stored.begin_attempt(attempt)
        return fresh.begin_attempt(attempt)

    def set_attempt_status(
        self,
        rollout_id: str,
        number: int,
        new: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> bool:
        fresh = self._stage.get(rollout_id)
        if fresh is not None:
            moved = fresh.move_attempt(number, new, at=at, error=error_message)
            if moved is not None:
                return moved
        self._stage.leave(rollout_id)
        return self._stored.set_attempt_status(
            rollout_id, number, new, at=at, error_message=error_message
        )

    def add_spans(self, spans: Sequence[Span]) -> int:
        rest, added = [], 0
        for span in spans:
            fresh = self._stage.get(span.rollout_id)
            found = None if fresh is None else fresh.add_span(span)
            if found is None:
                self._stage.leave(span.rollout_id)
                rest.append(span)
            elif found:
                added += 1
            else:
                self._stage.count("duplicate_spans")
        return added + (self._stored.add_spans(rest) if rest else 0)

    def close_spans(self, rollout_id: str, number: int, *, status: str, at: float) -> int:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            return self._stored.close_spans(rollout_id, number, status=status, at=at)
        return fresh.close_spans(number, status=status, at=at)

    def rollout(self, rollout_id: str) -> Rollout:
        found = self.find_rollout(rollout_id)
        if found is None:
            raise UnknownError("rollout", rollout_id)
        return found

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        fresh = self._stage.get(rollout_id)
        if fresh is not None:
            return fresh.rollout
        if self._stage.is_absent(rollout_id):
            return None
        return self._stored.find_rollout(rollout_id)

    def attempts(
        self,
        rollout_id: str,
        *,
        newest: int | None = None,
        unended: bool = False,
        execution: str | None = None,
    ) -> list[Attempt]:
        fresh = self._stage.get(rollout_id)
        if fresh is not None:
            return fresh.tried(newest=newest, unended=unended, execution=execution)
        if self._stage.is_absent(rollout_id):
            return []
        return self._stored.attempts(
            rollout_id, newest=newest, unended=unended, execution=execution
        )

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            return self._stored.spans(rollout_id, number)
        return [
            told.span for place, told in fresh.spans.items() if number is None or place[0] == number
        ]


class _Decisions:
    """Implements ``DecisionRecord``."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self._stage = stage
        self._stored = SqliteDecisions(connection)

    def add_decision(self, decision: Decision, *, assigned: bool = True) -> bool:
        fresh = self._stage.get(decision.rollout_id)
        added = None if fresh is None else fresh.add_decision(decision, assigned=assigned)
        if added is None:
            self._stage.leave(decision.rollout_id)
            return self._stored.add_decision(decision, assigned=assigned)
        if not added:
            self._stage.count("duplicate_decisions")
        return added


class _Rewards:
    """Implements ``RewardRecord``."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self._stage = stage
        self._stored = SqliteRewards(connection)

    def add_reward(self, reward: Reward) -> str:
        fresh = self._stage.get(reward.rollout_id)
        if fresh is not None and fresh.add_reward(reward):
            return "new"
        self._stage.leave(reward.rollout_id)
        return self._stored.add_reward(reward)

    def rewards(self, rollout_id: str) -> list[Reward]:
        fresh = self._stage.get(rollout_id)
        return self._stored.rewards(rollout_id) if fresh is None else [*fresh.rewards.values()]

    def mark_ready(
        self, rollout_id: str, *, total_reward: float, run_reward: float | None = None
    ) -> bool:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            self._stage.write_place()
            return self._stored.mark_ready(
                rollout_id, total_reward=total_reward, run_reward=run_reward
            )
        placed = fresh.rollout.ready_seq
        fresh.earn(
            total_reward,
            run_reward=run_reward,
            ready_seq=self._stage.next_place() if placed is None else placed,
        )
        return placed is None

    def await_reward(self, rollout_id: str, *, until: float) -> None:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            self._stored.await_reward(rollout_id, until=until)
        elif fresh.rollout.ready_seq is None:
            fresh.until = until

    def leave_out(self, rollout_id: str, reason: str | None) -> None:
        fresh = self._stage.get(rollout_id)
        if fresh is None:
            self._stored.leave_out(rollout_id, reason)
        elif fresh.left_out != reason:
            for left, by in ((fresh.left_out, -1), (reason, 1)):
                if left is not None:
                    self._stage.count(f"{LEFT_OUT}{left}", by)
            fresh.left_out = reason


class _Names:
    """Implements ``Names``."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self._stage = stage
        self._stored = SqliteNames(connection)

    def add(self, name_id: str, rollout_id: str) -> int:
        if self._stage.name(name_id, rollout_id):
            return 0
        self._stage.write()
        return self._stored.add(name_id, rollout_id)

    def rollouts_of(self, name_id: str) -> list[str]:
        if self._stage.is_name(name_id):
            self._stage.write()
        return self._stored.rollouts_of(name_id)

    def last_of(self, session_id: str) -> dict[str, str]:
        self._stage.write()
        return self._stored.last_of(session_id)

    def last_of_host(self, session_id: str, host: str) -> str | None:
        self._stage.write()
        return self._stored.last_of_host(session_id, host)


class _Counters:
    """Implements ``Counting``."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def add(self, counts: Mapping[str, int]) -> None:
        for name, by in counts.items():
            self._stage.count(name, by)
