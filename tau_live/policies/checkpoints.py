"""Policies on disk: arrays with a checksum and a lineage, in numpy's own format, never pickle.

A checkpoint is written beside its final name, flushed to the disk and renamed, so that a reader
sees the whole of it or none of it. Two checksums describe it: one of its arrays and its lineage,
the same on every machine, and one of every byte of the file, in the comment that ends it. The first
is made of one for each array, so that who needs only some of them can verify these alone.
"""

import hashlib
import io
import json
import re
import struct
import sys
import threading
import tokenize
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from tau_live import fault
from tau_live.breath import Breathe, at_once
from tau_live.errors import (
    CheckpointError,
    StoreFilesError,
    StoreUnavailableError,
    TauLiveError,
)
from tau_live.machine.disk_failures import is_passing
from tau_live.machine.private_files import make_folders, narrowed
from tau_live.machine.whole_files import sweep, write_whole
from tau_live.policies.bounds import check_entries, check_file, check_list
from tau_live.policies.reference_checkpoints import ReferenceCheckpoint, read_reference

__all__ = [
    "Checkpoint",
    "ReferenceCheckpoint",
    "file_of",
    "is_checkpoint",
    "load",
    "load_some",
    "prune",
    "read_reference",
    "save",
]

FORMAT = 1
SIZE_LIMIT = 256 * 1024 * 1024
_HEADER = "checkpoint"
_FILE = re.compile(r"([0-9]{1,18})(-[0-9a-f]{16})?\.npz")
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
"""What zipfile, numpy and json raise for a file that was made to harm."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that one version of a policy is, and what it came from.

    Attributes:
        version: Its number.
        point: The decision point.
        parent: The version it was made from; 0 is the untrained policy.
        parent_sha256: That one's checksum; empty for the untrained policy.
        arrays: The policy and the state of its training.
        metadata: What made it: algorithm, seed, numpy version.
        sha256: The checksum; the same arrays and lineage give the same on every machine.
    """

    version: int
    point: str
    parent: int
    parent_sha256: str
    arrays: _Arrays
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The checksum of arrays and lineage, in hexadecimal."""
        return self._sha256_of(self.sha256s)

    @property
    def sha256s(self) -> dict[str, str]:
        """The checksum of each array, in hexadecimal."""
        return {name: _sha256_of(name, self.arrays[name]) for name in sorted(self.arrays)}

    def _sha256_of(self, arrays: Mapping[str, str]) -> str:
        lineage = [FORMAT, self.version, self.point, self.parent, self.parent_sha256]
        text = json.dumps([lineage, sorted(arrays.items())])
        return hashlib.sha256(text.encode()).hexdigest()


def file_of(version: int, sha256: str = "") -> str:
    """Return the name of a version's file; with its checksum, no other content has the same.

    So a learner that was stopped for longer than its lease cannot write over what has been made
    in its place.
    """
    return f"{version:09d}-{sha256[:16]}.npz" if sha256 else f"{version:09d}.npz"


def is_checkpoint(name: str) -> bool:
    """Say whether a file of this name may be a checkpoint."""
    return _FILE.fullmatch(name) is not None


def save(folder: Path, checkpoint: Checkpoint, *, breathe: Breathe = at_once) -> Path:
    """Write a checkpoint; what stood under its name is there until the new one replaces it.

    Args:
        folder: Of the store's checkpoints.
        checkpoint: What is written.
        breathe: Called between two arrays.

    Raises:
        CheckpointError: It could not be written, or holds what only pickle could write.
        StoreFilesError: There is no room for it now, or the disk fails.
    """
    path = folder / file_of(checkpoint.version)
    try:
        path = folder / file_of(checkpoint.version, checkpoint.sha256)
        content = _content(checkpoint, breathe)
        make_folders(folder)
        narrowed(folder)
        write_whole(path, content)
    except (OSError, TypeError, ValueError) as error:
        kind = StoreFilesError if is_passing(error) else CheckpointError
        raise kind(f"cannot write checkpoint {path}: {error}") from error
    return path


def _content(checkpoint: Checkpoint, breathe: Breathe) -> bytes:
    sha256s = checkpoint.sha256s
    breathe()
    header: _Header = {
        "format": FORMAT,
        "version": checkpoint.version,
        "point": checkpoint.point,
        "parent": checkpoint.parent,
        "parent_sha256": checkpoint.parent_sha256,
        "metadata": {"numpy": np.__version__, **checkpoint.metadata},
        "arrays": sha256s,
        "sha256": checkpoint._sha256_of(sha256s),  # noqa: SLF001  # of what was just added up
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
            breathe()
    if file.tell() + _DIGEST_BYTES > SIZE_LIMIT:
        raise ValueError(f"it would be larger than {SIZE_LIMIT} bytes")
    # The last two bytes of an archive without a comment are the length of the comment.
    file.seek(-_COMMENT_LENGTH.size, io.SEEK_END)
    file.write(_COMMENT_LENGTH.pack(_DIGEST_BYTES))
    file.write(hashlib.sha256(file.getbuffer()).hexdigest().encode())
    return file.getvalue()


def load(path: Path, *, sha256: str | None = None) -> Checkpoint:
    """Read a checkpoint and verify it.

    Args:
        path: Its file.
        sha256: The checksum that the store knows; ``None`` trusts the file's own.

    Raises:
        CheckpointError: It is missing, damaged, of another format, or not the one expected.
        StoreUnavailableError: This process cannot read it now, or is about to end.
    """
    try:
        header, arrays = _read(io.BytesIO(_verified(path)))
        checkpoint = _described(header, arrays)
    except _UNREADABLE as error:
        raise _unread(path, error) from error
    if checkpoint.sha256s != header["arrays"]:
        raise CheckpointError(f"checkpoint {path} is damaged: its checksum does not match")
    _identified(path, checkpoint, header, sha256)
    return checkpoint


def load_some(
    path: Path, names: Collection[str], *, sha256: str | None = None
) -> dict[str, npt.NDArray[np.generic]]:
    """Read some arrays of a checkpoint and verify these; of the others nothing is read.

    Args:
        path: Its file.
        names: Of the arrays; those that are not there are left out.
        sha256: The checksum that the store knows; ``None`` trusts the file's own.

    Raises:
        CheckpointError: It is missing, of another format, not the one expected, or what was read
            of it is damaged.
        StoreUnavailableError: This process cannot read it now, or is about to end.
    """
    try:
        check_file(path)
        with path.open("rb") as file:
            header, arrays = _read(file, names)
        checkpoint = _described(header, arrays)
    except _UNREADABLE as error:
        raise _unread(path, error) from error
    known = header["arrays"]
    expected = {name: known[name] for name in sorted(known) if name in names}
    if checkpoint.sha256s != expected:
        raise CheckpointError(f"checkpoint {path} is damaged: its checksum does not match")
    _identified(path, checkpoint, header, sha256)
    return dict(arrays)


def _unread(path: Path, error: Exception) -> TauLiveError:
    """Return what it means that a file could not be read: a process that ends proves nothing."""
    now = f"this process cannot read checkpoint {path} now: {error}"
    if is_passing(error):
        return StoreFilesError(now)
    if sys.is_finalizing() or not threading.main_thread().is_alive():
        return StoreUnavailableError(now)
    return CheckpointError(f"cannot read checkpoint {path}: {error}")


def _identified(path: Path, checkpoint: Checkpoint, header: _Header, sha256: str | None) -> None:
    """Raise if the checksum of a file's lineage and arrays is not the one that is expected."""
    if checkpoint._sha256_of(header["arrays"]) != header["sha256"]:  # noqa: SLF001  # all of it
        raise CheckpointError(f"checkpoint {path} is damaged: its checksum does not match")
    if sha256 is not None and header["sha256"] != sha256:
        raise CheckpointError(f"checkpoint {path} is not the one recorded in the store")


def _verified(path: Path) -> bytes:
    """Return the bytes of a file that are covered by the checksum at its end."""
    check_file(path)
    with path.open("rb") as file:
        _check_claims(file, None)
        content = file.read()
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("it is damaged: the checksum at its end does not match")
    return content


def _read(file: IO[bytes], names: Collection[str] | None = None) -> tuple[_Header, _Arrays]:
    """Return the header of a file and those arrays, or all."""
    _check_claims(file, names)
    with np.load(file, allow_pickle=False) as archive:
        header: _Header = json.loads(archive[_HEADER].tobytes())
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}, expected {FORMAT}")
        held = [name for name in archive.files if name.startswith("a.")]
        arrays = {name[2:]: archive[name] for name in held if names is None or name[2:] in names}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it contains an entry that is not an array")
    if not isinstance(header["arrays"], dict):
        raise TypeError("its header lists no arrays")
    return header, arrays


def _check_claims(file: IO[bytes], names: Collection[str] | None) -> None:
    """Raise if a file claims to be more than it may be, before any of it is read."""
    wanted = None if names is None else {f"a.{name}.npy" for name in names}
    check_list(file, size_limit=SIZE_LIMIT)
    with zipfile.ZipFile(file) as archive:
        check_entries(archive, header=f"{_HEADER}.npy", wanted=wanted, size_limit=SIZE_LIMIT)
    file.seek(0)


def _described(header: _Header, arrays: _Arrays) -> Checkpoint:
    return Checkpoint(
        version=int(header["version"]),
        point=str(header["point"]),
        parent=int(header["parent"]),
        parent_sha256=str(header["parent_sha256"]),
        arrays=arrays,
        metadata=dict(header["metadata"]),
    )


def prune(folder: Path, *, keep: int, needed: frozenset[int]) -> list[int]:
    """Delete all but the ``keep`` newest checkpoints and those that are needed.

    What a process that died left half written goes as well; a file that cannot be deleted stays.

    Returns:
        The versions whose files are gone.
    """
    versions: dict[int, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        found = _FILE.fullmatch(path.name)
        if found:
            versions.setdefault(int(found[1]), []).append(path)
    sweep(folder)
    old = sorted(versions)[: max(0, len(versions) - max(0, keep))]
    gone = []
    for version in old:
        if version not in needed:
            left = [path for path in versions[version] if not _deleted(path)]
            gone += [] if left else [version]
    return gone


def _deleted(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    fault.point("policies.deleted")
    return True


def _little_endian(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    if array.dtype.hasobject:
        raise TypeError("an array of objects can only be pickled")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _sha256_of(name: str, array: npt.NDArray[np.generic]) -> str:
    little = _little_endian(array)
    digest = hashlib.sha256(json.dumps([name, little.dtype.str, little.shape]).encode())
    digest.update(little.tobytes())
    return digest.hexdigest()
