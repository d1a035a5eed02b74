"""The regression of each option as arrays: the same bits, and refused where they are damaged."""

from collections.abc import Callable

import numpy as np
import pytest

from tau_live.rl.arrays import FloatArray
from tau_live.rl.kernel import MOST, Kernel, Kernels, Penalty, Sums
from tests.rl.digests import digest
from tests.rl.kernels import WAVES, kernel_of, learned, slots


def test_kernels_are_saved_and_loaded_to_the_last_bit() -> None:
    kernels = learned([700, 3, 41])._replace(
        sums=Sums(90.0, 80.0, 70.0, -40.0, 50.0), penalty=Penalty(4.0, -3.0, 9.0)
    )
    kernel = kernels._replace(sums=Sums(90.0, 80.0, 70.0, 40.0, 50.0)).to_kernel(0.5, (1.0, 2.0))

    loaded = Kernels.from_arrays(kernels.arrays(), width=WAVES)
    served = Kernel.from_arrays(kernel.arrays(), width=WAVES)

    assert digest(loaded.arrays()) == digest(kernels.arrays())
    assert loaded.names.tolist() == [700, 3, 41]
    assert (loaded.sums, loaded.penalty) == (kernels.sums, kernels.penalty)
    assert digest(served.arrays()) == digest(kernel.arrays())
    assert (served.trust.tolist(), served.width) == ([0.8] * 3, WAVES)
    more = (slots(3, 9), np.ones((2, WAVES)), np.ones(2), np.ones(2))
    gone_on = [digest(one.including(*more).arrays()) for one in (kernels, loaded)]
    assert gone_on[0] == gone_on[1]


def test_kernels_of_earlier_waves_are_left_out() -> None:
    arrays = {**learned([700, 3]).arrays(), **kernel_of([3, 8], np.ones((2, WAVES)), 0.5).arrays()}
    arrays["kernel_size"] = np.array([2])

    assert not Kernels.from_arrays(arrays, width=WAVES).fits
    assert not Kernel.from_arrays(arrays, width=WAVES).is_trusted


def test_kernels_of_a_fixed_penalty_are_learned_anew() -> None:
    arrays = learned([700, 3]).arrays()
    arrays["kernels_sums"] = arrays["kernels_sums"][:6]

    assert not Kernels.from_arrays(arrays, width=WAVES).fits


LEARNER = learned([700, 3]).arrays()
VERSION = kernel_of([3, 8], np.ones((2, WAVES)), 0.5).arrays()


@pytest.mark.parametrize(
    ("read", "arrays", "name"),
    [
        *(pytest.param(Kernels.from_arrays, LEARNER, name, id=name) for name in sorted(LEARNER)),
        *(pytest.param(Kernel.from_arrays, VERSION, name, id=name) for name in sorted(VERSION)),
    ],
)
def test_damaged_arrays_are_refused_by_name(
    read: Callable[..., object], arrays: dict[str, FloatArray], name: str
) -> None:
    damaged = np.array(arrays[name], dtype=np.float64)
    damaged.flat[0] = np.nan
    missing = {key: of for key, of in arrays.items() if key != name}

    for hurt in (damaged, np.zeros(5), np.full(damaged.shape, 1e9)[1:]):
        with pytest.raises(ValueError, match=name):
            read(arrays | {name: hurt}, width=WAVES)
    with pytest.raises(ValueError, match=name):
        read(missing, width=WAVES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernels_names", [3.0, 3.0]),
        ("kernels_sums", [MOST + 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.0, 0.0]),
        ("kernels_sums", [2.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.0, 0.0]),
        ("kernels_sums", [2.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.125, 0.0, 0.0]),
        ("kernels_sums", [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.0, 0.0]),
        ("kernels_sums", [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.125, 0.0, -1.0]),
        ("kernels_numbers", [[2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [2.0, 0, -1.0, 0, 0, 0, 0]]),
        ("kernels_numbers", [[2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [-2.0, 0, 0, 0, 0, 0, 0]]),
    ],
)
def test_a_learners_numbers_out_of_range_are_refused(name: str, value: list[float]) -> None:
    with pytest.raises(ValueError, match=name):
        Kernels.from_arrays(LEARNER | {name: np.array(value)}, width=WAVES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel_names", [3.0, 3.0]),
        ("kernel_names", [8.0, 3.0]),
        ("kernel_trust", [0.5, 1.1]),
        ("kernel_trust", [-0.1, 0.5]),
    ],
)
def test_a_versions_numbers_out_of_range_are_refused(name: str, value: list[float]) -> None:
    with pytest.raises(ValueError, match=name):
        Kernel.from_arrays(VERSION | {name: np.array(value)}, width=WAVES)
