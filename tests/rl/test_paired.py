"""Paired tests: p-values and intervals against their definitions and the protocol's vectors."""

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl import paired
from tau_live.rl.paired import (
    SignFlip,
    bca_interval,
    bootstrap_means,
    case_differences,
    case_means,
    cohen_d,
    cohen_dz,
    holm,
    planned_pairs,
    sign_flip,
    sign_flip_p,
    t_interval,
    t_quantile,
    t_upper_bound,
)
from tests.rl import vectors

TENTHS = st.lists(st.integers(-9, 9), min_size=1, max_size=24)
BAD = [float("nan"), float("inf"), float("-inf")]


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


def test_a_pair_is_a_case_and_not_an_episode() -> None:
    baseline = {"c1": (0, 1, 0, 1), "c2": (1, 1, 1, 1), "c3": (0, 0, 1, 0)}
    trained = {"c1": (1, 1, 0, 1), "c2": (1, 1, 1, 1), "c3": (1, 1, 1, 0)}
    sides = [
        case_means((case, reward) for case, rewards in side.items() for reward in rewards)
        for side in (baseline, trained)
    ]

    differences = case_differences(*sides)

    assert differences == {"c1": 0.25, "c2": 0.0, "c3": 0.5}
    assert np.mean(list(differences.values())) == 0.25


def test_differences_have_no_error_of_floats_and_only_cases_of_both() -> None:
    baseline = {"a": 0.1 + 0.2, "b": 0.2, "c": 0.1, "d": 1.0}
    trained = {"c": 0.2, "b": 0.3, "a": 0.3, "e": 1.0}

    assert list(case_differences(baseline, trained).items()) == [("a", 0.0), ("b", 0.1), ("c", 0.1)]


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        pytest.param(
            vectors.DIFFERENCES,
            SignFlip(9.1552734375e-05, 4.57763671875e-05, True, None, 4),
            id="A",
        ),
        pytest.param(vectors.TEN, SignFlip(0.04296875, 0.021484375, True, None, 1), id="D"),
        pytest.param(
            [1.0] * 7 + [-1.0] + [0.0] * 12, SignFlip(0.0703125, 0.03515625, True, None, 12), id="E"
        ),
        pytest.param([1.0] * 5, SignFlip(0.0625, 0.03125, True, None, 0), id="E, 5 up"),
        pytest.param([0.1, 0.1], SignFlip(0.5, 0.25, True, None, 0), id="F"),
        pytest.param(
            [0.22, 0.2, 0.11, 0.18, 0.17], SignFlip(0.0625, 0.03125, True, None, 0), id="G"
        ),
        pytest.param([1.0] * 6, SignFlip(0.03125, 0.015625, True, None, 0), id="least p of 6"),
        pytest.param([1.0] * 10, SignFlip(2**-9, 2**-10, True, None, 0), id="least p of 10"),
        pytest.param([1.0, -1.0], SignFlip(1.0, 0.75, True, None, 0), id="as many up as down"),
        pytest.param([-0.5] * 3, SignFlip(0.25, 1.0, True, None, 0), id="all down"),
        pytest.param([0.0, 0.0], SignFlip(1.0, 1.0, True, None, 2), id="no difference"),
        pytest.param([], SignFlip(1.0, 1.0, True, None, 0), id="no pairs"),
    ],
)
def test_exact_sign_flip_tests_of_the_vectors(differences: list[float], expected: SignFlip) -> None:
    assert sign_flip(differences, seed=0) == expected


def test_the_vector_has_the_least_p_value_where_signs_are_drawn() -> None:
    values = np.array([d for d in vectors.DIFFERENCES if d])

    hits = paired._drawn_hits(values, tie=1e-12, seed=0)

    assert ((1 + hits) / (1 + paired.DRAWS)).tolist() == [0.0001, 0.0001]


@given(st.lists(st.integers(-9, 9), max_size=8))
def test_both_p_values_are_shares_of_all_signs(tenths: list[int]) -> None:
    flipped = [
        sum(sign * tenth for sign, tenth in zip(signs, tenths, strict=True))
        for signs in product((-1, 1), repeat=len(tenths))
    ]

    found = sign_flip([tenth / 10 for tenth in tenths], seed=0)

    far = np.mean([abs(total) >= abs(sum(tenths)) for total in flipped])
    assert found.p_value == pytest.approx(far, abs=1e-12)
    assert found.p_one_sided == sign_flip_p([tenth / 10 for tenth in tenths], seed=0)


@settings(max_examples=12)
@given(st.lists(st.integers(1, 9), min_size=17, max_size=40), st.integers(0, 3))
def test_drawn_p_values_are_those_of_the_protocols_signs(tenths: list[int], seed: int) -> None:
    differences = np.array([*tenths, 10.0]) / 10 * ([1, 1, -1] * 14)[: len(tenths) + 1]
    rng = np.random.Generator(np.random.PCG64(seed))
    signs = 2 * rng.integers(0, 2, size=(9_999, len(differences))) - 1
    sums, observed = np.rint(10 * signs @ differences), np.rint(10 * differences.sum())

    found = sign_flip(differences.tolist(), seed=seed)

    two_sided = (1 + int((abs(sums) >= abs(observed)).sum())) / 10_000
    one_sided = (1 + int((sums >= observed).sum())) / 10_000
    assert found == SignFlip(two_sided, one_sided, False, 9_999, 0)


@given(TENTHS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_pairs_without_a_difference_change_only_their_number(
    tenths: list[int], zeros: int, random: Random
) -> None:
    differences = [tenth / 10 for tenth in tenths]
    more = list(differences)
    for _ in range(zeros):
        more.insert(random.randint(0, len(more)), 0.0)

    before, after = sign_flip(differences, seed=3), sign_flip(more, seed=3)

    assert after == before._replace(zero_pairs=before.zero_pairs + zeros)


@pytest.mark.slow
@given(TENTHS)
def test_swapped_sides_mirror_p_values_and_interval(tenths: list[int]) -> None:
    differences, swapped = [t / 10 for t in tenths], [-t / 10 for t in tenths]

    ours, theirs = sign_flip(differences, seed=1), sign_flip(swapped, seed=1)
    interval, mirrored = bca_interval(differences, seed=1), bca_interval(swapped, seed=1)

    assert ours.p_value == pytest.approx(theirs.p_value, abs=1e-12)
    assert ours.p_one_sided + theirs.p_one_sided >= 1.0  # what is equal counts on both sides
    assert (interval.low, interval.high) == pytest.approx((-mirrored.high, -mirrored.low))
    assert (interval.bias, interval.acceleration) == pytest.approx(
        (-mirrored.bias, -mirrored.acceleration)
    )


@pytest.mark.parametrize("count", [2, 20, 57])
@pytest.mark.parametrize("at_once", [400, 1_001])
def test_blocks_draw_the_numbers_of_one_array(
    count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    differences = np.random.default_rng(count).normal(0.1, 1.0, count)
    picks = np.random.Generator(np.random.PCG64(5)).integers(0, count, size=(10_000, count))
    hits = paired._drawn_hits(differences, tie=1e-12, seed=5)
    monkeypatch.setattr(paired, "AT_ONCE", at_once)

    means = bootstrap_means(differences.tolist(), seed=5)

    np.testing.assert_array_equal(means, differences[picks].mean(axis=1))
    assert paired._drawn_hits(differences, tie=1e-12, seed=5).tolist() == hits.tolist()


@pytest.mark.parametrize("width", [1, 57, 3_000, 2**18])
def test_memory_is_bounded_however_many_pairs(width: int) -> None:
    rows = list(paired._blocks(9_999, width))

    assert sum(rows) == 9_999
    assert all(own == 1 or own * width <= paired.AT_ONCE for own in rows)


def test_thousands_of_pairs_of_one_size_have_a_p_value() -> None:
    found = sign_flip([1.0] * 1_600 + [-1.0] * 1_400, seed=0)

    z = (1_600 - 0.5 - 1_500) / 750**0.5  # with the correction for continuity
    assert found.exact
    assert found.p_one_sided == pytest.approx(1 - paired._NORMAL.cdf(z), rel=1e-2)


@pytest.mark.parametrize("bad", BAD)
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    for refuses in (
        lambda: sign_flip([0.1, bad], seed=0),
        lambda: sign_flip_p([0.1, bad], seed=0),
        lambda: bca_interval([0.1, bad], seed=0),
        lambda: bootstrap_means([0.1, bad], seed=0),
        lambda: cohen_dz([0.1, bad]),
        lambda: cohen_d([0.1, 0.2], [0.1, bad]),
    ):
        with pytest.raises(ValueError, match="finite"):
            refuses()


def test_bca_interval_of_the_vector() -> None:
    found = bca_interval(vectors.DIFFERENCES, seed=0)

    assert (found.low, found.high) == pytest.approx((0.060, 0.120), abs=1e-9)
    assert found.acceleration == pytest.approx(-0.02148492794, abs=5e-12)
    assert np.quantile(bootstrap_means(vectors.DIFFERENCES, seed=0), [0.025, 0.975]) == (
        pytest.approx([0.0625, 0.1225])
    )


def test_resampled_means_equal_to_the_mean_are_found_whatever_the_errors_of_floats() -> None:
    hundredths = np.rint(100 * np.array(vectors.DIFFERENCES)).astype(int)  # whole, so exact
    picks = np.random.Generator(np.random.PCG64(0)).integers(0, 20, size=(10_000, 20))
    sums = hundredths[picks].sum(axis=1)
    share = np.mean(sums < hundredths.sum()) + np.mean(sums == hundredths.sum()) / 2

    bias = bca_interval(vectors.DIFFERENCES, seed=0).bias

    assert bias == paired._NORMAL.inv_cdf(float(share))
    assert bias == pytest.approx(-0.0150403, abs=5e-8)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_a_skewed_interval_is_that_of_the_definition(level: float) -> None:
    differences = np.random.default_rng(2).exponential(1.0, 15) - 0.3
    cdf, probit = paired._NORMAL.cdf, paired._NORMAL.inv_cdf

    found = bca_interval(differences.tolist(), seed=3, level=level)

    means = bootstrap_means(differences.tolist(), seed=3)
    z0, u = probit(float(np.mean(means < differences.mean()))), differences - differences.mean()
    a = float(np.sum(u**3) / np.sum(u**2) ** 1.5 / 6)
    z = [z0 + probit(share) for share in ((1 - level) / 2, (1 + level) / 2)]
    shares = [cdf(z0 + end / (1 - a * end)) for end in z]
    assert z0 > 0.02
    assert found[:2] == pytest.approx(np.quantile(means, shares), abs=1e-12)


@given(st.lists(st.integers(-9, 9), min_size=3, max_size=12))
def test_acceleration_is_that_of_the_jackknife(tenths: list[int]) -> None:
    values = np.array(tenths) / 10
    left_out = np.array([np.delete(values, place).mean() for place in range(len(values))])
    off = left_out.mean() - left_out

    found = bca_interval(values.tolist(), seed=0).acceleration

    spread = (off**2).sum()
    expected = (off**3).sum() / (6 * spread**1.5) if np.ptp(values) else 0.0
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("differences", [[0.1], [0.1] * 3, [0.3 - 0.2, 0.2 - 0.1], [0.0] * 4])
def test_differences_that_are_all_equal_are_a_point_without_an_effect(
    differences: list[float],
) -> None:
    found = bca_interval(differences, seed=0)

    assert found.low == found.high == differences[0]
    assert cohen_dz(differences) is None


@pytest.mark.parametrize("outliers", [1, 2, 5])
def test_an_interval_of_one_outlier_has_its_mean_inside(outliers: int) -> None:
    differences = [0.0] * 60 + [1_000.0] * outliers

    found = bca_interval(differences, seed=0)

    assert 0.0 <= found.low < np.mean(differences) < found.high


def test_the_end_of_an_interval_of_any_confidence_is_a_resampled_mean() -> None:
    differences = [0.0] * 60 + [1_000.0]  # 1 - a * z is below 0 at so high a confidence

    found = bca_interval(differences, seed=0, level=1 - 1e-12)

    assert found.high == bootstrap_means(differences, seed=0).max()


def test_higher_confidence_gives_a_wider_interval() -> None:
    narrow, wide = (
        bca_interval(vectors.TEN, seed=0, level=level) for level in (0.5, 0.999_999_999)
    )

    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("differences", "level"), [([], 0.95), ([0.1, 0.2], 0.0), ([0.1, 0.2], 1.0), ([0.1], np.nan)]
)
def test_no_interval_without_pairs_or_confidence(differences: list[float], level: float) -> None:
    with pytest.raises(ValueError, match="level in"):
        bca_interval(differences, seed=0, level=level)


def test_effects_of_the_vectors() -> None:
    assert cohen_dz(vectors.DIFFERENCES) == pytest.approx(1.3338433816961663, abs=1e-14)
    assert cohen_d(vectors.FIVE_BASELINE, vectors.FIVE_TRAINED) == pytest.approx(
        5.786844353148576, abs=1e-13
    )
    # Four values of variance 1/3 and two of variance 2: (3 * 1/3 + 1 * 2) / 4
    assert cohen_d([0.0, 1.0, 0.0, 1.0], [1.0, 3.0]) == pytest.approx(1.5 / 0.75**0.5)


@pytest.mark.parametrize(
    ("baseline", "trained"), [([0.1] * 3, [0.2] * 3), ([0.1], [0.2, 0.3]), ([], [])]
)
def test_no_effect_without_spread(baseline: list[float], trained: list[float]) -> None:
    assert cohen_d(baseline, trained) is None


def test_student_t_of_the_vectors() -> None:
    t = 0.0925 / 0.015506789684386303  # mean and standard error of vector A
    five = [a - b for b, a in zip(vectors.FIVE_BASELINE, vectors.FIVE_TRAINED, strict=True)]

    assert 2 * (1 - paired._t_cdf(t, 19)) == pytest.approx(9.66985418963789e-06, abs=1e-15)
    assert t_interval(vectors.DIFFERENCES) == pytest.approx(
        (0.06004391618392884, 0.12495608381607115), abs=1e-14
    )
    assert -t_upper_bound([-d for d in vectors.DIFFERENCES]) == pytest.approx(
        0.06568670115536657, abs=1e-14
    )
    assert t_interval(vectors.TEN) == pytest.approx(
        (0.014917611769658987, 0.20508238823034103), abs=1e-14
    )
    assert t_interval(five) == pytest.approx((0.12435513570476567, 0.2276448642952343), abs=1e-14)


@pytest.mark.parametrize(
    ("difference", "share", "pairs"),
    [
        (0.10, 0.25, 194),
        (0.05, 0.20, 626),
        (0.03, 0.20, 1742),
        (0.10, 0.30, 234),  # (1.95996 * 0.54772 + 0.84162 * 0.53852)**2 / 0.01 = 233.1
    ],
)
def test_planned_pairs_of_the_protocol(difference: float, share: float, pairs: int) -> None:
    assert planned_pairs(difference, share) == pairs


@pytest.mark.parametrize(
    ("difference", "share"), [(0.0, 0.2), (-0.1, 0.2), (0.3, 0.2), (0.1, 1.1), (np.nan, 0.2)]
)
def test_no_plan_for_what_cannot_be(difference: float, share: float) -> None:
    with pytest.raises(ValueError, match="discordant_share"):
        planned_pairs(difference, share)


def test_the_planned_pairs_find_the_difference_they_were_planned_for() -> None:
    rng = np.random.default_rng(20)
    outcomes = rng.choice([1.0, -1.0, 0.0], p=[0.175, 0.075, 0.75], size=(1_000, 194))

    found = [
        sign_flip(own.tolist(), seed=0).p_value <= 0.05 and own.mean() > 0.0 for own in outcomes
    ]

    assert 730 <= sum(found) <= 810  # 77 % of 20,000; 99.7 % of 1,000 are in this range
