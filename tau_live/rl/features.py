"""A decision's features as sparse rows of numbers.

Row 0 is the context, rows 1 to A are the options. The context row starts with a constant 1 in
the slot ``width``, so that crossing it with an option's features also gives those features alone.

Source:
    Weinberger et al. 2009, arXiv:0902.2206 (signed feature hashing).

Checking whether a row is the same as a cached one costs a third of encoding it. Two rows are the
same if their names and values are identical immutable objects, so no code of the host runs, and a
dictionary that was changed meanwhile never matches.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import isfinite, nan, nextafter, sqrt
from numbers import Real
from operator import is_, sub
from threading import RLock
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tau_live.rl.arrays import BoolArray, Float32Array, Int32Array

_ROWS = 512
_LONGEST = 256
_CHARS = 4_096
_PARTS = 65_536  # of all rows together, nested ones included: about 10 MB
_CHARS_A_PART = 64  # a longer text counts as several
T = TypeVar("T")

Features: TypeAlias = Mapping[str, object]
"""The features of a context or of an option; the names are the user's."""


class FrozenRow(dict[str, object]):
    """A row of plain data that nobody writes to any more, so that identity means equality.

    Attributes:
        names: Its names with NULs between, if its values are all finite floats; else empty.
        parts: Its size as its user counts it; 0 if not known yet.
    """

    __slots__ = ("names", "parts")
    names: str
    parts: int


_IMMUTABLE = frozenset({float, int, bool, str, type(None), FrozenRow})


def copy_row(row: Features, *, names: str = "") -> FrozenRow:
    """Return a copy of a row that nobody else refers to."""
    copy = FrozenRow(row)
    copy.names = names
    copy.parts = 0
    return copy


@dataclass(slots=True)
class _Row(Generic[T]):
    """A cached row with its value, and its consecutive misses."""

    row: Features
    value: T
    size: int
    misses: int = 0


class RowCache(Generic[T]):
    """A cache of at most 512 rows by name, each with the value that was made of it.

    Rows of many parts, or rows of such rows, crowd out older ones before that.
    Where rows are new every time it soon caches few of them, because that has a cost.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row[T]] = {}
        self._size = 0
        self._lock = RLock()
        self._writing = False

    def get(self, name: str, row: Features) -> T | None:
        """Return the value cached for exactly this row; ``None`` if the cached row differs.

        Args:
            name: Name of the row's owner.
            row: A row that nobody else writes to meanwhile.
        """
        known = self._rows.get(name)
        if known is None:
            return None
        before = known.row
        if row is before or (
            len(before) == len(row)
            and all(map(is_, row.values(), before.values()))
            and all(map(is_, row, before))
        ):
            known.misses = 0
            return known.value
        known.misses += 1
        return None

    def wants(self, name: str) -> bool:
        """Whether a new row is worth caching: the 1st, 2nd, 4th, 8th ... consecutive miss is."""
        known = self._rows.get(name)
        return known is None or not known.misses & (known.misses - 1)

    def remember(self, name: str, row: Features, value: T) -> None:
        """Cache the value of a row, if the row is short and nothing in it can change."""
        own = row if type(row) is FrozenRow else dict(row)
        if len(own) > _LONGEST or not {*map(type, own), *map(type, own.values())} <= _IMMUTABLE:
            return
        texts = [text for text in (*own, *own.values()) if isinstance(text, str)]
        size = size_of(own) + len(name) // _CHARS_A_PART
        if sum(map(len, texts)) > _CHARS or size > _PARTS:
            return
        with self._lock:  # no ``acquire`` before a ``try``: an exception may come between
            if self._writing:
                return  # a signal handler interrupted this thread while it was writing
            self._writing = True
            try:
                self._keep(name, _Row(own, value, size))
            finally:
                self._writing = False

    def _keep(self, name: str, row: _Row[T]) -> None:
        known = self._rows.get(name)
        if known is not None:
            row.misses = known.misses
        elif len(self._rows) >= _ROWS:
            self._evict_oldest()
        self._rows[name] = row
        self._size += row.size - (known.size if known else 0)
        while self._size > _PARTS:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        oldest = next(iter(self._rows))
        size = self._rows[oldest].size
        del self._rows[oldest]
        self._size -= size


def size_of(value: object) -> int:
    """Return how many parts a row has, those of nested rows and lists included."""
    if isinstance(value, dict):
        if type(value) is FrozenRow and value.names:
            return 1 + len(value) + len(value.names) // _CHARS_A_PART
        return 1 + sum(map(size_of, value)) + sum(map(size_of, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(size_of, value))
    return 1 + len(value) // _CHARS_A_PART if isinstance(value, str) else 1


_CACHED = 16_384
_CACHED_ROWS = 1_024
_CACHED_CHARS = 4_096
_CACHED_WORD = 64  # characters; 16,384 of 4,096 would take 70 MB
_NUMBERS = frozenset({float, int, bool})


@lru_cache(maxsize=_CACHED)
def name_slot(name: str, width: int) -> int:
    """Return the slot of a number of that name."""
    return _hash(f"n:{name}") % width


def _slots_of(names: str, width: int) -> bytes:
    """Return the slots of a row's names, packed; ``names`` has NULs between them."""
    return (_known_slots if len(names) <= _CACHED_CHARS else _known_slots.__wrapped__)(names, width)


@lru_cache(maxsize=_CACHED_ROWS)
def _known_slots(names: str, width: int) -> bytes:
    return array("i", [name_slot(name, width) for name in names.split("\0")]).tobytes()


@lru_cache(maxsize=_CACHED)
def own_slot(name: str, width: int) -> int:
    """Return the slot of an option of that name."""
    return _hash(f"o:{name}") % width


@lru_cache(maxsize=_CACHED)
def category_slot(name: str, value: str, width: int) -> tuple[int, float]:
    """Return the slot and the sign of a short text, or a member of a set, under that name."""
    return _signed_slot(_hash(f"c:{name}={value}"), width)


def word_slot(name: str, word: str, width: int) -> tuple[int, float]:
    """Return the slot and the sign of a word of a longer text under that name."""
    known = _known_word if len(word) <= _CACHED_WORD else _known_word.__wrapped__
    return known(name, word, width)


@lru_cache(maxsize=_CACHED)
def _known_word(name: str, word: str, width: int) -> tuple[int, float]:
    return _signed_slot(_hash(f"w:{name}={word}"), width)


def _signed_slot(hashed: int, width: int) -> tuple[int, float]:
    return (hashed >> 1) % width, 1.0 if hashed & 1 else -1.0


def _hash(text: str) -> int:
    encoded = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")


WIDTH = 4_096
MAX_WIDTH = 65_535  # slots are packed as unsigned 16-bit integers, and ``width`` itself is a slot
MAX_ROW = 256  # entries of one row; further ones are skipped and counted
MAX_WORDS = 16_384  # of all options together; rows beyond are skipped (1 us each)
CATEGORY_CHARS = 40
CATEGORY_WORDS = 3
TEXT_CHARS = 4_096
LARGEST = nextafter((2.0 - 2.0**-24) * 2.0**127, 0.0)  # the largest finite number in float32
_FRAMES = 16  # of unpacked decisions, at most half a megabyte each
_FORMAT = 1
_HEADER = struct.Struct("<BHHII")  # format, width, rows, entries, skipped


class Encoded(NamedTuple):
    """The features of one decision: row 0 is the context, rows 1 to A the options.

    Attributes:
        indices: ``[E]``, the slot of each entry in ``[0, width]``, rows laid end to end.
        values: ``[E]``, the entries.
        numeric: ``[E]``, true where the entry is a raw number, still to be scaled.
        starts: ``[A + 2]``, row ``r`` is ``starts[r]:starts[r + 1]``.
        width: How many slots names are hashed into.
        skipped: How many features could not be used (objects, NaN, infinities, too long).
    """

    indices: Int32Array
    values: Float32Array
    numeric: BoolArray
    starts: Int32Array
    width: int
    skipped: int

    @property
    def options(self) -> int:
        """How many options there were to choose from."""
        return len(self.starts) - 2


class Row(NamedTuple):
    """The entries of options' features, packed end to end.

    Attributes:
        slots: Slots of the entries, int32.
        values: Values of the entries, float32.
        numbers: Flags of the entries that are raw numbers, a byte each.
        skipped: How many features were skipped.
        ends: ``[A]``, where each option's row ends; empty for one option's features alone.
    """

    slots: bytes
    values: bytes
    numbers: bytes
    skipped: int
    ends: tuple[int, ...] = ()


class Memory:
    """A cache of encoded rows of one width; affects nothing but speed."""

    def __init__(self) -> None:
        self.rows: RowCache[Row] = RowCache()
        self.parts: RowCache[Row] = RowCache()


def encode(
    context: Features,
    options: Sequence[tuple[str, Features | None]],
    *,
    width: int = WIDTH,
    memory: Memory | None = None,
) -> Encoded:
    """Return the sparse rows of one decision; whatever cannot be used is skipped and counted.

    Numbers and booleans go as they are into a slot hashed from their name. Short texts are
    categories: a 1 or -1 in the slot of ``name=value``. Longer texts become signed words in
    lower case, and sequences of texts signed members, both of unit length. ``None`` means absent.
    Every option has a 1 in a slot hashed from its name, so options need no features.

    Args:
        context: The context of the decision.
        options: ``[A]``, name and features (or ``None``) of each option that may be chosen.
        width: How many slots names are hashed into, in ``[1, 65535]``.
        memory: Cache of options' rows encoded before, always in this width; ``None`` for none.

    Returns:
        The context row and ``A`` option rows.

    Source:
        Weinberger et al. 2009, arXiv:0902.2206 (signed feature hashing).
    """
    rows = _Rows(width)
    rows.extend(context)
    split = len(rows.slots)
    starts = np.array([-split, 0, *rows.extend_by(options, memory)], dtype=np.int32)
    starts += split
    return Encoded(
        np.frombuffer(rows.slots, dtype=np.int32),
        np.frombuffer(rows.values, dtype=np.float32),
        np.frombuffer(rows.numbers, dtype=np.bool_),
        starts,
        width,
        rows.skipped,
    )


class _Rows:
    """Rows that grow entry by entry, the constant of contexts first.

    The buffers are flat, because encoding is the cost of a decision.
    """

    __slots__ = ("numbers", "skipped", "slots", "values", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.slots = array("i", (width,))
        self.values = array("f", (1.0,))
        self.numbers = bytearray(1)
        self.skipped = 0

    def add(self, slot: int, value: float, is_number: int) -> None:
        """Append one entry."""
        self.slots.append(slot)
        self.values.append(value)
        self.numbers.append(is_number)

    def extend_by(
        self, options: Sequence[tuple[str, Features | None]], memory: Memory | None
    ) -> Sequence[int]:
        """Append a row for each option; return where each ends, relative to the first's start."""
        if memory is None:
            return self._extend_each(options, None)
        offered = dict[str, object](options)
        name = "\0".join(offered) if len(offered) == len(options) else ""
        part = memory.parts.get(name, offered) if name else None
        if part is not None:
            self._append(part)
            return part.ends
        begin, skipped = len(self.slots), self.skipped
        ends = self._extend_each(options, memory.rows)
        if name and memory.parts.wants(name):
            row = self._since(begin, skipped)._replace(ends=tuple(ends))
            memory.parts.remember(name, offered, row)
        return ends

    def _extend_each(
        self,
        options: Sequence[tuple[str, Features | None]],
        cache: RowCache[Row] | None,
    ) -> list[int]:
        begin = len(self.slots)
        ends = []
        words = 0
        for name, features in options:
            self.add(own_slot(name, self.width), 1.0, 0)
            row = len(self.slots)
            if features and words > MAX_WORDS:
                self.skipped += len(features)
            elif features and (cache is None or _is_quick(features)):
                self.extend(features)
            elif features and cache is not None:
                self._extend_from_cache(name, features, cache)
            words += self.numbers.count(0, row)  # entries that are no numbers
            ends.append(len(self.slots) - begin)
        return ends

    def _extend_from_cache(self, name: str, features: Features, cache: RowCache[Row]) -> None:
        """Append the entries of an option's features, from the cache if they are in it."""
        row = cache.get(name, features)
        if row is not None:
            self._append(row)
            return
        begin, skipped = len(self.slots), self.skipped
        self.extend(features)
        if cache.wants(name):
            cache.remember(name, features, self._since(begin, skipped))

    def _append(self, row: Row) -> None:
        self.slots.frombytes(row.slots)
        self.values.frombytes(row.values)
        self.numbers += row.numbers
        self.skipped += row.skipped

    def _since(self, begin: int, skipped: int) -> Row:
        """Return the row appended since there were ``begin`` entries and ``skipped`` skipped."""
        return Row(
            self.slots[begin:].tobytes(),
            self.values[begin:].tobytes(),
            bytes(self.numbers[begin:]),
            self.skipped - skipped,
        )

    def extend(self, features: Features) -> None:
        """Append the entries of one row's features, at most ``MAX_ROW`` of them."""
        if self._extend_whole(features):
            return
        slots, values, numbers, width = self.slots, self.values, self.numbers, self.width
        begin = len(slots)
        pairs: Iterable[tuple[object, object]] = features.items()  # names may be no text
        for read, (name, value) in enumerate(pairs):
            if len(slots) - begin > MAX_ROW:
                self.skipped += len(features) - read
                break
            if isinstance(value, (float, int)):  # the usual case first, and not through ``add``
                if isinstance(name, str) and -LARGEST <= value <= LARGEST:  # refuses NaN too
                    slots.append(name_slot(name, width))
                    values.append(value)
                    numbers.append(1)
                else:
                    self.skipped += 1
            elif value is not None:
                self._extend_other(name, value)
        excess = len(slots) - begin - MAX_ROW
        if excess > 0:
            self.skipped += excess
            del slots[-excess:], values[-excess:], numbers[-excess:]

    def _extend_whole(self, features: Features) -> bool:
        """Append a row of finite numbers alone at once; ``False`` if it is not one."""
        count = len(features)
        if not 0 < count <= MAX_ROW:
            return False
        names = features.names if type(features) is FrozenRow else ""
        try:
            if not names:
                kinds, names = frozenset(map(type, features.values())), "\0".join(features)
                total = sum(features.values()) if kinds <= _NUMBERS else nan  # type: ignore[arg-type]  # they are numbers
                if not isfinite(total) or names.count("\0") != count - 1:
                    return False  # a value may be too large, or a NaN; a name may have a NUL
            values = struct.pack(f"={count}f", *features.values())
        except (OverflowError, TypeError, struct.error):  # a name is no text, a number too large
            return False
        self.slots.frombytes(_slots_of(names, self.width))
        self.values.frombytes(values)
        self.numbers += b"\1" * count
        return True

    def _extend_other(self, name: object, value: object) -> None:
        if not isinstance(name, str):
            self.skipped += 1
        elif isinstance(value, str):
            self._extend_text(name, value)
        elif isinstance(value, list | tuple | set | frozenset):
            self._extend_members(name, value)
        elif isinstance(value, Real):
            self._extend_real(name, value)
        else:
            self.skipped += 1

    def _extend_real(self, name: str, value: Real) -> None:
        try:
            number = float(value)
        except (OverflowError, ValueError, TypeError):
            number = float("nan")
        if -LARGEST <= number <= LARGEST:
            self.add(name_slot(name, self.width), number, 1)
        else:
            self.skipped += 1

    def _extend_text(self, name: str, text: str) -> None:
        if len(text) <= CATEGORY_CHARS and text.count(" ") < CATEGORY_WORDS:
            slot, sign = category_slot(name, text, self.width)
            self.slots.append(slot)
            self.values.append(sign)
            self.numbers.append(0)
            return
        if len(text) > TEXT_CHARS:
            self.skipped += 1
        words = text[:TEXT_CHARS].lower().split()
        self.skipped += max(0, len(words) - MAX_ROW)
        self._extend_bag([word_slot(name, word, self.width) for word in words[:MAX_ROW]])

    def _extend_members(
        self,
        name: str,
        members: list[object] | tuple[object, ...] | set[object] | frozenset[object],
    ) -> None:
        texts = sorted(member[:CATEGORY_CHARS] for member in members if isinstance(member, str))
        self.skipped += len(members) - min(len(texts), MAX_ROW)
        self._extend_bag([category_slot(name, text, self.width) for text in texts[:MAX_ROW]])

    def _extend_bag(self, entries: list[tuple[int, float]]) -> None:
        sums: dict[int, float] = {}
        for slot, sign in entries:
            sums[slot] = sums.get(slot, 0.0) + sign
        length = sqrt(sum(value * value for value in sums.values()))
        if length > 0.0:
            for slot, value in sums.items():
                self.add(slot, value / length, 0)


def _is_quick(features: Features) -> bool:
    """Whether a row is encoded faster than it is found in the cache."""
    return type(features) is FrozenRow and bool(features.names)


class Frame(NamedTuple):
    """The packed form of a decision without its values, shared by all of the same layout.

    Attributes:
        width: As in ``Encoded``.
        rows: Number of rows.
        entries: Number of entries.
        slots: Lengths of rows, then slots, as unsigned 16-bit integers.
        numeric: One bit for each entry.
    """

    width: int
    rows: int
    entries: int
    slots: bytes
    numeric: bytes


def frame_of(encoded: Encoded) -> Frame:
    """Return the packed form of a decision without its values.

    Raises:
        ValueError: The width is beyond 65535, or a row is longer than 65535 entries.
    """
    starts = encoded.starts.tolist()  # a few numbers, for which numpy takes longer than Python
    lengths = [*map(sub, starts[1:], starts)]
    if not 1 <= encoded.width <= MAX_WIDTH or max(lengths, default=0) > MAX_WIDTH:
        raise ValueError(f"width and rows must be at most {MAX_WIDTH}, got {encoded.width!r}")
    return Frame(
        encoded.width,
        len(lengths),
        len(encoded.indices),
        struct.pack(f"<{len(lengths)}H", *lengths) + encoded.indices.astype("<u2").tobytes(),
        np.packbits(encoded.numeric).tobytes(),
    )


def pack(encoded: Encoded) -> bytes:
    """Return the rows as bytes: little-endian, a format byte first, a checksum last.

    Raises:
        ValueError: The width is beyond 65535, or a row is longer than 65535 entries.
    """
    values = encoded.values.astype("<f4", copy=False).tobytes()
    return pack_values(frame_of(encoded), values, skipped=encoded.skipped)


def pack_values(frame: Frame, values: bytes | bytearray, *, skipped: int) -> bytes:
    """Return rows as ``pack`` does, from their packed values and a frame with all else."""
    width, rows, entries, slots, numeric = frame
    header = _HEADER.pack(_FORMAT, width, rows, entries, skipped)
    body = b"".join((header, slots, values, numeric))
    return body + zlib.crc32(body).to_bytes(4, "little")


def unpack(packed: bytes) -> Encoded:
    """Return the rows that ``pack`` was given.

    Raises:
        ValueError: The bytes are damaged, cut, or of an unknown format.
    """
    body, checksum = packed[:-4], packed[-4:]
    if len(body) < _HEADER.size or zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise ValueError(f"packed features are damaged: {len(packed)} bytes, checksum differs")
    format_, width, rows, entries, skipped = _HEADER.unpack_from(body)
    if format_ != _FORMAT:
        raise ValueError(f"packed features have format {format_!r}, expected {_FORMAT}")
    values = _HEADER.size + 2 * (rows + entries)
    bits, end = values + 4 * entries, values + 4 * entries - (-entries // 8)
    if end != len(body):
        raise ValueError(f"packed features must have {end} bytes, got {len(body)}")
    frame = Frame(width, rows, entries, body[_HEADER.size : values], body[bits:])
    indices, numeric, starts = _unpack_frame(frame)
    own = np.frombuffer(body, "<f4", entries, values).astype(np.float32)
    return Encoded(indices, own, numeric, starts, width, skipped)


@lru_cache(maxsize=_FRAMES)
def _unpack_frame(frame: Frame) -> tuple[Int32Array, BoolArray, Int32Array]:
    """Return ``indices``, ``numeric`` and ``starts`` of ``Encoded``, read-only and shared."""
    starts = np.zeros(frame.rows + 1, dtype=np.int32)
    np.frombuffer(frame.slots, "<u2", frame.rows).cumsum(out=starts[1:])
    indices = np.frombuffer(frame.slots, "<u2", frame.entries, 2 * frame.rows).astype(np.int32)
    if starts[-1] != frame.entries or indices.max(initial=0) > frame.width:
        raise ValueError("packed features are damaged: rows and slots do not fit")
    bits = np.unpackbits(np.frombuffer(frame.numeric, np.uint8), count=frame.entries)
    numeric = bits.view(np.bool_)
    for shared in (indices, numeric, starts):
        shared.setflags(write=False)
    return indices, numeric, starts
