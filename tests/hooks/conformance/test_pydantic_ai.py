"""The adapter of pydantic-ai passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version, replay_faults

pytest.importorskip("pydantic_ai")

from tau_live_hooks.pydantic_ai import ADAPTER
from tests.hooks.conformance.pydantic_ai_play import CANNOT, play

GOLDEN = Path(__file__).parents[1] / "golden" / "pydantic-ai"
PLAYED = [scenario for scenario in Scenario if scenario not in CANNOT]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []


def test_a_full_disk_changes_nothing_for_the_host(tmp_path: Path) -> None:
    module = "tests.hooks.conformance.pydantic_ai_play"

    found = full_disk_faults(
        "tau_live_hooks.pydantic_ai:ADAPTER", f"{module}:play", Scenario.TOOL_CALL, folder=tmp_path
    )

    assert found == []


@pytest.fixture
def golden() -> Path:
    """The recordings that are kept; they are compared with the version that they are of."""
    kept, here = golden_version(GOLDEN), host_version(ADAPTER)
    if kept != here:
        pytest.skip(f"the recordings are of {kept}, and this is {here}")
    return GOLDEN


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_is_recorded_is_what_was_kept(
    scenario: Scenario, golden: Path, tmp_path: Path
) -> None:
    assert golden_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", [Scenario.TOOL_CALL, Scenario.NESTED_AGENT, Scenario.HANDOFF])
def test_an_older_host_gets_ours_with_each_call_and_the_same_is_recorded(
    scenario: Scenario, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live_hooks.pydantic_ai.BASE", "what_it_does_not_have")

    assert golden_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_was_kept_is_stored_like_a_play(
    scenario: Scenario, golden: Path, tmp_path: Path
) -> None:
    assert replay_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []
