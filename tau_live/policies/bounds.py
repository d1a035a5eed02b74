"""The sizes that a checkpoint's file declares, checked before any of it is read.

The list of an archive's entries can hold millions of them, an entry can claim to unpack to any
size, and an array any shape: each would take its memory before it is found to be untrue.
"""

import os
import re
import stat
import struct
import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

COMMENT_BYTES = 64
ENTRIES_LIMIT = 1_000
LIST_LIMIT = 2**20
HEADER_LIMIT = 4 * 2**20
_END = struct.Struct("<4s4H2LH")  # signature, disks, entries here and in all, size, offset, comment
_END_OF_LARGE = b"PK\6\7"
_LOCATOR_BYTES = 20
_DIGEST = re.compile(rb"[0-9a-f]{64}")


def check_file(path: Path) -> None:
    """Raise if a path is no regular file, which might have no end. Raises: ValueError, OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")


def check_list(file: IO[bytes], *, size_limit: int) -> None:
    """Raise if the list of an archive's entries is long, or is not where its end says.

    Raises:
        ValueError: So it is, or the file is no archive of ours at all.
    """
    size = file.seek(0, os.SEEK_END)
    if size > size_limit:
        raise ValueError(f"it is larger than {size_limit} bytes")
    at = size - _END.size - COMMENT_BYTES
    if at < _LOCATOR_BYTES:
        raise ValueError("it is too short")
    file.seek(at - _LOCATOR_BYTES)
    before, end = file.read(_LOCATOR_BYTES), file.read(_END.size)
    signature, *_, entries, list_bytes, offset, comment = _END.unpack(end)
    if signature != b"PK\5\6" or comment != COMMENT_BYTES or before.startswith(_END_OF_LARGE):
        raise ValueError("it does not end as a checkpoint")
    if not _DIGEST.fullmatch(file.read()):
        raise ValueError("it does not end in a checksum")
    if entries > ENTRIES_LIMIT or list_bytes > LIST_LIMIT:
        raise ValueError(f"it claims to have {entries} entries, listed in {list_bytes} bytes")
    if offset + list_bytes != at:
        raise ValueError("the list of its entries is not at its end")
    file.seek(0)


def check_entries(
    archive: zipfile.ZipFile, *, header: str, wanted: Collection[str] | None, size_limit: int
) -> None:
    """Raise if entries are larger than they may be, or arrays than their entries.

    Args:
        archive: The file.
        header: The name of the entry that says what the others are.
        wanted: The names of the entries that will be read besides; ``None`` for all.
        size_limit: Bytes that all entries may have together.

    Raises:
        ValueError: So they are.
    """
    entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > size_limit:
        raise ValueError(f"it claims to hold more than {size_limit} bytes")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("it is compressed, which checkpoints never are")
    for entry in entries:
        if entry.filename == header and entry.file_size > HEADER_LIMIT:
            raise ValueError(f"its header is larger than {HEADER_LIMIT} bytes")
        if wanted is None or entry.filename in (header, *wanted):
            try:
                _check_array(archive, entry)
            except zipfile.BadZipFile as error:
                raise ValueError(f"it is damaged: {error}") from error


def _check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read(member)
        claimed = prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or claimed > entry.file_size:
            raise ValueError(f"{entry.filename!r} claims to be an array of {claimed} bytes")
