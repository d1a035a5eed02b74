"""Whether a log supports an estimate of a policy."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation.estimators import ips
from tau_live.rl.evaluation.log import Samples

_ROUNDING = 1e-9


class Weights(NamedTuple):
    """What the importance weights of a log look like.

    Attributes:
        rollouts: How many are used.
        decisions: How many weights there are: one for a decision, or over several steps one for a
            rollout.
        effective_sample_size: How many rollouts of equal weight would say as much:
            ``sum(w)**2 / sum(w**2)``, ``w`` being the sum over a rollout, or over several steps
            the product, after the cap. Never more than the same over decisions.
        largest: The largest weight, before the cap.
        mean: Mean weight, before the cap; near 1 if the log has all that the target would do.
        mean_error: Standard error of that; NaN with one rollout.
        clipped: Share of the weights that the cap cut, in ``[0, 1]``.
        zero: Share of the weights that are 0, in ``[0, 1]``.
    """

    rollouts: int
    decisions: int
    effective_sample_size: float
    largest: float
    mean: float
    mean_error: float
    clipped: float
    zero: float

    @classmethod
    def of(cls, samples: Samples, cap: float) -> "Weights":
        """Return what there is to say about the weights of samples, cut at ``cap``.

        Args:
            samples: With weights before the cap; over several steps, the last step of each rollout.
            cap: At least 1.
        """
        weights = samples.weights
        if not len(weights):
            return cls(0, 0, 0.0, 0.0, float("nan"), float("nan"), 0.0, 0.0)
        mean = ips(samples._replace(rewards=np.ones(len(weights))))
        return cls(
            rollouts=samples.size,
            decisions=len(weights),
            effective_sample_size=effective_sample_size(samples.totals(np.minimum(weights, cap))),
            largest=float(weights.max()),
            mean=mean.value,
            mean_error=mean.standard_error,
            clipped=float((weights > cap).mean()),
            zero=float((weights == 0.0).mean()),
        )


def effective_sample_size(weights: FloatArray) -> float:
    """Return ``sum(w)**2 / sum(w**2)`` of weights of at least 0; 0 if there are none above 0.

    Source:
        Kish 1965, "Survey Sampling", section 8.2; Owen 2013, "Monte Carlo", equation 9.13.
    """
    largest = float(weights.max(initial=0.0))
    if largest <= 0.0:
        return 0.0
    if not np.isfinite(largest):
        return 1.0
    scaled = weights / largest  # squares of the largest possible weights would not be finite
    return float(scaled.sum() ** 2 / (scaled**2).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What a log must have before anything is said about a policy.

    Attributes:
        effective_sample_size: At least this many rollouts of equal weight.
        effective_share: The same as a share of all rollouts, in ``[0, 1]``.
        largest_weight: No weight above this, after the cap.
        rollouts: At least this many.
        mean_errors: The mean weight is no more standard errors away from 1. Below 1 the target does
            what was never logged, which the effective sample size does not show.
    """

    effective_sample_size: float = 30.0
    effective_share: float = 0.01
    largest_weight: float = 1_000.0
    rollouts: int = 50
    mean_errors: float = 4.0

    def __post_init__(self) -> None:
        for name in ("effective_sample_size", "largest_weight", "mean_errors"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        if not 0.0 <= self.effective_share <= 1.0:
            raise ValueError(f"effective_share must be in [0, 1], got {self.effective_share!r}")
        if self.rollouts < 0:
            raise ValueError(f"rollouts must be at least 0, got {self.rollouts!r}")

    def lacking(self, weights: Weights, cap: float) -> tuple[str, ...]:
        """Return in words what is not there; nothing when all is.

        Args:
            weights: Of the log.
            cap: What they are cut at.
        """
        if weights.rollouts == 0:
            return ("no decision can be used",)
        effective = weights.effective_sample_size
        share = effective / weights.rollouts
        largest = min(weights.largest, cap)
        off = abs(weights.mean - 1.0)
        allowed = self.mean_errors * float(np.nan_to_num(weights.mean_error)) + _ROUNDING
        lacking = []
        if weights.rollouts < self.rollouts:
            lacking.append(f"{weights.rollouts} rollouts, not {self.rollouts}")
        if not effective >= self.effective_sample_size:
            lacking.append(
                f"effective sample size {effective:.4g}, not {self.effective_sample_size:g}"
            )
        if not share >= self.effective_share:
            lacking.append(f"effective share {share:.4g}, not {self.effective_share:g}")
        if not largest <= self.largest_weight:
            lacking.append(f"largest weight {largest:.4g}, more than {self.largest_weight:g}")
        if self.mean_errors < np.inf and not off <= allowed:
            lacking.append(f"mean weight {weights.mean:.4g}, more than {allowed:.4g} from 1")
        return tuple(lacking)
