"""A store, opened from an address: the one place that knows what keeps it.

Another backend is a folder beside ``sqlite``, held to ``tests/contracts``, and a line in
``BACKENDS``.
"""

import os
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from sqlite3 import sqlite_version_info

from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.store.roles import Store
from tau_live.store.sqlite.connection import OLDEST_SQLITE, Synchronous, connect
from tau_live.store.sqlite.schema import APPLICATION_ID

BACKENDS: Mapping[str, type[Store]] = {"sqlite": Store}
"""What opens a store, by how its address begins."""

OLDEST_ENGINE = OLDEST_SQLITE
"""The oldest version of the engine that a store can be kept by."""

_ADDRESS = re.compile(r"(?s)([a-z][a-z0-9+]+):(.+)")
_MAGIC = b"SQLite format 3\0"
_AT = slice(68, 72)


def open_at(
    address: str | os.PathLike[str],
    *,
    synchronous: Synchronous = "normal",
    busy_timeout_s: float = 5.0,
    read_only: bool = False,
    key_file: Path | None = None,
) -> Store:
    """Open a store, made for its owner's eyes alone if it is not there yet.

    Args:
        address: A path, or ``sqlite:PATH``.
        synchronous: ``normal`` survives the death of the process, ``full`` also that of the
            machine, at about 80 times the price of a commit.
        busy_timeout_s: How long to wait for other processes' transactions.
        read_only: Write nothing, not even to create or migrate it.
        key_file: The key of the seals, made if it is not there; ``None`` seals without one.

    Raises:
        StoreUnavailableError: It cannot be opened, or is not a store.
        StoreVersionError: It was written by a newer tau-live, or must be migrated first.
    """
    scheme, place = "sqlite", os.fspath(address)
    given = _ADDRESS.fullmatch(place) if isinstance(address, str) else None
    if given and (given[1] in BACKENDS or given[2].startswith("//")):
        scheme, place = given.groups()
    if scheme not in BACKENDS:
        expected = ", ".join(f"{name}:PATH" for name in BACKENDS)
        raise StoreUnavailableError(f"store must be a path or {expected}, got {scheme}:")
    return BACKENDS[scheme].open(
        place, synchronous=synchronous, busy_timeout_s=busy_timeout_s, read_only=read_only,
        key_file=key_file,
    )  # fmt: skip


def engine_version() -> tuple[int, int, int]:
    """Return the version of the engine that keeps stores here."""
    return sqlite_version_info


def is_store(path: Path) -> bool:
    """Return whether a file holds a store, by how it begins."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as opened:
            begin = opened.read(_AT.stop)
    except OSError:
        return False
    return begin.startswith(_MAGIC) and begin[_AT] == APPLICATION_ID.to_bytes(4, "big")


def why_unwritable(file: Path, *, wait_s: float) -> TauLiveError | None:
    """Return why a store cannot be written; ``None`` if it can.

    Only what is written shows that the disk is full; this changes nothing. Opened as a store it
    would be migrated and its permissions narrowed.
    """
    try:
        with (
            closing(connect(file, busy_timeout_s=wait_s, read_only=False)) as connection,
            connection.begin(),
        ):
            version = connection.count("pragma user_version")
            connection.change(f"pragma user_version = {version}")
    except TauLiveError as error:
        return error
    return None
