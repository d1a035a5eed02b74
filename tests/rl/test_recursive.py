"""Ridge sums: the closed form, merging, storage; and the base that follows from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tau_live.rl.ridge import Base, RidgeSums, base

from tau_live.rl.arrays import FloatArray, offsets
from tau_live.rl.crossing import Crossed

WIDTH = 12


def sparse(dense: FloatArray) -> Crossed:
    """Return rows as sparse features, every row with at least one entry."""
    rows, slots = np.nonzero(dense)
    return Crossed(slots, dense[rows, slots], offsets(np.bincount(rows, minlength=len(dense))))


def samples(seed: int, count: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(count, WIDTH)) * (rng.random((count, WIDTH)) < 0.5)
    dense[:, 3] = 0.0  # never seen
    dense[:, -1] = 1.0
    return dense, dense @ rng.normal(size=WIDTH) + rng.normal(size=count) + 5.0


@given(st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 30.0]))
@settings(max_examples=30, deadline=None)
def test_the_fit_is_the_solution_of_the_penalised_least_squares(seed: int, penalty: float) -> None:
    dense, targets = samples(seed, 40)

    found = RidgeSums.empty(WIDTH).including(sparse(dense), targets).fit(penalty)

    stacked = np.vstack([dense, np.sqrt(penalty) * np.eye(WIDTH)])
    centred = np.concatenate([targets - targets.mean(), np.zeros(WIDTH)])
    expected = np.linalg.lstsq(stacked, centred, rcond=None)[0]
    np.testing.assert_allclose(found.weights, expected, rtol=1e-7, atol=1e-9)
    residual = targets - targets.mean() - dense @ expected
    assert found.noise == pytest.approx(np.sqrt((residual**2).mean()), rel=1e-6)
    np.testing.assert_allclose(found.spread, 1.0 / (penalty + (dense**2).sum(axis=0)), rtol=1e-9)


@given(st.integers(0, 2**32), st.integers(1, 39))
@settings(max_examples=30, deadline=None)
def test_sums_in_two_parts_are_the_sums_of_all(seed: int, cut: int) -> None:
    dense, targets = samples(seed, 40)

    parts = RidgeSums.empty(WIDTH)
    for part in (slice(0, cut), slice(cut, 40), slice(0, 0)):
        parts = parts.including(sparse(dense[part]), targets[part])

    whole = RidgeSums.empty(WIDTH).including(sparse(dense), targets)
    for name, expected in whole._asdict().items():
        np.testing.assert_allclose(getattr(parts, name), expected, rtol=1e-9, atol=1e-9)


def test_the_expectation_gives_the_target_itself() -> None:
    dense, _ = samples(1, 400)

    weights = RidgeSums.empty(WIDTH).including(sparse(dense), dense[:, 0] + 70.0).expectation(1e-6)

    np.testing.assert_allclose(dense @ weights, dense[:, 0] + 70.0, atol=1e-3)


def test_is_saved_and_loaded_exactly_without_what_was_never_seen() -> None:
    dense, targets = samples(2, 40)
    sums = RidgeSums.empty(WIDTH).including(sparse(dense), targets)

    arrays = sums.arrays("action")

    assert 3 not in arrays["action_slots"].tolist()
    loaded = RidgeSums.from_arrays(arrays, "action", width=WIDTH)
    for name, expected in sums._asdict().items():
        np.testing.assert_allclose(getattr(loaded, name), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("action_slots", np.array([4, 2])),
        ("action_slots", np.array([[1.0]])),
        ("action_slots", np.array([0, 99])),
        ("action_gram", np.zeros(2)),
        ("action_products", np.array([np.nan])),
        ("action_targets", np.array([-1.0, 0.0, 0.0])),
    ],
)
def test_damaged_arrays_are_refused_by_name(name: str, damaged: FloatArray) -> None:
    arrays = RidgeSums.empty(WIDTH).including(*_one()).arrays("action")

    with pytest.raises(ValueError, match=name):
        RidgeSums.from_arrays(arrays | {name: damaged}, "action", width=WIDTH)
    with pytest.raises(ValueError, match=name):
        RidgeSums.from_arrays(
            {key: arrays[key] for key in arrays if key != name}, "action", width=WIDTH
        )


def _one() -> tuple[Crossed, FloatArray]:
    return sparse(np.eye(WIDTH)[:1]), np.ones(1)


def test_a_base_counts_in_standard_errors() -> None:
    dense, targets = samples(3, 40)
    sums = RidgeSums.empty(WIDTH).including(sparse(dense), targets)
    offered = sparse(dense[:6])

    found = base(sums, offered, penalty=2.0, sharpness=0.1, exploration=3.0)

    fit = sums.fit(2.0)
    errors = fit.noise * np.sqrt((dense[:6] ** 2) @ fit.spread)
    beta = 0.1 / errors.mean()
    expected = beta * (dense[:6] @ fit.weights + 3.0 * errors)
    np.testing.assert_allclose(found.of(offered), expected, rtol=1e-9)


def test_an_option_never_tried_gets_more_than_an_equal_one_that_was() -> None:
    rng = np.random.default_rng(4)
    tried = np.zeros((50, WIDTH))
    tried[np.arange(50), rng.integers(0, 3, size=50)] = 1.0
    sums = RidgeSums.empty(WIDTH).including(sparse(tried), rng.normal(size=50))
    offered = sparse(np.eye(WIDTH)[:4])

    bold, plain = (
        base(sums, offered, penalty=1.0, sharpness=1.0, exploration=much) for much in (5.0, 0.0)
    )

    assert np.argmax(bold.of(offered)) == 3
    assert plain.of(offered)[3] == 0.0


def test_without_sharpness_or_differences_there_is_no_base() -> None:
    dense, targets = samples(5, 40)
    offered = sparse(dense)

    off = base(
        RidgeSums.empty(WIDTH).including(offered, targets),
        offered,
        penalty=1.0,
        sharpness=0.0,
        exploration=1.0,
    )
    equal = base(
        RidgeSums.empty(WIDTH).including(offered, np.ones(40)),
        offered,
        penalty=1.0,
        sharpness=1.0,
        exploration=1.0,
    )

    assert not off.of(offered).any()
    assert not equal.of(offered).any()


def test_part_of_the_way_is_between_the_two_ends() -> None:
    here = Base(np.zeros(2), np.ones(2), 1.0)
    there = Base(np.array([4.0, -4.0]), np.full(2, 0.5), 3.0)

    halfway = here.toward(there, 0.25)

    assert halfway.weights.tolist() == [1.0, -1.0]
    assert halfway.bonus == 1.5
    assert halfway.spread.tolist() == [0.5, 0.5]
