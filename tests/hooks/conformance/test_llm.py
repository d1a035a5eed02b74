"""The adapter of llm passes what every adapter has to."""

from pathlib import Path

import pytest

from tau_live.testing import Scenario, faults

pytest.importorskip("llm")

WAYS = ("sync", "async", "routed", "async_routed")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", WAYS)
def test_the_adapter_conforms(
    name: str, scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tau_live_hooks.llm import ADAPTER
    from tests.hooks.conformance.llm_play import CANNOT, Way, play, prepared

    way = Way(name)
    if (scenario, way.is_async) in CANNOT:
        pytest.skip(CANNOT[scenario, way.is_async])
    user = tmp_path / "llm"
    user.mkdir()
    monkeypatch.setenv("LLM_USER_PATH", str(user))
    prepared(user)

    assert faults(ADAPTER, play(way), scenario, folder=tmp_path) == []
