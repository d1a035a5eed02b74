"""The adapter of OpenTelemetry passes what every adapter has to, as far as spans can tell it."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pydantic_ai")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    from tau_live_hooks.opentelemetry import ADAPTER
    from tests.hooks.conformance.opentelemetry_play import CANNOT, play

    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
