"""The slots that names of features, categories and words are hashed into.

Source:
    Weinberger et al. 2009, arXiv:0902.2206 (signed feature hashing).
"""

from array import array
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from math import isfinite

from tau_live.rl.remembered import Kept

_CACHED = 16_384
_CACHED_ROWS = 1_024
_CACHED_CHARS = 4_096
_CACHED_WORD = 64  # characters; 16,384 of 4,096 would take 70 MB
_NUMBERS = frozenset({float, int, bool})


@lru_cache(maxsize=_CACHED)
def name_slot(name: str, width: int) -> int:
    """Return the slot of a number of that name."""
    return _hashed(f"n:{name}") % width


def slots_of_numbers(features: Mapping[str, object], width: int) -> bytes | None:
    """Return the slots of a row's names, packed, if its values are all finite numbers."""
    if type(features) is Kept and features.names:
        return _slots_of(features.names, width)
    count = len(features)
    if (
        not count
        or not frozenset(map(type, features.values())) <= _NUMBERS
        or [*map(type, features)].count(str) < count
    ):
        return None
    try:
        if not isfinite(sum(features.values())):  # type: ignore[arg-type]  # they are numbers
            return None  # one may be too large, or a NaN
    except OverflowError:
        return None
    names = "\0".join(features)
    return _slots_of(names, width) if names.count("\0") == count - 1 else None


def _slots_of(names: str, width: int) -> bytes:
    """Return the slots of a row's names, packed; ``names`` has NULs between them."""
    return (_known_slots if len(names) <= _CACHED_CHARS else _named_slots)(names, width)


def _named_slots(names: str, width: int) -> bytes:
    return array("i", [name_slot(name, width) for name in names.split("\0")]).tobytes()


@lru_cache(maxsize=_CACHED_ROWS)
def _known_slots(names: str, width: int) -> bytes:
    return _named_slots(names, width)


@lru_cache(maxsize=_CACHED)
def own_slot(name: str, width: int) -> int:
    """Return the slot of an option of that name."""
    return _hashed(f"o:{name}") % width


@lru_cache(maxsize=_CACHED)
def category_slot(name: str, value: str, width: int) -> tuple[int, float]:
    """Return the slot and the sign of a short text, or a member of a set, under that name."""
    return _signed(_hashed(f"c:{name}={value}"), width)


def word_slot(name: str, word: str, width: int) -> tuple[int, float]:
    """Return the slot and the sign of a word of a longer text under that name."""
    if len(word) > _CACHED_WORD:
        return _hashed_word(name, word, width)
    return _known_word(name, word, width)


@lru_cache(maxsize=_CACHED)
def _known_word(name: str, word: str, width: int) -> tuple[int, float]:
    return _hashed_word(name, word, width)


def _hashed_word(name: str, word: str, width: int) -> tuple[int, float]:
    return _signed(_hashed(f"w:{name}={word}"), width)


def _signed(hashed: int, width: int) -> tuple[int, float]:
    return (hashed >> 1) % width, 1.0 if hashed & 1 else -1.0


def _hashed(text: str) -> int:
    encoded = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")
