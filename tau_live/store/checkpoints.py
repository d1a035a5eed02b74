"""The checkpoints of a store as files of one folder, each for its owner alone, and their names."""

import re
import stat
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO

from tau_live.core.errors import (
    CheckpointError,
    StoreFilesError,
    StoreUnavailableError,
    TauLiveError,
    suppress,
)
from tau_live.core.files import is_passing, make_folders, narrow, sweep, write_whole

_NAME = re.compile(r"[0-9]{1,18}(-[0-9a-f]{16})?\.npz")


def name_of(version: int, sha256: str = "") -> str:
    """Return the name of a version's checkpoint; with a checksum, it is unique to its content.

    So a learner that was stopped for longer than its lease cannot overwrite the version that was
    made in its place.
    """
    return f"{version:09d}-{sha256[:16]}.npz" if sha256 else f"{version:09d}.npz"


def version_of(name: str) -> int:
    """Return the version in the name of a checkpoint. Raises: ValueError."""
    return int(name.removesuffix(".npz").partition("-")[0])


def is_checkpoint(name: str) -> bool:
    """Whether a checkpoint may have this name."""
    return _NAME.fullmatch(name) is not None


class Checkpoints(ABC):
    """Checkpoints by name: bytes that are stored whole or not at all, and never change."""

    @abstractmethod
    def of_run(self, run_id: str) -> "Checkpoints":
        """Return the checkpoints of an optimization's own policy."""

    @abstractmethod
    def address(self, name: str) -> str:
        """Return where a checkpoint is, for people."""

    @abstractmethod
    def put(self, name: str, content: bytes) -> None:
        """Store a checkpoint, durably; one of the same name is replaced as a whole.

        Raises:
            CheckpointError: It could not be written.
            StoreFilesError: There is no room for it now, or the disk fails.
        """

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a checkpoint, so that a reader takes no more of it than it needs.

        Raises:
            CheckpointError: There is none of this name, or it cannot be read.
            StoreUnavailableError: This process cannot read it now, or is about to end.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all checkpoints, sorted.

        Raises:
            CheckpointError: They cannot be listed.
            StoreFilesError: This process cannot list them now.
        """

    @abstractmethod
    def delete(self, name: str) -> bool:
        """Delete a checkpoint, if there is one; return whether it is gone."""

    @abstractmethod
    def sweep(self) -> list[str]:
        """Delete what writers that died left half-written; return the names of these files.

        Those of another container look as if they had died.
        """


class FolderCheckpoints(Checkpoints):
    """Checkpoints in a folder, each a file of its name.

    Args:
        folder: Their folder; the first of them makes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_run(self, run_id: str) -> "FolderCheckpoints":
        """Return the checkpoints of an optimization's own policy."""
        return FolderCheckpoints(self._folder / run_id)

    def address(self, name: str) -> str:
        """Return where a checkpoint is, for people: its path."""
        return str(self._folder / name)

    def put(self, name: str, content: bytes) -> None:
        """Store a checkpoint, durably; one of the same name is replaced as a whole.

        Raises:
            CheckpointError: It could not be written.
            StoreFilesError: There is no room for it now, or the disk fails.
        """
        try:
            make_folders(self._folder)
            narrow(self._folder)
            write_whole(self._path(name), content)
        except (OSError, ValueError) as error:
            kind = StoreFilesError if is_passing(error) else CheckpointError
            raise kind(f"cannot write checkpoint {self.address(name)}: {error}") from error

    def open(self, name: str) -> BinaryIO:
        """Open a checkpoint, so that a reader takes no more of it than it needs.

        Raises:
            CheckpointError: There is none of this name, or it cannot be read.
            StoreUnavailableError: This process cannot read it now, or is about to end.
        """
        try:
            path = self._path(name)
            if stat.S_ISREG(path.stat().st_mode):  # a pipe may never end
                return path.open("rb")
        except (OSError, ValueError) as error:
            raise unreadable(self.address(name), error) from error
        raise CheckpointError(f"cannot read checkpoint {path}: it is not a regular file")

    def names(self) -> list[str]:
        """Return the names of all checkpoints, sorted.

        Raises:
            CheckpointError: The folder cannot be read.
            StoreFilesError: This process cannot read it now.
        """
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                names = (path.name for path in self._folder.iterdir())
                return sorted(filter(is_checkpoint, names))
        except OSError as error:
            kind = StoreFilesError if is_passing(error) else CheckpointError
            raise kind(f"cannot list the checkpoints in {self._folder}: {error}") from error
        return []

    def delete(self, name: str) -> bool:
        """Delete a checkpoint, if there is one; return whether it is gone."""
        with suppress(OSError, ValueError):
            self._path(name).unlink(missing_ok=True)
            return True
        return False

    def sweep(self) -> list[str]:
        """Delete what writers that died left half-written; return the names of these files.

        Those of another container look as if they had died.
        """
        return sweep(self._folder)

    def _path(self, name: str) -> Path:
        """Return the path of a checkpoint, whose name may come from an edited row."""
        if not name or Path(name).name != name:
            raise ValueError(f"{name!r} is no name of a file")
        return self._folder / name


def unreadable(address: str, error: Exception) -> TauLiveError:
    """Return the error of an unreadable checkpoint; while a process ends, that is no damage."""
    message = f"this process cannot read checkpoint {address} now: {error}"
    if is_passing(error):
        return StoreFilesError(message)
    if sys.is_finalizing() or not threading.main_thread().is_alive():
        return StoreUnavailableError(message)
    return CheckpointError(f"cannot read checkpoint {address}: {error}")
