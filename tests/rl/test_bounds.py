"""How far one reward may reach: outliers count no more than others, and honest rewards as ever."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray
from tau_live.rl.bounds import FEWEST, Fence, Limits

FINITE = st.floats(-1e50, 1e50)


def fenced(values: FloatArray) -> Fence:
    return Fence().including((value, value) for value in values.tolist())


def of_liars(rng: np.random.Generator, number: int, *, lie: float) -> FloatArray:
    """Return successes and failures of which 5 % are lies of either sign."""
    honest = (rng.random(number) < 0.5).astype(float)
    return np.where(rng.random(number) < 0.05, rng.choice([-lie, lie], number), honest)


@pytest.mark.parametrize("lie", [3.5, 100.0, 1e6, 1e12, 1e49])
def test_a_lie_counts_no_more_than_an_honest_reward(lie: float) -> None:
    for seed in range(10):
        fence = fenced(of_liars(np.random.default_rng(seed), 300, lie=lie))

        assert fence.limits == (0.0, 1.0)


@pytest.mark.slow
def test_liars_do_not_move_the_fence_further_than_its_reach() -> None:
    for lie in np.geomspace(1.0, 1e3, 40).tolist():
        low, high = fenced(of_liars(np.random.default_rng(7), 600, lie=lie)).limits

        assert low >= -2.0
        assert high <= 3.0


@pytest.mark.parametrize(
    ("draw", "most"),
    [
        pytest.param(lambda rng: rng.normal(5.0, 2.0, 2_000), 0.0, id="normal"),
        pytest.param(lambda rng: rng.random(2_000), 0.0, id="uniform"),
        pytest.param(lambda rng: rng.exponential(3.0, 2_000), 0.01, id="exponential"),
        pytest.param(lambda rng: (rng.random(2_000) < 0.02) * 1.0, 0.0, id="rare successes"),
        pytest.param(lambda rng: rng.random(2_000) ** 0.1 - 0.3, 0.02, id="costs of successes"),
        pytest.param(lambda rng: np.arange(2_000.0) ** 1.5, 0.0, id="growing"),
    ],
)
def test_honest_rewards_are_seldom_outliers(draw: object, most: float) -> None:
    values = draw(np.random.default_rng(3))  # type: ignore[operator]  # one of the lambdas above
    fence, beyond = Fence(), 0
    for value in values.tolist():
        fence = fence.including([(value, value)])
        low, high = fence.limits
        beyond += not low <= value <= high

    assert beyond <= most * len(values) + FEWEST


def test_what_became_rare_is_still_heard() -> None:
    """A policy that has learned fails in 2 % of its runs, and a failure still counts as one."""
    rng = np.random.default_rng(1)
    early = rng.choice([0.0, 0.9, 1.0], 200, p=[0.4, 0.3, 0.3])
    late = rng.choice([0.0, 0.9, 1.0], 2_000, p=[0.02, 0.49, 0.49])

    fence = fenced(np.concatenate([early, late]))

    assert fence.limits == (0.0, 1.0)


def test_where_most_are_alike_liars_do_not_become_the_measure() -> None:
    """The honest failures are rarer than the lies, and came first."""
    rng = np.random.default_rng(2)
    early = rng.choice([0.0, 1.0], 128, p=[0.12, 0.88])
    late = rng.choice([0.0, 1.0, 1e6, -1e6], 3_000, p=[0.01, 0.94, 0.025, 0.025])

    assert fenced(np.concatenate([early, late])).limits == (0.0, 1.0)


def test_nothing_is_an_outlier_before_enough_was_seen() -> None:
    fence = fenced(np.array([0.0, 1.0, 1e9, 0.0, 1.0, 0.0, 1.0]))

    assert fence.limits == (-inf, inf)


@given(st.lists(st.tuples(FINITE, FINITE).map(sorted), max_size=40), st.integers(0, 40))
def test_however_it_is_cut_and_stored_it_is_the_same(pairs: list[list[float]], cut: int) -> None:
    extremes = [(low, high) for low, high in pairs]

    first = Fence().including(extremes[:cut])
    found = Fence.from_numbers(first.numbers()).including(extremes[cut:])

    assert found == Fence().including(extremes)


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"newest": [float("nan")] * 2, "seen": 1, "core": None, "firm": False},
        {"newest": [1.0], "seen": 1, "core": None, "firm": False},
        {"newest": [], "seen": 1, "core": [1.0], "firm": False},
    ],
)
def test_nonsense_is_refused(numbers: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Fence.from_numbers(numbers)


def test_a_declared_range_is_within_the_limits() -> None:
    assert Limits(0.0, 1.0).extend_to((-5.0, 0.5)) == (-5.0, 1.0)
    assert Limits(0.0, 1.0).extend_to(None) == (0.0, 1.0)
