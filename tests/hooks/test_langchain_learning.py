"""What pays at a decision point of langchain is learned."""

from pathlib import Path

import pytest

import tau_live
from tau_live.core.records import rollout_id_of
from tau_live.runtime.adapters import options

pytest.importorskip("langchain")


from tests.hooks.langchain_agents import Mirror, agent, ask, attached, settings

pytestmark = pytest.mark.slow


def test_options_are_declared_in_python_and_learned(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    wrong, right = Mirror(says="wrong"), Mirror(says="right")
    made = agent(model=wrong, tools=[])

    @options("model")
    def models() -> dict[str, object]:
        return {"wrong": wrong, "right": right}

    def outcome(number: int) -> float:
        from uuid import UUID

        run_id = UUID(int=number)
        said = ask(made=made, config={"run_id": run_id})
        value = float(said == "right")
        tau_live.reward(value, run=rollout_id_of("langchain", str(run_id)), name="good")
        assert tau_live.flush()
        return value

    with attached(settings(path), monkeypatch, "model", asking=lambda: ask(made=made)):
        found = [outcome(number) for number in range(1, 61)]

    assert sum(found[-20:]) >= 18
    assert sum(found[-20:]) > sum(found[:20])
