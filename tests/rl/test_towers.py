"""The towers' gradient is that of what they compute, however they are used."""

from collections.abc import Callable

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.products import Floats
from tau_live.rl.towers import (
    Hidden,
    Outputs,
    Shape,
    backward_heads,
    backward_hidden,
    forward_heads,
    forward_hidden,
    initial,
    viewed,
    widened,
    with_ones,
)

SHAPE = Shape(3, 5, 4)
ROWS = 7


def parameters(rng: np.random.Generator, shape: Shape = SHAPE) -> FloatArray:
    found: FloatArray = rng.normal(size=shape.size) * 0.5
    return found


def outputs_of(flat: Floats, inputs: Floats, shape: Shape = SHAPE) -> Outputs:
    hidden = Hidden.buffers(len(inputs), shape, dtype=flat.dtype)
    outputs = Outputs.buffers(len(inputs), shape, dtype=flat.dtype)
    towers = viewed(flat, shape)
    forward_hidden(towers, inputs, hidden)
    forward_heads(towers, hidden, outputs)
    return outputs


def test_equals_two_networks_written_out() -> None:
    rng = np.random.default_rng(0)
    flat, x = parameters(rng), rng.normal(size=(ROWS, 3))

    found = outputs_of(flat, with_ones(x, dtype=np.float64))

    one = viewed(flat, SHAPE)
    last = [
        np.tanh(
            np.tanh(x @ one.first[1:, part] + one.first[0, part]) @ one.second[tower]
            + one.second_bias[part]
        )
        for tower, part in enumerate((slice(0, 5), slice(5, 10)))
    ]
    np.testing.assert_allclose(found.logits.T, last[0] @ one.actor + one.actor_bias, atol=1e-12)
    np.testing.assert_allclose(found.values, last[1] @ one.critic + one.critic_bias, atol=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    flat = parameters(rng)
    inputs = with_ones(rng.normal(size=(ROWS, 3)), dtype=np.float64)
    by = Outputs(rng.normal(size=(4, ROWS)), rng.normal(size=ROWS))
    gradient, hidden = np.zeros(SHAPE.size), Hidden.buffers(ROWS, SHAPE, dtype=np.float64)
    towers = viewed(flat, SHAPE)

    forward_hidden(towers, inputs, hidden)
    backward_heads(towers, viewed(gradient, SHAPE), hidden, by)
    backward_hidden(towers, viewed(gradient, SHAPE), inputs, hidden)

    def loss(at: FloatArray) -> float:
        found = outputs_of(at, inputs)
        return float((found.logits * by.logits).sum() + found.values @ by.values)

    np.testing.assert_allclose(gradient, differences(loss, flat), atol=1e-7)


def test_new_inputs_and_outputs_change_nothing_until_they_are_learned_about() -> None:
    rng = np.random.default_rng(4)
    flat, x = parameters(rng), rng.normal(size=(ROWS, 3))
    before = outputs_of(flat, with_ones(x, dtype=np.float64))

    more = widened(flat, SHAPE, Shape(5, 5, 6))
    wider = np.hstack([x, rng.normal(size=(ROWS, 2))])
    after = outputs_of(more, with_ones(wider, dtype=np.float64), Shape(5, 5, 6))

    np.testing.assert_allclose(after.logits[:4], before.logits, atol=1e-12)
    assert not after.logits[4:].any()
    np.testing.assert_allclose(after.values, before.values, atol=1e-12)


def test_begins_with_orthogonal_layers() -> None:
    shape = Shape(3, 5, 4)

    towers = viewed(initial(shape, np.random.default_rng(0), dtype=np.float64), shape)

    for tower in range(2):
        first = towers.first[1:, tower * 5 : tower * 5 + 5]
        np.testing.assert_allclose(first @ first.T, 2.0 * np.eye(3), atol=1e-12)
        np.testing.assert_allclose(
            towers.second[tower] @ towers.second[tower].T, 2.0 * np.eye(5), atol=1e-12
        )
    np.testing.assert_allclose(towers.actor.T @ towers.actor, 1e-4 * np.eye(4), atol=1e-12)
    assert towers.critic @ towers.critic == pytest.approx(1.0)
    assert not towers.first[0].any()
    assert not towers.second_bias.any()


def test_a_gain_of_zero_adds_nothing_at_first() -> None:
    flat = initial(SHAPE, np.random.default_rng(0), actor_gain=0.0, dtype=np.float64)

    found = outputs_of(flat, np.ones((2, 4)))

    assert not found.logits.any()


def test_the_same_seed_gives_the_same_parameters() -> None:
    first, second = (initial(SHAPE, np.random.default_rng(7)) for _ in range(2))

    assert first.dtype == np.float32
    assert first.tobytes() == second.tobytes()


def test_parameters_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="parameters"):
        viewed(np.zeros(3), SHAPE)


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
