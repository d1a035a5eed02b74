"""Kinds of settings: each reads a value from text or TOML, or reports what it expects.

A kind's ``parse`` takes text, what TOML can hold, or a value that is already right, which it
returns unchanged. Its ``ValueError`` goes on where the name of the setting ends.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from tau_live.errors import pass_on

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

_SHOWN = 80
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True}
_TRUTHS |= {"0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """One kind of value.

    Attributes:
        expects: What it accepts, in words that follow "must be".
        parse: Returns the value. Raises: ValueError.
    """

    expects: str
    parse: Callable[[object], T_co]


def shown(value: object) -> str:
    """Return a value for an error message: its repr, on one line and cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` was probably meant to be."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def checked(expects: str, convert: Callable[[object], T | None]) -> Kind[T]:
    """Return the kind of everything that ``convert`` turns into a value, not into ``None``."""

    def parse(raw: object) -> T:
        value = convert(raw)
        if value is None:
            raise ValueError(f"must be {expects}, got {shown(raw)}")
        return value

    return Kind(expects, parse)


def whole(*, least: int, most: int = 1_000_000_000) -> Kind[int]:
    """Whole numbers in ``[least, most]``."""

    def convert(raw: object) -> int | None:
        if isinstance(raw, str):
            digits = raw.strip().removeprefix("+")
            unsigned = digits.removeprefix("-")
            if not (unsigned.isascii() and unsigned.isdigit() and len(unsigned) < 40):
                return None
            raw = int(digits)
        if isinstance(raw, bool) or not isinstance(raw, int):
            return None
        return raw if least <= raw <= most else None

    return checked(f"a whole number from {least} to {most}", convert)


def as_number(raw: object) -> float | None:
    """Return a finite number as a float; ``None`` for anything else, booleans included."""
    try:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            return None
        value = float(raw)
    except (ValueError, OverflowError) as error:
        pass_on(error)
        return None
    return value if math.isfinite(value) else None


def number(
    *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf, expects: str
) -> Kind[float]:
    """Finite numbers in ``[least, most]`` that are also greater than ``above``."""

    def convert(raw: object) -> float | None:
        value = as_number(raw)
        return value if value is not None and least <= value <= most and value > above else None

    return checked(expects, convert)


def share() -> Kind[float]:
    """Numbers in ``(0, 1]``."""
    return number(above=0.0, most=1.0, expects="a number above 0 and at most 1")


def flag() -> Kind[bool]:
    """Yes or no."""

    def convert(raw: object) -> bool | None:
        return raw if isinstance(raw, bool) else _TRUTHS.get(str(raw).strip().lower())

    return checked("true or false", convert)


def choice(of: type[E]) -> Kind[E]:
    """One of a few words, in any case."""

    def convert(raw: object) -> E | None:
        word = raw.strip().lower() if isinstance(raw, str) else None
        return next((member for member in of if member.value == word), None)

    return checked(f"one of {', '.join(of)}", convert)


def words() -> Kind[tuple[str, ...]]:
    """A command and its arguments: a list, or text that is taken apart as a shell would."""

    def convert(raw: object) -> tuple[str, ...] | None:
        if isinstance(raw, str):
            try:
                raw = [] if raw.strip().lower() == "none" else _listed(raw)
            except ValueError as error:
                pass_on(error)
                return None
        if not isinstance(raw, list | tuple):
            return None
        given = tuple(one for one in raw if isinstance(one, str) and "\0" not in one)
        return given if len(given) == len(raw) and all(given[:1]) else None

    return checked("a command with its arguments, or none", convert)


def _listed(raw: str) -> object:
    if raw.lstrip().startswith("["):
        return json.loads(raw)
    import shlex

    return shlex.split(raw)


def text() -> Kind[str]:
    """Printable text that UTF-8 can say (ids are made from it)."""

    def convert(raw: object) -> str | None:
        found = raw.strip() if isinstance(raw, str) else ""
        return found if found.isprintable() and found else None

    return checked("printable text", convert)


def path() -> Kind[Path]:
    """A path; ``~`` is the home folder."""

    def convert(raw: object) -> Path | None:
        words = str(raw).strip() if isinstance(raw, str | Path) else ""
        if "\0" in words or len(words.splitlines()) != 1:
            return None
        try:
            return Path(words).expanduser()
        except (RuntimeError, ValueError) as error:  # "~nobody", no home at all, or not a name
            pass_on(error)
            return None

    return checked("a path", convert)


def span() -> Kind[tuple[float, float]]:
    """A lowest and a highest number, as a list or as two numbers with a comma between them."""

    def convert(raw: object) -> tuple[float, float] | None:
        parts = raw.strip().strip("[]").split(",") if isinstance(raw, str) else raw
        ends = [as_number(end) for end in parts] if isinstance(parts, list | tuple) else []
        match ends:
            case [float(low), float(high)] if low < high:
                return low, high
        return None

    return checked("[lowest, highest]", convert)


def names() -> Kind[tuple[str, ...]]:
    """Names, as a list or separated by commas; ``none`` for no name at all."""

    def convert(raw: object) -> tuple[str, ...] | None:
        if isinstance(raw, str):
            parts = [] if raw.strip().lower() == "none" else raw.split(",")
            return tuple(part.strip() for part in parts if part.strip())
        if not isinstance(raw, list | tuple):
            return None
        given = tuple(part.strip() for part in raw if isinstance(part, str) and part.strip())
        return given if len(given) == len(raw) else None

    return checked("names separated by commas, or none", convert)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """What ``kind`` accepts, or ``none``."""
    expects = f"{kind.expects}, or none"

    def parse(raw: object) -> T | None:
        if raw is None or (isinstance(raw, str) and raw.strip().lower() == "none"):
            return None
        try:
            return kind.parse(raw)
        except ValueError as error:
            pass_on(error)
            raise ValueError(f"must be {expects}, got {shown(raw)}") from None

    return Kind(expects, parse)


def as_table(raw: object) -> Mapping[str, object]:
    """Return the table that a TOML table, a JSON object or an inline TOML table holds.

    Raises:
        ValueError: It is none of them.
    """
    found = raw
    if isinstance(raw, str):
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError) as error:
            pass_on(error)
            found = _inline_table(raw)
    if isinstance(found, Mapping):
        return found
    raise ValueError(f"must be a table in JSON or inline TOML, got {shown(raw)}")


def _inline_table(raw: str) -> object:
    import tomllib

    try:
        document = tomllib.loads(f"it = {raw.strip()}")
    except (ValueError, RecursionError) as error:
        pass_on(error)
        return None
    return document["it"] if document.keys() == {"it"} else None


def as_text(value: object) -> str:
    """Return a setting's value as it could be written into its variable."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value) or "none"
    return str(value).encode(errors="backslashreplace").decode()
