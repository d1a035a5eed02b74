"""Finished rollouts, and the trajectories that are made of them."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tau_live.core.records import Decision, LearnableRollout, Reason, Reward, Rollout, RolloutStatus
from tau_live.learn.trajectories import CollectedRollouts, trajectories_of
from tau_live.record.rewards import Outcome, State
from tau_live.rl.batch import Trajectories
from tau_live.rl.features import WIDTH, encode, pack

OPTIONS = ("a", "b", "c")
PACKED = pack(encode({"x": 1.0}, [(name, None) for name in OPTIONS], width=WIDTH))
GOOD = Decision(
    rollout_id="r",
    attempt=1,
    ordinal=1,
    point="model",
    options=OPTIONS,
    chosen="b",
    applied="b",
    propensity=0.5,
    probabilities=(0.25, 0.5, 0.25),
    value=0.75,
    policy_version=3,
    at=1.0,
    encoded=PACKED,
)


def decision(ordinal: int, point: str = "model", **fields: Any) -> Decision:
    return replace(GOOD, ordinal=ordinal, point=point, **fields)


def reward(value: float | None, of: Decision | None = None, **fields: Any) -> Reward:
    return Reward(
        rollout_id="r", decision_id=of.decision_id if of else None, value=value, at=2.0, **fields
    )


def learnable(
    *decisions: Decision, rewards: tuple[Reward, ...] = (), **fields: Any
) -> LearnableRollout:
    known: dict[str, Any] = {
        "status": RolloutStatus.SUCCEEDED,
        "reason": Reason.COMPLETED,
        "total_reward": 1.0,
    }
    return LearnableRollout(
        Rollout(rollout_id="r", **(known | fields)), list(decisions), list(rewards)
    )


def outcome(
    one: LearnableRollout, *, early: Mapping[int, float] | None = None, **weights: float
) -> Outcome:
    given: dict[str, float] = {}
    for own in one.rewards:
        if own.decision_id and own.value is not None:
            value = weights.get(own.name, 0.0 if weights else 1.0) * own.value
            given[own.decision_id] = given.get(own.decision_id, 0.0) + value
    return Outcome(state=State.READY, decisions=given, early=early or {})


def collected(*rollouts: LearnableRollout, **options: Any) -> CollectedRollouts:
    known: dict[str, Any] = {"versions": [1, 2, 3], "discount": 0.9, "outcome": outcome}
    return trajectories_of(rollouts, "model", **(known | options))


def made(*rollouts: LearnableRollout, **options: Any) -> Trajectories:
    found = collected(*rollouts, **options).trajectories
    assert found is not None
    return found
