"""Clopper-Pearson bounds: the protocol's figures, closed forms, and the definition."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.binomial import binomial_upper_bound


@pytest.mark.parametrize(
    ("count", "bound", "digits"),
    [(20, 0.1391, 4), (60, 0.0487, 4), (100, 0.0295, 4), (300, 0.00994, 5)],
)
def test_upper_bounds_of_what_never_happened(count: int, bound: float, digits: int) -> None:
    found = binomial_upper_bound(0, count)

    assert round(found, digits) == bound
    assert found == pytest.approx(1 - 0.05 ** (1 / count), abs=1e-14)


def test_two_of_a_hundred() -> None:
    high = binomial_upper_bound(2, 100, level=0.975)
    low = 1 - binomial_upper_bound(98, 100, level=0.975)

    assert (low, high) == pytest.approx((0.00243, 0.07038), abs=5e-6)


@given(st.data(), st.integers(1, 40), st.floats(0.5, 0.999))
def test_the_bound_is_where_so_few_events_are_that_unlikely(
    data: st.DataObject, count: int, level: float
) -> None:
    events = data.draw(st.integers(0, count - 1))

    p = binomial_upper_bound(events, count, level=level)

    tail = sum(comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(events + 1))
    assert tail == pytest.approx(1 - level, abs=1e-11)


def test_what_always_happened_may_be_certain() -> None:
    assert binomial_upper_bound(20, 20) == 1.0


def test_a_million_is_no_trouble() -> None:
    bound = binomial_upper_bound(500_000, 1_000_000)

    assert bound == pytest.approx(0.5 + 1.644854 * (0.25 / 1_000_000) ** 0.5, abs=1e-6)
    assert binomial_upper_bound(0, 1_000_000) == pytest.approx(2.995728e-6, rel=1e-5)


@pytest.mark.parametrize(
    ("events", "count", "level"),
    [(-1, 5, 0.95), (6, 5, 0.95), (0, 0, 0.95), (0, 5, 0.4), (0, 5, 1.0), (0, 5, float("nan"))],
)
def test_what_cannot_be_is_refused(events: int, count: int, level: float) -> None:
    with pytest.raises(ValueError, match="events <= count"):
        binomial_upper_bound(events, count, level=level)
