"""All that a store holds, but for the numbers of its rows: to compare two ways of storing."""

from typing import Any

from tau_live.store.sql.connection import Connection

NUMBER = "(select rollout_id from rollouts where rollouts.seq = rollout_seq)"
TABLES = {
    "rollouts": """
        rank() over (order by seq), rollout_id, parent_id, session_id, name, status, reason,
        error_type, input, metadata, owner, attempt_count, started_at, ended_at, ready_seq,
        total_reward, run_reward, left_out
    """,
    "attempts": f"""
        {NUMBER}, number, status, execution, started_at, last_heartbeat_at, ended_at,
        error_message, due_at
    """,
    "recorded_spans": f"""
        {NUMBER}, attempt, span_id, status, attributes, started_at, ended_at, reported
    """,
    "decisions": f"{NUMBER}, attempt, ordinal, point, propensity, encoded, context, arm, share",
    "arms": f"{NUMBER}, point, arm, share, agreed",
    "rewards": "rollout_id, decision_id, name, value, label, comment, source, key, at",
    "ready_points": f"{NUMBER}, point, ready_seq",
    "awaiting": f"{NUMBER}, until",
    "names": f"{NUMBER}, name_id",
    "counters": "*",
    "sequences": "*",
    "status_counts": "*",
}
"""All that may tell one way of storing from another, but for the numbers of rows."""


def everything(connection: Connection) -> dict[str, list[Any]]:
    """Return the rows of each table, sorted."""
    return {
        table: sorted(map(tuple, connection.rows(f"select {columns} from {table}")), key=repr)
        for table, columns in TABLES.items()
    }
