"""The PPO loss: the reference's numbers, and errors that name the field."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest

from tau_live.rl.loss import PPOCoefficients, PPOSamples, ppo_loss

GOLDEN = Path(__file__).parents[1] / "golden" / "reference_cases.json"


class LossCase(TypedDict, total=False):
    id: str
    samples: list[list[float]]
    kl_coefficient: float
    max_kl: float
    policy: float
    value: float
    entropy: float
    total: float
    mean_ratio: float
    clipped_fraction: float
    approx_kl_k2: float
    early_stop: bool
    error: bool


def reference_cases(*, errors: bool) -> list[LossCase]:
    cases: list[LossCase] = json.loads(GOLDEN.read_text())["ppo_loss"]["cases"]
    return [case for case in cases if case.get("error", False) is errors]


def samples(case: LossCase) -> PPOSamples:
    return PPOSamples(*np.array(case["samples"], dtype=np.float64).T)


def one(**fields: float) -> PPOSamples:
    plain = PPOSamples(*(np.array([0.5]) for _ in PPOSamples._fields))
    return plain._replace(**{name: np.array([value]) for name, value in fields.items()})


@pytest.mark.parametrize("case", reference_cases(errors=False), ids=lambda case: case["id"])
def test_agrees_with_the_reference(case: LossCase) -> None:
    coefficients = PPOCoefficients(kl=case.get("kl_coefficient", 0.0))

    found = ppo_loss(samples(case), coefficients, max_kl=case.get("max_kl"))

    expected = {
        "policy": case.get("policy"),
        "value": case.get("value"),
        "entropy": case.get("entropy"),
        "total": case.get("total"),
        "mean_ratio": case.get("mean_ratio"),
        "clipped_fraction": case.get("clipped_fraction"),
        "approx_kl": case.get("approx_kl_k2"),
    }
    for name, number in expected.items():
        if number is not None:
            assert getattr(found, name) == pytest.approx(number, rel=0, abs=1e-12), name
    assert found.early_stop is case.get("early_stop", False)


@pytest.mark.parametrize("case", reference_cases(errors=True), ids=lambda case: case["id"])
def test_an_overflow_is_an_error_that_names_the_field(case: LossCase) -> None:
    with pytest.raises(ValueError, match="non-finite ppo loss field 'mean_ratio'"):
        ppo_loss(samples(case))


@pytest.mark.parametrize("field", PPOSamples._fields)
def test_a_sample_that_is_not_finite_is_named_with_its_index(field: str) -> None:
    with pytest.raises(ValueError, match=f"non-finite PPO sample field '{field}' at index 0"):
        ppo_loss(one(**{field: np.nan}))


@pytest.mark.parametrize("field", PPOCoefficients._fields)
@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_a_coefficient_out_of_range_is_named(field: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"invalid ppo config: {field}.* must be finite and >= 0"):
        ppo_loss(one(), PPOCoefficients()._replace(**{field: bad}))


def test_max_kl_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match="invalid ppo config: max_kl"):
        ppo_loss(one(), max_kl=-1.0)


def test_no_sample_and_ragged_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="requires at least one sample"):
        ppo_loss(PPOSamples(*(np.zeros(0) for _ in range(6))))
    with pytest.raises(ValueError, match="six"):
        ppo_loss(one()._replace(returns=np.zeros(2)))
