"""Rows of numbers are told from others, and none is taken for one that is not."""

from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.sanitize import Limits, number_names, plain


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=9) | st.sampled_from(["a", "b\0c", "\u00e4"]),
        st.floats() | st.integers() | st.booleans() | st.just(1.5),
        max_size=9,
    )
)
def test_a_row_of_numbers_is_one_that_a_walk_keeps_as_it_is(row: dict[str, object]) -> None:
    limits = Limits(items=6, key_chars=5, total_chars=30)

    names = number_names(row, limits=limits)

    if names:
        assert names.split("\0") == list(row)
        assert plain(row, limits=limits) == row
        assert {*map(type, row.values())} == {float}


@pytest.mark.parametrize(
    ("row", "known"),
    [
        pytest.param({"a": 1.5, "b": -2.0}, "a\0b", id="numbers"),
        pytest.param({"a": 1.5, "n": float("nan")}, "", id="one is none"),
        pytest.param({"a": 1}, "", id="an integer may be too long"),
        pytest.param({"a\0b": 1.5}, "", id="a NUL in a name"),
        pytest.param({"x" * 300: 1.5}, "", id="a long name"),
        pytest.param({f"{n}": 0.5 for n in range(2_000)}, "", id="too many"),
        pytest.param({f"{n:09}": 0.5 for n in range(900)}, "kept", id="more than is remembered"),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_only_rows_of_finite_floats_are_rows_of_numbers(row: dict[str, object], known: str) -> None:
    names = number_names(row)

    assert names == ("\0".join(row) if known == "kept" else known)


def test_names_of_another_class_are_never_asked_anything() -> None:
    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return hash(str(self))

        def __eq__(self, other: object) -> NoReturn:
            raise AssertionError("the host's code must not run")

    assert number_names({Name("a"): 1.5}) == ""


class OddKind(type):
    """Its classes cannot be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError


class Odd(metaclass=OddKind):
    """Of a class that cannot be compared."""


def test_a_value_whose_class_cannot_be_compared_is_no_number() -> None:
    row: dict[str, object] = {"a": 1.5, "b": Odd()}

    assert number_names(row) == ""
