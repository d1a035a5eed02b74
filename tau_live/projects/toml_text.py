"""Adding to a TOML file as text, so that its comments and its layout stay what they are.

The standard library reads TOML and does not write it. What is written here is read again before it
is returned, and has to say what the file said and what was added, nothing else.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tau_live.errors import SettingsError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_PART = re.compile(r"\s*(?:\"([^\"\\]*)\"|'([^']*)'|([A-Za-z0-9_-]+))\s*")


@dataclass(frozen=True, slots=True)
class Addition:
    """Values for one table.

    Attributes:
        table: Where it is, ``("tool", "tau-live", "decisions", "model")``.
        values: What is to be in it, besides what is.
        remarks: What is said above some of them, by key.
    """

    table: tuple[str, ...]
    values: Mapping[str, object]
    remarks: Mapping[str, str] = field(default_factory=dict)


def with_additions(text: str, additions: Sequence[Addition]) -> str:
    """Return a document with more in it; whatever it had stays as it was, comments and all.

    Raises:
        SettingsError: It is laid out so that no table can be added to as text.
    """
    wanted = tomllib.loads(text)
    for one in additions:
        _merge(wanted, one)
    end = "\r\n" if "\r\n" in text else "\n"
    for one in additions:
        text = _with(text, one, end)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = {}
    if found != wanted:
        raise SettingsError("its tables cannot be extended without rewriting them: add it by hand")
    return text


def fragment(additions: Sequence[Addition], at: Sequence[str]) -> str:
    """Return what would be added to an empty file, below the table ``at``."""
    placed = (replace(one, table=(*at, *one.table)) for one in additions)
    return "\n".join(_section(one, "\n") for one in placed)


def value_text(value: object) -> str:
    """Return a value as TOML, on one line.

    Raises:
        TypeError: TOML has no such value.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
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


def _with(text: str, one: Addition, end: str) -> str:
    """Return a text with one addition: behind the header of its table, or at the end."""
    lines = text.splitlines(keepends=True)
    if not one.table:
        first = next((n for n, line in enumerate(lines) if _says(line)), len(lines))
        return "".join([*lines[:first], *_values(one, end), *lines[first:]])
    for index, line in enumerate(lines):
        if _header(line) == one.table:
            begin = line if line.endswith("\n") else line + end
            lines[index] = begin + "".join(_values(one, end))
            return "".join(lines)
    gap = "" if not text.strip() else end if text.endswith("\n") else end * 2
    return text + gap + _section(one, end)


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _section(one: Addition, end: str) -> str:
    header = "" if not one.table else f"[{'.'.join(map(key_text, one.table))}]{end}"
    return header + "".join(_values(one, end))


def _values(one: Addition, end: str) -> Iterator[str]:
    for key, value in one.values.items():
        if key in one.remarks:
            yield f"# {one.remarks[key]}{end}"
        yield f"{key_text(key)} = {value_text(value)}{end}"


def _header(line: str) -> tuple[str, ...]:
    """Return the table that a line begins; nothing where it begins none."""
    found = _HEADER.fullmatch(line.strip())
    parts: list[str] = []
    at, inside = 0, found[1] if found else ""
    while part := _PART.match(inside, at):
        parts.append(next(one for one in part.groups() if one is not None))
        at = part.end()
        if not inside[at:].startswith("."):
            break
        at += 1
    return tuple(parts) if parts and at == len(inside) else ()


def _merge(document: dict[str, object], one: Addition) -> None:
    """Put an addition into what a document says.

    Raises:
        SettingsError: There is something else where its table belongs.
    """
    table = document
    for name in one.table:
        found = table.setdefault(name, {})
        if not isinstance(found, dict):
            raise SettingsError(f"{'.'.join(one.table)} cannot be added: {name} is not a table")
        table = found
    table.update(one.values)
