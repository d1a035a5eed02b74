"""Random Fourier features: their inner products are the Gaussian kernel, on every machine alike."""

import hashlib
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl import kernel
from tau_live.rl.arrays import FloatArray, offsets
from tau_live.rl.crossing import Crossed
from tau_live.rl.kernel import features, frequencies, phases, waves

WIDTH = 4_096


def contexts(rows: list[list[float]]) -> Crossed:
    """Return contexts of these numbers, each number in a slot of its own, behind a constant."""
    slots = [[WIDTH, *range(7, 7 + len(row))] for row in rows]
    values = [[1.0, *row] for row in rows]
    return Crossed(
        np.array(list(chain.from_iterable(slots)), dtype=np.int64),
        np.array(list(chain.from_iterable(values))),
        offsets(np.array([len(row) for row in slots])),
    )


def gaussian(one: FloatArray, other: FloatArray) -> float:
    """Return the mean of two kernels of Rahimi and Recht, figure 1: deviations 1 / 0.4, 1 / 0.8."""
    square = float(((one - other) ** 2).sum())
    return float(np.exp(-(0.4**2) * square / 2.0) + np.exp(-(0.8**2) * square / 2.0)) / 2.0


NUMBERS = st.lists(st.floats(-3.0, 3.0), min_size=3, max_size=3)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(NUMBERS, NUMBERS, st.sampled_from([256, 1_024, 16_384]))
def test_inner_products_come_to_the_gaussian_kernel(
    one: list[float], other: list[float], count: int
) -> None:
    found = features(contexts([one, other]), WIDTH, count=count)

    # a product of two waves deviates by at most 1, their mean by the root of their number;
    # five of these, and what four parts of a hash are not yet normal
    expected = gaussian(np.array(one), np.array(other))
    assert float(found[0] @ found[1]) == pytest.approx(expected, abs=5.0 / count**0.5 + 0.01)


def test_more_waves_come_closer() -> None:
    rows = np.random.default_rng(1).normal(size=(40, 5))
    expected = np.array([[gaussian(one, other) for other in rows] for one in rows])

    errors = []
    for count in (64, 1_024, 16_384):
        found = features(contexts(rows.tolist()), WIDTH, count=count)
        errors.append(float(np.sqrt(((found @ found.T - expected) ** 2).mean())))

    assert errors[0] > 2.5 * errors[1] > 6.0 * errors[2]  # by 4 each on average
    assert errors[0] < 1.0 / 8.0


def test_the_constant_counts_for_nothing() -> None:
    bare = Crossed(np.array([WIDTH]), np.array([1.0]), np.array([0, 1]))
    louder = Crossed(np.array([WIDTH]), np.array([9.0]), np.array([0, 1]))

    found = features(bare, WIDTH, count=256)

    assert not frequencies(np.array([WIDTH]), WIDTH, count=256).any()
    assert found[0].tolist() == waves(phases(256)).tolist()
    assert found.tolist() == features(louder, WIDTH, count=256).tolist()


def test_no_contexts_have_no_features() -> None:
    nothing = Crossed(np.zeros(0, dtype=np.int64), np.zeros(0), np.array([0]))

    assert features(nothing, WIDTH, count=256).shape == (0, 256)


@pytest.mark.parametrize("at_once", [1, 256 * 3, 256 * 50])
def test_one_context_or_many_at_once_or_in_parts_the_same_bits(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    rows = [rng.normal(size=rng.integers(0, 9)).tolist() for _ in range(30)]
    together = features(contexts(rows), WIDTH, count=256)

    alone = np.concatenate([features(contexts([row]), WIDTH, count=256) for row in rows])
    monkeypatch.setattr(kernel, "_CHUNK", at_once)
    parts = features(contexts(rows), WIDTH, count=256)

    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(parts, together)


def test_entries_that_share_a_slot_add_up() -> None:
    twice = Crossed(np.array([WIDTH, 3, 3]), np.array([1.0, 0.5, 0.25]), np.array([0, 3]))
    once = Crossed(np.array([WIDTH, 3]), np.array([1.0, 0.75]), np.array([0, 2]))

    found = features(twice, WIDTH, count=256)

    np.testing.assert_allclose(found, features(once, WIDTH, count=256), atol=1e-12)


def test_frequencies_are_independent_of_each_other_and_nearly_normal() -> None:
    found = frequencies(np.arange(500), WIDTH, count=256) / np.resize((0.4, 0.8), 256)

    error = 1.0 / np.sqrt(found.size)
    assert abs(found.mean()) < 4.0 * error
    assert abs((found**2).mean() - 1.0) < 4.0 * np.sqrt(1.7) * error
    assert abs((found**3).mean()) < 4.0 * 4.0 * error
    assert (found**4).mean() == pytest.approx(2.7, abs=0.05)  # 3 - 6 / (5 * 4): four even parts
    slots = np.corrcoef(found) - np.eye(500)
    assert np.abs(slots).max() < 6.0 / np.sqrt(256)
    assert np.abs(np.corrcoef(found.T) - np.eye(256)).max() < 6.0 / np.sqrt(500)


def test_phases_are_even() -> None:
    found = np.sort(phases(1_024)) / (2.0 * np.pi)

    assert 0.0 <= found[0] <= found[-1] < 1.0
    steps = np.arange(1_024) / 1_024
    assert np.abs(found - steps).max() < 1.63 / np.sqrt(1_024)  # Kolmogorov, 1 in 100


def test_every_machine_and_every_version_has_the_same_frequencies() -> None:
    slots = np.array([0, 1, 4_095, WIDTH])

    found, begin = frequencies(slots, WIDTH, count=256), phases(256)

    # other ones would misread every checkpoint
    assert found[:, 0].tolist() == [
        0.5714565127222747,
        0.1844349333262936,
        -0.7677529613066275,
        0.0,
    ]
    assert begin[:2].tolist() == [0.6188737977237934, 0.28523520030344407]
    little = b"".join(np.asarray(one, dtype="<f8").tobytes() for one in (found, begin))
    assert hashlib.sha256(little).hexdigest() == (
        "88770bcbabc23abdb0cc072e109b34283843df75099758680829a6f7592988e8"
    )
