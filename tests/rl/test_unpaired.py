"""Unpaired figures: those of the reference, with its errors."""

import pytest

from tau_live.rl.unpaired import UnpairedReference, sample_summary, unpaired_reference
from tests.rl import vectors


def test_a_sample_of_the_reference() -> None:
    found = sample_summary([1, 2, 3, 4, 5], alpha=0.05)

    assert found == (3.0, 2.5, 1.5811388300841898, 1.6140707088743669, 4.385929291125633)


def test_a_comparison_of_the_reference() -> None:
    found = unpaired_reference(vectors.FIVE_BASELINE, vectors.FIVE_TRAINED)

    assert found.mean_delta == pytest.approx(0.176, abs=1e-15)
    assert (found.delta_ci_low, found.delta_ci_high) == pytest.approx(
        (0.13829864723912413, 0.2137013527608758), abs=1e-15
    )
    assert found.effect_d == pytest.approx(5.786844353148576, abs=1e-13)


def test_a_p_value_of_the_reference() -> None:
    found = unpaired_reference([1, -1, 1, -1, 0.5], [1, 1, -1, 1, 1])

    assert found.p_value == pytest.approx(0.4110797787233156, abs=1e-15)


def test_two_equal_pairs_are_a_certainty_for_the_reference() -> None:
    found = unpaired_reference([0.1, 0.1], [0.2, 0.2])

    assert found == UnpairedReference(0.05, 0.1, 0.1, 0.1, 0.0, None)
    assert unpaired_reference([0.1, 0.1], [0.1, 0.1]).p_value == 1.0


@pytest.mark.parametrize(("alpha", "z"), [(0.10, 1.645), (0.05, 1.96), (0.01, 2.576)])
def test_quantiles_are_rounded(alpha: float, z: float) -> None:
    summary = sample_summary([-1.0, 1.0], alpha=alpha)
    found = unpaired_reference([-1.0, 1.0], [0.0, 2.0], alpha=alpha)

    assert summary.ci_high == pytest.approx(z, abs=1e-15)  # its standard error is 1
    assert found.delta_ci_high == pytest.approx(1.0 + z * 2**0.5, abs=1e-14)
    assert found.alpha == alpha


def test_another_alpha_is_refused_in_the_words_of_the_reference() -> None:
    with pytest.raises(ValueError, match=r"^unsupported alpha 0\.2; supported values are 0\.10, 0"):
        unpaired_reference([1, 2], [1, 2], alpha=0.2)
    with pytest.raises(ValueError) as refusal:
        sample_summary([1, 2], alpha=0.5)

    assert str(refusal.value) == "unsupported alpha 0.5; supported values are 0.10, 0.05, 0.01"


@pytest.mark.parametrize("values", [[], [1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_fewer_than_two_finite_numbers_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="two finite numbers"):
        unpaired_reference([1.0, 2.0], values)
