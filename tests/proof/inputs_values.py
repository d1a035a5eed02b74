"""Values as bad as a host's can be: a catalogue by name, and containers of them, from a seed."""

import array
import datetime as dt
import enum
import random
import types
import uuid
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.proof.inputs_hostile import HOSTILE, HostileError, endless


class Colour(enum.Enum):
    """An enumeration of a host's."""

    RED = "red"
    ODD = (1, [2])


@dataclass
class Record:
    """A dataclass that may hold itself."""

    name: object = "record"
    inner: object = None


@dataclass(frozen=True, slots=True)
class Slotted:
    """A frozen one."""

    number: float = 0.5


class Modelled:
    """Looks like a pydantic model, and fails like one that is half made."""

    def __init__(self) -> None:
        self.field = 1

    def model_dump(self) -> dict[str, object]:
        """Fail."""
        raise HostileError

    def __iter__(self) -> Iterator[tuple[str, object]]:
        yield "field", 1

    def __getattr__(self, name: str) -> object:
        return self


class Odd(type):
    """A class of classes that raise whatever they are asked."""

    def _raise(cls, *_: object) -> Any:
        raise HostileError

    __hash__ = __eq__ = __subclasscheck__ = __instancecheck__ = _raise
    __repr__ = __str__ = __len__ = __iter__ = __bool__ = _raise


class Strange(metaclass=Odd):
    """Its class cannot be hashed."""


def _lonely() -> object:
    return weakref.proxy(Record())  # whose object is gone: it raises whatever it is asked


def _itself(container: Any, add: Callable[[Any, Any], object]) -> object:
    add(container, container)
    return container


def _deep(kind: str, depth: int = 100_000) -> object:
    container: object = []
    for _ in range(depth):
        container = {"a": container} if kind == "dict" else [container]
    return container


def _record() -> object:
    record = Record()
    record.inner = record
    return record


def _half() -> Iterator[object]:
    yield "a"
    raise HostileError


def _counting() -> Iterator[object]:
    number = 0
    while True:
        number += 1
        yield number


def _proxied() -> object:
    mapping: Mapping[str, object] = {"a": 1}
    for _ in range(5_000):
        mapping = types.MappingProxyType(mapping)
    return mapping


PLAIN: Mapping[str, Callable[[], object]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "-10**5000": lambda: -(10**5000),
    "1.5": lambda: 1.5,
    "-0.0": lambda: -0.0,
    "1e308": lambda: 1e308,
    "5e-324": lambda: 5e-324,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "complex": lambda: complex("nan+infj"),
    "empty text": lambda: "",
    "a": lambda: "a",
    "blank": lambda: " \t\n",
    "nul": lambda: "nul \0 here",
    "surrogate": lambda: "\ud800 lone \udc00",
    "surrogates": lambda: "\udc00a\ud800" * 3_000,
    "composed": lambda: "é\u1e9b\u0323",
    "decomposed": lambda: "e\u0301\u0073\u0323\u0307",
    "right to left": lambda: "\u202eevil\u202c\u2066",
    "escape": lambda: "\x1b[31m\x07\x08\r\n",
    "sql": lambda: "'; drop table rollouts; --",
    "path": lambda: "../../../etc/passwd",
    "digits": lambda: "9" * 5_000,
    "long": lambda: "x" * 20_000,
    "long and wide": lambda: "\U0001f600" * 5_000,
    "bytes": lambda: b"\xff\0",
    "bytearray": lambda: bytearray(b"\xff" * 9),
    "memoryview": lambda: memoryview(b"123"),
    "array": lambda: array.array("d", [float("nan")] * 3),
    "decimal nan": lambda: Decimal("sNaN"),
    "decimal": lambda: Decimal("1e1000000"),
    "fraction": lambda: Fraction(10**400, 3),
    "datetime": lambda: dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
    "timedelta": lambda: dt.timedelta.max,
    "uuid": lambda: uuid.UUID(int=0),
    "path object": lambda: Path("/nowhere") / ("p" * 300),
    "range": lambda: range(10**12),
    "slice": lambda: slice(None),
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "object": object,
    "a class": lambda: Record,
    "an odd class": lambda: Strange,
    "of an odd class": Strange,
    "a lambda": lambda: lambda: None,
    "a module": lambda: types,
    "half an iterator": _half,
    "an endless iterator": endless,
    "a counting iterator": _counting,
    "an exhausted iterator": lambda: iter(()),
    "a lonely proxy": _lonely,
    "enum": lambda: Colour.RED,
    "odd enum": lambda: Colour.ODD,
    "dataclass": _record,
    "slotted": Slotted,
    "unset slots": lambda: Slotted.__new__(Slotted),
    "model": Modelled,
    "list in itself": lambda: _itself([], list.append),
    "dict in itself": lambda: _itself({}, lambda into, item: into.update(a=item)),
    "empty list": list,
    "empty dict": dict,
    "set": lambda: {1, "a", None, 2.5},
    "frozenset": lambda: frozenset({("a", 1)}),
    "deque": lambda: deque(["a", 1], maxlen=2),
    "keys of all kinds": lambda: {1: "a", None: 2, ("t",): 3, 1.5: 4, b"b": 5, "": 6},
    "chain map": lambda: ChainMap({"a": 1}, {"b": 2}),
    "user dict": lambda: UserDict({"a": 1}),
    "ordered dict": lambda: OrderedDict(a=1),
    "default dict": lambda: defaultdict(list, {"a": [1]}),
    "counter": lambda: Counter("abc"),
    "proxies": _proxied,
    "numpy nan": lambda: np.float64("nan"),
    "numpy float32": lambda: np.float32(1.5),
    "numpy int": lambda: np.int64(-(2**63)),
    "numpy bool": lambda: np.bool_(True),
    "numpy text": lambda: np.str_("text"),
    "numpy time": lambda: np.datetime64("NaT", "s"),
    "numpy void": lambda: np.zeros(1, dtype=[("a", "f8")])[0],
    "numpy array": lambda: np.array([1.0, np.nan]),
    "numpy 0-d": lambda: np.array(1.5),
    "numpy objects": lambda: np.array([None, {}], dtype=object),
    "numpy long": lambda: np.longdouble("1e4000"),
}

HUGE: Mapping[str, Callable[[], object]] = {
    name: lru_cache(make)
    for name, make in {
        "100 MB": lambda: "x" * 100_000_000,
        "100 MB of bytes": lambda: bytes(100_000_000),
        "30 MB of surrogates": lambda: "\ud800" * 15_000_000,
        "a million keys": lambda: {f"k{n}": float(n) for n in range(1_000_000)},
        "a million entries": lambda: list(range(1_000_000)),
        "a million in a set": lambda: set(range(1_000_000)),
        "lists 100,000 deep": lambda: _deep("list"),
        "dicts 100,000 deep": lambda: _deep("dict"),
        "10**100000": lambda: 10**100_000,
        "1000 texts": lambda: {f"k{n}": f"some words {n} " * 20 for n in range(1_000)},
        "256 rows": lambda: {f"o{n}": {f"f{k}": f"w {k}" for k in range(256)} for n in range(256)},
        "a million numbers": lambda: np.zeros(1_000_000),
        "an array of 8 MB": lambda: array.array("d", bytes(8_000_000)),
    }.items()
}

CATALOGUE: Mapping[str, Callable[[], object]] = {**PLAIN, **HOSTILE, **HUGE}
"""Every bad value by its name; the huge ones are made once."""


class Named(NamedTuple):
    """A value and what it is called."""

    name: str
    value: Any


class Values:
    """Bad values, one after the other, that a generator determines.

    Args:
        rng: Determines them.
    """

    _plain = tuple(PLAIN)
    _hostile = tuple(HOSTILE)
    _huge = tuple(HUGE)

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def any(self) -> Named:
        """Return a value of any kind; one in a thousand is huge."""
        at = self.rng.random()
        if at < 0.001:
            return self.named(self.rng.choice(self._huge))
        if at < 0.45:
            return self.named(self.rng.choice(self._plain))
        if at < 0.75:
            return self.named(self.rng.choice(self._hostile))
        return self.nested(2)

    @staticmethod
    def named(name: str) -> Named:
        """Return a value of the catalogue."""
        return Named(name, CATALOGUE[name]())

    def nested(self, depth: int) -> Named:
        """Return a container of values."""
        inside = [self._inside(depth) for _ in range(self.rng.randrange(4))]
        values: list[Any] = [item.value for item in inside]
        kind = self.rng.choice(("list", "tuple", "dict", "record", "generator", "deque"))
        container: object = values
        if kind == "dict":
            container = {self._key(): value for value in values}
        elif kind == "record":
            container = Record(*values[:2])
        elif kind != "list":
            kinds: Mapping[str, Any] = {"tuple": tuple, "generator": iter, "deque": deque}
            container = kinds[kind](values)
        return Named(f"{kind} of ({', '.join(item.name for item in inside)})", container)

    def _inside(self, depth: int) -> Named:
        if depth and self.rng.random() < 0.3:
            return self.nested(depth - 1)
        names = self._plain if self.rng.random() < 0.6 else self._hostile
        return self.named(self.rng.choice(names))

    def _key(self) -> str:
        return self.rng.choice(
            ("a", "b", "é", "e\u0301", "\0", "\ud800", "", "x" * 300, "password")
        )


_GROUPS: tuple[Any, ...] = (list, tuple, deque, set, frozenset, dict)
_LOOKED_AT = 300


def state_of(value: object) -> list[tuple[object, ...]]:
    """Return what built-in containers hold, by identity, and what of records; to be compared."""
    states: list[tuple[object, ...]] = []
    waiting: list[Any] = [value]
    known = set[int]()
    while waiting and len(states) < _LOOKED_AT:
        item = waiting.pop()
        group = next((kind for kind in _GROUPS if issubclass(type(item), kind)), None)
        is_record, is_bytes = type(item) is Record, type(item) is bytearray
        if id(item) in known or not (group or is_record or is_bytes):
            continue
        known.add(id(item))
        if group is None or group.__len__(item) > _LOOKED_AT:
            held = group.__len__(item) if group else bytes(item) if is_bytes else 0
            states.append((id(item), held))
            inside = [*vars(item).values()] if is_record else []
        else:
            inside = [*group.__iter__(item)]
            inside += dict.values(item) if group is dict else []
        states.append((id(item), *map(id, inside)))
        waiting += inside
    return states
