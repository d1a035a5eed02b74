"""The adapter of langchain passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("langchain")
pytest.importorskip("langgraph")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    from tau_live_hooks.langchain import ADAPTER
    from tests.hooks.conformance.langchain_play import CANNOT, play

    if scenario.value in CANNOT:
        pytest.skip(CANNOT[scenario.value])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
