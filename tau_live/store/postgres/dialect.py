"""SQL of the roles, which is SQLite's, as PostgreSQL understands it.

What has another name there is a function of the store's schema (``FUNCTIONS``). What has another
form is rewritten, once for each statement.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from tau_live.store.sql.connection import Members, Value, json_of
from tau_live.store.sql.operations import COUNT
from tau_live.store.sql.queue import CLAIM


def _function(signature: str, returns: str, body: str, *, language: str = "sql") -> str:
    return (
        f"create function {signature} returns {returns} language {language} "
        f"immutable parallel safe as $$ {body} $$"
    )


FUNCTIONS: Sequence[str] = (
    _function(
        "iif(boolean, anycompatible, anycompatible)", "anycompatible",
        "select case when $1 then $2 else $3 end",
    ),
    *(
        _function(
            f"{name}(anycompatible, anycompatible)", "anycompatible",
            f"select case when $1 is null or $2 is null then null else {function}($1, $2) end",
        )
        for name, function in (("max", "greatest"), ("min", "least"))
    ),
    _function(
        "typeof(anyelement)", "text",
        """
        select case when $1 is null then 'null' else case pg_typeof($1)::text
            when 'bigint' then 'integer' when 'integer' then 'integer' when 'boolean' then 'integer'
            when 'double precision' then 'real' when 'numeric' then 'real'
            when 'bytea' then 'blob' else 'text'
        end end
        """,
    ).replace("immutable", "stable"),
    _function("instr(text, text)", "integer", "select strpos($1, $2)"),
    _function(
        "json_valid(text)", "boolean",
        """
        begin
            perform $1::jsonb;
            return $1 is not null;
        exception when others then
            return false;
        end
        """,
        language="plpgsql",
    ),
    _function(
        "member_object(text, text)", "text",
        """
        select case when jsonb_typeof($1::jsonb) = 'object'
            and jsonb_typeof($1::jsonb -> $2) = 'object' then ($1::jsonb -> $2)::text end
        """,
    ),
    _function(
        "member(text, text)", "jsonb",
        """
        select case
            when jsonb_typeof($1::jsonb) <> 'object' then null
            when jsonb_typeof($1::jsonb -> $2) = 'null' then null
            when jsonb_typeof($1::jsonb -> $2) = 'boolean'
            then to_jsonb(($1::jsonb ->> $2)::boolean::integer)
            else $1::jsonb -> $2
        end
        """,
    ),
    _function(
        "json_type(text, text)", "text",
        """
        select case jsonb_typeof($1::jsonb -> substr($2, 3))
            when 'number' then 'real' else 'text'
        end
        """,
    ),
    _function("json_extract(text, text)", "text", "select $1::jsonb ->> substr($2, 3)"),
    _function("added(bigint, boolean)", "bigint", "select $1 + case when $2 then 1 else 0 end"),
    "create aggregate sum(boolean) (sfunc = added, stype = bigint, initcond = '0')",
)  # fmt: skip
"""Functions of SQLite: with two arguments, the largest of null and a number is null."""

_NUMBERS = frozenset({"seq", "rollout_seq", "row"})
"""The columns that are compared with a list of numbers; others are texts."""

_LISTED = re.compile(r"([\w.]+)( not)? in \(\s*select value from json_each\((\?|:\w+)\)\s*\)")
_LIMIT = re.compile(r"\blimit (\?|:\w+|-1)")
_WORDS: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"\bas integer\b", "as bigint"),
        (r"\bas real\b", "as double precision"),
        (r"\bcross join\b", "join"),
        (r"-9e999\b", "'-infinity'::float8"),
        (r"\b[19]e999\b", "'infinity'::float8"),
        (r"\bchar\(", "chr("),
        (r"\bis (?=\?|:\w)", "is not distinct from "),
        (r"json_group_array\((\w+)\)", r"coalesce(json_agg(\1), '[]')::text"),
    )
)
_PARTS = re.compile(r"('(?:[^']|'')*')|(?<!:):([a-z_]\w*)|(\?)")


FORMS: Mapping[str, str] = {
    COUNT: """
    insert into counter_shards as known (name, shard, value)
    values (?, pg_backend_pid() % 64, ?)
    on conflict (name, shard) do update set value = known.value + excluded.value
    """,
    CLAIM: """
    update rollouts set status = 'preparing', worker_id = :worker_id,
        started_at = coalesce(started_at, :at), attempt_count = attempt_count + 1
    from (
        select position, rollout_seq from queue join rollouts as waiting on seq = rollout_seq
        where queue.name in (select value from json_each(:queues)) and due_at <= :at
        and position > :after and status in ('queuing', 'requeuing')
        order by position limit 1 for update of queue skip locked
    ) as first
    where seq = first.rollout_seq
    returning rollouts.*, first.position
    """,
}
"""Statements that have another form altogether."""


def _number_of(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


MEMBERS = Members(
    data="iif(json_valid({0}), {0}, null)",
    member="member({}, ?)",
    object="member_object({}, ?)",
    tests={
        "is": "{} is not distinct from ?::jsonb",
        "in": "{} = any (array(select * from jsonb_array_elements(?::jsonb)))",
        "contains": "instr({} #>> '{{}}', ?) > 0",
        "from": "{} >= ?::jsonb",
        "before": "{} < ?::jsonb",
    },
    bound=lambda value: (
        None if value is None else json_of(int(value) if isinstance(value, bool) else value)
    ),
)


@cache
def render(sql: str) -> str:
    """Return a statement of a role as psycopg takes it."""
    sql = _LISTED.sub(_list_of, FORMS.get(sql, sql))
    if sql.startswith("insert or ignore"):
        sql = f"{sql.replace(' or ignore', '')} on conflict do nothing"
    sql = _LIMIT.sub(r"limit nullif(\1, -1)", sql)
    for pattern, form in _WORDS:
        sql = pattern.sub(form, sql)
    return _PARTS.sub(_part_of, sql.replace("%", "%%"))


def _list_of(match: re.Match[str]) -> str:
    column, negated, values = match.groups()
    value = "value::bigint" if column.rpartition(".")[2] in _NUMBERS else "value"
    listed = f"array(select {value} from json_array_elements_text(({values})::json))"
    return f"{column} {'<> all' if negated else '= any'} ({listed})"


def _part_of(match: re.Match[str]) -> str:
    literal, name, mark = match.groups()
    return literal or (f"%({name})s" if name else "%s" if mark else "")


TYPES: Mapping[str, str] = {
    "integer": "bigint", "real": "double precision", "blob": "bytea", "text": 'text collate "C"',
}  # fmt: skip
"""The types of columns; texts are ordered by their characters' numbers, as in SQLite."""

BOOLEANS = frozenset(
    {
        *(("updates", "executed"), ("in_service", "pinned")),
        *(("arms", "agreed"), ("trials", "ladder")),
    }
)
"""The columns that hold 0 or 1 in SQLite."""

_COLUMN = re.compile(r"^(\w+) (integer|real|blob|text)\b(.*)$")


def table_of(sql: str) -> str:
    """Return the statement that creates a table, given SQLite's.

    Rows of rollouts refer to them unchecked: a check for each row takes longer than to store it.
    """
    head, _, body = sql.partition("(")
    table = head.split()[2].strip('"')
    body = body[: body.rindex(")")]
    parts = [
        _column_of(table, part.strip())
        for part in _split(body)
        if not part.strip().startswith("foreign key")
    ]
    return f"create table {table} ({', '.join(parts)})"


def _column_of(table: str, part: str) -> str:
    part = " ".join(part.split())
    match = _COLUMN.match(part)
    if match is None:
        return part
    name, kind, rest = match.groups()
    form = "boolean" if (table, name) in BOOLEANS else TYPES[kind]
    if kind == "integer" and "primary key" in rest and name in _IDENTITIES:
        form += " generated by default as identity"
    rest = rest.replace(" references rollouts on delete cascade", "")
    rest = rest.replace(" autoincrement", "").replace(" virtual", " stored")
    return f"{name} {form}{rest}"


_IDENTITIES = frozenset({"seq", "place", "number", "position"})
"""The keys that the store gives, not its caller."""


def _split(body: str) -> list[str]:
    """Return the parts of a table between its commas, but for those in brackets."""
    parts, depth, part = [], 0, ""
    for char in body:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += char
    return [*parts, part]
