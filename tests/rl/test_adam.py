"""Adam: the published algorithm."""

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.state import Adam


def stepped(parameters: FloatArray, gradient: FloatArray, adam: Adam, *, rate: float) -> Adam:
    return adam.descend(parameters, gradient.copy(), learning_rate=rate)


def test_the_first_step_is_one_learning_rate_against_the_sign_of_the_gradient() -> None:
    parameters, adam = np.zeros(3), Adam.initial(3).writable_copy()

    adam = stepped(parameters, np.array([3.0, -0.001, 0.0]), adam, rate=0.1)

    np.testing.assert_allclose(parameters, [-0.1, 0.1, 0.0], rtol=1e-4)
    assert adam.frozen().steps == 1


def test_two_steps_in_closed_form() -> None:
    parameters, adam = np.zeros(1), Adam.initial(1).writable_copy()
    adam = stepped(parameters, np.array([1.0]), adam, rate=0.1)
    first = float(parameters[0])

    adam = stepped(parameters, np.array([2.0]), adam, rate=0.1)

    mean = (0.9 * 0.1 * 1.0 + 0.1 * 2.0) / (1 - 0.9**2)
    square = (0.999 * 0.001 * 1.0 + 0.001 * 4.0) / (1 - 0.999**2)
    expected = first - 0.1 * mean / (np.sqrt(square) + 1e-8)
    assert parameters[0] == pytest.approx(expected, rel=1e-12)


def test_going_on_leaves_what_was_remembered_as_it_was() -> None:
    state = Adam.initial(2)

    stepped(np.ones(2), np.ones(2), state.writable_copy(), rate=0.1)

    assert state.first.tolist() == [0.0, 0.0]
    assert state.steps == 0


def test_finds_the_bottom_of_a_bowl() -> None:
    parameters, adam = np.array([3.0, -2.0]), Adam.initial(2).writable_copy()

    for _ in range(500):
        adam = stepped(parameters, 2.0 * parameters, adam, rate=0.05)

    np.testing.assert_allclose(parameters, 0.0, atol=1e-2)


def test_is_saved_and_loaded() -> None:
    adam = Adam.initial(2).writable_copy()
    adam = stepped(np.zeros(2), np.ones(2), adam, rate=0.1)
    state = adam.frozen()

    loaded = Adam.from_arrays(state.arrays("adam"), "adam", size=2)

    np.testing.assert_array_equal(loaded.first, state.first)
    np.testing.assert_array_equal(loaded.second, state.second)
    assert loaded.steps == 1


def test_damaged_arrays_are_refused() -> None:
    arrays = Adam.initial(2).arrays("adam")

    with pytest.raises(ValueError, match="adam_second"):
        Adam.from_arrays(arrays | {"adam_second": np.array([1.0, -1.0])}, "adam", size=2)
    with pytest.raises(ValueError, match="adam_first"):
        Adam.from_arrays({k: v for k, v in arrays.items() if k != "adam_first"}, "adam", size=2)
