"""What a finished rollout, and each of its decisions, is learned from with."""

from tau_live.rewarding import earned_by_decisions
from tau_live.rewards.safety import HARD_GATE_TRIGGERED, SOURCE
from tau_live.rollouts import Reward, Rollout, RolloutStatus
from tau_live.settings import DeclaredReward, Settings
from tau_live.store.records import LearnableRollout

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
