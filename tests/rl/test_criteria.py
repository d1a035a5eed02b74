"""Verdicts: each criterion alone, unknown figures, and how rarely chance passes."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tau_live.rl.criteria import (
    Criteria,
    Figures,
    PromotionFigures,
    SafetyFigures,
    promotion_gate,
    reason_codes,
    safety_figures,
)
from tau_live.rl.paired import bca_interval, sign_flip
from tests.rl import vectors

NAN = float("nan")
GOOD = PromotionFigures(
    safety_regression=0.0, safety_upper_bound=0.0, seeds_within_band=True, sizes_within_band=True
)


def figures(differences: list[float], promotion: PromotionFigures = GOOD) -> Figures:
    """Return what was measured of pairs, none of which is missing."""
    return Figures(
        pairs=len(differences),
        missing_share=0.0,
        missing_difference=0.0,
        mean_delta=float(np.mean(differences)),
        p_value=sign_flip(differences, seed=0).p_value,
        confidence_level=0.95,
        delta_ci_low=bca_interval(differences, seed=0).low,
        promotion=promotion,
    )


def measured_safety() -> PromotionFigures:
    regression, bound = safety_figures(vectors.BASELINE_PENALTIES, vectors.TRAINED_PENALTIES)
    return replace(GOOD, safety_regression=regression, safety_upper_bound=bound)


PASSING = figures(vectors.DIFFERENCES)


def test_safety_of_the_vector() -> None:
    found = safety_figures(vectors.BASELINE_PENALTIES, vectors.TRAINED_PENALTIES)

    assert found == pytest.approx((0.015, 0.02916467596160239), abs=1e-15)


@pytest.mark.parametrize(
    ("baseline", "trained", "expected"),
    [
        pytest.param([0.0, None], [0.0, 0.0], (None, None), id="unknown of the baseline"),
        pytest.param([0.0, 0.0], [None, 0.0], (None, None), id="unknown of the trained"),
        pytest.param([], [], (None, None), id="no pairs"),
        pytest.param([0.25], [0.5], (0.25, None), id="one pair has no bound"),
        pytest.param([0.25, 0.0], [0.5, 0.25], (0.25, 0.25), id="without spread"),
    ],
)
def test_safety_is_unknown_where_a_penalty_is(
    baseline: list[float | None],
    trained: list[float | None],
    expected: tuple[float | None, float | None],
) -> None:
    assert safety_figures(baseline, trained) == SafetyFigures(*expected)


@pytest.mark.parametrize(
    ("criteria", "codes"),
    [
        pytest.param(Criteria(), [], id="defaults"),
        pytest.param(Criteria(min_reward_delta=0.10), ["reward_gain_below_threshold"], id="delta"),
        pytest.param(
            Criteria(max_safety_regression=0.02), ["safety_bound_above_threshold"], id="bound"
        ),
        *(
            pytest.param(
                Criteria(max_safety_regression=largest),
                ["checkpoint_promotion_blocked_safety_regression", "safety_bound_above_threshold"],
                id=f"at most {largest}",
            )
            for largest in (0.01, 0.0)
        ),
        pytest.param(Criteria(max_p_value=1e-5), ["p_value_above_threshold"], id="p"),
        pytest.param(Criteria(max_safety_regression=0.030), [], id="just above the bound"),
        pytest.param(Criteria(min_pairs=21), ["insufficient_pairs"], id="pairs"),
    ],
)
def test_verdicts_of_the_vector(criteria: Criteria, codes: list[str]) -> None:
    assert reason_codes(figures(vectors.DIFFERENCES, measured_safety()), criteria) == codes


def test_ten_pairs_are_too_few_by_default() -> None:
    ten = figures(vectors.TEN)

    assert reason_codes(ten, Criteria()) == ["insufficient_pairs"]
    assert reason_codes(ten, Criteria(min_pairs=10)) == []


def test_two_pairs_that_are_a_certainty_for_the_reference_prove_nothing() -> None:
    unknown = replace(GOOD, seeds_within_band=None, sizes_within_band=None)

    assert reason_codes(figures([0.1, 0.1], unknown), Criteria()) == [
        "insufficient_pairs",
        "p_value_above_threshold",
        "checkpoint_promotion_blocked_seed_reproducibility",
        "checkpoint_promotion_blocked_sample_sensitivity",
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pairs": 19}, "insufficient_pairs"),
        ({"missing_share": 0.021}, "too_many_missing"),
        ({"missing_share": NAN}, "too_many_missing"),
        ({"missing_difference": 0.021}, "too_many_missing"),
        ({"missing_difference": -0.021}, "too_many_missing"),
        ({"mean_delta": 0.049}, "reward_gain_below_threshold"),
        ({"mean_delta": NAN}, "reward_gain_below_threshold"),
        ({"mean_delta": None}, "reward_gain_below_threshold"),
        ({"p_value": 0.051}, "p_value_above_threshold"),
        ({"p_value": NAN}, "p_value_above_threshold"),
        ({"confidence_level": 0.94}, "confidence_below_threshold"),
        ({"confidence_level": NAN}, "confidence_below_threshold"),
        ({"delta_ci_low": 0.0}, "interval_contains_zero"),
        ({"delta_ci_low": 1e-17}, "interval_contains_zero"),
        ({"delta_ci_low": NAN}, "interval_contains_zero"),
        ({"delta_ci_low": None}, "interval_contains_zero"),
    ],
)
def test_each_figure_alone_is_a_reason(change: dict[str, Any], code: str) -> None:
    assert reason_codes(replace(PASSING, **change), Criteria()) == [code]


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": 20},
        {"missing_share": 0.02},
        {"missing_difference": 0.32 - 0.3},  # a little more than 0.02
        {"mean_delta": 0.15 - 0.1},  # a little less than 0.05
        {"p_value": 0.05},
        {"confidence_level": 1 - 0.05},
    ],
)
def test_a_figure_on_its_bound_meets_it(change: dict[str, Any]) -> None:
    assert reason_codes(replace(PASSING, **change), Criteria()) == []


SAFETY = "checkpoint_promotion_blocked_safety_regression"
BOUND = "safety_bound_above_threshold"
SEEDS = "checkpoint_promotion_blocked_seed_reproducibility"
SIZES = "checkpoint_promotion_blocked_sample_sensitivity"


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        pytest.param({}, (), id="good"),
        pytest.param({"safety_regression": 0.06}, (SAFETY,), id="regression"),
        pytest.param({"safety_regression": NAN}, (SAFETY,), id="regression is no number"),
        pytest.param({"safety_upper_bound": 0.06}, (BOUND,), id="bound"),
        pytest.param({"safety_upper_bound": float("inf")}, (BOUND,), id="no bound"),
        pytest.param({"safety_upper_bound": None}, (BOUND,), id="bound of one pair"),
        pytest.param({"safety_upper_bound": NAN}, (BOUND,), id="bound is no number"),
        pytest.param(
            {"safety_regression": None, "safety_upper_bound": None},
            ("safety_unknown",),
            id="unknown",
        ),
        pytest.param({"seeds_within_band": False}, (SEEDS,), id="seeds"),
        pytest.param({"seeds_within_band": None}, (SEEDS,), id="too few seeds"),
        pytest.param({"sizes_within_band": False}, (SIZES,), id="sizes"),
        pytest.param({"sizes_within_band": None}, (SIZES,), id="too few pairs"),
        pytest.param(
            {
                "safety_regression": 0.06,
                "safety_upper_bound": 0.07,
                "seeds_within_band": False,
                "sizes_within_band": None,
            },
            (SAFETY, BOUND, SEEDS, SIZES),
            id="all",
        ),
    ],
)
def test_a_promotion_is_refused_for_every_reason_in_order(
    change: dict[str, Any], codes: tuple[str, ...]
) -> None:
    promotion = replace(GOOD, **change)

    gate = promotion_gate(promotion, Criteria())

    assert gate.reason_codes == codes
    assert gate.promotion_allowed is not bool(codes)
    assert reason_codes(replace(PASSING, promotion=promotion), Criteria()) == list(codes)


def test_what_is_not_required_is_no_reason() -> None:
    nothing = PromotionFigures(
        safety_regression=None,
        safety_upper_bound=None,
        seeds_within_band=False,
        sizes_within_band=None,
    )
    criteria = Criteria(
        require_safety=False,
        require_seed_reproducibility=False,
        require_sample_size_sensitivity=False,
    )

    assert promotion_gate(nothing, criteria).promotion_allowed
    assert promotion_gate(replace(nothing, safety_regression=0.06), criteria).reason_codes == (
        SAFETY,
        BOUND,
    )


def test_the_gate_is_written_as_the_protocol_names_it() -> None:
    gate = promotion_gate(measured_safety(), Criteria(max_safety_regression=0.02))

    assert msgspec.json.decode(msgspec.json.encode(gate)) == {
        "promotion_allowed": False,
        "safety_regression": pytest.approx(0.015),
        "safety_upper_bound": pytest.approx(0.02916467596160239),
        "max_safety_regression": 0.02,
        "reason_codes": ["safety_bound_above_threshold"],
    }


def test_criteria_are_read_and_written_as_the_protocol_names_them() -> None:
    defaults = {
        "min_pairs": 20,
        "max_missing_share": 0.02,
        "min_reward_delta": 0.05,
        "max_p_value": 0.05,
        "min_confidence_level": 0.95,
        "max_safety_regression": 0.05,
        "require_safety": True,
        "require_seed_reproducibility": True,
        "require_sample_size_sensitivity": True,
    }

    assert msgspec.to_builtins(Criteria()) == defaults
    assert msgspec.convert(defaults, Criteria) == Criteria()
    with pytest.raises(msgspec.ValidationError, match="min_pairs"):
        msgspec.convert({**defaults, "min_pairs": 2}, Criteria)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_pairs", 9),
        ("max_missing_share", -0.01),
        ("max_missing_share", 1.01),
        ("min_reward_delta", -0.01),
        ("min_reward_delta", float("inf")),
        ("max_p_value", 1.01),
        ("max_p_value", -0.01),
        ("min_confidence_level", 0.949),
        ("min_confidence_level", 1.0),
        ("max_safety_regression", -0.01),
        ("max_safety_regression", float("inf")),
        *((name, NAN) for name in Criteria.__slots__ if name.startswith(("max", "min"))),
    ],
)
def test_criteria_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is out of range"):
        replace(Criteria(), **{name: value})


def test_chance_rarely_passes() -> None:
    rng = np.random.default_rng(4)
    rewards = rng.integers(0, 2, size=(2_000, 2, 20))
    proofs = [(trained - baseline).astype(float).tolist() for baseline, trained in rewards]

    passed = [
        sign_flip(differences, seed=0).p_value <= 0.05  # without it, the interval need not be drawn
        and not reason_codes(figures(differences), Criteria())
        for differences in proofs
    ]

    assert sum(passed) <= 73  # the 99.9 % quantile at 2.5 %; the exact test passes 1.0 %
