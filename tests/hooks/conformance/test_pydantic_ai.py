"""The adapter of pydantic-ai passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("pydantic_ai")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    from tau_live_hooks.pydantic_ai import ADAPTER
    from tests.hooks.conformance.pydantic_ai_play import play

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
