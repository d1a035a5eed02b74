"""Confidence sequences: they hold at all times, also for means that change."""

import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.arrays import BoolArray, FloatArray
from tau_live.rl.sequential import _BETS, Difference, _arm_means, radius
from tau_live.rl.verdict import Rule

ALPHA = Rule().alpha_of(1)
STREAMS = int(os.environ.get("TAU_LIVE_TEST_STREAMS", "200"))  # the full figure takes 1000
LENGTH = 20_000
UNIT = st.floats(0.0, 1.0)
OPEN = st.floats(1e-6, 1.0 - 1e-6)

Draw = Callable[[np.random.Generator, int], FloatArray]


class Seen(NamedTuple):
    values: FloatArray
    learner: BoolArray
    shares: FloatArray

    def part(self, start: int, end: int) -> "Seen":
        return Seen(self.values[start:end], self.learner[start:end], self.shares[start:end])


def successes(rate: float) -> Draw:
    return lambda rng, count: (rng.random(count) < rate).astype(np.float64)


def evenly(rng: np.random.Generator, count: int) -> FloatArray:
    return rng.random(count)


def skewed(rng: np.random.Generator, count: int) -> FloatArray:
    return np.minimum(rng.exponential(0.1, count), 1.0)


def ladder(count: int) -> FloatArray:
    return np.repeat([0.05, 0.25, 0.5, 0.95], count // 4)


def some(seed: int, count: int, *, difference: float = 0.0, share: float = 0.5) -> Seen:
    rng = np.random.default_rng(seed)
    shares = np.full(count, share)
    learner = rng.random(count) < shares
    values = (rng.random(count) < 0.5 + difference * learner).astype(np.float64)
    return Seen(values, learner, shares)


def including(known: Difference, seen: Seen) -> Difference:
    return known.including(seen.values, learner=seen.learner, shares=seen.shares)


@given(st.floats(0.0, 1e7), st.floats(1e-9, 0.5))
def test_the_radius_is_where_the_mixture_reaches_its_limit(square: float, alpha: float) -> None:
    found = float(radius(np.array(square), alpha=alpha))

    bets = np.array(_BETS)
    logs = bets * found - (-np.log1p(-bets) - bets) * square
    reached = np.logaddexp.reduce(logs) - np.log(len(bets))
    assert reached == pytest.approx(-np.log(alpha), rel=1e-9)


@given(st.integers(0, 2**32), st.integers(0, 40), OPEN, st.tuples(UNIT, UNIT))
def test_no_next_rollout_is_expected_to_raise_the_wealth(
    seed: int, count: int, share: float, rates: tuple[float, float]
) -> None:
    learned, controlled = rates
    before = including(Difference.within(0.0, 1.0), some(seed, count))
    steps = []

    for learner, arm, rate in ((True, share, learned), (False, 1.0 - share, controlled)):
        for value, chance in ((1.0, rate), (0.0, 1.0 - rate)):
            one = Seen(np.array([value]), np.array([learner]), np.array([share]))
            steps.append((arm * chance, including(before, one)))

    for side, difference in (("rising", learned - controlled), ("falling", controlled - learned)):
        for bet in _BETS:
            wealth = 0.0
            for chance, after in steps:
                total, weight, square = (
                    getattr(after, f"{side}_{name}") - getattr(before, f"{side}_{name}")
                    for name in ("total", "weight", "square")
                )
                loss = -np.log1p(-bet) - bet
                wealth += chance * np.exp(bet * (total - weight * difference) - loss * square)
            assert wealth <= 1.0 + 1e-9


@given(st.integers(0, 2**32), st.integers(0, 40), OPEN, st.floats(-0.5, 0.5))
def test_no_rollout_falls_further_below_what_was_predicted_than_its_bound(
    seed: int, count: int, share: float, difference: float
) -> None:
    before = including(Difference.within(0.0, 1.0), some(seed, count, difference=difference))

    for learner in (True, False):
        for value in (0.0, 1.0):
            one = Seen(np.array([value]), np.array([learner]), np.array([share]))
            paths = before._paths(one.values, one.learner, one.shares)
            learned, controlled = _arm_means(paths)
            for side, lead in (("rising", learned - controlled), ("falling", controlled - learned)):
                fall = np.diff(paths[f"{side}_weight"]) * lead - np.diff(paths[f"{side}_total"])
                assert fall <= 1.0 + 1e-9


@given(st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=4))
def test_one_by_one_or_all_at_once_gives_the_same_bits(seed: int, cuts: list[int]) -> None:
    seen = some(seed, 60, share=0.3)
    edges = [0, *sorted(cuts), 60]

    in_parts = Difference.within(-1.0, 1.0)
    for start, end in pairwise(edges):
        in_parts = including(in_parts, seen.part(start, end))

    assert in_parts == including(Difference.within(-1.0, 1.0), seen)


def test_stored_as_json_and_resumed_it_goes_on_with_the_same_bits() -> None:
    first, second = some(1, 500), some(2, 500)
    known = including(Difference.within(0.0, 3.0), first)

    stored = json.loads(json.dumps(known._asdict()))

    resumed = Difference.from_numbers(stored)
    assert including(resumed, second) == including(known, second)


@pytest.mark.parametrize("broken", [{}, {"rising_total": float("nan")}, {"learner_count": -1.0}])
def test_broken_numbers_are_refused(broken: dict[str, float]) -> None:
    numbers = Difference.within(0.0, 1.0)._asdict() | broken if broken else broken

    with pytest.raises(ValueError, match=r"expected the numbers|must be finite"):
        Difference.from_numbers(numbers)


def test_watching_sees_what_looking_sees() -> None:
    seen = some(3, 83, difference=0.2)
    known = including(Difference.within(0.0, 2.0), some(4, 30))

    watched = known.path_bounds(
        seen.values, learner=seen.learner, shares=seen.shares, alpha=0.05, every=8
    )

    assert watched.rollouts.tolist() == list(range(8, 81, 8))
    for end, lower, upper in zip(range(8, 81, 8), watched.lower, watched.upper, strict=True):
        look = including(known, seen.part(0, end)).interval(alpha=0.05)
        assert (look.lower, look.upper) == pytest.approx((lower, upper), rel=1e-12)


def test_what_is_unknown_or_out_of_range_is_left_out() -> None:
    seen = some(5, 100)
    garbage = np.array([np.nan, np.inf, -np.inf, 1.0001, -0.0001])
    mixed = Seen(
        np.append(garbage, seen.values),
        np.append(np.array([True, False, True, False, True]), seen.learner),
        np.append(np.full(5, 0.5), seen.shares),
    )

    found = including(Difference.within(0.0, 1.0), mixed)

    assert found == including(Difference.within(0.0, 1.0), seen)


def test_before_the_first_rollout_everything_is_possible() -> None:
    assert Difference.within(-1.0, 2.0).interval(alpha=0.1) == (-3.0, 0.0, 3.0)


def test_rollouts_that_could_have_only_one_arm_tell_nothing() -> None:
    all_learner = Seen(np.ones(50), np.ones(50, bool), np.ones(50))

    found = including(Difference.within(0.0, 1.0), all_learner)

    assert found.interval(alpha=0.1) == (-1.0, 0.0, 1.0)
    assert found.learner_count == 50.0


@pytest.mark.parametrize(
    ("learner", "share", "words"),
    [
        pytest.param(True, 0.0, "share was 0", id="the learner had no share"),
        pytest.param(False, 1.0, "share was 0", id="the control had no share"),
        pytest.param(True, 1.5, "probability", id="no probability"),
        pytest.param(True, float("nan"), "probability", id="NaN"),
    ],
)
def test_impossible_assignments_are_refused(learner: bool, share: float, words: str) -> None:
    seen = Seen(np.array([1.0]), np.array([learner]), np.array([share]))

    with pytest.raises(ValueError, match=words):
        including(Difference.within(0.0, 1.0), seen)


@given(st.integers(0, 2**32), OPEN, st.floats(-5.0, 5.0), st.floats(0.1, 9.0))
def test_units_do_not_matter(seed: int, share: float, lowest: float, width: float) -> None:
    seen = some(seed, 200, share=share)
    scaled = seen._replace(values=np.clip(lowest + width * seen.values, lowest, lowest + width))

    found = including(Difference.within(lowest, lowest + width), scaled).interval(alpha=0.05)

    plain = including(Difference.within(0.0, 1.0), seen).interval(alpha=0.05)
    assert found == pytest.approx([width * bound for bound in plain], rel=1e-6, abs=1e-6)


@given(st.integers(0, 2**32), OPEN)
def test_arms_exchanged_exchange_the_bounds(seed: int, share: float) -> None:
    seen = some(seed, 100, share=share)

    there = including(Difference.within(0.0, 1.0), seen).interval(alpha=0.05)
    exchanged = Seen(seen.values, ~seen.learner, 1.0 - seen.shares)
    back = including(Difference.within(0.0, 1.0), exchanged).interval(alpha=0.05)

    assert (there.lower, there.upper) == pytest.approx((-back.upper, -back.lower), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "shares"),
    [
        pytest.param(successes(0.5), np.full(LENGTH, 0.5), id="successes at half share"),
        pytest.param(successes(0.95), np.full(LENGTH, 0.05), id="rare failures at a small share"),
        pytest.param(evenly, np.full(LENGTH, 0.95), id="continuous rewards, small control"),
        pytest.param(skewed, ladder(LENGTH), id="skewed rewards up the ladder"),
    ],
)
def test_at_most_one_in_a_hundred_equal_learners_is_ever_called_better(
    draw: Draw, shares: FloatArray
) -> None:
    rng, better, worse = np.random.default_rng(11), 0, 0

    for _ in range(STREAMS):
        learner = rng.random(LENGTH) < shares
        bounds = Difference.within(0.0, 1.0).path_bounds(
            draw(rng, LENGTH), learner=learner, shares=shares, alpha=ALPHA, every=8
        )
        better += bool((bounds.lower > 0.0).any())
        worse += bool((bounds.upper < 0.0).any())

    assert better <= 0.01 * STREAMS
    assert worse <= 0.01 * STREAMS


@pytest.mark.slow
def test_bounds_hold_at_all_times_while_both_arms_and_the_share_change() -> None:
    rng, missed, streams, length = np.random.default_rng(12), 0, 200, 4_000
    shares = ladder(length)
    controlled = 0.5 + 0.3 * np.sin(np.arange(length) / 300.0)  # the world changes for both
    difference = np.linspace(-0.2, 0.2, length)  # and the learner learns

    for _ in range(streams):
        learner = rng.random(length) < shares
        values = (rng.random(length) < controlled + difference * learner).astype(np.float64)
        known = Difference.within(0.0, 1.0)
        bounds = known.path_bounds(values, learner=learner, shares=shares, alpha=0.1, every=1)
        paths = known._paths(values, learner, shares)
        rising, falling = (
            np.cumsum(np.diff(paths[f"{side}_weight"]) * difference) / paths[f"{side}_weight"][1:]
            for side in ("rising", "falling")
        )
        missed += bool((bounds.lower > rising).any()) + bool((bounds.upper < falling).any())

    assert missed <= 0.1 * 2 * streams


@pytest.mark.slow
@pytest.mark.parametrize(
    ("difference", "share", "rollouts"),
    [(0.2, 0.5, 500), (0.1, 0.5, 1_800), (0.05, 0.5, 6_500), (0.2, 0.05, 3_000)],
)
def test_a_lift_is_proven_in_so_many_rollouts(
    difference: float, share: float, rollouts: int
) -> None:
    firsts = []

    for seed in range(30):
        seen = some(seed, 12_000, difference=difference, share=share)
        bounds = Difference.within(0.0, 1.0).path_bounds(
            seen.values, learner=seen.learner, shares=seen.shares, alpha=ALPHA, every=8
        )
        proven = bounds.rollouts[bounds.lower > 0.0]
        firsts.append(proven[0] if len(proven) else np.inf)

    assert np.quantile(firsts, 0.5, method="lower") <= rollouts
