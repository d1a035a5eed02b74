"""The oracle of our loss agrees with the recorded cases of the reference."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest

from tests.rl.reference_loss import PPOCoefficients, PPOSamples, ppo_loss

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


def reference_cases() -> list[LossCase]:
    cases: list[LossCase] = json.loads(GOLDEN.read_text())["ppo_loss"]["cases"]
    return [case for case in cases if not case.get("error", False)]


def samples(case: LossCase) -> PPOSamples:
    return PPOSamples(*np.array(case["samples"], dtype=np.float64).T)


@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: case["id"])
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
