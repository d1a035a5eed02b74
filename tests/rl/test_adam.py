"""Adam: the published algorithm."""

import numpy as np
import pytest

from tau_live.rl.adam import AdamState, adam_step


def test_the_first_step_is_one_learning_rate_against_the_sign_of_the_gradient() -> None:
    gradient = np.array([3.0, -0.001, 0.0])

    stepped = adam_step(np.zeros(3), gradient, AdamState.untrained(3), learning_rate=0.1)

    np.testing.assert_allclose(stepped.parameters, [-0.1, 0.1, 0.0], rtol=1e-4)
    assert stepped.state.steps == 1


def test_two_steps_in_closed_form() -> None:
    first = adam_step(np.zeros(1), np.array([1.0]), AdamState.untrained(1), learning_rate=0.1)

    second = adam_step(first.parameters, np.array([2.0]), first.state, learning_rate=0.1)

    mean = (0.9 * 0.1 * 1.0 + 0.1 * 2.0) / (1 - 0.9**2)
    square = (0.999 * 0.001 * 1.0 + 0.001 * 4.0) / (1 - 0.999**2)
    expected = first.parameters[0] - 0.1 * mean / (np.sqrt(square) + 1e-8)
    assert second.parameters[0] == pytest.approx(expected, rel=1e-12)


def test_the_arguments_stay_as_they_were() -> None:
    parameters, state = np.ones(2), AdamState.untrained(2)

    adam_step(parameters, np.ones(2), state, learning_rate=0.1)

    assert parameters.tolist() == [1.0, 1.0]
    assert state.first.tolist() == [0.0, 0.0]


def test_finds_the_bottom_of_a_bowl() -> None:
    parameters, state = np.array([3.0, -2.0]), AdamState.untrained(2)

    for _ in range(500):
        parameters, state = adam_step(parameters, 2.0 * parameters, state, learning_rate=0.05)

    np.testing.assert_allclose(parameters, 0.0, atol=1e-2)


def test_is_saved_and_loaded() -> None:
    state = adam_step(np.zeros(2), np.ones(2), AdamState.untrained(2), learning_rate=0.1).state

    loaded = AdamState.from_arrays(state.arrays(), size=2)

    np.testing.assert_array_equal(loaded.first, state.first)
    np.testing.assert_array_equal(loaded.second, state.second)
    assert loaded.steps == 1


def test_damaged_arrays_are_refused() -> None:
    arrays = AdamState.untrained(2).arrays()

    with pytest.raises(ValueError, match="adam_second"):
        AdamState.from_arrays(arrays | {"adam_second": np.array([1.0, -1.0])}, size=2)
    with pytest.raises(ValueError, match="adam_first"):
        AdamState.from_arrays({k: v for k, v in arrays.items() if k != "adam_first"}, size=2)
