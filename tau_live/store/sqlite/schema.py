"""The schema: tables of recordings, tables of work, and views for people.

The views for people show ids, numbers, names and times; no column that may hold a host's texts:
neither inputs, attributes, contexts and features, nor comments and metadata.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tau_live.core.errors import StoreUnavailableError, StoreVersionError
from tau_live.store.sql.connection import OLDER, UNFINISHED
from tau_live.store.sql.experience import EXPERIENCE
from tau_live.store.sql.operations import ALERTING, FENCING, PAUSING, REPORTING, TRANSITIONS
from tau_live.store.sql.optimizations import OPTIMIZING
from tau_live.store.sqlite.connection import SqliteConnection, store_error
from tau_live.store.sqlite.sealing import SEALING

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

RECORDING: Sequence[str] = (
    """
    create table rollouts (
        seq integer primary key autoincrement,
        rollout_id text not null unique,
        host text not null,
        run_id text not null,
        session_id text,
        parent_id text,
        name text not null,
        status text not null,
        mode text,
        reason text,
        error_type text,
        input text,
        max_attempts integer not null,
        retry_on text not null,
        timeout_s real,
        unresponsive_s real,
        metadata text not null,
        owner text,
        worker_id text,
        attempt_count integer not null,
        enqueued integer not null default 0,
        started_at real, ended_at real,
        ready_seq integer, total_reward real, run_reward real, left_out text
    ) strict
    """,
    """
    create index rollouts_by_owner on rollouts (owner)
    where owner is not null and status in ('queuing', 'preparing', 'running', 'requeuing')
    """,
    """
    create table status_counts (status text primary key, total integer not null)
    strict, without rowid
    """,
    """
    insert into status_counts (status, total) values ('queuing', 0), ('preparing', 0),
    ('running', 0), ('requeuing', 0), ('failed', 0), ('succeeded', 0), ('cancelled', 0)
    """,
    """
    create trigger rollouts_counted_in after insert on rollouts begin
        update status_counts set total = total + 1 where status = new.status;
    end
    """,
    """
    create trigger rollouts_counted_out after delete on rollouts begin
        update status_counts set total = total - 1 where status = old.status;
    end
    """,
    """
    create trigger rollouts_counted_on after update of status on rollouts
    when old.status <> new.status begin
        update status_counts set total = total + iif(status = new.status, 1, -1)
        where status in (old.status, new.status);
    end
    """,
    "create unique index rollouts_by_ready on rollouts (ready_seq) where ready_seq is not null",
    "create index rollouts_by_session on rollouts (session_id) where session_id is not null",
    "create index rollouts_by_parent on rollouts (parent_id) where parent_id is not null",
    "create index rollouts_by_end on rollouts (ended_at) where ended_at is not null",
    """
    create table attempts (
        rollout_seq integer not null references rollouts on delete cascade,
        number integer not null,
        status text not null,
        execution text not null,
        worker_id text,
        started_at real not null,
        last_heartbeat_at real not null,
        ended_at real,
        error_message text,
        timeout_at real,
        unresponsive_s real,
        due_at real generated always as (
            min(
                coalesce(timeout_at, last_heartbeat_at + unresponsive_s),
                coalesce(last_heartbeat_at + unresponsive_s, timeout_at)
            )
        ) virtual,
        primary key (rollout_seq, number)
    ) strict, without rowid
    """,
    """
    create index attempts_due on attempts (due_at)
    where due_at is not null and status in ('preparing', 'running')
    """,
    """
    create table spans (
        seq integer primary key,
        rollout_seq integer not null,
        attempt integer not null,
        span_id text not null,
        parent_span_id text,
        kind text not null,
        name text not null,
        status text not null,
        attributes text not null,
        started_at real not null,
        ended_at real,
        told integer not null,
        unique (rollout_seq, attempt, span_id),
        foreign key (rollout_seq, attempt) references attempts on delete cascade
    ) strict
    """,
    """
    create table decisions (
        seq integer primary key,
        rollout_seq integer not null,
        attempt integer not null,
        ordinal integer not null,
        point text not null,
        options text not null,
        allowed text,
        exploit_only text,
        chosen text,
        applied text,
        default_option text,
        source text not null,
        why_not text,
        propensity real,
        probabilities text not null,
        value real,
        policy_version integer not null,
        arm text not null,
        share real,
        latency_us real not null,
        at real not null,
        encoded blob not null,
        context text not null,
        features text not null,
        unique (rollout_seq, attempt, ordinal),
        foreign key (rollout_seq, attempt) references attempts on delete cascade
    ) strict
    """,
    """
    create index decisions_in_shadow on decisions (point, seq)
    where propensity is null and applied is not null and probabilities <> '[]'
    """,
    """
    create table arms (
        place integer primary key autoincrement,
        rollout_seq integer not null references rollouts on delete cascade,
        point text not null,
        arm text not null,
        share real not null,
        agreed integer,
        unique (rollout_seq, point)
    ) strict
    """,
    "create index arms_by_point on arms (point)",
    """
    create table rewards (
        seq integer primary key autoincrement,
        rollout_id text not null,
        decision_id text not null,
        name text not null,
        value real,
        label text,
        comment text,
        source text not null,
        key text not null,
        at real not null,
        decisions_before integer,
        unique (rollout_id, decision_id, name, source, key)
    ) strict
    """,
    "create index rewards_by_time on rewards (at)",
    "create table sequences (name text primary key, value integer not null) strict, without rowid",
    "insert into sequences values ('policy', 0), ('ready', 0)",
    """
    create table ready_points (
        rollout_seq integer not null references rollouts on delete cascade,
        point text not null,
        ready_seq integer not null,
        cost real,
        primary key (rollout_seq, point)
    ) strict, without rowid
    """,
    "create unique index ready_points_by_place on ready_points (point, ready_seq)",
    """
    create table awaiting (
        rollout_seq integer primary key references rollouts on delete cascade, until real not null
    ) strict
    """,
    "create index awaiting_by_time on awaiting (until)",
)

WORKING: Sequence[str] = (
    """
    create table queue (
        position integer primary key autoincrement,
        rollout_seq integer not null unique references rollouts on delete cascade,
        at real not null
    ) strict
    """,
    """
    create table workers (
        worker_id text primary key,
        registered_at real not null,
        last_heartbeat_at real not null,
        active_rollout_id text,
        active_attempt integer
    ) strict, without rowid
    """,
    """
    create index workers_by_rollout on workers (active_rollout_id)
    where active_rollout_id is not null
    """,
    """
    create table resources (
        version integer primary key autoincrement,
        resources text not null,
        created_at real not null
    ) strict
    """,
    """
    create table policies (
        version integer primary key,
        point text not null,
        parent integer not null,
        algorithm text not null,
        sha256 text not null,
        file text not null,
        rollouts integer not null,
        created_at real not null,
        metadata text not null
    ) strict
    """,
    "create index policies_by_point on policies (point, version)",
    """
    create table in_service (
        point text primary key,
        version integer not null,
        pinned integer not null,
        changed_at real not null,
        revision integer not null
    ) strict, without rowid
    """,
    """
    create table trials (
        point text primary key,
        ladder integer not null,
        exposure real,
        champion integer,
        previous integer,
        kept integer not null,
        stopped text,
        watermark integer not null,
        since integer not null,
        watched integer not null,
        test integer not null,
        evidence text not null,
        tally text not null,
        finding text not null,
        changed_at real not null,
        revision integer not null
    ) strict, without rowid
    """,
    """
    create table updates (
        number integer primary key autoincrement,
        point text not null,
        executed integer not null,
        skipped_reason text,
        version integer,
        parent integer not null,
        first_ready integer not null,
        last_ready integer not null,
        trajectories integer not null,
        samples integer not null,
        at real not null,
        report text not null
    ) strict
    """,
    "create unique index updates_by_point on updates (point, last_ready)",
    "create index updates_executed on updates (point, last_ready) where executed",
    "create index updates_by_number on updates (point, number)",
    """
    create table monitors (
        point text primary key,
        watermark integer not null,
        since integer not null,
        numbers text not null,
        alarms text not null
    ) strict, without rowid
    """,
    """
    create table gate (
        id integer primary key check (id = 1),
        state text not null,
        reason text,
        detail text,
        since real not null,
        streaks text not null,
        revision integer not null
    ) strict
    """,
    """
    create table gate_log (
        seq integer primary key,
        at real not null,
        event text not null,
        state text not null,
        kind text,
        reason text,
        who text not null
    ) strict
    """,
    """create table leases (name text primary key, holder text not null, expires_at real not null)
    strict, without rowid""",
    "create table counters (name text primary key, value integer not null) strict, without rowid",
    """
    create table audit (
        seq integer primary key,
        at real not null,
        who text not null,
        action text not null,
        reason text not null,
        details text not null
    ) strict
    """,
)


_POLICY = """case
    when decisions.policy_version = 0 then 'the untrained policy'
    else 'version ' || decisions.policy_version
end"""
_DECISION_ID = (
    "rollouts.rollout_id || ':attempt-' || decisions.attempt || ':decision-' || decisions.ordinal"
)

VIEWS: Sequence[str] = (
    """
    create view rollouts_in_words as
    select
        rollout_id, name, host, status,
        coalesce(error_type, reason) as ended_with,
        total_reward as reward,
        case
            when left_out is not null then 'left out: ' || left_out
            when ready_seq is not null then 'ready to be learned from'
            when exists (select 1 from awaiting where rollout_seq = rollouts.seq)
            then 'waits for its reward'
            when ended_at is null then 'goes on'
            else 'no reward'
        end as learning,
        (select count(*) from decisions where rollout_seq = rollouts.seq) as decisions,
        attempt_count as attempts,
        datetime(started_at, 'unixepoch') as started_utc,
        round(ended_at - started_at, 3) as took_s,
        session_id, parent_id
    from rollouts order by seq desc
    """,
    f"""
    create view decisions_in_words as
    select
        {_DECISION_ID} as decision_id,
        rollouts.rollout_id,
        decisions.point,
        case
            when decisions.source in ('policy', 'import')
            then case
                when decisions.source = 'import' then 'somebody else' else {_POLICY}
            end || ' chose ' || coalesce(decisions.chosen, decisions.applied, 'nothing')
            || case
                when decisions.applied <> decisions.chosen
                then ', the host did ' || decisions.applied
                when decisions.propensity is null then ''
                else printf(' with %.3g %%', 100.0 * decisions.propensity)
            end
            else 'the host chose ' || coalesce(decisions.applied, decisions.chosen, 'nothing')
            || case
                when decisions.applied <> decisions.chosen
                then ', ' || {_POLICY} || ' would have taken ' || decisions.chosen
                else ''
            end
        end
        || case
            when decisions.why_not is null then '' else ' (' || decisions.why_not || ')'
        end as in_words,
        (
            select group_concat(
                offered.value
                || case
                    when likely.value is null then ''
                    else printf(' %.3g %%', 100.0 * likely.value)
                end, ', '
            )
            from json_each(decisions.options) as offered
            left join json_each(decisions.probabilities) as likely on likely.key = offered.key
        ) as options_and_probabilities,
        decisions.chosen,
        decisions.applied,
        decisions.default_option as host_choice,
        decisions.propensity as probability,
        decisions.policy_version as version,
        decisions.arm,
        rollouts.total_reward as reward,
        round(decisions.latency_us / 1000.0, 3) as took_ms,
        datetime(decisions.at, 'unixepoch') as at_utc
    from decisions join rollouts on rollouts.seq = decisions.rollout_seq
    order by decisions.seq desc
    """,
    """
    create view updates_in_words as
    select
        number as update_number,
        point,
        case
            when version is not null
            then 'made version ' || version || ' from '
                || case when parent = 0 then 'the untrained policy' else parent end
            when executed then 'made nothing that was kept'
            else 'skipped: ' || coalesce(skipped_reason, 'no reason')
        end as in_words,
        trajectories as rollouts,
        samples as decisions,
        version,
        datetime(at, 'unixepoch') as at_utc
    from updates order by number desc
    """,
    """
    create view versions_in_words as
    select
        policies.version,
        policies.point,
        case
            when in_service.version is null then 'does not decide'
            when in_service.pinned then 'decides, pinned'
            else 'decides'
        end
        || case when trials.champion = policies.version then '; the champion' else '' end
        as in_words,
        policies.parent,
        policies.rollouts,
        policies.algorithm,
        datetime(policies.created_at, 'unixepoch') as made_utc
    from policies
    left join in_service
    on in_service.point = policies.point and in_service.version = policies.version
    left join trials on trials.point = policies.point
    order by policies.version desc
    """,
    """
    create view drops_in_words as
    select
        case
            when name glob 'dropped_*' then 'dropped before it was stored'
            when name glob 'left_out_*' then 'stored, not learned from'
            when name glob 'critic_only_*' then 'taught the critic alone'
            when name glob '*refused*' or name glob '*malformed*' then 'refused'
            when name glob 'duplicate_*' then 'was there already'
            else 'counted'
        end as what,
        replace(
            replace(replace(replace(name, 'dropped_', ''), 'left_out_', ''), 'critic_only_', ''),
            '_', ' '
        ) as reason,
        value as times,
        name as counter
    from counters where value > 0 order by value desc, name
    """,
    """
    create view audit_in_words as
    select
        seq,
        datetime(at, 'unixepoch') as at_utc,
        who,
        replace(action, '_', ' ') as action,
        json_extract(details, '$.point') as point,
        json_extract(details, '$.version') as version,
        reason
    from audit order by seq desc
    """,
    """
    create view alerts_in_words as
    select
        seq,
        datetime(at, 'unixepoch') as at_utc,
        severity, kind, subject, sentence,
        todo as look_at,
        suppressed as suppressed_before
    from alerts order by seq desc
    """,
)

SHOWING: Sequence[str] = (*ALERTING, *VIEWS)
"""Alerts and views: the part of the schema that is for people."""


APPLICATION_ID = 0x7461754C
"""``tauL``, which marks our SQLite files."""

NAMING: Sequence[str] = (
    """
    create table names (
        name_id text not null,
        rollout_seq integer not null references rollouts on delete cascade,
        primary key (name_id, rollout_seq)
    ) strict, without rowid
    """,
    "create index names_by_rollout on names (rollout_seq)",
)
"""Other ids by which rollouts are known."""

FIRST_SCHEMA = (*RECORDING, *NAMING, *WORKING, *PAUSING, *SEALING, *SHOWING)
"""The statements of the first migration."""

REPORTED = "alter table spans rename column told to reported"

QUEUES: Sequence[str] = (
    "alter table rollouts add column queue text",
    "update rollouts set queue = 'default' where enqueued",
    "alter table rollouts drop column enqueued",
    "alter table rollouts add column output text",
    "alter table rollouts add column resources text not null default '{}'",
    "alter table rollouts add column backoff_s real not null default 0",
    "alter table queue add column name text not null default 'default'",
    "alter table queue add column due_at real not null default 0",
    "create index queue_by_name on queue (name, position, due_at)",
    "create index queue_by_time on queue (name, due_at)",
    "alter table attempts add column owner text",
    """
    create index attempts_by_owner on attempts (owner)
    where owner is not null and status in ('preparing', 'running')
    """,
    "alter table workers add column status text not null default 'idle'",
    "update workers set status = 'busy' where active_rollout_id is not null",
    "alter table workers add column owner text",
    "alter table workers add column claimed_at real",
    "alter table workers add column busy_at real",
    "alter table workers add column idle_at real",
    "alter table workers add column stats text not null default '{}'",
    """
    create index workers_by_owner on workers (owner) where owner is not null and status <> 'gone'
    """,
    "alter table resources rename to old_resources",
    """
    create table resources (
        name text not null,
        version integer not null,
        content text not null,
        created_at real not null,
        primary key (name, version)
    ) strict, without rowid
    """,
    """
    insert into resources (name, version, content, created_at)
    select key, row_number() over (partition by key order by old_resources.version),
        iif(type in ('object', 'array'), json_each.value, json_quote(json_each.value)), created_at
    from old_resources, json_each(old_resources.resources)
    """,
    "drop table old_resources",
)
"""Queues with names, what workers report, resources with versions of their own."""

SPANS: Sequence[str] = (
    "alter table spans rename to recorded_spans",
    """
    create view spans as
    select
        recorded_spans.seq as seq, rollout_seq, attempt, span_id,
        cast(coalesce(parent_span_id, rollout_id || ':attempt-' || attempt) as text)
            as parent_span_id,
        kind, recorded_spans.name as name, recorded_spans.status as status, attributes,
        recorded_spans.started_at as started_at, recorded_spans.ended_at as ended_at, reported,
        rollout_id, cast(null as integer) as ordinal
    from recorded_spans join rollouts on rollouts.seq = rollout_seq
    union all
    select
        cast(0 as integer), rollout_seq, number,
        cast(rollout_id || ':attempt-' || number as text),
        cast(null as text),
        cast('run' as text),
        cast(coalesce(nullif(name, ''), 'run') as text),
        cast(
            case
                when attempts.status = 'succeeded' then 'ok'
                when attempts.status not in ('failed', 'timeout', 'unresponsive') then 'unknown'
                when rollouts.status = 'cancelled' and number = attempt_count then 'cancelled'
                else 'error'
            end as text
        ),
        cast(
            case
                when error_message is null then json_object('attempt_status', attempts.status)
                else json_object(
                    'attempt_status', attempts.status,
                    'error', json_object('message', error_message)
                )
            end as text
        ),
        attempts.started_at, attempts.ended_at,
        cast(iif(attempts.ended_at is null, 1, 3) as integer),
        rollout_id, cast(0 as integer)
    from attempts join rollouts on rollouts.seq = rollout_seq
    union all
    select
        cast(0 as integer), rollout_seq, attempt,
        cast(rollout_id || ':attempt-' || attempt || ':decision-' || ordinal as text),
        cast(rollout_id || ':attempt-' || attempt as text),
        cast('decision' as text),
        point,
        cast('ok' as text),
        cast(
            json_patch(
                '{}',
                json_object(
                    'applied', applied, 'chosen', chosen, 'default', default_option,
                    'source', source, 'why_not', why_not,
                    'propensity', iif(propensity between 0 and 1, round(propensity, 12), null),
                    'policy_version', policy_version, 'arm', arm
                )
            ) as text
        ),
        cast(at - latency_us / 1e6 as real), at,
        cast(3 as integer),
        rollout_id, ordinal
    from decisions join rollouts on rollouts.seq = rollout_seq
    """,
)
"""The view ``spans``: what is recorded, and a span for each attempt and for each decision.

Steps without a parent are below their attempt's run. How many digits a number has in JSON depends
on SQLite's version, so propensities are rounded; and an infinite number would fail the query. Only
if a column has one type in all tables, hence the casts, does SQLite use their own indexes.

Source:
    sqlite.org/src, ``flattenSubquery`` in select.c, restrictions 17 and 18.
"""

QUEUE_TIMES: Sequence[str] = (
    """
    create table queue_times (
        rollout_seq integer not null references rollouts on delete cascade,
        at real not null,
        primary key (rollout_seq, at)
    ) strict, without rowid
    """,
    "insert into queue_times select rollout_seq, at from queue",
    "create index queue_times_by_time on queue_times (at)",
    """
    create trigger queue_timed after insert on queue begin
        insert or ignore into queue_times values (new.rollout_seq, new.at);
    end
    """,
)
"""When each rollout was put into its queue, which ``queue`` forgets once it is claimed."""

_TOPICS: Mapping[str, tuple[str, str]] = {
    "gate": ("gate", "state, reason, detail, since, streaks, revision"),
    "pauses": ("pauses", "part, reason, who, at"),
    "in_service": ("policies", "point, version, pinned"),
    "trials": ("trials", "point, ladder, exposure, champion, previous, kept, stopped, since, test"),
    "candidates": ("prompts", "version, text, state"),
    "resources": ("prompts", "name, version, content"),
}
"""The topic of each table that other processes follow, and the columns that concern them."""

REVISIONS: Sequence[str] = (
    """
    create table revisions (topic text primary key, revision integer not null)
    strict, without rowid
    """,
    """
    insert into revisions values ('gate', 0), ('pauses', 0), ('policies', 0), ('trials', 0),
    ('prompts', 0)
    """,
    *(
        f"""
        create trigger {table}_revised_by_{event[:6]} after {event} on {table} begin
            update revisions set revision = revision + 1 where topic = '{topic}';
        end
        """
        for table, (topic, columns) in _TOPICS.items()
        for event in ("insert", "delete", f"update of {columns}")
    ),
)
"""How often each topic has changed, so that what others write is read again only then."""

WHOLE_SCHEMA = (
    *FIRST_SCHEMA, *TRANSITIONS, REPORTED, *QUEUES, *SPANS, *OPTIMIZING, *EXPERIENCE, *QUEUE_TIMES,
    *REVISIONS, *FENCING, *REPORTING,
)  # fmt: skip
"""The statements that make the newest schema."""

_CHANGED = """
insert into outbox (rollout_id) {}
on conflict (rollout_id) do update set changes = outbox.changes + 1
"""

_OWN = _CHANGED.format("select new.rollout_id where true")
_OWNED = _CHANGED.format("select rollout_id from rollouts where seq = new.rollout_seq")

_WATCHED: Mapping[str, str] = {
    "rollouts": _OWN,
    "attempts": _OWNED,
    "recorded_spans": _OWNED,
    "decisions": _OWNED,
    "arms": _OWNED,
    "names": _OWNED,
    "rewards": _OWN,
}
"""The tables whose changes are counted, each with the statement that does."""

OUTBOX: Sequence[str] = (
    """
    create table if not exists outbox (
        seq integer primary key autoincrement,
        rollout_id text not null unique,
        changes integer not null default 1,
        sent integer not null default 0,
        sent_at real
    ) strict
    """,
    "create index if not exists outbox_unsent on outbox (seq) where sent < changes",
    "create index if not exists outbox_sent on outbox (sent_at) where sent_at is not null",
    """
    create table if not exists heard (
        hub integer primary key, at real not null, history text not null
    ) strict
    """,
    """
    create table if not exists belongs (
        hub integer primary key, id text not null, address text not null
    ) strict
    """,
    *(
        f"create trigger if not exists outbox_{table}_{event} after {event} on {table} "
        f"begin {changed}; end"
        for table, changed in _WATCHED.items()
        for event in ("insert", "update")
    ),
)
"""The statements that make what a spool has besides the tables of a store."""


MIGRATIONS: Mapping[str, Sequence[str]] = {
    "m001_first_schema": FIRST_SCHEMA,
    "m002_seals_of_what_decides": ("insert into sequences values ('to_seal', 1)",),
    "m003_alerts_of_transitions": TRANSITIONS,
    "m004_names": (REPORTED,),
    "m005_queues": QUEUES,
    "m006_spans_of_runs": SPANS,
    "m007_optimizations": OPTIMIZING,
    "m008_lessons": EXPERIENCE,
    "m009_times_in_queues": QUEUE_TIMES,
    "m010_revisions_of_topics": REVISIONS,
    "m011_tokens_of_leases": FENCING,
    "m012_reports_of_processes": REPORTING,
}
"""The statements of every migration, in order; one that was released is never edited."""

SCHEMA_VERSION = len(MIGRATIONS)
"""The number of migrations; ``pragma user_version`` holds it."""


def migrations() -> "Migrations":
    """Return every migration as sqlite-utils has them."""
    from sqlite_utils import Migrations  # imports pandas where that is installed

    known = Migrations("tau_live")
    for name, statements in MIGRATIONS.items():

        @known(name=name)
        def apply(db: "Database", statements: Sequence[str] = statements) -> None:
            for statement in statements:
                db.execute(statement)

    return known


def database_of(connection: SqliteConnection) -> "Database":
    """Return the connection as a database of sqlite-utils."""
    from sqlite_utils import Database

    return Database(connection.raw, execute_plugins=False, recursive_triggers=False)


def migrate(connection: SqliteConnection, *, copying: bool = False) -> None:
    """Migrate a file to the newest schema, in one transaction.

    Args:
        connection: The file.
        copying: As of ``check``.

    Raises:
        StoreUnavailableError: The file is another application's, or cannot be written.
        StoreVersionError: It was written by a newer tau-live.
    """
    if check(connection, copying=copying) == SCHEMA_VERSION:
        return
    with connection.begin():
        if check(connection, copying=copying) == SCHEMA_VERSION:  # another process was quicker
            return
        try:
            migrations().apply(database_of(connection))
        except sqlite3.Error as error:  # as raised past our connection
            raise store_error(error, connection.path) from error
        connection.rows(f"pragma application_id = {APPLICATION_ID}")
        connection.rows(f"pragma user_version = {SCHEMA_VERSION}")


def check(connection: SqliteConnection, *, oldest: int = 0, copying: bool = False) -> int:
    """Return the schema version of a file, 0 for an empty one.

    Args:
        connection: The file.
        oldest: The oldest version that will do.
        copying: Whether a copy of this version will do that is not whole yet.

    Raises:
        StoreUnavailableError: The file is another application's.
        StoreVersionError: It was written by a newer tau-live, or has a schema before ``oldest``.
    """
    with connection.reading():
        version = connection.count("pragma user_version")
        application_id = connection.count("pragma application_id")
        tables = connection.count("select count(*) from sqlite_master")
    blank = application_id == 0 and version == 0 and tables == 0
    if not blank and application_id != APPLICATION_ID:
        raise StoreUnavailableError(
            f"store '{connection.path}' cannot be used: it belongs to another application"
        )
    if version < 0:
        if copying and version == -SCHEMA_VERSION:
            return SCHEMA_VERSION
        raise StoreVersionError(
            UNFINISHED.format(connection.address), todo="run the same `tau-live store copy` again"
        )
    if version > SCHEMA_VERSION:
        raise StoreVersionError(
            f"store '{connection.path}' has schema {version}, this tau-live knows {SCHEMA_VERSION}:"
            " install a newer tau-live, or set TAU_LIVE_RL_STORE to another file"
        )
    if version < oldest:
        if not blank:
            raise StoreVersionError(
                OLDER.format(connection.path, version, oldest), todo="run `tau-live store migrate`"
            )
        raise StoreVersionError(
            f"store '{connection.path}' is empty: run your agent with TAU_LIVE_RL=1 once",
            todo="run your agent with TAU_LIVE_RL=1 once, or `tau-live store create`",
        )
    return version
