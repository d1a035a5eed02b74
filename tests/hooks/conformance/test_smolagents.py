"""The adapter of smolagents passes what every adapter has to, with both kinds of its agents."""

from pathlib import Path

import pytest

from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Play, Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version, replay_faults

pytest.importorskip("smolagents")

from tau_live_hooks.smolagents import ADAPTER
from tests.hooks.conformance.smolagents_play import CANNOT, CODE_CANNOT, play, play_code

GOLDEN = Path(__file__).parents[1] / "golden"
PLAYED = [scenario for scenario in Scenario if scenario not in CANNOT]
BOTH = pytest.mark.parametrize(
    ("played", "golden"),
    [
        pytest.param(play, GOLDEN / "smolagents", id="tools"),
        pytest.param(play_code, GOLDEN / "smolagents-code", id="code"),
    ],
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms(scenario: Scenario, tmp_path: Path) -> None:
    if scenario in CANNOT:
        pytest.skip(CANNOT[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", Scenario)
def test_the_adapter_conforms_where_code_is_written(scenario: Scenario, tmp_path: Path) -> None:
    cannot = CANNOT | CODE_CANNOT
    if scenario in cannot:
        pytest.skip(cannot[scenario])

    assert faults(ADAPTER, play_code, scenario, folder=tmp_path) == []


@pytest.mark.parametrize("scenario", CODE_CANNOT)
def test_what_code_does_otherwise_is_seen_no_less(scenario: Scenario, tmp_path: Path) -> None:
    found = faults(ADAPTER, play_code, scenario, folder=tmp_path)

    assert [one for one in found if "the host shows" in one] == []


def test_a_full_disk_changes_nothing_for_the_host(tmp_path: Path) -> None:
    module = "tests.hooks.conformance.smolagents_play"

    found = full_disk_faults(
        "tau_live_hooks.smolagents:ADAPTER", f"{module}:play", Scenario.TOOL_CALL, folder=tmp_path
    )

    assert found == []


@BOTH
@pytest.mark.parametrize("scenario", PLAYED)
def test_what_is_recorded_is_what_was_kept(
    scenario: Scenario, played: Play, golden: Path, tmp_path: Path
) -> None:
    kept, here = golden_version(golden), host_version(ADAPTER)
    if kept != here:
        pytest.skip(f"the recordings are of {kept}, and this is {here}")

    assert golden_faults(ADAPTER, played, scenario, golden=golden, folder=tmp_path) == []


@BOTH
@pytest.mark.parametrize("scenario", PLAYED)
def test_what_was_kept_is_stored_like_a_play(
    scenario: Scenario, played: Play, golden: Path, tmp_path: Path
) -> None:
    assert replay_faults(ADAPTER, played, scenario, golden=golden, folder=tmp_path) == []
