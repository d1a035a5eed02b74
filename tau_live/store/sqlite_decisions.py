"""Decisions in SQLite."""

import re

from tau_live.errors import UnknownError
from tau_live.rollouts import Decision, attempt_id_of
from tau_live.store.connection import Connection
from tau_live.store.records import Shadowed
from tau_live.store.sqlite_counters import count
from tau_live.store.sqlite_rows import (
    DECISION,
    INSERT_DECISION,
    decision_of,
    shadowed_of,
    values_of_decision,
)
from tau_live.store.sqlite_trials import assign

DECISION_ID = re.compile(r"(?s)(.*):attempt-([0-9]{1,18}):decision-([0-9]{1,18})")

IN_SHADOW = "propensity is null and applied is not null and probabilities <> '[]'"
"""The policy was asked, the host did what it does without us; an index holds these alone."""

SHADOW_POINTS = f"""
with recursive points (point) as (
    select (select min(point) from decisions where {IN_SHADOW})
    union all
    select (select min(point) from decisions where {IN_SHADOW} and point > points.point)
    from points where points.point is not null
)
select point from points where point is not null order by point
"""
"""Steps from one point to the next: ``select distinct`` reads the whole index."""

SHADOWED = f"""
select options, applied, probabilities from decisions
where {IN_SHADOW} and point = ? order by seq desc limit ?
"""


class SqliteDecisions:
    """Implements ``DecisionLog``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_decision(self, decision: Decision, *, assigned: bool = True) -> bool:
        """Store a decision; ``False`` if its place in the attempt is taken.

        One that comes after its rollout became ready joins it where it stands: it gets the
        rollout's ``ready_seq`` at its point. If that point has learned beyond it already, nobody
        will learn from it; it is kept, and counted (``late_decisions``).
        """
        with self._connection.begin():
            rollout = self._connection.row(
                """
                select seq, ready_seq from rollouts join attempts on rollout_seq = seq
                where rollout_id = ? and number = ?
                """,
                (decision.rollout_id, decision.attempt),
            )
            if rollout is None:
                raise UnknownError("attempt", attempt_id_of(decision.rollout_id, decision.attempt))
            values = values_of_decision(decision, rollout["seq"])
            added = self._connection.change(INSERT_DECISION, values) > 0
            if not added:
                count(self._connection, "duplicate_decisions")
            elif rollout["ready_seq"] is not None:
                self._join_ready(rollout["seq"], rollout["ready_seq"], decision.point)
            if added and assigned:
                assign(self._connection, decision, rollout["seq"])
        return added

    def decision(self, decision_id: str) -> Decision:
        """Return one decision. Raises: UnknownError."""
        parts = DECISION_ID.fullmatch(decision_id)
        row = parts and self._connection.row(
            f"""
            select {DECISION} from decisions
            where rollout_seq = (select seq from rollouts where rollout_id = ?)
            and attempt = ? and ordinal = ?
            """,
            (parts[1], int(parts[2]), int(parts[3])),
        )
        if not parts or row is None:
            raise UnknownError("decision", decision_id)
        return decision_of(row, parts[1])

    def decisions(self, rollout_id: str) -> list[Decision]:
        """Return the decisions of a rollout in the order of their places."""
        rows = self._connection.rows(
            f"""
            select {DECISION} from decisions
            where rollout_seq = (select seq from rollouts where rollout_id = ?)
            order by attempt, ordinal
            """,
            (rollout_id,),
        )
        return [decision_of(row, rollout_id) for row in rows]

    def shadow_points(self) -> list[str]:
        """Return every decision point that has decisions in shadow, sorted."""
        return [row["point"] for row in self._connection.rows(SHADOW_POINTS)]

    def shadowed(self, point: str, *, limit: int) -> list[Shadowed]:
        """Return the newest decisions in shadow at a point, the newest first."""
        return [shadowed_of(row) for row in self._connection.rows(SHADOWED, (point, limit))]

    def _join_ready(self, rollout_seq: int, ready_seq: int, point: str) -> None:
        self._connection.change(
            "delete from ready_points where rollout_seq = ? and point = ''", (rollout_seq,)
        )
        joined = self._connection.change(
            """
            insert into ready_points (rollout_seq, point, ready_seq) values (?, ?, ?)
            on conflict (rollout_seq, point) do nothing
            """,
            (rollout_seq, point, ready_seq),
        )
        learned = self._connection.count(
            "select coalesce(max(last_ready), 0) from updates where point = ?", (point,)
        )
        if joined and ready_seq <= learned:
            count(self._connection, "late_decisions")
