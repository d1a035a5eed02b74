"""Seals: one chain over every row that learning or an operator's record depends on.

A seal holds the digest of its row and a link: the digest of that and of the link before. The order
of the chain is that of the commits, whatever process wrote. Triggers of our own connections make
the seals, so that no statement of ours can forget to; a change by anybody else leaves none, and is
detected. With a key the links are keyed: nobody can make one with the file alone.

Source: Schneier and Kelsey 1999, "Secure audit logs to support computer forensics", section 3.
"""

import hmac
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tau_live.core.errors import ConfigError, StoreUnavailableError
from tau_live.core.files import OTHERS, make_folders, mode_of, narrow, opened_new


class Sealed(NamedTuple):
    """How the rows of a table are sealed.

    Attributes:
        number: SQL for the number of a row.
        columns: The sealed columns; empty for all.
        known: A row is sealed if one of these columns is not null; empty seals all rows.
        changes: Whether rows change after they are stored.
        since: Whether rows stored before the table was sealed stay without a seal.
        earlier: The columns that an earlier version sealed; a seal of these alone is valid.
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
        """Return the condition for a row to be sealed, as SQL."""
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
    "lessons": Sealed("seq", ("chain", "content")),
}
"""The tables whose rows are sealed."""

NOT_SEALED = (
    "attempts, spans, prompts, the times, names and contents of rollouts (but their metadata), all "
    "of a rollout until its reward is settled, which of them wait for one, when a reward came, "
    "costs in the order of learning, failures in a row, the last error and the revision of the "
    "gate, which alerts are over, the queue, runs of prompts and lessons, leases, resources, "
    "counters and totals, SQLite's numbering, the list of migrations"
)
"""What is stored and not sealed, for people."""

UNSEALED = frozenset({("rewards", "at")})
"""Columns that are never sealed: repeating a reward changes its time."""

SINCE = "since:"
"""Prefix of the kind of a seal that holds the last row of a table before it was sealed."""

RESTORED = f"{SINCE}restored"
"""The kind of a seal that holds the last ``ready_seq`` to which an archive moved the numbering."""

PRUNED = "pruned"
"""The kind of a seal that holds where the chain begins since its beginning was pruned."""

DIGEST_BYTES = 16
GONE = b"\0" * DIGEST_BYTES
"""The digest of a row that we deleted."""

_PLAIN = frozenset({int, str})
"""Classes whose equal values have equal bytes; 0.0 and -0.0 do not."""

_encode = msgspec.msgpack.Encoder().encode
_KEY_BYTES = 32
_LEAST_KEY_BYTES = 16
MOST_KEY_BYTES = 4096


class Sealer:
    """Makes seals, with a key or without.

    Args:
        key: Empty for none; at most 64 bytes.

    Attributes:
        key_id: Identifies the key without revealing it; empty without one.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self.key_id = blake2b(b"id", key=key, digest_size=6).hexdigest() if key else ""

    def seal(self, before: bytes | None, kind: str, row: int, digest: bytes) -> bytes:
        """Return digest and link of a row that follows the link ``before``."""
        content = _encode((before or b"", kind, row, digest, self.key_id))
        return digest + blake2b(content, key=self._key, digest_size=DIGEST_BYTES).digest()

    def link(self, *parts: object) -> bytes:
        """Return the link of a seal of many rows, given its parts."""
        content = _encode((*parts, self.key_id))
        return blake2b(content, key=self._key, digest_size=DIGEST_BYTES).digest()


NO_KEY = "TF-GRPO needs a stamping key: set TAU_LIVE_RL_AUDIT_KEY_FILE."


class Keys:
    """The keys that stamp lessons: the newest stamps, all of them verify.

    Args:
        newest: The key of new records, 16 to 64 bytes.
        earlier: Those before it.

    Attributes:
        key_id: The name of the newest; it reveals nothing of the key.
    """

    def __init__(self, newest: bytes, earlier: Iterable[bytes] = ()) -> None:
        self._newest = newest
        self.key_id = Sealer(newest).key_id
        self._known = {Sealer(key).key_id: key for key in (*earlier, newest)}

    def __repr__(self) -> str:
        return f"Keys({self.key_id})"

    @classmethod
    def read(cls, path: Path | None) -> "Keys":
        """Return the key of a file, and those before it in ``<file>.d/*.key``.

        Raises:
            ConfigError: No file is set.
            StoreUnavailableError: A file is no key, or cannot be read.
        """
        if path is None:
            raise ConfigError([NO_KEY])
        earlier = sorted(path.with_name(f"{path.name}.d").glob("*.key"))
        return cls(key_in(path), map(key_in, earlier))

    def sign(self, content: bytes) -> str:
        """Return the HMAC-SHA-256 of some bytes with the newest key, in hex."""
        return hmac.new(self._newest, content, sha256).hexdigest()

    def is_signed(self, content: bytes, signature: str) -> bool:
        """Return whether a signature is that of any of the keys."""
        return any(
            hmac.compare_digest(hmac.new(key, content, sha256).hexdigest(), signature)
            for key in self._known.values()
        )

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._known


def digest_of(*parts: object) -> bytes:
    """Return the digest of a row, given names and values in turn; nulls are left out."""
    return digest_of_pairs(zip(parts[::2], parts[1::2], strict=True))


def digest_of_pairs(pairs: Iterable[tuple[object, object]]) -> bytes:
    """Return the digest of a row, given as pairs of name and value; nulls are left out."""
    return _digest(_encode([pair for pair in pairs if pair[1] is not None]))


def digests_of(columns: Mapping[str, Sequence[object]]) -> list[bytes]:
    """Return the digests of several rows, given their columns by name.

    A column with one value in all rows is encoded once, which takes a third of the time.
    """
    size = len(next(iter(columns.values())))
    known = {name: column for name, column in columns.items() if column.count(None) < size}
    partly = [column for column in known.values() if None in column]
    heads = [_array_head(len(known))] * size
    if partly:
        nulls = (row.count(None) for row in zip(*partly, strict=True))
        heads = [_array_head(len(known) - count) for count in nulls]
    pieces = [_encode_column(name, column) for name, column in known.items()]
    return [_digest(b"".join(parts)) for parts in zip(heads, *pieces, strict=True)]


def _encode_column(name: str, column: Sequence[object]) -> Iterable[bytes]:
    """Return each value of a column, encoded with its name for the digest."""
    first = column[0]
    if type(first) in _PLAIN and column.count(first) == len(column):
        return repeat(_encode((name, first)), len(column))
    if None in column:
        return [b"" if value is None else _encode((name, value)) for value in column]
    return map(_encode, zip(repeat(name), column))


def _array_head(length: int) -> bytes:
    """Return msgpack's header of an array, for which the encoder has no call."""
    return bytes([0x90 | length]) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def number_of(name: str | None) -> int | None:
    """Return the number in seals for a row named by text; ``None`` for no row."""
    if name is None:
        return None
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")


class Head(NamedTuple):
    """The end of the chain.

    Attributes:
        place: The number of its last seal; 0 for an empty chain.
        link: The link of its last seal, in hexadecimal.
        key_id: Identifies the key that it was sealed with; empty for none.
    """

    place: int
    link: str
    key_id: str

    def __str__(self) -> str:
        return f"{self.place}:{self.link}"


class Finding(NamedTuple):
    """A contradiction of the chain.

    Attributes:
        code: The kind of contradiction.
        what: The row or seal concerned, by name.
        detail: A sentence for people.
    """

    code: str
    what: str
    detail: str


class Seals(ABC):
    """The chain or chains of seals, and unsealed rows that contradict the sealed ones.

    Attributes:
        are_copied: Whether a copy of the store takes its chain over; else it has one of its own.
        not_covered: What is stored and not sealed, for people.
    """

    are_copied = False
    not_covered = NOT_SEALED

    @abstractmethod
    def head(self) -> Head:
        """Return the newest seal: the end of the chain, of many chains that of the newest."""

    @abstractmethod
    def count_made(self) -> int:
        """Return how many rows were sealed so far: in the store, or by this connection."""

    def keep_heads(self) -> None:  # noqa: B027  # one chain binds itself
        """Seal the ends of all chains, once a minute: none of them can be cut off unseen."""

    @abstractmethod
    def count(self) -> int:
        """Return how many seals there are."""

    @abstractmethod
    def count_without(self, sealer: Sealer) -> int:
        """Return how many seals were made without this key."""

    @abstractmethod
    def link_at(self, place: int) -> str | None:
        """Return the link at a place; ``None`` if it was pruned, or is not made yet."""

    @abstractmethod
    def newest_place(self, table: str, rows: Sequence[int]) -> int:
        """Return the place of the newest seal of some rows of a table; 0 without any.

        Args:
            table: A sealed table.
            rows: Their numbers, as ``SEALED`` has them.
        """

    @abstractmethod
    def broken_links(
        self, sealer: Sealer, *, start: "ChainStart | None" = None
    ) -> Iterator[Finding | None]:
        """Yield the finding of each seal in order, or ``None``; then findings of the whole chain.

        Args:
            sealer: A sealer with the key at hand.
            start: Where the seals of the key begin, as noted beside it.
        """

    @abstractmethod
    def changed_rows(self, tables: Iterable[str]) -> Iterator[Finding]:
        """Yield every row of these tables that was edited, removed or added by others."""

    @abstractmethod
    def contradictions(self) -> Iterator[Finding]:
        """Yield every row outside the seals that cannot be what tau-live stored."""

    @abstractmethod
    def foreign_schema(self) -> Iterator[Finding]:
        """Yield every table, trigger, view and index that differs from tau-live's schema."""

    @abstractmethod
    def prune(self, gone: int) -> int:
        """Delete the beginning of the chain after ``gone`` rows were; return how many seals."""

    @abstractmethod
    def keep_restored(self, ready_seq: int) -> None:
        """Seal the ``ready_seq`` that restoring has reached; its rollout may be deleted later."""


class ChainStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where the seals of a key begin in a store's chain; a line in a file beside the key.

    Attributes:
        store: The store's file.
        place: The last seal before them; 0 where the chain begins with them.
        link: Its link, in hexadecimal.
    """

    store: str = ""
    place: int = 0
    link: str = ""


def known_beginning(key_file: Path | None, store: Path) -> ChainStart | None:
    """Return where a key's seals begin in a store, from the file beside the key.

    ``None`` without a key, and for a store that was never sealed with it.

    Raises:
        StoreUnavailableError: That file cannot be read.
    """
    if key_file is None:
        return None
    start = None
    try:
        for line in _beside(key_file).read_bytes().splitlines():
            known = msgspec.json.decode(line, type=ChainStart)
            if known.store == str(store.resolve()):
                start = known
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        beside = _beside(key_file)
        raise StoreUnavailableError(f"'{beside}' cannot be read: {error}") from error
    return start


def keep_beginning(key_file: Path, store: Path, start: ChainStart) -> None:
    """Note beside a key where its seals begin in a store.

    Raises:
        OSError: The file cannot be written.
    """
    line = msgspec.json.encode(replace(start, store=str(store.resolve()))) + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(_beside(key_file), flags, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _beside(key_file: Path) -> Path:
    return key_file.with_name(f"{key_file.name}.chains")


def key_in(path: Path | None, *, make: bool = False) -> bytes:
    """Return the key that a file holds; empty without a file.

    Args:
        path: The file; ``None`` is no key.
        make: Whether to create a missing file, readable by its owner alone.

    Raises:
        StoreUnavailableError: It does not exist, cannot be read, belongs to another user, is too
            short, or is not a key.
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
    """Return the key that a file holds, and make the file private.

    A file of several words may be something else: if others can use it, it is refused unchanged.
    """
    mode = mode_of(path) or 0
    if path.exists() and not path.is_file():
        raise StoreUnavailableError(f"audit key '{path}' is no file")
    if path.stat().st_size > MOST_KEY_BYTES:
        raise StoreUnavailableError(
            f"audit key '{path}' is none: it holds more than {MOST_KEY_BYTES} bytes"
        )
    secret = path.read_bytes().strip()
    if len(secret) < _LEAST_KEY_BYTES:
        raise StoreUnavailableError(
            f"audit key '{path}' must hold at least {_LEAST_KEY_BYTES} bytes, got {len(secret)}"
        )
    if secret.startswith(b"SQLite format 3"):
        raise StoreUnavailableError(f"audit key '{path}' is none: it is a database")
    if mode & OTHERS and len(secret.split()) > 1:
        raise StoreUnavailableError(
            f"audit key '{path}' does not look like one, and others can use it (mode {mode:o}): "
            "name another file, or `chmod 600` it"
        )
    narrow(path)
    return blake2b(secret, digest_size=_KEY_BYTES).digest()
