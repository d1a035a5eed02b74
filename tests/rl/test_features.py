"""Features: garbage never raises, meaning is kept, packing is exact."""

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.features import MAX_ROW, Encoded, Memory, encode, pack, unpack

NUMBERS = st.one_of(st.integers(), st.floats(), st.booleans(), st.fractions(), st.complex_numbers())
GARBAGE = st.one_of(
    st.none(),
    NUMBERS,
    st.text(),
    st.binary(),
    st.lists(st.one_of(st.text(), st.integers(), st.none())),
    st.dictionaries(st.text(), st.integers()),
    st.builds(object),
    st.just(10**400),
    st.just(Decimal("NaN")),
    st.characters(categories=["Cs"]),
)
FEATURES = st.dictionaries(st.text(), GARBAGE, max_size=8)
OPTIONS = st.lists(st.tuples(st.text(), st.one_of(st.none(), FEATURES)), max_size=5)


def row(encoded: Encoded, index: int) -> dict[int, float]:
    part = slice(int(encoded.starts[index]), int(encoded.starts[index + 1]))
    return dict(zip(encoded.indices[part].tolist(), encoded.values[part].tolist(), strict=True))


def assert_same(found: Encoded, expected: Encoded) -> None:
    for name, array in expected._asdict().items():
        got = getattr(found, name)
        if isinstance(array, np.ndarray):
            assert got.dtype == array.dtype, name
            np.testing.assert_array_equal(got, array, err_msg=name)
        else:
            assert got == array, name


@pytest.mark.slow
@given(FEATURES, OPTIONS, st.sampled_from([1, 7, 512, 65_535]))
@settings(deadline=None)
def test_garbage_never_raises_and_survives_packing(
    context: dict[str, object], options: list[tuple[str, dict[str, object] | None]], width: int
) -> None:
    encoded = encode(context, options, width=width)

    assert np.isfinite(encoded.values).all()
    assert encoded.indices.min() >= 0
    assert encoded.indices.max() <= width
    assert encoded.options == len(options)
    assert (np.diff(encoded.starts) >= 1).all()
    assert_same(unpack(pack(encoded)), encoded)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), 10**400, 1e300, object(), b"bytes", {"a": 1}, 1j],
)
def test_what_cannot_be_used_is_skipped_and_counted(value: object) -> None:
    encoded = encode({"good": 1.0, "bad": value}, [])

    assert encoded.skipped == 1
    assert len(encoded.indices) == 2  # the constant and the good one


def test_a_name_that_is_no_text_is_skipped_and_counted() -> None:
    garbage: dict[object, object] = {1: 2.0, None: "x"}

    encoded = encode(garbage, [])  # type: ignore[arg-type]  # what a host may really pass

    assert encoded.skipped == 2


def test_none_means_absent() -> None:
    assert_same(encode({"a": None}, []), encode({}, []))


@pytest.mark.parametrize("value", [2, 2.0, True, Fraction(5, 2), np.float32(1.5), np.int64(7)])
def test_numbers_go_as_they_are_and_are_marked(value: float) -> None:
    encoded = encode({"n": value}, [])

    assert encoded.values[1] == float(value)
    assert encoded.numeric.tolist() == [False, True]


def test_equal_numbers_share_a_slot_and_categories_do_not() -> None:
    slots = [encode({"n": value}, []).indices[1] for value in (1, 2, "de", "fr")]

    assert slots[0] == slots[1]
    assert len(set(slots)) == 3


def test_long_texts_are_bags_of_lower_case_words_of_unit_length() -> None:
    text = "The printer on the third floor is on fire again, please help"

    first, second = encode({"q": text}, []), encode({"q": text.upper()}, [])

    assert_same(first, second)
    assert not first.numeric.any()
    assert float((first.values[1:] ** 2).sum()) == pytest.approx(1.0, rel=1e-6)


def test_lists_of_texts_are_bags_in_any_order() -> None:
    first = encode({"tags": ["red", "green", "blue"]}, [])

    assert_same(first, encode({"tags": {"blue", "green", "red"}}, []))
    assert float((first.values[1:] ** 2).sum()) == pytest.approx(1.0, rel=1e-6)


def test_members_that_are_no_text_are_counted() -> None:
    assert encode({"tags": ["red", 3, None]}, []).skipped == 2


def test_options_without_features_have_a_one_of_their_own() -> None:
    encoded = encode({}, [("small", None), ("large", {}), ("small", None)])

    assert row(encoded, 1) == row(encoded, 3) != row(encoded, 2)
    assert encoded.values.tolist() == [1.0] * 4


def test_the_context_starts_with_a_constant() -> None:
    encoded = encode({"a": 5.0}, [], width=64)

    assert (encoded.indices[0], encoded.values[0], encoded.numeric[0]) == (64, 1.0, False)


def test_a_row_is_bounded_and_what_is_cut_is_counted() -> None:
    encoded = encode({f"n{i}": float(i) for i in range(1_000)}, [("a", {"text": "x " * 9_000})])

    assert np.diff(encoded.starts).max() <= MAX_ROW + 1
    assert encoded.skipped >= 1_000 - MAX_ROW


def test_slots_are_the_same_in_another_process() -> None:
    script = (
        "from tau_live.rl.features import encode\n"
        "print(encode({'a': 1, 'b': 'x'}, [('o', {'f': 'y'})]).indices.tolist())"
    )

    printed = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    ).stdout

    here = encode({"a": 1, "b": "x"}, [("o", {"f": "y"})]).indices.tolist()
    assert printed.strip() == str(here)
    assert here == [4096, 579, 2503, 1854, 3841]  # as in format 1: stored features depend on it


def test_decisions_that_look_alike_share_what_nobody_may_write_to() -> None:
    first, second = (
        unpack(pack(encode({"a": number, "b": "x"}, [("o", {"f": -number})])))
        for number in (1.0, 2.0)
    )

    assert first.values.tolist() == [1.0, 1.0, first.values[2], 1.0, -1.0]
    assert second.values.tolist() == [1.0, 2.0, first.values[2], 1.0, -2.0]
    assert second.indices is first.indices
    with pytest.raises(ValueError, match="read-only"):
        first.indices[0] = 7


@given(st.data())
@settings(deadline=None)
def test_damage_is_refused(data: st.DataObject) -> None:
    packed = pack(encode({"a": 1.0, "b": "x"}, [("o", {"f": 2.0}), ("p", None)]))
    at = data.draw(st.integers(0, len(packed) - 1))
    flipped = data.draw(st.integers(1, 255))
    damaged = bytearray(packed)
    damaged[at] ^= flipped

    with pytest.raises(ValueError, match="packed features"):
        unpack(bytes(damaged))
    with pytest.raises(ValueError, match="packed features"):
        unpack(packed[:at])


@given(st.binary(max_size=64))
def test_any_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="packed features"):
        unpack(packed)


def test_a_width_that_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ValueError, match="65535"):
        pack(encode({}, [], width=70_000))


NUMBERS = st.one_of(
    st.floats(), st.integers(), st.booleans(), st.sampled_from([-0.0, 2.9e38, 10**400])
)


@given(st.dictionaries(st.text(max_size=4), NUMBERS, max_size=8))
def test_numbers_alone_are_encoded_as_they_are_among_others(features: dict[str, object]) -> None:
    mixed = {**features, "\0absent": None}  # an absent value, so that entries go one by one

    assert_same(encode(features, [("a", features)]), encode(mixed, [("a", mixed)]))


@pytest.mark.slow
@given(st.lists(OPTIONS, max_size=5))
@settings(deadline=None)
def test_remembered_rows_change_nothing(
    decisions: list[list[tuple[str, dict[str, object] | None]]],
) -> None:
    memory = Memory()
    for options in [*decisions, *decisions]:
        found = encode({}, options, memory=memory)

        assert_same(found, encode({}, options))


def test_an_option_whose_features_change_in_place_is_encoded_anew() -> None:
    memory = Memory()
    features: dict[str, object] = {"cost": 1.5, "kind": "small"}
    encode({}, [("a", features)], memory=memory)

    features["cost"] = 2.5

    found = encode({}, [("a", features)], memory=memory)
    assert_same(found, encode({}, [("a", features)]))
    assert 2.5 in found.values.tolist()


@pytest.mark.parametrize("huge", [10**60, int(3.5e38), 3.5e38])
def test_a_number_beyond_single_precision_is_skipped_and_counted(huge: float) -> None:
    encoded = encode({"huge": huge, "fine": 1.0}, [("a", None)])

    assert encoded.skipped == 1
    assert 1.0 in encoded.values
