"""The towers' gradient is that of what they compute, however they are used."""

from collections.abc import Callable

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.net import Shape, backward_towers, forward_towers, view, widen

SHAPE = Shape(3, 5, 4)
ROWS = 7


def parameters(rng: np.random.Generator, shape: Shape = SHAPE) -> FloatArray:
    found: FloatArray = rng.normal(size=shape.size) * 0.5
    return found


def with_ones(inputs: FloatArray) -> FloatArray:
    return np.hstack([np.ones((len(inputs), 1)), inputs])


def outputs_of(
    flat: FloatArray, inputs: FloatArray, shape: Shape = SHAPE
) -> tuple[FloatArray, FloatArray]:
    _, _, logits, values = forward_towers(view(flat, shape), inputs)
    return logits, values


def test_equals_two_networks_written_out() -> None:
    rng = np.random.default_rng(0)
    flat, x = parameters(rng), rng.normal(size=(ROWS, 3))

    logits, values = outputs_of(flat, with_ones(x))

    one = view(flat, SHAPE)
    last = [
        np.tanh(
            np.tanh(x @ one.first[1:, part] + one.first[0, part]) @ one.second[tower]
            + one.second_bias[part]
        )
        for tower, part in enumerate((slice(0, 5), slice(5, 10)))
    ]
    np.testing.assert_allclose(logits.T, last[0] @ one.actor + one.actor_bias, atol=1e-12)
    np.testing.assert_allclose(values, last[1] @ one.critic + one.critic_bias, atol=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    flat = parameters(rng)
    inputs = with_ones(rng.normal(size=(ROWS, 3)))
    by_logits, by_values = rng.normal(size=(4, ROWS)), rng.normal(size=ROWS)
    gradient, towers = np.zeros(SHAPE.size), view(flat, SHAPE)

    first, second, _, _ = forward_towers(towers, inputs)
    backward_towers(
        towers, inputs, (first, second), (by_logits, by_values), gradient=view(gradient, SHAPE)
    )

    def loss(at: FloatArray) -> float:
        logits, values = outputs_of(at, inputs)
        return float((logits * by_logits).sum() + values @ by_values)

    np.testing.assert_allclose(gradient, differences(loss, flat), atol=1e-7)


def test_new_inputs_and_outputs_change_nothing_until_they_are_learned_about() -> None:
    rng = np.random.default_rng(4)
    flat, x = parameters(rng), rng.normal(size=(ROWS, 3))
    logits, values = outputs_of(flat, with_ones(x))

    more = widen(flat, SHAPE, Shape(5, 5, 6))
    wider = np.hstack([x, rng.normal(size=(ROWS, 2))])
    after, values_after = outputs_of(more, with_ones(wider), Shape(5, 5, 6))

    np.testing.assert_allclose(after[:4], logits, atol=1e-12)
    assert not after[4:].any()
    np.testing.assert_allclose(values_after, values, atol=1e-12)


def test_parameters_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="parameters"):
        view(np.zeros(3), SHAPE)


def differences(
    loss: Callable[[FloatArray], float], at: FloatArray, step: float = 1e-6
) -> FloatArray:
    found = np.zeros(len(at))
    for index in range(len(at)):
        moved = at.copy()
        moved[index] += step
        above = loss(moved)
        moved[index] -= 2.0 * step
        found[index] = (above - loss(moved)) / (2.0 * step)
    return found
