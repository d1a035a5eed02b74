"""What the learner carries from one update to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tau_live.rl.adam import AdamState
from tau_live.rl.arrays import Array, FloatArray, digest, required
from tau_live.rl.batch import Trajectories
from tau_live.rl.crossing import places
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.scaling import Moments


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
        scaled_rollouts: How many rollouts the policy's scale was made from.
        advantage_scale: The running scale of advantages.
        counts: What happened so far.
    """

    policy: Policy
    adam: AdamState
    moments: Moments
    scaled_rollouts: int
    advantage_scale: AdvantageScale
    counts: Counts

    @classmethod
    def untrained(cls, config: PolicyConfig) -> "LearnerState":
        """Return the state before the first rollout."""
        return cls(
            policy=Policy.untrained(config),
            adam=AdamState.untrained(config.cross_width + config.width + 1),
            moments=Moments.empty(config.width),
            scaled_rollouts=0,
            advantage_scale=AdvantageScale(),
            counts=Counts(),
        )

    def including(self, fresh: Trajectories) -> "LearnerState":
        """Return the state that has seen these rollouts, but not learned from them yet."""
        numeric = np.concatenate([one.numeric for one in fresh.encoded])
        values = np.concatenate([one.values for one in fresh.encoded])[numeric]
        at = np.concatenate([places(one) for one in fresh.encoded])[numeric]
        return replace(
            self,
            moments=self.moments.including(values.astype(np.float64), at),
            counts=self.counts._replace(
                rollouts=self.counts.rollouts + len(fresh.length),
                decisions=self.counts.decisions + len(fresh.encoded),
            ),
        )

    def rescaled(self, rollouts: int) -> "LearnerState":
        """Return the state whose policy scales numbers as is known by now.

        Args:
            rollouts: How many rollouts are at hand; when that is all there ever were, and twice
                as many as the last time, every slot is scaled anew, else only new slots are.
        """
        seen = self.counts.rollouts
        whole = rollouts >= seen >= 2 * self.scaled_rollouts
        scale = self.moments.scale(self.policy.scale, whole=whole)
        return replace(
            self,
            policy=replace(self.policy, scale=scale),
            scaled_rollouts=seen if whole else self.scaled_rollouts,
        )

    def arrays(self) -> dict[str, Array]:
        """Return everything as arrays by name, those of the policy first."""
        return {
            **self.policy.arrays(),
            **self.adam.arrays(),
            **self.moments.arrays(),
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
            scaled_rollouts=int(scaled[0]),
            advantage_scale=AdvantageScale(*required(arrays, "advantage_scale", (3,)).tolist()),
            counts=Counts(*counts.tolist()),
        )

    def digest(self) -> str:
        """Return the SHA-256 of all arrays, the same on every machine."""
        return digest(self.arrays())
