"""The rows that a recording determines, in a fixed order."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from math import isfinite
from typing import NamedTuple

import msgspec

from tau_live.store.retention import ExportRow, Rows
from tau_live.store.sql.connection import Connection, Row, json_of
from tau_live.store.sql.rows import DECISION_COLUMNS, DECISION_JSON, REWARD_COLUMNS

SEQS = "(select value from json_each(:seqs))"


class Table(NamedTuple):
    """How a table is exported, as parts of SQL.

    Attributes:
        columns: The exported columns; one that holds JSON is named ``json_...``, and one that only
            orders the rows, as it has to be there in a view, ``order_...``.
        source: The table, or a join of tables.
        order: The columns by which its rows are ordered.
        seq: The column that numbers its rows; empty if they have no number of their own.
        owned: The condition for a row of one of the rollouts ``:seqs``; empty where none can be.
    """

    columns: str
    source: str
    order: str
    seq: str = ""
    owned: str = ""


TABLES: Mapping[str, Table] = {
    "rollouts": Table(
        """
        rollout_id, host, run_id, session_id, parent_id, name, status, mode, reason,
        error_type, input as json_input, max_attempts, retry_on as json_retry_on, timeout_s,
        unresponsive_s, metadata as json_metadata, attempt_count, started_at, ended_at,
        ready_seq, total_reward, run_reward
        """,
        "rollouts",
        "seq",
        "seq",
        f"seq in {SEQS}",
    ),
    "attempts": Table(
        """
        rollout_id, number, attempts.status, execution, attempts.started_at,
        last_heartbeat_at, attempts.ended_at, error_message
        """,
        "rollouts join attempts on rollout_seq = seq",
        "rollout_seq, number",
        owned=f"rollout_seq in {SEQS}",
    ),
    "spans": Table(
        """
        rollout_id, attempt, span_id, parent_span_id, kind, name, status,
        attributes as json_attributes, started_at, ended_at,
        rollout_seq as order_rollout, seq as order_seq, ordinal as order_ordinal
        """,
        "spans",
        "rollout_seq, attempt, seq, ordinal",
    ),
    "decisions": Table(
        ", ".join(
            [
                "rollout_id",
                *(
                    f'{column} as "{"json_" * (name in DECISION_JSON)}{name}"'
                    for name, column in DECISION_COLUMNS.items()
                ),
            ]
        ),
        "decisions join rollouts on rollouts.seq = rollout_seq",
        "rollout_seq, decisions.seq",
        "decisions.seq",
        f"rollout_seq in {SEQS}",
    ),
    "rewards": Table(
        ", ".join(REWARD_COLUMNS).replace("decision_id", "nullif(decision_id, '') as decision_id"),
        "rewards",
        "rollout_id, seq",
        "seq",
        f"rollout_id in (select rollout_id from rollouts where seq in {SEQS})",
    ),
    "policies": Table(
        """
        version, point, parent, algorithm, sha256, file, rollouts, metadata as json_metadata
        """,
        "policies",
        "version",
    ),
    "updates": Table(
        """
        number as "update", point, executed, skipped_reason, version, parent, first_ready,
        last_ready, trajectories, samples, report as json_report
        """,
        "updates",
        "number",
    ),
    "resources": Table("name, version, content as json_content", "resources", "name, version"),
}
"""The tables and views in the order of the export; a rollout's rows come as they arrived.

Left out is whatever depends on a clock, a process or a machine: owners, workers, the times at which
policies, updates and resources were made, and the durations in reports.
"""

RECORDED = Table(
    """
    rollout_id, attempt, span_id, parent_span_id, kind, recorded_spans.name,
    recorded_spans.status, attributes as json_attributes, recorded_spans.started_at,
    recorded_spans.ended_at
    """,
    "recorded_spans join rollouts on rollouts.seq = rollout_seq",
    "rollout_seq, recorded_spans.seq",
    "recorded_spans.seq",
    f"rollout_seq in {SEQS}",
)

OWNED: Mapping[str, Table] = {
    name: RECORDED if name == "spans" else TABLES[name]
    for name in ("rollouts", "attempts", "spans", "decisions", "rewards")
}
"""The tables of an archive: what rollouts own, of spans only those that are recorded."""

CLOCKED = ("duration", "wall")


def export_rows(connection: Connection) -> Iterator[ExportRow]:
    """Yield every row of every table, from one state of the store.

    Through a connection of its own: nothing else done with the store meanwhile becomes part of the
    long read, or is undone with it.
    """
    with closing(connection.another()) as reader, reader.reading():
        for table, source in TABLES.items():
            sql = f"select {source.columns} from {source.source} order by {source.order}"
            for row in reader.stream(sql):
                public = _public(row)
                if table == "updates":
                    public["report"] = _timeless(public["report"])
                yield {"table": table, **public}


def column_batches(
    connection: Connection, table: str, *, size: int
) -> Iterator[Mapping[str, Sequence[object]]]:
    """Yield the columns of an exported table, some rows at a time; JSON stays text.

    The first batch is there even if it is empty. All are from one state of the store.
    """
    source = TABLES[table]
    sql = f"select {source.columns} from {source.source} order by {source.order}"
    with closing(connection.another()) as reader, reader.reading():
        for columns in reader.column_blocks(sql, size=size):
            yield {
                name.removeprefix("json_"): column
                for name, column in columns.items()
                if not name.startswith("order_")
            }


def archive_rows(connection: Connection, seqs: Sequence[int]) -> Rows:
    """Return all rows of some rollouts, each with its number."""
    return [
        row
        for name, table in OWNED.items()
        for row in _numbered_rows(connection, name, table.owned, seqs)
    ]


def archived_rewards(connection: Connection, seqs: Sequence[int]) -> Rows:
    """Return some rewards, whose rollouts never came, each with its number."""
    return list(_numbered_rows(connection, "rewards", f"seq in {SEQS}", seqs))


def _numbered_rows(
    connection: Connection, name: str, condition: str, seqs: Sequence[int]
) -> Iterator[ExportRow]:
    table = OWNED[name]
    number = f"{table.seq} as seq, " if table.seq else ""
    for row in connection.rows(
        f"select {number}{table.columns} from {table.source} where {condition} "
        f"order by {table.order}",
        {"seqs": json_of(seqs)},
    ):
        yield {"table": name, **_public(row)}


def _public(row: Row) -> dict[str, object]:
    public: dict[str, object] = {}
    for name in row.keys():  # noqa: SIM118  (a row iterates over its values)
        value = row[name]
        if name.startswith("order_"):
            continue
        if name.startswith("json_"):
            public[name.removeprefix("json_")] = None if value is None else _plain(value)
        elif isinstance(value, bytes):
            public[name] = b64encode(value).decode()
        elif isinstance(value, float) and not isfinite(value):
            public[name] = None  # JSON has no such number
        else:
            public[name] = value
    if "executed" in public:
        public["executed"] = bool(public["executed"])
    return public


def _plain(text: str | bytes) -> object:
    """Return the data that JSON text holds; text that is none as it is, so that it is kept."""
    try:
        decoded: object = msgspec.json.decode(text)
    except ValueError:
        return text if isinstance(text, str) else b64encode(text).decode()
    return decoded


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if not key.startswith(CLOCKED)}
    if isinstance(value, list):
        return [_timeless(item) for item in value]
    return value
