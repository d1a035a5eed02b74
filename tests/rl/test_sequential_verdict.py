"""Verdicts: what is better, safe and fairly counted is promoted, and nothing else."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.verdict import Evidence, Outcomes, Rule, Verdict

RULE = Rule()


def outcomes(
    seed: int,
    count: int,
    *,
    difference: float = 0.0,
    costlier: float = 0.0,
    lost: tuple[float, float] = (0.0, 0.0),
    share: float = 0.5,
) -> Outcomes:
    rng = np.random.default_rng(seed)
    learner = rng.random(count) < share
    rewards = (rng.random(count) < 0.5 + difference * learner).astype(np.float64)
    missing = rng.random(count) < np.where(learner, *lost)
    return Outcomes(
        rewards=np.where(missing, np.nan, rewards),
        costs=(rng.random(count) < 0.02 + costlier * learner).astype(np.float64),
        learner=learner,
        shares=np.full(count, share),
    )


def part(whole: Outcomes, start: int, end: int) -> Outcomes:
    return Outcomes(
        rewards=whole.rewards[start:end],
        costs=whole.costs[start:end],
        learner=whole.learner[start:end],
        shares=whole.shares[start:end],
    )


def verdicts(whole: Outcomes, rule: Rule = RULE) -> list[Verdict]:
    evidence, found = Evidence.none(rewards=(0.0, 1.0)), []
    for start in range(0, len(whole.rewards), 8):
        evidence = evidence.including(part(whole, start, start + 8))
        found.append(evidence.finding(rule).verdict)
    return found


def ended(found: list[Verdict]) -> Verdict:
    return next((verdict for verdict in found if verdict is not Verdict.WAIT), Verdict.WAIT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_better_learner_is_promoted(seed: int) -> None:
    assert ended(verdicts(outcomes(seed, 4_000, difference=0.2))) is Verdict.PROMOTE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_equal_learner_waits(seed: int) -> None:
    assert ended(verdicts(outcomes(seed, 4_000))) is Verdict.WAIT


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_learner_that_is_better_but_unsafe_is_never_promoted(seed: int) -> None:
    assert ended(verdicts(outcomes(seed, 4_000, difference=0.3, costlier=0.2))) is Verdict.UNSAFE


@pytest.mark.slow
def test_a_worse_learner_is_given_up() -> None:
    assert ended(verdicts(outcomes(4, 4_000, difference=-0.2))) is Verdict.FUTILE


@pytest.mark.slow
def test_a_learner_that_cannot_reach_the_margin_is_given_up() -> None:
    whole = outcomes(5, 6_000, difference=0.05)

    assert ended(verdicts(whole, replace(RULE, margin=0.2))) is Verdict.FUTILE


@pytest.mark.slow
def test_a_learner_that_loses_its_bad_rewards_is_not_promoted() -> None:
    whole = outcomes(6, 4_000, difference=0.0)
    hidden = whole.learner & (whole.rewards == 0.0) & (np.random.default_rng(7).random(4_000) < 0.6)
    whole = whole._replace(rewards=np.where(hidden, np.nan, whole.rewards))

    assert ended(verdicts(whole)) is Verdict.UNEQUAL_MISSING


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(0.3, 0.1), (0.1, 0.3)])
def test_unequal_missing_rewards_are_noticed_either_way(lost: tuple[float, float]) -> None:
    assert ended(verdicts(outcomes(8, 4_000, lost=lost))) is Verdict.UNEQUAL_MISSING


@pytest.mark.slow
def test_equally_missing_rewards_do_not_stop_a_promotion() -> None:
    assert ended(verdicts(outcomes(9, 4_000, difference=0.2, lost=(0.2, 0.2)))) is Verdict.PROMOTE


def test_nothing_is_promoted_before_both_arms_have_enough_known_rewards() -> None:
    evidence = Evidence.none(rewards=(0.0, 1.0)).including(outcomes(10, 2_000, difference=0.4))
    seen = evidence.finding(RULE)
    fewest = min(seen.learner, seen.control)

    found = [evidence.finding(replace(RULE, fewest=least)) for least in (fewest, fewest + 1)]

    assert [one.verdict for one in found] == [Verdict.PROMOTE, Verdict.WAIT]
    assert seen.learner + seen.control == 2_000


def test_where_no_cost_is_reported_safety_is_unknown_and_not_good() -> None:
    whole = outcomes(11, 2_000, difference=0.4)
    silent = whole._replace(costs=np.full(2_000, np.nan))
    evidence = Evidence.none(rewards=(0.0, 1.0)).including(silent)

    found = [evidence.finding(replace(RULE, cost_margin=margin)) for margin in (0.05, None)]

    assert [one.verdict for one in found] == [Verdict.WAIT, Verdict.PROMOTE]


def test_a_missing_reward_is_not_a_reward_of_zero() -> None:
    whole = outcomes(12, 400, lost=(0.5, 0.5))
    known = np.isfinite(whole.rewards)

    found = Evidence.none(rewards=(0.0, 1.0)).including(whole)

    dropped = Outcomes(
        rewards=whole.rewards[known],
        costs=whole.costs[known],
        learner=whole.learner[known],
        shares=whole.shares[known],
    )
    assert found.reward == Evidence.none(rewards=(0.0, 1.0)).including(dropped).reward
    assert found.missing.learner_total + found.missing.control_total == (~known).sum()


def test_a_finding_shows_the_numbers_that_it_follows_from() -> None:
    evidence = Evidence.none(rewards=(0.0, 1.0)).including(outcomes(14, 300, difference=0.1))

    found = evidence.finding(RULE)

    alpha = RULE.alpha_of(1)
    assert (found.test, found.alpha) == (1, alpha)
    assert found.difference == evidence.reward.interval(alpha=alpha)
    assert found.cost == evidence.cost.interval(alpha=alpha)
    assert found.missing == evidence.missing.interval(alpha=alpha / 2.0)  # two-sided


def test_all_tests_together_spend_no_more_than_alpha() -> None:
    spent = [RULE.alpha_of(test) for test in range(1, 10_001)]

    assert 0.999 * RULE.alpha < sum(spent) < RULE.alpha
    assert spent == sorted(spent, reverse=True)


def test_restarted_it_has_seen_nothing_and_spends_less() -> None:
    begun = Evidence.none(rewards=(-1.0, 2.0), costs=(0.0, 5.0))

    again = begun.including(outcomes(13, 100)).restart()

    assert again == begun._replace(test=2)
    assert again.finding(RULE).alpha == pytest.approx(begun.finding(RULE).alpha / 4.0)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(0, 64))
def test_stored_between_two_parts_it_ends_with_the_same_bits(seed: int, cut: int) -> None:
    whole = outcomes(seed, 64, lost=(0.3, 0.1), share=0.3)
    begun = Evidence.none(rewards=(0.0, 1.0)).restart()

    first = begun.including(part(whole, 0, cut))
    resumed = Evidence.from_numbers(json.loads(json.dumps(first.numbers())))

    assert resumed.including(part(whole, cut, 64)) == begun.including(whole)


@pytest.mark.parametrize(
    "broken", [{"test": 0}, {"test": 1.5}, {"test": float("inf")}, {"cost_highest": 0.0}]
)
def test_broken_numbers_are_refused(broken: dict[str, float]) -> None:
    numbers = Evidence.none(rewards=(0.0, 1.0)).numbers() | broken

    with pytest.raises(ValueError, match=r"whole number|finite range"):
        Evidence.from_numbers(numbers)
