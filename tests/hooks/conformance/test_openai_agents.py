"""The adapter of openai-agents passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("agents.run")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    from tau_live_hooks.openai_agents import ADAPTER
    from tests.hooks.conformance.openai_agents_play import CANNOT, play

    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
