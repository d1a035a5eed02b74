"""What the learner carries from one update to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.adam import AdamState
from tau_live.rl.arrays import Array, BoolArray, FloatArray, digest, frozen, required
from tau_live.rl.batch import Batch, Trajectories
from tau_live.rl.crossing import places
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.ridge import RidgeSums
from tau_live.rl.scaling import Moments, Scale


class AdvantageScale(NamedTuple):
    """Running mean and mean square of advantages, older updates weighing less.

    Attributes:
        weight: Decayed count.
        total: Decayed sum.
        squares: Decayed sum of squares.
    """

    weight: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def including(self, advantages: FloatArray, *, decay: float = 0.9) -> "AdvantageScale":
        """Return the scale after one more update's advantages, ``[N]``."""
        return AdvantageScale(
            decay * self.weight + len(advantages),
            decay * self.total + float(advantages.sum()),
            decay * self.squares + float((advantages**2).sum()),
        )

    def scaled(self, advantages: FloatArray) -> FloatArray:
        """Return ``[N]`` the advantages less the running mean, over the running deviation."""
        weight = max(self.weight, 1.0)
        mean = self.total / weight
        variance = max(self.squares / weight - mean**2, 0.0)
        scaled: FloatArray = (advantages - mean) / (np.sqrt(variance) + 1e-8)
        return scaled


class Counts(NamedTuple):
    """What happened so far.

    Attributes:
        rollouts: New rollouts received.
        decisions: Decisions in them.
        updates: Updates that made a new version.
        skipped: Updates that had too little to learn from.
        undone: Updates that went too far and were taken back.
    """

    rollouts: int = 0
    decisions: int = 0
    updates: int = 0
    skipped: int = 0
    undone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnerState:
    """Everything that an update needs besides rollouts; saved and loaded, it goes on bit for bit.

    Attributes:
        policy: The newest version.
        adam: The optimiser's moments, of scorer and critic.
        moments: Of all numbers seen in features.
        scale: How the next version will scale numbers; the sums below are under it.
        scaled_rollouts: How many rollouts that scale was made from.
        action_sums: Evidence on the return of crossed features, ``D = ridge_width``.
        value_sums: Evidence on the return of contexts, ``D = width + 1``.
        value_base: ``[width + 1]``, the part of the policy's critic that is the regression.
        advantage_scale: The running scale of advantages.
        counts: What happened so far.
    """

    policy: Policy
    adam: AdamState
    moments: Moments
    scale: Scale
    scaled_rollouts: int
    action_sums: RidgeSums
    value_sums: RidgeSums
    value_base: FloatArray
    advantage_scale: AdvantageScale
    counts: Counts

    @classmethod
    def untrained(cls, config: PolicyConfig) -> "LearnerState":
        """Return the state before the first rollout."""
        return cls(
            policy=Policy.untrained(config),
            adam=AdamState.untrained(config.cross_width + config.width + 1),
            moments=Moments.empty(config.width),
            scale=Scale.untrained(config.width),
            scaled_rollouts=0,
            action_sums=RidgeSums.empty(config.ridge_width),
            value_sums=RidgeSums.empty(config.width + 1),
            value_base=frozen(np.zeros(config.width + 1)),
            advantage_scale=AdvantageScale(),
            counts=Counts(),
        )

    @property
    def unit(self) -> float:
        """What values are measured in while the critic learns: the deviation of returns."""
        return self.action_sums.deviation or 1.0

    def counting(self, fresh: Trajectories, *, at_hand: int) -> "LearnerState":
        """Return the state that has counted these rollouts and knows their numbers.

        Args:
            fresh: Rollouts never seen before.
            at_hand: How many rollouts, new and old, the sums could be made anew from. When that is
                all there ever were, and twice as many as the last time, every number is scaled
                anew and the sums begin again; else only names never scaled before are.
        """
        numeric = np.concatenate([one.numeric for one in fresh.encoded])
        values = np.concatenate([one.values for one in fresh.encoded])[numeric]
        at = np.concatenate([places(one) for one in fresh.encoded])[numeric]
        moments = self.moments.including(values.astype(np.float64), at)
        counts = self.counts._replace(
            rollouts=self.counts.rollouts + len(fresh.length),
            decisions=self.counts.decisions + len(fresh.encoded),
        )
        whole = at_hand >= counts.rollouts >= 2 * self.scaled_rollouts
        counted = replace(
            self, moments=moments, counts=counts, scale=moments.scale(self.scale, whole=whole)
        )
        if not whole:
            return counted
        return replace(
            counted,
            scaled_rollouts=counts.rollouts,
            action_sums=RidgeSums.empty(self.policy.config.ridge_width),
            value_sums=RidgeSums.empty(self.policy.config.width + 1),
        )

    def learning(self, batch: Batch, returns: FloatArray, *, chosen: BoolArray) -> "LearnerState":
        """Return the state whose sums include these decisions, ``[N]``, under its scale.

        Args:
            batch: The decisions.
            returns: What followed each.
            chosen: Which of them were chosen by us, with a propensity; the others say nothing
                about the options, because what made the host choose so is not known.
        """
        options = batch.choices().narrowed(self.policy.config.halvings)
        ours = np.flatnonzero(chosen)
        return replace(
            self,
            action_sums=self.action_sums.including(options.rows(ours), returns[ours]),
            value_sums=self.value_sums.including(batch.contexts, returns),
        )

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays by name, those of the policy first."""
        return {
            **self.policy.arrays(),
            **self.adam.arrays(),
            **self.moments.arrays(),
            **self.action_sums.arrays("action"),
            **self.value_sums.arrays("value"),
            "value_base": self.value_base,
            "next_scale_mean": self.scale.mean,
            "next_scale_inverse": self.scale.inverse,
            "scaled_rollouts": np.array([self.scaled_rollouts], dtype=np.int64),
            "advantage_scale": np.array(self.advantage_scale, dtype=np.float64),
            "counts": np.array(self.counts, dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "LearnerState":
        """Return the state that ``arrays`` gave; arrays of other names are ignored.

        Raises:
            ValueError: An array is missing, misshapen, not finite, or out of range.
        """
        policy = Policy.from_arrays(arrays)
        config = policy.config
        counts = required(arrays, "counts", (len(Counts._fields),)).astype(np.int64)
        scaled = required(arrays, "scaled_rollouts", (1,)).astype(np.int64)
        if (counts < 0).any() or (scaled < 0).any():
            raise ValueError(f"counts must be at least 0, got {counts.tolist()!r}")
        return cls(
            policy=policy,
            adam=AdamState.from_arrays(arrays, size=config.cross_width + config.width + 1),
            moments=Moments.from_arrays(arrays, width=config.width),
            scale=Scale(
                frozen(required(arrays, "next_scale_mean", (2 * config.width,))),
                frozen(required(arrays, "next_scale_inverse", (2 * config.width,))),
            ),
            scaled_rollouts=int(scaled[0]),
            action_sums=RidgeSums.from_arrays(arrays, "action", width=config.ridge_width),
            value_sums=RidgeSums.from_arrays(arrays, "value", width=config.width + 1),
            value_base=frozen(required(arrays, "value_base", (config.width + 1,))),
            advantage_scale=AdvantageScale(*required(arrays, "advantage_scale", (3,)).tolist()),
            counts=Counts(*counts.tolist()),
        )

    def digest(self) -> str:
        """Return the SHA-256 of all arrays, the same on every machine."""
        return digest(self.arrays())
