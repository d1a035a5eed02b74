"""Every row that learning or an operator's record depends on is sealed into one chain, as stored.

A seal holds the digest of its row and a link: the digest of that and of the link before. The order
of the chain is that of the commits, whatever process wrote. Triggers of our own connections make
the seals, so that no statement of ours can forget to; what anybody else does leaves none, and is
found. With a key the links are keyed: who has the file but not the key cannot make one.

Source: Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live.errors import StoreUnavailableError
from tau_live.machine.private_files import make_folders, narrowed, opened_new


class Sealed(NamedTuple):
    """How the rows of a table are sealed.

    Attributes:
        number: What numbers a row.
        columns: What of it is sealed; empty for all of it.
        where: Which rows are sealed; empty for all.
        changes: Whether rows are changed after they are stored.
        since: Whether rows that were stored before the table was sealed stay without a seal.
        earlier: What of it an earlier version sealed; a seal of that alone is sound.
    """

    number: str
    columns: tuple[str, ...] = ()
    where: str = ""
    changes: bool = False
    since: bool = False
    earlier: tuple[str, ...] = ()

    def number_of(self, row: str) -> str:
        """Return the number of a row as SQL."""
        name, _, column = self.number.rpartition("(")
        return f"{name}({row}.{column}" if name else f"{row}.{column}"

    def where_in(self, row: str) -> str:
        """Return the condition for a row as SQL; always true where all are sealed."""
        return self.where.replace("{}", row) or "true"


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
        "({}.ready_seq is not null or {}.left_out is not null)",
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
    "costs in the order of learning, failures in a row and the last error of the gate, the queue, "
    "leases, counters"
)
"""What is stored and not sealed, as people are to know it."""

UNSEALED = frozenset({("rewards", "at")})
"""Given again, the same reward becomes a later one."""

SINCE = "since:"
"""Begins the kind of a seal that holds the last row of a table before that was sealed."""

PRUNED = "pruned"
"""The kind of a seal that says where the chain begins since its beginning was forgotten."""

DIGEST_BYTES = 16
GONE = b"\0" * DIGEST_BYTES
"""Stands in place of a digest: the row was deleted by us."""

_KEY_BYTES = 32
_LEAST_KEY_BYTES = 16

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
        self.key_id = hashlib.blake2b(b"id", key=key, digest_size=6).hexdigest() if key else ""

    def seal(self, before: bytes | None, kind: str, row: int, digest: bytes) -> bytes:
        """Return digest and link of a row that follows the link ``before``."""
        told = msgspec.msgpack.encode((before or b"", kind, row, digest, self.key_id))
        link = hashlib.blake2b(told, key=self._key, digest_size=DIGEST_BYTES).digest()
        return digest + link


def digest_of(*parts: object) -> bytes:
    """Return the digest of a row: names and values in turn, without those that are null."""
    return digest_of_pairs(zip(parts[::2], parts[1::2], strict=True))


def digest_of_pairs(pairs: Iterable[tuple[object, object]]) -> bytes:
    """Return the digest of a row of names and values."""
    told = msgspec.msgpack.encode([pair for pair in pairs if pair[1] is not None])
    return hashlib.blake2b(told, digest_size=DIGEST_BYTES).digest()


def number_of(name: str | None) -> int | None:
    """Return the number that stands for a row without one in its seals; ``None`` for no row."""
    if name is None:
        return None
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "big")


def install(raw: sqlite3.Connection, sealer: Sealer) -> None:
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
    for table, sealed_as in SEALED.items():
        changed = f"update of {', '.join(sealed_as.columns)}" if sealed_as.columns else "update"
        for event in ("insert", "delete", *([changed] if sealed_as.changes else [])):
            which = "old" if event == "delete" else "new"
            number = sealed_as.number_of(which)
            values = [] if event == "delete" else [f", {which}.{name}" for name in columns[table]]
            condition = sealed_as.where_in(which)
            if event == changed:  # what was sealed and no longer has to be has changed, too
                condition = f"{condition} or {sealed_as.where_in('old')}"
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


def parts_of(raw: sqlite3.Connection, table: str, which: str) -> str:
    """Return the arguments of ``row_digest`` for a row of a table, as SQL."""
    return _parts(columns_of(raw, table), which)


def earlier_parts_of(table: str, which: str) -> str | None:
    """Return what they were where an earlier version sealed less; ``None`` where it did not."""
    return _parts(SEALED[table].earlier, which) or None


def _parts(columns: Iterable[str], which: str) -> str:
    return ", ".join(f"'{column}', {which}.{column}" for column in columns)


def columns_of(raw: sqlite3.Connection, table: str) -> Sequence[str]:
    """Return which columns of a table are sealed, in their order."""
    columns = SEALED[table].columns or [
        row[1] for row in raw.execute(f"pragma table_info({table})")
    ]
    return [column for column in columns if (table, column) not in UNSEALED]


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
        StoreUnavailableError: It is not there, cannot be read, belongs to somebody else, or is
            too short.
    """
    if path is None:
        return b""
    try:
        if make and not path.exists():
            make_folders(path.absolute().parent)
            with open(opened_new(path), "wb") as file:  # noqa: PTH123  # a descriptor
                file.write(secrets.token_hex(_KEY_BYTES).encode() + b"\n")
        narrowed(path)
        held = path.read_bytes().strip()
    except OSError as error:
        raise StoreUnavailableError(f"audit key '{path}' cannot be read: {error}") from error
    if len(held) < _LEAST_KEY_BYTES:
        raise StoreUnavailableError(
            f"audit key '{path}' must hold at least {_LEAST_KEY_BYTES} bytes, got {len(held)}"
        )
    return hashlib.blake2b(held, digest_size=_KEY_BYTES).digest()
