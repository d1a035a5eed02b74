"""What a host hands over, read so that none of it can hurt: names, numbers, options."""

import itertools
from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import inf, isfinite
from typing import NamedTuple

from tau_live.plain import clean

OPTIONS_LIMIT = 256
LISTED_LIMIT = 100 * OPTIONS_LIMIT
NAME_LIMIT = 200
COMMENT_LIMIT = 10_000
ID_LIMIT = 1_000
KEY_LIMIT = 1_000_000
LONGEST_S = 1e6
HASH_CHARS = 16


class Listed(NamedTuple):
    """What a host offered, read once: it may be an iterator.

    Attributes:
        originals: ``[L]``, the options as they were handed over.
        features: ``[L]``, what was said about each.
        readable: Whether all of them could be read.
    """

    originals: list[object]
    features: list[object]
    readable: bool = True


def key_text(key: object) -> str | None:
    """Return the text of a key; ``None`` for one that cannot be printed, which names nothing."""
    try:
        return text_of(str(key), limit=KEY_LIMIT)
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is printed
        return None


def text_of(value: object, *, limit: int = NAME_LIMIT) -> str:
    """Return a bounded text for anything, whatever it does when it is printed.

    A longer text keeps its beginning and is told from others by a hash.
    """
    try:
        text = value if type(value) is str else str.__str__(str(value))
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is printed
        return f"unprintable {kind_of(value)}"
    if len(text) > limit:
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        text = f"{text[: limit - HASH_CHARS - 1]}…{digest[:HASH_CHARS]}"
    return clean(text)


def kind_of(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass does."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return clean(str.__str__(name))[:NAME_LIMIT]


def finite(value: object) -> float | None:
    """Return a number as a finite float; ``None`` for everything else, texts of digits too."""
    if issubclass(type(value), (str, bytes, bytearray)):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # anything may come
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is converted
        return None
    return number if isfinite(number) else None


def listed(options: object) -> Listed:
    """Return what is offered, read once, whatever reading it does."""
    kind = type(options)
    if kind is dict and isinstance(options, dict):  # the usual case first
        copied = options.copy()  # one step, whoever writes to it
        if len(copied) <= LISTED_LIMIT:
            return Listed([*copied], [*copied.values()])
    try:
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return Listed([options], [None]) if options is not None else Listed([], [], False)
        if issubclass(kind, Mapping) and isinstance(options, Mapping):
            pairs = list(itertools.islice(options.items(), LISTED_LIMIT))
            return Listed([name for name, _ in pairs], [features for _, features in pairs])
        names = list(itertools.islice(options, LISTED_LIMIT))  # type: ignore[call-overload]  # it is iterable
    except Exception:  # noqa: BLE001  # a host's object may raise anything when it is read
        return Listed([], [], False)
    return Listed(names, [None] * len(names))


def seconds(value: object, *, default: float = 5.0) -> float:
    """Return a timeout in seconds, at least 0; the default for what is none."""
    if type(value) is float and value == inf:
        return LONGEST_S
    number = finite(value)
    return default if number is None else min(max(number, 0.0), LONGEST_S)
