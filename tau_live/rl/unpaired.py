"""Normal-theory figures of two samples that ignore pairs, to compare other systems' reports with.

Nothing is decided by them: of few values they find too much, and of two equal ones a certainty.
"""

from collections.abc import Sequence
from math import erfc, sqrt
from typing import NamedTuple

import numpy as np

from tau_live.rl.arrays import FloatArray
from tau_live.rl.paired import cohen_d

CRITICAL_Z = {0.10: 1.645, 0.05: 1.96, 0.01: 2.576}
"""The rounded two-sided quantiles, by the alpha they are of."""


class SampleSummary(NamedTuple):
    """A sample's mean and its interval.

    Attributes:
        mean: In units of score.
        variance: With ``n - 1``.
        sd: Its root.
        ci_low: The lower end of ``mean -+ z * sd / sqrt(n)``.
        ci_high: The upper end.
    """

    mean: float
    variance: float
    sd: float
    ci_low: float
    ci_high: float


class UnpairedReference(NamedTuple):
    """The difference of two samples' means, as if they had nothing to do with each other.

    Attributes:
        alpha: Of the interval, two-sided.
        mean_delta: Trained minus baseline, in units of score.
        delta_ci_low: The lower end of ``mean_delta -+ z * se``.
        delta_ci_high: The upper end.
        p_value: Two-sided, of ``mean_delta / se`` under the normal distribution; 0 of different
            means without any spread.
        effect_d: By the pooled standard deviation; ``None`` without spread.
    """

    alpha: float
    mean_delta: float
    delta_ci_low: float
    delta_ci_high: float
    p_value: float
    effect_d: float | None


def sample_summary(values: Sequence[float], *, alpha: float = 0.05) -> SampleSummary:
    """Return the mean of a sample and its normal interval.

    Args:
        values: ``[N]``, at least two.
        alpha: 0.10, 0.05 or 0.01.

    Raises:
        ValueError: Another alpha, fewer than two values, or one that is not finite.
    """
    z, own = _critical_z(alpha), _sample(values)
    mean, sd = float(own.mean()), float(own.std(ddof=1))
    half = z * sd / sqrt(len(own))
    return SampleSummary(mean, float(own.var(ddof=1)), sd, mean - half, mean + half)


def unpaired_reference(
    baseline: Sequence[float], trained: Sequence[float], *, alpha: float = 0.05
) -> UnpairedReference:
    """Return the normal interval, p-value and effect of an unpaired difference of means.

    ``se = sqrt(var(baseline) / N + var(trained) / M)``, variances with ``n - 1``.

    Args:
        baseline: ``[N]`` scores, at least two.
        trained: ``[M]`` scores, at least two.
        alpha: 0.10, 0.05 or 0.01.

    Raises:
        ValueError: Another alpha, fewer than two scores on a side, or one that is not finite.

    Source:
        L. Wasserman, All of Statistics (2004), section 10.1: the Wald test of two means.
    """
    z, before, after = _critical_z(alpha), _sample(baseline), _sample(trained)
    delta = float(after.mean() - before.mean())
    error = sqrt(float(before.var(ddof=1)) / len(before) + float(after.var(ddof=1)) / len(after))
    p_value = erfc(abs(delta) / error / sqrt(2.0)) if error else float(delta == 0.0)
    effect = cohen_d(baseline, trained)
    return UnpairedReference(alpha, delta, delta - z * error, delta + z * error, p_value, effect)


def _critical_z(alpha: float) -> float:
    if alpha not in CRITICAL_Z:
        raise ValueError(f"unsupported alpha {alpha}; supported values are 0.10, 0.05, 0.01")
    return CRITICAL_Z[alpha]


def _sample(values: Sequence[float]) -> FloatArray:
    own = np.asarray(values, dtype=np.float64)
    if own.ndim != 1 or len(own) < 2 or not np.isfinite(own).all():
        raise ValueError(f"expected at least two finite numbers, got {values!r}")
    return own
