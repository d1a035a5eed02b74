"""``tau-live learn`` beside agents that have ended: what did not come is settled all the same."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.operate.records import Status
from tau_live.operate.status import status_of
from tau_live.runtime.learner_process import learn_until
from tests.contracts.making import begun, decision, reward
from tests.live.running import opened
from tests.writes import writes

ENDED = 1_000.0
SOLVED = DeclaredReward(name="solved", primary=True, deadline_s=5.0)


def ended(path: Path, *, number: int, waiting_until: float) -> None:
    """Store finished rollouts of a process that has ended; the first half is rewarded."""
    with opened(path) as store, store.begin():
        for at in range(number):
            name = f"live-{at}"
            begun(store, name)
            row = decision(1, name, point="model")
            writes(store).add_decision(structs.replace(row, propensity=0.5, policy_version=0))
            writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=ENDED)
            if at < number // 2:
                writes(store).add_reward(reward(1.0, name))
                writes(store).mark_ready(name, total_reward=1.0)
            else:
                writes(store).await_reward(name, until=waiting_until)


def learn_once(settings: Settings) -> None:
    learn_until(threading.Event(), settings, once=True, report=lambda _: None)


def of(settings: Settings) -> Status:
    with opened(settings.store) as store:
        return status_of(store, settings, now=time.time())


@pytest.mark.slow
@pytest.mark.parametrize(("default", "missing"), [(0.0, 0), (None, 300)])
def test_rewards_that_are_overdue_are_settled_without_any_agent(
    tmp_path: Path, default: float | None, missing: int
) -> None:
    path = tmp_path / "store.sqlite"
    declared = (replace(SOLVED, default=default),)
    settings = Settings(
        store=path, rewards=declared, update_interval=1_000, max_rollouts_per_update=1_000
    )
    ended(path, number=600, waiting_until=ENDED + 5.0)

    learn_once(settings)

    found = of(settings)
    assert (found.waiting_for_reward, found.became_ready) == (0, 600 - missing)
    assert found.counters.get("left_out_reward_missing", 0) == missing


def test_what_is_not_due_yet_still_waits(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    settings = Settings(store=path, rewards=(replace(SOLVED, default=0.0),))
    ended(path, number=8, waiting_until=time.time() + 60.0)

    learn_once(settings)

    assert of(settings).waiting_for_reward == 4


def test_nothing_is_settled_while_the_gate_holds(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    settings = Settings(store=path, rewards=(replace(SOLVED, default=0.0),))
    ended(path, number=8, waiting_until=ENDED + 5.0)
    with opened(path) as store:
        row = store.gate.load()
        store.gate.save(
            replace(row, state="hold", reason="operator", revision=row.revision + 1), entry=None
        )

    learn_once(settings)

    assert of(settings).waiting_for_reward == 4
