"""Stability of a comparison: over seeds, over sample sizes, and from one report to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from tau_live.rl.paired import sign_flip

P_VALUE_BAND = 0.05
REWARD_DELTA_BAND = 0.05
"""How far p-values and differences of seeds may lie apart."""

P_VALUE_DRIFT = 0.04
REWARD_DELTA_DRIFT = 0.08
"""How far their means may move from one sample size to the next."""

FEWEST_SEEDS = 3
FEWEST_PAIRS = 20
SUBSETS = 20

INTERPRETATION = (
    "These checks are guardrails and no causal proof. Within the bands means that the result is "
    "stable within them, not that it holds for every distribution of tasks. Outside the bands "
    "means that the evidence is not stable enough, not that the subject became worse."
)
"""What the figures of this module do and do not say; goes into every report."""

_ROUNDING = 1e-12

SeedKind = Literal["training", "evaluation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one comparison among several of the same two subjects.

    Attributes:
        seed: What sets this one apart.
        sample_size: Its pairs.
        p_value: Two-sided, of the sign-flip test, for this comparison alone.
        reward_delta: The mean difference, in units of reward.
    """

    seed: int
    sample_size: int
    p_value: float
    reward_delta: float


def observe(differences: Sequence[float], *, seed: int, draws_seed: int) -> Observation:
    """Return the result of one comparison.

    Args:
        differences: ``[N]``, one per pair, at least one, in units of reward.
        seed: Of the training or of the episodes that were compared.
        draws_seed: Of the test's draws.

    Raises:
        ValueError: There is no difference, or one is not finite.
    """
    if not len(differences):
        raise ValueError("expected at least one difference, got none")
    return Observation(
        seed=seed,
        sample_size=len(differences),
        p_value=sign_flip(differences, seed=draws_seed).p_value,
        reward_delta=float(np.mean(differences)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedReproducibility:
    """How far the results of several seeds lie apart, at the full sample size.

    Attributes:
        seed_kind: ``training`` for subjects that were trained independently, ``evaluation`` for
            other episodes of one subject.
        sample_size: Pairs of each.
        run_count: How many seeds.
        p_value_range: The largest p-value minus the smallest.
        reward_delta_range: The same of the mean differences, in units of reward.
        within_band: Whether each is at most 0.05.
    """

    seed_kind: SeedKind
    sample_size: int
    run_count: int
    p_value_range: float
    reward_delta_range: float
    within_band: bool


def seed_reproducibility(
    observations: Sequence[Observation], *, seed_kind: SeedKind
) -> SeedReproducibility | None:
    """Return how far the results of several seeds lie apart.

    Args:
        observations: One per seed. Those with fewer pairs than the largest are left out.
        seed_kind: What the seeds are of.

    Returns:
        The ranges; ``None`` if fewer than three seeds have the full sample size.

    Raises:
        ValueError: A seed comes twice at the full sample size.
    """
    full = max((own.sample_size for own in observations), default=0)
    runs = [own for own in observations if own.sample_size == full]
    if len({run.seed for run in runs}) < len(runs):
        raise ValueError(f"expected one observation per seed, got {[run.seed for run in runs]!r}")
    if len(runs) < FEWEST_SEEDS:
        return None
    p_value_range = _range([run.p_value for run in runs])
    reward_delta_range = _range([run.reward_delta for run in runs])
    return SeedReproducibility(
        seed_kind=seed_kind,
        sample_size=full,
        run_count=len(runs),
        p_value_range=p_value_range,
        reward_delta_range=reward_delta_range,
        within_band=p_value_range <= P_VALUE_BAND + _ROUNDING
        and reward_delta_range <= REWARD_DELTA_BAND + _ROUNDING,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizePoint:
    """The mean result of the subsets of one size.

    Attributes:
        sample_size: Pairs of each.
        mean_p_value: Of their two-sided p-values.
        mean_reward_delta: Of their mean differences, in units of reward.
    """

    sample_size: int
    mean_p_value: float
    mean_reward_delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSizeSensitivity:
    """How much a result depends on the number of pairs.

    Attributes:
        seed: Of the subsets, and of the draws of each test.
        points: By their size, the smallest first.
        max_p_value_drift: The largest difference of mean p-values of adjacent sizes.
        max_reward_delta_drift: The same of mean differences, in units of reward.
        within_band: Whether they are at most 0.04 and 0.08.
    """

    seed: int
    points: tuple[SampleSizePoint, ...]
    max_p_value_drift: float
    max_reward_delta_drift: float
    within_band: bool


def sample_size_sensitivity(
    differences: Sequence[float], *, seed: int, min_pairs: int = FEWEST_PAIRS
) -> SampleSizeSensitivity | None:
    """Return how much a result depends on the number of pairs, from subsets of them.

    The sizes are ``n/2``, ``3n/4`` and ``n``, rounded to even where halves occur. 20 times the
    cases are put in an order, ``Generator(PCG64(seed)).permutation(n)``; its first ``n/2`` and its
    first ``3n/4`` cases are a subset each, whose pairs keep the order of ``differences``.

    Args:
        differences: ``[N]``, one per pair, in units of reward.
        seed: Of the orders, and of the draws of each test.
        min_pairs: The fewest pairs of a subset, at least 1.

    Returns:
        The drifts; ``None`` if half the pairs are fewer than ``min_pairs``.

    Raises:
        ValueError: A difference is not finite.
    """
    count = len(differences)
    if count < 2 * min_pairs:
        return None
    values, rng = (
        np.asarray(differences, dtype=np.float64),
        np.random.Generator(np.random.PCG64(seed)),
    )
    subsets = [values]
    for _ in range(SUBSETS):
        order = rng.permutation(count)
        subsets += [values[np.sort(order[: round(count * part)])] for part in (0.5, 0.75)]
    observations = [observe(own.tolist(), seed=seed, draws_seed=seed) for own in subsets]
    return sample_size_drift(observations, seed=seed)


def sample_size_drift(observations: Sequence[Observation], *, seed: int) -> SampleSizeSensitivity:
    """Return how much the mean results of adjacent sample sizes differ.

    Args:
        observations: Of at least one size, in any order.
        seed: Of the subsets.
    """
    by_size: dict[int, list[Observation]] = {}
    for own in sorted(observations, key=lambda own: own.sample_size):
        by_size.setdefault(own.sample_size, []).append(own)
    points = tuple(
        SampleSizePoint(
            sample_size=size,
            mean_p_value=float(np.mean([own.p_value for own in group])),
            mean_reward_delta=float(np.mean([own.reward_delta for own in group])),
        )
        for size, group in by_size.items()
    )
    adjacent = list(pairwise(points))
    p_value_drift = max((abs(b.mean_p_value - a.mean_p_value) for a, b in adjacent), default=0.0)
    reward_delta_drift = max(
        (abs(b.mean_reward_delta - a.mean_reward_delta) for a, b in adjacent), default=0.0
    )
    return SampleSizeSensitivity(
        seed=seed,
        points=points,
        max_p_value_drift=p_value_drift,
        max_reward_delta_drift=reward_delta_drift,
        within_band=p_value_drift <= P_VALUE_DRIFT + _ROUNDING
        and reward_delta_drift <= REWARD_DELTA_DRIFT + _ROUNDING,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRange:
    """How far the rewards of one case lie apart in several reports.

    Attributes:
        min: The smallest, in units of reward.
        max: The largest.
        range: ``max - min``.
        within_tolerance: Whether that is at most the tolerance.
    """

    min: float
    max: float
    range: float
    within_tolerance: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatability:
    """How far the rewards of the same cases lie apart in several reports.

    Attributes:
        case_reports: By case.
        max_observed_range: The largest range of a case, in units of reward.
        tolerance: The largest that is allowed.
        within_tolerance: Whether every case is within it.
    """

    case_reports: dict[str, CaseRange]
    max_observed_range: float
    tolerance: float
    within_tolerance: bool


def repeatability(reports: Sequence[Mapping[str, float]], *, tolerance: float) -> Repeatability:
    """Return how far the rewards of the same cases lie apart in several reports.

    Args:
        reports: At least two of the same suite and subject; each the reward by case.
        tolerance: The largest range of a case, at least 0, in units of reward.

    Raises:
        ValueError: Fewer than two reports, none or other cases in one of them, or a reward or
            tolerance that is not finite or, for the latter, below 0.
    """
    if (
        len(reports) < 2
        or not reports[0]
        or any(own.keys() != reports[0].keys() for own in reports)
    ):
        raise ValueError(
            f"expected two reports of the same cases, got {[list(r) for r in reports]!r}"
        )
    if not 0.0 <= tolerance < np.inf:
        raise ValueError(f"tolerance must be finite and at least 0, got {tolerance!r}")
    cases = {
        case: _case_range([own[case] for own in reports], tolerance=tolerance)
        for case in reports[0]
    }
    return Repeatability(
        case_reports=cases,
        max_observed_range=max(case.range for case in cases.values()),
        tolerance=tolerance,
        within_tolerance=all(case.within_tolerance for case in cases.values()),
    )


def _case_range(rewards: Sequence[float], *, tolerance: float) -> CaseRange:
    if not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite, got {rewards!r}")
    reach = _range(rewards)
    return CaseRange(
        min=min(rewards),
        max=max(rewards),
        range=reach,
        within_tolerance=reach <= tolerance + _ROUNDING,
    )


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)
