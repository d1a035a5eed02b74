"""The recurrence equals the loop over steps, however an array falls into parts."""

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.gae import parts, reverse_scan


def looped(terms: FloatArray, factors: FloatArray) -> FloatArray:
    found = np.zeros(len(terms))
    carried = 0.0
    for t in reversed(range(len(terms))):
        carried = terms[t] + factors[t] * carried
        found[t] = carried
    return found


@pytest.mark.parametrize("longest", [1, 2, 7, 33, 64, 65, 150, 5_000, 200_000])
@pytest.mark.parametrize("steps", [1, 2, 64, 65, 66, 130, 16_384, 16_385, 65_521, 150_000])
def test_equals_the_loop(steps: int, longest: int) -> None:
    rng = np.random.default_rng(steps + longest)
    longest = min(longest, steps)
    terms, factors = rng.normal(size=steps), rng.uniform(0.5, 1.0, size=steps)
    factors[longest - 1 :: longest] = 0.0
    factors[-1] = 0.0

    found = reverse_scan(terms, factors, longest=longest)

    np.testing.assert_allclose(found, looped(terms, factors), rtol=1e-10, atol=1e-10)


def test_the_arguments_stay_as_they_were() -> None:
    terms, factors = np.ones(200), np.append(np.full(199, 0.5), 0.0)

    reverse_scan(terms, factors, longest=200)

    assert (terms == 1.0).all()
    assert (factors[:-1] == 0.5).all()


@pytest.mark.parametrize("longest", [10, 1_000])
@pytest.mark.parametrize("steps", [1, 65, 16_385, 200_001])
def test_parts_cover_everything_once_from_the_end(steps: int, longest: int) -> None:
    found = [*parts(steps, longest)]

    assert [end for _, end in found] == [steps, *(begin for begin, _ in found[:-1])]
    assert found[-1][0] == 0
