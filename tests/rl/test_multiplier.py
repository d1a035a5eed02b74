"""The price of safety: it holds the limit, moves in bounds, and forgets nothing."""

import json
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray
from tau_live.rl.multiplier import Multiplier, MultiplierRule

RULE = MultiplierRule(limit=0.1)
COSTS = st.lists(st.floats(0.0, 1.0) | st.just(float("nan")), max_size=40)
EARNS = np.array([0.9, 0.6, 0.5])
VIOLATES = np.array([0.30, 0.02, 0.0])


def lived(seed: int, rule: MultiplierRule | None, *, rollouts: int = 2_400) -> FloatArray:
    """Return ``[R]`` the costs of a learner whose best option is the one that violates."""
    rng = np.random.default_rng(seed)
    multiplier = Multiplier()
    rewards, costs, counts = np.zeros(3), np.zeros(3), np.full(3, 1e-9)
    happened: list[float] = []
    for _ in range(rollouts // 8):
        price = 0.5 * multiplier.value  # returns deviate by about 0.5
        logits = 10.0 * ((rewards - price * costs) / counts + 0.3 / np.sqrt(counts + 1.0))
        chances = np.exp(logits - logits.max())
        chances = 0.98 * chances / chances.sum() + 0.02 / 3.0
        for option in rng.choice(3, size=8, p=chances):
            rewards[option] += rng.random() < EARNS[option]
            happened.append(float(rng.random() < VIOLATES[option]))
            costs[option] += happened[-1]
            counts[option] += 1.0
        if rule is not None:
            multiplier = multiplier.update(np.array(happened[-8:]), rule)
    return np.array(happened)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.05, 0.1, 0.2])
def test_the_violations_stay_below_the_limit_but_not_at_nothing(limit: float) -> None:
    for seed in range(3):
        free, priced = lived(seed, None), lived(seed, MultiplierRule(limit=limit))

        assert free[400:].mean() > 0.24  # what pays best violates
        assert 0.4 * limit < priced[400:].mean() < limit
        assert priced[:400].mean() < 2.0 * limit  # and it is not learned by violating


@pytest.mark.slow
@given(st.lists(COSTS, max_size=12))
def test_it_stays_in_its_bounds_and_moves_no_faster_than_allowed(
    updates: list[list[float]],
) -> None:
    before = Multiplier()
    for costs in updates:
        after = before.update(np.array(costs, dtype=np.float64), RULE)
        known = sum(not isnan(cost) for cost in costs)

        assert 0.0 <= after.value <= RULE.most
        assert 0.0 <= after.integral <= RULE.most
        assert 0.0 <= after.estimate <= 1.0
        assert abs(after.value - before.value) <= RULE.step * known + 1e-12
        before = after


@given(COSTS, st.integers(0, 40))
def test_the_estimate_does_not_depend_on_how_rollouts_are_cut_into_updates(
    costs: list[float], cut: int
) -> None:
    whole = Multiplier().update(np.array(costs, dtype=np.float64), RULE)
    parts = Multiplier().update(np.array(costs[:cut], dtype=np.float64), RULE)
    parts = parts.update(np.array(costs[cut:], dtype=np.float64), RULE)

    assert (parts.estimate, parts.seen) == (whole.estimate, whole.seen)


def test_without_violations_it_stays_at_nothing_and_falls_back_to_it() -> None:
    raised = Multiplier().update(np.ones(8), RULE)
    fallen = raised
    for _ in range(400):
        fallen = fallen.update(np.zeros(8), RULE)

    assert raised.value == RULE.step * 8
    assert Multiplier().update(np.zeros(800), RULE).value == 0.0
    assert fallen.value == 0.0


def test_what_is_not_known_changes_nothing() -> None:
    before = Multiplier().update(np.array([0.5, 0.2]), RULE)

    assert before.update(np.full(9, np.nan), RULE) == before
    assert before.update(np.array([]), RULE) == before


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=40))
def test_a_mean_of_corrected_costs_is_that_of_the_right_ones(
    costs: list[tuple[float, float]],
) -> None:
    wrong, right = np.array(costs).T
    before = Multiplier().update(wrong, RULE)

    found = before.update(np.array([]), RULE, corrected=float((right - wrong).sum()))

    assert found.estimate == pytest.approx(right.mean(), abs=1e-9)
    assert (found.seen, found.value) == (before.seen, before.value)


@given(COSTS)
def test_its_numbers_survive_json(costs: list[float]) -> None:
    multiplier = Multiplier().update(np.array(costs, dtype=np.float64), RULE)

    again = Multiplier.from_numbers(json.loads(json.dumps(multiplier.numbers())))

    assert again == multiplier


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {**Multiplier().numbers(), "value": float("nan")},
        {**Multiplier().numbers(), "seen": -1.0},
        {**Multiplier().numbers(), "other": 1.0},
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"multiplier needs|must be finite"):
        Multiplier.from_numbers(numbers)


@pytest.mark.parametrize("cost", [-0.1, 1.1, float("inf")])
def test_a_cost_outside_its_range_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="costs must be within"):
        Multiplier().update(np.array([cost]), RULE)
