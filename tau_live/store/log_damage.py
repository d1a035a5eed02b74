"""Damage in a write-ahead log, which SQLite does not mention: it ends where a checksum is wrong.

What was committed behind such a place is as if it had never been, and the next writer overwrites
it. So whoever opens a store compares how far SQLite reads the log with how far it was written, and
keeps a copy of a log of which something is left out.

Source:
    sqlite.org/fileformat2.html, section 4: headers of the log and of its frames.
"""

import os
import shutil
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tau_live.guard import logger
from tau_live.store.aside import beside, free_mark

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_SIZES = frozenset(1 << power for power in range(9, 17))


class Written(NamedTuple):
    """How far a log was written since it was last begun anew.

    Attributes:
        commits: The number of its last frame that ends a transaction; 0 if there is none.
        salts: What tells its frames from older ones.
    """

    commits: int
    salts: tuple[int, int]


def written(path: Path, *, page_size: int) -> Written | None:
    """Return how far a store's log was written; ``None`` where there is none to speak of.

    Args:
        path: The store's file.
        page_size: Of the store, for a log whose header cannot be believed.
    """
    try:
        with beside(path, "-wal").open("rb") as log:
            return _read(log, page_size)
    except OSError:
        return None


def keep_if_damaged(path: Path, before: Written | None, *, read: int, page_size: int) -> None:
    """Keep a copy of a log whose last transactions SQLite does not read, and say so in the log.

    Args:
        path: The store's file.
        before: How far it was written before it was opened.
        read: How many of its frames SQLite reads.
        page_size: Of the store.
    """
    if before is None or read >= before.commits:
        return
    if written(path, page_size=page_size) != before:  # another process goes on with it
        return
    kept = beside(path.with_name(f"{path.name}{free_mark(path)}"), "-wal")
    try:
        shutil.copyfile(beside(path, "-wal"), kept)
        kept.chmod(0o600)
    except OSError as error:
        kept = path
        logger().warning("log_not_kept", store=str(path), error=str(error))
    logger().warning(
        "log_damaged",
        store=str(path),
        pages_lost=before.commits - read,
        kept=kept.name,
        effect="the newest rows are missing; everything before them is intact",
    )


def _read(log: BinaryIO, page_size: int) -> Written | None:
    head = log.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    fields = _HEADER.unpack(head)
    salts: tuple[int, int] | None = None
    if _is_whole(head):
        page_size, salts = fields[2], (fields[4], fields[5])
    if page_size not in _SIZES:
        return None
    end = os.fstat(log.fileno()).st_size
    commits = number = 0
    while len(frame := log.read(_FRAME.size)) == _FRAME.size:
        number += 1
        _, size, *own, _, _ = _FRAME.unpack(frame)
        salts = salts or (own[0], own[1])
        if log.seek(page_size, 1) > end:  # a full disk cut it off before anybody was told of it
            break
        if size and (own[0], own[1]) == salts:
            commits = number
    return Written(commits, salts or (0, 0)) if commits else None


def _is_whole(head: bytes) -> bool:
    """Say whether a log's header has the checksum that it should have."""
    magic = _HEADER.unpack(head)[0]
    if magic not in _MAGIC:
        return False
    words = struct.unpack(">8I" if magic & 1 else "<8I", head)
    one = two = 0
    for place in range(0, 6, 2):
        one = (one + words[place] + two) & 0xFFFFFFFF
        two = (two + words[place + 1] + one) & 0xFFFFFFFF
    return _HEADER.unpack(head)[6:] == (one, two)
