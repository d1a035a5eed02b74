"""The reference system's JSON checkpoints, read as it reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from tau_live.errors import CheckpointError

VERSION = 1
SIZE_LIMIT = 256 * 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCheckpoint:
    """The reference system's JSON checkpoint, as it was found.

    Attributes:
        run_id: Names what was trained.
        policy_state: Open-ended JSON data.
        optimizer_state: Open-ended JSON data.
        global_step: Counts the steps of training.
        optimizer_step: Counts those of the optimizer.
        saved_at_unix_seconds: Epoch seconds, UTC.
    """

    run_id: str
    policy_state: Mapping[str, object]
    optimizer_state: Mapping[str, object]
    global_step: int
    optimizer_step: int
    saved_at_unix_seconds: int


class Resumed(NamedTuple):
    """A checkpoint that could be read, and what was tried before it.

    Attributes:
        checkpoint: What was read.
        source: ``primary`` or ``fallback``.
        diagnostics: Why the primary one was not taken; empty where it was.
    """

    checkpoint: ReferenceCheckpoint
    source: str
    diagnostics: list[str]


def read_reference(path: Path) -> ReferenceCheckpoint:
    """Read a JSON checkpoint of the reference system.

    Raises:
        CheckpointError: It is not one; the message is the reference's own.

    Source:
        ``contracts/reference-live-loop.md``, CK1 and CK3.
    """
    try:
        with path.open("rb") as file:
            text = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise CheckpointError(f"read checkpoint {path}: {error}") from error
    if len(text) > SIZE_LIMIT:
        raise CheckpointError(f"read checkpoint {path}: larger than {SIZE_LIMIT} bytes")
    try:
        found = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"parse checkpoint JSON {path}: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError("checkpoint payload must be a JSON object")
    version = _count(found, "checkpoint_version")
    if version != VERSION:
        raise CheckpointError(f"unsupported checkpoint_version {version}; expected {VERSION}")
    run_id = _required(found, "run_id", str)
    if not run_id.strip():
        raise CheckpointError("checkpoint field `run_id` must not be empty")
    return ReferenceCheckpoint(
        run_id=run_id,
        policy_state=_object(found, "policy_state"),
        optimizer_state=_object(found, "optimizer_state"),
        global_step=_count(found, "global_step"),
        optimizer_step=_count(found, "optimizer_step"),
        saved_at_unix_seconds=_count(found, "saved_at_unix_seconds"),
    )


def resume_reference(primary: Path, fallback: Path) -> Resumed:
    """Read the primary checkpoint, or the fallback where that one is bad.

    Raises:
        CheckpointError: Both are; the message is the reference's own.

    Source:
        ``contracts/reference-live-loop.md``, CK4.
    """
    try:
        return Resumed(read_reference(primary), "primary", [])
    except CheckpointError as error:
        diagnostic = f"primary checkpoint load failed: {error}"
    try:
        return Resumed(read_reference(fallback), "fallback", [diagnostic])
    except CheckpointError as error:
        raise CheckpointError(f"{diagnostic}; fallback checkpoint load failed: {error}") from error


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _required(found: Mapping[str, object], name: str, kind: type[_T]) -> _T:
    value = found.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CheckpointError(f"missing required checkpoint field `{name}`")
    return value


def _count(found: Mapping[str, object], name: str) -> int:
    count = _required(found, name, int)
    if not 0 <= count < 2**64:
        raise CheckpointError(f"missing required checkpoint field `{name}`")
    return count


def _object(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    if name not in found:
        raise CheckpointError(f"missing required checkpoint field `{name}`")
    value = found[name]
    if not isinstance(value, dict):
        raise CheckpointError(f"`{name}` must be a JSON object")
    return value
