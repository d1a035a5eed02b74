"""The roles of a store's database, and what each may do with its tables.

A role is a group without a login: ``grant tau_live_host to agents`` lets the login of agents record
and decide. They belong to the server, and their rights to the schema of one store, which is in
their names unless it is ``public``: a tenant is a schema, which no role of another may use.
"""

from collections.abc import Sequence

import psycopg
from psycopg import sql

from tau_live.core.addresses import TENANT
from tau_live.core.errors import StoreError
from tau_live.store.postgres.connection import PostgresConnection, store_error
from tau_live.store.postgres.rights import (
    HOST,
    KEPT_FROM_HOSTS,
    KINDS,
    READER,
    ROLES,
    may,
    name_of,
    tables_of,
)


def schema_of(connection: PostgresConnection) -> str:
    """Return the schema of a store. Raises: psycopg.Error."""
    [(schema,)] = connection.raw.execute(SCHEMA)
    return str(schema)


SCHEMA = """
select nspname from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where pg_class.oid = 'rollouts'::regclass
"""

STRANGERS = """
select rolname::text from pg_roles
where rolname = any (%s::text[]) and not has_schema_privilege(rolname, %s, 'usage')
"""


TABLES = """
select own.oid, own.relname::text as name, own.relacl
from pg_class as own join pg_class as known on known.relnamespace = own.relnamespace
and known.relowner = own.relowner
where known.oid = 'rollouts'::regclass and own.relkind in ('r', 'p', 'v', 'm', 'f')
"""
"""The tables of a store, without those that others have in its schema."""

GRANTED = f"""
select lower(entry.privilege_type), own.name
from ({TABLES}) as own cross join aclexplode(own.relacl) as entry
where entry.grantee = %s::text::regrole
"""


def make_roles(connection: PostgresConnection) -> list[str]:
    """Make the roles that are not there, and grant all of them what they may do; return them.

    Rights that an earlier version granted are taken away.

    Raises:
        StoreError: This login may not make roles, or does not own the tables; nothing was made.
    """
    raw, schema = connection.raw, schema_of(connection)
    names = [name_of(role, schema) for role in ROLES]
    known = {row[0] for row in raw.execute("select rolname from pg_roles")}
    if schema != "public":
        _check_names(connection, schema, names)
    try:
        with raw.transaction():
            for role, name in zip(ROLES, names, strict=True):
                if name not in known:
                    raw.execute(sql.SQL("create role {} nologin").format(sql.Identifier(name)))
                for statement in _grants(role):
                    raw.execute(
                        sql.SQL(statement).format(
                            schema=sql.Identifier(schema), role=sql.Identifier(name)
                        )
                    )
            _check_grants(connection, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        missing = ", ".join(name for name in names if name not in known)
        what = f"make the roles {missing}" if missing else "grant what they may do"
        raise StoreError(
            f"the login of store '{connection.address}' may not {what}: let its owner, or a login "
            "with createrole, call `tau-live store create`, or do without roles: --no-roles"
        ) from error
    except psycopg.Error as error:
        raise store_error(error, connection.address) from error
    return names


def _check_grants(connection: PostgresConnection, schema: str) -> None:
    """Check that each role got its rights: a server only warns of what a login may not grant.

    Raises:
        StoreError: A role lacks some, or has others.
    """
    raw, wrong = connection.raw, list[str]()
    tables = {str(row[1]) for row in raw.execute(TABLES)}
    for role in ROLES:
        name = name_of(role, schema)
        kinds = ("select", *KINDS)
        wanted = {(kind, table) for kind in kinds for table in tables if may(role, kind, table)}
        granted = {(row[0], row[1]) for row in raw.execute(GRANTED, (name,))}
        wrong += [f"{name} may not {kind} {table}" for kind, table in sorted(wanted - granted)]
        wrong += [f"{name} may {kind} {table}" for kind, table in sorted(granted - wanted)]
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise StoreError(
            f"the roles of store '{connection.address}' are not as they should be ({wrong[0]}"
            f"{more}), and this login may not grant: let the owner of the tables call "
            "`tau-live store create`"
        )


def _check_names(connection: PostgresConnection, schema: str, names: Sequence[str]) -> None:
    """Refuse roles that are not this tenant's alone: they belong to the whole server.

    Raises:
        StoreError: They are somebody else's, or its name is too long for them.
    """
    if not TENANT.fullmatch(schema):
        raise StoreError(
            f"roles cannot be named by schema {schema!r}: let it match {TENANT.pattern}, or do "
            "without roles: --no-roles"
        )
    strangers = [row[0] for row in connection.raw.execute(STRANGERS, (list(names), schema))]
    if strangers:
        raise StoreError(
            f"the server has roles that are not those of this tenant: {', '.join(strangers)}: name "
            f"the tenant otherwise, or drop them if no other database has a tenant {schema}"
        )


def _grants(role: str) -> list[str]:
    """Return the statements that grant a role what it may do, and nothing else."""
    hidden = KEPT_FROM_HOSTS.split() if role == HOST else []
    sequences = "select" if role == READER else "usage"  # a copy has the last numbers
    return [
        "revoke all on all tables in schema {schema} from {role}",
        "grant usage on schema {schema} to {role}",
        "grant select on all tables in schema {schema} to {role}",
        f"grant {sequences} on all sequences in schema {{schema}} to {{role}}",
        *(f"revoke select on {{schema}}.{table} from {{role}}" for table in hidden),
        *(
            f"grant {kind} on {', '.join(f'{{schema}}.{table}' for table in tables)} to {{role}}"
            for kind in KINDS
            if (tables := tables_of(role, kind))
        ),
    ]
