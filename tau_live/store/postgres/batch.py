"""A batch of events in PostgreSQL, beside those of other processes.

What is counted behind a watermark has to become visible in the order of its numbers: rollouts that
became ready, assignments and rewards. The server numbers them, in a function that waits for its
turn, in the same flush as the commit: so no client and no network lies between taking a number and
giving the turn away. The rows before them are sent in that flush, too, unless more is to be read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tau_live.store.postgres.connection import PostgresConnection
from tau_live.store.postgres.dialect import render
from tau_live.store.postgres.schema import EARNED, Numbered
from tau_live.store.sql.batch import (
    ASSIGN,
    LOAD,
    POINTS,
    REWARDED,
    SPANS_AT,
    WRITE_READY,
    Batch,
    row_of_state,
)
from tau_live.store.sql.columns import into
from tau_live.store.sql.connection import Row, Value
from tau_live.store.sql.lifecycle import RolloutState
from tau_live.store.sql.rows import INSERT_DECISION

LOOK_UPS: Mapping[str, str] = {
    LOAD: render(LOAD).replace("in ({})", "= any (%b::text[])"),
    POINTS: render(POINTS).replace("in ({})", "= any (%b::bigint[])"),
    REWARDED: render(REWARDED).replace("in ({})", "= any (%b::text[])"),
    SPANS_AT: render(SPANS_AT).replace(
        "values {}", "select * from unnest(%b::bigint[], %b::bigint[], %b::text[])"
    ),
}
"""What finds rows for arrays of values, one for each column, by what finds them for rows."""

EARNED_COLUMNS = into(EARNED)[1]

SEALED_COLUMNS = (
    *("seq", "rollout_id", "ready_seq", "total_reward", "run_reward", "left_out", "status"),
    "metadata",
)
"""What is sealed of a rollout; of its ``ready_seq`` only that it has one."""

LATER = 2**62
"""The ``ready_seq`` of a rollout until its batch is written: beyond all that were given."""

FORGOTTEN = """
select rollout_id, forgotten_at from ids
where rollout_id = any (%b::text[]) and coalesce(forgotten_at, 0) > 0
"""

ADD_DECISION = INSERT_DECISION.partition("on conflict")[0]
"""Nobody else can have added it: its rollout is locked."""


class PostgresBatch(Batch):
    """A batch of events; its changes are written when it is left without an error."""

    _connection: PostgresConnection
    _is_last = True

    def __init__(self, connection: PostgresConnection, ids: Collection[str] = ()) -> None:
        self._ready: dict[str, RolloutState] = {}
        super().__init__(connection, ids)

    def forgotten(self, ids: Iterable[str]) -> dict[str, float]:
        """Return when those rollouts of ``ids`` were deleted that were; see ``Batch.forgotten``."""
        rows = self._connection.rows_bound(FORGOTTEN, ([*ids],))
        return {row["rollout_id"]: row["forgotten_at"] for row in rows}

    def _next_ready(self, state: RolloutState) -> int:
        if not self._connection.is_beside:
            return super()._next_ready(state)
        self._ready[state.rollout.rollout_id] = state
        return LATER

    def _write_meanwhile(self) -> None:
        self._is_last = False
        super()._write_meanwhile()
        self._is_last = True

    def _write(self) -> None:
        if not self._connection.is_beside:  # alone: the order of numbers is that of commits
            super()._write()
            return
        states = [*filter(None, self._states.values())]
        ready = [*self._ready.values()]
        for state in ready:
            state.rollout = replace(state.rollout, ready_seq=None)
        self._write_rollouts(states)
        self._write_waiting(states)
        rewards = self._write_rewards()
        self._write_others()
        rows = self._own_rows(states)
        arms, places = rows.pop(ASSIGN, []), rows.pop(WRITE_READY, [])
        numbered = {state.seq for state in ready}
        rows[WRITE_READY] = [row for row in places if row[0] not in numbered]
        if self._is_last:
            self._connection.begin_flush()
        for sql, block in rows.items():
            self._connection.insert(ADD_DECISION if sql == INSERT_DECISION else sql, block)
        last = Numbered(
            ready=[
                (state.seq, state.rollout.total_reward, state.rollout.run_reward) for state in ready
            ],
            rollouts=[(state.seq, *row_of_state(state)) for state in ready if state.stored is None],
            points=[(row[0], row[1]) for row in places if row[0] in numbered],
            arms=arms,
            rewards=rewards,
        )
        self._connection.seal(
            "rollouts", SEALED_COLUMNS, [_sealed_values(state) for state in ready]
        )
        self._ready = {}
        if any(last):
            self._number_last(last, ready)

    def _changes_of(self, state: RolloutState) -> Mapping[str, Value]:
        """Return the columns to be changed now: what is earned is stored with the number."""
        changes = super()._changes_of(state)
        if state.rollout.rollout_id not in self._ready:
            return changes
        return {name: value for name, value in changes.items() if name not in EARNED_COLUMNS}

    def _insert_rollouts(self, states: Sequence[RolloutState]) -> Sequence[int]:
        """Insert rollouts, but for those that are ready, which are inserted with their number."""
        own = [state for state in states if state.rollout.rollout_id not in self._ready]
        inserted = iter(super()._insert_rollouts(own) if own else ())
        reserved = iter(self._connection.reserve("rollouts", len(states) - len(own)))
        return [
            next(reserved if state.rollout.rollout_id in self._ready else inserted)
            for state in states
        ]

    def _number_last(self, last: Numbered, ready: Sequence[RolloutState]) -> None:
        """Number what is new, at the commit or, if that is not near, at once."""
        if self._is_last:
            self._connection.number_at_commit(last)
            return
        first = self._connection.number(last)
        for place, state in enumerate(ready):
            state.rollout = replace(state.rollout, ready_seq=first + place)

    def _look_up(self, statement: str, wanted: Sequence[Sequence[Value]]) -> list[Row]:
        """Return the rows that a statement finds for ``wanted``."""
        if not wanted:
            return []
        columns = [[*column] for column in zip(*wanted, strict=True)]
        return self._connection.rows_bound(LOOK_UPS[statement], columns)


def _sealed_values(state: RolloutState) -> Sequence[Value]:
    """Return the values of ``SEALED_COLUMNS`` of a rollout that becomes ready."""
    rollout = state.rollout
    return (
        *(state.seq, rollout.rollout_id, LATER, rollout.total_reward, rollout.run_reward),
        *(state.left_out, rollout.status, state.metadata),
    )
