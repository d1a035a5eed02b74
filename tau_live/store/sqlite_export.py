"""Everything that a recording determines, row by row, in the same order everywhere."""

import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from tau_live.store.connection import connect

TABLES: Mapping[str, str] = {
    "rollouts": """
        select rollout_id, host, run_id, session_id, parent_id, name, status, mode, reason,
            error_type, input as json_input, max_attempts, retry_on as json_retry_on, timeout_s,
            unresponsive_s, metadata as json_metadata, attempt_count, started_at, ended_at,
            ready_seq, total_reward, run_reward
        from rollouts order by seq
    """,
    "attempts": """
        select rollout_id, number, attempts.status, execution, attempts.started_at,
            last_heartbeat_at, attempts.ended_at, error_message
        from rollouts join attempts on rollout_seq = seq order by rollout_seq, number
    """,
    "spans": """
        select rollout_id, attempt, span_id, parent_span_id, kind, spans.name, spans.status,
            attributes as json_attributes, spans.started_at, spans.ended_at
        from spans join rollouts on rollouts.seq = rollout_seq order by spans.seq
    """,
    "decisions": """
        select rollout_id, attempt, ordinal, point, options as json_options,
            allowed as json_allowed, exploit_only as json_exploit_only, chosen, applied,
            default_option as "default", source, why_not, propensity,
            probabilities as json_probabilities, value, policy_version, arm, share,
            latency_us, at, context as json_context, features as json_features, encoded
        from decisions join rollouts on rollouts.seq = rollout_seq order by decisions.seq
    """,
    "rewards": """
        select rollout_id, nullif(decision_id, '') as decision_id, name, value, label, comment,
            source, key, at, decisions_before
        from rewards order by seq
    """,
    "policies": """
        select version, point, parent, algorithm, sha256, file, rollouts,
            metadata as json_metadata
        from policies order by version
    """,
    "updates": """
        select number as "update", point, executed, skipped_reason, version, parent, first_ready,
            last_ready, trajectories, samples, report as json_report
        from updates order by number
    """,
    "resources": "select version, resources as json_resources from resources order by version",
}
"""The tables in the order of the export; a column that holds JSON is named ``json_...``.

Left out is what a clock, a process or a machine decided: owners, workers, the times at which
policies, updates and resources were made, and what a report says about durations.
"""

CLOCKED = ("duration", "wall")


def exported(path: Path, *, busy_timeout_s: float) -> Iterator[dict[str, object]]:
    """Yield every row of every table, from one state of the store.

    Through a connection of its own: nothing that is done with the store meanwhile can become
    part of the long reading, or be undone with it.
    """
    with closing(connect(path, busy_timeout_s=busy_timeout_s, read_only=True)) as connection:
        connection.change("begin")
        for table, sql in TABLES.items():
            for row in connection.stream(sql):
                public = _public(row)
                if table == "updates":
                    public["report"] = _timeless(public["report"])
                yield {"table": table, **public}


def _public(row: sqlite3.Row) -> dict[str, object]:
    public: dict[str, object] = {}
    for name in row.keys():  # noqa: SIM118  (a row iterates over its values)
        value = row[name]
        if name.startswith("json_"):
            public[name.removeprefix("json_")] = _parsed(value)
        elif isinstance(value, bytes):
            public[name] = b64encode(value).decode()
        else:
            public[name] = value
    if "executed" in public:
        public["executed"] = bool(public["executed"])
    return public


def _parsed(text: str | None) -> object:
    return None if text is None else msgspec.json.decode(text)


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not key.startswith(CLOCKED)}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value
