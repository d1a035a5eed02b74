"""Off-policy estimators of a policy's value, one function a formula.

Throughout, ``w = target / propensity`` of the applied option, ``r`` its reward, ``q`` the reward
that a model predicts for it, ``v`` the one it predicts for the target policy: ``v = sum(target_a *
q_a)`` over the options offered. ``mean`` is over decisions for one step, over rollouts for several.
"""

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import Array, BoolArray, FloatArray, IntArray
from tau_live.rl.evaluation.log import Samples


class Estimator(StrEnum):
    """The formulas; the first five are for one step, the last two for several."""

    IPS = "ips"
    SNIPS = "snips"
    DM = "dm"
    DR = "dr"
    SNDR = "sndr"
    PDIS = "pdis"
    WPDIS = "wpdis"


class Ratios(NamedTuple):
    """An estimate as a sum of ratios of sums over rollouts, the form of every estimator here.

    Rollouts are the independent units, so errors and bootstraps are taken over them.

    Attributes:
        numerators: ``[R, K]``.
        denominators: ``[R, K]``.
    """

    numerators: FloatArray
    denominators: FloatArray

    @property
    def value(self) -> float:
        """The estimate; NaN where a denominator is 0."""
        return float(of_totals(self.numerators.sum(axis=0), self.denominators.sum(axis=0)))

    @property
    def standard_error(self) -> float:
        """Standard error of the estimate, to first order (delta method); NaN with one rollout.

        ``sd(sum_k (A_k - A_k.sum() / B_k.sum() * B_k) / B_k.mean()) / sqrt(R)``, in which ``sd``
        divides by ``R - 1``. Of a plain mean it is the usual one.
        """
        rollouts = len(self.numerators)
        totals = self.denominators.sum(axis=0)
        if rollouts < 2 or not totals.all():
            return float("nan")
        ratios = self.numerators.sum(axis=0) / totals
        influence = (self.numerators - ratios * self.denominators) / (totals / rollouts)
        return float(influence.sum(axis=1).std(ddof=1) / np.sqrt(rollouts))


def of_totals(numerators: FloatArray, denominators: FloatArray) -> FloatArray:
    """Return ``[...]`` the sum of ratios of ``[..., K]`` totals; NaN where a denominator is 0."""
    undefined = denominators == 0.0
    ratios = numerators / np.where(undefined, 1.0, denominators)
    values: FloatArray = np.where(undefined, np.nan, ratios).sum(axis=-1)
    return values


def ips(samples: Samples) -> Ratios:
    """Return inverse propensity scoring: ``mean(w * r)``. Unbiased, with the largest variance.

    Source:
        Horvitz and Thompson 1952; Dudik et al. 2014, arXiv:1503.02834, section 2.
    """
    return _column(samples.totals(samples.weights * samples.rewards), _counts(samples))


def snips(samples: Samples) -> Ratios:
    """Return the self-normalised form: ``sum(w * r) / sum(w)``.

    Slightly biased, within the range of the rewards, and equivariant to a shift of the rewards.

    Source:
        Swaminathan and Joachims 2015, "The Self-Normalized Estimator for Counterfactual Learning".
    """
    weighted = samples.totals(samples.weights * samples.rewards)
    return _column(weighted, samples.totals(samples.weights))


def dm(samples: Samples) -> Ratios:
    """Return the direct method: ``mean(v)``. Exactly as biased as the model.

    Raises:
        ValueError: There is no model.

    Source:
        Dudik et al. 2014, arXiv:1503.02834, section 2.
    """
    expectations, _ = _model_rewards(samples)
    return _column(samples.totals(expectations), _counts(samples))


def dr(samples: Samples) -> Ratios:
    """Return the doubly robust estimate: ``mean(v + w * (r - q))``.

    Unbiased whatever the model, if it was not fitted to the rewards that correct it
    (``learn.evaluation.model``); of less variance than ``ips`` when the model is any good.

    Raises:
        ValueError: There is no model.

    Source:
        Dudik et al. 2014, arXiv:1503.02834, section 3.
    """
    expectations, residuals = _model_rewards(samples)
    return _column(samples.totals(expectations + samples.weights * residuals), _counts(samples))


def sndr(samples: Samples) -> Ratios:
    """Return self-normalised ``dr``: ``mean(v) + sum(w * (r - q)) / sum(w)``.

    Raises:
        ValueError: There is no model.

    Source:
        Open Bandit Pipeline 0.4.1, obp/ope/estimators.py, SelfNormalizedDoublyRobust; Kallus and
        Uehara 2019, "Intrinsically Efficient, Stable, and Bounded Off-Policy Evaluation".
    """
    expectations, residuals = _model_rewards(samples)
    weighted = samples.totals(samples.weights * residuals)
    return Ratios(
        np.stack([samples.totals(expectations), weighted], axis=1),
        np.stack([_counts(samples), samples.totals(samples.weights)], axis=1),
    )


def accumulate_weights(samples: Samples) -> Samples:
    """Return the samples, each weight replaced by the product of its rollout's weights so far.

    Source:
        Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation".
    """
    weights, order = _table(samples, samples.weights, rest=1.0)
    products = np.empty(len(order))
    products[order] = np.cumprod(weights, axis=1)[_present(samples.lengths, weights.shape[1])]
    return samples._replace(weights=products)


def pdis(samples: Samples) -> Ratios:
    """Return per-decision importance sampling: ``mean(sum_t p[r, t] * reward[r, t])``.

    ``p[r, t] = w[r, 0] * ... * w[r, t]``. With a reward at the end alone, this is the
    trajectory-wise estimate.

    Args:
        samples: From ``accumulate_weights``.

    Source:
        Precup, Sutton and Singh 2000, without discount; the expectation is over rollouts.
    """
    returns = samples.totals(samples.weights * samples.rewards)
    return _column(returns, np.ones(len(returns)))


def wpdis(samples: Samples) -> Ratios:
    """Return self-normalised ``pdis``: ``sum_t (sum_r p[r, t] * reward[r, t] / sum_r p[r, t])``.

    A rollout that has ended earns 0 and keeps its product.

    Args:
        samples: From ``accumulate_weights``, the steps of a rollout in order.

    Source:
        Thomas 2015, "Safe Reinforcement Learning", consistent weighted per-decision importance
        sampling (CWPDIS); without discount.
    """
    earned, _ = _table(samples, samples.weights * samples.rewards, rest=0.0)
    weights, _ = _table(samples, samples.weights, rest=0.0)
    last = np.minimum(np.arange(weights.shape[1]), samples.lengths[:, None] - 1)
    return Ratios(earned, np.take_along_axis(weights, last, axis=1))


def _model_rewards(samples: Samples) -> tuple[FloatArray, FloatArray]:
    """Return ``[N]`` the model's predictions for the target policy, and ``[N]`` its errors."""
    if samples.predictions is None or samples.expectations is None:
        raise ValueError("there are no predictions")
    return samples.expectations, samples.rewards - samples.predictions


def _column(numerators: FloatArray, denominators: FloatArray) -> Ratios:
    return Ratios(numerators[:, None], denominators[:, None])


def _counts(samples: Samples) -> FloatArray:
    return samples.lengths.astype(np.float64)


def _present(lengths: IntArray, longest: int) -> BoolArray:
    """Return the mask ``[R, T]`` of the steps that rollouts have."""
    present: BoolArray = np.arange(longest) < lengths[:, None]
    return present


def _table(samples: Samples, terms: FloatArray, *, rest: float) -> tuple[FloatArray, IntArray]:
    """Return ``terms [N]`` as ``[R, T]``, padded with ``rest``, and ``[N]`` their old indices."""
    order = np.argsort(samples.rollouts, kind="stable")
    lengths = samples.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    table = np.full((len(lengths), longest), rest)
    table[_present(lengths, longest)] = terms[order]
    return table, order


def folds_of(rollouts: Array, folds: int) -> IntArray:
    """Return ``[N]`` the fold of each decision; all decisions of a rollout are in one.

    Rollouts are dealt in the order of a hash of their ids, so that folds are of one size (give or
    take one) and depend on neither the order of the rows nor a seed.

    Args:
        rollouts: ``[N]`` ids, text or numbers.
        folds: Number of folds, at least 2.

    Raises:
        ValueError: ``folds`` is below 2.
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds!r}")
    ids, numbers = np.unique(rollouts, return_inverse=True)
    hashes = [
        blake2b(str(rollout_id).encode(), digest_size=8).digest() for rollout_id in ids.tolist()
    ]
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[sorted(range(len(ids)), key=hashes.__getitem__)] = np.arange(len(ids))
    fold_of: IntArray = ranks[numbers] % folds
    return fold_of


_ROUNDING = 1e-9


class Weights(NamedTuple):
    """Statistics of a log's importance weights.

    Attributes:
        rollouts: How many rollouts are used.
        decisions: How many weights there are: one for a decision, or over several steps one for a
            rollout.
        effective_sample_size: How many rollouts of equal weight would tell as much:
            ``sum(w)**2 / sum(w**2)``, ``w`` being the sum over a rollout, or over several steps
            the product, after the cap. Never more than the same over decisions.
        largest: The largest weight, before the cap.
        mean: Mean weight, before the cap; near 1 if the log covers the target's actions.
        mean_error: Standard error of the mean; NaN with one rollout.
        clipped: Share of the weights that were capped, in ``[0, 1]``.
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
        """Return the statistics of the weights of samples, for this cap.

        Args:
            samples: With weights before the cap; over several steps, the last step of each rollout.
            cap: Cap of the weights, at least 1.
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
    """The least support that a log must have for an evaluation.

    Attributes:
        effective_sample_size: Least number of rollouts of equal weight.
        effective_share: The same as a share of all rollouts, in ``[0, 1]``.
        largest_weight: Largest weight, after the cap.
        rollouts: Least number of rollouts.
        mean_errors: Most standard errors between the mean weight and 1. A mean below 1 shows that
            the target takes actions never logged, which the effective sample size does not show.
    """

    effective_sample_size: float = 30.0
    effective_share: float = 0.01
    largest_weight: float = 1_000.0
    rollouts: int = 50
    mean_errors: float = 4.0

    def shortfalls(self, weights: Weights, cap: float) -> tuple[str, ...]:
        """Return the requirements that a log fails, in words; empty when it meets all.

        Args:
            weights: Statistics of the log's weights.
            cap: Cap of the weights, at least 1.
        """
        if weights.rollouts == 0:
            return ("no decision can be used",)
        effective = weights.effective_sample_size
        share = effective / weights.rollouts
        largest = min(weights.largest, cap)
        distance = abs(weights.mean - 1.0)
        allowed = self.mean_errors * float(np.nan_to_num(weights.mean_error)) + _ROUNDING
        checks = (
            (
                weights.rollouts >= self.rollouts,
                f"{weights.rollouts} rollouts, not {self.rollouts}",
            ),
            (
                effective >= self.effective_sample_size,
                f"effective sample size {effective:.4g}, not {self.effective_sample_size:g}",
            ),
            (
                share >= self.effective_share,
                f"effective share {share:.4g}, not {self.effective_share:g}",
            ),
            (
                largest <= self.largest_weight,
                f"largest weight {largest:.4g}, more than {self.largest_weight:g}",
            ),
            (
                self.mean_errors == np.inf or distance <= allowed,
                f"mean weight {weights.mean:.4g}, more than {allowed:.4g} from 1",
            ),
        )
        return tuple(words for fits, words in checks if not fits)
