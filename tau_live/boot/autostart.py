"""The file by which every Python of an environment attaches by itself: written, removed, shown.

One line in ``tau_live_autostart.pth``, which the interpreter executes when it starts; where
``TAU_LIVE_RL`` is unset that is all that happens. Pythons from 3.15 on read the same from
``tau_live_autostart.start`` and then ignore the line: they resolve each ``package.module:function``
in it as ``pkgutil.resolve_name`` does and call it without arguments (PEP 829). Such a file cannot
check the environment or the installation first: where tau-live is off, four small modules of it are
imported for nothing, and once it has been uninstalled, Python prints that it is not there.
"""

import hashlib
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tau_live.core.errors import AutostartError
from tau_live.core.files import write_whole

PTH = "tau_live_autostart.pth"
START = "tau_live_autostart.start"
READABLE = 0o644
"""Other users of the environment run its Pythons too, and only its owner may change it."""

LINE = (
    'import os; (os.environ.get("TAU_LIVE_RL") or os.environ.get("TAU_LIVE_RL_ENABLED")) and '
    '__import__("importlib.util", fromlist=["util"]).find_spec("tau_live") and '
    '__import__("tau_live.startup", fromlist=["start"]).start()\n'
)
"""Checks for tau-live first, so that nothing complains once it has been uninstalled."""

ENTRY = "tau_live.startup:start\n"


class AutostartState(StrEnum):
    """The state of the files by which Pythons of the environment attach by themselves."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutostartFile:
    """One of the files.

    Attributes:
        path: Its path, whether it exists or not.
        sha256: The checksum of its contents; ``None`` if it does not exist.
        expected: The checksum of the contents that this version writes.
    """

    path: Path
    sha256: str | None
    expected: str


def contents(version: tuple[int, ...] = sys.version_info[:2]) -> Mapping[str, str]:
    """Return the contents of the files for a version of Python, by name."""
    return {PTH: LINE, START: ENTRY} if version >= (3, 15) else {PTH: LINE}


def site_packages() -> Path:
    """Return the folder of this environment in which packages are installed."""
    return Path(sysconfig.get_path("purelib"))


def files(folder: Path, wanted: Mapping[str, str]) -> list[AutostartFile]:
    """Return the state of each of the files."""
    return [
        AutostartFile(path=folder / name, sha256=_sha256_of(folder / name), expected=_sha256(text))
        for name, text in wanted.items()
    ]


def state_of(files: list[AutostartFile]) -> AutostartState:
    """Return the state of the environment; one file without the other is ``changed``."""
    if all(file.sha256 is None for file in files):
        return AutostartState.DISABLED
    if all(file.sha256 == file.expected for file in files):
        return AutostartState.ENABLED
    return AutostartState.CHANGED


def enable(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write the files, each as a whole or not at all; existing ones are replaced.

    Raises:
        AutostartError: They cannot be written.
    """
    try:
        for name, text in wanted.items():
            write_whole(folder / name, text.encode(), mode=READABLE)
    except OSError as error:
        raise AutostartError(f"{folder}: cannot be written: {error.strerror or error}") from error


def disable(folder: Path) -> bool:
    """Remove the files; return whether there were any.

    Raises:
        AutostartError: They cannot be removed.
    """
    existing = [folder / name for name in (START, PTH) if (folder / name).exists()]
    try:
        for path in existing:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise AutostartError(f"{folder}: cannot be changed: {error.strerror or error}") from error
    return bool(existing)


def _sha256_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
