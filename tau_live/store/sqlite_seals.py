"""The chain of seals in SQLite: its head, what contradicts it, and its forgotten beginning."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from sqlite3 import Row
from typing import NamedTuple

from tau_live.errors import StoreUnavailableError
from tau_live.store.connection import Connection
from tau_live.store.sealing import (
    DIGEST_BYTES,
    GONE,
    LAST,
    NEWEST,
    PRUNED,
    RESTORED,
    SEALED,
    SINCE,
    Begins,
    Sealer,
    earlier_parts_of,
    keep_beginning,
    known_beginning,
    parts_of,
)

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
}
"""How a row is named for people."""

SINGULAR = {
    "decisions": "decision",
    "rewards": "reward",
    "updates": "update",
    "policies": "policy",
    "audit": "line of the audit",
    "gate_log": "line of the gate's history",
    "arms": "assignment",
    "rollouts": "rollout",
    "trials": "trial",
    "in_service": "version in service",
    "monitors": "monitor",
    "alerts": "alert",
}

NEWLY_SEALED = frozenset({"trials", "in_service", "monitors", "alerts"})
"""What was stored before it was sealed, and is sealed when a store comes to this schema."""

OLDEST = "select * from seals where place > 0 order by place limit ?"


class Head(NamedTuple):
    """The end of the chain.

    Attributes:
        place: The number of its last seal; 0 for an empty one.
        link: What the whole of it comes to, in hexadecimal.
        key_id: Names the key that it was sealed with; empty for none.
    """

    place: int
    link: str
    key_id: str

    def __str__(self) -> str:
        return f"{self.place}:{self.link}"


class Finding(NamedTuple):
    """Something that contradicts the chain.

    Attributes:
        code: What kind of thing.
        what: The row or seal concerned, by name.
        detail: A sentence.
    """

    code: str
    what: str
    detail: str


class SqliteSeals:
    """The chain of seals."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def head(self) -> Head:
        """Return the end of the chain."""
        row = self._connection.row(f"select * {NEWEST}")
        if row is None:
            return Head(0, "0" * 2 * DIGEST_BYTES, "")
        return Head(row["place"], row["seal"][DIGEST_BYTES:].hex(), row["key_id"])

    def count(self) -> int:
        """Return how many seals there are."""
        return self._connection.count("select count(*) from seals")

    def count_without(self, sealer: Sealer) -> int:
        """Return how many seals were made without this key."""
        return self._connection.count(
            "select count(*) from seals where key_id <> ?", (sealer.key_id,)
        )

    def link_at(self, place: int) -> str | None:
        """Return the link at a place; ``None`` where there is none any more, or not yet."""
        row = self._connection.row("select seal from seals where place = ?", (place,))
        return None if row is None else row["seal"][DIGEST_BYTES:].hex()

    def begin_with(self, sealer: Sealer, key_file: Path | None) -> None:
        """Keep beside the key where its seals begin in this chain, when they begin.

        A chain that had the key and begins without it is another one: it was put in its place.

        Raises:
            StoreUnavailableError: The chain begins without the key, although it had it.
        """
        if key_file is None:
            return
        path = self._connection.path
        oldest = self._connection.row(OLDEST, (1,))
        is_ours = oldest is None or oldest["key_id"] == sealer.key_id
        known = known_beginning(key_file, path)
        if known is None:
            head = self.head()
            begins = Begins() if is_ours else Begins(head.place, head.link)
            with suppress(OSError):  # a key may be mounted read-only
                keep_beginning(key_file, path, begins)
        elif not is_ours and (not known.place or self.link_at(known.place) != known.link):
            raise StoreUnavailableError(
                f"store '{path}' is sealed from its beginning without the key "
                f"'{key_file}', which had sealed it: another store was put in its place. "
                "Put the right one back, or look at this one with `tau-live verify` and take it "
                "over with `tau-live verify --adopt --reason TEXT`"
            )

    def seal_from_here(self) -> None:
        """Seal what decides and was stored before that was sealed, once in the life of a store.

        Of what is stored for each rollout only where it ends is sealed: the chain holds from there.
        """
        pending = "from sequences where name = 'to_seal'"
        if not self._connection.rows(f"select 1 {pending}"):
            return
        with self._connection.begin():
            if self._connection.change(f"delete {pending}") and not self._connection.rows(
                "select 1 from seals where kind like ? limit 1", (f"{SINCE}%",)
            ):  # else somebody would have rows sealed that were edited
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
        self, sealer: Sealer, *, begins: Begins | None = None
    ) -> Iterator[Finding | None]:
        """Yield, for each seal in order, what is wrong with it, or ``None``; then of the whole.

        What was sealed without a key before the first with one counts: that one binds it.

        Args:
            sealer: With the key at hand.
            begins: Where the seals of the key begin, as is known beside it.
        """
        if begins is not None and begins.place:
            held = self.link_at(begins.place)
            if held not in {None, begins.link}:
                yield Finding(
                    "replaced", f"seal {begins.place}", "the chain is not the one that was adopted"
                )
        check = _Check(sealer, begins)
        for row in self._connection.stream("select * from seals order by place"):
            yield check.next(row)
        if sealer.key_id and check.last and not check.keyed:
            yield Finding("not_keyed", f"seals 1 to {check.last}", "none was made with this key")
        yield from self._ends(check.last, check.begins)

    def _ends(self, last: int, begins: int) -> Iterator[Finding]:
        """Yield what is wrong with how the chain begins and ends."""
        given = self._connection.row("select seq from sqlite_sequence where name = 'seals'")
        if given is not None and given["seq"] > last:
            yield Finding(
                "cut_off",
                f"seals {last + 1} to {given['seq']}",
                "the end of the chain was removed",
            )
        if begins > 1:
            told = self._connection.row(
                "select row, seal from seals where kind = ? order by place desc limit 1", (PRUNED,)
            )
            held = self.link_at(begins)
            if told is None or told["row"] != begins or told["seal"][:16].hex() != held:
                yield Finding(
                    "no_beginning",
                    f"seals 1 to {begins - 1}",
                    "the beginning of the chain was removed, and not by retention",
                )

    def changed_rows(self, table: str) -> Iterator[Finding]:
        """Yield every row of a table that was edited, removed or added by somebody else."""
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
        found = self._connection.rows(NAMES[table], (number,))
        return str(found[0][0]) if found else f"#{number}"

    def prune(self, steps: int) -> int:
        """Forget the beginning of the chain as far as its rows are gone; return how many seals.

        A row that is still there is sealed anew at the end, with the digest that it had, so that
        a row edited meanwhile is still found. The beginning is walked in steps: as long as several
        are taken for each row that goes, the chain stays as long as what is kept.
        """
        with self._connection.begin():
            rows = self._connection.rows(OLDEST, (steps + 1,))
            walked = rows[:-1]  # the last is the new beginning
            for row in walked:
                if row["kind"] != PRUNED and self._is_in_force(row):
                    self._add(row["kind"], row["row"], row["seal"][:16])
            if not walked:
                return 0
            self._connection.change("delete from seals where place < ?", (rows[-1]["place"],))
            self._add(PRUNED, rows[-1]["place"], rows[-1]["seal"][16:])
        return len(walked)

    def _is_in_force(self, seal: Row) -> bool:
        """Say whether a seal is what is known of a row that is still there, edited or not."""
        table, digest = seal["kind"], seal["seal"][:16]
        if table.startswith(SINCE):
            return True
        parts = parts_of(self._connection.raw, table, "t")
        found = self._connection.row(
            f"select row_digest({parts}) as digest from {table} as t "
            f"where {SEALED[table].number_of('t')} = ?",
            (seal["row"],),
        )
        if found is None or digest == GONE:
            return False
        later = "select 1 from seals where kind = ? and row = ? and place > ? limit 1"
        return found["digest"] == digest or not self._connection.rows(
            later, (table, seal["row"], seal["place"])
        )

    def keep_restored(self, ready_seq: int) -> None:
        """Seal which place of learning an archive has leapt to; its rollout may be forgotten."""
        self._add(RESTORED, ready_seq, GONE)

    def _add(self, kind: str, row: int, digest: bytes) -> None:
        self._connection.change(
            f"""
            insert into seals (kind, row, seal, key_id)
            values (:kind, :row, resealed(({LAST}), :kind, :row, :digest), sealing_key())
            """,
            {"kind": kind, "row": row, "digest": digest},
        )


class _Check:
    """Walks the chain.

    Attributes:
        begins: The first place; 0 for an empty chain.
        last: The last place so far.
        keyed: Whether a seal was made with the key at hand.
    """

    def __init__(self, sealer: Sealer, begins: Begins | None) -> None:
        self._sealer = sealer
        self._upto = None if begins is None else begins.place
        self._without = Sealer()
        self._before: bytes | None = None
        self._key_id: str | None = None
        self.begins = 0
        self.last = 0
        self.keyed = False

    def next(self, row: Row) -> Finding | None:
        """Return what is wrong with the next seal."""
        place, key_id = row["place"], row["key_id"]
        changed, self._key_id = key_id != self._key_id, key_id
        first, before, last = not self.begins, self._before, self.last
        self.begins = self.begins or place
        self._before, self.last = row["seal"][DIGEST_BYTES:], place
        early = not self.keyed and (not key_id if self._upto is None else place <= self._upto)
        early = early and key_id != self._sealer.key_id
        self.keyed = self.keyed or key_id == self._sealer.key_id != ""
        if key_id != self._sealer.key_id and not early:
            return _other_key(place, key_id, self._sealer.key_id) if changed else None
        if (first and place > 1) or (early and key_id):  # adopted: another key had sealed it
            return None
        maker = self._without if early else self._sealer
        made = maker.seal(before, row["kind"], row["row"], row["seal"][:DIGEST_BYTES])
        if place == last + 1 and made == row["seal"]:
            return None
        detail = "it does not follow the one before: one of them was changed, removed or moved"
        return Finding("broken_link", f"seal {place}", detail)


def _other_key(place: int, key_id: str, own: str) -> Finding:
    was = f"with the key {key_id}" if key_id else "without a key"
    now = f"the key at hand is {own}" if own else "no key is at hand"
    return Finding("other_key", f"seal {place}", f"it was made {was}; {now}")
