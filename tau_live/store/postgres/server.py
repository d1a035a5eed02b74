"""What can be known of the server of a store, whatever the version of its schema."""

import time
from statistics import median

import psycopg

from tau_live.store.postgres.connection import PostgresConnection, store_error
from tau_live.store.postgres.grants import schema_of
from tau_live.store.postgres.rights import KINDS, ROLES, name_of, tables_of
from tau_live.store.records import ServerFacts

ROUNDS = 5

FACTS = """
select current_setting('server_version_num')::integer, current_setting('synchronous_commit'),
    (select version from pg_stat_ssl where pid = pg_backend_pid()),
    coalesce(inet_server_addr() is null, true),
    current_setting('max_connections')::integer
        - current_setting('superuser_reserved_connections')::integer
        - (select count(*) from pg_stat_activity where backend_type = 'client backend'),
    pg_is_in_recovery(),
    to_regclass('rollouts') is not null,
    coalesce(has_table_privilege(to_regclass('schema_version'), 'select'), false)
"""


def server_facts(connection: PostgresConnection) -> ServerFacts:
    """Return what can be known of the server of a store, and of what this login may do.

    Raises:
        StoreUnavailableError: It does not answer.
    """
    raw = connection.raw
    try:
        [row] = raw.execute(FACTS)
        version, commits, tls, is_local, free, is_standby, is_made, is_readable = row
        times, ahead = [], []
        for _ in range(ROUNDS):
            sent, began = time.time(), time.perf_counter()
            [(now,)] = raw.execute("select extract(epoch from clock_timestamp())::float8")
            took = time.perf_counter() - began
            times.append(took)
            ahead.append(now - sent - took / 2)
        lacking = {role: _lacking(connection, role) for role in ROLES} if is_made else {}
        schema = schema_of(connection) if is_made else ""
        return ServerFacts(
            version=version // 10_000,
            schema=connection.version() if is_readable else None,
            tls=tls,
            local=is_local,
            standby=is_standby,
            synchronous_commit=commits,
            free_connections=free,
            round_trip_s=median(times),
            ahead_s=median(ahead),
            roles=[name_of(role, schema) for role, missing in lacking.items() if not missing],
            lacking=lacking.get(ROLES[0], []),
        )
    except psycopg.Error as error:
        raise store_error(error, connection.address) from error


def _lacking(connection: PostgresConnection, role: str) -> list[str]:
    """Return what this login may not do of all that a role may."""
    wanted = [
        ("select", "rollouts"),
        *((kind, table) for kind in KINDS for table in tables_of(role, kind)),
    ]
    rows = connection.raw.execute(
        "select kind || ' ' || name from unnest(%s::text[], %s::text[]) as wanted (kind, name) "
        "where not has_table_privilege(name, kind)",
        ([kind for kind, _ in wanted], [table for _, table in wanted]),
    )
    return [row[0] for row in rows]
