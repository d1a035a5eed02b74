"""The chains of seals in PostgreSQL: what contradicts them, and pruning their beginnings.

Seals are walked in the order of their places, in which each chain is in its own order. What is
compared is of one snapshot, and is compared here: the server has no key.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import msgspec

from tau_live.store.postgres.connection import PostgresConnection
from tau_live.store.postgres.schema import OF_ROLLOUTS, statements
from tau_live.store.postgres.sealing import (
    HEAD,
    KEYS,
    OF_ROLLOUT,
    STORE_ID,
    Entries,
    Key,
    Seal,
    Shape,
    digests_in,
    entries_of,
    shape_of,
)
from tau_live.store.sealing import (
    DIGEST_BYTES,
    GONE,
    NOT_SEALED,
    PRUNED,
    SEALED,
    ChainStart,
    Finding,
    Head,
    Sealer,
)
from tau_live.store.sql.seals import (
    SINGULAR,
    DatabaseSeals,
    broken_link,
    orphans,
    other_key,
    wrong_number,
)

WALK = "select place, chain, before, before_link, rows, link, key_id from seals order by place"

HEADS = """
with recursive heads as (
    (select chain, place, link from seals order by chain desc, place desc limit 1)
    union all
    select earlier.* from heads, lateral (
        select seals.chain, seals.place, seals.link from seals
        where seals.chain < heads.chain order by seals.chain desc, seals.place desc limit 1
    ) as earlier
)
select chain, place, link from heads
"""
"""The newest seal of each chain, each found by the index."""

EVERY_S = 60.0
"""How often the ends of all chains are sealed."""

WRONG_NUMBERS = """
select numbered.name, sequences.value, numbered.given, numbered.most from (
    select 'ready' as name, greatest(
        (select coalesce(max(ready_seq), 0) from rollouts),
        (select coalesce(max(last_ready), 0) from updates)
    ) as given, 9223372036854775807 as most
    union all
    select 'policy', coalesce(max(version), 0), coalesce(max(version), 0) from policies
) as numbered left join sequences on sequences.name = numbered.name
where sequences.value is null or sequences.value < numbered.given
or sequences.value > numbered.most
"""

BLOCK = 2_000
"""How many rows are compared at once."""

WALKED_FIRST, WALKED = 4, 256
"""How many seals are looked at at once where they are pruned: at first, and twice as many each time
up to so many. One may be of hundreds of rows, each of which is looked up."""

SLICE = 1_000_000
"""About how many rows are kept in memory at once, some 250 bytes each."""

DEFINED = """
select case relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence'
    else 'index' end as kind, relname::text as name, '' as body
from pg_class where relnamespace = {0} and relkind in ('r', 'v', 'S', 'i', 'm', 'p', 'f')
and not exists (
    select 1 from pg_depend where objid = pg_class.oid and deptype in ('i', 'a')
    and classid = 'pg_class'::regclass and relkind in ('i', 'S') and refclassid in (
        'pg_class'::regclass, 'pg_constraint'::regclass
    ) and (relkind = 'S' or refclassid = 'pg_constraint'::regclass)
)
union all
select 'trigger', tgname::text, '' from pg_trigger join pg_class on pg_class.oid = tgrelid
where relnamespace = {0} and not tgisinternal and tgenabled = 'O'
union all
select case prokind when 'a' then 'aggregate' else 'function' end,
    proname::text, case prokind when 'a' then '' else prosrc end
from pg_proc where pronamespace = {0}
union all
select 'rule', rulename::text, '' from pg_rewrite join pg_class on pg_class.oid = ev_class
where relnamespace = {0} and rulename <> '_RETURN'
""".replace("{0}", "(select relnamespace from pg_class where oid = 'rollouts'::regclass)")
"""What the schema of a store holds, with the bodies of functions."""

_CREATE = re.compile(
    r"\s*create (?:unique )?(table|view|index|sequence|trigger|function|aggregate) (\w+)"
    r"(?:.*?\$\$(.*)\$\$)?",
    re.DOTALL | re.IGNORECASE,
)


class PostgresSeals(DatabaseSeals):
    """The chains of seals, one for each connection that wrote, and what contradicts them."""

    _connection: PostgresConnection
    not_covered = NOT_SEALED.replace("SQLite's numbering", "the numbers that the server gives")

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._kept_at = float("-inf")  # seconds of the connection's clock
        self._kept: dict[int, int] = {}  # the place of the last sealed end of each chain

    def head(self) -> Head:
        """Return the newest seal; its place is that among all chains."""
        row = self._connection.row(
            "select place, link, key_id from seals order by place desc limit 1"
        )
        if row is None:
            return Head(0, "0" * 2 * DIGEST_BYTES, "")
        return Head(row["place"], row["link"].hex(), row["key_id"])

    def oldest_key(self) -> str | None:
        """Return the id of the key of the oldest seal; ``None`` without a seal."""
        row = self._connection.row("select key_id from seals order by place limit 1")
        return None if row is None else row["key_id"]

    def count_made(self) -> int:
        """Return how many rows this connection has sealed so far."""
        return self._connection.chain.made

    def link_at(self, place: int) -> str | None:
        """Return the link at a place; ``None`` if it was pruned, or is not made yet."""
        row = self._connection.row("select link from seals where place = ?", (place,))
        return None if row is None else row["link"].hex()

    def newest_place(self, table: str, rows: Sequence[int]) -> int:
        """Return the place of the newest seal of some rows of a table; 0 without any.

        Args:
            table: A sealed table.
            rows: Their numbers, as ``SEALED`` has them.
        """
        shape, number = _shape(table), SEALED[table].number
        if table not in KEYS:
            wanted: set[Key] = {*rows}
        else:
            known = self._connection.rows_bound(
                f"select {', '.join(shape.key)} from {table} where {number} = any (%b::bigint[])",
                ([*rows],),
            )
            wanted = {tuple(row) for row in known}
        newest = 0
        with self._connection.reading():
            for seal in self._seals():
                for kind, keys, _, place in _entries(seal):
                    if kind == table and not wanted.isdisjoint(keys):
                        newest = max(newest, place or seal.place)
        return newest

    def keep_heads(self) -> None:
        """Seal the ends of all chains that have gone on, once a minute, alone.

        Whoever cuts off the end of a chain would have to cut off that of this one, too.
        """
        now = self._connection.now()
        if 0.0 <= now - self._kept_at < EVERY_S:
            return
        chain = self._connection.chain
        with self._connection.begin():
            rows = [
                row
                for row in self._connection.rows(HEADS)
                if row["chain"] != chain.number and self._kept.get(row["chain"]) != row["place"]
            ]
            keys: list[Key] = [(row["chain"], row["place"]) for row in rows]
            chain.add(Entries(HEAD, keys, b"".join(row["link"] for row in rows)))
        self._kept.update({row["chain"]: row["place"] for row in rows})
        self._kept_at = now

    def broken_links(
        self, sealer: Sealer, *, start: ChainStart | None = None
    ) -> Iterator[Finding | None]:
        """Yield the finding of each seal in order, or ``None``; then findings of whole chains.

        Seals without a key before the first with one count if one with the key binds the end of
        their chain.

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
        store_id = self._connection.count(STORE_ID)
        walk = _Walk(sealer, None if start is None else start.place, store_id)
        with self._connection.reading():
            for seal in self._seals():
                yield walk.pass_by(seal)
        yield from walk.findings()

    def changed_rows(self, tables: Iterable[str]) -> Iterator[Finding]:
        """Yield every row of these tables that was edited, removed or added by others."""
        wanted = [*tables]
        with self._connection.reading():
            count = self._connection.count
            rows = sum(count(f"select count(*) from {table}") for table in wanted)
            slices = 1 + rows // SLICE
            for number in range(slices):
                comparison = _Comparison(wanted, number, slices)
                for seal in self._seals():
                    comparison.take(seal)
                for table in wanted:
                    for entries in self._rows(table):
                        comparison.compare(entries)
                    for code, key, detail in comparison.changes(table):
                        yield Finding(code, f"{SINGULAR[table]} {self._name(table, key)}", detail)

    def _seals(self) -> Iterator[Seal]:
        """Yield all seals in the order of their places, within ``reading``."""
        return (Seal(*row) for row in self._connection.stream(WALK))

    def _rows(self, table: str) -> Iterator[Entries]:
        """Yield what is to be sealed of all rows of a table; zeros for rows that need no seal."""
        names = _shape(table).all
        for columns in self._connection.column_blocks(
            f"select {', '.join(names)} from {table}", size=BLOCK
        ):
            if columns[names[0]]:
                yield entries_of(table, columns, may_end=True)

    def _name(self, table: str, key: Key) -> str:
        """Return the name of a row, for people."""
        parts = key if isinstance(key, tuple) else (key,)
        if table in (*OF_ROLLOUT, "rollouts"):
            row = self._connection.row(
                "select rollout_id from rollouts where seq = ?", (int(parts[0]),)
            )
            rollout = f"#{parts[0]}" if row is None else row["rollout_id"]
            if table == "decisions":
                return f"{rollout}:attempt-{parts[1]}:decision-{parts[2]}"
            return rollout if table == "rollouts" else f"{parts[1]} of {rollout}"
        if table == "rewards":
            return f"{parts[2]} of {parts[0]}"
        if table == "policies":
            return f"version {key}"
        return str(key) if table in KEYS else f"#{key}"

    def prune(self, gone: int) -> int:
        """Delete the beginning of the chains after ``gone`` rows were; return how many seals.

        Seals of which no row exists any more go, the oldest first. What others seal of rows that
        still exist is moved to the end, with the old digest and the old place, so that a row that
        was edited meanwhile is still found: up to ``gone`` rows, unless ``gone`` rows went already
        and most of the next exist, as in the order of arrival.
        """
        connection, chain = self._connection, self._connection.chain
        walked, dropped, moved, ended, look = 0, 0, 0, False, WALKED_FIRST
        with connection.begin():
            while not ended:
                seals = [Seal(*row) for row in connection.rows(f"{WALK} limit ?", (look,))]
                ended, look, last = len(seals) < look, min(2 * look, WALKED), 0
                for seal, kept in zip(seals, self._kept_of(seals), strict=True):
                    live = sum(len(entries.keys) for entries in kept)
                    dead = sum(len(entries.keys) for entries in _entries(seal)) - live
                    if moved + live > gone or (dropped >= gone and live > dead):
                        ended = True
                        break
                    for entries in kept:
                        chain.add(entries)
                    dropped, moved, last = dropped + dead, moved + live, seal.place
                    walked += 1
                if last:
                    connection.change("delete from seals where place <= ?", (last,))
                    chain.add(Entries(PRUNED, [last + 1], GONE))
        return walked

    def _kept_of(self, seals: Sequence[Seal]) -> list[list[Entries]]:
        """Return what each of some seals says of rows that still exist."""
        keys: dict[str, set[Key]] = {}
        for seal in seals:
            for entries in _entries(seal):
                keys.setdefault(entries.kind, set()).update(entries.keys)
        existing = {kind: self._existing_keys(kind, own) for kind, own in keys.items()}
        return [
            [
                kept
                for entries in _entries(seal)
                if (kept := _entries_kept(seal, entries, existing[entries.kind])).keys
            ]
            for seal in seals
        ]

    def _existing_keys(self, table: str, keys: set[Key]) -> set[Key]:
        """Return those keys of a table whose rows exist; of other kinds none."""
        if table not in SEALED:
            return set()
        shape, rows_bound = _shape(table), self._connection.rows_bound
        if table not in (*OF_ROLLOUT, "rewards"):
            [name] = shape.key
            type_ = "text" if table in KEYS else "bigint"
            rows = rows_bound(
                f"select {name} from {table} where {name} = any (%b::{type_}[])", ([*keys],)
            )
            return {row[0] for row in rows}
        first = [*{key[0] for key in keys if isinstance(key, tuple)}]
        if table == "rewards":
            rows = rows_bound(
                f"select {', '.join(shape.key)} from rewards where rollout_id = any (%b::text[])",
                (first,),
            )
            return keys & {tuple(row) for row in rows}
        rows = rows_bound("select seq from rollouts where seq = any (%b::bigint[])", (first,))
        seqs = {row[0] for row in rows}
        return {key for key in keys if isinstance(key, tuple) and key[0] in seqs}

    def keep_restored(self, ready_seq: int) -> None:
        """Do nothing: gaps in the numbering are not looked for here."""

    def contradictions(self) -> Iterator[Finding]:
        """Yield every row outside the seals that cannot be what tau-live stored."""
        yield from super().contradictions()
        for row in self._connection.rows(WRONG_NUMBERS):
            yield wrong_number(row)
        for table in OF_ROLLOUTS:
            if self._connection.rows(
                f"select 1 from {table} where not exists "
                f"(select 1 from rollouts where rollouts.seq = {table}.rollout_seq) limit 1"
            ):
                yield orphans(table, "rollouts")

    def foreign_schema(self) -> Iterator[Finding]:
        """Yield every table, trigger, view, index and function that differs from tau-live's."""
        present = sorted(tuple(row) for row in self._connection.rows(DEFINED))
        expected = [*_definitions()]
        for part in present:
            if part in expected:
                expected.remove(part)
            else:
                known = any(part[:2] == other[:2] for other in expected)
                detail = "it was changed" if known else "it is not tau-live's"
                yield Finding("schema", " ".join(part[:2]), detail)
        names = {part[:2] for part in present}
        for missing in expected:
            if missing[:2] not in names:
                yield Finding("schema", " ".join(missing[:2]), "it was removed")


@cache
def _definitions() -> Sequence[tuple[str, str, str]]:
    """Return what tau-live's schema holds, as ``DEFINED``."""
    matches = [match for sql in statements() if (match := _CREATE.match(sql))]
    return sorted((match[1].lower(), match[2], match[3] or "") for match in matches)


def _shape(table: str) -> Shape:
    shape = shape_of(table)
    assert shape is not None  # noqa: S101  # all tables here are sealed
    return shape


def _entries(seal: Seal) -> list[Entries]:
    """Return what a seal says; nothing if it is damaged, which its link shows."""
    try:
        return seal.entries()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


def _entries_kept(seal: Seal, entries: Entries, existing: set[Key]) -> Entries:
    """Return what a seal says of rows that exist, to be moved."""
    pairs = [
        (key, digest)
        for key, digest in zip(entries.keys, digests_in(entries.digests), strict=True)
        if key in existing and digest != GONE
    ]
    return Entries(
        entries.kind,
        [key for key, _ in pairs],
        b"".join(digest for _, digest in pairs),
        entries.place or seal.place,
    )


class _Walk:
    """A walk over all seals in the order of their places.

    Args:
        sealer: A sealer with the key at hand.
        upto: The last place before the seals of the key; ``None`` if it is not known.
        store_id: The id of the store.
    """

    def __init__(self, sealer: Sealer, upto: int | None, store_id: int) -> None:
        self._sealer, self._upto, self._store_id = sealer, upto, store_id
        self._keyless = Sealer()
        self._ends: dict[int, tuple[int, bytes]] = {}  # place and link, by chain
        self._unbound: dict[int, int] = {}  # the last place of chains before the key
        self._cut: list[tuple[int, int]] = []  # seals whose one before is not there, and its place
        self._ended: list[tuple[int, int]] = []  # ends that are not there: chain and place
        self._others: set[tuple[int, str]] = set()
        self._first = self._last = 0
        self._is_keyed = False
        self._begins = 0

    def pass_by(self, seal: Seal) -> Finding | None:
        """Return what is wrong with the next seal."""
        own, place = self._sealer.key_id, seal.place
        is_early = seal.key_id != own and (
            place <= self._upto
            if self._upto is not None
            else not self._is_keyed and not seal.key_id
        )
        self._is_keyed = self._is_keyed or seal.key_id == own != ""
        self._first, self._last = self._first or place, place
        before = self._ends.get(seal.chain, (0, b""))
        self._ends[seal.chain] = place, seal.link
        if seal.key_id != own and not is_early:
            known = (seal.chain, seal.key_id) in self._others
            self._others.add((seal.chain, seal.key_id))
            return None if known else other_key(place, seal.key_id, own)
        if is_early and own:
            self._unbound[seal.chain] = place
        if not (is_early and seal.key_id):  # else it was sealed with another key, and adopted
            maker = self._keyless if is_early else self._sealer
            if not seal.is_made_by(maker, self._store_id):
                return broken_link(place)
            if before != (seal.before, seal.before_link):
                if before[0]:
                    return broken_link(place)
                self._cut.append((place, seal.before))
        self._take(seal)
        return None

    def _take(self, seal: Seal) -> None:
        """Take what a sound seal says of chains."""
        for kind, keys, digests, _ in _entries(seal):
            if kind == PRUNED:
                self._begins = max(self._begins, *(int(str(key)) for key in keys))
            elif kind == HEAD:
                for key, link in zip(keys, digests_in(digests), strict=True):
                    chain, place = (int(part) for part in key) if isinstance(key, tuple) else (0, 0)
                    if self._ends.get(chain) == (place, link):
                        if seal.key_id == self._sealer.key_id:
                            self._unbound.pop(chain, None)
                    else:
                        self._ended.append((chain, place))

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with whole chains."""
        if self._sealer.key_id and self._last and not self._is_keyed:
            yield Finding("not_keyed", f"seals 1 to {self._last}", "none was made with this key")
        else:
            for place in self._unbound.values():
                detail = "it was made without the key, and none with the key binds it"
                yield Finding("not_keyed", f"seal {place}", detail)
        for place, before in self._cut:
            if before >= self._begins:
                detail = "the beginning of its chain was removed, and not by retention"
                yield Finding("no_beginning", f"seal {place}", detail)
        if 0 < self._first < self._begins:
            detail = "retention had deleted it, and others have put it back"
            yield Finding("no_beginning", f"seal {self._first}", detail)
        for place in sorted({place for _, place in self._ended if place >= self._begins}):
            detail = "it was the end of a chain, and was removed or replaced"
            yield Finding("cut_off", f"seal {place}", detail)


class _Comparison:
    """Rows compared with the newest seal of each.

    Args:
        tables: Their tables.
        number: The slice of the keys to look at.
        slices: Of how many.
    """

    def __init__(self, tables: Sequence[str], number: int, slices: int) -> None:
        self._number, self._slices = number, slices
        self._sealed: dict[str, dict[Key, bytes]] = {table: {} for table in tables}
        self._gone: dict[Key, int] = {}  # places of the deletions of rollouts
        self._changes: dict[str, list[tuple[str, Key, str]]] = {table: [] for table in tables}

    def _is_wanted(self, key: Key) -> bool:
        return hash(key) % self._slices == self._number

    def take(self, seal: Seal) -> None:
        """Take the digests of a seal, each with its place before it, so that the newest counts."""
        for kind, keys, digests, moved in _entries(seal):
            if kind not in self._sealed and kind != "rollouts":
                continue
            place = moved or seal.place
            own, head = self._sealed.get(kind), place.to_bytes(8, "big")
            for key, digest in zip(keys, digests_in(digests), strict=True):
                if kind == "rollouts" and digest == GONE:
                    self._gone[key] = max(place, self._gone.get(key, 0))
                if own is not None and self._is_wanted(key):
                    own[key] = max(head + digest, own.get(key, b""))

    def compare(self, entries: Entries) -> None:
        """Compare rows of a table."""
        sealed, changes = self._sealed[entries.kind], self._changes[entries.kind]
        for key, digest in zip(entries.keys, digests_in(entries.digests), strict=True):
            if not self._is_wanted(key):
                continue
            known = sealed.pop(key, GONE)[-DIGEST_BYTES:]
            if known == GONE != digest:
                changes.append(("added", key, "it was not stored by tau-live"))
            elif known not in {GONE, digest}:
                changes.append(("edited", key, "it was edited afterwards"))

    def changes(self, table: str) -> Iterator[tuple[str, Key, str]]:
        """Yield the code, the key and the detail of what was changed, after all was compared."""
        for key, known in self._sealed[table].items():
            rollout = key[0] if isinstance(key, tuple) and table in OF_ROLLOUT else None
            gone = self._gone.get(rollout, 0) if rollout is not None else 0
            if known[-DIGEST_BYTES:] != GONE and int.from_bytes(known[:8], "big") > gone:
                yield "removed", key, "it was removed, not by tau-live"
        yield from self._changes[table]
