"""What a finished rollout, and each of its decisions, is learned from with."""

from collections.abc import Mapping

import pytest

from tau_live.core.events import OWN_HOST, Event, Policy, RunEnd, RunStart, Status
from tau_live.core.events import Reward as RewardEvent
from tau_live.core.records import (
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    rollout_id_of,
)
from tau_live.core.reward_rules import HARD_GATE_TRIGGERED, SOURCE
from tau_live.core.settings import InferReward, Settings
from tau_live.core.settings.tables import DeclaredReward, SafetySettings
from tau_live.record.collector import Collector
from tau_live.record.rewards import Rewarding, outcome_of
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.sqlite.store import SqliteStore

DECISION = "live-1:attempt-1:decision-1"


def earned_by_decisions(*rewards: Reward, settings: Settings) -> Mapping[str, float]:
    ended = Rollout(rollout_id="live-1", status=RolloutStatus.SUCCEEDED, ended_at=5.0)
    return outcome_of(rewards, ended, settings).decisions


def bonus(value: float, *, name: str = "bonus") -> Reward:
    return Reward(rollout_id="live-1", decision_id=DECISION, name=name, value=value, at=6.0)


def test_what_a_decision_earned_counts_by_its_declared_weight() -> None:
    settings = Settings(rewards=(DeclaredReward(name="bonus", weight=0.5),))

    earned = earned_by_decisions(bonus(1.0), bonus(4.0, name="undeclared"), settings=settings)

    assert earned == {DECISION: 0.5}


def test_fault_12_a_bonus_for_a_decision_does_not_undo_the_safety_clamp() -> None:
    marker = Reward(rollout_id="live-1", name=HARD_GATE_TRIGGERED, value=0.0, source=SOURCE, at=5.0)

    earned = earned_by_decisions(bonus(7.0), marker, settings=Settings())

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


def settled(store: SqliteStore, host: str, *, infer: InferReward, now: float) -> Rollout:
    settings = Settings(infer_reward=infer, reward_deadline_s=10.0)
    collector = Collector(store, rewarding=Rewarding(settings, load_plugins(settings)), owner=None)
    with store.begin():
        collector.apply(
            [
                RunStart(host=host, run_id="r", at=1.0),
                RunEnd(host=host, run_id="r", at=3.0, status=Status.OK),
            ]
        )
        collector.expire(now)
    return store.rollouts.rollout(rollout_id_of(host, "r"))


@pytest.mark.parametrize(
    ("infer", "host", "now", "total"),
    [
        pytest.param(InferReward.AUTO, HOST, 4.0, 0.5, id="a host's run, at its end"),
        pytest.param(InferReward.AUTO, OWN_HOST, 99.0, None, id="our own, never"),
        pytest.param(InferReward.END, OWN_HOST, 4.0, 0.5, id="any run, at its end"),
        pytest.param(InferReward.DEADLINE, HOST, 4.0, None, id="not before the deadline"),
        pytest.param(InferReward.DEADLINE, OWN_HOST, 14.0, 0.5, id="at the deadline"),
        pytest.param(InferReward.OFF, HOST, 99.0, None, id="never"),
    ],
)
def test_a_reward_is_inferred_when_it_is_asked_for(
    store: SqliteStore, infer: InferReward, host: str, now: float, total: float | None
) -> None:
    rollout = settled(store, host, infer=infer, now=now)

    assert rollout.total_reward == total


MISSED = "left_out_reward_missing"


def judged(store: SqliteStore, *values: float | None, now: float) -> dict[str, int]:
    """Give a finished run these rewards, look at it, and return what was counted."""
    settings = Settings(reward_deadline_s=10.0)
    rewarding = Rewarding(settings, load_plugins(settings))
    rollout = store.rollouts.rollout(rollout_id_of(OWN_HOST, "r"))
    with store.begin(), store.batch([]) as batch:
        for key, value in enumerate(values):
            batch.add_reward(
                Reward(rollout_id=rollout.rollout_id, value=value, key=str(key), at=now)
            )
        rewarding.settle(rollout, batch=batch, now=now)
    return {name: count for name, count in store.counters.counts().items() if count}


def test_a_run_whose_reward_comes_after_all_is_no_longer_missed(store: SqliteStore) -> None:
    settled(store, OWN_HOST, infer=InferReward.OFF, now=99.0)
    before = store.counters.counts()

    after = judged(store, 1.0, now=100.0)

    assert (before[MISSED], after) == (1, {})
    assert store.rollouts.rollout(rollout_id_of(OWN_HOST, "r")).ready_seq is not None


def test_a_run_that_is_looked_at_again_is_missed_once(store: SqliteStore) -> None:
    settled(store, OWN_HOST, infer=InferReward.OFF, now=99.0)

    after = [judged(store, None, now=100.0 + again) for again in range(3)]

    assert after == [{MISSED: 1}] * 3


def test_a_run_left_out_for_another_reason_is_counted_for_that_alone(store: SqliteStore) -> None:
    settled(store, OWN_HOST, infer=InferReward.OFF, now=99.0)

    after = judged(store, 1e200, now=100.0)

    assert after == {"left_out_reward_not_finite": 1}
