"""JSON and TOML documents of users, and every place at which they are wrong."""

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tau_live.core.settings.kinds import show_value

MOST_BYTES = 64 * 2**20
MOST_DEPTH = 64

DEPRECATED = {"train": "optimize", "val": "validate"}
"""Deprecated keys of a config and what replaces them."""

_TWICE: Final = object()
"""Stands for the value of a key that an object has more than once."""

_NO_VALUE: Final = object()


class Deprecation(NamedTuple):
    """A deprecated name in use.

    Attributes:
        old: The deprecated name.
        new: The name that replaces it.
        kind: What it is the name of.
    """

    old: str
    new: str
    kind: Literal["flag", "key"]

    @property
    def line(self) -> str:
        """The line that reports it."""
        what = "CLI alias" if self.kind == "flag" else "config key"
        return f"deprecated {what} '{self.old}' detected; use '{self.new}' instead."


class Violation(NamedTuple):
    """A place at which a document is wrong.

    Attributes:
        path: The file.
        pointer: The JSON pointer of the place; empty for the document.
        problem: What is wrong.
        value: The value at the place; left out where there is none.
        is_lines: Whether the file has a document on each line, and the pointer begins with the
            number of one.
    """

    path: Path
    pointer: str
    problem: str
    value: object = _NO_VALUE
    is_lines: bool = False

    @property
    def line(self) -> str:
        """The violation as a line for the user."""
        place = line_place(self.pointer) if self.is_lines else self.pointer
        where = f"{self.path}: {place}: " if place else f"{self.path}: "
        shown = "" if self.value is _NO_VALUE else f", got {show_value(self.value)}"
        return f"{where}{self.problem}{shown}"


def pointer_of(keys: Sequence[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of these keys and indexes."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def line_place(pointer: str) -> str:
    """Return the place of a pointer that begins with the number of a line: ``line 4: /weight``."""
    _, number, *keys = pointer.split("/")
    return f"line {number}" + "".join([":", " /", "/".join(keys)] if keys else [])


def read_text(path: Path) -> str:
    """Return the text of a file of at most 64 MiB.

    Raises:
        ValueError: It cannot be read, is no file, is too long, or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():  # reading it may never end
            raise ValueError(f"cannot be read: it is {'a folder' if path.is_dir() else 'no file'}")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"must have at most {MOST_BYTES // 2**20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"must be UTF-8, which line {line} is not") from error


def parse_json(text: str) -> object:
    """Return a JSON document; ``faults`` says where it holds what JSON does not know.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError(f"must not be nested more than {MOST_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError(f"must be JSON: {error}") from error


def parse_toml(text: str) -> dict[str, object]:
    """Return a TOML document.

    Raises:
        ValueError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(f"must not be nested more than {MOST_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError(f"must be TOML: {error}") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known = dict(pairs)
    if len(known) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        known |= {key: _TWICE for key in known if counts[key] > 1}
    return known


def faults(path: Path, document: object, *, line: int | None = None) -> list[Violation]:
    """Return where a document holds what JSON cannot, is nested too deeply, or repeats a key.

    Args:
        path: Its file.
        document: The document.
        line: The number of its line, in a file with one on each.
    """
    keys = () if line is None else (line,)
    return [
        Violation(path, pointer_of(at), problem, value, is_lines=line is not None)
        for at, problem, value in _faults(document, keys)
    ]


def _faults(
    value: object, at: tuple[str | int, ...], depth: int = 0
) -> Iterator[tuple[tuple[str | int, ...], str, object]]:
    if isinstance(value, dict | list) and depth == MOST_DEPTH:
        yield at, f"must not be nested more than {MOST_DEPTH} deep", _NO_VALUE
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if not _is_encodable(str(key)):
                yield at, "must have keys that UTF-8 can encode", key
            yield from _faults(inner, (*at, key), depth + 1)
    elif (problem := _problem_of(value)) is not None:
        yield at, problem, _NO_VALUE if value is _TWICE else value


def _problem_of(value: object) -> str | None:
    if value is _TWICE:
        return "is given more than once"
    if isinstance(value, str):
        return None if _is_encodable(value) else "must be text that UTF-8 can encode"
    if isinstance(value, float):
        return None if math.isfinite(value) else "must be a finite number"
    if value is None or isinstance(value, bool | int):
        return None
    return "must be a JSON value"


def _is_encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
