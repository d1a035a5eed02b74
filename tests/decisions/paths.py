"""Checkpoints by their paths, for tests that look at the files or spoil them."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tau_live.decisions import checkpoints
from tau_live.decisions.checkpoints import Checkpoint
from tau_live.store.checkpoints import FolderCheckpoints


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into a folder; return its path."""
    return folder / checkpoints.save(FolderCheckpoints(folder), checkpoint)


def load(path: Path, *, sha256: str | None = None) -> Checkpoint:
    """Read a checkpoint and verify it."""
    return checkpoints.load(FolderCheckpoints(path.parent), path.name, sha256=sha256)


def load_some(
    path: Path, arrays: Collection[str], *, sha256: str | None = None
) -> dict[str, npt.NDArray[np.generic]]:
    """Read some arrays of a checkpoint and verify these."""
    return checkpoints.load_some(FolderCheckpoints(path.parent), path.name, arrays, sha256=sha256)


def prune(folder: Path, *, keep: int, needed: frozenset[int]) -> list[int]:
    """Delete the checkpoints of a folder that nobody needs; return their versions."""
    return checkpoints.prune(FolderCheckpoints(folder), keep=keep, needed=needed)
