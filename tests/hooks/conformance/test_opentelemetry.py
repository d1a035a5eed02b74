"""The adapter of OpenTelemetry passes what every adapter has to, as far as spans can tell it."""

from pathlib import Path

import pytest

from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Scenario
from tau_live.testing.golden import golden_faults, replay_faults

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("pydantic_ai")

from tau_live_hooks.opentelemetry import ADAPTER
from tests.hooks.conformance.opentelemetry_play import CANNOT, play, versions

GOLDEN = Path(__file__).parents[1] / "golden" / "opentelemetry"
PLAYED = [scenario for scenario in Scenario if scenario not in CANNOT]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []


def test_a_full_disk_changes_nothing_for_the_host(tmp_path: Path) -> None:
    module = "tests.hooks.conformance.opentelemetry_play"

    found = full_disk_faults(
        "tau_live_hooks.opentelemetry:ADAPTER", f"{module}:play", Scenario.TOOL_CALL,
        folder=tmp_path,
    )  # fmt: skip

    assert found == []


@pytest.fixture
def golden() -> Path:
    """The recordings that are kept; they are compared with the versions that they are of."""
    kept = (GOLDEN / "versions.txt").read_text().strip()
    if kept != versions():
        pytest.skip(f"the recordings are of {kept}, and this is {versions()}")
    return GOLDEN


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_is_recorded_is_what_was_kept(
    scenario: Scenario, golden: Path, tmp_path: Path
) -> None:
    assert golden_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", PLAYED)
def test_what_was_kept_is_stored_like_a_play(
    scenario: Scenario, golden: Path, tmp_path: Path
) -> None:
    assert replay_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []
