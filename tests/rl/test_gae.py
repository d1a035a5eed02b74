"""GAE: the definition, the reference's numbers, and the batched form against the plain one."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.gae import Advantages, Steps, batched_vtrace, gae

GOLDEN = Path(__file__).parents[1] / "golden" / "reference_cases.json"


class GaeCase(TypedDict, total=False):
    id: str
    rewards: list[float]
    values: list[float]
    dones: list[int]
    bootstrap: float
    normalize: bool
    normalize_returns: bool
    clip_advantages: float
    clip_returns: float
    advantages: list[float]
    returns: list[float]


def reference_cases() -> list[GaeCase]:
    cases: list[GaeCase] = json.loads(GOLDEN.read_text())["gae"]["cases"]
    return cases


@st.composite
def ragged(draw: st.DrawFn) -> tuple[Steps, float]:
    lengths = np.array(draw(st.lists(st.integers(1, 150), min_size=1, max_size=8)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = int(lengths.sum())
    rewards, values = rng.normal(size=(2, steps)) * draw(st.sampled_from([1e-3, 1.0, 1e4]))
    discounts = rng.choice([0.0, 0.5, 0.99, 1.0], size=steps)
    lambda_ = draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))
    return Steps(rewards, discounts, values, rng.normal(size=len(lengths)), lengths), lambda_


def from_the_definition(
    rewards: FloatArray,
    discounts: FloatArray,
    values: FloatArray,
    bootstrap: float,
    *,
    lambda_: float,
) -> list[float]:
    following = [*values[1:].tolist(), bootstrap]
    steps = range(len(rewards))
    deltas = [rewards[t] + discounts[t] * following[t] - values[t] for t in steps]
    return [
        sum(deltas[k] * float(np.prod(discounts[t:k] * lambda_)) for k in range(t, len(deltas)))
        for t in steps
    ]


def split(steps: Steps) -> list[tuple[slice, float]]:
    ends = np.cumsum(steps.lengths)
    return [
        (slice(int(end - length), int(end)), float(bootstrap))
        for end, length, bootstrap in zip(ends, steps.lengths, steps.bootstraps, strict=True)
    ]


def normalised(numbers: FloatArray, clip: float | None) -> FloatArray:
    """Return what the reference makes of each rollout by itself, and tau-live of none."""
    centred: FloatArray = (numbers - numbers.mean()) / np.sqrt(numbers.var() + 1e-8)
    return centred if clip is None else np.clip(centred, -clip, clip)


@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: case["id"])
def test_agrees_with_the_reference(case: GaeCase) -> None:
    discounts = 0.99 * (1.0 - np.array(case["dones"], dtype=np.float64))
    rewards, values = np.array(case["rewards"], float), np.array(case["values"], float)

    found = gae(rewards, discounts, values, case["bootstrap"], lambda_=0.95)

    advantages, returns = found.advantages, found.returns
    if case["normalize"]:
        advantages = normalised(advantages, case.get("clip_advantages"))
    if case.get("normalize_returns"):
        returns = normalised(returns, case.get("clip_returns"))
    np.testing.assert_allclose(advantages, case["advantages"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(returns, case["returns"], rtol=0, atol=1e-12)


@pytest.mark.slow
@given(ragged())
@settings(max_examples=30, deadline=None)
def test_equals_the_definition(case: tuple[Steps, float]) -> None:
    steps, lambda_ = case
    part, bootstrap = split(steps)[0]
    arrays = steps.rewards[part], steps.discounts[part], steps.values[part]

    found = gae(*arrays, bootstrap, lambda_=lambda_)

    expected = from_the_definition(*arrays, bootstrap, lambda_=lambda_)
    np.testing.assert_allclose(found.advantages, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.returns, found.advantages + arrays[2])


def uncorrected(steps: Steps, *, lambda_: float) -> Advantages:
    """Return V-trace without any correction, which is GAE."""
    return batched_vtrace(steps, np.ones(len(steps.rewards)), lambda_=lambda_)


@pytest.mark.slow
@given(ragged())
@settings(deadline=None)
def test_batched_equals_one_rollout_after_another(case: tuple[Steps, float]) -> None:
    steps, lambda_ = case

    found = uncorrected(steps, lambda_=lambda_)

    for part, bootstrap in split(steps):
        one = gae(
            steps.rewards[part],
            steps.discounts[part],
            steps.values[part],
            bootstrap,
            lambda_=lambda_,
        )
        scale = 1e-9 * (1.0 + np.abs(one.advantages).max())
        np.testing.assert_allclose(found.advantages[part], one.advantages, rtol=0, atol=scale)
        np.testing.assert_allclose(found.returns[part], one.returns, rtol=0, atol=scale)


def test_vtrace_of_two_steps_in_closed_form() -> None:
    steps = Steps(
        np.array([1.0, 2.0]),
        np.array([0.9, 0.0]),
        np.array([0.5, 0.25]),
        np.zeros(1),
        np.array([2]),
    )

    found = batched_vtrace(steps, np.array([0.5, 0.8]), lambda_=1.0)

    last = 2.0 - 0.25
    first = 1.0 + 0.9 * 0.25 - 0.5
    np.testing.assert_allclose(found.advantages, [first + 0.9 * 0.8 * last, last], rtol=1e-14)
    np.testing.assert_allclose(
        found.returns, [0.5 + 0.5 * first + 0.9 * 0.5 * 0.8 * last, 0.25 + 0.8 * last], rtol=1e-14
    )


@pytest.mark.parametrize(
    ("last_discount", "bootstrap", "expected"),
    [
        pytest.param(0.0, 9.0, [1.0, 1.0], id="terminated: what follows is worth nothing"),
        pytest.param(1.0, 9.0, [10.0, 10.0], id="cut off: what would have followed counts"),
    ],
)
def test_termination_is_not_truncation(
    last_discount: float, bootstrap: float, expected: list[float]
) -> None:
    rewards, values = np.array([0.0, 1.0]), np.zeros(2)

    found = gae(rewards, np.array([1.0, last_discount]), values, bootstrap, lambda_=1.0)

    assert found.advantages.tolist() == expected


@pytest.mark.parametrize("longest", [40, 3_000])
def test_equals_one_rollout_after_another_where_parts_cut_rollouts(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lengths = rng.integers(1, longest + 1, size=150_000 // longest)
    size = int(lengths.sum())
    rewards, values = rng.normal(size=(2, size))
    discounts = np.where(rng.random(size) < 0.01, 0.0, 0.99)
    bootstraps = rng.normal(size=len(lengths))

    found = uncorrected(Steps(rewards, discounts, values, bootstraps, lengths), lambda_=0.95)

    ends = np.cumsum(lengths)
    for rollout in rng.integers(len(lengths), size=20):
        steps = slice(ends[rollout] - lengths[rollout], ends[rollout])
        one = gae(
            rewards[steps], discounts[steps], values[steps], bootstraps[rollout], lambda_=0.95
        )
        np.testing.assert_allclose(found.advantages[steps], one.advantages, atol=1e-10)
        np.testing.assert_allclose(found.returns[steps], one.returns, atol=1e-10)


@pytest.mark.parametrize("discount", [-0.5, 1.0 + 1e-9, np.inf])
def test_a_discount_out_of_range_is_refused_even_where_lambda_hides_it(discount: float) -> None:
    discounts = np.array([1.0, discount, 0.0])

    with pytest.raises(ValueError, match="discounts"):
        uncorrected(
            Steps(np.zeros(3), discounts, np.zeros(3), np.zeros(1), np.array([3])), lambda_=0.0
        )


@pytest.mark.parametrize("field", ["rewards", "values", "discounts", "bootstraps"])
def test_a_nan_names_its_rollout_and_field(field: str) -> None:
    steps = Steps(np.ones(6), np.ones(6), np.ones(6), np.ones(3), np.array([1, 3, 2]))
    getattr(steps, field)[1 if field == "bootstraps" else 3] = np.nan

    with pytest.raises(ValueError, match=f"'{field}' of rollout 1"):
        uncorrected(steps, lambda_=0.95)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lambda_": 1.5}, r"'lambda_' must be finite and within \[0.0, 1.0\]"),
        ({"lambda_": np.nan}, r"'lambda_' must be finite"),
        ({"discounts": np.array([1.5, 0.0])}, r"'discounts' must be finite and within"),
        ({"rewards": np.ones(3)}, "length mismatch"),
        ({"rewards": np.array([np.inf, 0.0])}, "'rewards'"),
        ({"bootstrap": np.nan}, "'bootstrap'"),
    ],
)
def test_what_is_out_of_range_is_refused(
    change: dict[str, FloatArray | float], message: str
) -> None:
    arguments: dict[str, FloatArray | float] = {
        "rewards": np.zeros(2),
        "discounts": np.ones(2),
        "values": np.zeros(2),
        "bootstrap": 0.0,
        "lambda_": 0.95,
    }

    with pytest.raises(ValueError, match=message):
        gae(**(arguments | change))  # type: ignore[arg-type]  # arrays and floats, by name


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (np.array([1, 2]), "length mismatch"),
        (np.array([0, 2]), "at least 1"),
        (np.array([2]), "length"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths: IntArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        uncorrected(Steps(np.ones(2), np.ones(2), np.ones(2), np.ones(2), lengths), lambda_=0.9)


def test_no_step_is_refused() -> None:
    nothing = np.zeros(0)

    with pytest.raises(ValueError, match="at least one step"):
        gae(nothing, nothing, nothing, 0.0, lambda_=0.9)
