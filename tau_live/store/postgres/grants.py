"""The roles of a store's database, and what each may do with its tables.

A role is a group without a login: ``grant tau_live_host to agents`` lets the login of agents record
and decide. They belong to the server, and their rights to the schema of one store.
"""

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from tau_live.core.errors import StoreError
from tau_live.store.postgres.connection import PostgresConnection, store_error

HOST, LEARNER, OPERATOR, READER = (
    f"tau_live_{name}" for name in ("host", "learner", "operator", "reader")
)

KINDS = ("insert", "update", "delete")

_RECORDED = "attempts recorded_spans arms ready_points awaiting names queue queue_times"
_NUMBERS = "ids status_shards counter_shards sequences leases"
_PROMPTS = "optimizations candidates tool_use lessons quarantine replies steps resources"

RIGHTS: Mapping[str, Mapping[str, str]] = {
    HOST: {
        "insert": f"rollouts decisions rewards workers alerts alert_marks {_RECORDED} {_NUMBERS} "
        "seals",
        "update": "rollouts attempts recorded_spans awaiting rewards workers alert_marks "
        f"{_NUMBERS}",
        "delete": "awaiting queue ready_points rewards leases alerts alert_marks",
    },
    LEARNER: {
        "insert": "policies updates in_service trials monitors checkpoints resources candidates "
        "gate gate_log audit pauses",
        "update": "in_service trials monitors checkpoints resources candidates ready_points gate "
        "revisions",
        "delete": "checkpoints",
    },
    OPERATOR: {
        "insert": f"in_service trials gate gate_log audit pauses {_PROMPTS}",
        "update": f"in_service trials gate revisions {_PROMPTS}",
        "delete": f"pauses lessons rollouts decisions sequences checkpoints seals {_RECORDED}",
    },
    READER: {},
}
"""The tables that a role may change, beside those of ``BESIDE``."""

BESIDE: Mapping[str, Sequence[str]] = {LEARNER: (HOST,), OPERATOR: (HOST,)}
"""The roles whose rights a role has, too."""

KEPT_FROM_HOSTS = "lessons quarantine replies steps optimizations tool_use"
"""The tables that a host does not read: it needs none of them to record, decide and alert."""

ROLES = tuple(RIGHTS)


def tables_of(role: str, kind: str) -> list[str]:
    """Return the tables that a role may change in a way, sorted."""
    roles = (role, *BESIDE.get(role, ()))
    return sorted({table for each in roles for table in RIGHTS[each].get(kind, "").split()})


def make_roles(connection: PostgresConnection) -> list[str]:
    """Make the roles that are not there, and grant all of them what they may do; return them.

    Rights that an earlier version granted are taken away.

    Raises:
        StoreError: This login may not make roles, or does not own the tables.
    """
    raw = connection.raw
    known = {row[0] for row in raw.execute("select rolname from pg_roles")}
    [(schema,)] = raw.execute(
        "select nspname from pg_class join pg_namespace on pg_namespace.oid = relnamespace "
        "where pg_class.oid = 'rollouts'::regclass"
    )
    try:
        with raw.transaction():
            for role in ROLES:
                if role not in known:
                    raw.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
                for statement in _grants(role):
                    raw.execute(
                        sql.SQL(statement).format(
                            schema=sql.Identifier(schema), role=sql.Identifier(role)
                        )
                    )
    except psycopg.errors.InsufficientPrivilege as error:
        missing = ", ".join(role for role in ROLES if role not in known)
        what = f"make the roles {missing}" if missing else "grant what they may do"
        raise StoreError(
            f"the login of store '{connection.address}' may not {what}: let its owner, or a login "
            "with createrole, call `tau-live store create`, or do without roles: --no-roles"
        ) from error
    except psycopg.Error as error:
        raise store_error(error, connection.address) from error
    return list(ROLES)


def _grants(role: str) -> list[str]:
    """Return the statements that grant a role what it may do, and nothing else."""
    hidden = KEPT_FROM_HOSTS.split() if role == HOST else []
    return [
        "revoke all on all tables in schema {schema} from {role}",
        "grant usage on schema {schema} to {role}",
        "grant select on all tables in schema {schema} to {role}",
        *(["grant usage on all sequences in schema {schema} to {role}"] if role != READER else []),
        *(f"revoke select on {{schema}}.{table} from {{role}}" for table in hidden),
        *(
            f"grant {kind} on {', '.join(f'{{schema}}.{table}' for table in tables)} to {{role}}"
            for kind in KINDS
            if (tables := tables_of(role, kind))
        ),
    ]
