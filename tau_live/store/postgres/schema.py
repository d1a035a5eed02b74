"""The schema in PostgreSQL: SQLite's tables and indexes, and what its triggers and views do."""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, count
from typing import NamedTuple

from tau_live.core.processes import HOUSE
from tau_live.store.postgres.dialect import BOOLEANS, FUNCTIONS, TYPES, render, table_of
from tau_live.store.records import STALE_S
from tau_live.store.sql.batch import ASSIGN
from tau_live.store.sql.columns import into
from tau_live.store.sql.connection import Value
from tau_live.store.sql.rows import INSERT_REWARD, INSERT_ROLLOUT
from tau_live.store.sqlite.schema import WHOLE_SCHEMA

MIGRATIONS: Mapping[int, Sequence[str]] = {}
"""The statements that make each version after the first from the one before it.

One that was released is never edited. They only add, so that hosts of the version before go on;
``CONTRACTIONS`` take away. An index is a version of its own, made beside writers: ``drop index
concurrently if exists``, which removes what a broken attempt has left, and ``create index
concurrently``. What a batch calls (``number_rows``) is added with other parameters.
"""

CONTRACTIONS: Mapping[int, Sequence[str]] = {}
"""The statements that take away what only hosts of the versions before one need, by that version.

They are one transaction, and shut such hosts out (``oldest``). A schema that is made anew has
nothing of it.
"""

VERSION = 1 + len(MIGRATIONS)
"""The schema's, in ``schema_version``."""

LEFT_OUT = frozenset({"status_counts", "counters", "seals"})
"""Tables of SQLite that are others here."""


class Numbered(NamedTuple):
    """The rows that a batch numbers at its end.

    Attributes:
        ready: The ``seq`` of each rollout that became ready, in the order in which they did, with
            what it earned: the parameters of ``EARNED``.
        rollouts: Those of ``ADD_ROLLOUT`` for the ones of them that are new.
        points: Such a rollout, and a point of it.
        arms: The parameters of ``ASSIGN``.
        rewards: Those of ``INSERT_REWARD``.
    """

    ready: Sequence[Sequence[Value]]
    rollouts: Sequence[Sequence[Value]]
    points: Sequence[Sequence[Value]]
    arms: Sequence[Sequence[Value]]
    rewards: Sequence[Sequence[Value]]


EARNED = "insert into rollouts (seq, total_reward, run_reward) values (?, ?, ?)"
"""What a rollout has earned, as the columns of a row."""

ADD_ROLLOUT = (
    INSERT_ROLLOUT.partition("on conflict")[0]
    .replace("(", "(seq, ", 1)
    .replace("values (", "values (?, ")
)
"""Adds a rollout under a number of its own; nobody else can have added it: its id is locked."""

POINTS = "insert into ready_points (rollout_seq, point) values (?, ?)"

NUMBERED = (EARNED, ADD_ROLLOUT, POINTS, ASSIGN, INSERT_REWARD)
"""The statements whose parameters are numbered, in the order of ``Numbered``."""


def types_of(sql: str) -> Sequence[str]:
    """Return the types of the values that an insert statement takes."""
    table, names, _ = into(sql)
    return column_types(table, names)


def column_types(table: str, names: Iterable[str]) -> Sequence[str]:
    """Return the types of some columns of a table."""
    kinds = kinds_of(table)
    return [
        "boolean"
        if (table, name) in BOOLEANS
        else TYPES[kinds[name].lower()].partition(" collate")[0]
        for name in names
    ]


@cache
def number_rows() -> str:
    """Return the statement that makes the function by which a batch is numbered, in its turn.

    It takes an array for each column of ``Numbered``, and returns the first ``ready_seq``.
    """
    at = count(1)
    types = [[*types_of(sql)] for sql in NUMBERED]
    _, added, pointed, assigned, rewarded = (
        ", ".join([f"${next(at)}" for _ in some]) for some in types
    )
    before = {sql: sql.split(" values ")[0] for sql in NUMBERED}
    own = ", ".join(
        "first + array_position($1, seq) - 1" if name == "ready_seq" else name
        for name in into(ADD_ROLLOUT)[1]
    )
    return f"""
    create function number_rows({", ".join(f"{type_}[]" for type_ in chain(*types))})
    returns bigint language plpgsql as $$
    declare
        first bigint;
    begin
        lock table turns in share update exclusive mode;
        if cardinality($1) > 0 then
            update sequences set value = value + cardinality($1) where name = 'ready'
            returning value - cardinality($1) + 1 into first;
            update rollouts
            set ready_seq = first + place - 1, total_reward = total, run_reward = run
            from unnest($1, $2, $3) with ordinality as became (key, total, run, place)
            where seq = became.key;
            {before[ADD_ROLLOUT]} select {own}
            from unnest({added}) as new ({", ".join(into(ADD_ROLLOUT)[1])});
            insert into ready_points (rollout_seq, point, ready_seq)
            select became.key, became.point, first + array_position($1, became.key) - 1
            from unnest({pointed}) as became (key, point)
            on conflict (rollout_seq, point) do nothing;
        end if;
        {before[ASSIGN]} select * from unnest({assigned});
        {before[INSERT_REWARD]} select * from unnest({rewarded});
        return first;
    end $$
    """


FORGOTTEN_S = 30 * 86_400
"""How long the id of a deleted rollout is kept, so that no spool brings it back.

A spool keeps what it has sent for minutes, and what it could not send is learned from for a day.
"""

OF_ROLLOUTS = (
    *("attempts", "recorded_spans", "decisions", "arms", "ready_points", "awaiting", "names"),
    *("queue", "queue_times"),
)
"""The tables of rows that go with their rollout."""

SEALS: Sequence[str] = (
    "create sequence seal_places",
    """
    create table seals (
        place bigint primary key, chain bigint not null, before bigint not null,
        before_link bytea not null, rows bytea not null, link bytea not null,
        key_id text collate "C" not null
    )
    """,
    "alter table seals alter column rows set storage external",  # digests do not compress
    "create index seals_by_chain on seals (chain, place)",
    "create table store_id (id bigint not null)",
    "insert into store_id select (random() * 4611686018427387904)::bigint",
)
"""A seal is of all rows that a transaction wrote; ``before`` is the place of the one before.

The id of the store is a part of each, so that none of another store with the same key will do.
"""

VERSIONED: Sequence[str] = (
    # The oldest version whose hosts may use it
    "create table schema_version (version integer not null, oldest integer not null)",
    f"insert into schema_version values ({VERSION}, {VERSION})",
)
"""What is made first: whoever makes it at the same time waits, and then finds it."""

OWN: Sequence[str] = (
    *SEALS,
    "create table turns ()",  # without rows; what it is for: ``connection.LOCKS``
    """
    create table ids (
        rollout_id text collate "C" primary key, forgotten_at double precision
    )
    """,
    "create index ids_forgotten on ids (forgotten_at) where forgotten_at is not null",
    """
    create table checkpoints (
        run_id text collate "C" not null, name text collate "C" not null, content bytea not null,
        primary key (run_id, name)
    )
    """,
    """
    create table status_shards (
        status text collate "C" not null, shard integer not null, total bigint not null,
        primary key (status, shard)
    )
    """,
    """
    create view status_counts as
    select known.status, coalesce(sum(status_shards.total), 0)::bigint as total
    from unnest(array['queuing', 'preparing', 'running', 'requeuing', 'failed', 'succeeded',
        'cancelled']) as known (status)
    left join status_shards on status_shards.status = known.status group by known.status
    """,
    """
    create table counter_shards (
        name text collate "C" not null, shard integer not null, value bigint not null,
        primary key (name, shard)
    )
    """,
    """
    create view counters as
    select name, sum(value)::bigint as value from counter_shards group by name
    """,
    """
    create function count_statuses() returns trigger language plpgsql as $$
    begin
        if tg_op = 'INSERT' then
            insert into status_shards as known
            select status, pg_backend_pid() % 64, count(*) from added group by status
            on conflict (status, shard) do update set total = known.total + excluded.total;
            update ids set forgotten_at = null
            where rollout_id = any (array(select rollout_id from added))
            and coalesce(forgotten_at, 0) > 0;  -- not by the index of all that are forgotten
        elsif tg_op = 'DELETE' then
            insert into status_shards as known
            select status, pg_backend_pid() % 64, -count(*) from removed group by status
            on conflict (status, shard) do update set total = known.total + excluded.total;
        else
            insert into status_shards as known
            select status, pg_backend_pid() % 64, sum(by) from (
                select status, 1 as by from added union all select status, -1 from removed
            ) as moved group by status having sum(by) <> 0
            on conflict (status, shard) do update set total = known.total + excluded.total;
        end if;
        return null;
    end $$
    """,
    """
    create trigger rollouts_counted_in after insert on rollouts
    referencing new table as added for each statement execute function count_statuses()
    """,
    """
    create trigger rollouts_counted_out after delete on rollouts
    referencing old table as removed for each statement execute function count_statuses()
    """,
    """
    create trigger rollouts_counted_on after update on rollouts
    referencing new table as added old table as removed
    for each statement execute function count_statuses()
    """,
    f"""
    create function forget_rollouts() returns trigger language plpgsql as $$
    declare
        now_s float8 := extract(epoch from clock_timestamp());
        others text[];
    begin
        insert into ids (rollout_id, forgotten_at) select rollout_id, now_s from removed
        on conflict (rollout_id) do update set forgotten_at = excluded.forgotten_at;
        delete from ids where rollout_id = any (array(
            select rollout_id from ids where forgotten_at < now_s - {FORGOTTEN_S}
            order by forgotten_at limit (select 2 * count(*) from removed)
        ));
        select array_agg(named.id) into others from (
            select parent_id as id from removed union all
            select name_id from removed join names on rollout_seq = removed.seq
        ) as named;
        delete from ids where rollout_id = any (others) and forgotten_at is null;
        {
        " ".join(
            f"delete from {table} using removed where rollout_seq = removed.seq;"
            for table in OF_ROLLOUTS
        )
    }
        return null;
    end $$
    """,
    """
    create trigger rollouts_forgotten after delete on rollouts
    referencing old table as removed for each statement execute function forget_rollouts()
    """,
    """
    create function time_queue() returns trigger language plpgsql as $$
    begin
        insert into queue_times values (new.rollout_seq, new.at) on conflict do nothing;
        return null;
    end $$
    """,
    """
    create trigger queue_timed after insert on queue for each row execute function time_queue()
    """,
    """
    create view spans as
    select
        recorded_spans.seq as seq, rollout_seq, attempt, span_id,
        coalesce(parent_span_id, rollout_id || ':attempt-' || attempt) as parent_span_id,
        kind, recorded_spans.name as name, recorded_spans.status as status, attributes,
        recorded_spans.started_at as started_at, recorded_spans.ended_at as ended_at, reported,
        rollout_id, null::bigint as ordinal
    from recorded_spans join rollouts on rollouts.seq = rollout_seq
    union all
    select
        0, rollout_seq, number, rollout_id || ':attempt-' || number, null, 'run',
        coalesce(nullif(name, ''), 'run'),
        case
            when attempts.status = 'succeeded' then 'ok'
            when attempts.status not in ('failed', 'timeout', 'unresponsive') then 'unknown'
            when rollouts.status = 'cancelled' and number = attempt_count then 'cancelled'
            else 'error'
        end,
        case
            when error_message is null
            then '{"attempt_status":' || to_json(attempts.status) || '}'
            else '{"attempt_status":' || to_json(attempts.status)
                || ',"error":{"message":' || to_json(error_message) || '}}'
        end,
        attempts.started_at, attempts.ended_at,
        case when attempts.ended_at is null then 1 else 3 end,
        rollout_id, 0
    from attempts join rollouts on rollouts.seq = rollout_seq
    union all
    select
        0, rollout_seq, attempt,
        rollout_id || ':attempt-' || attempt || ':decision-' || ordinal,
        rollout_id || ':attempt-' || attempt, 'decision', point, 'ok',
        json_strip_nulls(json_build_object(
            'applied', applied, 'chosen', chosen, 'default', default_option,
            'source', source, 'why_not', why_not,
            'propensity', case when propensity between 0 and 1
                then round(propensity::numeric, 12)::float8 end,
            'policy_version', policy_version, 'arm', arm
        ))::text,
        at - latency_us / 1e6, at, 3, rollout_id, ordinal
    from decisions join rollouts on rollouts.seq = rollout_seq
    """,
    "insert into sequences values ('policy', 0), ('ready', 0), ('lease', 0)",
    """
    insert into revisions values ('gate', 0), ('pauses', 0), ('policies', 0), ('trials', 0),
    ('prompts', 0)
    """,
    """
    create function revise() returns trigger language plpgsql as $$
    begin
        update revisions set revision = revision + 1 where topic = tg_argv[0];
        perform pg_notify('tau_live_' || 'revisions'::regclass::oid, '');
        return null;
    end $$
    """,
    f"""
    create function heartbeat(lease text, process text, told text, at float8, ttl_s float8,
        out keeper text, out topics text[], out numbers bigint[], out clock float8)
    language plpgsql as $$
    begin
        perform set_config('synchronous_commit', 'off', true);
        insert into leases (name, holder, expires_at, report)
        values (lease, process, at + ttl_s, told)
        on conflict (name) do update set holder = excluded.holder,
            expires_at = excluded.expires_at, report = excluded.report;
        select holder into keeper from leases
        where name = '{HOUSE}' and expires_at > at and expires_at <= at + ttl_s + {STALE_S};
        select array_agg(topic), array_agg(revision) into topics, numbers from revisions;
        clock := extract(epoch from clock_timestamp());
    end $$
    """,
)
"""What SQLite's schema has in another form."""

TOPICS = {
    "gate": "gate", "pauses": "pauses", "in_service": "policies", "trials": "trials",
    "candidates": "prompts", "resources": "prompts",
}  # fmt: skip


@cache
def arrays_of(sql: str) -> str:
    """Return the statement that inserts rows given as arrays, one for each column."""
    _, _, row = into(sql)
    arrays = ", ".join(f"%b::{type_}[]" for type_ in types_of(sql))
    before, after = sql.split(f"values {row}")
    return f"{render(before)} select * from unnest({arrays}) {render(after)}"


class Change(NamedTuple):
    """A statement that changes the rows of a table for many sets of parameters.

    Attributes:
        sql: The statement, which takes an array for each parameter.
        table: The table.
        columns: The column that each parameter is compared with, or becomes.
    """

    sql: str
    table: str
    columns: Sequence[str]


_CHANGED = re.compile(r"\s*(?:update (\w+) set (.*?)|delete from (\w+))\s+where (.*)", re.DOTALL)
_BOUND = re.compile(r"(\w+) = (?:[^,?]*[^\w,?])?\?")


@cache
def change_of(sql: str) -> Change | None:
    """Return the form of an update or a deletion for many rows at once; ``None`` of others."""
    match = _CHANGED.fullmatch(sql)
    if match is None:
        return None
    updated, assigned, deleted, where = match.groups()
    table, columns = updated or deleted, _BOUND.findall(sql)
    names = [f"p{place}" for place in range(len(columns))]
    types = ", ".join(f"%b::{type_}[]" for type_ in column_types(table, columns))
    given = f"unnest({types}) as given ({', '.join(names)})"
    left = iter(names)
    assigned, where = (
        re.sub(r"\?", lambda _: f"given.{next(left)}", render(part or "").replace("%s", "?"))
        for part in (assigned, where)
    )
    head = f"update {table} set {assigned} from" if updated else f"delete from {table} using"
    return Change(f"{head} {given} where {where}", table, columns)


@cache
def numbering() -> str:
    """Return the statement that numbers the rows of a batch."""
    types = chain(*map(types_of, NUMBERED))
    return f"select number_rows({', '.join(f'%b::{type_}[]' for type_ in types)})"


@cache
def statements() -> Sequence[str]:
    """Return the statements that make the schema."""
    with closing(_in_sqlite()) as raw:
        found = raw.execute(
            "select type, name, sql from sqlite_master where sql is not null order by rowid"
        ).fetchall()
    tables = {
        name: table_of(sql)
        for kind, name, sql in found
        if kind == "table" and name not in LEFT_OUT and not name.startswith(("sqlite_", "_"))
    }
    indexes = [sql for kind, _, sql in found if kind == "index"]
    revised = [
        f"create trigger {table}_revised after insert or update or delete on {table} "
        f"for each statement execute function revise('{topic}')"
        for table, topic in TOPICS.items()
    ]
    own = (*_in_order(tables), *indexes, *OWN, number_rows(), *revised)
    return (*VERSIONED, *FUNCTIONS, *own)


def _in_order(tables: dict[str, str]) -> list[str]:
    """Return the statements of tables, each after those that it refers to."""
    return sorted(tables.values(), key=lambda sql: "references" in sql)


def kinds_of(table: str) -> Mapping[str, str]:
    """Return the type in SQLite of each column of a table."""
    return _kinds()[table]


@cache
def _kinds() -> Mapping[str, Mapping[str, str]]:
    with closing(_in_sqlite()) as raw:
        tables = raw.execute("select name from sqlite_master where type = 'table'").fetchall()
        return {
            table: {row[1]: row[2] for row in raw.execute(f'pragma table_info("{table}")')}
            for (table,) in tables
        }


def _in_sqlite() -> sqlite3.Connection:
    raw = sqlite3.connect(":memory:")
    for statement in WHOLE_SCHEMA:
        raw.execute(statement)
    return raw
