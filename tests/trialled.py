"""Rollouts of two arms, written through the store's own roles."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward, HardGateCost, SafetySettings
from tau_live.decisions import checkpoints
from tau_live.decisions.policies import policy_config
from tau_live.learn.promotion.promoter import Promoter
from tau_live.learn.promotion.rules import Move, Step
from tau_live.rl.state import LearnerState
from tau_live.store.roles import Store
from tests.contracts.making import begun, decision, policy, reward, update
from tests.writes import writes

NOW = 1_000.0

HARM = DeclaredReward(name="harm", cost=True)
"""A safety cost that an operator has declared."""

GATED = SafetySettings(hard_gate_cost=HardGateCost.CRITICAL)
"""What the host's safety rules report is a critical violation."""


@dataclass(frozen=True)
class Arms:
    """How often each arm succeeds, and how often its reward never comes.

    Attributes:
        learner: Successes of the learner, in ``[0, 1]``.
        control: Successes of the control.
        share: The learner's share of the rollouts.
        lost: How often a reward never comes.
        harm: The cost of each of the learner's rollouts; ``None`` if no cost is ever reported.
    """

    learner: float = 0.5
    control: float = 0.5
    share: float = 0.5
    lost: float = 0.0
    harm: float | None = None


def settings_of(path: Path, **more: object) -> Settings:
    """Return settings with a range of rewards."""
    return Settings(store=path, reward_range=(0.0, 1.0), **more)  # type: ignore[arg-type]  # its fields


def fill(store: Store, number: int, arms: Arms, *, seed: int, start: int = 0) -> None:
    """Write so many finished rollouts of two arms."""
    rng = np.random.default_rng([seed, start])
    with store.begin():
        for at in range(start, start + number):
            learner = bool(rng.random() < arms.share)
            succeeds = bool(rng.random() < (arms.learner if learner else arms.control))
            is_lost = bool(rng.random() < arms.lost)
            add(store, f"r-{at}", learner=learner, share=arms.share)
            if arms.harm is not None:
                harm(store, f"r-{at}", arms.harm if learner else 0.0)
            end(store, f"r-{at}", None if is_lost else float(succeeds))


def add(store: Store, name: str, *, learner: bool, share: float, point: str = "model") -> None:
    """Begin a rollout whose first decision is one of that arm."""
    begun(store, name)
    arm = "learner" if learner else "control"
    row = replace(decision(1, name, point=point), arm=arm, share=share)
    writes(store).add_decision(row)


def harm(store: Store, name: str, cost: float) -> None:
    """Report what a rollout cost in safety."""
    writes(store).add_reward(reward(cost, name, name=HARM.name))


def end(store: Store, name: str, value: float | None, *, total: float | None = None) -> None:
    """End a rollout with a reward, its total if no other is given; without, it is left out."""
    writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=2.0)
    if value is not None:
        writes(store).add_reward(reward(value, name, name="reward"))
        writes(store).mark_ready(name, total_reward=value if total is None else total)


def serve(store: Store, settings: Settings, version: int, *, parent: int = 0) -> None:
    """Put a version into service whose checkpoint is whole."""
    made = checkpoints.Checkpoint(
        version=version,
        point="model",
        parent=parent,
        parent_sha256="",
        arrays=LearnerState.initial(policy_config(settings)).arrays(),
    )
    file = checkpoints.save(store.checkpoints, made)
    row = replace(policy(version, parent=parent), sha256=made.sha256, file=file)
    store.policies.add_update(replace(update(version), version=version, parent=parent), row)


def advanced(store: Store, settings: Settings, *, now: float = NOW) -> list[Step]:
    """Bring the evidence up to date; return what followed from it."""
    return Promoter(store, settings, holder="test").advance(now=now)


def moves(steps: list[Step]) -> list[Move]:
    """Return what was done."""
    return [step.move for step in steps]
