"""The adapter of llm passes what every adapter has to, in each way in which llm is asked."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Play, Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version, replay_faults

pytest.importorskip("llm")

from tau_live_hooks.llm import ADAPTER
from tests.hooks.conformance import llm_async_play, llm_play

GOLDEN = Path(__file__).parents[1] / "golden"
WAYS: Mapping[str, tuple[Play, Mapping[Scenario, str]]] = {
    "sync": (llm_play.play, llm_play.CANNOT),
    "async": (llm_async_play.play, llm_async_play.CANNOT),
    "routed": (llm_play.routed, llm_play.CANNOT),
    "async routed": (llm_async_play.routed, llm_async_play.CANNOT),
}
KEPT = {"llm": llm_play, "llm-async": llm_async_play}
PLAYED = [
    pytest.param(name, scenario, id=f"{name}: {scenario.value}")
    for name, module in KEPT.items()
    for scenario in Scenario
    if scenario not in module.CANNOT
]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("way", WAYS)
def test_the_adapter_conforms(way: str, scenario: Scenario, tmp_path: Path) -> None:
    play, cannot = WAYS[way]
    if scenario in cannot:
        pytest.skip(cannot[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []


def test_a_full_disk_changes_nothing_for_the_host(tmp_path: Path) -> None:
    play = "tests.hooks.conformance.llm_play:play"

    found = full_disk_faults(
        "tau_live_hooks.llm:ADAPTER", play, Scenario.TOOL_CALL, folder=tmp_path
    )

    assert found == []


@pytest.mark.parametrize(("name", "scenario"), PLAYED)
def test_what_is_recorded_is_what_was_kept(name: str, scenario: Scenario, tmp_path: Path) -> None:
    kept, here = golden_version(GOLDEN / name), host_version(ADAPTER)
    if kept != here:
        pytest.skip(f"the recordings are of {kept}, and this is {here}")
    play, golden = KEPT[name].play, GOLDEN / name

    assert golden_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []


@pytest.mark.parametrize(("name", "scenario"), PLAYED)
def test_what_was_kept_is_stored_like_a_play(name: str, scenario: Scenario, tmp_path: Path) -> None:
    play, golden = KEPT[name].play, GOLDEN / name

    assert replay_faults(ADAPTER, play, scenario, golden=golden, folder=tmp_path) == []
