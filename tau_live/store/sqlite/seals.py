"""The chain of seals in SQLite: its head, contradictions to it, and pruning its beginning.

Each comparison is one statement, and so of one moment, however many processes write meanwhile; it
uses indexes, and its rows are read one by one.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import groupby

from tau_live.store.sealing import (
    DIGEST_BYTES,
    GONE,
    PRUNED,
    RESTORED,
    SEALED,
    SINCE,
    ChainStart,
    Finding,
    Head,
    Sealer,
)
from tau_live.store.sql.connection import Row, json_of
from tau_live.store.sql.seals import (
    SINGULAR,
    DatabaseSeals,
    broken_link,
    orphans,
    other_key,
    wrong_number,
)
from tau_live.store.sqlite.connection import SqliteConnection
from tau_live.store.sqlite.schema import OUTBOX, WHOLE_SCHEMA
from tau_live.store.sqlite.sealing import LAST, NEWEST, earlier_parts_of, parts_of

NAMES = {
    "decisions": """
        select rollout_id || ':attempt-' || attempt || ':decision-' || ordinal
        from decisions join rollouts on rollouts.seq = rollout_seq where decisions.seq = ?
    """,
    "rewards": "select name || ' of ' || rollout_id from rewards where seq = ?",
    "updates": "select '#' || number from updates where number = ?",
    "policies": "select 'version ' || version from policies where version = ?",
    "audit": "select '#' || seq from audit where seq = ?",
    "gate_log": "select '#' || seq from gate_log where seq = ?",
    "arms": """
        select arms.point || ' of ' || rollout_id from arms
        join rollouts on rollouts.seq = rollout_seq where place = ?
    """,
    "rollouts": "select rollout_id from rollouts where seq = ?",
    "trials": "select point from trials where numbered(point) = ?",
    "in_service": "select point from in_service where numbered(point) = ?",
    "monitors": "select point from monitors where numbered(point) = ?",
    "alerts": "select '#' || seq from alerts where seq = ?",
    "lessons": "select name from lessons where seq = ?",
}
"""The name of a row, for people."""

NEWLY_SEALED = frozenset({"trials", "in_service", "monitors", "alerts"})
"""Tables whose existing rows are sealed when a store migrates to this schema."""

WALKED, LEAST_WALKED = 4, 256
"""How many seals are looked at at once: for each deleted row, and at least."""

FEW = 8
"""Up to one seal in so many is few."""

OLDEST = "select * from seals where place > 0 order by place limit ?"

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
"""Numbers above the largest stored one were used only by deleted rows, each of which left a seal.

For a rollout before version 2 of the schema that is the seal of a decision or reward.
"""

ORPHANS = 'select distinct "table", parent from pragma_foreign_key_check'

SCHEMA = """
select type, name, coalesce(sql, tbl_name) from sqlite_master where not (
    type in ('table', 'index') and (
        tbl_name in ('_sqlite_migrations', 'sqlite_sequence') or tbl_name glob 'sqlite_stat[1-4]'
    )
)
"""
"""Without the tables that sqlite-utils and SQLite create, and their indexes."""

Schema = Mapping[tuple[str, str], str]


class SqliteSeals(DatabaseSeals):
    """The chain of seals, and unsealed rows that contradict the sealed ones."""

    _connection: SqliteConnection
    are_copied = True

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def count_made(self) -> int:
        """Return how many rows were sealed so far."""
        return self.head().place

    def head(self) -> Head:
        """Return the end of the chain."""
        row = self._connection.row(f"select * {NEWEST}")
        if row is None:
            return Head(0, "0" * 2 * DIGEST_BYTES, "")
        return Head(row["place"], row["seal"][DIGEST_BYTES:].hex(), row["key_id"])

    def link_at(self, place: int) -> str | None:
        """Return the link at a place; ``None`` if it was pruned, or is not made yet."""
        row = self._connection.row("select seal from seals where place = ?", (place,))
        return None if row is None else row["seal"][DIGEST_BYTES:].hex()

    def newest_place(self, table: str, rows: Sequence[int]) -> int:
        """Return the place of the newest seal of some rows of a table; 0 without any.

        Args:
            table: A sealed table.
            rows: Their numbers, as ``SEALED`` has them.
        """
        return self._connection.count(
            """
            select coalesce(max(place), 0) from seals
            where kind = ? and row in (select value from json_each(?))
            """,
            (table, json_of([*rows])),
        )

    def oldest_key(self) -> str | None:
        """Return the id of the key of the oldest seal; ``None`` without a seal."""
        oldest = self._connection.row(OLDEST, (1,))
        return None if oldest is None else oldest["key_id"]

    def seal_from_here(self) -> None:
        """Seal existing rows of newly sealed tables, once in the life of a store.

        Of tables with rows for each rollout only their last number is sealed: the chain covers the
        rows from there on.
        """
        pending = "from sequences where name = 'to_seal'"
        if not self._connection.rows(f"select 1 {pending}"):
            return
        with self._connection.begin():
            if self._connection.change(f"delete {pending}") and not self._connection.rows(
                "select 1 from seals where kind like ? limit 1", (f"{SINCE}%",)
            ):  # else rows that were edited could be sealed again
                for table, known in SEALED.items():
                    number = known.number_of("t")
                    if known.since:
                        last = f"select coalesce(max({number}), 0) from {table} as t"
                        self._add(f"{SINCE}{table}", self._connection.count(last), GONE)
                    elif table in NEWLY_SEALED:
                        parts = parts_of(self._connection.raw, table, "t")
                        for row in self._connection.rows(
                            f"select {number}, row_digest({parts}) from {table} as t"
                        ):
                            self._add(table, row[0], row[1])

    def broken_links(
        self, sealer: Sealer, *, start: ChainStart | None = None
    ) -> Iterator[Finding | None]:
        """Yield the finding of each seal in order, or ``None``; then findings of the whole chain.

        Seals without a key before the first with one count: that one binds them.

        Args:
            sealer: A sealer with the key at hand.
            start: Where the seals of the key begin, as noted beside it.
        """
        if start is not None and start.place:
            link = self.link_at(start.place)
            if link not in {None, start.link}:
                yield Finding(
                    "replaced", f"seal {start.place}", "the chain is not the one that was adopted"
                )
        yield from self._links(sealer, None if start is None else start.place)

    def _links(self, sealer: Sealer, upto: int | None) -> Iterator[Finding | None]:
        """Yield the finding of each seal, then those of the chain's beginning and end."""
        own, keyless = sealer.key_id, Sealer()
        before: bytes | None = None
        last_key: str | None = None
        first = last = 0
        keyed = False
        for row in self._connection.stream("select * from seals order by place"):
            place, key_id, seal = row["place"], row["key_id"], row["seal"]
            early = not keyed and (not key_id if upto is None else place <= upto) and key_id != own
            keyed = keyed or key_id == own != ""
            is_adopted = (not first and place > 1) or (
                early and key_id  # sealed with another key
            )
            if key_id != own and not early:
                yield other_key(place, key_id, own) if key_id != last_key else None
            elif is_adopted:
                yield None
            else:
                own_sealer = keyless if early else sealer
                expected = own_sealer.seal(before, row["kind"], row["row"], seal[:DIGEST_BYTES])
                yield None if place == last + 1 and expected == seal else broken_link(place)
            first, last, last_key, before = first or place, place, key_id, seal[DIGEST_BYTES:]
        if own and last and not keyed:
            yield Finding("not_keyed", f"seals 1 to {last}", "none was made with this key")
        newest = self._connection.row("select seq from sqlite_sequence where name = 'seals'")
        if newest is not None and newest["seq"] > last:
            seals = f"seals {last + 1} to {newest['seq']}"
            yield Finding("cut_off", seals, "the end of the chain was removed")
        if first > 1 and not self._was_pruned(first):
            yield Finding(
                "no_beginning",
                f"seals 1 to {first - 1}",
                "the beginning of the chain was removed, and not by retention",
            )

    def _was_pruned(self, first: int) -> bool:
        """Return whether retention has made that seal the beginning."""
        row = self._connection.row(
            "select row, seal from seals where kind = ? order by place desc limit 1", (PRUNED,)
        )
        return row is not None and (row["row"], row["seal"][:16].hex()) == (
            first,
            self.link_at(first),
        )

    def changed_rows(self, tables: Iterable[str]) -> Iterator[Finding]:
        """Yield every row of these tables that was edited, removed or added by others."""
        for table in tables:
            yield from self._changed_rows(table)

    def _changed_rows(self, table: str) -> Iterator[Finding]:
        known, what = SEALED[table], SINGULAR[table]
        number, sealed = known.number_of("t"), known.where_in("t")
        parts = parts_of(self._connection.raw, table, "t")
        earlier = earlier_parts_of(table, "t") or parts
        for row in self._connection.rows(
            f"""
            select s.row, {number} is null as missing
            from (select row, max(place) as place from seals where kind = ? group by row) as l
            join seals as s on s.place = l.place left join {table} as t on {number} = s.row
            where ({number} is null) <> (substr(s.seal, 1, 16) = ?)
            or ({number} is not null and row_digest({parts}) <> substr(s.seal, 1, 16)
                and row_digest({earlier}) <> substr(s.seal, 1, 16))
            order by s.place
            """,
            (table, GONE),
        ):
            if row["missing"]:
                yield Finding("removed", f"{what} #{row['row']}", "it was removed, not by tau-live")
            else:
                yield Finding(
                    "edited", f"{what} {self._name(table, row['row'])}", "it was edited afterwards"
                )
        for row in self._connection.rows(
            f"""
            select {number} as row from {table} as t
            where {sealed} and {number} > (
                select coalesce(max(row), -1) from seals where kind = '{SINCE}{table}'
            )
            and {number} not in (select row from seals where kind = ?) order by 1
            """,
            (table,),
        ):
            yield Finding(
                "added", f"{what} {self._name(table, row['row'])}", "it was not stored by tau-live"
            )

    def _name(self, table: str, number: int) -> str:
        names = self._connection.rows(NAMES[table], (number,))
        return str(names[0][0]) if names else f"#{number}"

    def prune(self, gone: int) -> int:
        """Delete the beginning of the chain after ``gone`` rows were; return how many seals.

        Seals of deleted rows go. Those of rows that still exist are in the way: up to ``gone`` of
        them are made anew at the end, with the old digest, so that a row edited meanwhile is still
        found; unless ``gone`` seals went already and few of them and many of the next exist, as in
        the order of arrival. There the chain has at most two seals for each row that is kept; in
        any other order at most three for each that was kept when it was last walked through.
        """
        walked, again, beginning = 0, 0, None
        block = max(WALKED * gone, LEAST_WALKED)
        with self._connection.begin():
            while True:
                rows = self._connection.rows(OLDEST, (block + 1,))
                end, in_force = len(rows) - 1, self._in_force(rows[:-1])
                ours = [place for place, row in enumerate(rows[:-1]) if row["place"] in in_force]
                for number, place in enumerate(ours):
                    has_gone = walked + place - again >= gone and again * FEW <= gone
                    if again == gone or (has_gone and (len(ours) - number) * FEW > end - place):
                        end = place
                        break
                    seal = rows[place]
                    self._add(seal["kind"], seal["row"], seal["seal"][:DIGEST_BYTES])
                    again += 1
                if end > 0:
                    walked, beginning = walked + end, rows[end]
                    first = beginning["place"]
                    self._connection.change("delete from seals where place < ?", (first,))
                if end < len(rows) - 1 or len(rows) <= block:
                    break
            if beginning is not None:
                link = beginning["seal"][DIGEST_BYTES:]
                self._add(PRUNED, beginning["place"], link)
        return walked

    def _in_force(self, seals: Sequence[Row]) -> set[int]:
        """Return the places of the valid seals of rows that still exist, edited or not."""
        found: set[int] = set()
        for kind, of_kind in groupby(sorted(seals, key=_kind), key=_kind):
            if kind.startswith(SINCE):
                found.update(seal["place"] for seal in of_kind)
            elif kind != PRUNED:
                known = [seal for seal in of_kind if not seal["seal"].startswith(GONE)]
                digests = self._digests(kind, [seal["row"] for seal in known])
                found.update(
                    seal["place"]
                    for seal in known
                    if seal["row"] in digests and self._is_valid(seal, digests[seal["row"]])
                )
        return found

    def _digests(self, table: str, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the digest of each of these rows that still exists."""
        parts, number = parts_of(self._connection.raw, table, "t"), SEALED[table].number_of("t")
        rows = self._connection.rows(
            f"select {number} as number, row_digest({parts}) as digest from {table} as t "
            f"where {number} in (select value from json_each(?))",
            (json_of(numbers),),
        )
        return {row["number"]: row["digest"] for row in rows}

    def _is_valid(self, seal: Row, digest: bytes) -> bool:
        """Return whether a seal is the one of a row as it is, or the last one before an edit."""
        later = "select 1 from seals where kind = ? and row = ? and place > ? limit 1"
        return bool(seal["seal"].startswith(digest)) or not self._connection.rows(
            later, (seal["kind"], seal["row"], seal["place"])
        )

    def keep_restored(self, ready_seq: int) -> None:
        """Seal the ``ready_seq`` that restoring has reached; its rollout may be deleted later."""
        self._add(RESTORED, ready_seq, GONE)

    def _add(self, kind: str, row: int, digest: bytes) -> None:
        self._connection.change(
            f"""
            insert into seals (kind, row, seal, key_id)
            values (:kind, :row, resealed(({LAST}), :kind, :row, :digest), sealing_key())
            """,
            {"kind": kind, "row": row, "digest": digest},
        )

    def contradictions(self) -> Iterator[Finding]:
        """Yield every row outside the seals that cannot be what tau-live stored."""
        yield from super().contradictions()
        for row in self._connection.stream(WRONG_NUMBERS):
            yield wrong_number(row)
        for row in self._connection.stream(ORPHANS):
            yield orphans(row["table"], row["parent"])

    def foreign_schema(self) -> Iterator[Finding]:
        """Yield every table, trigger, view and index that differs from tau-live's schema."""
        present = _schema_of(self._connection.rows(SCHEMA))
        whole = expected_schema(is_spool=("table", "outbox") in present)
        for key in sorted(present.keys() | whole.keys()):
            expected, actual = whole.get(key), present.get(key)
            if actual == expected:
                continue
            detail = "it was changed" if expected and actual else "it is not tau-live's"
            yield Finding("schema", " ".join(key), detail if actual else "it was removed")


def _kind(seal: Row) -> str:
    return str(seal["kind"])


@cache
def expected_schema(*, is_spool: bool = False) -> Schema:
    """Return the SQL of tau-live's schema, by type and name."""
    with closing(sqlite3.connect(":memory:")) as raw:
        for statement in (*WHOLE_SCHEMA, *(OUTBOX if is_spool else ())):
            raw.execute(statement)
        return _schema_of(raw.execute(SCHEMA))


def _schema_of(rows: Iterable[Iterable[str]]) -> Schema:
    return {(kind, name): " ".join(sql.split()) for kind, name, sql in rows}
