"""Scaling of numbers: moments are those of all numbers seen, and a version's scale is frozen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.crossing import FEWEST, LIMIT, Moments, Scale


def numbers(seed: int, count: int) -> tuple[FloatArray, IntArray]:
    rng = np.random.default_rng(seed)
    places: IntArray = rng.integers(0, 4, size=count)
    return rng.normal(size=count) * 10.0**places + places, places


@given(st.integers(0, 2**32), st.integers(1, 99))
def test_moments_in_two_parts_are_those_of_all(seed: int, cut: int) -> None:
    values, places = numbers(seed, 100)

    found = Moments.empty(2).including(values[:cut], places[:cut])
    found = found.including(values[cut:], places[cut:])

    for slot in range(4):
        at = values[places == slot]
        assert found.counts[slot] == len(at)
        if len(at):
            assert found.means[slot] == pytest.approx(at.mean(), rel=1e-9, abs=1e-9)
            assert found.squares[slot] == pytest.approx(at.var() * len(at), rel=1e-9, abs=1e-9)


def test_numbers_become_standard_and_are_cut_far_out() -> None:
    values, places = numbers(1, 4_000)
    scale = Moments.empty(2).including(values, places).scale(Scale.initial(2), whole=False)
    seen = np.append(values, [1e30, 7.0]).astype(np.float32)

    scaled = scale.apply(seen, np.append(np.ones(4_001, bool), False), np.append(places, [0, 1]))

    for slot in range(4):
        at = scaled[:4_000][places == slot]
        assert at.mean() == pytest.approx(0.0, abs=1e-2)
        assert at.std() == pytest.approx(1.0, abs=1e-2)
    assert scaled[4_000] == LIMIT
    assert scaled[4_001] == 7.0  # no number as it came, but a category


def test_what_was_seen_too_seldom_or_never_changed_counts_as_nothing() -> None:
    places: IntArray = np.array([0] * (FEWEST - 1) + [1] * 50)
    values = np.append(np.arange(FEWEST - 1.0), np.full(50, 3.0))

    scale = Moments.empty(2).including(values, places).scale(Scale.initial(2), whole=True)

    assert scale.inverse.tolist() == [0.0] * 4


def test_a_scale_in_use_is_kept_until_all_is_scaled_anew() -> None:
    values, places = numbers(2, 100)
    first = Moments.empty(2).including(values, places)
    scale = first.scale(Scale.initial(2), whole=False)
    later = first.including(values * 5.0 + 3.0, places)

    kept, renewed = (later.scale(scale, whole=whole) for whole in (False, True))

    np.testing.assert_array_equal(kept.mean, scale.mean)
    np.testing.assert_array_equal(renewed.mean, later.means)


def test_is_saved_and_loaded() -> None:
    moments = Moments.empty(2).including(*numbers(3, 50))

    loaded = Moments.from_arrays(moments.arrays(), width=2)

    for name, expected in moments._asdict().items():
        np.testing.assert_array_equal(getattr(loaded, name), expected)
