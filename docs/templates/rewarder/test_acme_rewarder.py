"""What the rewarder makes of a run, by itself and in a store."""

import json
import subprocess
import sys
from pathlib import Path

import acme_rewarder
import pluggy
import pytest

import tau_live
from tau_live.core.hookspecs import RolloutSummary
from tau_live.core.records import RolloutStatus
from tau_live.core.settings import InferReward, Learner, Settings


@pytest.mark.parametrize(
    ("status", "errors", "expected"),
    [
        (RolloutStatus.SUCCEEDED, 0, 1.0),
        (RolloutStatus.SUCCEEDED, 2, -1.0),
        (RolloutStatus.CANCELLED, 0, None),
    ],
)
def test_a_run_is_worth_what_it_achieved(
    status: RolloutStatus, errors: int, expected: float | None
) -> None:
    summary = RolloutSummary(
        rollout_id="live-1", host="acme", status=status, session_completed=True, tool_errors=errors
    )

    parts = acme_rewarder.infer_reward(summary)

    assert (sum(part.value for part in parts) if parts is not None else None) == expected


def test_the_reward_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    store = tmp_path / "store.sqlite"
    manager = pluggy.PluginManager("acme")
    manager.register(acme_rewarder)
    tau_live.attach(Settings(store=store, infer_reward=InferReward.END, learner=Learner.FLUSH))
    tau_live.attach(manager)

    with tau_live.run("triage", key="17"):
        pass
    tau_live.flush()
    tau_live.detach()

    command = [sys.executable, "-m", "tau_live.cli", "rollouts", "--json", "--store", str(store)]
    shown = json.loads(subprocess.check_output(command))
    assert [rollout["total_reward"] for rollout in shown["rollouts"]] == [1.0]
