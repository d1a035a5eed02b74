"""Queries: for records of any kind by their fields, for rollouts by filter, for a report."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from tau_live.core.records import (
    Attempt,
    Resource,
    Rollout,
    RolloutConfig,
    RolloutQuery,
    Span,
    Worker,
)
from tau_live.core.settings.kinds import nearest
from tau_live.store.records import ORDERS, Assignment, Choice, Condition, RolloutColumns
from tau_live.store.sql.connection import Connection, Members, Row, Value, json_of
from tau_live.store.sql.rows import (
    ATTEMPT,
    attempt_of,
    columns_of_row,
    record_of,
    rollout_of,
    sound,
    span_of,
)

T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """A page of records, and how many match in all."""

    records: list[T]
    total: int


class Source(NamedTuple):
    """Where the records of one kind are stored.

    Attributes:
        columns: The columns that ``read`` needs.
        tables: The table, or a join of tables.
        columns_of: The column of each field that a condition may name.
        json_columns: The column of each field with JSON data, of which it may name a member.
        order: The columns that order records which no other order distinguishes.
        read: Returns the record in a row.
    """

    columns: str
    tables: str
    columns_of: Mapping[str, str]
    json_columns: Mapping[str, str]
    order: Sequence[str]
    read: Callable[[Row], Any]


class Term(NamedTuple):
    """A condition on one field: its SQL, and the values that are bound in it."""

    sql: str
    values: Sequence[Value] = ()


def _source(
    kind: type[Any], table: str, *, order: str, json: str, read: Callable[[Row], Any],
    columns: str = "",
) -> Source:  # fmt: skip
    left_out = {*json.split(), "config"}
    fields = [name for name in kind.__struct_fields__ if name not in left_out]
    names = {name: f"{table}.{name}" for name in fields}
    tables = table
    if table == "attempts":
        tables += " join rollouts on rollouts.seq = attempts.rollout_seq"
        names["rollout_id"] = "rollouts.rollout_id"
    if kind is Rollout:
        names |= {f"config.{name}": f"{table}.{name}" for name in RolloutConfig.__struct_fields__}
    ordered = [f"{table}.{name}" for name in order.split()]
    in_json = {name: f"{table}.{name}" for name in json.split()}
    return Source(columns or f"{table}.*", tables, names, in_json, ordered, read)


SOURCES: Mapping[type[Any], Source] = {
    Rollout: _source(
        Rollout, "rollouts", order="seq", read=rollout_of,
        json="input output resources metadata",
    ),
    Attempt: _source(
        Attempt, "attempts", order="rollout_seq number", json="",
        columns=f"{ATTEMPT}, rollouts.rollout_id", read=lambda row: attempt_of(row[:-1], row[-1]),
    ),
    Span: _source(
        Span, "spans", order="rollout_seq attempt seq ordinal", json="attributes",
        read=lambda row: span_of(row, row["rollout_id"]),
    ),
    Worker: _source(
        Worker, "workers", order="registered_at worker_id", json="stats",
        read=lambda row: record_of(Worker, row),
    ),
    Resource: _source(
        Resource, "resources", order="created_at name version", json="content",
        read=lambda row: record_of(Resource, row),
    ),
}  # fmt: skip
"""The kinds of records that ``find`` finds."""


DEEPEST = 8
"""The most objects, each in the one before, in which a member is searched."""

TESTS: Mapping[str, str] = {
    "is": "{} is ?",
    "in": "{} in (select value from json_each(?))",
    "contains": "instr({}, ?) > 0",
    "from": "{} >= ?",
    "before": "{} < ?",
}


def find(  # noqa: PLR0913  # as the store's
    connection: Connection,
    kind: type[T],
    where: Sequence[Condition],
    *,
    any_of: Sequence[Condition] | None,
    order_by: str | None,
    descending: bool,
    limit: int | None,
    offset: int,
) -> Found[T]:
    """Return the records of a kind; see ``Store.find``."""
    if kind not in SOURCES:
        known = ", ".join(known.__name__ for known in SOURCES)
        raise ValueError(f"kind must be one of {known}, got {kind!r}")
    if offset < 0 or (limit is not None and limit < 0):
        raise ValueError(f"limit and offset must be at least 0, got {limit!r} and {offset!r}")
    source, members = SOURCES[kind], connection.members
    tests = [_test_of(source, condition, members) for condition in where]
    if any_of is not None:
        some = [_test_of(source, condition, members) for condition in any_of]
        either = " or ".join(test.sql for test in some)
        tests.append(Term(f"({either or 'false'})", _values_of(some)))
    suffix = " desc" if descending else ""
    order = [Term(f"{column}{suffix}") for column in source.order]
    if order_by is not None:
        first = _term_of(source, order_by, members)
        nulls = "last" if descending else "first"
        sql = f"{first.sql}{suffix} nulls {nulls}"
        order = [Term(sql, first.values), *map(Term, source.order)]
    all_of = " and ".join(test.sql for test in tests)
    body = f"from {source.tables}{' where ' if all_of else ''}{all_of}"
    ordered = ", ".join(term.sql for term in order)
    with connection.reading():
        rows = connection.rows(
            f"select {source.columns} {body} order by {ordered} limit ? offset ?",
            [*_values_of(tests), *_values_of(order), -1 if limit is None else limit, offset],
        )
        if kind is Span:  # with a limit SQLite searches the tables of a view by their indexes
            body = f"from (select 1 {body} limit -1) as found"
        total = connection.count(f"select count(*) {body}", _values_of(tests))
    return Found(sound(rows, source.read), total)


def _values_of(terms: Sequence[Term]) -> list[Value]:
    return [value for term in terms for value in term.values]


def _test_of(source: Source, condition: Condition, members: Members) -> Term:
    if condition.test not in TESTS:
        raise ValueError(f"test must be one of {', '.join(TESTS)}, got {condition.test!r}")
    term = _term_of(source, condition.field, members)
    is_member = condition.field not in source.columns_of
    tests = members.tests if is_member else TESTS
    value = cast("Value", condition.value)
    if condition.test == "in":
        value = json_of(condition.value)
    elif is_member and condition.test != "contains":
        value = members.bound(value)
    return Term(tests[condition.test].format(term.sql), [*term.values, value])


def _term_of(source: Source, field: str, members: Members) -> Term:
    """Return the column of a field, or the value of a member of its JSON data."""
    if field in source.columns_of:
        return Term(source.columns_of[field])
    name, _, member = field.partition(".")
    if name in source.json_columns and member:
        return _member_of(source.json_columns[name], member, members)
    names = {known: known for known in source.columns_of}
    names |= {known: f"{known}.MEMBER" for known in source.json_columns}
    near = nearest(field, names) or nearest(name, names)
    hint = "" if near is None else f", did you mean {names[near]!r}?"
    raise ValueError(f"field must be one of {', '.join(names.values())}, got {field!r}{hint}")


def _member_of(column: str, member: str, members: Members) -> Term:
    """Return the value of a member, whose name is bound: in a JSON path it would need quotes.

    How such a path quotes a name depends on SQLite's version. A name with dots is that of a member,
    as OpenTelemetry has them, or else of a member of a member.
    """
    data = members.data.format(column)
    whole, names = members.member.format(data), member.split(".")
    if not 1 < len(names) <= DEEPEST:
        return Term(whole, [member])
    for _ in names[:-1]:
        data = members.object.format(data)
    return Term(f"coalesce({whole}, {members.member.format(data)})", [member, *names])


def total_of(query: RolloutQuery) -> str:
    """Return the statement that counts the rollouts; by status alone the counts are kept."""
    where = where_of(query, page=False)
    if where in {"", where_of(RolloutQuery(statuses=query.statuses), page=False)}:
        return f"select coalesce(sum(total), 0) from status_counts{where}"
    return f"select count(*) from rollouts{where}"


def _has(column: str) -> str:
    # not ``like``, which takes the product of both lengths on texts that repeat themselves
    return f"instr(lower({column}), lower(:text)) > 0"


_OWN_TEXTS = (
    "rollout_id",
    "rollouts.name",
    "session_id",
    "error_type",
    "metadata",
    "input",
    "output",
)

HAS_TEXT = f"""
({" or ".join(map(_has, _OWN_TEXTS))}
or exists (select 1 from attempts where rollout_seq = rollouts.seq and {_has("error_message")})
or exists (select 1 from recorded_spans
    where rollout_seq = rollouts.seq and ({_has("name")} or {_has("attributes")})))
"""


def sql_of(query: RolloutQuery) -> tuple[str, dict[str, Value]]:
    """Return the statement that finds the page, and its parameters."""
    if query.order_by not in ORDERS:
        raise ValueError(f"order_by must be one of {', '.join(ORDERS)}, got {query.order_by!r}")
    direction, nulls = ("desc", "last") if query.descending else ("asc", "first")
    order = f"seq {direction}"
    if query.order_by != "seq":
        order = f"{query.order_by} {direction} nulls {nulls}, {order}"
    parameters: dict[str, Value] = {
        "statuses": json_of(query.statuses),
        "mode": query.mode,
        "ids": json_of(query.ids),
        "host": query.host,
        "name": query.name,
        "session_id": query.session_id,
        "parent_id": query.parent_id,
        "text": query.text,
        "since": query.since,
        "until": query.until,
        "ended_since": query.ended_since,
        "after": query.after,
        "limit": -1 if query.limit is None else query.limit,
        "offset": query.offset,
    }
    where = where_of(query, page=True)
    return f"select * from rollouts{where} order by {order} limit :limit offset :offset", parameters


def where_of(query: RolloutQuery, *, page: bool) -> str:
    """Return the condition of a page or of its total.

    It names only the columns needed, so that their index is used.
    """
    conditions = [
        (query.statuses is not None, "status in (select value from json_each(:statuses))"),
        (query.mode, "mode = :mode"),
        (query.ids is not None, "rollout_id in (select value from json_each(:ids))"),
        (query.host is not None, "host = :host"),
        (query.name is not None, "name = :name"),
        (query.session_id is not None, "session_id = :session_id"),
        (query.parent_id is not None, "parent_id = :parent_id"),
        (query.text is not None, HAS_TEXT),
        (query.since is not None, "started_at >= :since"),
        (query.until is not None, "started_at < :until"),
        (query.ended_since is not None, "ended_at >= :ended_since"),
        (page and query.after is not None, "seq > :after"),
    ]
    needed = [condition for is_needed, condition in conditions if is_needed]
    return f" where {' and '.join(needed)}" if needed else ""


LONGEST_CONTEXT = 4096

ROLLOUTS = """
select seq, status, started_at, ended_at, total_reward, left_out,
    iif(json_valid(metadata), iif(json_type(metadata, '$.cost_usd') in ('integer', 'real'),
        cast(json_extract(metadata, '$.cost_usd') as real), null), null)
from rollouts where seq in (select value from json_each(?)) order by seq
"""

CHOICES = f"""
select rollout_seq, {", ".join(Choice._fields[1:-1])},
    iif(length(context) <= {LONGEST_CONTEXT}, context, '')
from decisions where rollout_seq in (select value from json_each(?))
order by rollout_seq, attempt, ordinal limit ?
"""

ASSIGNMENTS = """
select rollout_seq, point, arm = 'learner', share from arms
where rollout_seq in (select value from json_each(?)) order by rollout_seq, point
"""


class Surveys:
    """Reads the columns that a report needs of rollouts, by their ``seq``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def span(self) -> tuple[int, int] | None:
        """Return the ``seq`` of the first and of the last rollout; ``None`` without any."""
        # In one statement with both, SQLite reads the whole table.
        row = self._connection.row(
            "select (select min(seq) from rollouts), (select max(seq) from rollouts)"
        )
        return None if row is None or row[0] is None else (row[0], row[1])

    def places(self, *, limit: int) -> list[int]:
        """Return the ``seq`` of the first ``limit`` rollouts, in their order."""
        rows = self._connection.rows("select seq from rollouts order by seq limit ?", (limit,))
        return [row[0] for row in rows]

    def rollouts(self, seqs: Sequence[int]) -> list[RolloutColumns]:
        """Return those of the rollouts that are stored, by ``seq``."""
        rows = self._connection.rows(ROLLOUTS, (json_of(seqs),))
        return sound(rows, partial(columns_of_row, RolloutColumns, "rollouts"))

    def choices(self, seqs: Sequence[int], *, limit: int) -> list[Choice]:
        """Return at most ``limit`` of their decisions, in their order."""
        rows = self._connection.rows(CHOICES, (json_of(seqs), limit))
        return sound(rows, partial(columns_of_row, Choice, "decisions"))

    def assignments(self, seqs: Sequence[int]) -> list[Assignment]:
        """Return their assignments, at every point."""
        rows = self._connection.rows(ASSIGNMENTS, (json_of(seqs),))
        return sound(rows, partial(columns_of_row, Assignment, "arms"))
