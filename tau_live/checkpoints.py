"""Policies on disk: arrays with a checksum and a lineage, in numpy's own format, never pickle.

A checkpoint is written beside its final name, flushed to the disk and renamed, so that a reader
sees the whole of it or none of it. The file describes itself: its checksum covers the name, kind,
shape and bytes of every array and the metadata that matters.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tau_live.errors import CheckpointError

FORMAT = 1
SIZE_LIMIT = 256 * 1024 * 1024
_HEADER = "checkpoint"
_T = TypeVar("_T")


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
    arrays: Mapping[str, npt.NDArray[np.generic]]
    metadata: Mapping[str, object] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The checksum of arrays and lineage, in hexadecimal."""
        digest = hashlib.sha256()
        lineage = [FORMAT, self.version, self.point, self.parent, self.parent_sha256]
        digest.update(json.dumps(lineage).encode())
        for name in sorted(self.arrays):
            array = _little_endian(self.arrays[name])
            digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


def file_of(version: int) -> str:
    """Return the name of a version's file."""
    return f"{version:09d}.npz"


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; what stood under its name is there until the new one replaces it.

    Raises:
        CheckpointError: It could not be written.
    """
    header = {
        "format": FORMAT,
        "version": checkpoint.version,
        "point": checkpoint.point,
        "parent": checkpoint.parent,
        "parent_sha256": checkpoint.parent_sha256,
        "metadata": {"numpy": np.__version__, **checkpoint.metadata},
        "sha256": checkpoint.sha256,
    }
    text = json.dumps(header, sort_keys=True).encode()
    content = io.BytesIO()
    np.savez(
        content,
        allow_pickle=False,
        **{_HEADER: np.frombuffer(text, dtype=np.uint8)},
        **{f"a.{name}": _little_endian(array) for name, array in checkpoint.arrays.items()},
    )
    path = folder / file_of(checkpoint.version)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, content.getvalue())
    except OSError as error:
        raise CheckpointError(f"cannot write checkpoint {path}: {error}") from error
    return path


def load(path: Path, *, sha256: str | None = None) -> Checkpoint:
    """Read a checkpoint and verify it.

    Args:
        path: Its file.
        sha256: The checksum that the store knows; ``None`` trusts the file's own.

    Raises:
        CheckpointError: It is missing, damaged, of another format, or not the one expected.
    """
    try:
        found = _read(path)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}") from error
    checkpoint, written = found
    if checkpoint.sha256 != written:
        raise CheckpointError(f"checkpoint {path} is damaged: its checksum does not fit")
    if sha256 is not None and written != sha256:
        raise CheckpointError(f"checkpoint {path} is not the one that the store knows")
    return checkpoint


def _read(path: Path) -> tuple[Checkpoint, str]:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > SIZE_LIMIT:
            raise ValueError(f"it claims to hold more than {SIZE_LIMIT} bytes")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed, which no checkpoint of ours is")
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(archive[_HEADER].tobytes())
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r}, expected {FORMAT}")
        arrays = {name[2:]: archive[name] for name in archive.files if name.startswith("a.")}
    checkpoint = Checkpoint(
        version=int(header["version"]),
        point=str(header["point"]),
        parent=int(header["parent"]),
        parent_sha256=str(header["parent_sha256"]),
        arrays=arrays,
        metadata=dict(header["metadata"]),
    )
    return checkpoint, str(header["sha256"])


def prune(folder: Path, *, keep: int, needed: frozenset[int]) -> list[int]:
    """Delete all but the ``keep`` newest checkpoints and those that are needed.

    Returns:
        The versions whose files are gone.
    """
    gone = []
    for path in sorted(folder.glob("[0-9]*.npz"))[:-keep]:
        version = int(path.stem)
        if version not in needed:
            path.unlink(missing_ok=True)
            gone.append(version)
    return gone


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file beside its name, flush it to the disk, and rename it into place.

    Raises:
        OSError: It could not be written; what stood there before still does.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCheckpoint:
    """The reference system's JSON checkpoint, as it was found."""

    run_id: str
    policy_state: Mapping[str, object]
    optimizer_state: Mapping[str, object]
    global_step: int
    optimizer_step: int
    saved_at_unix_seconds: int


def read_reference(path: Path) -> ReferenceCheckpoint:
    """Read a JSON checkpoint of the reference system.

    Raises:
        CheckpointError: It is not one; the message is the reference's own.

    Source:
        ``contracts/reference-live-loop.md``, CK1 and CK3.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"read checkpoint {path}: {error}") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"parse checkpoint JSON {path}: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError("checkpoint payload must be a JSON object")
    if found.get("checkpoint_version") != 1:
        version = found.get("checkpoint_version")
        raise CheckpointError(f"unsupported checkpoint_version {version}; expected 1")
    run_id = _required(found, "run_id", str)
    if not run_id.strip():
        raise CheckpointError("checkpoint field `run_id` must not be empty")
    return ReferenceCheckpoint(
        run_id=run_id,
        policy_state=_object(found, "policy_state"),
        optimizer_state=_object(found, "optimizer_state"),
        global_step=_required(found, "global_step", int),
        optimizer_step=_required(found, "optimizer_step", int),
        saved_at_unix_seconds=_required(found, "saved_at_unix_seconds", int),
    )


def _required(found: Mapping[str, object], name: str, kind: type[_T]) -> _T:
    value = found.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointError(f"missing required checkpoint field `{name}`")
    return value


def _object(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    if name not in found:
        raise CheckpointError(f"missing required checkpoint field `{name}`")
    value = found[name]
    if not isinstance(value, dict):
        raise CheckpointError(f"`{name}` must be a JSON object")
    return value


def _little_endian(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
