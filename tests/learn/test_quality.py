"""When the gate should hold although nothing fails: figures, bounds, and nothing without enough."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.records import Decision, LearnableRollout, Reward, Rollout
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.monitoring import (
    DOUBT,
    FEWEST,
    Figures,
    Reason,
    below_champion,
    collapses,
    enough_to_prove,
    figures,
    mean_bound,
    missing_rewards,
    violations,
)

ENOUGH = Figures(rollouts=FEWEST, decisions=FEWEST, sources={})


def learnable(
    number: int, *applied: str, total: float = 0.0, rewards: tuple[Reward, ...] = ()
) -> LearnableRollout:
    rollout = Rollout(rollout_id=f"r{number}", total_reward=total, ready_seq=number)
    decisions = [
        Decision(
            rollout_id=rollout.rollout_id,
            attempt=1,
            ordinal=ordinal,
            point="model",
            options=("a", "b", "c", "d"),
            chosen=option,
            applied=option,
            at=0.0,
        )
        for ordinal, option in enumerate(applied, start=1)
    ]
    return LearnableRollout(rollout, decisions, list(rewards))


def costing(mean: float | None, count: int) -> Figures:
    return Figures(costs=count, cost=mean, sources={})


# Figures


def test_choices_that_are_even_have_all_of_the_entropy() -> None:
    found = figures([learnable(n, "abcd"[n % 4]) for n in range(8)], "model", costs=[])

    assert found.entropy == pytest.approx(1.0)
    assert (found.decisions, found.option, found.option_share) == (8, "a", 0.25)


def test_choices_that_never_vary_have_none() -> None:
    found = figures([learnable(n, "b", "b") for n in range(8)], "model", costs=[])

    assert (found.entropy, found.option, found.option_share) == (0.0, "b", 1.0)


def test_what_the_control_chooses_is_no_collapse() -> None:
    learner = [learnable(n, "ab"[n % 2]) for n in range(8)]
    control = [learnable(n, "c") for n in range(8, 100)]
    served = [
        one._replace(decisions=[replace(made, arm=arm, source=source) for made in one.decisions])
        for one, (arm, source) in zip(
            control, itertools.cycle([("control", "policy"), ("learner", "default")]), strict=False
        )
    ]

    found = figures(learner + served, "model", costs=[])

    assert (found.rollouts, found.decisions, found.option_share) == (100, 8, 0.5)
    assert collapses(found, Settings(option_share_limit=0.4, entropy_floor=0.9)) == []


def test_the_entropy_is_shannons() -> None:
    found = figures([learnable(0, "a", "a", "a", "b")], "model", costs=[])

    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert found.entropy == pytest.approx(expected)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
def test_no_reward_is_too_large_for_it(totals: list[float]) -> None:
    rollouts = [learnable(n, total=total) for n, total in enumerate(totals)]

    found = figures(rollouts, "model", costs=[])

    largest = max(map(abs, totals), default=0.0)
    if totals and largest < 1e150:
        rounding = 1e-9 * max(1.0, largest)  # numpy's mean of large numbers is rounded too
        assert found.reward_mean == pytest.approx(np.mean(totals), rel=1e-9, abs=rounding)
        assert found.reward_spread == pytest.approx(np.std(totals), rel=1e-9, abs=rounding)


def test_sources_share_what_rewards_weigh_and_costs_and_safety_have_no_part() -> None:
    def reward(name: str, value: float, source: str) -> Reward:
        return Reward(rollout_id="r0", name=name, value=value, source=source, at=0.0)

    rewards = (
        reward("solved", 1.0, "user"),
        reward("price", -2.0, "env"),
        reward("harm", 1.0, "judge"),
        reward("safety.penalty_total", -9.0, "safety"),
        reward("undeclared", 5.0, "api"),
    )
    declared = (
        DeclaredReward(name="solved"),
        DeclaredReward(name="price", weight=0.5),
        DeclaredReward(name="harm", cost=True),
    )

    found = figures([learnable(0, rewards=rewards)], "model", costs=[0.5], declared=declared)

    positive = {source: share for source, share in found.sources.items() if share}
    assert positive == {"user": 0.5, "env": 0.5}
    assert (found.costs, found.cost) == (1, 0.5)


# Bounds


@given(st.floats(0.0, 1.0), st.integers(1, 10_000), st.sampled_from([0.3, 0.05, DOUBT]))
def test_the_bounds_enclose_the_mean_and_close_in_on_it(
    mean: float, count: int, doubt: float
) -> None:
    low, high = (mean_bound(mean, count, doubt=doubt, upper=upper) for upper in (False, True))
    nearer = mean_bound(mean, 2 * count, doubt=doubt, upper=True)

    assert 0.0 <= low <= mean <= nearer <= high <= 1.0


@pytest.mark.parametrize("count", [10, 100])
def test_without_a_single_violation_the_upper_bound_has_a_closed_form(count: int) -> None:
    found = mean_bound(0.0, count, doubt=0.05, upper=True)

    assert found == pytest.approx(1.0 - 0.05 ** (1.0 / count))  # (1 - p)**n = doubt


@pytest.mark.slow
def test_the_bounds_are_wrong_no_more_often_than_they_say() -> None:
    rng = np.random.default_rng(3)
    means = rng.binomial(50, 0.1, size=4_000) / 50

    wrong = np.mean([mean_bound(float(m), 50, doubt=0.05, upper=False) > 0.1 for m in means])

    assert wrong <= 0.05


# Checks


@pytest.mark.parametrize(
    ("found", "limit", "holds"),
    [
        pytest.param(costing(0.3, 40), 0.05, True, id="almost certainly above"),
        pytest.param(costing(0.3, 40), None, False, id="no limit"),
        pytest.param(costing(1.0, 19), 0.05, False, id="too few"),
        pytest.param(costing(None, 0), 0.05, False, id="nothing is known"),
        pytest.param(costing(0.0, 40), 0.05, False, id="no violation, and too few to prove it"),
        pytest.param(costing(0.04, 200), 0.05, False, id="below"),
        pytest.param(costing(0.07, 200), 0.05, False, id="above by chance, perhaps"),
        pytest.param(costing(0.049, 8_000), 0.05, True, id="many, and still not shown to be safe"),
        pytest.param(costing(0.0375, 8_000), 0.05, False, id="on its aim"),
    ],
)
def test_violations_hold_when_they_are_surely_over_the_limit_or_never_shown_to_be_below(
    found: Figures, limit: float | None, holds: bool
) -> None:
    hold = violations(found, limit)

    assert (hold is not None) is holds
    assert hold is None or hold.reason is Reason.VIOLATIONS


@pytest.mark.parametrize("limit", [0.05, 0.2])
def test_a_learner_on_its_aim_passes_once_there_is_enough_to_prove_it(limit: float) -> None:
    count = 2 * enough_to_prove(limit)
    rng = np.random.default_rng(5)
    means = rng.binomial(count, 0.75 * limit, size=500) / count

    held = np.mean([violations(costing(float(mean), count), limit) is not None for mean in means])

    assert held <= 0.01


@pytest.mark.parametrize(
    ("difference", "holds"), [(None, False), ((-0.2, 0.1), False), ((-0.2, -0.01), True)]
)
def test_a_learner_below_the_champion_holds(
    difference: tuple[float, float] | None, holds: bool
) -> None:
    assert (below_champion(difference) is not None) is holds


@pytest.mark.parametrize(
    ("ready", "missing", "limit", "holds"),
    [
        (10, 90, 0.5, True),
        (10, 90, None, False),
        (1, 20, 0.5, False),
        (45, 55, 0.5, False),
        (90, 10, 0.5, False),
    ],
    ids=["most", "no limit", "too few", "not surely", "few"],
)
def test_missing_rewards_hold_when_their_share_is_surely_too_large(
    ready: int, missing: int, limit: float | None, holds: bool
) -> None:
    assert (missing_rewards(ready, missing, limit) is not None) is holds


COLLAPSES = [
    ("entropy_floor", 0.1, {"entropy": 0.05}, {"entropy": 0.15}, Reason.COLLAPSED),
    ("option_share_limit", 0.9, {"option_share": 0.95}, {"option_share": 0.8}, Reason.COLLAPSED),
    ("reward_spread_floor", 0.1, {"reward_spread": 0.0}, {"reward_spread": 0.2}, Reason.CONSTANT),
    ("source_share_limit", 0.9, {"sources": {"a": 1.0}}, {"sources": {"a": 0.5}}, Reason.SOURCE),
]


@pytest.mark.parametrize(("name", "value", "beyond", "within", "reason"), COLLAPSES)
def test_a_declared_bound_holds_beyond_it_and_only_with_enough_rollouts(
    name: str, value: float, beyond: dict[str, object], within: dict[str, object], reason: Reason
) -> None:
    settings = Settings(**{name: value})  # type: ignore[arg-type]  # by name

    def held(fields: dict[str, object], rollouts: int, bounds: Settings) -> list[Reason]:
        found = Figures(**{"sources": {}, "decisions": rollouts, **fields}, rollouts=rollouts)  # type: ignore[arg-type]
        return [one.reason for one in collapses(found, bounds)]

    assert held(beyond, FEWEST, settings) == [reason]
    assert held(within, FEWEST, settings) == []
    assert held(beyond, FEWEST - 1, settings) == []
    assert held(beyond, FEWEST, Settings()) == []  # no bound is declared
    assert collapses(ENOUGH, settings) == []  # nothing is known
