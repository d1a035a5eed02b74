"""Seals of what connections commit in PostgreSQL: each has a chain, with a seal a transaction.

A seal holds the digests of all rows that its transaction wrote, and a link, which binds them to the
seal before it in the chain of the same connection. So writers have nothing in common but a sequence
of the server, whose numbers are the places of seals: one is taken when the rows that are about to
be changed are locked, and so the newest seal of a row is the one with the highest place.

Rows are known by what identifies them, not by numbers that the server gives at the end of a
transaction: those are not sealed, nor which place to learn from a rollout has, but that it has one.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import compress
from typing import NamedTuple

import msgspec

from tau_live.store.postgres.schema import kinds_of
from tau_live.store.sealing import DIGEST_BYTES, GONE, SEALED, UNSEALED, Sealer, digests_of

Key = int | str | tuple[int | str, ...]
"""What identifies a row in its table."""

Columns = Mapping[str, Sequence[object]]
"""The values of several rows, by column."""

HEAD = "head"
"""The kind of an entry that binds the end of another chain: its number and place, and its link."""

NEXT_PLACE = "select nextval('seal_places')"

STORE_ID = "select id from store_id"

INSERT_SEAL = """
insert into seals (place, chain, before, before_link, rows, link, key_id)
values (%b, %b, %b, %b, %b, %b, %b)
"""

KEYS: Mapping[str, Sequence[str]] = {
    "decisions": ("rollout_seq", "attempt", "ordinal"),
    "rewards": ("rollout_id", "decision_id", "name", "source", "key"),
    "arms": ("rollout_seq", "point"),
    "trials": ("point",),
    "in_service": ("point",),
    "monitors": ("point",),
}
"""The columns that identify a row, where they are not its number."""

OF_ROLLOUT = ("decisions", "arms")
"""The tables whose rows the server deletes with their rollout, unseen by its client."""

READY = "ready_seq"
"""The column of which only whether it is null is sealed."""


class Shape(NamedTuple):
    """How the rows of a table are sealed.

    Attributes:
        key: The columns that identify a row.
        columns: The sealed columns.
    """

    key: Sequence[str]
    columns: Sequence[str]

    @property
    def all(self) -> Sequence[str]:
        """Both, each once."""
        return [*dict.fromkeys((*self.key, *self.columns))]

    def keys(self, columns: Columns) -> list[Key]:
        """Return what identifies each row."""
        if len(self.key) == 1:
            return [*columns[self.key[0]]]  # type: ignore[list-item]  # of these types
        return [*zip(*(columns[name] for name in self.key), strict=True)]


@cache
def shape_of(table: str) -> Shape | None:
    """Return how the rows of a table are sealed; ``None`` if they are not."""
    if table not in SEALED:
        return None
    known = SEALED[table]
    number = known.number.partition("(")[2].rstrip(")") or known.number
    key = KEYS.get(table, (number,))
    names = known.columns or kinds_of(table)
    given = {number} - {*key}
    return Shape(
        key, [name for name in names if (table, name) not in UNSEALED and name not in given]
    )


class Entries(NamedTuple):
    """What is sealed of some rows.

    Attributes:
        kind: Their table, or ``HEAD``, ``PRUNED``.
        keys: What identifies each of them.
        digests: Their digests, one after the other; zeros for a row that is not sealed any more.
        place: The place of the seal that they were moved from; 0 if they are new.
    """

    kind: str
    keys: list[Key]
    digests: bytes
    place: int = 0


class Seal(NamedTuple):
    """A row of ``seals``."""

    place: int
    chain: int
    before: int
    before_link: bytes
    rows: bytes
    link: bytes
    key_id: str

    def entries(self) -> list[Entries]:
        """Return what it seals. Raises: msgspec.DecodeError."""
        return _decode(self.rows)

    def is_made_by(self, sealer: Sealer, store_id: int) -> bool:
        """Return whether its link is the one that a key makes in a store."""
        return sealer.link(store_id, *self[:5]) == self.link


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entries]).decode


def entries_of(
    table: str, columns: Columns, *, are_gone: bool = False, may_end: bool = False
) -> Entries:
    """Return what is sealed of rows.

    Args:
        table: Their table.
        columns: Their values as they are stored.
        are_gone: Whether they were deleted.
        may_end: Whether those that need no seal may have had one, which ends now.
    """
    shape = shape_of(table)
    assert shape is not None  # noqa: S101  # its callers know it
    keys = shape.keys(columns)
    if are_gone:
        return Entries(table, keys, GONE * len(keys))
    own = {name: columns[name] for name in shape.columns}
    known = _are_known(SEALED[table].known, own)
    if READY in own:
        own[READY] = [value is not None for value in own[READY]]
    if not all(known) and not may_end:
        keys = [*compress(keys, known)]
        own = {name: [*compress(column, known)] for name, column in own.items()}
        known = [True] * len(keys)
    digests = digests_of(own) if keys else []
    return Entries(
        table,
        keys,
        b"".join(digest if has else GONE for digest, has in zip(digests, known, strict=True)),
    )


def _are_known(names: Sequence[str], columns: Columns) -> list[bool]:
    """Return of each row whether it is to be sealed."""
    if not names:
        return [True] * len(next(iter(columns.values())))
    rows = zip(*(columns[name] for name in names), strict=True)
    return [any(value is not None for value in row) for row in rows]


class Form(NamedTuple):
    """A statement that writes sealed rows.

    Attributes:
        sql: The statement, which returns them.
        table: Their table.
        are_gone: Whether it deletes them.
        may_end: Whether it may change that they are to be sealed.
    """

    sql: str
    table: str
    are_gone: bool
    may_end: bool


_WRITES = re.compile(r"\s*(insert into|update|delete from) (\w+)\b(.*)", re.DOTALL)
_ASSIGNS = re.compile(r"\bset\b(.*?)(?:\bwhere\b|\bfrom\b|$)", re.DOTALL)
_ASSIGNED = re.compile(r"(\w+)\s*=")


@cache
def form_of(sql: str) -> Form | None:
    """Return the form of a statement that is to be sealed; ``None`` if nothing is."""
    match = _WRITES.match(sql)
    if match is None or (shape := shape_of(match[2])) is None:
        return None
    verb, table, rest = match.groups()
    known, is_update = SEALED[table], verb == "update"
    assigned: set[str] = set()
    if is_update and (clause := _ASSIGNS.search(rest)):
        assigned = {*_ASSIGNED.findall(clause[1])}
    if is_update and not (known.changes and assigned & {*shape.columns}):
        return None
    if "returning" not in rest:  # else it returns all columns
        names = shape.key if verb == "delete from" else shape.all
        sql = f"{sql} returning {', '.join(f'{table}.{name}' for name in names)}"
    return Form(sql, table, verb == "delete from", bool(assigned & {*known.known}))


class Chain:
    """The chain of seals of a connection.

    Args:
        sealer: Makes the links.
        store_id: The id of the store.

    Attributes:
        made: How many rows it has sealed, those of the current transaction included.
    """

    def __init__(self, sealer: Sealer, store_id: int) -> None:
        self._sealer, self._store_id = sealer, store_id
        self.made = 0
        self._entries: list[Entries] = []
        self.restart()

    def restart(self) -> None:
        """Begin another chain: whether the last transaction was committed is not known."""
        self._number = secrets.randbits(62)
        self._before, self._link = 0, b""
        self._next = (0, b"")
        self._entries.clear()

    @property
    def is_due(self) -> bool:
        """Whether the current transaction has anything to seal."""
        return bool(self._entries)

    @property
    def number(self) -> int:
        """The number of the chain."""
        return self._number

    def add(self, entries: Entries) -> None:
        """Add what the current transaction is to seal."""
        if entries.keys:
            self._entries.append(entries)
            self.made += len(entries.keys)

    def mark(self) -> int:
        """Return what ``forget`` takes to forget all that is added from now on."""
        return len(self._entries)

    def forget(self, mark: int = 0) -> None:
        """Forget what was added since a mark, or in the current transaction."""
        del self._entries[mark:]

    def next_seal(self, place: int) -> Seal:
        """Return the seal of the current transaction."""
        rows = _encode(_newest(self._entries))
        head = (place, self._number, self._before, self._link, rows)
        link = self._sealer.link(self._store_id, *head)
        self._next = place, link
        return Seal(*head, link, self._sealer.key_id)

    def go_on(self) -> None:
        """Take the transaction for committed."""
        self._before, self._link = self._next
        self._entries.clear()


def _newest(entries: Sequence[Entries]) -> Sequence[Entries]:
    """Return entries with one for each row: of a row that was written twice the last."""
    kinds = [own.kind for own in entries if not own.place]
    if len({*kinds}) == len(kinds):
        return entries
    rows: dict[str, dict[Key, bytes]] = {}
    for kind, keys, digests, place in entries:
        if not place:
            rows.setdefault(kind, {}).update(zip(keys, digests_in(digests), strict=True))
    return [
        *(moved for moved in entries if moved.place),
        *(Entries(kind, [*own], b"".join(own.values())) for kind, own in rows.items()),
    ]


def digests_in(digests: bytes) -> list[bytes]:
    """Return digests that come one after the other."""
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
