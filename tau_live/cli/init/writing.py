"""The settings file of a project: which one it is, its contents, and additions to it.

The standard library reads TOML and does not write it, and tomlkit cannot add to tables with others
between them. Each result is read again before it is returned, and must equal the old document plus
the additions.
"""

import json
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from pathlib import Path

from tau_live.core.errors import SettingsError
from tau_live.core.files import write_whole
from tau_live.core.settings.kinds import Table
from tau_live.core.settings.sources import PYPROJECT, own_table, read_toml
from tau_live.core.switch import PREFIX

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_PART = re.compile(r"\s*(?:\"([^\"\\]*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*")


@dataclass(frozen=True, slots=True)
class Addition:
    """Values for one table.

    Attributes:
        table: Its path, such as ``("tool", "tau-live", "decisions", "model")``.
        values: Its values, besides the existing ones.
        remarks: Comments above some of them, by key.
    """

    table: tuple[str, ...]
    values: Table
    remarks: Mapping[str, str] = field(default_factory=dict)


def with_additions(text: str, additions: Sequence[Addition]) -> str:
    """Return a document with additions; whatever it had stays as it was, comments and all.

    Raises:
        SettingsError: Its layout does not allow to add to its tables as text.
    """
    wanted = tomllib.loads(text)
    for addition in additions:
        _merge(wanted, addition)
    end = "\r\n" if "\r\n" in text else "\n"
    for addition in additions:
        text = _with(text, addition, end)
    try:
        result = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        result = {}
    if result != wanted:
        raise SettingsError("its tables cannot be extended without rewriting them: add it by hand")
    return text


def fragment(additions: Sequence[Addition], at: Sequence[str]) -> str:
    """Return the text of additions to an empty file, below the table ``at``."""
    placed = (replace(addition, table=(*at, *addition.table)) for addition in additions)
    return "\n".join(_section(addition, "\n") for addition in placed)


def value_text(value: object) -> str:
    """Return a value as TOML, on one line.

    Raises:
        TypeError: TOML has no such value.
    """
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str | int):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_text(str(key))} = {value_text(of)}" for key, of in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")


def key_text(key: str) -> str:
    """Return a key as TOML."""
    return key if _BARE.fullmatch(key) else value_text(key)


def _with(text: str, addition: Addition, end: str) -> str:
    """Return a text with one addition: after the header of its table, or at the end."""
    lines = text.splitlines(keepends=True)
    if not addition.table:
        texts = (line.strip() for line in lines)  # the first setting, after the comments above it
        first = next((n for n, of in enumerate(texts) if of and of[0] != "#"), len(lines))
        return "".join([*lines[:first], *_values(addition, end), *lines[first:]])
    for index, line in enumerate(lines):
        if _header(line) == addition.table:
            begin = line if line.endswith("\n") else line + end
            lines[index] = begin + "".join(_values(addition, end))
            return "".join(lines)
    gap = "" if not text.strip() else end if text.endswith("\n") else end * 2
    return text + gap + _section(addition, end)


def _section(addition: Addition, end: str) -> str:
    header = "" if not addition.table else f"[{'.'.join(map(key_text, addition.table))}]{end}"
    return header + "".join(_values(addition, end))


def _values(addition: Addition, end: str) -> Iterator[str]:
    for key, value in addition.values.items():
        if key in addition.remarks:
            yield f"# {addition.remarks[key]}{end}"
        yield f"{key_text(key)} = {value_text(value)}{end}"


def _header(line: str) -> tuple[str, ...]:
    """Return the path of the table that a line begins; empty if it begins none."""
    match = _HEADER.fullmatch(line.strip())
    parts: list[str] = []
    at, inside = 0, match[1] if match else ""
    while part := _PART.match(inside, at):
        parts.append(next(group for group in part.groups() if group is not None))
        at = part.end()
        if not inside[at:].startswith("."):
            break
        at += 1
    return tuple(parts) if parts and at == len(inside) else ()


def _merge(document: dict[str, object], addition: Addition) -> None:
    """Merge an addition into a document.

    Raises:
        SettingsError: There is another value in place of its table.
    """
    table = document
    for name in addition.table:
        entry = table.setdefault(name, {})
        if not isinstance(entry, dict):
            raise SettingsError(
                f"{'.'.join(addition.table)} cannot be added: {name} is not a table"
            )
        table = entry
    table.update(addition.values)


OURS = ("tool", "tau-live")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file for settings, which may not exist yet.

    Attributes:
        path: The file.
        before: Its contents; ``None`` if it does not exist.
        own: Our settings in it.
        at: The path of our table in it; empty for a file of ours alone.
    """

    path: Path
    before: bytes | None
    own: Table
    at: tuple[str, ...]

    def after(self, additions: Sequence[Addition]) -> str:
        """Return the file's contents with additions.

        Raises:
            SettingsError: Its layout does not allow to add to it.
        """
        placed = [replace(addition, table=(*self.at, *addition.table)) for addition in additions]
        try:
            return with_additions(self.text, placed)
        except SettingsError as error:
            raise SettingsError(f"{self.path}: {error}") from None

    @property
    def text(self) -> str:
        """Its contents as text."""
        return (self.before or b"").decode()

    def diff(self, after: str) -> list[str]:
        """Return the change as lines of a unified diff."""
        name = self.path.name
        old = name if self.before is not None else "/dev/null"
        lines = unified_diff(self.text.splitlines(), after.splitlines(), old, name, lineterm="")
        return [*lines]

    def write(self, after: str) -> None:
        """Replace the file atomically, with the permissions that it has.

        Raises:
            SettingsError: Somebody has changed it since it was read.
            OSError: It cannot be written.
        """
        path = self.path.resolve()  # a link stays one
        now = path.read_bytes() if path.exists() else None
        if now != self.before:
            raise SettingsError(f"{path} was changed meanwhile: run this again")
        # Everybody may read a new file: settings of a project are no secret.
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        write_whole(path, after.encode(), mode=mode)


def settings_file(folder: Path, environ: Mapping[str, str]) -> SettingsFile:
    """Return the file for a project's settings.

    It is the one that ``TAU_LIVE_RL_CONFIG`` names, else the nearest ``pyproject.toml`` that has
    settings of ours, else the project's own.

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
    for parent in (folder, *folder.parents):
        path = parent / PYPROJECT
        if path.is_file():
            own = own_table(read_toml(path)) if inside or _mentions_us(path) else None
            if own is not None:
                return _file(path, own, at=OURS)
            nearest = nearest or (path if inside else None)
        inside = inside and not (parent / ".git").exists()  # above it is another project
    return _file(nearest or folder / PYPROJECT, {}, at=OURS)


def _mentions_us(path: Path) -> bool:
    try:
        return b"tau-live" in path.read_bytes()
    except OSError:  # somebody else's, above the project
        return False


def _file(path: Path, own: Table, *, at: tuple[str, ...]) -> SettingsFile:
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path} is no file")
    return SettingsFile(path, path.read_bytes() if path.exists() else None, own, at)
