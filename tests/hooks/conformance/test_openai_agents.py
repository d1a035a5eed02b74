"""The adapter of openai-agents passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version, replay_faults

pytest.importorskip("agents.run")

from tau_live_hooks.openai_agents import ADAPTER
from tests.hooks.conformance.openai_agents_play import CANNOT, play

GOLDEN = Path(__file__).parents[1] / "golden" / "openai-agents"
PLAYED = [scenario for scenario in Scenario if scenario not in CANNOT]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []


def test_a_full_disk_changes_nothing_for_the_host(tmp_path: Path) -> None:
    module = "tests.hooks.conformance.openai_agents_play"

    found = full_disk_faults(
        "tau_live_hooks.openai_agents:ADAPTER",
        f"{module}:play",
        Scenario.TOOL_CALL,
        folder=tmp_path,
    )

    assert found == []


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_is_recorded_is_what_was_kept(scenario: Scenario, tmp_path: Path) -> None:
    kept, here = golden_version(GOLDEN), host_version(ADAPTER)
    if kept != here:
        pytest.skip(f"the recordings are of {kept}, and this is {here}")

    assert golden_faults(ADAPTER, play, scenario, golden=GOLDEN, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_was_kept_is_stored_like_a_play(scenario: Scenario, tmp_path: Path) -> None:
    assert replay_faults(ADAPTER, play, scenario, golden=GOLDEN, folder=tmp_path) == []
