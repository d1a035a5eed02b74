"""What no seal covers and learning goes by, compared with what is sealed; and the schema itself.

Each comparison is one statement, and so of one moment, however many processes write meanwhile; it
goes by indexes, and its rows are read one by one.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache

from tau_live.store.connection import Connection
from tau_live.store.migrations import FIRST_SCHEMA
from tau_live.store.sealing import DIGEST_BYTES, RESTORED
from tau_live.store.sqlite_seals import Finding

MISSING_PLACES = """
select rollout_id, point from rollouts
join (
    select distinct rollout_seq, point from decisions
    union all
    select seq, '' from rollouts
    where not exists (select 1 from decisions where rollout_seq = rollouts.seq)
) as decided on decided.rollout_seq = rollouts.seq
where ready_seq is not null and not exists (
    select 1 from ready_points as r
    where r.rollout_seq = rollouts.seq and r.point = decided.point
)
"""

WRONG_PLACES = """
select coalesce(rollout_id, '#' || r.rollout_seq) as rollout_id, r.point,
    rollouts.ready_seq is not r.ready_seq as misplaced
from ready_points as r left join rollouts on rollouts.seq = r.rollout_seq
where misplaced or r.point <> '' and not exists (
    select 1 from decisions as d where d.rollout_seq = r.rollout_seq and d.point = r.point
) or r.point = '' and exists (select 1 from decisions as d where d.rollout_seq = r.rollout_seq)
"""

_ENDED = "status in ('succeeded', 'failed', 'cancelled')"

WRONG_STATUSES = f"""
select rollout_id, status from rollouts where not {_ENDED} and (
    ended_at is not null
    or ready_seq is not null
    and not exists (select 1 from queue where rollout_seq = rollouts.seq)
    and not exists (select 1 from attempts where rollout_seq = rollouts.seq and number > 1)
)
"""
"""One that goes on has no end; one that was ready goes on only where it is tried again."""

WRONG_NUMBERS = f"""
select name, value, given, given + forgotten as most from (
    select 'ready' as name, max(
        (select coalesce(max(ready_seq), 0) from rollouts),
        (select coalesce(max(last_ready), 0) from updates),
        (select coalesce(max(row), 0) from seals where kind = '{RESTORED}')
    ) as given, (
        select coalesce(min(place), 1) - 1 from seals where place > 0
    ) + (
        select count(*) from seals where kind in ('rollouts', 'decisions', 'rewards')
        and substr(seal, 1, {DIGEST_BYTES}) = zeroblob({DIGEST_BYTES})
    ) as forgotten
    union all
    select 'policy', coalesce(max(version), 0), 0 from policies
) left join sequences using (name)
where value is null or value < given or value > given + forgotten
"""
"""Above what is held, a number was given only to what is forgotten, each of which left a seal.

Of a rollout before version 2 of the schema that is the seal of a decision or reward.
"""

ORPHANS = 'select distinct "table", parent from pragma_foreign_key_check'

SCHEMA = """
select type, name, coalesce(sql, tbl_name) from sqlite_master where not (
    type in ('table', 'index') and (
        tbl_name in ('_sqlite_migrations', 'sqlite_sequence') or tbl_name glob 'sqlite_stat[1-4]'
    )
)
"""
"""Without the tables that sqlite-utils and SQLite make for us, and their indexes."""

Schema = Mapping[tuple[str, str], str]


class SqliteConsistency:
    """Finds what contradicts the sealed rows in those that are not sealed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def contradictions(self) -> Iterator[Finding]:
        """Yield every row outside the seals that cannot be what tau-live stored."""
        yield from self.foreign_schema()
        for row in self._connection.stream(MISSING_PLACES):
            detail = "it was removed from what is to be learned from, not by tau-live"
            yield Finding("not_ready", _place(row), detail)
        for row in self._connection.stream(WRONG_PLACES):
            misplaced = "it has another place there than the rollout"
            detail = misplaced if row["misplaced"] else "its decisions say otherwise"
            yield Finding("ready", _place(row), detail)
        for row in self._connection.stream(WRONG_STATUSES):
            detail = f"it is {row['status']}, although it had ended and was not tried again"
            yield Finding("status", f"rollout {row['rollout_id']}", detail)
        for row in self._connection.stream(WRONG_NUMBERS):
            ahead = row["value"] is not None and row["value"] > row["most"]
            given = f"no more than {row['most']}" if ahead else f"{row['given']}"
            detail = f"it is at {row['value']}, and {given} was given already"
            yield Finding("sequence", f"the numbering {row['name']!r}", detail)
        for row in self._connection.stream(ORPHANS):
            detail = f"rows belong to none of {row['parent']}"
            yield Finding("orphans", f"table {row['table']}", detail)

    def foreign_schema(self) -> Iterator[Finding]:
        """Yield every table, trigger, view and index that is not, or not as, tau-live made it."""
        found = _schema_of(self._connection.rows(SCHEMA))
        for key in sorted(found.keys() | expected_schema().keys()):
            known, held = expected_schema().get(key), found.get(key)
            if held == known:
                continue
            detail = "it was changed" if known and held else "it is not tau-live's"
            yield Finding("schema", " ".join(key), detail if held else "it was removed")


@cache
def expected_schema() -> Schema:
    """Return what tau-live makes in a store, by type and name."""
    with closing(sqlite3.connect(":memory:")) as raw:
        for statement in FIRST_SCHEMA:
            raw.execute(statement)
        return _schema_of(raw.execute(SCHEMA))


def _schema_of(rows: Iterable[Sequence[str]]) -> Schema:
    return {(kind, name): " ".join(sql.split()) for kind, name, sql in rows}


def _place(row: sqlite3.Row) -> str:
    of_point = f" at '{row['point']}'" if row["point"] else ""
    return f"rollout {row['rollout_id']}{of_point}"
