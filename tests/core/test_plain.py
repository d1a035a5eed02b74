"""What a host hands over becomes bounded JSON data, whatever it is."""

import datetime as dt
import decimal
import enum
import gc
import time
import types
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tau_live.core.sanitize import Json, Limits, clean, plain

SMALL = Limits(depth=3, items=4, nodes=12, key_chars=50, chars=60, total_chars=150)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**600), max_value=2**600),
    st.floats(),
    st.text(st.characters(codec=None), max_size=120),
    st.binary(max_size=20),
    st.complex_numbers(),
    st.decimals(),
    st.uuids(),
    st.datetimes(),
)
KEYS = st.one_of(
    *(st.text(max_size=80), st.integers(), st.booleans(), st.none(), st.binary(), st.floats()),
    st.integers(min_value=-(2**600), max_value=2**600),
)
ANYTHING = st.recursive(
    ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=8),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=8),
        st.sets(st.integers() | st.text(max_size=5), max_size=6),
    ),
    max_leaves=40,
)


def refuse(self: object, *_: object) -> NoReturn:
    raise RuntimeError("a host's bug")


Hostile: type[dict[str, object]] = type(
    "Hostile",
    (dict,),
    {
        **dict.fromkeys(
            ["__iter__", "__len__", "__repr__", "__str__", "__eq__", "__hash__"], refuse
        ),
        **dict.fromkeys(["__bool__", "__contains__", "__getitem__", "items", "keys"], refuse),
        "__class__": property(refuse),
    },
)
"""A mapping whose every method fails, as does the question what it is."""


class Endless:
    """Has no end when it is walked, and refuses to be shown."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1

    def __len__(self) -> int:
        return 2**62

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(name)

    def __repr__(self) -> NoReturn:
        raise RuntimeError("a host's bug")


class Colour(enum.Enum):
    RED = "red"


class Loud(str):
    __slots__ = ()

    def __len__(self) -> NoReturn:
        raise RuntimeError("a host's bug")

    __str__ = __repr__ = __len__


@dataclass(slots=True)
class Point:
    x: int
    y: list[int] = field(default_factory=list)


@dataclass
class Loose:
    name: str


def size_of(value: Json) -> tuple[int, int, int]:
    """Return how many entries, characters and levels a value has."""
    if isinstance(value, dict):
        inner = [size_of(entry) for entry in value.values()]
        chars = sum(map(len, value))
    elif isinstance(value, list):
        inner, chars = [size_of(entry) for entry in value], 0
    else:
        return 0, len(value) if isinstance(value, str) else 0, 0
    return (
        len(value) + sum(entry[0] for entry in inner),
        chars + sum(entry[1] for entry in inner),
        1 + max((entry[2] for entry in inner), default=0),
    )


@pytest.mark.slow
@given(ANYTHING)
def test_anything_becomes_json_that_reads_back_the_same(value: object) -> None:
    found = plain(value)

    assert msgspec.json.decode(msgspec.json.encode(found)) == found


@pytest.mark.slow
@given(ANYTHING)
@example({"a" * 50: "b" * 54, "in": {0: None, 1: None, 2: "c" * 35, 3: None, 4: None}})
def test_to_do_it_again_changes_nothing(value: object) -> None:
    once = plain(value, limits=SMALL)

    again = plain(once, limits=SMALL)

    assert again == once


@pytest.mark.slow
@given(ANYTHING)
def test_the_size_is_bounded(value: object) -> None:
    nodes, chars, depth = size_of(plain(value, limits=SMALL))

    assert nodes <= SMALL.nodes
    assert depth <= SMALL.depth + 1  # an empty container needs no room
    assert chars <= SMALL.total_chars + 41 * SMALL.nodes  # a key has 40 even when all is used up


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text("abc", max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(JSON)
def test_plain_data_stays_as_it_is(value: Json) -> None:
    found = plain(value)

    assert found == value


@pytest.mark.slow
@given(ANYTHING.filter(lambda value: isinstance(value, (dict, list))))
def test_the_hosts_object_is_not_changed(value: object) -> None:
    before = repr(value)

    plain(value, limits=SMALL)

    assert repr(value) == before


def test_a_hostile_mapping_is_read_without_its_own_methods() -> None:
    value = Hostile()
    dict.__setitem__(value, "kept", Loud("text"))

    found = plain([value, Endless(), Colour.RED])

    assert found == [{"kept": "text"}, "…[Endless]", "red"]


def test_a_property_that_raises_is_not_asked() -> None:
    value = types.MappingProxyType(Hostile(a=1))

    found = plain(value)

    assert found == {"a": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(float("nan"), "NaN", id="not a number"),
        pytest.param(float("-inf"), "-Infinity", id="infinity"),
        pytest.param(2**127, str(2**127), id="an id of 128 bits keeps its digits"),
        pytest.param(10**5000, "…[integer of 16610 bits]", id="a huge integer"),
        pytest.param(b"abc", "…[bytes: 3]", id="bytes"),
        pytest.param(memoryview(b"abc"), "…[bytes: 3]", id="a view"),
        pytest.param("a\0b\ud800", "a\ufffdb\ufffd", id="NUL and a lone surrogate"),
        pytest.param("\ud83d\ude00", "\U0001f600", id="a pair of surrogates is one character"),
        pytest.param({3, 1, 2}, [1, 2, 3], id="a set is sorted"),
        pytest.param(deque([1]), [1], id="a deque"),
        pytest.param(OrderedDict(a=1), {"a": 1}, id="an ordered dict"),
        pytest.param({1: "a", "1": "b"}, {"1": "a", "1…2": "b"}, id="keys that become the same"),
        pytest.param({None: 1, True: 2, 1.5: 3}, {"None": 1, "True": 2, "1.5": 3}, id="keys"),
        pytest.param({(1, 2): 3}, {"…[tuple]": 3}, id="a key that is no word"),
        pytest.param(Point(1, [2]), {"x": 1, "y": [2]}, id="a dataclass with slots"),
        pytest.param(Loose("n"), {"name": "n"}, id="a dataclass"),
        pytest.param(np.float32(1.5), 1.5, id="a float of numpy"),
        pytest.param(np.int64(3), 3, id="an integer of numpy"),
        pytest.param(np.bool_(True), True, id="a boolean of numpy"),
        pytest.param(np.longdouble(1), "…[longdouble]", id="a number of numpy's own"),
        pytest.param(np.zeros(3), "…[ndarray]", id="an array"),
        pytest.param(dt.date(2026, 1, 2), "2026-01-02", id="a date"),
        pytest.param(decimal.Decimal("1.10"), "1.10", id="a decimal"),
        pytest.param(uuid.UUID(int=1), str(uuid.UUID(int=1)), id="a UUID"),
        pytest.param(object(), "…[object]", id="an object"),
        pytest.param(object, "…[type]", id="a class"),
        pytest.param(print, "…[builtin_function_or_method]", id="a function"),
    ],
)
def test_what_json_cannot_say(value: object, expected: Json) -> None:
    found = plain(value)

    assert found == expected


def test_what_is_shared_is_no_cycle() -> None:
    shared, mapping, record = [1], {"a": 1}, Loose("n")

    found = plain([shared, shared, mapping, mapping, record, record])

    assert found == [[1], [1], {"a": 1}, {"a": 1}, {"name": "n"}, {"name": "n"}]


def test_it_says_where_it_cut() -> None:
    value = {"list": [*range(9)], "text": "a word or two more " * 5, "deep": [[[1, 2]]]}

    found = plain(value, limits=SMALL)

    assert found == {
        "list": [0, 1, 2, "…[6 more]"],
        "text": "a word or two more …[76 more characters]",
        "deep": [["…[list: 2]"]],
    }


def cyclic() -> object:
    value: dict[str, object] = {}
    value["self"] = [value]
    return value


def deep() -> object:
    outer: list[object] = []
    value = outer
    for _ in range(100_000):
        value.append([])
        value = value[0]  # type: ignore[assignment]  # the list just appended
    return outer


def fan() -> object:
    value: object = 1
    for _ in range(60):  # as a tree it has 2**60 leaves
        value = [value, value]
    return value


@pytest.mark.timed
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(cyclic, id="a cycle"),
        pytest.param(deep, id="a depth of 100,000"),
        pytest.param(fan, id="a graph whose tree is endless"),
        pytest.param(lambda: dict.fromkeys(range(1_000_000), "x"), id="a million keys"),
        pytest.param(lambda: set(range(1_000_000)), id="a million entries of a set"),
        pytest.param(lambda: ["x" * 10_000_000] * 100, id="much text"),
        pytest.param(lambda: {f"{'k' * 300}{i}": i for i in range(2_000)}, id="keys cut to one"),
    ],
)
@pytest.mark.slow
def test_time_is_bounded(build: Callable[[], object]) -> None:
    value = build()
    gc.disable()  # it looks at all that the tests before have left
    began = time.thread_time()
    try:
        plain(value)
        took = time.thread_time() - began
    finally:
        gc.enable()

    assert took < 0.25  # measured: at most 0.03 on the machine it was made on


@given(st.text(st.characters(codec=None)))
def test_a_clean_text_can_be_written_anywhere(text: str) -> None:
    found = clean(text)

    assert "\0" not in found
    assert found.encode().decode() == found


SCALARS = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(2**65), 2**65), st.text(max_size=70)
)


@given(
    st.dictionaries(st.text(max_size=60), st.floats(allow_nan=False), max_size=8)
    | st.dictionaries(st.text(st.characters(max_codepoint=127), max_size=60), SCALARS, max_size=8),
    st.sampled_from([SMALL, Limits()]),
)
def test_many_scalars_at_once_are_kept_as_one_by_one(value: Json, limits: Limits) -> None:
    nested: list[object] = [value, {"again": value}, value]

    found = plain(nested, limits=limits)

    assert repr(found) == repr(plain(nested, limits=limits, hidden=lambda name, inner: None))


def test_scalars_are_copied() -> None:
    value = {"a": 1.0}

    found = plain(value)

    assert found == value
    assert found is not value
