"""Small logged problems for the tests of off-policy evaluation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.evaluation.estimators import Support
from tau_live.rl.evaluation.log import Log, Offered
from tau_live.rl.evaluation.report import EvaluationConfig


class Drawn(NamedTuple):
    """Decisions with ragged options, as lists; ``[N]`` of each."""

    targets: list[FloatArray]
    predictions: list[FloatArray]
    applied: list[int]
    propensities: list[float]
    rewards: list[float]
    rollouts: list[int]

    def taken(self, order: Sequence[int]) -> "Drawn":
        """Return the decisions at these indices, in that order."""
        return Drawn(
            [self.targets[n] for n in order],
            [self.predictions[n] for n in order],
            [self.applied[n] for n in order],
            [self.propensities[n] for n in order],
            [self.rewards[n] for n in order],
            [self.rollouts[n] for n in order],
        )

    def log(self, *, model: bool = True) -> Log:
        return Log(
            rollouts=np.array(self.rollouts),
            propensities=np.array(self.propensities),
            rewards=np.array(self.rewards),
            targets=Offered.of(
                self.targets, np.array(self.applied), self.predictions if model else None
            ),
        )


def drawn(seed: int, decisions: int, *, longest: int = 1) -> Drawn:
    """Return decisions of rollouts with 1 to ``longest`` steps; the last one may be cut short."""
    rng = np.random.default_rng(seed)
    found = Drawn([], [], [], [], [], [])
    rollout, left = 0, int(rng.integers(1, longest + 1))
    for _ in range(decisions):
        if left == 0:
            rollout, left = rollout + 1, int(rng.integers(1, longest + 1))
        left -= 1
        options = int(rng.integers(1, 6))
        logging = 0.7 * rng.dirichlet(np.ones(options)) + 0.3 / options
        chosen = int(rng.choice(options, p=logging))
        found.targets.append(rng.dirichlet(np.ones(options)))
        found.predictions.append(rng.random(options))
        found.applied.append(chosen)
        found.propensities.append(float(logging[chosen]))
        found.rewards.append(float(rng.random()))
        found.rollouts.append(rollout)
    return found


def weighted(
    weights: Sequence[float], rewards: Sequence[float], rollouts: Sequence[int] | None = None
) -> Log:
    """Return a log with these weights: the target is certain, the propensity one over the weight.

    A weight of 0 is an option that the target never takes.
    """
    probabilities = np.array([1.0 / weight if weight else 1.0 for weight in weights])
    numbers: IntArray = np.arange(len(weights)) if rollouts is None else np.array(rollouts)
    return Log(
        rollouts=numbers,
        propensities=probabilities,
        rewards=np.array(rewards, dtype=np.float64),
        targets=np.array([1.0 if weight else 0.0 for weight in weights]),
    )


NO_FLOORS = Support(
    effective_sample_size=0.0,
    effective_share=0.0,
    largest_weight=np.inf,
    rollouts=0,
    mean_errors=np.inf,
)
"""What any log has that has a decision."""


def lenient(
    low: float = 0.0, high: float = 1.0, *, cap: float | None = None, replicates: int = 0
) -> EvaluationConfig:
    """Return a configuration that refuses nothing."""
    return EvaluationConfig(
        reward_range=(low, high),
        weight_cap=cap,
        replicates=replicates,
        support=NO_FLOORS,
    )
