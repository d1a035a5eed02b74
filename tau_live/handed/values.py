"""What a host hands over, read so that none of it can hurt: names, numbers, options."""

import itertools
import sys
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from math import inf, isfinite
from typing import NamedTuple

from tau_live.errors import pass_on
from tau_live.handed.cleaning import beginning, clean

OPTIONS_LIMIT = 256
LISTED_LIMIT = 16 * OPTIONS_LIMIT
"""So many are looked at; each costs the host's thread half a microsecond."""

NAME_LIMIT = 200
COMMENT_LIMIT = 10_000
ID_LIMIT = 1_000
KEY_LIMIT = 10_000
LONGEST_S = 1e6
HASH_CHARS = 16
HASHED_CHARS = 500_000
"""Of a longer text so many at either end are hashed: 100 MB take 0.1 s in the host's thread."""

PRINTED_PARTS = 1_000
PRINTED_CHARS = 100_000
PRINTED_BITS = 10_000
PRINTED_NUMBERS = 16
"""Built-in values of more parts, more characters, or longer integers, are not printed, nor are
arrays of more numbers."""

_TEXTS: tuple[type[Collection[object]], ...] = (str, bytes, bytearray, array)
_GROUPS: tuple[type[Collection[object]], ...] = (list, tuple, set, frozenset, deque, dict)


class Listed(NamedTuple):
    """What a host offered, read once: it may be an iterator.

    Attributes:
        originals: ``[L]``, the options as they were handed over.
        features: ``[L]``, what was said about each.
        readable: Whether all of them could be read.
        beyond: How many more were offered, as far as that can be told, and not looked at.
    """

    originals: list[object]
    features: list[object]
    readable: bool = True
    beyond: int = 0


def key_text(key: object) -> str | None:
    """Return the text of a key; ``None`` for one that cannot be printed, which names nothing."""
    try:
        return text_of(key if type(key) is str else _printed(key), limit=KEY_LIMIT)
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is printed
        pass_on(error)
        return None


def _printed(value: object) -> str:
    """Return a value as a text. Raises: ValueError, or whatever a class of the host's raises."""
    if not is_soon_printed(value):
        raise ValueError("it is too large to be printed")
    return str.__str__(str(value))


def is_soon_printed(value: object) -> bool:
    """Tell whether a built-in value is; how long others take is up to their own classes."""
    waiting, parts, chars = [value], PRINTED_PARTS, PRINTED_CHARS
    while waiting and parts >= 0 and chars >= 0:
        one = waiting.pop()
        kind = type(one)
        if _is_long_array(one):
            return False
        if issubclass(kind, int):
            if int.bit_length(one) > PRINTED_BITS:  # type: ignore[arg-type]  # it is one
                return False
        elif text := next((text for text in _TEXTS if issubclass(kind, text)), None):
            chars -= text.__len__(one)  # type: ignore[arg-type]  # it is one
        elif group := next((group for group in _GROUPS if issubclass(kind, group)), None):
            parts -= group.__len__(one)  # type: ignore[arg-type]  # it is one
            if parts >= 0:
                waiting += group.__iter__(one)  # type: ignore[arg-type]  # it is one
                waiting += dict.values(one) if group is dict else ()  # type: ignore[arg-type]  # it is one
    return parts >= 0 and chars >= 0


def _is_long_array(value: object) -> bool:
    """Tell whether it is an array of numpy's that takes long to print: 5 ms for 1,000 numbers."""
    array_ = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array_ is None or not issubclass(type(value), array_):
        return False
    size: int = array_.size.__get__(value)
    return size > PRINTED_NUMBERS


def text_of(value: object, *, limit: int = NAME_LIMIT) -> str:
    """Return a bounded text for anything, whatever it does when it is printed.

    A longer text keeps its beginning and is told from others by a hash.
    """
    try:
        text = value if type(value) is str else _printed(value)
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is printed
        pass_on(error)
        return f"unprintable {kind_of(value)}"
    if len(text) > limit:
        text = f"{beginning(text, limit - HASH_CHARS - 1)}…{_hash(text)[:HASH_CHARS]}"
    return clean(text)


def _hash(text: str) -> str:
    if len(text) > 2 * HASHED_CHARS:
        text = f"{text[:HASHED_CHARS]}{len(text)}{text[-HASHED_CHARS:]}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def kind_of(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass does."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return clean(str.__str__(name))[:NAME_LIMIT]


def finite(value: object) -> float | None:
    """Return a number as a finite float; ``None`` for everything else, texts of digits too."""
    try:
        kind = type(value)
        if not hasattr(kind, "__float__") and not hasattr(kind, "__index__"):
            return None  # ``float`` reads anything that holds bytes as a text
        number = float(value)  # type: ignore[arg-type]  # anything may come
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is converted
        pass_on(error)
        return None
    return number if isfinite(number) else None


def listed(options: object, default: object = None) -> Listed:
    """Return what is offered, read once, whatever reading it does.

    Of more than ``LISTED_LIMIT`` the first are looked at, and the host's own choice.
    """
    kind = type(options)
    if kind is dict and isinstance(options, dict):  # the usual case first
        copied = options.copy() if len(options) <= LISTED_LIMIT else {}  # whoever writes to it
        if copied:
            return Listed([*copied], [*copied.values()])
    try:
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return Listed([options], [None]) if options is not None else Listed([], [], False)
        if issubclass(kind, Mapping) and isinstance(options, Mapping):
            pairs = list(itertools.islice(options.items(), LISTED_LIMIT))
            found = Listed([name for name, _ in pairs], [features for _, features in pairs])
        else:
            names = list(itertools.islice(options, LISTED_LIMIT))  # type: ignore[call-overload]  # it is iterable
            found = Listed(names, [None] * len(names))
        return _with_default(found, options, default)
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is read
        pass_on(error)
        return Listed([], [], False)


def _with_default(found: Listed, options: object, default: object) -> Listed:
    """Return what was looked at of too many options, and the host's own choice with it."""
    if not isinstance(options, (list, tuple, dict)) or len(options) <= LISTED_LIMIT:
        return found
    beyond = len(options) - LISTED_LIMIT
    if default is not None and default not in found.originals and default in options:
        found.originals.append(default)
        found.features.append(options[default] if isinstance(options, dict) else None)
        beyond -= 1
    return found._replace(beyond=beyond)


def seconds(value: object, *, default: float = 5.0) -> float:
    """Return a timeout in seconds, at least 0; the default for what is none."""
    if type(value) is float and value == inf:
        return LONGEST_S
    number = finite(value)
    return default if number is None else min(max(number, 0.0), LONGEST_S)
