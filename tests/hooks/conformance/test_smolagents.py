"""The adapter of smolagents passes what every adapter has to, with both kinds of its agents."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("smolagents")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ToolCallingAgent", "CodeAgent"])
@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, kind: str, tmp_path: Path) -> None:
    import smolagents

    from tau_live_hooks.smolagents import ADAPTER
    from tests.hooks.conformance.smolagents_play import CANNOT, CODE_CANNOT, play

    cannot = CANNOT | (CODE_CANNOT if kind == "CodeAgent" else {})
    if scenario in cannot:
        pytest.skip(cannot[scenario])

    def played(one: Scenario) -> str:
        return play(one, getattr(smolagents, kind))

    assert faults(ADAPTER, played, scenario, folder=tmp_path) == []
