"""What was made of rows of features, for as long as they hold the very same objects.

Looking whether a row is the same costs a third of reading it anew. Two rows are the same if their
names and values are identical objects that cannot change, so nothing of the host's runs, and a
dictionary that was changed meanwhile is never taken for what it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_
from threading import RLock
from typing import Generic, TypeVar

_ROWS = 512
_LONGEST = 256
_CHARS = 4_096
_PARTS = 65_536  # of all rows together, those of rows within rows included: about 10 MB
_CHARS_A_PART = 64  # a longer text counts as several
T = TypeVar("T")


class Kept(dict[str, object]):
    """A row of plain data that nobody writes to any more, so that itself again is the same again.

    Attributes:
        names: Its names with NULs between, if its values are all finite floats; else empty.
        parts: How much it is to be counted for, by whom that concerns; 0 if not known yet.
    """

    __slots__ = ("names", "parts")
    names: str
    parts: int


_UNCHANGING = frozenset({float, int, bool, str, type(None), Kept})


def kept(row: Mapping[str, object], *, names: str = "") -> Kept:
    """Return a row that nobody else has."""
    made = Kept(row)
    made.names = names
    made.parts = 0
    return made


@dataclass(slots=True)
class _Row(Generic[T]):
    """One row, and how often in a row another one came instead."""

    row: dict[str, object]
    made: T
    size: int
    missed: int = 0


class Remembered(Generic[T]):
    """Remembers a row, and what was made of it, for each of at most 512 names.

    Rows of many parts, or rows of such rows, crowd out older ones before that.
    Where rows are new every time it soon remembers few of them, because that costs something.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row[T]] = {}
        self._size = 0
        self._lock = RLock()
        self._changing = False

    def made_of(self, name: str, row: Mapping[str, object]) -> T | None:
        """Return what was made of exactly this row; ``None`` if it is another.

        Args:
            name: Whose row it is.
            row: One that nobody else writes to meanwhile.
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
            known.missed = 0
            return known.made
        known.missed += 1
        return None

    def wants(self, name: str) -> bool:
        """Tell whether a new row is worth remembering: the 1st, 2nd, 4th, 8th ... in a row is."""
        known = self._rows.get(name)
        return known is None or not known.missed & (known.missed - 1)

    def remember(self, name: str, row: Mapping[str, object], made: T) -> None:
        """Remember what was made of a row, if it is short and nothing in it can change."""
        own = row if type(row) is Kept else dict(row)
        if len(own) > _LONGEST or not {*map(type, own), *map(type, own.values())} <= _UNCHANGING:
            return
        texts = [text for text in (*own, *own.values()) if isinstance(text, str)]
        size = size_of(own) + len(name) // _CHARS_A_PART
        if sum(map(len, texts)) > _CHARS or size > _PARTS:
            return
        with self._lock:  # no ``acquire`` before a ``try``: an exception may come between
            if self._changing:
                return  # this thread is at it, below a signal's handler: another time
            self._changing = True
            try:
                self._keep(name, _Row(own, made, size))
            finally:
                self._changing = False

    def _keep(self, name: str, row: _Row[T]) -> None:
        known = self._rows.get(name)
        if known is not None:
            row.missed = known.missed
        elif len(self._rows) >= _ROWS:
            self._forget_oldest()
        self._rows[name] = row
        self._size += row.size - (known.size if known else 0)
        while self._size > _PARTS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._rows))
        size = self._rows[oldest].size
        del self._rows[oldest]
        self._size -= size


def size_of(value: object) -> int:
    """Return how many parts a row has, those of rows and lists within it included."""
    if isinstance(value, dict):
        if type(value) is Kept and value.names:
            return 1 + len(value) + len(value.names) // _CHARS_A_PART
        return 1 + sum(map(size_of, value)) + sum(map(size_of, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(size_of, value))
    return 1 + len(value) // _CHARS_A_PART if isinstance(value, str) else 1
