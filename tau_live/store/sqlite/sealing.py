"""The table of seals, and the triggers by which our own connections seal their writes."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from tau_live.core.errors import StoreDamagedError
from tau_live.store.sealing import GONE, SEALED, UNSEALED, Sealer, digest_of_pairs

SEALING: Sequence[str] = (
    """
    create table seals (
        place integer primary key autoincrement,
        kind text not null,
        row integer not null,
        seal blob not null,
        key_id text not null
    ) strict
    """,
)
"""The table of seals."""

AT_ONCE = "temp.sealed_at_once"
"""While it has a row, triggers do not seal inserts: ``blocks.insert_new`` does."""

NEWEST = "from seals where place > 0 order by place desc limit 1"
"""The condition is always true, and makes SQLite's plan show a search."""

LAST = f"select substr(seal, 17) {NEWEST}"


def install(raw: sqlite3.Connection, sealer: Sealer) -> Mapping[str, Mapping[str, str]]:
    """Make a connection seal its writes.

    Returns:
        The sealed columns of each table, in their order, and the SQL type of each.

    Raises:
        sqlite3.Error: It could not be set up.
    """
    columns = {table: columns_of(raw, table) for table in SEALED}

    def seal_of(before: bytes | None, kind: str, row: int, *values: object) -> bytes:
        digest = digest_of_pairs(zip(columns[kind], values, strict=True)) if values else GONE
        return sealer.seal(before, kind, row, digest)

    raw.create_function("sealed", -1, seal_of)
    raw.create_function("resealed", 4, sealer.seal)
    raw.create_function("sealing_key", 0, lambda: sealer.key_id)
    raw.execute(f"create table {AT_ONCE} (n)")
    for table, sealed_as in SEALED.items():
        changed = f"update of {', '.join(sealed_as.columns)}" if sealed_as.columns else "update"
        for event in ("insert", "delete", *([changed] if sealed_as.changes else [])):
            which = "old" if event == "delete" else "new"
            number = sealed_as.number_of(which)
            values = [] if event == "delete" else [f", {which}.{name}" for name in columns[table]]
            condition = sealed_as.where_in(which)
            if event == changed:  # a row that no longer has to be sealed has changed, too
                condition = f"{condition} or {sealed_as.where_in('old')}"
            elif event == "insert":
                condition = f"{condition} and not exists (select 1 from {AT_ONCE})"
            raw.execute(
                f"""
                create temp trigger sealed_{table}_{event[:6]} after {event} on main.{table}
                when {condition} begin
                    insert into seals (kind, row, seal, key_id) values (
                        '{table}', {number},
                        sealed(({LAST}), '{table}', {number}{"".join(values)}), '{sealer.key_id}'
                    );
                end
                """
            )
    return columns


def parts_of(raw: sqlite3.Connection, table: str, which: str) -> str:
    """Return the arguments of ``row_digest`` for a row of a table, as SQL."""
    return _parts(columns_of(raw, table), which)


def earlier_parts_of(table: str, which: str) -> str | None:
    """Return the arguments for the columns that an earlier version sealed; ``None`` without any."""
    return _parts(SEALED[table].earlier, which) or None


def _parts(columns: Iterable[str], which: str) -> str:
    return ", ".join(f"'{column}', {which}.{column}" for column in columns)


def columns_of(raw: sqlite3.Connection, table: str) -> Mapping[str, str]:
    """Return the sealed columns of a table, in their order, and the SQL type of each."""
    kinds = {row[1]: row[2] for row in raw.execute(f"pragma table_info({table})")}
    columns = SEALED[table].columns or kinds
    if not kinds or not {*columns} <= {*kinds}:
        raise StoreDamagedError(f"the store lacks the table {table} or a column of it")
    return {column: kinds[column] for column in columns if (table, column) not in UNSEALED}
