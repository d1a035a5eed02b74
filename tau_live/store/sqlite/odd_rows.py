"""Odd rows: those that hold what no version of tau-live writes.

Every row is held to the schema (types, no infinite and no negative number) and read as a record.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Literal, NamedTuple

import msgspec

from tau_live.core.errors import OddRowError
from tau_live.core.gate import GateEntry, GateRow, State
from tau_live.core.reasons import Pause
from tau_live.core.records import (
    AuditEntry,
    Finite,
    InService,
    Natural,
    PolicyVersion,
    Resource,
    RolloutStatus,
    Share,
    Trial,
    Update,
    Worker,
)
from tau_live.store.records import AlertRow, OddRows
from tau_live.store.sql.connection import Row
from tau_live.store.sql.policies import monitor_of
from tau_live.store.sql.rewards import GIVEN
from tau_live.store.sql.rows import (
    ATTEMPT_FIELDS,
    DECISION,
    attempt_of,
    decision_of,
    odd_row,
    record_of,
    reward_of,
    rollout_of,
    span_of,
)
from tau_live.store.sqlite.connection import SqliteConnection
from tau_live.store.sqlite.schema import WHOLE_SCHEMA

KINDS = {"INTEGER": Natural, "REAL": Finite, "TEXT": str, "BLOB": bytes}
"""What a column may hold, by its type."""

NARROWER = {
    ("gate", "state"): State,
    ("gate_log", "state"): State,
    ("arms", "arm"): Literal["learner", "control"],
    ("arms", "share"): Share,
    ("arms", "agreed"): Literal[0, 1] | None,
    ("decisions", "propensity"): Share | None,
    ("alerts", "severity"): Literal["critical", "warning", "info"],
    ("status_counts", "status"): RolloutStatus,
}
"""What a column may hold, where that is less than its type allows."""

CONTRADICTIONS: Sequence[tuple[str, str, str, str]] = (
    (
        "updates",
        "last_ready",
        "it is beyond every rollout that became ready",
        f"select number from updates where last_ready > {GIVEN}",
    ),
    (
        "monitors",
        "watermark",
        "it is beyond every rollout that became ready",
        f"select point from monitors where watermark > {GIVEN}",
    ),
    (
        "ready_points",
        "ready_seq",
        "the rollout has another one, or none",
        """
        select rollout_seq || ' ' || point from ready_points
        left join rollouts on seq = rollout_seq
        where rollouts.ready_seq is not ready_points.ready_seq
        """,
    ),
    (
        "rollouts",
        "total_reward",
        "it is unknown, although the rollout became ready",
        "select rollout_id from rollouts where ready_seq is not null and total_reward is null",
    ),
    (
        "policies",
        "parent",
        "it is not before the version",
        "select version from policies where parent >= version",
    ),
    (
        "in_service",
        "version",
        "there is no such version of the point",
        """
        select point from in_service where version > 0 and not exists (
            select 1 from policies
            where policies.version = in_service.version and policies.point = in_service.point
        )
        """,
    ),
)
"""Tables and columns with what is wrong there, and the query for the keys of such rows."""

ORPHANS = 'select "table", rowid, parent from pragma_foreign_key_check'


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        kind: A class with a field for each of them.
        key: Those that identify its rows.
    """

    kind: type[msgspec.Struct]
    key: list[str]


def odd_rows(connection: SqliteConnection, *, deadline: float, most: int) -> OddRows:
    """Return the odd rows of a store.

    Args:
        connection: A connection.
        deadline: Seconds of the monotonic clock at which to give up.
        most: How many rows of a table are returned; the others are counted.
    """
    rows: list[OddRowError] = []
    counts: Counter[str] = Counter()
    complete = False
    with connection.ending_at(deadline):
        for odd in _search(connection):
            if time.monotonic() > deadline:
                break
            if odd is not None:
                counts[odd.table] += 1
                if counts[odd.table] <= most:
                    rows.append(odd)
        else:
            complete = True
    return OddRows(rows, counts, complete)


def _search(connection: SqliteConnection) -> Iterator[OddRowError | None]:
    """Yield what is odd about each row, or ``None``."""
    sizes = {
        table: connection.count(f'select count(*) from (select 1 from "{table}" limit 10000)')
        for table in _tables()
    }
    for table in sorted(sizes, key=lambda table: (sizes[table], table)):  # the small ones first
        columns = _tables()[table]
        names = DECISION if table == "decisions" else "*"
        order = ", ".join(f'"{name}" desc' for name in columns.key)
        for row in connection.stream(f'select {names} from "{table}" order by {order}'):
            try:
                _check(table, columns, row)
                yield None
            except OddRowError as error:
                names_of = ("rollout_id",) if table == "rollouts" else columns.key
                key = " ".join(str(row[name]) for name in names_of)
                yield OddRowError(table, key, column=error.column, problem=error.problem)
    for table, column, problem, sql in CONTRADICTIONS:
        for row in connection.stream(sql):
            yield OddRowError(table, str(row[0]), column=column, problem=problem)
    for row in connection.stream(ORPHANS):
        problem = f"it belongs to no row of {row['parent']}"
        key = "?" if row["rowid"] is None else f"#{row['rowid']}"
        yield OddRowError(row["table"], key, column="", problem=problem)


def _check(table: str, columns: Columns, row: Row) -> None:
    """Check a row. Raises: OddRowError."""
    try:
        msgspec.convert(dict(row), columns.kind, strict=True)
    except msgspec.ValidationError as error:
        raise odd_row(table, "", error) from error
    read = READERS.get(table)
    if read is not None:
        read(row)


def _attempt_of(row: Row) -> object:
    return attempt_of([row[name] for name in ATTEMPT_FIELDS], "")


def _trial_of(row: Row) -> object:
    from tau_live.rl.verdict import Evidence  # imports numpy

    trial = record_of(Trial, row)
    try:
        return Evidence.from_numbers(trial.evidence) if trial.evidence else trial
    except ValueError as error:
        raise odd_row("trials", trial.point, error, column="evidence") from error


READERS: Mapping[str, Callable[[Row], object]] = {
    "rollouts": rollout_of,
    "attempts": _attempt_of,
    "recorded_spans": partial(span_of, rollout_id=""),
    "decisions": partial(decision_of, rollout_id=""),
    "rewards": reward_of,
    "policies": partial(record_of, PolicyVersion),
    "in_service": partial(record_of, InService),
    "trials": _trial_of,
    "updates": lambda row: record_of(Update, row, update=row["number"]),
    "monitors": monitor_of,
    "gate": partial(record_of, GateRow),
    "gate_log": partial(record_of, GateEntry),
    "pauses": partial(record_of, Pause),
    "alerts": partial(record_of, AlertRow),
    "audit": partial(record_of, AuditEntry),
    "workers": partial(record_of, Worker),
    "resources": partial(record_of, Resource),
}
"""The readers of rows by table; the columns of other tables are used as they are."""


@cache
def _tables() -> Mapping[str, Columns]:
    """Return the columns of each table of the schema."""
    with closing(sqlite3.connect(":memory:")) as raw:
        for statement in WHOLE_SCHEMA:
            raw.execute(statement)
        tables = raw.execute("select name from sqlite_master where type = 'table'").fetchall()
        return {
            table: _columns(table, raw.execute(f'pragma table_info("{table}")').fetchall())
            for (table,) in tables
            if not table.startswith("sqlite_")
        }


def _columns(table: str, info: list[tuple[int, str, str, int, object, int]]) -> Columns:
    fields = [
        (name, NARROWER.get((table, name)) or (kind if is_needed or place else kind | None))
        for _, name, type_, is_needed, _, place in info
        for kind in (KINDS[type_],)
    ]
    key = [name for _, name, *_, place in info if place]
    return Columns(msgspec.defstruct("Row", fields, kw_only=True), key)
