"""Every row that learning or an operator's record depends on is sealed into one chain, as stored.

A seal holds the digest of its row and a link: the digest of that and of the link before. The order
of the chain is that of the commits, whatever process wrote. Triggers of our own connections make
the seals, so that no statement of ours can forget to; what anybody else does leaves none, and is
found. With a key the links are keyed: who has the file but not the key cannot make one.

Source: Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import hashlib
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tau_live.errors import StoreUnavailableError
from tau_live.machine.private_files import make_folders, narrowed, opened_new

SEALED: Mapping[str, str] = {
    "decisions": "seq",
    "rewards": "seq",
    "updates": "number",
    "policies": "version",
    "audit": "seq",
    "gate_log": "seq",
}
"""The tables whose rows are sealed, and what numbers their rows."""

UNSEALED = frozenset({("rewards", "at")})
"""Given again, the same reward becomes a later one."""

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
    pairs = zip(parts[::2], parts[1::2], strict=True)
    told = msgspec.msgpack.encode([pair for pair in pairs if pair[1] is not None])
    return hashlib.blake2b(told, digest_size=DIGEST_BYTES).digest()


def install(raw: sqlite3.Connection, sealer: Sealer) -> None:
    """Let a connection that writes seal what it writes.

    Raises:
        sqlite3.Error: It could not be set up.
    """

    def sealed(before: bytes | None, kind: str, row: int, *parts: object) -> bytes:
        return sealer.seal(before, kind, row, digest_of(*parts) if parts else GONE)

    raw.create_function("sealed", -1, sealed)
    raw.create_function("resealed", 4, sealer.seal)
    raw.create_function("sealing_key", 0, lambda: sealer.key_id)
    for table, number in SEALED.items():
        for event in ("insert", "delete"):  # none of these rows is ever changed, but as below
            which = "old" if event == "delete" else "new"
            parts = "" if event == "delete" else f", {parts_of(raw, table, which)}"
            raw.execute(
                f"""
                create temp trigger sealed_{table}_{event} after {event} on main.{table} begin
                    insert into seals (kind, row, seal, key_id) values (
                        '{table}', {which}.{number},
                        sealed(({LAST}), '{table}', {which}.{number}{parts}), '{sealer.key_id}'
                    );
                end
                """
            )


def parts_of(raw: sqlite3.Connection, table: str, which: str) -> str:
    """Return the arguments of ``row_digest`` for a row of a table, as SQL."""
    columns = [row[1] for row in raw.execute(f"pragma table_info({table})")]
    return ", ".join(
        f"'{column}', {which}.{column}" for column in columns if (table, column) not in UNSEALED
    )


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
