"""Kinds of settings, each with a parser and a description, and the rows of the settings table.

A kind's ``parse`` takes text, a TOML value, or a value that is already valid, which it returns
unchanged. The message of its ``ValueError`` continues behind the name of the setting. A row of the
table of settings is made from the field that declares it.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from tau_live.core.addresses import MISTYPED, is_address, is_mistyped, keep
from tau_live.core.errors import SettingsError, pass_on, suppress
from tau_live.core.switch import PREFIX

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

Table: TypeAlias = Mapping[str, object]
"""A table of TOML, or the same as JSON."""

_SHOWN = 80
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True}
_TRUTHS |= {"0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """One kind of value.

    Attributes:
        expects: The accepted values, as a phrase that follows "must be".
        parse: Returns the value. Raises: ValueError.
    """

    expects: str
    parse: Callable[[object], T_co]


def show_value(value: object) -> str:
    """Return a value for an error message: its repr, on one line and cut when it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` was probably meant to be."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def checked_kind(expects: str, convert: Callable[[object], T | None]) -> Kind[T]:
    """Return the kind of the values that ``convert`` accepts; it returns ``None`` for others."""

    def parse(raw: object) -> T:
        value = convert(raw)
        if value is None:
            raise ValueError(f"must be {expects}, got {show_value(raw)}")
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

    return checked_kind(f"a whole number from {least} to {most}", convert)


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

    return checked_kind(expects, convert)


SHARE = number(above=0.0, most=1.0, expects="a number above 0 and at most 1")
"""Numbers in ``(0, 1]``."""


def _flag(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else _TRUTHS.get(str(raw).strip().lower())


FLAG = checked_kind("true or false", _flag)
"""Yes or no."""


def choice(of: type[E]) -> Kind[E]:
    """One of a few words, in any case."""

    def convert(raw: object) -> E | None:
        word = raw.strip().lower() if isinstance(raw, str) else None
        return next((member for member in of if member.value == word), None)

    return checked_kind(f"one of {', '.join(of)}", convert)


def _words(raw: object) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        try:
            raw = [] if raw.strip().lower() == "none" else _split_list(raw)
        except (ValueError, RecursionError) as error:
            pass_on(error)
            return None
    if not isinstance(raw, list | tuple):
        return None
    words = tuple(part for part in raw if isinstance(part, str) and "\0" not in part)
    return words if len(words) == len(raw) and all(words[:1]) else None


WORDS = checked_kind("a command with its arguments, or none", _words)
"""A command and its arguments: a list, or text that is split as a shell would."""


def _split_list(raw: str) -> object:
    if raw.lstrip().startswith("["):
        return json.loads(raw)
    import shlex

    return shlex.split(raw)


def _text(raw: object) -> str | None:
    stripped = raw.strip() if isinstance(raw, str) else ""
    return stripped if stripped.isprintable() and stripped else None


TEXT = checked_kind("printable text", _text)
"""Printable text that UTF-8 can encode (ids are made from it)."""


def _path(raw: object) -> Path | None:
    text = str(raw).strip() if isinstance(raw, str | Path) else ""
    if "\0" in text or len(text.splitlines()) != 1:
        return None
    with suppress(RuntimeError, ValueError):  # "~nobody", no home at all, or not a name
        return Path(text).expanduser()
    return None


PATH = checked_kind("a path", _path)
"""A path; ``~`` is the home folder."""


def _store(raw: object) -> Path | None:
    if isinstance(raw, str) and is_address(raw.strip()):
        return keep(raw.strip())
    return _path(raw)


def _parse_store(raw: object) -> Path:
    if isinstance(raw, str) and is_mistyped(raw.strip()):
        raise ValueError(MISTYPED)
    try:
        path = _store(raw)
    except (OSError, ValueError) as error:  # without the address, which may hold a secret
        raise ValueError(f"cannot be kept for this machine: {type(error).__name__}") from None
    if path is None:
        raise ValueError(f"must be {STORE.expects}, got {show_value(raw)}")
    return path


STORE = Kind("a path, or postgresql://HOST/DATABASE", _parse_store)
"""A store: a path, or the address of a database, of which the path on this machine is returned."""


OFF = Path("off")
"""The spool that is none."""

AUTO = Path("auto")
"""The spool beside the file that holds an address on another machine."""

_WORDS_OF_SPOOLS = {"off": OFF, "none": OFF, "auto": AUTO}


def _spool(raw: object) -> Path | None:
    return _WORDS_OF_SPOOLS.get(str(raw).strip().lower()) or _path(raw)


SPOOL = checked_kind("a path, auto or off", _spool)
"""The path of a spool, ``AUTO`` or ``OFF``."""


def _span(raw: object) -> tuple[float, float] | None:
    parts = raw.strip().strip("[]").split(",") if isinstance(raw, str) else raw
    ends = [as_number(end) for end in parts] if isinstance(parts, list | tuple) else []
    match ends:
        case [float(low), float(high)] if low < high:
            return low, high
    return None


SPAN = checked_kind("[lowest, highest]", _span)
"""A lowest and a highest number, as a list or separated by a comma."""


def _names(raw: object) -> tuple[str, ...] | None:
    if isinstance(raw, str):
        parts = [] if raw.strip().lower() == "none" else raw.split(",")
        return tuple(part.strip() for part in parts if part.strip())
    if not isinstance(raw, list | tuple):
        return None
    names = tuple(part.strip() for part in raw if isinstance(part, str) and part.strip())
    return names if len(names) == len(raw) else None


NAMES = checked_kind("names separated by commas, or none", _names)
"""Names, as a list or separated by commas; ``none`` for no names."""


def optional(kind: Kind[T]) -> Kind[T | None]:
    """The values that ``kind`` accepts, or ``none``."""
    expects = f"{kind.expects}, or none"

    def parse(raw: object) -> T | None:
        if raw is None or (isinstance(raw, str) and raw.strip().lower() == "none"):
            return None
        try:
            return kind.parse(raw)
        except ValueError as error:
            pass_on(error)
            raise ValueError(f"must be {expects}, got {show_value(raw)}") from None

    return Kind(expects, parse)


def _file_of_secrets(raw: object) -> Path | None:
    if isinstance(raw, str) and "://" in raw:  # it is not shown: it may be a secret
        raise ValueError("must be a file that has the URLs, got a URL")
    return optional(PATH).parse(raw)


FILE_OF_URLS: Kind[Path | None] = Kind("a path, or none", _file_of_secrets)
"""The file that has URLs, which are secrets."""


def as_table(raw: object) -> Table:
    """Return the table given as a TOML table, a JSON object or an inline TOML table.

    Raises:
        ValueError: It is none of these.
    """
    table = raw
    if isinstance(raw, str):
        try:
            table = json.loads(raw)
        except (ValueError, RecursionError) as error:
            pass_on(error)
            table = _inline_table(raw)
    if isinstance(table, Mapping):
        return table
    raise ValueError(f"must be a table in JSON or inline TOML, got {show_value(raw)}")


def _inline_table(raw: str) -> object:
    import tomllib

    try:
        document = tomllib.loads(f"it = {raw.strip()}")
    except (ValueError, RecursionError) as error:
        pass_on(error)
        return None
    return document["it"] if document.keys() == {"it"} else None


def as_text(value: object) -> str:
    """Return a setting's value as text for its variable."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value) or "none"
    return str(value).encode(errors="backslashreplace").decode()


def setting(default: T, kind: Kind[T], help_: str, *, alias: str | None = None) -> T:
    """Declare a setting: a dataclass field with its kind, one sentence and a deprecated alias."""
    return field(
        default_factory=lambda: default,
        metadata={"default": default, "kind": kind, "help": help_, "alias": alias},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of the table.

    Attributes:
        name: Its name among all settings, ``safety_blocked_penalty``.
        field: The name of its field.
        group: The field of ``Settings`` that holds it; empty for a field of its own.
        default: Its default.
        kind: What it accepts.
        help: One sentence.
        alias: A deprecated variable for it.
    """

    name: str
    field: str
    group: str
    default: object
    kind: Kind[object]
    help: str
    alias: str | None

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """Its key in TOML, ``safety.blocked-penalty``."""
        key = self.field.replace("_", "-")
        return f"{self.group}.{key}" if self.group else key


def rows_of(owner: "type[DataclassInstance]", group: str = "") -> tuple[Setting, ...]:
    """Return the rows that the fields of a dataclass declare, in their order."""
    return tuple(
        Setting(
            name=f"{group}_{f.name}" if group else f.name,
            field=f.name,
            group=group,
            default=f.metadata["default"],
            kind=f.metadata["kind"],
            help=f.metadata["help"],
            alias=f.metadata["alias"],
        )
        for f in fields(owner)
        if "kind" in f.metadata
    )


def parse_fields(owner: "DataclassInstance", label: str) -> None:
    """Parse the declared fields of an object in place.

    Args:
        owner: The object; call it from its ``__post_init__``.
        label: Names a field in an error; ``{}`` stands for the field's name.

    Raises:
        SettingsError: A value is not of its kind.
    """
    for row in rows_of(type(owner)):
        try:
            value = row.kind.parse(getattr(owner, row.field))
        except ValueError as error:
            pass_on(error)
            raise SettingsError(f"{label.format(row.field)} {error}") from None
        object.__setattr__(owner, row.field, value)


def construct(make: Callable[..., T], values: Table) -> T:
    """Call ``make`` with arguments whose names are known only at run time."""
    return make(**values)
