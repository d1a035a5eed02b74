"""What runs cost is stored, recorded and replayed, where prices are declared."""

from pathlib import Path

import pytest

import tau_live
from tau_live.core import events as ev
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredPrice
from tests.live.running import opened, rollout

R = rollout_id_of("bakery", "r")


@pytest.fixture
def settings(path: Path) -> Settings:
    price = DeclaredPrice(model="bread-*", input=2.0, output=8.0)
    return Settings(store=path, prices=(price,), record=path.parent / "recorded.jsonl")


def test_a_runs_cost_is_stored_and_in_its_recording(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    usage = {"input_tokens": 1e6, "output_tokens": 1e6}
    runtime.emit(ev.RunStart(host="bakery", run_id="r", at=1.0))
    runtime.emit(ev.ModelEnd(host="bakery", run_id="r", at=2.0, model_used="bread-1", usage=usage))
    runtime.emit(ev.RunEnd(host="bakery", run_id="r", at=3.0, status=ev.Status.OK))
    assert tau_live.flush(30)

    with opened(live) as store:
        [span] = [one for one in store.rollouts.spans(R) if one.kind == "model"]

    assert span.attributes["cost_usd"] == 10.0
    assert rollout(live, R).metadata["cost_usd"] == 10.0
    lines = (live.parent / "recorded.jsonl").read_bytes().splitlines()
    told = [ev.decode(line) for line in lines]
    assert [one.cost_usd for one in told if isinstance(one, ev.RunEnd)] == [10.0]
