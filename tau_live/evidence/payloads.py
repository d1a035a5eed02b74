"""Payloads: trajectories, advantages and checkpoints as JSON for others, and their checks."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import Natural, Share, Timestamp

Name = Annotated[str, Meta(pattern=r"\S")]
"""A text that is not blank."""

TOLERANCE = 1e-9
"""How far a total may be from the sum of its rewards."""


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of a trajectory: a decision.

    Attributes:
        step_index: Its place in the trajectory, from 0.
        observation: What was observed, any JSON value.
        action: What was done, any JSON value.
        reward: The reward received after it.
        done: Whether it ended the rollout; false where that was cut off.
        logprob: Natural logarithm of the probability with which the action was chosen; ``null``
            where that is unknown.
        value_estimate: The return from here that the deciding policy expected; ``null`` where it
            expected none.
        metadata: Open-ended.
    """

    step_index: Natural
    observation: object
    action: object
    reward: float
    done: bool
    logprob: float | None = None
    value_estimate: float | None = None
    metadata: JsonObject

    def __post_init__(self) -> None:
        _check_finite(
            "Step", reward=self.reward, logprob=self.logprob, value_estimate=self.value_estimate
        )


class Trajectory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of one rollout at one decision point.

    Attributes:
        schema_version: 1.
        trajectory_id: Its id.
        rollout_id: Its rollout; ``null`` where it is from elsewhere.
        episode_id: The attempt of the rollout; ``null`` likewise.
        steps: Its steps in order, at least one.
        discount_factor: The discount of one step.
        total_return: The sum of its rewards.
        created_at: When the rollout ended, RFC 3339, UTC.
        metadata: Open-ended.
    """

    schema_version: Literal[1] = 1
    trajectory_id: Name
    rollout_id: str | None = None
    episode_id: str | None = None
    steps: Annotated[Sequence[Step], Meta(min_length=1)]
    discount_factor: Share
    total_return: float
    created_at: Timestamp
    metadata: JsonObject

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError("Trajectory requires non-empty field 'steps'")
        for position, step in enumerate(self.steps):
            if step.step_index != position:
                raise ValueError(
                    f"Trajectory expected step_index={position} but found "
                    f"step_index={step.step_index} at position {position}"
                )
        if not 0.0 <= self.discount_factor <= 1.0:  # also refuses NaN
            raise ValueError(
                "Trajectory field 'discount_factor' must be in range [0.0, 1.0], "
                f"found {self.discount_factor!r}"
            )
        total = math.fsum(step.reward for step in self.steps)
        if not abs(self.total_return - total) <= TOLERANCE:  # also refuses NaN
            raise ValueError(
                f"Trajectory field 'total_return' must be the sum of its rewards, {total!r}, "
                f"found {self.total_return!r}"
            )


class Advantages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The advantages of a trajectory's steps.

    Attributes:
        schema_version: 1.
        batch_id: The update that they were estimated for.
        trajectory_id: The trajectory.
        advantages: How much better each action was than expected.
        returns: The discounted return after each step.
        value_targets: What a critic is taught to expect at each step.
        normalized: Whether the advantages were brought to mean 0 and deviation 1.
        created_at: When the update ended, RFC 3339, UTC.
        metadata: Open-ended.
    """

    schema_version: Literal[1] = 1
    batch_id: Name
    trajectory_id: Name
    advantages: Annotated[Sequence[float], Meta(min_length=1)]
    returns: Sequence[float]
    value_targets: Sequence[float]
    normalized: bool
    created_at: Timestamp
    metadata: JsonObject

    def __post_init__(self) -> None:
        if not self.advantages:
            raise ValueError("Advantages requires non-empty field 'advantages'")
        columns = {
            "advantages": self.advantages,
            "returns": self.returns,
            "value_targets": self.value_targets,
        }
        if len({len(column) for column in columns.values()}) > 1:
            lengths = " ".join(f"{name}={len(column)}" for name, column in columns.items())
            raise ValueError(f"Advantages length mismatch: {lengths}")
        for name, column in columns.items():
            for number in column:
                _check_finite("Advantages", **{name: number})


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a checkpoint comes from.

    Attributes:
        parent_checkpoint_id: The checkpoint that it was made from; ``null`` for a root.
    """

    parent_checkpoint_id: str | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of a policy.

    Attributes:
        schema_version: 1.
        checkpoint_id: Its id.
        algorithm: The algorithm that made it.
        policy_version: The version.
        global_step: The decisions that it and its ancestors were taught.
        episode_count: The rollouts that it and its ancestors were taught.
        mean_reward: Mean total reward of the rollouts that it was taught first; ``null`` where
            they are not all known any more.
        artifact_uri: Its file, from the folder of the store; ``null`` where it was pruned.
        created_at: When it was made, RFC 3339, UTC.
        metadata: Its origin.
    """

    schema_version: Literal[1] = 1
    checkpoint_id: Name
    algorithm: Name
    policy_version: Name
    global_step: Natural
    episode_count: Natural
    mean_reward: float | None = None
    artifact_uri: str | None = None
    created_at: Timestamp
    metadata: CheckpointMetadata

    def __post_init__(self) -> None:
        _check_finite("Checkpoint", mean_reward=self.mean_reward)


class Bundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trajectory, its advantages, and the checkpoint that learned from it.

    Attributes:
        schema_version: 1.
        trajectory: The trajectory.
        advantages: Its advantages, one for each step.
        checkpoint: The version that learned from it.
    """

    schema_version: Literal[1] = 1
    trajectory: Trajectory
    advantages: Advantages
    checkpoint: Checkpoint

    def __post_init__(self) -> None:
        own, other = self.trajectory.trajectory_id, self.advantages.trajectory_id
        if own != other:
            raise ValueError(f"trajectory_id mismatch: trajectory={own!r} advantages={other!r}")
        steps, estimated = len(self.trajectory.steps), len(self.advantages.advantages)
        if steps != estimated:
            raise ValueError(
                "trajectory/advantage length mismatch: "
                f"trajectory.steps={steps} advantages={estimated}"
            )
        if self.checkpoint.global_step < steps:
            raise ValueError(
                "checkpoint progression mismatch: "
                f"checkpoint.global_step={self.checkpoint.global_step} trajectory.steps={steps}"
            )


def _check_finite(kind: str, **numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{kind} field {name!r} must be a finite number, found {number!r}")


def lineage(checkpoints: Iterable[Checkpoint], leaf: str) -> list[Checkpoint]:
    """Return a checkpoint and its ancestors, the root first.

    Args:
        checkpoints: Checkpoints in any order; others than the ancestors may be among them.
        leaf: The id of the checkpoint.

    Raises:
        ValueError: An id is there twice, the leaf or a parent is missing, or the parents go round
            in a circle.
    """
    known: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        if known.setdefault(checkpoint.checkpoint_id, checkpoint) is not checkpoint:
            raise ValueError(f"duplicate checkpoint_id: {checkpoint.checkpoint_id!r}")
    if leaf not in known:
        raise ValueError(f"unknown leaf checkpoint: {leaf!r}")
    path = {leaf: known[leaf]}
    child = leaf
    while parent := (known[child].metadata.parent_checkpoint_id or "").strip():
        if parent not in known:
            raise ValueError(f"missing parent checkpoint: {parent!r} of {child!r}")
        if parent in path:
            raise ValueError(f"lineage cycle detected: {parent!r} is its own ancestor")
        path[parent] = known[parent]
        child = parent
    return [*path.values()][::-1]
