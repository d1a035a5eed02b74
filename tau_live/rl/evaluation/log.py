"""Logged decisions under another policy, and which of them an estimate may use.

Each decision is reduced to the few numbers that an estimator needs, whatever the number of its
options, which may differ from decision to decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np

from tau_live.rl.arrays import Array, BoolArray, FloatArray, IntArray, offsets
from tau_live.rl.bounds import LARGEST_REWARD

_LEAST = 1e-300  # of a propensity; below, a weight would not be finite
_ROUNDING = 1e-9  # by which a probability may be above 1
_SUM_ROUNDING = 1e-6  # by which the probabilities of all options may miss 1


class Reason(StrEnum):
    """Why a decision is left out; the first that applies is counted."""

    NO_REWARD = "no_reward"
    REWARD_NOT_FINITE = "reward_not_finite"
    REWARD_OUT_OF_RANGE = "reward_out_of_range"
    NO_PROPENSITY = "no_propensity"
    PROPENSITY_NOT_FINITE = "propensity_not_finite"
    PROPENSITY_NOT_POSITIVE = "propensity_not_positive"
    PROPENSITY_ABOVE_ONE = "propensity_above_one"
    MASK_MISSING = "mask_missing"
    APPLIED_NOT_OFFERED = "applied_not_offered"
    TARGET_NOT_A_PROBABILITY = "target_not_a_probability"
    PREDICTION_NOT_FINITE = "prediction_not_finite"
    ANOTHER_STEP = "another_step_left_out"


class Offered(NamedTuple):
    """The allowed options of ``N`` decisions, laid end to end, ``M`` in all.

    Attributes:
        targets: ``[M]``, the probability that the target policy gives to each.
        counts: ``[N]``, how many each decision had; 0 where the allowed options are unknown.
        applied: ``[N]``, the index of the applied option among them.
        predictions: ``[M]``, the reward that a model predicts for each, NaN where it predicts none;
            ``None`` without a model.
    """

    targets: FloatArray
    counts: IntArray
    applied: IntArray
    predictions: FloatArray | None = None

    @classmethod
    def of(
        cls,
        targets: Sequence[FloatArray | None],
        applied: IntArray,
        predictions: Sequence[FloatArray | None] | None = None,
    ) -> "Offered":
        """Return ``[N]`` ragged rows laid end to end; ``None`` is a row of unknown options."""
        empty = np.zeros(0)
        rows = [empty if row is None else row for row in targets]
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        if predictions is None:
            return cls(np.concatenate([empty, *rows]), counts, applied)
        expected = [
            np.full(count, np.nan) if row is None else row
            for row, count in zip(predictions, counts.tolist(), strict=True)
        ]
        return cls(
            np.concatenate([empty, *rows]), counts, applied, np.concatenate([empty, *expected])
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Log:
    """``N`` logged decisions with the probabilities of the target policy.

    Attributes:
        rollouts: ``[N]``, the id of each decision's rollout, text or number. The steps of a rollout
            stand in the order in which they were made.
        propensities: ``[N]``, probability with which the applied option had been chosen; NaN where
            there is none.
        rewards: ``[N]``, NaN where unknown.
        targets: ``[N]``, the probability that the target policy gives to the applied option; or
            those of all options offered.
    """

    rollouts: Array
    propensities: FloatArray
    rewards: FloatArray
    targets: FloatArray | Offered


class Samples(NamedTuple):
    """The usable decisions, ``N`` of ``R`` rollouts.

    Attributes:
        rollouts: ``[N]``, the number of each decision's rollout, in ``[0, R)``.
        weights: ``[N]``, probability under the target policy over the logged propensity.
        rewards: ``[N]``.
        predictions: ``[N]``, the model's prediction for the applied option; ``None`` without one.
        expectations: ``[N]``, its prediction for the target policy; ``None`` without one.
    """

    rollouts: IntArray
    weights: FloatArray
    rewards: FloatArray
    predictions: FloatArray | None = None
    expectations: FloatArray | None = None

    @property
    def size(self) -> int:
        """How many rollouts there are, ``R``."""
        return int(self.rollouts.max()) + 1 if len(self.rollouts) else 0

    @property
    def lengths(self) -> IntArray:
        """``[R]``, decisions of each rollout."""
        return np.bincount(self.rollouts, minlength=self.size).astype(np.int64, copy=False)

    @property
    def last(self) -> IntArray:
        """``[R]``, index of the last decision of each rollout."""
        last = np.zeros(self.size, dtype=np.int64)
        np.maximum.at(last, self.rollouts, np.arange(len(self.rollouts)))
        return last

    def totals(self, terms: FloatArray) -> FloatArray:
        """Return ``[R]``, the sum of ``terms [N]`` over each rollout."""
        sums = np.bincount(self.rollouts, weights=terms, minlength=self.size)
        return sums.astype(np.float64, copy=False)


ScreenedLog: TypeAlias = tuple[Samples, Mapping[Reason, int]]
"""The usable part of a log, and how many decisions were left out, by reason."""


def screen(log: Log, reward_range: tuple[float, float]) -> ScreenedLog:
    """Return the decisions that one-step estimates may use; each stands for itself.

    Args:
        log: ``N`` decisions.
        reward_range: The least and the largest reward of a decision.
    """
    terms, reasons = _terms(log)
    low, high = reward_range
    outside = ~((log.rewards >= low) & (log.rewards <= high))
    return _select(log, terms, [*reasons, (Reason.REWARD_OUT_OF_RANGE, outside)])


def screen_rollouts(log: Log, return_range: tuple[float, float]) -> ScreenedLog:
    """Return the rollouts that multi-step estimates may use; one unusable step excludes all.

    Args:
        log: ``N`` decisions.
        return_range: The least and the largest sum of a rollout's rewards.
    """
    terms, reasons = _terms(log)
    _, numbers = np.unique(log.rollouts, return_inverse=True)
    unusable = np.any([failed for _, failed in reasons], axis=0)
    rewards = np.where(unusable, 0.0, log.rewards)
    returns = np.bincount(numbers, weights=rewards)[numbers]
    excluded = (np.bincount(numbers, weights=unusable) > 0.0)[numbers]
    low, high = return_range
    outside = ~((returns >= low) & (returns <= high)) & ~excluded
    reasons += [(Reason.REWARD_OUT_OF_RANGE, outside), (Reason.ANOTHER_STEP, excluded)]
    return _select(log, terms, reasons)


_Reasons: TypeAlias = list[tuple[Reason, BoolArray]]
_Values: TypeAlias = tuple[FloatArray, FloatArray | None, FloatArray | None]


def _terms(log: Log) -> tuple[_Values, _Reasons]:
    """Return targets, predictions and expectations, and the failing decisions by reason.

    ``[N]`` each; every reason but the range of the rewards.
    """
    targets, predictions, expectations, failed = _option_terms(log)
    reasons = [
        (Reason.NO_REWARD, np.isnan(log.rewards)),
        (Reason.REWARD_NOT_FINITE, np.abs(log.rewards) > LARGEST_REWARD),
        (Reason.NO_PROPENSITY, np.isnan(log.propensities)),
        (Reason.PROPENSITY_NOT_FINITE, np.isinf(log.propensities)),
        (Reason.PROPENSITY_NOT_POSITIVE, log.propensities < _LEAST),
        (Reason.PROPENSITY_ABOVE_ONE, log.propensities > 1.0 + _ROUNDING),
        *failed,
        (Reason.TARGET_NOT_A_PROBABILITY, ~((targets >= 0.0) & (targets <= 1.0 + _ROUNDING))),
    ]
    return (targets, predictions, expectations), reasons


def _option_terms(
    log: Log,
) -> tuple[FloatArray, FloatArray | None, FloatArray | None, _Reasons]:
    """Return targets, predictions and expectations, and the failures that options cause."""
    if not isinstance(log.targets, Offered):
        return log.targets, None, None, []
    offered = log.targets
    missing = offered.counts == 0
    strange = (offered.applied < 0) | (offered.applied >= offered.counts)
    starts = offsets(offered.counts)[:-1]
    at = np.where(strange, 0, starts + offered.applied)
    owners = np.repeat(np.arange(len(starts)), offered.counts)
    possible = (offered.targets >= 0.0) & (offered.targets <= 1.0 + _ROUNDING)
    clean = np.where(possible, offered.targets, 0.0)
    sums = np.bincount(owners, weights=clean, minlength=len(starts))
    impossible = np.bincount(owners, weights=~possible, minlength=len(starts)) > 0.0
    uneven = impossible | ~(np.abs(sums - 1.0) <= _SUM_ROUNDING)
    failed = [
        (Reason.MASK_MISSING, missing),
        (Reason.APPLIED_NOT_OFFERED, strange),
        (Reason.TARGET_NOT_A_PROBABILITY, uneven),
    ]
    targets = _applied_values(clean, at, strange)
    if offered.predictions is None:
        return targets, None, None, failed
    unknown = ~np.isfinite(offered.predictions)
    known = np.where(unknown, 0.0, offered.predictions)
    sums = np.bincount(owners, weights=clean * known, minlength=len(starts))
    expectations = sums.astype(np.float64, copy=False)
    unpredicted = np.bincount(owners, weights=unknown, minlength=len(starts)) > 0.0
    failed.append((Reason.PREDICTION_NOT_FINITE, unpredicted))
    return targets, _applied_values(known, at, strange), expectations, failed


def _applied_values(by_option: FloatArray, at: IntArray, strange: BoolArray) -> FloatArray:
    """Return ``[N]`` the values of the applied options, 0 where that was not offered."""
    values = np.zeros(len(at))
    values[~strange] = by_option[at[~strange]]
    return values


def _select(log: Log, terms: _Values, reasons: Sequence[tuple[Reason, BoolArray]]) -> ScreenedLog:
    kept = np.ones(len(log.rewards), dtype=np.bool_)
    left_out: dict[Reason, int] = {}
    for reason, failed in reasons:
        count = int((failed & kept).sum())
        if count:
            left_out[reason] = left_out.get(reason, 0) + count
        kept &= ~failed
    targets, predictions, expectations = terms
    numbers = np.unique(log.rollouts[kept], return_inverse=True)[1].astype(np.int64)
    samples = Samples(
        numbers,
        targets[kept] / log.propensities[kept],
        log.rewards[kept].astype(np.float64),
        None if predictions is None else predictions[kept],
        None if expectations is None else expectations[kept],
    )
    return samples, left_out
