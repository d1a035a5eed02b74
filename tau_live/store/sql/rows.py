"""Conversion between rows of the SQLite store and records."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from tau_live.core.errors import OddRowError
from tau_live.core.gate import GateEntry, GateRow
from tau_live.core.guard import logger
from tau_live.core.reasons import Pause
from tau_live.core.records import (
    Assigned,
    Attempt,
    AuditEntry,
    Decision,
    InService,
    Monitor,
    PolicyVersion,
    Resource,
    Reward,
    Rollout,
    RolloutConfig,
    Shadowed,
    Span,
    Trial,
    Update,
    Worker,
)
from tau_live.store.records import AlertRow, Candidate, Optimization
from tau_live.store.sql.connection import Connection, Row, Value, json_of

INSERT_ROLLOUT = """
insert into rollouts (
    rollout_id, host, run_id, session_id, parent_id, name, status, mode, reason, error_type, input,
    max_attempts, retry_on, timeout_s, unresponsive_s, metadata, owner, worker_id, attempt_count,
    started_at, ended_at, ready_seq, total_reward, run_reward, left_out, queue, output, resources,
    backoff_s
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_id) do nothing
"""

ATTEMPT = """
attempts.number, attempts.status, attempts.execution, attempts.worker_id, attempts.started_at,
attempts.last_heartbeat_at, attempts.ended_at, attempts.error_message, attempts.owner
"""
"""The columns that ``attempt_of`` reads, in order."""

ROLLOUT_JSON = ("input", "output", "metadata", "resources")
"""The fields of a rollout that are stored as JSON text."""

ATTEMPT_FIELDS = [name for name in Attempt.__struct_fields__ if name != "rollout_id"]

DECISION_JSON = ("options", "allowed", "exploit_only", "probabilities", "context", "features")
"""The fields of a decision that are stored as JSON text."""

_MASKS = ("allowed", "exploit_only")
_FIELDS = [
    name for name in Decision.__struct_fields__ if name not in {"rollout_id", "seq", *_MASKS}
]
_MASKED = _FIELDS.index("options") + 1

DECISION_COLUMNS: Mapping[str, str] = {
    name: "default_option" if name == "default" else name
    for name in (*_FIELDS[:_MASKED], *_MASKS, *_FIELDS[_MASKED:])
}
"""The columns of a decision by the names of its fields, in the order of an export."""

_COLUMNS = ", ".join(DECISION_COLUMNS.values())

INSERT_DECISION = f"""
insert into decisions (rollout_seq, {_COLUMNS}) values (?{", ?" * len(DECISION_COLUMNS)})
on conflict (rollout_seq, attempt, ordinal) do nothing
"""

DECISION = f"rollout_seq, {_COLUMNS}, seq"
"""The columns that ``decision_of`` reads, in order."""

_ROW_OF_DECISION = ("rollout_id", *DECISION_COLUMNS, "seq")
_columns_of_decision = attrgetter(*DECISION_COLUMNS)
_JSON_PLACES = [1 + place for place, name in enumerate(DECISION_COLUMNS) if name in DECISION_JSON]

REWARD_COLUMNS = tuple(name for name in Reward.__struct_fields__ if name != "seq")
"""The columns of a reward, which are named as its fields."""

INSERT_REWARD = f"""
insert into rewards ({", ".join(REWARD_COLUMNS)}) values (?{", ?" * (len(REWARD_COLUMNS) - 1)})
"""

_columns_of_reward = attrgetter(*REWARD_COLUMNS)

_OPEN_ENDED = frozenset(
    {
        *("evidence", "tally", "finding", "report", "metadata", "numbers", "facts"),
        *("streaks", "details", "stats", "content", "config", "control", "resources"),
    }
)
"""The columns of records that hold JSON."""

TABLES: Mapping[type, tuple[str, str]] = {
    Rollout: ("rollouts", "rollout_id"),
    RolloutConfig: ("rollouts", "rollout_id"),
    Attempt: ("attempts", "number"),
    Span: ("spans", "seq"),
    Decision: ("decisions", "seq"),
    Shadowed: ("decisions", "seq"),
    Reward: ("rewards", "seq"),
    PolicyVersion: ("policies", "version"),
    InService: ("in_service", "point"),
    Trial: ("trials", "point"),
    Update: ("updates", "number"),
    Monitor: ("monitors", "point"),
    GateRow: ("gate", "id"),
    GateEntry: ("gate_log", "seq"),
    Pause: ("pauses", "part"),
    AlertRow: ("alerts", "seq"),
    AuditEntry: ("audit", "seq"),
    Worker: ("workers", "worker_id"),
    Resource: ("resources", "version"),
    Assigned: ("arms", "place"),
    Optimization: ("optimizations", "run_id"),
    Candidate: ("candidates", "label"),
}
"""The table of each record, and the column that identifies its rows."""

_FIELD = re.compile(r"`\$\.(\w+)|^(\w+) must ")
"""Finds the field in the message of an error."""

T = TypeVar("T")


def record_of(kind: type[T], row: Row | dict[str, Any], **others: object) -> T:
    """Return the record in a row, whose columns are named as its fields.

    Args:
        kind: The class of the record.
        row: A row of a table; columns that are not fields are ignored.
        others: Fields that are not columns, or differ from theirs.

    Raises:
        OddRowError: A field has a value that no version of tau-live writes.
    """
    fields = {**dict(row), **others}
    texts = [name for name in fields if name in _OPEN_ENDED and name not in others]
    return _record(kind, fields, texts, key=fields.get(TABLES[kind][1]))


def _record(
    kind: type[T],
    fields: dict[str, Any],
    texts: Iterable[str],
    *,
    key: object,
    strict: bool = False,
) -> T:
    """Return a record; the one place where the values of a row are checked.

    Args:
        kind: The class of the record.
        fields: Its fields; others are ignored.
        texts: The fields that are JSON text.
        key: The key of the row.
        strict: Whether numbers are refused as booleans, and texts as numbers.

    Raises:
        OddRowError: A field has a value that no version of tau-live writes.
    """
    name = ""
    try:
        for name in texts:
            if fields[name] is not None:
                fields[name] = msgspec.json.decode(fields[name])
        name = ""
        return msgspec.convert(fields, kind, strict=strict)
    except (ValueError, TypeError) as error:  # also what msgspec raises
        raise odd_row(TABLES[kind][0], key, error, column=name) from error


def columns_of_row(kind: type[T], table: str, row: Iterable[object], *, key: object = None) -> T:
    """Return the columns of a row as a tuple that names them; the key is the first, unless given.

    Raises:
        OddRowError: One has a value that no version of tau-live writes.
    """
    values = tuple(row)
    try:
        return msgspec.convert(values, kind, strict=False)  # booleans are numbers
    except msgspec.ValidationError as error:
        raise odd_row(table, values[0] if key is None else key, error) from error


def odd_row(table: str, key: object, error: Exception, *, column: str = "") -> OddRowError:
    """Return the error for a row of which no record can be made."""
    problem = str(error)
    match = _FIELD.search(problem)
    return OddRowError(
        table,
        str(key)[:200],
        column=column or (match[1] or match[2] if match else ""),
        problem=problem[:200],
    )


def sound(rows: Iterable[Row], read: Callable[[Row], T]) -> list[T]:
    """Return the records of those rows that are sound; odd ones are reported and left out."""
    records = []
    for row in rows:
        try:
            records.append(read(row))
        except OddRowError as error:
            report(error)
    return records


def sound_page(
    connection: Connection,
    sql: str,
    parameters: Mapping[str, Value],
    read: Callable[[Row], T],
    *,
    limit: int | None,
) -> list[T]:
    """Return the records of the first ``limit`` sound rows that a query finds; ``None`` is all."""
    records: list[T] = []
    passed = 0
    while True:
        most = -1 if limit is None else limit - len(records)
        page = {**parameters, "limit": most, "offset": passed}
        rows = connection.rows(f"{sql} limit :limit offset :offset", page)
        records += sound(rows, read)
        passed += len(rows)
        if len(rows) < most or most == -1 or len(records) == limit:
            return records


def report(error: OddRowError) -> None:
    """Log an odd row that is not used, once in the life of a process."""
    warn_once(error.table, error.key, error.column, error.problem)


@lru_cache(maxsize=1_000)
def warn_once(table: str, key: str, column: str, problem: str) -> None:
    """Log an odd row, unless that was done before."""
    logger().warning(
        "odd_row_skipped",
        table=table,
        key=key,
        column=column,
        problem=problem,
        todo="`tau-live doctor` lists odd rows",
    )


def columns_of(record: msgspec.Struct) -> dict[str, Value]:
    """Return the columns of a record by their names."""
    return {
        name: json_of(value) if name in _OPEN_ENDED else value
        for name, value in structs.asdict(record).items()
    }


def values_of_rollout(
    rollout: Rollout,
    *,
    input_: str | None,
    metadata: str,
    output: str | None = None,
    left_out: str | None = None,
) -> Sequence[Value]:
    """Return the parameters of ``INSERT_ROLLOUT``.

    Args:
        rollout: The rollout.
        input_: Its input, as JSON text.
        metadata: Its metadata, as JSON text.
        output: Its output, as JSON text.
        left_out: Why it is left out of learning.
    """
    config = rollout.config
    return (
        rollout.rollout_id,
        rollout.host,
        rollout.run_id,
        rollout.session_id,
        rollout.parent_id,
        rollout.name,
        rollout.status,
        rollout.mode,
        rollout.reason,
        rollout.error_type,
        input_,
        config.max_attempts,
        json_of(config.retry_on),
        config.timeout_s,
        config.unresponsive_s,
        metadata,
        rollout.owner,
        rollout.worker_id,
        rollout.attempt_count,
        rollout.started_at,
        rollout.ended_at,
        rollout.ready_seq,
        rollout.total_reward,
        rollout.run_reward,
        left_out,
        rollout.queue,
        output,
        json_of(rollout.resources),
        config.backoff_s,
    )


def rollout_of(row: Row) -> Rollout:
    """Return the rollout in a row of ``rollouts``. Raises: OddRowError."""
    fields = _fields_of(row)
    key = fields["rollout_id"]
    try:
        fields["config"] = _config_of(*[fields[name] for name in RolloutConfig.__struct_fields__])
    except OddRowError as error:
        raise OddRowError(
            error.table, str(key)[:200], column=error.column, problem=error.problem
        ) from error
    return _record(Rollout, fields, ROLLOUT_JSON, key=key, strict=True)


@lru_cache(maxsize=256)  # most rollouts have the same
def _config_of(*values: object) -> RolloutConfig:
    fields = dict(zip(RolloutConfig.__struct_fields__, values, strict=True))
    return _record(RolloutConfig, fields, ("retry_on",), key="", strict=True)


def _fields_of(row: Row) -> dict[str, Any]:
    """Return the columns of a row by name, of two with one name the first.

    ``dict(row)`` searches each name anew, which takes three times as long.
    """
    return dict(zip(reversed(row.keys()), reversed(tuple(row)), strict=True))


def attempt_of(values: Iterable[Any], rollout_id: str) -> Attempt:
    """Return the attempt in a row of ``ATTEMPT``. Raises: OddRowError."""
    fields = dict(zip(ATTEMPT_FIELDS, values, strict=True), rollout_id=rollout_id)
    key = f"{rollout_id} {fields['number']}"
    return _record(Attempt, fields, (), key=key, strict=True)


def assigned_of(row: Row) -> Assigned:
    """Return the assignment in a row of ``arms`` with its rollout. Raises: OddRowError."""
    fields = {**_fields_of(row), "rollout": rollout_of(row), "version": row["decided_by"]}
    return _record(Assigned, fields, (), key=row["place"])


def span_of(row: Row, rollout_id: str) -> Span:
    """Return the span in a row of ``spans``. Raises: OddRowError."""
    fields = {**_fields_of(row), "rollout_id": rollout_id}
    key = row["seq"] or row["span_id"]
    return _record(Span, fields, ("attributes",), key=key, strict=True)


def values_of_decision(decision: Decision, rollout_seq: int) -> Sequence[Value]:
    """Return the parameters of ``INSERT_DECISION``."""
    values = [rollout_seq, *_columns_of_decision(decision)]
    for place in _JSON_PLACES:
        if values[place] is not None:
            values[place] = json_of(values[place])
    return values


def decision_of(row: Row, rollout_id: str) -> Decision:
    """Return the decision in a row of ``DECISION``. Raises: OddRowError."""
    fields = dict(zip(_ROW_OF_DECISION, row, strict=True), rollout_id=rollout_id)
    return _record(Decision, fields, DECISION_JSON, key=fields["seq"], strict=True)


def shadowed_of(row: Row) -> Shadowed:
    """Return the decision in shadow in a row of ``decisions``. Raises: OddRowError."""
    return _record(Shadowed, dict(row), ("options", "probabilities"), key=row["seq"], strict=True)


def values_of_reward(reward: Reward) -> Sequence[Value]:
    """Return the parameters of ``INSERT_REWARD``."""
    rollout_id, decision_id, *others = _columns_of_reward(reward)
    return rollout_id, decision_id or "", *others


def reward_of(row: Row) -> Reward:
    """Return the reward in a row of ``rewards``. Raises: OddRowError."""
    fields = _fields_of(row)
    fields["decision_id"] = fields["decision_id"] or None
    return _record(Reward, fields, (), key=row["seq"], strict=True)
