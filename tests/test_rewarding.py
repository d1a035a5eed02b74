"""What a finished rollout, and each of its decisions, is learned from with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tau_live.builtin import load_plugins
from tau_live.collector import Collector
from tau_live.events import Event, Policy, RunEnd, RunStart, Status
from tau_live.events import Reward as RewardEvent
from tau_live.rewarding import Rewarding, earned_by_decisions
from tau_live.rewards.safety import HARD_GATE_TRIGGERED, SOURCE
from tau_live.rollouts import Reason, Reward, Rollout, RolloutStatus, rollout_id_of
from tau_live.settings import DeclaredReward, SafetySettings, Settings
from tau_live.store.records import LearnableRollout
from tau_live.store.sqlite import SqliteStore

DECISION = "live-1:attempt-1:decision-1"


def found(*rewards: Reward) -> LearnableRollout:
    ended = Rollout(rollout_id="live-1", status=RolloutStatus.SUCCEEDED, ended_at=5.0)
    return LearnableRollout(ended, [], list(rewards))


def bonus(value: float, *, name: str = "bonus") -> Reward:
    return Reward(rollout_id="live-1", decision_id=DECISION, name=name, value=value, at=6.0)


def test_what_a_decision_earned_counts_by_its_declared_weight() -> None:
    settings = Settings(rewards=(DeclaredReward(name="bonus", weight=0.5),))

    earned = earned_by_decisions(found(bonus(1.0), bonus(4.0, name="undeclared")), settings)

    assert earned == {DECISION: 0.5}


def test_fault_12_a_bonus_for_a_decision_does_not_undo_the_safety_clamp() -> None:
    marker = Reward(rollout_id="live-1", name=HARD_GATE_TRIGGERED, value=0.0, source=SOURCE, at=5.0)

    earned = earned_by_decisions(found(bonus(7.0), marker), Settings())

    assert earned.get(DECISION, 0.0) <= 0.0


HOST = "elsewhere"


def stored(store: SqliteStore, settings: Settings, *events: Event) -> Rollout:
    rewarding = Rewarding(settings, load_plugins(settings))
    with store.begin():
        Collector(store, rewarding=rewarding, owner=None).apply(
            [RunStart(host=HOST, run_id="r", at=1.0), *events]
        )
    return store.rollouts.rollout(rollout_id_of(HOST, "r"))


BLOCKED = Policy(
    host=HOST, run_id="r", at=2.0, seq=1, stage="tool_output", blocked=True, reason_codes=("own.x",)
)
ENDED = RunEnd(host=HOST, run_id="r", at=3.0, status=Status.OK)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "store.sqlite")
    yield opened
    opened.close()


def test_a_blocked_run_that_nobody_valued_is_worth_minus_one(store: SqliteStore) -> None:
    rollout = stored(store, Settings(), BLOCKED, ENDED)

    assert rollout.total_reward == -1.0  # RI3 of the contract: exactly, and nothing is added


def test_safety_takes_from_what_was_reported(store: SqliteStore) -> None:
    given = RewardEvent(host=HOST, run_id="r", at=2.5, seq=2, value=1.0)

    rollout = stored(store, Settings(), BLOCKED, given, ENDED)

    # SR3: the code 0.25 and the block 1.0, the reward clamped to 0, the gate another 1.0
    assert rollout.total_reward == -2.25
    assert rollout.status is RolloutStatus.SUCCEEDED


def test_a_hard_gated_run_fails_where_that_is_asked_for(store: SqliteStore) -> None:
    settings = Settings(safety=SafetySettings(reject_rollout_on_hard_gate=True))

    rollout = stored(store, settings, BLOCKED, ENDED)

    assert (rollout.status, rollout.reason) == (RolloutStatus.FAILED, Reason.SAFETY_BLOCKED)
