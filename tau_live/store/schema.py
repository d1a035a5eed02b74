"""The tables of the first schema: what is recorded, and what is worked with."""

from collections.abc import Sequence

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
