"""Paired statistics: SciPy's as a second opinion, where it is installed."""

from typing import Any

import numpy as np
import pytest

from tau_live.rl.binomial import binomial_upper_bound
from tau_live.rl.paired import bca_interval, sign_flip, t_interval, t_upper_bound
from tests.rl import vectors

stats: Any = pytest.importorskip("scipy.stats")

SKEWED = np.random.default_rng(8).exponential(0.3, 40).round(3) - 0.2


@pytest.mark.parametrize("differences", [vectors.DIFFERENCES, vectors.TEN])
@pytest.mark.parametrize(("alternative", "place"), [("two-sided", 0), ("greater", 1)])
def test_exact_p_values_are_those_of_a_permutation_test(
    differences: list[float], alternative: str, place: int
) -> None:
    values = np.array(differences)

    theirs = stats.permutation_test(
        (values[values != 0],),
        np.sum,
        permutation_type="samples",
        alternative=alternative,
        n_resamples=np.inf,
    )

    assert sign_flip(differences, seed=0)[place] == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.slow
def test_drawn_p_values_are_near_those_of_a_permutation_test() -> None:
    theirs = stats.permutation_test(
        (SKEWED,), np.sum, permutation_type="samples", n_resamples=99_999, rng=1
    )

    assert sign_flip(SKEWED.tolist(), seed=0).p_value == pytest.approx(theirs.pvalue, abs=0.01)


@pytest.mark.parametrize(("better", "count"), [(7, 8), (5, 5), (3, 9), (40, 60), (900, 1_700)])
def test_p_values_of_one_size_are_those_of_a_binomial_test(better: int, count: int) -> None:
    found = sign_flip([1.0] * better + [-1.0] * (count - better), seed=0)

    assert found.p_value == pytest.approx(stats.binomtest(better, count).pvalue)
    one_sided = stats.binomtest(better, count, alternative="greater").pvalue
    assert found.p_one_sided == pytest.approx(one_sided)


@pytest.mark.parametrize("differences", [vectors.DIFFERENCES, vectors.TEN, SKEWED.tolist()])
def test_intervals_by_student_t(differences: list[float]) -> None:
    both = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    upper = stats.ttest_1samp(differences, 0.0, alternative="less").confidence_interval(0.95)

    assert t_interval(differences) == pytest.approx((both.low, both.high), abs=1e-12)
    assert t_upper_bound(differences) == pytest.approx(upper.high, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("differences", [vectors.DIFFERENCES, vectors.TEN, SKEWED.tolist()])
def test_bootstrap_intervals(differences: list[float]) -> None:
    theirs = stats.bootstrap(
        (differences,), np.mean, method="BCa", n_resamples=10_000, rng=5
    ).confidence_interval

    found = bca_interval(differences, seed=0)

    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


@pytest.mark.parametrize(
    ("events", "count"),
    [(0, 20), (2, 100), (50, 100), (99, 100), (7, 1_000_000), (300_000, 1_000_000)],
)
def test_clopper_pearson(events: int, count: int) -> None:
    upper = stats.binomtest(events, count, alternative="less").proportion_ci(0.95)

    assert binomial_upper_bound(events, count) == pytest.approx(upper.high, abs=1e-10)
