"""The Python files of a project, parsed: bounded in number, size and time, and never imported."""

import ast
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LEFT_OUT = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "env"}
)
"""Folders in which nobody's own sources are; besides them hidden ones and environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of a project is read.

    Attributes:
        files: Python files, at most.
        entries: Files and folders of any kind that are passed on the way.
        file_bytes: What a longer file has is not read.
        seconds: Reading ends after so long.
    """

    files: int = 2_000
    entries: int = 100_000
    file_bytes: int = 1_000_000
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was parsed.

    Attributes:
        path: Its path below the project's folder.
        tree: What it says.
    """

    path: str
    tree: ast.Module


@dataclass(slots=True)
class Reading:
    """A walk through a project.

    Attributes:
        folder: Where it begins.
        bounds: How far it goes.
        read: How many files were parsed.
        unread: By reason, the files that were not.
        cut: Why the walk ended before everything was seen; ``None`` if it did not.
        notebooks: How many notebooks there are; they are not read.
    """

    folder: Path
    bounds: Bounds = field(default_factory=Bounds)
    clock: Callable[[], float] = time.monotonic
    read: int = 0
    unread: dict[str, list[str]] = field(default_factory=dict)
    cut: str | None = None
    notebooks: int = 0

    def sources(self) -> Iterator[Source]:
        """Yield every file that can be parsed, folder by folder, each in the order of its name."""
        until = self.clock() + self.bounds.seconds
        for path in self._files(until):
            if self.clock() > until:
                self.cut = f"it took longer than {self.bounds.seconds:g} s"
            elif self.read + sum(map(len, self.unread.values())) >= self.bounds.files:
                self.cut = f"there are more than {self.bounds.files:,} Python files"
            if self.cut:
                return
            name = path.relative_to(self.folder).as_posix()
            try:
                tree = _parsed(path, self.bounds.file_bytes)
            except UnreadError as error:
                self.unread.setdefault(str(error), []).append(name)
            else:
                self.read += 1
                yield Source(name, tree)

    def _files(self, until: float) -> Iterator[Path]:
        passed = 0
        for folder, folders, files in os.walk(self.folder, onerror=self._closed):
            at = Path(folder)
            folders[:] = sorted(one for one in folders if _is_own(at / one))
            for name in sorted(files):
                self.notebooks += name.endswith(".ipynb")
                if name.endswith(".py"):
                    yield at / name
            passed += len(files) + len(folders)
            if passed > self.bounds.entries:
                self.cut = f"there are more than {self.bounds.entries:,} files"
            elif self.clock() > until:  # also where there is no Python file at all
                self.cut = f"it took longer than {self.bounds.seconds:g} s"
            if self.cut:
                return

    def _closed(self, error: OSError) -> None:
        name = os.path.relpath(str(error.filename), self.folder)
        self.unread.setdefault("cannot be opened", []).append(name)


class UnreadError(Exception):
    """A file was not parsed; the text says why."""


def _is_own(folder: Path) -> bool:
    name = folder.name
    left_out = name in LEFT_OUT or name.startswith(".") or name.endswith(".egg-info")
    return not left_out and not (folder / "pyvenv.cfg").exists()


def _parsed(path: Path, most: int) -> ast.Module:
    """Return what a file says.

    Raises:
        UnreadError: It does not.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # to read it may never end
            raise UnreadError("not a file")
        if about.st_size > most:
            raise UnreadError(f"larger than {most / 1e6:g} MB")
        content = path.read_bytes()
    except OSError as error:
        raise UnreadError("cannot be read") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the compiler thinks of other people's code
            return ast.parse(content)
    except SyntaxError as error:
        raise UnreadError("syntax error") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadError("cannot be parsed") from error
