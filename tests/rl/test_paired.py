"""Paired tests: p-values against their definitions, Holm, and Student's t against its table."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.paired import holm, sign_flip_p, t_interval, t_quantile, t_upper_bound


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        pytest.param([1.0] * 7 + [-1.0] + [0.0] * 12, 9 / 256, id="7 better, 1 worse"),
        pytest.param([1.0] * 5 + [0.0] * 15, 1 / 32, id="5 better"),
        pytest.param([1.0] * 4 + [0.0] * 16, 1 / 16, id="4 better"),
        pytest.param(
            [0.2, 0.1, -0.05, 0.3, 0.0, 0.15, 0.25, -0.1, 0.05, 0.2], 0.021484375, id="mixed"
        ),
        pytest.param([0.0] * 20, 1.0, id="no difference"),
        pytest.param([], 1.0, id="no pairs"),
        pytest.param([-1.0] * 8, 1.0, id="all worse"),
    ],
)
def test_p_values_of_a_few_differences_are_exact(differences: list[float], p: float) -> None:
    assert sign_flip_p(differences, seed=0) == p


@given(st.lists(st.integers(-9, 9), max_size=8))
def test_a_p_value_is_the_share_of_signs_with_at_least_the_sum(tenths: list[int]) -> None:
    flipped = [
        sum(sign * abs(tenth) for sign, tenth in zip(signs, tenths, strict=True))
        for signs in product((-1, 1), repeat=len(tenths))
    ]

    p = sign_flip_p([tenth / 10 for tenth in tenths], seed=0)

    assert p == pytest.approx(np.mean([total >= sum(tenths) for total in flipped]), abs=1e-12)


@pytest.mark.parametrize("seed", [0, 7])
def test_of_many_differences_9999_signs_are_drawn(seed: int) -> None:
    differences = np.random.default_rng(1).normal(0.2, 1.0, 40)
    rng = np.random.Generator(np.random.PCG64(seed))
    signs = 2 * rng.integers(0, 2, size=(9_999, 40)) - 1
    hits = int((signs @ differences >= differences.sum()).sum())

    assert sign_flip_p(differences.tolist(), seed=seed) == (1 + hits) / 10_000


@pytest.mark.parametrize("count", [17, 40, 400])
def test_many_differences_of_one_size_have_the_binomial_tail(count: int) -> None:
    assert sign_flip_p([0.5] * count, seed=0) == 0.5**count


def test_holm_of_the_vector() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5]) == [0.5]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("level", "df", "quantile"),
    [
        (0.95, 1, 6.31375),
        (0.95, 2, 2.91999),
        (0.95, 3, 2.35336),
        (0.95, 9, 1.83311),
        (0.95, 10, 1.81246),
        (0.95, 19, 1.72913),
        (0.95, 30, 1.69726),
        (0.95, 120, 1.65765),
        (0.975, 1, 12.70620),
        (0.975, 2, 4.30265),
        (0.975, 9, 2.26216),
        (0.975, 19, 2.09302),
        (0.975, 59, 2.00100),
        (0.995, 5, 4.03214),
        (0.975, 1_000, 1.96234),
    ],
)
def test_quantiles_of_student_t_are_those_of_the_table(
    level: float, df: int, quantile: float
) -> None:
    assert t_quantile(level, df) == pytest.approx(quantile, abs=5.1e-6)


def test_bounds_of_a_mean_by_student_t() -> None:
    differences = [0.1, 0.3, 0.2, 0.4]  # mean 0.25, standard error 0.0645497
    low, high = t_interval(differences)

    assert t_upper_bound(differences) == pytest.approx(0.25 + 2.35336 * 0.0645497, abs=1e-6)
    assert (low, high) == pytest.approx((0.0445740, 0.4554260), abs=1e-6)
    assert t_upper_bound([0.2, 0.2]) == 0.2
    assert t_upper_bound([0.2]) == float("inf")
