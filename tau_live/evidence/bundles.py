"""The bundles of payloads that a store's updates learned from."""

import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np

from tau_live.core.errors import TauLiveError
from tau_live.core.records import Decision, LearnableRollout, Update, attempt_id_of
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.decisions.policies import policy_config
from tau_live.evidence.artifacts import timestamp
from tau_live.evidence.payloads import (
    Advantages,
    Bundle,
    Checkpoint,
    CheckpointMetadata,
    Step,
    Trajectory,
)
from tau_live.learn.learner import PointLearner
from tau_live.learn.trajectories import CollectedRollouts, last_attempt
from tau_live.operate.why import as_learned
from tau_live.rl.arrays import FloatArray, offsets
from tau_live.rl.batch import Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.gae import Steps, batched_vtrace
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import rewards_to_go
from tau_live.store.roles import Store

LAST_S = 253_402_300_799.0
"""The last second that RFC 3339 can name; a clock may have been wrong."""

_PPO = PPOConfig()


def bundles(store: Store, settings: Settings) -> Iterator[Bundle]:
    """Yield a bundle for each rollout that an update learned from, in the order of the updates.

    A rollout is new to one update of each decision point, whose bundle it is in. Rollouts that are
    no longer stored are left out. Rewards are those that the update learned from, as far as they
    are known; advantages are those of GAE with the values that were stored with the decisions.

    Args:
        store: The store.
        settings: Those of the updates: weights of rewards, and what may be learned from.

    Raises:
        TauLiveError: With these settings an update would have learned from more than it did.
    """
    with store.reading():
        global_steps: dict[int, int] = {}
        for update in reversed(store.policies.updates()):
            if update.executed and update.version is not None:
                global_step = global_steps.get(update.parent, 0) + update.samples
                global_steps[update.version] = global_step
                yield from _bundles_of(store, settings, update, global_step=global_step)


def _bundles_of(
    store: Store, settings: Settings, update: Update, *, global_step: int
) -> Iterator[Bundle]:
    taught = _taught(store, settings, update)
    collected = _collect([rollout for rollout, _ in taught], settings, update)
    known = collected.trajectories
    if known is None:
        return
    checkpoint = _checkpoint(store, update, collected, global_step=global_step)
    by_id = {rollout.rollout.rollout_id: (rollout, since) for rollout, since in taught}
    steps, estimates = _steps(collected.decisions, known), _estimates(known)
    starts = offsets(known.length).tolist()
    for rollout_id, begin, end in zip(collected.rollout_ids, starts, starts[1:], strict=False):
        trajectory = _trajectory(*by_id[rollout_id], steps[begin:end], update.point)
        advantages, returns, targets = (numbers[begin:end].tolist() for numbers in estimates)
        yield Bundle(
            trajectory=trajectory,
            advantages=Advantages(
                batch_id=f"update-{update.update}",
                trajectory_id=trajectory.trajectory_id,
                advantages=advantages,
                returns=returns,
                value_targets=targets,
                normalized=False,
                created_at=_time_of(update.at),
                metadata={"estimator": "gae", "lambda": _PPO.lambda_},
            ),
            checkpoint=checkpoint,
        )


def _taught(
    store: Store, settings: Settings, update: Update
) -> list[tuple[LearnableRollout, str | None]]:
    """Return the rollouts that were new to an update, each with how its reward changed since."""
    ready = store.rewards.ready_rollouts(
        update.point,
        after=update.first_ready - 1,
        upto=update.last_ready,
        limit=update.last_ready - update.first_ready + 1,
    )
    return [as_learned(rollout, update, settings) for rollout in ready]


def _collect(
    rollouts: Sequence[LearnableRollout], settings: Settings, update: Update
) -> CollectedRollouts:
    """Return what an update could use of some rollouts.

    Raises:
        TauLiveError: That is more than it used.
    """
    learner = PointLearner(
        settings,
        _PPO,
        point=update.point,
        versions=[],
        state=LearnerState.initial(policy_config(settings)),
        at=update.at,
    )
    collected = learner.collect(rollouts)
    if len(collected.decisions) > update.samples:
        raise TauLiveError(
            f"update {update.update} learned from {update.samples} decisions, and with these "
            f"settings from {len(collected.decisions)}: export with the settings that it had"
        )
    return collected


def _estimates(known: Trajectories) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return ``[N]`` each: advantages, returns and value targets."""
    steps = Steps(
        known.reward, known.discount * _PPO.gamma, known.value, known.bootstrap, known.length
    )
    estimated = batched_vtrace(steps, np.ones_like(known.reward), lambda_=_PPO.lambda_)
    return estimated.advantages, rewards_to_go(known, gamma=_PPO.gamma), estimated.returns


def _steps(decisions: Sequence[Decision], known: Trajectories) -> list[Step]:
    """Return ``[N]``, the decisions as steps, each with its place in its rollout."""
    places = np.arange(len(decisions)) - np.repeat(offsets(known.length)[:-1], known.length)
    numbers = zip(
        decisions, places.tolist(), known.reward.tolist(), known.discount.tolist(), strict=True
    )
    return [
        Step(
            step_index=place,
            observation=_observation(decision),
            action=decision.applied,
            reward=reward,
            done=discount == 0.0,
            logprob=math.log(decision.propensity) if decision.propensity else None,
            value_estimate=decision.value,
            metadata={
                "decision_id": decision.decision_id,
                "policy_version": decision.policy_version,
            },
        )
        for decision, place, reward, discount in numbers
    ]


def _observation(decision: Decision) -> JsonObject:
    """Return what was observed: the packed features, and the context as far as it is kept."""
    return {
        "options": [*decision.options],
        "allowed": None if decision.allowed is None else [*decision.allowed],
        "context": decision.context,
        "features": decision.features,
        "encoded": b64encode(decision.encoded).decode(),
    }


def _trajectory(
    rollout: LearnableRollout, since: str | None, steps: Sequence[Step], point: str
) -> Trajectory:
    row = rollout.rollout
    return Trajectory(
        trajectory_id=f"{row.rollout_id}:{point}",
        rollout_id=row.rollout_id,
        episode_id=attempt_id_of(row.rollout_id, last_attempt(rollout.decisions)),
        steps=steps,
        discount_factor=_PPO.gamma,
        total_return=math.fsum(step.reward for step in steps),
        created_at=_time_of(row.ended_at or row.started_at or 0.0),
        metadata={"host": row.host, "point": point, **({"since": since} if since else {})},
    )


def _checkpoint(
    store: Store,
    update: Update,
    collected: CollectedRollouts,
    *,
    global_step: int,
) -> Checkpoint:
    row, known = store.policies.version(update.version or 0), collected.trajectories
    is_whole = known is not None and len(collected.rollout_ids) == update.trajectories
    where = PurePosixPath(store.checkpoints.address(row.file))
    is_kept = row.file in store.checkpoints.names()
    return Checkpoint(
        checkpoint_id=_id_of(update.point, row.version),
        algorithm=row.algorithm,
        policy_version=str(row.version),
        global_step=global_step,
        episode_count=row.rollouts,
        mean_reward=float(known.rollout_rewards.mean()) if known and is_whole else None,
        artifact_uri=f"{where.parent.name}/{where.name}" if is_kept else None,
        created_at=_time_of(row.created_at),
        metadata=CheckpointMetadata(
            parent_checkpoint_id=_id_of(update.point, update.parent) if update.parent else None
        ),
    )


def _id_of(point: str, version: int) -> str:
    return f"policy:{point}@{version}"


def _time_of(at: float) -> str:
    return timestamp(min(max(at, 0.0), LAST_S))
