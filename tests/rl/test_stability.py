"""Stability: the protocol's vectors, and what lies outside the bands."""

import msgspec
import numpy as np
import pytest

from tau_live.rl.paired import sign_flip
from tau_live.rl.stability import (
    CaseRange,
    Observation,
    observe,
    repeatability,
    sample_size_drift,
    sample_size_sensitivity,
    seed_reproducibility,
)
from tests.rl import vectors


def observations(size: int, *results: tuple[float, float]) -> list[Observation]:
    """Return observations of one size, each of a p-value and a difference, by seeds from 1 on."""
    return [
        Observation(seed=seed, sample_size=size, p_value=p, reward_delta=delta)
        for seed, (p, delta) in enumerate(results, 1)
    ]


def as_json(record: object) -> object:
    """Return what is read of a record as it is written."""
    return msgspec.json.decode(msgspec.json.encode(record))


SEEDS = observations(80, (0.012, 0.11), (0.021, 0.14), (0.034, 0.12))


def test_an_observation_is_computed_from_its_pairs() -> None:
    found = observe(vectors.DIFFERENCES, seed=7, draws_seed=0)

    assert as_json(found) == {
        "seed": 7,
        "sample_size": 20,
        "p_value": 9.1552734375e-05,
        "reward_delta": pytest.approx(0.0925),
    }
    with pytest.raises(ValueError, match="got none"):
        observe([], seed=7, draws_seed=0)


def test_seeds_of_the_vector_agree() -> None:
    found = seed_reproducibility(SEEDS, seed_kind="training")

    assert as_json(found) == {
        "seed_kind": "training",
        "sample_size": 80,
        "run_count": 3,
        "p_value_range": pytest.approx(0.022),
        "reward_delta_range": pytest.approx(0.03),
        "within_band": True,
    }


@pytest.mark.parametrize(
    ("p", "delta", "is_within"),
    [
        pytest.param(0.062, 0.16, True, id="both on the band"),
        pytest.param(0.063, 0.12, False, id="one p-value outside"),
        pytest.param(0.012, 0.30, False, id="one lucky training seed"),
    ],
)
def test_a_seed_outside_the_bands_is_found(p: float, delta: float, is_within: bool) -> None:
    found = seed_reproducibility(
        observations(80, (0.012, 0.11), (0.021, 0.14), (p, delta)), seed_kind="training"
    )

    assert found is not None
    assert found.within_band is is_within


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param([], id="none"),
        pytest.param(SEEDS[:2], id="two"),
        pytest.param([*SEEDS[:2], *observations(40, (0.5, 0.5))], id="the third has fewer pairs"),
    ],
)
def test_fewer_than_three_seeds_of_the_full_size_say_nothing(runs: list[Observation]) -> None:
    assert seed_reproducibility(runs, seed_kind="evaluation") is None


def test_one_seed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="one observation per seed"):
        seed_reproducibility([*SEEDS, SEEDS[0]], seed_kind="training")


def test_sizes_of_the_vector_agree() -> None:
    found = sample_size_drift(
        [
            *observations(80, (0.004, 0.13), (0.006, 0.13)),
            *observations(20, (0.060, 0.10), (0.050, 0.14)),
            *observations(40, (0.020, 0.12), (0.030, 0.12)),
        ],
        seed=5,
    )

    assert [point.sample_size for point in found.points] == [20, 40, 80]
    assert as_json(found) == {
        "seed": 5,
        "points": [
            {
                "sample_size": size,
                "mean_p_value": pytest.approx(p),
                "mean_reward_delta": pytest.approx(delta),
            }
            for size, p, delta in [(20, 0.055, 0.12), (40, 0.025, 0.12), (80, 0.005, 0.13)]
        ],
        "max_p_value_drift": pytest.approx(0.03),
        "max_reward_delta_drift": pytest.approx(0.01),
        "within_band": True,
    }


@pytest.mark.parametrize(
    ("p", "delta", "is_within"),
    [(0.045, 0.20, True), (0.046, 0.12, False), (0.005, 0.201, False), (0.005, 0.039, False)],
)
def test_a_drift_outside_the_bands_is_found(p: float, delta: float, is_within: bool) -> None:
    found = sample_size_drift(
        [*observations(20, (p, delta)), *observations(40, (0.005, 0.12))], seed=0
    )

    assert found.within_band is is_within


def test_only_adjacent_sizes_are_compared() -> None:
    found = sample_size_drift(
        [
            *observations(20, (0.07, 0.0)),
            *observations(30, (0.04, 0.0)),
            *observations(40, (0.01, 0.0)),
        ],
        seed=0,
    )

    assert found.max_p_value_drift == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(40, [20, 30, 40]), (41, [20, 31, 41]), (42, [21, 32, 42]), (60, [30, 45, 60])],
)
def test_sizes_are_half_three_quarters_and_all(count: int, sizes: list[int]) -> None:
    found = sample_size_sensitivity([0.1] * count, seed=0)

    assert found is not None
    assert [point.sample_size for point in found.points] == sizes


def test_sensitivity_has_twenty_subsets_of_each_order() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.3, 40).round(2)
    rng = np.random.Generator(np.random.PCG64(9))
    orders = [rng.permutation(40) for _ in range(20)]
    halves = [values[np.sort(order[:20])] for order in orders]

    found = sample_size_sensitivity(values.tolist(), seed=9)

    assert found is not None
    p_values = [sign_flip(half.tolist(), seed=9).p_value for half in halves]
    assert found.points[0].sample_size == 20
    assert (found.points[0].mean_p_value, found.points[0].mean_reward_delta) == pytest.approx(
        (np.mean(p_values), np.mean(halves))
    )
    whole = sign_flip(values.tolist(), seed=9).p_value
    assert (found.points[2].mean_p_value, found.points[2].mean_reward_delta) == pytest.approx(
        (whole, values.mean())
    )


@pytest.mark.parametrize(("count", "min_pairs"), [(39, 20), (0, 20), (23, 12)])
def test_too_few_pairs_have_no_sensitivity(count: int, min_pairs: int) -> None:
    assert sample_size_sensitivity([0.1] * count, seed=0, min_pairs=min_pairs) is None


def test_fewer_pairs_are_enough_where_fewer_are_required() -> None:
    assert sample_size_sensitivity([0.1] * 24, seed=0, min_pairs=12) is not None


def test_the_same_seed_gives_the_same_sensitivity_and_another_one_others() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.3, 48).tolist()

    found = sample_size_sensitivity(values, seed=1)

    assert found == sample_size_sensitivity(values, seed=1)
    assert found != sample_size_sensitivity(values, seed=2)


def test_an_effect_that_a_quarter_of_the_cases_shows_is_reported() -> None:
    differences = [0.4] * 7 + [0.0] * 33

    found = sample_size_sensitivity(differences, seed=0)

    assert found is not None
    assert found.max_p_value_drift > 0.04
    assert not found.within_band


def test_reports_of_a_deterministic_subject_repeat() -> None:
    # 0.8 - 0.7 is a little more than 0.1
    reports = [{"c1": 0.7, "c2": 1.0}, {"c2": 1.0, "c1": 0.8}, {"c1": 0.75, "c2": 1.0}]

    loose, strict = (repeatability(reports, tolerance=tolerance) for tolerance in (0.1, 0.05))

    assert as_json(loose) == {
        "case_reports": {
            "c1": {"min": 0.7, "max": 0.8, "range": pytest.approx(0.1), "within_tolerance": True},
            "c2": {"min": 1.0, "max": 1.0, "range": 0.0, "within_tolerance": True},
        },
        "max_observed_range": pytest.approx(0.1),
        "tolerance": 0.1,
        "within_tolerance": True,
    }
    assert not strict.within_tolerance
    assert strict.case_reports["c2"] == CaseRange(
        min=1.0, max=1.0, range=0.0, within_tolerance=True
    )


@pytest.mark.parametrize(
    ("reports", "tolerance"),
    [
        pytest.param([{"c1": 0.5}], 0.0, id="one report"),
        pytest.param([{"c1": 0.5}, {"c2": 0.5}], 0.0, id="other cases"),
        pytest.param([{}, {}], 0.0, id="no cases"),
        pytest.param([{"c1": 0.5}, {"c1": float("nan")}], 0.0, id="not finite"),
        pytest.param([{"c1": 0.5}, {"c1": 0.5}], -0.1, id="negative tolerance"),
        pytest.param([{"c1": 0.5}, {"c1": 0.5}], float("inf"), id="any tolerance"),
    ],
)
def test_reports_that_cannot_be_compared_are_refused(
    reports: list[dict[str, float]], tolerance: float
) -> None:
    with pytest.raises(ValueError, match=r"reports|finite"):
        repeatability(reports, tolerance=tolerance)
