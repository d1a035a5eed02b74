"""A host's data as bounded, harmless plain JSON.

None of the host's code runs here: a value is recognised by its type alone, and containers are
walked with the methods of the built-in classes, so that a hostile ``__iter__``, ``__len__``,
``__eq__``, ``__hash__``, ``__repr__`` or ``__class__`` is never called. A value that cannot be kept
is replaced by a marker that begins with ``…`` and names it.
"""

import datetime as dt
import gc
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import islice, repeat
from operator import is_
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from tau_live.core.errors import pass_on

MARKER_ROOM = 40
"""Most characters of the marker that says how much was cut."""

_REPLACEMENT = "\ufffd"
_WORD_CHARS = 128
_LAST_WORD = re.compile(rf"""(?<![^\s"'<>/:=,;&?])[^\s"'<>/:=,;&?]{{1,{_WORD_CHARS}}}\Z""")
_LONE_SURROGATE = re.compile(
    "(?<![\ud800-\udbff])[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])"
)


def clean(text: str) -> str:
    """Return the text without NULs and lone surrogates, which no store and no UTF-8 can hold."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        paired = _LONE_SURROGATE.sub(_REPLACEMENT, text)
        return paired.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return text


def shorten(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, cleaned; a marker says how much was cut."""
    if len(text) <= limit:
        return clean(text)
    if limit < MARKER_ROOM:
        return "…"
    kept = beginning(text, limit - MARKER_ROOM)
    return f"{clean(kept)}…[{len(text) - len(kept)} more characters]"


def beginning(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of the text, without a partial word at their end.

    Half a secret is not recognised, and may be almost the whole of it. A run of more than 128
    characters is not taken for a word.
    """
    match = _LAST_WORD.search(text, max(0, limit - _WORD_CHARS - 1), max(0, limit))
    return text[:limit] if match is None or limit >= len(text) else text[: match.start()]


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

JsonObject: TypeAlias = Mapping[str, object]
"""Open-ended JSON data by name; the names are its writer's: a user, a host, a plugin."""

INT_BITS, _TEXT_BITS = 63, 512
_SHA256_CHARS = 64

_SMALL_CHARS, _SMALL_ITEMS, _SMALL_DEPTH = 128, 8, 2
_SMALL_NODES = _SMALL_ITEMS + _SMALL_ITEMS**2
"""Most entries of a small value."""

_SEQUENCES: tuple[type[Collection[object]], ...] = (list, tuple, deque, set, frozenset)
_BUFFERS: tuple[type[Sized], ...] = (bytes, bytearray, memoryview)

NAMES, _FLOATS = frozenset({str}), frozenset({float})
SCALARS = frozenset({float, int, bool, str, type(None)})

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a value is kept.

    Attributes:
        depth: Containers within containers; deeper ones become a marker.
        items: Entries of one container.
        nodes: Entries of all containers together.
        key_chars: Characters of one key.
        chars: Characters of one string.
        total_chars: Characters of all strings and keys together.
        keep_small: Whether small values are kept unchanged.
    """

    depth: int = 16
    items: int = 1_000
    nodes: int = 10_000
    key_chars: int = 256
    chars: int = 65_536
    total_chars: int = 262_144
    keep_small: bool = field(init=False)

    def __post_init__(self) -> None:
        keep_small = (
            self.chars >= _SMALL_CHARS
            and self.key_chars >= _SMALL_CHARS
            and self.depth > _SMALL_DEPTH
            and self.items >= _SMALL_ITEMS
            and self.nodes >= _SMALL_NODES
            and self.total_chars >= 2 * _SMALL_CHARS * _SMALL_NODES
        )
        object.__setattr__(self, "keep_small", keep_small)


DEFAULT_LIMITS = Limits()


class _LargeError(Exception):
    """A value is not small, or cannot be kept unchanged."""


def _small(values: list[Any], depth: int) -> list[Json]:  # noqa: C901  # a branch for each kind
    """Return a few values of built-in classes that are all kept unchanged, containers as copies.

    Most hosts report a step in this form, and it is three times faster than a walk.

    Args:
        values: The values; nobody else writes to the list.
        depth: How deep containers may be nested in them.

    Raises:
        _LargeError: One of them is any other value.
    """
    for at, value in enumerate(values):
        kind = type(value)
        if kind is str:
            is_kept = len(value) <= _SMALL_CHARS and value.isascii() and "\0" not in value
        elif kind is float:
            is_kept = math.isfinite(value)
        elif kind is int:
            is_kept = value.bit_length() <= INT_BITS
        elif kind is dict or kind is list:
            if not depth or len(value) > _SMALL_ITEMS:
                raise _LargeError
            copied = value.copy()  # atomic: another thread may write to it
            if kind is list:
                values[at] = _small(copied, depth - 1)
                continue
            names = "".join(copied) if NAMES.issuperset(map(type, copied)) else "\0"
            is_kept = len(names) <= _SMALL_CHARS and names.isascii() and "\0" not in names
            values[at] = dict(zip(copied, _small([*copied.values()], depth - 1), strict=True))
        else:
            is_kept = value is None or kind is bool
        if not is_kept:
            raise _LargeError
    return values


def plain(  # the limits and the callbacks, all keyword-only
    value: object,
    *,
    limits: Limits = DEFAULT_LIMITS,
    text: Callable[[str, int], Json] | None = None,
    names: Callable[[str, int], Json] | None = None,
    hidden: Callable[[str, object], str | None] | None = None,
    harmless: Callable[[tuple[str, ...]], bool] | None = None,
) -> Json:
    """Return the value as JSON data that any encoder takes; never raises, never mutates.

    It is idempotent (``plain(plain(x)) == plain(x)`` under the same limits), and its time and the
    size of its result are bounded by ``limits`` alone, whatever the value is.

    Args:
        value: Anything.
        limits: How much is kept.
        text: Rewrites a string, given the characters it may have; ``None`` cuts it.
        names: The same for a mapping's names; ``None`` uses ``text``.
        hidden: Returns the replacement for a value under a key, or ``None`` to keep the value; it
            may look at the value's type, and at the value if that is a built-in one. ``None``
            hides nothing.
        harmless: Returns whether ``text`` leaves all names of a mapping unchanged and ``hidden``
            hides nothing under them; saves a call for each.

    Returns:
        ``None``, booleans, integers of 64 bits, finite floats, strings without surrogates or
        NULs, lists, and dictionaries with such strings as keys.
    """
    if text is None and names is None and hidden is None and limits.keep_small:
        try:
            return _small([value], _SMALL_DEPTH)[0]
        except _LargeError:
            pass
    walk = _Walk(limits, text=text, names=names, hidden=hidden, harmless=harmless)
    return walk.value(value, 0)


class _Walk:
    """One walk over one value, with the room that is left.

    Every part is charged for what is kept of it, a container's entries when it is entered: a
    second walk over the result charges the same and so cuts nothing.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        text: Callable[[str, int], Json] | None,
        names: Callable[[str, int], Json] | None,
        hidden: Callable[[str, object], str | None] | None,
        harmless: Callable[[tuple[str, ...]], bool] | None,
    ) -> None:
        self._limits = limits
        self._text, self._names = text or shorten, names or text or shorten
        self._hidden, self._harmless = hidden, harmless
        self._rewrites = text is not None or hidden is not None
        self._nodes, self._chars = limits.nodes, limits.total_chars
        self._inside: set[int] = set()

    def value(self, value: object, depth: int) -> Json:
        """Return one value; a value that cannot be read becomes a marker."""
        if value is None or value is True or value is False:
            return value
        if type(value) is float:
            return self._float(value)
        try:
            if type(value) is list:
                return self._sequence(value, list, depth)
            return self._readable(value, depth)
        except Exception as error:  # noqa: BLE001  # the border to the host: whatever its classes do
            pass_on(error)
            return self._string(f"…[unreadable {_name(type(value))}]")

    def _readable(self, value: object, depth: int) -> Json:
        if _is(value, str):
            return self._string(str.__str__(value))
        if _is(value, int):
            number = int.__int__(value)
            return number if number.bit_length() <= INT_BITS else self._string(_digits(number))
        if _is(value, float):
            return self._float(float.__float__(value))
        if _is(value, dict):
            return _digest(value) or self._mapping(value, depth)
        return self._compound(value, depth)

    def _compound(self, value: object, depth: int) -> Json:
        for sequence in _SEQUENCES:
            if _is(value, sequence):
                return self._sequence(value, sequence, depth)
        for buffer in _BUFFERS:
            if _is(value, buffer):
                return self._string(f"…[bytes: {buffer.__len__(value)}]")
        return self._scalar_or_record(value, type(value), depth)

    def _string(self, text: str) -> Json:
        chars = self._chars
        kept = self._text(text, min(self._limits.chars, chars))
        if isinstance(kept, str):
            self._chars = chars - len(kept) if len(kept) < chars else 0
        return kept

    def _float(self, number: float) -> Json:
        return number if math.isfinite(number) else self._string(_not_finite(number))

    def _room(self, value: object, size: int, depth: int) -> int | None:
        """Charge a container's entries, and return how many are kept; ``None`` is none."""
        limits, nodes = self._limits, self._nodes
        room = min(nodes, limits.items)
        if size and (not room or depth >= limits.depth or id(value) in self._inside):
            return None
        if size <= room:
            self._nodes = nodes - size
            return size
        self._nodes = nodes - room
        return room - 1

    def _mapping(self, value: dict[object, object], depth: int) -> Json:
        size = dict.__len__(value)
        kept = self._room(value, size, depth)
        if kept is None:
            return self._omission(value, size)
        whole = self._scalars(value, size) if kept == size else None
        if whole is not None:
            return whole
        data: dict[str, Json] = {}
        self._inside.add(id(value))
        for key, inner in list(islice(dict.items(value), kept)):  # atomic, as ``copy`` above
            name = self._key(key, data)
            hidden = self._hidden and self._hidden(name, inner)
            if hidden is None and name is not key and _is(key, str):  # the original key, too
                hidden = self._hidden and self._hidden(str.__str__(key), inner)
            data[name] = self.value(inner if hidden is None else hidden, depth + 1)
        self._inside.discard(id(value))
        if size > kept:
            name = self._key("…", data)  # first, as when this is read again
            data |= {name: self._string(f"{size - kept} more")}
        return data

    def _scalars(self, value: dict[object, object], size: int) -> Json:
        """Return a copy of the usual case: names with scalars that are all kept unchanged.

        Most decisions have this form, and it is nine times faster than one by one.
        """
        if (self._rewrites and self._harmless is None) or type(value) is not dict:
            return None
        copied = value.copy()  # atomic: another thread may write to it
        texts = _texts_of(copied.values())
        if len(copied) != size or texts is None or not _are_all_names(copied):
            return None
        if texts and sum(map(len, texts)) > self._chars:  # before they are put together
            return None
        everything, longest = "".join((*copied, *texts)), self._limits.key_chars
        if (
            (len(everything) > longest and max(map(len, copied)) > longest)
            or (texts and (self._rewrites or max(map(len, texts)) > self._limits.chars))
            or len(everything) > self._chars
            or not everything.isascii()
            or "\0" in everything
            or (self._harmless is not None and not self._harmless(tuple(copied)))
        ):
            return None
        self._chars -= len(everything)
        return copied

    def _key(self, key: object, taken: Collection[str]) -> str:
        room = min(self._limits.key_chars, max(self._chars, MARKER_ROOM))
        text = str.__str__(key) if _is(key, str) else _key_text(key)
        kept = self._names(text, room)
        name = kept if isinstance(kept, str) else shorten(text, MARKER_ROOM)
        name = _free_name(name, taken, room)
        self._chars = max(0, self._chars - len(name))
        return name

    def _sequence(
        self, value: Collection[object], kind: type[Collection[object]], depth: int
    ) -> Json:
        size = kind.__len__(value)
        kept = self._room(value, size, depth)
        if kept is None:
            return self._omission(value, size)
        if not size:
            return []
        self._inside.add(id(value))
        entries = list(islice(kind.__iter__(value), kept))
        if kind in (set, frozenset):
            entries = _sort(entries)
        items = [self.value(inner, depth + 1) for inner in entries]
        self._inside.discard(id(value))
        if size > kept:
            items.append(self._string(f"…[{size - kept} more]"))
        return items

    def _inner(self, value: object, depth: int) -> Json:
        if depth >= self._limits.depth:  # what is wrapped may be wrapped again
            return self._string(f"…[{_name(type(value))}]")
        return self.value(value, depth + 1)

    def _omission(self, value: object, size: int) -> Json:
        cycle = "cycle: " if id(value) in self._inside else ""
        kind = type(value)
        name = "list" if kind is list else _name(kind)
        return self._string(f"…[{cycle}{name}: {size}]")

    def _scalar_or_record(self, value: object, kind: type, depth: int) -> Json:
        format_ = _FORMATS.get(kind)
        if format_ is not None:
            return self._string(format_(value))
        if issubclass(kind, Enum):
            return self._inner(object.__getattribute__(value, "_value_"), depth)
        if kind is MappingProxyType:  # its own methods would call those of the mapping inside
            return self._inner(gc.get_referents(value)[0], depth)
        number = _numpy_scalar(value, kind)
        if number is not None:
            return self.value(number, depth)
        names = _field_names(kind)
        if names is None or id(value) in self._inside:
            return self._string(f"…[{_name(kind)}]")
        self._inside.add(id(value))
        data = self.value({name: _field(value, kind, name) for name in names}, depth)
        self._inside.discard(id(value))
        return data


def _isoformat_of(kind: type) -> Callable[[object], str]:
    return lambda value: str(kind.isoformat(value))  # type: ignore[attr-defined]  # see _FORMATS


_FORMATS: Mapping[type, Callable[[object], str]] = {
    **{kind: _isoformat_of(kind) for kind in (dt.datetime, dt.date, dt.time)},
    **dict.fromkeys((dt.timedelta, Decimal, UUID), str),
    **dict.fromkeys((PurePosixPath, PureWindowsPath, PosixPath, WindowsPath), str),
}
"""Formats values of exactly these types; subclasses could override the methods, so they are out."""


def _is(value: object, kind: type[_Kind]) -> TypeGuard[_Kind]:
    """As ``isinstance``, by the type alone: that would also ask the value's ``__class__``."""
    return issubclass(type(value), kind)


def _digest(value: dict[object, object]) -> dict[str, Json] | None:
    """Return the size and hash of a text if a value is such a pair: one value, not a container."""
    if type(value) is not dict or len(value) != 2 or [*value] != ["chars", "sha256"]:
        return None
    chars, sha256 = value.values()
    if type(chars) is not int or type(sha256) is not str or len(sha256) != _SHA256_CHARS:
        return None
    return {"chars": chars, "sha256": sha256} if sha256.isalnum() and sha256.isascii() else None


def _are_all_names(value: dict[object, object]) -> TypeGuard[dict[str, Json]]:
    """Return whether all keys are exactly of the class ``str``."""
    return {*map(type, value)} == NAMES


def _texts_of(values: Collection[object]) -> list[str] | None:
    """Return the strings among scalars; ``None`` if any value is not kept unchanged.

    A sum is finite only if all floats are; if finite floats overflow it, the slow path takes over.
    """
    kinds = {*map(type, values)}
    if kinds == _FLOATS:
        return [] if math.isfinite(sum(values)) else None  # type: ignore[arg-type]  # they are floats
    if not kinds <= SCALARS:
        return None
    if not math.isfinite(sum(value for value in values if type(value) is float)):
        return None
    for value in values if int in kinds else ():
        if type(value) is int and value.bit_length() > INT_BITS:
            return None
    return [value for value in values if type(value) is str] if str in kinds else []


def _sort(entries: list[object]) -> list[object]:
    """Return the entries of a set in an order that does not change from process to process."""
    if all(type(entry) in (str, int, float, bool) for entry in entries):
        return sorted(entries, key=lambda entry: (type(entry).__name__, repr(entry)))
    return entries


def _key_text(key: object) -> str:
    if type(key) is int:
        return _digits(key)
    if type(key) is float:
        return str(key) if math.isfinite(key) else _not_finite(key)
    return str(key) if key is None or type(key) is bool else f"…[{_name(type(key))}]"


def _digits(number: int) -> str:
    bits = number.bit_length()
    return str(number) if bits <= _TEXT_BITS else f"…[integer of {bits} bits]"


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{'-' * (number < 0)}Infinity"


def _free_name(name: str, taken: Collection[str], room: int) -> str:
    if name not in taken:
        return name
    number = len(taken) + 1
    while (free := f"{name[: room - 8]}…{number}") in taken:
        number += 1
    return free


def _name(kind: type) -> str:
    name = type.__dict__["__name__"].__get__(kind)
    return clean(str.__str__(name))[:40]


def _numpy_scalar(value: object, kind: type) -> object:
    generic = getattr(sys.modules.get("numpy"), "generic", None)
    if generic is None or not issubclass(kind, generic):
        return None
    item = generic.item(value)
    return None if type(item) is kind else item


def _field_names(kind: type) -> list[str] | None:
    for base in type.mro(kind):
        fields = type.__dict__["__dict__"].__get__(base).get("__dataclass_fields__")
        if type(fields) is dict:
            return [name for name in fields if type(name) is str]
    return None


def _field(value: object, kind: type, name: str) -> object:
    for base in type.mro(kind):
        namespace = type.__dict__["__dict__"].__get__(base)
        slot = namespace.get(name)
        if type(slot) is MemberDescriptorType:
            return slot.__get__(value)
        own = namespace.get("__dict__")
        if type(own) is GetSetDescriptorType and name in own.__get__(value):
            return own.__get__(value)[name]
    return "…[unset]"


_REMEMBERED = 512
_REMEMBERED_CHARS = 4_096


def number_names(row: JsonObject, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return the names of a row, joined by NULs, if ``plain`` would keep the row unchanged.

    Only for rows of finite floats, as most options and contexts are: this takes a quarter of the
    time of a walk. For every other row the result is empty.

    Args:
        row: A row that nobody else writes to meanwhile.
        limits: How much is kept.
    """
    size = len(row)
    if (
        size > min(limits.items, limits.nodes)
        or not all(map(is_, map(type, row.values()), repeat(float)))
        or not all(map(is_, map(type, row), repeat(str)))
        or not math.isfinite(sum(row.values()))  # type: ignore[arg-type]  # they are floats
    ):
        return ""
    names = "\0".join(row)
    if len(names) > limits.total_chars:
        return ""
    are_kept = _known_names if len(names) <= _REMEMBERED_CHARS else _are_kept
    return names if are_kept(names, size, limits.key_chars) else ""


def _are_kept(names: str, size: int, longest: int) -> bool:
    """Return whether ``size`` names, joined by NULs, are all kept unchanged."""
    each = names.split("\0")
    return len(each) == size and names.isascii() and max(map(len, each)) <= longest


@lru_cache(maxsize=_REMEMBERED)
def _known_names(names: str, size: int, longest: int) -> bool:
    return _are_kept(names, size, longest)


def mapping(value: object) -> JsonObject:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[object]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def integer(value: object) -> int:
    """Return the value as a whole number; 0 if it is not a finite number."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0


def real(value: object) -> float | None:
    """Return the value as a float; ``None`` if it is not a number."""
    return float(value) if isinstance(value, int | float) else None
