"""What a policy would have earned, from decisions that another one made: one function a formula.

Throughout, ``w = target / propensity`` of the applied option, ``r`` its reward, ``q`` what a model
expects of it, ``v`` what the model expects of the target policy: ``v = sum(target_a * q_a)`` over
the options offered. ``mean`` is over decisions for one step, over rollouts for several.
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray, IntArray
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
    """An estimate as a sum of ratios of sums over rollouts, which is what all of them are.

    Rollouts are what is independent, so that errors and bootstraps are taken over them.

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
    """Return inverse propensity scoring: ``mean(w * r)``. Unbiased, and of the largest variance.

    Source:
        Horvitz and Thompson 1952; Dudik et al. 2014, arXiv:1503.02834, section 2.
    """
    return _column(samples.totals(samples.weights * samples.rewards), _counts(samples))


def snips(samples: Samples) -> Ratios:
    """Return the self-normalised form: ``sum(w * r) / sum(w)``.

    A little biased, within the range of the rewards, and moved by a constant as rewards are.

    Source:
        Swaminathan and Joachims 2015, "The Self-Normalized Estimator for Counterfactual Learning".
    """
    weighted = samples.totals(samples.weights * samples.rewards)
    return _column(weighted, samples.totals(samples.weights))


def dm(samples: Samples) -> Ratios:
    """Return the direct method: ``mean(v)``. Exactly as biased as the model is.

    Raises:
        ValueError: There is no model.

    Source:
        Dudik et al. 2014, arXiv:1503.02834, section 2.
    """
    return _column(samples.totals(_modelled(samples).expectations), _counts(samples))


def dr(samples: Samples) -> Ratios:
    """Return the doubly robust estimate: ``mean(v + w * (r - q))``.

    Unbiased whatever the model, if that has not seen the rewards that it is corrected by (see
    ``cross_fitted``); of less variance than ``ips`` when the model is any good.

    Raises:
        ValueError: There is no model.

    Source:
        Dudik et al. 2014, arXiv:1503.02834, section 3.
    """
    expectations, residuals = _modelled(samples)
    return _column(samples.totals(expectations + samples.weights * residuals), _counts(samples))


def sndr(samples: Samples) -> Ratios:
    """Return its self-normalised form: ``mean(v) + sum(w * (r - q)) / sum(w)``.

    Raises:
        ValueError: There is no model.

    Source:
        Open Bandit Pipeline 0.4.1, obp/ope/estimators.py, SelfNormalizedDoublyRobust; Kallus and
        Uehara 2019, "Intrinsically Efficient, Stable, and Bounded Off-Policy Evaluation".
    """
    expectations, residuals = _modelled(samples)
    weighted = samples.totals(samples.weights * residuals)
    return Ratios(
        np.stack([samples.totals(expectations), weighted], axis=1),
        np.stack([_counts(samples), samples.totals(samples.weights)], axis=1),
    )


def accumulated(samples: Samples) -> Samples:
    """Return the samples with the product of all weights of a rollout up to each step as weight.

    Source:
        Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation".
    """
    weights, order = _table(samples, samples.weights, rest=1.0)
    found = np.empty(len(order))
    found[order] = np.cumprod(weights, axis=1)[_present(samples.lengths, weights.shape[1])]
    return samples._replace(weights=found)


def pdis(samples: Samples) -> Ratios:
    """Return per-decision importance sampling: ``mean(sum_t p[r, t] * reward[r, t])``.

    ``p[r, t] = w[r, 0] * ... * w[r, t]``. With a reward at the end alone, this is the
    trajectory-wise estimate.

    Args:
        samples: As ``accumulated`` gives them.

    Source:
        Precup, Sutton and Singh 2000, without discount; the expectation is over rollouts.
    """
    returns = samples.totals(samples.weights * samples.rewards)
    return _column(returns, np.ones(len(returns)))


def wpdis(samples: Samples) -> Ratios:
    """Return its self-normalised form: ``sum_t (sum_r p[r, t] * reward[r, t] / sum_r p[r, t])``.

    A rollout that has ended earns 0 and keeps its product.

    Args:
        samples: As ``accumulated`` gives them, the steps of a rollout in order.

    Source:
        Thomas 2015, "Safe Reinforcement Learning", consistent weighted per-decision importance
        sampling (CWPDIS); without discount.
    """
    earned, _ = _table(samples, samples.weights * samples.rewards, rest=0.0)
    weights, _ = _table(samples, samples.weights, rest=0.0)
    last = np.minimum(np.arange(weights.shape[1]), samples.lengths[:, None] - 1)
    return Ratios(earned, np.take_along_axis(weights, last, axis=1))


class _Modelled(NamedTuple):
    expectations: FloatArray
    residuals: FloatArray


def _modelled(samples: Samples) -> _Modelled:
    if samples.predictions is None or samples.expectations is None:
        raise ValueError("there are no predictions")
    return _Modelled(samples.expectations, samples.rewards - samples.predictions)


def _column(numerators: FloatArray, denominators: FloatArray) -> Ratios:
    return Ratios(numerators[:, None], denominators[:, None])


def _counts(samples: Samples) -> FloatArray:
    return samples.lengths.astype(np.float64)


def _present(lengths: IntArray, longest: int) -> BoolArray:
    """Return ``[R, T]`` which steps there are."""
    present: BoolArray = np.arange(longest) < lengths[:, None]
    return present


def _table(samples: Samples, terms: FloatArray, *, rest: float) -> tuple[FloatArray, IntArray]:
    """Return ``terms [N]`` as ``[R, T]``, ``rest`` after the end, and ``[N]`` where each was."""
    order = np.argsort(samples.rollouts, kind="stable")
    lengths = samples.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    table = np.full((len(lengths), longest), rest)
    table[_present(lengths, longest)] = terms[order]
    return table, order
