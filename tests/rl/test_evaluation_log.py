"""What of a log may be used, what is counted instead, and when nothing is said at all."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation.estimators import Estimator, Support
from tau_live.rl.evaluation.log import Log, Offered, Reason
from tau_live.rl.evaluation.report import (
    INSUFFICIENT,
    Evaluation,
    EvaluationConfig,
    evaluate,
    evaluate_rollouts,
)
from tests.rl.logs import drawn, lenient, weighted

NAN, INF = float("nan"), float("inf")


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((0.5, NAN, 0.5), Reason.NO_REWARD),
        ((0.5, INF, 0.5), Reason.REWARD_NOT_FINITE),
        ((0.5, -INF, 0.5), Reason.REWARD_NOT_FINITE),
        ((0.5, 1.1e50, 0.5), Reason.REWARD_NOT_FINITE),
        ((0.5, -1e300, 0.5), Reason.REWARD_NOT_FINITE),
        ((0.5, 1.001, 0.5), Reason.REWARD_OUT_OF_RANGE),
        ((0.5, -0.001, 0.5), Reason.REWARD_OUT_OF_RANGE),
        ((NAN, 0.5, 0.5), Reason.NO_PROPENSITY),
        ((INF, 0.5, 0.5), Reason.PROPENSITY_NOT_FINITE),
        ((0.0, 0.5, 0.5), Reason.PROPENSITY_NOT_POSITIVE),
        ((-0.1, 0.5, 0.5), Reason.PROPENSITY_NOT_POSITIVE),
        ((-INF, 0.5, 0.5), Reason.PROPENSITY_NOT_FINITE),
        ((5e-324, 0.5, 0.5), Reason.PROPENSITY_NOT_POSITIVE),
        ((1.1, 0.5, 0.5), Reason.PROPENSITY_ABOVE_ONE),
        ((0.5, 0.5, NAN), Reason.TARGET_NOT_A_PROBABILITY),
        ((0.5, 0.5, -0.1), Reason.TARGET_NOT_A_PROBABILITY),
        ((0.5, 0.5, 1.1), Reason.TARGET_NOT_A_PROBABILITY),
    ],
)
@pytest.mark.parametrize("estimate", [evaluate, evaluate_rollouts])
def test_garbage_is_counted_and_changes_nothing(
    estimate: Callable[..., Evaluation], numbers: tuple[float, float, float], reason: Reason
) -> None:
    clean = weighted([2.0, 0.0, 1.0], [1.0, 0.5, 0.25])
    propensity, reward, target = numbers
    targets = clean.targets
    assert not isinstance(targets, Offered)
    dirty = Log(
        rollouts=np.append(clean.rollouts, 99),
        propensities=np.append(clean.propensities, propensity),
        rewards=np.append(clean.rewards, reward),
        targets=np.append(targets, target),
    )

    found, expected = (estimate(log, lenient(), rng=rng()) for log in (dirty, clean))

    assert found.left_out == {reason: 1}
    assert found.estimates == expected.estimates
    assert found.logged == expected.logged


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((None, 0, None), Reason.MASK_MISSING),
        (([], 0, []), Reason.MASK_MISSING),
        (([0.5, 0.5], 2, [0.0, 0.0]), Reason.APPLIED_NOT_OFFERED),
        (([0.5, 0.5], -1, [0.0, 0.0]), Reason.APPLIED_NOT_OFFERED),
        (([0.5, 0.4], 0, [0.0, 0.0]), Reason.TARGET_NOT_A_PROBABILITY),
        (([1.5, -0.5], 0, [0.0, 0.0]), Reason.TARGET_NOT_A_PROBABILITY),
        (([NAN, 1.0], 1, [0.0, 0.0]), Reason.TARGET_NOT_A_PROBABILITY),
        (([0.5, 0.5], 0, [0.0, NAN]), Reason.PREDICTION_NOT_FINITE),
        (([0.5, 0.5], 0, [INF, 0.0]), Reason.PREDICTION_NOT_FINITE),
        (([0.5, 0.5], 0, None), Reason.PREDICTION_NOT_FINITE),
    ],
)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_strange_options_are_counted_and_change_nothing(
    row: tuple[list[float] | None, int, list[float] | None], reason: Reason, place: int
) -> None:
    targets, applied, predictions = row
    case = drawn(0, 6)
    clean = case.log()
    rows: list[FloatArray | None] = [*case.targets]
    rows.insert(place, None if targets is None else np.array(targets))
    expected: list[FloatArray | None] = [*case.predictions]
    expected.insert(place, None if predictions is None else np.array(predictions))
    dirty = Log(
        rollouts=np.insert(clean.rollouts, place, 99),
        propensities=np.insert(clean.propensities, place, 0.5),
        rewards=np.insert(clean.rewards, place, 0.5),
        targets=Offered.of(rows, np.insert(np.array(case.applied), place, applied), expected),
    )

    found = evaluate(dirty, lenient(), rng=rng())

    assert found.left_out == {reason: 1}
    assert found.estimates == evaluate(clean, lenient(), rng=rng()).estimates


def test_a_bad_step_leaves_out_its_whole_rollout_and_no_other() -> None:
    case = drawn(1, 12)
    rollouts = np.repeat(np.arange(4), 3)
    rewards = np.array(case.rewards)
    rewards[3:6] = 2.5, NAN, 2.5  # what is left of that sum is outside the range
    log = Log(
        rollouts=rollouts,
        propensities=np.array(case.propensities),
        rewards=rewards,
        targets=Offered.of(case.targets, np.array(case.applied)),
    )
    rest = [0, 1, 2, 6, 7, 8, 9, 10, 11]
    without = Log(
        rollouts=rollouts[rest],
        propensities=log.propensities[rest],
        rewards=rewards[rest],
        targets=Offered.of([case.targets[n] for n in rest], np.array(case.applied)[rest]),
    )

    found = evaluate_rollouts(log, lenient(0.0, 3.0), rng=rng())

    assert found.left_out == {Reason.NO_REWARD: 1, Reason.ANOTHER_STEP: 2}
    assert found.estimates == evaluate_rollouts(without, lenient(0.0, 3.0), rng=rng()).estimates


def test_the_range_over_several_steps_is_that_of_the_sum() -> None:
    log = weighted([1.0] * 4, [0.75, 0.75, 0.25, 0.5], [0, 0, 1, 1])

    found = evaluate_rollouts(log, lenient(), rng=rng())

    assert found.left_out == {Reason.REWARD_OUT_OF_RANGE: 2}
    assert found.logged == 0.75


def test_an_effective_sample_of_two_is_refused_with_the_reason() -> None:
    log = weighted([100.0, 100.0] + [0.0] * 198, [1.0] * 200)

    found = evaluate(log, EvaluationConfig(reward_range=(0.0, 1.0), weight_cap=200.0), rng=rng())

    assert found.weights.effective_sample_size == pytest.approx(2.0)
    for one in found.estimates.values():
        assert one.status == INSUFFICIENT == "insufficient support"
        assert one.value is None
        assert one.standard_error is None
        assert one.bootstrap is None
        assert one.bernstein is None
        assert one.refused == ("effective sample size 2, not 30",)


@pytest.mark.parametrize("name", list(Estimator))
def test_every_estimate_is_refused_not_only_those_with_weights(name: Estimator) -> None:
    case = drawn(3, 40)
    config = EvaluationConfig(reward_range=(0.0, 1.0), support=Support(rollouts=41))

    found = {
        **evaluate(case.log(), config, rng=rng()).estimates,
        **evaluate_rollouts(case.log(), config, rng=rng()).estimates,
    }

    assert found[name].value is None
    assert "40 rollouts, not 41" in found[name].refused


@pytest.mark.parametrize(
    ("floor", "words"),
    [
        (Support(rollouts=5, effective_sample_size=0.0, mean_errors=np.inf), "4 rollouts, not 5"),
        (
            Support(rollouts=0, effective_sample_size=2.5, mean_errors=np.inf),
            "effective sample size 2, not 2.5",
        ),
        (
            Support(rollouts=0, effective_sample_size=0.0, effective_share=0.6, mean_errors=np.inf),
            "effective share 0.5, not 0.6",
        ),
        (
            Support(rollouts=0, effective_sample_size=0.0, largest_weight=3.5, mean_errors=np.inf),
            "largest weight 4, more than 3.5",
        ),
        (
            Support(rollouts=0, effective_sample_size=0.0, mean_errors=0.25),
            "mean weight 1.5, more than 0.2165 from 1",
        ),
    ],
)
def test_each_floor_refuses_by_itself(floor: Support, words: str) -> None:
    log = weighted([4.0, 1.0, 1.0, 0.0], [1.0] * 4)  # (4 + 1 + 1)**2 / (16 + 1 + 1) = 2

    found = evaluate(log, EvaluationConfig(reward_range=(0.0, 1.0), support=floor), rng=rng())

    expected = (words,)
    assert [one.refused for one in found.estimates.values()] == [expected, expected]


def test_the_cap_may_bring_a_weight_under_its_floor() -> None:
    log = weighted([5_000.0] + [1.0] * 99, [1.0] * 100)
    floors = Support(mean_errors=np.inf)
    config = EvaluationConfig(reward_range=(0.0, 1.0), weight_cap=5.0, support=floors)

    capped = evaluate(log, config, rng=rng()).estimates[Estimator.IPS]
    whole = evaluate(log, replace(config, weight_cap=None), rng=rng()).estimates[Estimator.IPS]

    assert capped.value == pytest.approx(1.04)
    assert "largest weight 5000, more than 1000" in whole.refused


def test_the_effective_sample_of_huge_weights_is_a_number() -> None:
    found = evaluate(weighted([1e200, 1e200, 0.0], [1.0] * 3), lenient(), rng=rng())

    assert found.weights.effective_sample_size == pytest.approx(2.0)


def test_a_target_that_does_what_was_never_logged_is_refused() -> None:
    # the effective sample is 500 of 1,000, and IPS would be half of the truth
    log = weighted([1.0, 0.0] * 500, [1.0] * 1_000)

    found = evaluate(log, EvaluationConfig(reward_range=(0.0, 1.0)), rng=rng())

    assert found.weights.effective_sample_size == pytest.approx(500.0)
    assert found.estimates[Estimator.IPS].refused[0].startswith("mean weight 0.5")


@pytest.mark.parametrize("estimate", [evaluate, evaluate_rollouts])
def test_nothing_to_go_by_is_no_number(estimate: Callable[..., Evaluation]) -> None:
    empty = np.zeros(0)
    log = Log(rollouts=empty, propensities=empty, rewards=empty, targets=empty)

    found = estimate(log, lenient(), rng=rng())

    assert {one.value for one in found.estimates.values()} == {None}
    assert {one.refused for one in found.estimates.values()} == {("no decision can be used",)}
    assert found.logged is None


def test_no_weight_at_all_makes_a_ratio_undefined_and_nothing_else() -> None:
    found = evaluate(weighted([0.0, 0.0], [1.0, 1.0]), lenient(), rng=rng()).estimates

    assert found[Estimator.IPS].value == 0.0
    assert found[Estimator.SNIPS].refused == ("the estimate is not finite",)


def test_products_too_large_for_a_number_are_refused_without_a_warning() -> None:
    log = Log(
        rollouts=np.array([0, 0, 0, 1]),
        propensities=np.array([1e-300, 1e-300, 0.5, 0.5]),
        rewards=np.array([0.0, 0.0, 1.0, 1.0]),
        targets=np.array([1.0, 1.0, 0.0, 0.5]),
    )

    found = evaluate_rollouts(log, lenient(), rng=rng())

    assert {one.value for one in found.estimates.values()} == {None}


def test_ids_may_be_text() -> None:
    log = weighted([2.0, 0.0, 1.0], [1.0, 0.5, 0.25])
    named = Log(
        rollouts=np.array(["b", "a", "b"]),
        propensities=log.propensities,
        rewards=log.rewards,
        targets=log.targets,
    )

    found = evaluate(named, lenient(), rng=rng())

    assert found.weights.rollouts == 2
    assert found.weights.decisions == 3
