"""Checkpoints: arrays with a checksum and a lineage, in numpy's own format, never pickle.

A checkpoint has two checksums: one of its arrays and its lineage, the same on every machine, and
one of every byte of the file, in the comment that ends it. The first is made of one for each array,
so that a reader of only some arrays can verify these alone.

A hostile archive can list millions of entries, an entry can claim to unpack to any size, and an
array to have any shape: each claim is checked before memory is allocated for it.
"""

import hashlib
import io
import json
import os
import re
import struct
import tokenize
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import IO, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from tau_live.core import fault
from tau_live.core.errors import CheckpointError
from tau_live.rl.throttle import yield_gil
from tau_live.store.checkpoints import name_of, unreadable, version_of
from tau_live.store.roles import Checkpoints

FORMAT = 1
SIZE_LIMIT = 256 * 1024 * 1024
ENTRIES_LIMIT = 1_000
LIST_LIMIT = 2**20
HEADER_LIMIT = 4 * 2**20
_HEADER = "checkpoint"
_END = struct.Struct("<4s4H2LH")  # signature, disks, entries here and in all, size, offset, comment
_END_OF_LARGE = b"PK\6\7"
_LOCATOR_BYTES = 20
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_DIGEST_BYTES = 64
_COMMENT_LENGTH = struct.Struct("<H")

_UNREADABLE = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
)
"""The errors that zipfile, numpy and json raise for a hostile file."""


class _Header(TypedDict):
    format: int
    version: int
    point: str
    parent: int
    parent_sha256: str
    metadata: dict[str, object]
    arrays: dict[str, str]
    sha256: str


_Arrays: TypeAlias = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One version of a policy, with its lineage.

    Attributes:
        version: Its number.
        point: The decision point.
        parent: The version it was made from; 0 is the untrained policy.
        parent_sha256: The parent's checksum; empty for the untrained policy.
        arrays: The policy and the state of its training.
        metadata: How it was made: algorithm, seed, numpy version.
        sha256: The checksum; the same arrays and lineage give the same on every machine.
    """

    version: int
    point: str
    parent: int
    parent_sha256: str
    arrays: _Arrays
    metadata: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """The checksum of arrays and lineage, in hexadecimal."""
        return self._sha256_of(self.sha256s)

    @cached_property
    def sha256s(self) -> dict[str, str]:
        """The checksum of each array, in hexadecimal."""
        return {name: _sha256_of(name, self.arrays[name]) for name in sorted(self.arrays)}

    def _sha256_of(self, arrays: Mapping[str, str]) -> str:
        lineage = [FORMAT, self.version, self.point, self.parent, self.parent_sha256]
        text = json.dumps([lineage, sorted(arrays.items())])
        return hashlib.sha256(text.encode()).hexdigest()


def save(checkpoints: Checkpoints, checkpoint: Checkpoint) -> str:
    """Write a checkpoint, replacing one of the same name atomically; return its name.

    Args:
        checkpoints: Those of the store.
        checkpoint: The checkpoint.

    Raises:
        CheckpointError: It could not be written, or holds objects that only pickle could write.
        StoreUnavailableError: There is no room for it now, or the disk fails.
    """
    name = name_of(checkpoint.version)
    try:
        name = name_of(checkpoint.version, checkpoint.sha256)
        yield_gil()
        content = _content(checkpoint)
    except (TypeError, ValueError) as error:
        where = checkpoints.address(name)
        raise CheckpointError(f"cannot write checkpoint {where}: {error}") from error
    checkpoints.put(name, content)
    yield_gil()
    return name


def _content(checkpoint: Checkpoint) -> bytes:
    header: _Header = {
        "format": FORMAT,
        "version": checkpoint.version,
        "point": checkpoint.point,
        "parent": checkpoint.parent,
        "parent_sha256": checkpoint.parent_sha256,
        "metadata": {"numpy": np.__version__, **checkpoint.metadata},
        "arrays": checkpoint.sha256s,
        "sha256": checkpoint.sha256,
    }
    text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
    arrays = {_HEADER: np.frombuffer(text, dtype=np.uint8)} | {
        f"a.{name}": _little_endian(array) for name, array in sorted(checkpoint.arrays.items())
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
            yield_gil()
    if file.tell() + _DIGEST_BYTES > SIZE_LIMIT:
        raise ValueError(f"it would be larger than {SIZE_LIMIT} bytes")
    # The last two bytes of an archive without a comment are the length of the comment.
    file.seek(-_COMMENT_LENGTH.size, io.SEEK_END)
    file.write(_COMMENT_LENGTH.pack(_DIGEST_BYTES))
    file.write(hashlib.sha256(file.getbuffer()).hexdigest().encode())
    yield_gil()
    return file.getvalue()


def load(checkpoints: Checkpoints, name: str, *, sha256: str | None = None) -> Checkpoint:
    """Read a checkpoint and verify it.

    Args:
        checkpoints: Those of the store.
        name: Its name.
        sha256: The checksum that the store knows; ``None`` trusts the checkpoint's own.

    Raises:
        CheckpointError: It is missing, damaged, of another format, or not the one expected.
        StoreUnavailableError: This process cannot read it now, or is about to end.
    """
    return _load(checkpoints, name, None, sha256)


def load_some(
    checkpoints: Checkpoints, name: str, arrays: Collection[str], *, sha256: str | None = None
) -> dict[str, npt.NDArray[np.generic]]:
    """Read some arrays of a checkpoint and verify these; the others are not read.

    Args:
        checkpoints: Those of the store.
        name: Its name.
        arrays: Names of the arrays; missing ones are left out.
        sha256: The checksum that the store knows; ``None`` trusts the checkpoint's own.

    Raises:
        CheckpointError: It is missing, of another format, not the one expected, or damaged in the
            part that was read.
        StoreUnavailableError: This process cannot read it now, or is about to end.
    """
    return dict(_load(checkpoints, name, arrays, sha256).arrays)


def _load(
    checkpoints: Checkpoints, name: str, names: Collection[str] | None, sha256: str | None
) -> Checkpoint:
    where = checkpoints.address(name)
    try:
        with checkpoints.open(name) as file:
            read = file if names is not None else io.BytesIO(_verified_bytes(file))
            header, arrays = _read_arrays(read, names)
        checkpoint = Checkpoint(
            version=int(header["version"]),
            point=str(header["point"]),
            parent=int(header["parent"]),
            parent_sha256=str(header["parent_sha256"]),
            arrays=arrays,
            metadata=dict(header["metadata"]),
        )
    except _UNREADABLE as error:
        raise unreadable(where, error) from error
    known = header["arrays"]
    expected = {name: known[name] for name in known if names is None or name in names}
    # the second checksum is that of the lineage and of all arrays
    if checkpoint.sha256s != expected or checkpoint._sha256_of(known) != header["sha256"]:  # noqa: SLF001
        raise CheckpointError(f"checkpoint {where} is damaged: its checksum does not match")
    if sha256 is not None and header["sha256"] != sha256:
        raise CheckpointError(f"checkpoint {where} is not the one recorded in the store")
    return checkpoint


def _verified_bytes(file: IO[bytes]) -> bytes:
    """Return the bytes of a file, after verifying the checksum at its end."""
    _check_claims(file, None)
    content = file.read()
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("it is damaged: the checksum at its end does not match")
    return content


def _read_arrays(file: IO[bytes], names: Collection[str] | None) -> tuple[_Header, _Arrays]:
    """Return the header of a file and the named arrays; ``None`` reads all."""
    _check_claims(file, names)
    with np.load(file, allow_pickle=False) as archive:
        header: _Header = json.loads(archive[_HEADER].tobytes())
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}, expected {FORMAT}")
        entries = [name for name in archive.files if name.startswith("a.")]
        arrays = {name[2:]: archive[name] for name in entries if names is None or name[2:] in names}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it contains an entry that is not an array")
    if not isinstance(header["arrays"], dict):
        raise TypeError("its header lists no arrays")
    return header, arrays


def _check_claims(file: IO[bytes], names: Collection[str] | None) -> None:
    """Check the sizes that a file claims, before any of it is read.

    Its entries must be within the limits, and the arrays to be read within their entries.

    Raises:
        ValueError: A claimed size is too large, or an entry is damaged or compressed.
    """
    _check_list(file)
    header = f"{_HEADER}.npy"
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > SIZE_LIMIT:
            raise ValueError(f"it claims to hold more than {SIZE_LIMIT} bytes")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed, which checkpoints never are")
        for entry in entries:
            if entry.filename == header and entry.file_size > HEADER_LIMIT:
                raise ValueError(f"its header is larger than {HEADER_LIMIT} bytes")
            if names is None or entry.filename in (header, *(f"a.{name}.npy" for name in names)):
                try:
                    _check_array(archive, entry)
                except zipfile.BadZipFile as error:
                    raise ValueError(f"it is damaged: {error}") from error
    file.seek(0)


def _check_list(file: IO[bytes]) -> None:
    """Check the size and the place of the list of an archive's entries.

    Raises:
        ValueError: The list is too long or not where the end record says, or the file is no
            checkpoint at all.
    """
    size = file.seek(0, os.SEEK_END)
    if size > SIZE_LIMIT:
        raise ValueError(f"it is larger than {SIZE_LIMIT} bytes")
    at = size - _END.size - _DIGEST_BYTES
    if at < _LOCATOR_BYTES:
        raise ValueError("it is too short")
    file.seek(at - _LOCATOR_BYTES)
    before, end = file.read(_LOCATOR_BYTES), file.read(_END.size)
    signature, *_, entries, list_bytes, offset, comment = _END.unpack(end)
    if signature != b"PK\5\6" or comment != _DIGEST_BYTES or before.startswith(_END_OF_LARGE):
        raise ValueError("it does not end as a checkpoint")
    if not _DIGEST.fullmatch(file.read()):
        raise ValueError("it does not end in a checksum")
    if entries > ENTRIES_LIMIT or list_bytes > LIST_LIMIT:
        raise ValueError(f"it claims to have {entries} entries, listed in {list_bytes} bytes")
    if offset + list_bytes != at:
        raise ValueError("the list of its entries is not at its end")
    file.seek(0)


def _check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, _, dtype = read_header(member)
        claimed = prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or claimed > entry.file_size:
            raise ValueError(f"{entry.filename!r} claims to be an array of {claimed} bytes")


def prune(
    checkpoints: Checkpoints, *, keep: int, needed: frozenset[int], half_written: bool = True
) -> list[int]:
    """Delete all but the ``keep`` newest checkpoints and those that are needed.

    One that cannot be deleted stays.

    Args:
        checkpoints: Those of the store.
        keep: How many of the newest stay.
        needed: Versions that stay in any case.
        half_written: Whether to delete what writers that died left half-written too, which those
            of another container look like.

    Returns:
        The versions that are gone.
    """
    versions: dict[int, list[str]] = {}
    for name in checkpoints.names():
        versions.setdefault(version_of(name), []).append(name)
    if half_written:
        checkpoints.sweep()
    old = sorted(versions)[: max(0, len(versions) - max(0, keep))]
    deleted = []
    for version in old:
        if version not in needed:
            left = [name for name in versions[version] if not _delete(checkpoints, name)]
            deleted += [] if left else [version]
    return deleted


def _delete(checkpoints: Checkpoints, name: str) -> bool:
    gone = checkpoints.delete(name)
    if gone:
        fault.point("policies.deleted")
    return gone


def _little_endian(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if array.dtype.hasobject:
        raise TypeError("an array of objects can only be pickled")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _sha256_of(name: str, array: npt.NDArray[np.generic]) -> str:
    little = _little_endian(array)
    digest = hashlib.sha256(json.dumps([name, little.dtype.str, little.shape]).encode())
    digest.update(little.tobytes())
    return digest.hexdigest()
