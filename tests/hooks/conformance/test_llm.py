"""The adapter of llm passes what every adapter has to, in each way in which llm is asked."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tau_live.testing import Play, Scenario, faults

pytest.importorskip("llm")

from tau_live_hooks.llm import ADAPTER
from tests.hooks.conformance import llm_async_play, llm_play

WAYS: Mapping[str, tuple[Play, Mapping[Scenario, str]]] = {
    "sync": (llm_play.play, llm_play.CANNOT),
    "async": (llm_async_play.play, llm_async_play.CANNOT),
    "routed": (llm_play.routed, llm_play.CANNOT),
    "async routed": (llm_async_play.routed, llm_async_play.CANNOT),
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("way", WAYS)
def test_the_adapter_conforms(way: str, scenario: Scenario, tmp_path: Path) -> None:
    play, cannot = WAYS[way]
    if scenario in cannot:
        pytest.skip(cannot[scenario])

    assert faults(ADAPTER, play, scenario, folder=tmp_path) == []
