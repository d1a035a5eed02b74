"""Drift: a change is found soon, where it is, and seldom where there is none."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray
from tau_live.rl.drift import Alarm, Chart, Direction, Drift, DriftRule, average_run, threshold

RULE = DriftRule()


def residuals(seed: int, count: int, *, rate: float = 0.5, after: int = 0) -> FloatArray:
    """Return successes minus 0.5; the rate holds from ``after`` on, before it is 0.5."""
    rates = np.where(np.arange(count) < after, 0.5, rate)
    return (np.random.default_rng(seed).random(count) < rates).astype(np.float64) - 0.5


def watched(values: FloatArray, rule: DriftRule = RULE) -> tuple[Alarm, ...]:
    return Drift.none().including((("a", value) for value in values.tolist()), rule)[1]


@given(st.floats(0.05, 1.0), st.floats(10.0, 1e9))
def test_the_threshold_makes_a_chart_run_as_long_as_asked(slack: float, length: float) -> None:
    found = threshold(slack, run_length=length)

    run = average_run(slack, threshold=found)
    assert run >= length * (1.0 - 1e-9)
    assert run == pytest.approx(length, rel=1e-6) or found < 1e-6


def test_the_formula_gives_the_published_run_lengths() -> None:
    """Montgomery, Introduction to Statistical Quality Control, table 9.3: k 0.5, h 4 and 5."""
    found = [average_run(0.5, threshold=h, shift=s) for h in (4.0, 5.0) for s in (0.0, 1.0, 2.0)]

    assert found == pytest.approx([168.0, 8.38, 3.34, 465.0, 10.4, 4.01], rel=0.04)


@pytest.mark.parametrize(("rate", "direction"), [(0.05, Direction.WORSE), (0.95, Direction.BETTER)])
def test_a_shift_is_found_soon_and_in_its_direction(rate: float, direction: Direction) -> None:
    """A shift of 0.9 standard deviations, after 500 residuals."""
    for seed in range(10):
        first = watched(residuals(seed, 600, rate=rate, after=500))[0]

        assert first.direction is direction
        assert 500 < first.seen <= 560
        assert abs(first.since - (first.seen - 500)) <= 25
        assert 0.5 < abs(first.shift) < 1.6
        assert (first.shift < 0.0) is (direction is Direction.WORSE)


def test_only_the_option_that_changed_alarms() -> None:
    steady, changed = residuals(1, 700), residuals(2, 700, rate=0.05, after=500)
    both = [
        (option, float(value))
        for pair in zip(steady, changed, strict=True)
        for option, value in zip("ab", pair, strict=True)
    ]

    drift, alarms = Drift.none().including(both, RULE)

    assert {alarm.option for alarm in alarms} == {"b"}
    assert drift.charts["a"].seen == 700
    assert drift.charts["b"].seen < 200  # began anew after the alarm


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_false_alarms_are_rare(rate: float) -> None:
    """At a rate of 0.9, the worst, 1 in 118,000; here are 400,000."""
    alarms = sum(len(watched(residuals(seed, 4_000, rate=rate))) for seed in range(100))

    assert alarms <= 8


@pytest.mark.slow
def test_normal_residuals_run_about_as_long_as_the_formula_says() -> None:
    """Learning the average on the way shortens it a little at first."""
    rule = replace(RULE, run_length=2_000.0)
    rng = np.random.default_rng(3)

    alarms = watched(rng.normal(0.1, 0.3, 200_000), rule)

    assert 1_000 < 200_000 / len(alarms) < 4_000


def test_a_few_rare_failures_make_no_alarm() -> None:
    values = np.full(1_000, 0.01)
    values[[500, 503, 505]] = -0.99

    assert watched(values) == ()


def test_residuals_that_are_hardly_any_make_no_alarm() -> None:
    values = np.append(np.zeros(500), np.full(500, 1e-3))

    assert watched(values) == ()


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    drift, _ = Drift.none().including([("a", 0.5), ("a", float("nan")), ("b", float("inf"))], RULE)

    assert drift == Drift(charts={"a": Chart().including(0.5, RULE)}, unusable=2)


def test_options_beyond_the_bound_are_counted_and_not_watched() -> None:
    rule = replace(RULE, most=2)

    drift, _ = Drift.none().including([(option, 0.1) for option in "abcabc"], rule)

    assert sorted(drift.charts) == ["a", "b"]
    assert drift.unwatched == 2


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(0, 300))
def test_stored_between_two_parts_it_ends_with_the_same_bits(seed: int, cut: int) -> None:
    values = [("counters", value) for value in residuals(seed, 300, rate=0.1, after=150).tolist()]
    whole, alarms = Drift.none().including(values, RULE)

    first, early = Drift.none().including(values[:cut], RULE)
    resumed = Drift.from_numbers(json.loads(json.dumps(first.numbers())))
    second, late = resumed.including(values[cut:], RULE)

    assert second == whole
    assert early + late == alarms


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"counters": {"unwatched": 0.0}},
        {"counters": {"unwatched": 0, "unusable": 0}, "option:a": {"seen": 1}},
        {
            "counters": {"unwatched": 0, "unusable": 0},
            "option:a": Chart()._asdict() | {"worse": float("nan")},
        },
    ],
)
def test_broken_numbers_are_refused(broken: dict[str, dict[str, float]]) -> None:
    with pytest.raises(ValueError, match=r"counters|needs|finite"):
        Drift.from_numbers(broken)
