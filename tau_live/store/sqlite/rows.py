"""Conversion between rows of the SQLite store and records."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from sqlite3 import Row
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from tau_live.core.errors import StoreError
from tau_live.core.records import (
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Shadowed,
    Span,
)
from tau_live.store.sqlite.connection import Value, json_of, mapping_of

INSERT_ROLLOUT = """
insert into rollouts (
    rollout_id, host, run_id, session_id, parent_id, name, status, mode, reason, error_type, input,
    max_attempts, retry_on, timeout_s, unresponsive_s, metadata, owner, worker_id, attempt_count,
    started_at, ended_at, ready_seq, total_reward, run_reward, left_out, enqueued
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_id) do nothing
"""

ATTEMPT = """
attempts.number, attempts.status, attempts.execution, attempts.worker_id, attempts.started_at,
attempts.last_heartbeat_at, attempts.ended_at, attempts.error_message
"""
"""The columns that ``attempt_of`` reads, in order."""

_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_NUMBERS = msgspec.json.Decoder(tuple[float, ...])
_STATUSES = msgspec.json.Decoder(tuple[AttemptStatus, ...])

DECISION_JSON: Mapping[str, Callable[[str], object]] = {
    "options": _TEXTS.decode,
    "allowed": _TEXTS.decode,
    "exploit_only": _TEXTS.decode,
    "probabilities": _NUMBERS.decode,
    "context": mapping_of,
    "features": mapping_of,
}
"""The fields of a decision that are stored as JSON text, and the readers of that text."""

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
        *("evidence", "tally", "finding", "report", "metadata", "numbers", "resources", "facts"),
        *("streaks", "details"),
    }
)
"""The columns of records that hold JSON."""

T = TypeVar("T")


def record_of(kind: type[T], row: Row | dict[str, Any], **others: object) -> T:
    """Return the record in a row, whose columns are named as its fields.

    Args:
        kind: The class of the record.
        row: A row of a table; columns that are not fields are ignored.
        others: Fields that are not columns, or differ from theirs.

    Raises:
        StoreError: A field has a value that no version of tau-live writes.
    """
    try:
        columns = {
            name: msgspec.json.decode(value) if name in _OPEN_ENDED else value
            for name, value in dict(row).items()
        }
        return msgspec.convert({**columns, **others}, kind, strict=False)  # booleans are numbers
    except ValueError as error:
        raise _invalid(f"a row of {kind.__name__}", error) from error


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
    enqueued: bool = False,
    left_out: str | None = None,
) -> Sequence[Value]:
    """Return the parameters of ``INSERT_ROLLOUT``.

    Args:
        rollout: The rollout.
        input_: Its input, as JSON text.
        metadata: Its metadata, as JSON text.
        enqueued: Whether it waits in the queue.
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
        enqueued,
    )


def rollout_of(row: Row) -> Rollout:
    """Return the rollout in a row of ``rollouts``.

    Raises:
        StoreError: A field has a value that no version of tau-live writes.
    """
    try:
        return Rollout(
            rollout_id=row["rollout_id"],
            host=row["host"],
            run_id=row["run_id"],
            session_id=row["session_id"],
            parent_id=row["parent_id"],
            name=row["name"],
            status=RolloutStatus(row["status"]),
            mode=None if row["mode"] is None else RolloutMode(row["mode"]),
            reason=None if row["reason"] is None else Reason(row["reason"]),
            error_type=row["error_type"],
            input=None if row["input"] is None else msgspec.json.decode(row["input"]),
            config=RolloutConfig(
                max_attempts=row["max_attempts"],
                retry_on=_STATUSES.decode(row["retry_on"]),
                timeout_s=row["timeout_s"],
                unresponsive_s=row["unresponsive_s"],
            ),
            metadata=mapping_of(row["metadata"]),
            owner=row["owner"],
            worker_id=row["worker_id"],
            attempt_count=row["attempt_count"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            seq=row["seq"],
            ready_seq=row["ready_seq"],
            total_reward=row["total_reward"],
            run_reward=row["run_reward"],
        )
    except ValueError as error:  # also what msgspec raises
        raise _invalid(f"rollout '{row['rollout_id']}'", error) from error


def attempt_of(values: Sequence[Any], rollout_id: str) -> Attempt:
    """Return the attempt in a row of ``ATTEMPT``. Raises: StoreError."""
    number, status, execution, worker_id, started_at, heartbeat_at, ended_at, error = values
    try:
        return Attempt(
            rollout_id=rollout_id,
            number=number,
            status=AttemptStatus(status),
            execution=execution,
            worker_id=worker_id,
            started_at=started_at,
            last_heartbeat_at=heartbeat_at,
            ended_at=ended_at,
            error_message=error,
        )
    except ValueError as error:
        raise _invalid(f"an attempt of rollout '{rollout_id}'", error) from error


def span_of(row: Row, rollout_id: str) -> Span:
    """Return the span in a row of ``spans``. Raises: StoreError."""
    try:
        return Span(
            rollout_id=rollout_id,
            attempt=row["attempt"],
            span_id=row["span_id"],
            parent_span_id=row["parent_span_id"],
            kind=row["kind"],
            name=row["name"],
            status=row["status"],
            attributes=mapping_of(row["attributes"]),
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            seq=row["seq"],
        )
    except ValueError as error:
        raise _invalid(f"a span of rollout '{rollout_id}'", error) from error


def values_of_span(span: Span, rollout_seq: int, *, attributes: str, ends: int) -> Sequence[Value]:
    """Return the parameters of ``INSERT_SPAN``."""
    return (
        rollout_seq,
        span.attempt,
        span.span_id,
        span.parent_span_id,
        span.kind,
        span.name,
        span.status,
        attributes,
        span.started_at,
        span.ended_at,
        ends,
    )


def values_of_decision(decision: Decision, rollout_seq: int) -> Sequence[Value]:
    """Return the parameters of ``INSERT_DECISION``."""
    values = [rollout_seq, *_columns_of_decision(decision)]
    for place in _JSON_PLACES:
        if values[place] is not None:
            values[place] = json_of(values[place])
    return values


def decision_of(row: Row, rollout_id: str) -> Decision:
    """Return the decision in a row of ``DECISION``. Raises: StoreError."""
    fields = dict(zip(_ROW_OF_DECISION, row, strict=True), rollout_id=rollout_id)
    try:
        for name, read in DECISION_JSON.items():
            if fields[name] is not None:
                fields[name] = read(fields[name])
        return Decision(**fields)
    except ValueError as error:
        raise _invalid(f"a decision of rollout '{rollout_id}'", error) from error


def shadowed_of(row: Row) -> Shadowed:
    """Return the decision in shadow in a row of ``decisions``. Raises: StoreError."""
    try:
        return Shadowed(
            _TEXTS.decode(row["options"]),
            row["applied"],
            _NUMBERS.decode(row["probabilities"]),
        )
    except ValueError as error:
        raise _invalid("a decision in shadow", error) from error


def values_of_reward(reward: Reward) -> Sequence[Value]:
    """Return the parameters of ``INSERT_REWARD``."""
    rollout_id, decision_id, *others = _columns_of_reward(reward)
    return rollout_id, decision_id or "", *others


def reward_of(row: Row) -> Reward:
    """Return the reward in a row of ``rewards``."""
    return Reward(**dict(row, decision_id=row["decision_id"] or None))


def _invalid(what: str, error: ValueError) -> StoreError:
    return StoreError(f"invalid persisted value for {what}: {error}")
