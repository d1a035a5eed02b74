"""The settings file of a project: which one it is, its contents, and additions to it."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

from tau_live.errors import SettingsError
from tau_live.machine.whole_files import write_whole
from tau_live.projects.toml_text import Addition, with_additions
from tau_live.settings.sources import PYPROJECT, own_table, read_toml
from tau_live.switch import PREFIX

OURS = ("tool", "tau-live")
NEW_MODE = 0o644
"""Of a new file: settings of a project are no secret."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file that settings are in, or will be.

    Attributes:
        path: The file.
        before: What it holds; ``None`` while it is not there.
        own: What it says of us.
        at: Where that is in it; nothing for a file of ours alone.
    """

    path: Path
    before: bytes | None
    own: Mapping[str, object]
    at: tuple[str, ...]

    def after(self, additions: Sequence[Addition]) -> str:
        """Return what the file would hold with more in it.

        Raises:
            SettingsError: It is laid out so that nothing can be added.
        """
        placed = [replace(one, table=(*self.at, *one.table)) for one in additions]
        try:
            return with_additions(self.text, placed)
        except SettingsError as error:
            raise SettingsError(f"{self.path}: {error}") from None

    @property
    def text(self) -> str:
        """What it holds."""
        return (self.before or b"").decode()

    def diff(self, after: str) -> list[str]:
        """Return what would be changed, as lines of a unified diff."""
        name = self.path.name
        old = name if self.before is not None else "/dev/null"
        lines = unified_diff(self.text.splitlines(), after.splitlines(), old, name, lineterm="")
        return [*lines]

    def write(self, after: str) -> None:
        """Replace the file, all of it or nothing, with the permissions that it has.

        Raises:
            SettingsError: Somebody has changed it since it was read.
            OSError: It cannot be written.
        """
        path = self.path.resolve()  # a link stays one
        now = path.read_bytes() if path.exists() else None
        if now != self.before:
            raise SettingsError(f"{path} was changed meanwhile: run this again")
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else NEW_MODE
        write_whole(path, after.encode(), mode=mode)


def settings_file(folder: Path, environ: Mapping[str, str]) -> SettingsFile:
    """Return the file that a project's settings belong into.

    It is what ``TAU_LIVE_RL_CONFIG`` names, else the nearest ``pyproject.toml`` that has settings
    of ours, else the project's own.

    Raises:
        SettingsError: It cannot be read, or is no TOML.
    """
    named = environ.get(f"{PREFIX}CONFIG", "").strip()
    if named:
        path = folder / named
        document = read_toml(path) if path.exists() else {}
        own = own_table(document)
        return _file(path, document if own is None else own, at=() if own is None else OURS)
    nearest, inside = None, True
    for place in (folder, *folder.parents):
        path = place / PYPROJECT
        if path.is_file():
            own = own_table(read_toml(path)) if inside or _mentions_us(path) else None
            if own is not None:
                return _file(path, own, at=OURS)
            nearest = nearest or (path if inside else None)
        inside = inside and not (place / ".git").exists()  # what is above is another project
    return _file(nearest or folder / PYPROJECT, {}, at=OURS)


def _mentions_us(path: Path) -> bool:
    try:
        return b"tau-live" in path.read_bytes()
    except OSError:  # somebody else's, above the project
        return False


def _file(path: Path, own: Mapping[str, object], *, at: tuple[str, ...]) -> SettingsFile:
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path} is no file")
    return SettingsFile(path, path.read_bytes() if path.exists() else None, own, at)
