"""The options of a decision, as the host has them: names, features, masks.

A mask is absolute, and never a penalty.

With a mask, the result is always an allowed option, even where it is the host's own choice: a
default that is not allowed gives way to the first option that is, and where none is, the result is
``None``. Only a mask that cannot be read counts as no mask.
"""

import itertools
import sys
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from math import inf, isfinite
from typing import NamedTuple

from tau_live.core.choices import Choice, fallback
from tau_live.core.errors import pass_on, suppress
from tau_live.core.sanitize import beginning, clean

OPTIONS_LIMIT = 256
LISTED_LIMIT = 16 * OPTIONS_LIMIT
"""How many options are read; each costs the host's thread half a microsecond."""

NAME_LIMIT = 200
COMMENT_LIMIT = 10_000
ID_LIMIT = 1_000
KEY_LIMIT = 10_000
LONGEST_S = 1e6
HASH_CHARS = 16
HASHED_CHARS = 500_000
"""Characters hashed at either end of a longer text: 100 MB take 0.1 s in the host's thread."""

PRINTED_PARTS = 1_000
PRINTED_CHARS = 100_000
PRINTED_BITS = 10_000
PRINTED_NUMBERS = 16
"""Built-in values with more parts, characters or bits of an integer are not printed, nor are
arrays of more numbers."""

_TEXTS: tuple[type[Collection[object]], ...] = (str, bytes, bytearray, array)
_GROUPS: tuple[type[Collection[object]], ...] = (list, tuple, set, frozenset, deque, dict)


class OptionList(NamedTuple):
    """The options of a host, read once: it may be an iterator.

    Attributes:
        originals: ``[L]``, the host's own objects.
        features: ``[L]``, the features of each.
        readable: Whether all of them could be read.
        beyond: How many more were offered and not read, as far as known.
    """

    originals: list[object]
    features: list[object]
    readable: bool = True
    beyond: int = 0


def key_text(key: object) -> str | None:
    """Return the text of a key; ``None`` for one that cannot be printed and so names nothing."""
    with suppress(Exception):  # a host's object may raise anything when it is printed
        return text_of(key if type(key) is str else _print_whole(key), limit=KEY_LIMIT)
    return None


def _print_whole(value: object) -> str:
    """Return a value as text. Raises: ValueError, or whatever a class of the host's raises."""
    if not is_soon_printed(value):
        raise ValueError("it is too large to be printed")
    return str.__str__(str(value))


def is_soon_printed(value: object) -> bool:
    """Return whether a built-in value prints fast; for others that is up to their own classes."""
    waiting, parts, chars = [value], PRINTED_PARTS, PRINTED_CHARS
    while waiting and parts >= 0 and chars >= 0:
        part = waiting.pop()
        kind = type(part)
        if _is_long_array(part):
            return False
        if issubclass(kind, int):
            if int.bit_length(part) > PRINTED_BITS:  # type: ignore[arg-type]  # it is one
                return False
        elif text := next((text for text in _TEXTS if issubclass(kind, text)), None):
            chars -= text.__len__(part)  # type: ignore[arg-type]  # it is one
        elif group := next((group for group in _GROUPS if issubclass(kind, group)), None):
            parts -= group.__len__(part)  # type: ignore[arg-type]  # it is one
            if parts >= 0:
                waiting += group.__iter__(part)  # type: ignore[arg-type]  # it is one
                waiting += dict.values(part) if group is dict else ()  # type: ignore[arg-type]  # it is one
    return parts >= 0 and chars >= 0


def _is_long_array(value: object) -> bool:
    """Return whether it is a numpy array that takes long to print: 5 ms for 1,000 numbers."""
    array_ = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array_ is None or not issubclass(type(value), array_):
        return False
    size: int = array_.size.__get__(value)
    return size > PRINTED_NUMBERS


def text_of(value: object, *, limit: int = NAME_LIMIT) -> str:
    """Return a bounded text for any value, whatever it does when it is printed.

    A longer text keeps its beginning and is distinguished by a hash.
    """
    try:
        text = value if type(value) is str else _print_whole(value)
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is printed
        pass_on(error)
        return f"unprintable {kind_of(value)}"
    if len(text) > limit:
        text = f"{beginning(text, limit - HASH_CHARS - 1)}…{_hash(text)[:HASH_CHARS]}"
    elif text.isascii() and "\0" not in text:  # as most are
        return text
    return clean(text)


def texts_of(values: Iterable[object]) -> list[str]:
    """Return the texts that ``text_of`` gives, of most values without a call."""
    texts = []
    for value in values:
        if type(value) is str and len(value) <= NAME_LIMIT:
            is_kept = value.isascii() and "\0" not in value
            texts.append(value if is_kept else text_of(value))
        else:
            texts.append(text_of(value))
    return texts


def _hash(text: str) -> str:
    if len(text) > 2 * HASHED_CHARS:
        text = f"{text[:HASHED_CHARS]}{len(text)}{text[-HASHED_CHARS:]}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def kind_of(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass does."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return clean(str.__str__(name))[:NAME_LIMIT]


def finite(value: object) -> float | None:
    """Return a number as a finite float; ``None`` for anything else, including digits as text."""
    try:
        kind = type(value)
        if not hasattr(kind, "__float__") and not hasattr(kind, "__index__"):
            return None  # ``float`` reads anything that holds bytes as a text
        number = float(value)  # type: ignore[arg-type]  # anything may come
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is converted
        pass_on(error)
        return None
    return number if isfinite(number) else None


def read_options(options: object, default: object = None) -> OptionList:
    """Return the options, read once, whatever reading them does.

    Of more than ``LISTED_LIMIT`` only the first are read, and the host's own choice.
    """
    kind = type(options)
    if kind is dict and isinstance(options, dict):  # the usual case first
        copied = options.copy() if len(options) <= LISTED_LIMIT else {}  # atomic
        if copied:
            return OptionList([*copied], [*copied.values()])
    try:
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return (
                OptionList([options], [None]) if options is not None else OptionList([], [], False)
            )
        if issubclass(kind, Mapping) and isinstance(options, Mapping):
            pairs = list(itertools.islice(options.items(), LISTED_LIMIT))
            options_read = OptionList(
                [name for name, _ in pairs], [features for _, features in pairs]
            )
        else:
            names = list(itertools.islice(options, LISTED_LIMIT))  # type: ignore[call-overload]  # it is iterable
            options_read = OptionList(names, [None] * len(names))
        is_cut = len(options_read.originals) == LISTED_LIMIT
        return _with_default(options_read, options, default) if is_cut else options_read
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is read
        pass_on(error)
        return OptionList([], [], False)


def _with_default(options_read: OptionList, options: object, default: object) -> OptionList:
    """Return the options read out of too many, with the host's own choice among them."""
    if not isinstance(options, (list, tuple, dict)) or len(options) <= LISTED_LIMIT:
        return options_read
    beyond = len(options) - LISTED_LIMIT
    if default is not None and default not in options_read.originals and default in options:
        options_read.originals.append(default)
        options_read.features.append(options[default] if isinstance(options, dict) else None)
        beyond -= 1
    return options_read._replace(beyond=beyond)


def seconds(value: object, *, default: float = 5.0) -> float:
    """Return a timeout in seconds, at least 0; the default for anything that is not a number."""
    if type(value) is float and value == inf:
        return LONGEST_S
    number = finite(value)
    return default if number is None else min(max(number, 0.0), LONGEST_S)


class Mask(NamedTuple):
    """The options that a host allows.

    Attributes:
        names: The options allowed, by name; ``None`` allows all. Names not offered do no harm.
        readable: Whether it could be read; if not, it is unknown what is allowed.
        unexplored: The options that are unsafe to explore, by name.
    """

    names: frozenset[str] | None = None
    readable: bool = True
    unexplored: frozenset[str] = frozenset()

    def allows(self, option: object) -> bool:
        """Return whether an option may be chosen."""
        return self.names is None or text_of(option) in self.names


def mask_of(allowed: object, exploit_only: object = None) -> Mask:
    """Return the mask that ``allowed`` and ``exploit_only`` give: names, or the options themselves.

    A single text is one name. A mapping or a boolean is ambiguous and counts as unreadable, as does
    anything that raises or is longer than options may be.
    """
    names = None if allowed is None else _names(allowed)
    unexplored = frozenset[str]() if exploit_only is None else _names(exploit_only)
    if unexplored is None or (names is None and allowed is not None):
        return Mask(names, readable=False)
    return Mask(names, unexplored=unexplored)


def _names(value: object) -> frozenset[str] | None:
    """Return one or several options as names; ``None`` if they cannot be read."""
    kind = type(value)
    try:
        if kind is bool or issubclass(kind, Mapping):
            return None
        if issubclass(kind, str) or not issubclass(kind, Iterable):
            return frozenset({text_of(value)})
        names = list(itertools.islice(value, LISTED_LIMIT + 1))  # type: ignore[call-overload]  # it is iterable
    except Exception as error:  # noqa: BLE001  # a host's object may raise anything when it is read
        pass_on(error)
        return None
    return frozenset(map(text_of, names)) if len(names) <= LISTED_LIMIT else None


def own_choice(options: object, default: object, mask: Mask) -> Choice:
    """Return the host's own choice as far as it is allowed: the default, else the first option."""
    if mask.names is None or (default is not None and mask.allows(default)):
        return fallback(options, default)
    return fallback((), next(filter(mask.allows, read_options(options).originals), None))
