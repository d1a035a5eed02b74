"""Every row that learning or an operator's record depends on is sealed into one chain, as stored.

A seal holds the digest of its row and a link: the digest of that and of the link before. The order
of the chain is that of the commits, whatever process wrote. Triggers of our own connections make
the seals, so that no statement of ours can forget to; what anybody else does leaves none, and is
found. With a key the links are keyed: who has the file but not the key cannot make one.

Source: Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live.errors import StoreUnavailableError
from tau_live.machine.private_files import OTHERS, make_folders, mode_of, narrowed, opened_new


class Sealed(NamedTuple):
    """How the rows of a table are sealed.

    Attributes:
        number: What numbers a row.
        columns: What of it is sealed; empty for all of it.
        known: Columns of which one is known in a row that is sealed; empty for all rows.
        changes: Whether rows are changed after they are stored.
        since: Whether rows that were stored before the table was sealed stay without a seal.
        earlier: What of it an earlier version sealed; a seal of that alone is sound.
    """

    number: str
    columns: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    changes: bool = False
    since: bool = False
    earlier: tuple[str, ...] = ()

    def number_of(self, row: str) -> str:
        """Return the number of a row as SQL."""
        name, _, column = self.number.rpartition("(")
        return f"{name}({row}.{column}" if name else f"{row}.{column}"

    def where_in(self, row: str) -> str:
        """Return the condition for a row as SQL; always true where all are sealed."""
        known = " or ".join(f"{row}.{column} is not null" for column in self.known)
        return f"({known})" if known else "true"


_EARNED = ("rollout_id", "ready_seq", "total_reward", "run_reward", "left_out")

SEALED: Mapping[str, Sealed] = {
    "decisions": Sealed("seq"),
    "rewards": Sealed("seq"),
    "updates": Sealed("number"),
    "policies": Sealed("version"),
    "audit": Sealed("seq"),
    "gate_log": Sealed("seq"),
    "arms": Sealed("place", since=True),
    "rollouts": Sealed(
        "seq",
        (*_EARNED, "status", "metadata"),
        known=("ready_seq", "left_out"),
        changes=True,
        since=True,
        earlier=_EARNED,
    ),
    "trials": Sealed("numbered(point)", changes=True),
    "in_service": Sealed("numbered(point)", changes=True),
    "monitors": Sealed("numbered(point)", changes=True),
    "alerts": Sealed("seq"),
}
"""The tables whose rows are sealed."""

NOT_SEALED = (
    "attempts, spans, prompts, the times, names and contents of rollouts (but their metadata), all "
    "of a rollout until its reward is settled, which of them wait for one, when a reward came, "
    "costs in the order of learning, failures in a row, the last error and the revision of the "
    "gate, which alerts are over or limited, the queue, leases, resources, counters and totals, "
    "SQLite's numbering, the list of migrations"
)
"""What is stored and not sealed, as people are to know it."""

UNSEALED = frozenset({("rewards", "at")})
"""Given again, the same reward becomes a later one."""

SINCE = "since:"
"""Begins the kind of a seal that holds the last row of a table before that was sealed."""

RESTORED = f"{SINCE}restored"
"""The kind of a seal that holds up to where an archive has put the places of learning forward."""

PRUNED = "pruned"
"""The kind of a seal that says where the chain begins since its beginning was forgotten."""

DIGEST_BYTES = 16
GONE = b"\0" * DIGEST_BYTES
"""Stands in place of a digest: the row was deleted by us."""

_PLAIN = frozenset({int, str})
"""Classes of values that are the same bytes where they are equal; 0.0 and -0.0 are not."""

_encode = msgspec.msgpack.Encoder().encode
_KEY_BYTES = 32
_LEAST_KEY_BYTES = 16
MOST_KEY_BYTES = 4096

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
"""Its part of the schema."""

AT_ONCE = "temp.sealed_at_once"
"""While a row is in it, triggers seal nothing that is inserted: ``many_seals`` does."""

NEWEST = "from seals where place > 0 order by place desc limit 1"
"""Its condition is always true, and lets SQLite (and who reads its plans) see a search."""

LAST = f"select substr(seal, 17) {NEWEST}"


class Sealer:
    """Makes seals, with a key or without.

    Args:
        key: Empty for none; at most 64 bytes.

    Attributes:
        key_id: Names the key without telling anything of it; empty without one.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self.key_id = blake2b(b"id", key=key, digest_size=6).hexdigest() if key else ""

    def seal(self, before: bytes | None, kind: str, row: int, digest: bytes) -> bytes:
        """Return digest and link of a row that follows the link ``before``."""
        told = _encode((before or b"", kind, row, digest, self.key_id))
        return digest + blake2b(told, key=self._key, digest_size=DIGEST_BYTES).digest()


def digest_of(*parts: object) -> bytes:
    """Return the digest of a row: names and values in turn, without those that are null."""
    return digest_of_pairs(zip(parts[::2], parts[1::2], strict=True))


def digest_of_pairs(pairs: Iterable[tuple[object, object]]) -> bytes:
    """Return the digest of a row of names and values."""
    return _digest(_encode([pair for pair in pairs if pair[1] is not None]))


def digests_of(columns: Mapping[str, Sequence[object]]) -> list[bytes]:
    """Return the digests of several rows, given their columns by name.

    Most columns hold the same in many rows, and are encoded once: a third of the time.
    """
    size = len(next(iter(columns.values())))
    known = {name: column for name, column in columns.items() if column.count(None) < size}
    partly = [column for column in known.values() if None in column]
    heads = [_array_head(len(known))] * size
    if partly:
        nulls = (row.count(None) for row in zip(*partly, strict=True))
        heads = [_array_head(len(known) - count) for count in nulls]
    pieces = [_encoded(name, column) for name, column in known.items()]
    return [_digest(b"".join(parts)) for parts in zip(heads, *pieces, strict=True)]


def _encoded(name: str, column: Sequence[object]) -> Iterable[bytes]:
    """Return each value of a column with its name, as it stands in what is digested."""
    first = column[0]
    if type(first) in _PLAIN and column.count(first) == len(column):
        return repeat(_encode((name, first)), len(column))
    if None in column:
        return [b"" if value is None else _encode((name, value)) for value in column]
    return map(_encode, zip(repeat(name), column))


def _array_head(length: int) -> bytes:
    """Return how msgpack begins an array: the encoder has no call for that alone."""
    return bytes([0x90 | length]) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


def _digest(told: bytes) -> bytes:
    return blake2b(told, digest_size=DIGEST_BYTES).digest()


def number_of(name: str | None) -> int | None:
    """Return the number that stands for a row without one in its seals; ``None`` for no row."""
    if name is None:
        return None
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")


class Sealing(NamedTuple):
    """How a connection seals what it writes.

    Attributes:
        sealer: Makes the seals.
        columns: The sealed columns of each table, in their order, and the kind of each.
    """

    sealer: Sealer
    columns: Mapping[str, Mapping[str, str]]


def install(raw: sqlite3.Connection, sealer: Sealer) -> Sealing:
    """Let a connection that writes seal what it writes.

    Raises:
        sqlite3.Error: It could not be set up.
    """
    columns = {table: columns_of(raw, table) for table in SEALED}

    def sealed(before: bytes | None, kind: str, row: int, *values: object) -> bytes:
        digest = digest_of_pairs(zip(columns[kind], values, strict=True)) if values else GONE
        return sealer.seal(before, kind, row, digest)

    raw.create_function("sealed", -1, sealed)
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
            if event == changed:  # what was sealed and no longer has to be has changed, too
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
    return Sealing(sealer, columns)


def parts_of(raw: sqlite3.Connection, table: str, which: str) -> str:
    """Return the arguments of ``row_digest`` for a row of a table, as SQL."""
    return _parts(columns_of(raw, table), which)


def earlier_parts_of(table: str, which: str) -> str | None:
    """Return what they were where an earlier version sealed less; ``None`` where it did not."""
    return _parts(SEALED[table].earlier, which) or None


def _parts(columns: Iterable[str], which: str) -> str:
    return ", ".join(f"'{column}', {which}.{column}" for column in columns)


def columns_of(raw: sqlite3.Connection, table: str) -> Mapping[str, str]:
    """Return which columns of a table are sealed, in their order, and the kind of each."""
    kinds = {row[1]: row[2] for row in raw.execute(f"pragma table_info({table})")}
    columns = SEALED[table].columns or kinds
    return {column: kinds[column] for column in columns if (table, column) not in UNSEALED}


class Begins(NamedTuple):
    """Where the seals of a key begin in a store's chain.

    Attributes:
        place: The last seal before them; 0 where the chain begins with them.
        link: Its link, in hexadecimal.
    """

    place: int = 0
    link: str = ""


def known_beginning(key_file: Path | None, store: Path) -> Begins | None:
    """Return where a key's seals begin in a store, as is known beside the key.

    ``None`` without a key, and for a store that was never sealed with it.

    Raises:
        StoreUnavailableError: What is known beside the key cannot be read.
    """
    if key_file is None:
        return None
    found = None
    try:
        for line in _beside(key_file).read_bytes().splitlines():
            known = msgspec.json.decode(line, type=_Chain)
            if known.store == str(store.resolve()):
                found = Begins(known.place, known.link)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        beside = _beside(key_file)
        raise StoreUnavailableError(f"'{beside}' cannot be read: {error}") from error
    return found


def keep_beginning(key_file: Path, store: Path, begins: Begins) -> None:
    """Keep beside a key where its seals begin in a store.

    Raises:
        OSError: Nothing can be written there.
    """
    line = msgspec.json.encode(_Chain(str(store.resolve()), *begins)) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(_beside(key_file), flags, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


class _Chain(msgspec.Struct, frozen=True):
    store: str
    place: int
    link: str


def _beside(key_file: Path) -> Path:
    return key_file.with_name(f"{key_file.name}.chains")


def key_in(path: Path | None, *, make: bool = False) -> bytes:
    """Return the key that a file holds; empty without a file.

    Args:
        path: The file; ``None`` is no key.
        make: Whether to make one that is not there, for its owner's eyes alone.

    Raises:
        StoreUnavailableError: It is not there, cannot be read, belongs to somebody else, is too
            short, or is no key.
    """
    if path is None:
        return b""
    try:
        if make and not path.exists():
            make_folders(path.absolute().parent)
            with open(opened_new(path), "wb") as file:  # noqa: PTH123  # a descriptor
                file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
        return _key_of(path)
    except OSError as error:
        why = error.strerror or error
        raise StoreUnavailableError(f"audit key '{path}' cannot be read: {why}") from error


def _key_of(path: Path) -> bytes:
    """Return the key that a file holds, which others may read no longer.

    Of a file that holds more than one word nobody knows whether it is one: it is left as it is.
    """
    mode = mode_of(path) or 0
    if path.exists() and not path.is_file():
        raise StoreUnavailableError(f"audit key '{path}' is no file")
    if path.stat().st_size > MOST_KEY_BYTES:
        raise StoreUnavailableError(
            f"audit key '{path}' is none: it holds more than {MOST_KEY_BYTES} bytes"
        )
    held = path.read_bytes().strip()
    if len(held) < _LEAST_KEY_BYTES:
        raise StoreUnavailableError(
            f"audit key '{path}' must hold at least {_LEAST_KEY_BYTES} bytes, got {len(held)}"
        )
    if held.startswith(b"SQLite format 3"):
        raise StoreUnavailableError(f"audit key '{path}' is none: it is a database")
    if mode & OTHERS and len(held.split()) > 1:
        raise StoreUnavailableError(
            f"audit key '{path}' does not look like one, and others can use it (mode {mode:o}): "
            "name another file, or `chmod 600` it"
        )
    narrowed(path)
    return blake2b(held, digest_size=_KEY_BYTES).digest()
