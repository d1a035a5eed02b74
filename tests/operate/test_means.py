import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.operate.report.choices import FEWEST_FOR_DEVIATION, mean_of, share_of, spread_of
from tau_live.operate.report.facts import Mean, Spread

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(NUMBERS)
def test_the_mean_lies_within_its_interval(values: list[float]) -> None:
    found = mean_of(values)

    assert found.count == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    if found.mean is not None and found.lower is not None and found.upper is not None:
        assert found.lower <= found.mean <= found.upper


@pytest.mark.parametrize(
    ("count", "quantile"),
    [(5, 2.776445), (8, 2.364624), (31, 2.042272), (1001, 1.962339)],
)
def test_the_interval_is_students(count: int, quantile: float) -> None:
    values = np.arange(count, dtype=np.float64)

    found = mean_of(values)

    reach = quantile * values.std(ddof=1) / math.sqrt(count)  # quantiles: any table of Student's t
    assert found.upper is not None
    assert found.mean is not None
    assert found.upper - found.mean == pytest.approx(reach, rel=5e-4)


def test_numbers_beyond_those_learned_from_are_left_out() -> None:
    assert mean_of([1.0, 1.0, 1e300, -1e300, math.inf]) == Mean(count=2, mean=1.0)


def test_the_interval_holds_the_truth_19_times_out_of_20() -> None:
    rng = np.random.default_rng(0)

    found = [mean_of(rng.normal(size=FEWEST_FOR_DEVIATION)) for _ in range(4000)]

    held = [one.lower < 0.0 < one.upper for one in found if one.lower is not None and one.upper]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def test_of_few_or_of_the_same_there_is_no_interval() -> None:
    assert mean_of([]) == Mean()
    assert mean_of([1.0, 3.0]) == Mean(count=2, mean=2.0)
    assert mean_of([1.0] * 50) == Mean(count=50, mean=1.0)


def test_what_is_no_number_is_left_out() -> None:
    assert mean_of([math.nan, 1.0, math.inf, 3.0]) == Mean(count=2, mean=2.0)
    assert spread_of([math.nan, 1.0]) == Spread(count=1, median=1.0, high=1.0)


def test_an_interval_does_not_leave_the_range() -> None:
    found = mean_of([0.0, 1.0, 1.0, 1.0, 1.0], within=(0.0, 1.0))

    assert found.upper == 1.0
    assert found.lower is not None
    assert 0.0 < found.lower < 0.8


def test_a_range_that_does_not_fit_is_not_believed() -> None:
    values = [-5.0, 0.0, 1.0, 1.0, 1.0]

    assert mean_of(values, within=(0.0, 1.0)) == mean_of(values)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_share_and_its_interval_are_shares(some: int, others: int) -> None:
    found = share_of(some, some + others)

    if some + others:
        assert found.lower is not None
        assert found.mean is not None
        assert found.upper is not None
        assert 0.0 <= found.lower <= found.mean <= found.upper <= 1.0
        assert found.lower < found.upper
    else:
        assert found == Mean()


def test_wilsons_interval_is_that_of_the_textbooks() -> None:
    found = share_of(1, 10)  # Newcombe 1998, table I, method 3: 0.0179 to 0.4042

    assert found.lower == pytest.approx(0.0179, rel=1e-2)
    assert found.upper == pytest.approx(0.4042, rel=1e-3)
