"""All estimates of a policy with their basis, or why there are none."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tau_live.evaluating.model import predictions
from tau_live.evaluating.records import Record, Records, Target, returns_of
from tau_live.evaluating.unexplored import misreported, unexplored, without_support
from tau_live.rl.arrays import FloatArray
from tau_live.rl.bounds import LARGEST_REWARD
from tau_live.rl.evaluation import (
    Evaluation,
    EvaluationConfig,
    Log,
    Offered,
    evaluate,
    evaluate_rollouts,
)

PASSES = 4
"""How often each decision is looked at."""

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How to evaluate.

    Attributes:
        reward_range: The least and the largest reward; ``None`` takes those seen.
        weight_cap: Weights above it are cut, which makes a bias; ``None`` cuts none.
        confidence: Of the two-sided intervals, in ``(0, 1)``.
        replicates: Draws of the bootstrap.
        seed: Of those.
    """

    reward_range: tuple[float, float] | None = None
    weight_cap: float | None = None
    confidence: float = 0.95
    replicates: int = 1_000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a log says about a policy.

    Attributes:
        decisions: Of one decision by the policy, and everything after it as it was logged.
        rollouts: Of whole rollouts, every step by the policy; ``None`` where all have one step.
        reward_range: The least and the largest reward.
        observed: Whether that is what was seen rather than what was declared: then the intervals
            that hold for every distribution hold only if no reward can be further out.
        left_out: How many decisions (or rollouts) were left out before, by reason.
        read: How many decisions there were.
        unexplored: In how many the policy would choose what was not explored and hardly ever
            chosen.
    """

    decisions: Evaluation
    rollouts: Evaluation | None
    reward_range: tuple[float, float]
    observed: bool
    left_out: dict[str, int]
    read: int
    unexplored: int = 0

    @property
    def refused(self) -> tuple[str, ...]:
        """Why there is no estimate at all, in words; empty where there is one."""
        sections = [self.decisions, *([self.rollouts] if self.rollouts else [])]
        whys = [
            next((one.refused for one in section.estimates.values()), ()) for section in sections
        ]
        some = any(not one.refused for section in sections for one in section.estimates.values())
        return () if some else whys[0]


def report_of(found: Records, target: Target, asked: Asked, *, tell: Tell) -> Report:
    """Return what decisions say about a policy.

    Args:
        found: The decisions.
        target: The policy.
        asked: How to evaluate.
        tell: Told how many more decisions are done, ``PASSES`` times for each.

    Raises:
        ValueError: ``asked`` holds what cannot be, or the features do not fit the policy.
    """
    records = found.records
    returns = returns_of(found)
    bounds = asked.reward_range or _seen(returns)
    known = [record for record in records if record.options]
    targets: list[FloatArray | None] = []
    for record in records:
        targets.append(target(record) if record.options else None)
        tell(1)
    places = np.array([bool(record.options) for record in records], dtype=np.bool_)
    expected = iter(predictions(known, returns[places], reward_range=bounds, tell=tell))
    modelled = [next(expected) if record.options else None for record in records]
    applied = np.array([record.applied for record in records], dtype=np.int64)
    ids = np.array([record.rollout for record in records], dtype=np.str_)
    options = Offered.of(targets, applied, modelled)
    log = Log(
        rollouts=ids,
        propensities=np.array([record.propensity for record in records], dtype=np.float64),
        rewards=returns,
        targets=options,
    )
    config = EvaluationConfig(
        reward_range=bounds,
        weight_cap=asked.weight_cap or _cap(log.propensities),
        confidence=asked.confidence,
        replicates=asked.replicates,
    )
    uncut = replace(config, weight_cap=asked.weight_cap)
    lacking = unexplored(records, targets)
    why = lacking.why or misreported(records)
    whole = _of_rollouts(found, log, options, uncut, seed=asked.seed)
    decided = evaluate(log, config, rng=np.random.default_rng(asked.seed))
    return Report(
        decisions=without_support(decided, why),
        rollouts=None if whole is None else without_support(whole, why),
        reward_range=bounds,
        observed=asked.reward_range is None,
        left_out=dict(sorted(found.left_out.items())),
        read=len(records) + sum(found.left_out.values()),
        unexplored=lacking.decisions,
    )


def joint_report(parts: Sequence[tuple[Records, Target]], asked: Asked, *, tell: Tell) -> Report:
    """Return what the decisions of several points say about a policy for each, taken together.

    A rollout is weighted by the product over all of its decisions at these points, and earns its
    total at the end; where it decided at some of them only, those are all that count. There is no
    reward model: it would have to know what the other points do.

    Args:
        parts: The decisions of each point, and the policy for it.
        asked: How to evaluate; the range is that of totals.
        tell: As for ``report_of``.

    Raises:
        ValueError: As for ``report_of``.
    """
    rows: list[tuple[Record, FloatArray | None]] = []
    why: str | None = None
    for found, target in parts:
        for record in found.records:
            rows.append((record, target(record) if record.options else None))
            tell(PASSES)
        why = why or misreported(found.records)
    rows.sort(key=lambda row: row[0].rollout)  # stable: the steps of a point stay in their order
    records = [record for record, _ in rows]
    targets = [target for _, target in rows]
    lacking = unexplored(records, targets)
    why = lacking.why or why
    ids = np.array([record.rollout for record in records], dtype=np.str_)
    totals = np.array([record.total for record in records], dtype=np.float64)
    last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.zeros(0, dtype=np.bool_)
    offered = Offered.of(targets, np.array([one.applied for one in records], dtype=np.int64))
    log = Log(
        rollouts=ids,
        propensities=np.array([record.propensity for record in records], dtype=np.float64),
        rewards=totals,
        targets=offered,
    )
    bounds = asked.reward_range or _seen(totals)
    config = EvaluationConfig(
        reward_range=bounds,
        weight_cap=asked.weight_cap or _cap(log.propensities),
        confidence=asked.confidence,
        replicates=asked.replicates,
    )
    spoilt = {rollout for found, _ in parts for rollout in found.spoilt}
    merged = Records([record._replace(reward=record.total if end else 0.0)
                      for record, end in zip(records, last.tolist(), strict=True)],
                     spoilt=spoilt)  # fmt: skip
    uncut = replace(config, weight_cap=asked.weight_cap)
    whole = _whole(merged, log, offered, uncut, seed=asked.seed)
    decided = evaluate(log, config, rng=np.random.default_rng(asked.seed))
    left_out: Counter[str] = sum((found.left_out for found, _ in parts), Counter())
    return Report(
        decisions=without_support(decided, why),
        rollouts=without_support(whole, why),
        reward_range=bounds,
        observed=asked.reward_range is None,
        left_out=dict(sorted(left_out.items())),
        read=len(records) + left_out.total(),
        unexplored=lacking.decisions,
    )


def _of_rollouts(
    found: Records, log: Log, offered: Offered, config: EvaluationConfig, *, seed: int
) -> Evaluation | None:
    if len(set(log.rollouts.tolist())) == len(log.rollouts):
        return None
    return _whole(found, log, offered, config, seed=seed)


def _whole(
    found: Records, log: Log, offered: Offered, config: EvaluationConfig, *, seed: int
) -> Evaluation:
    at = np.flatnonzero([record.rollout not in found.spoilt for record in found.records])
    ends = np.cumsum(offered.counts)
    rows: list[FloatArray | None] = [
        offered.targets[ends[n] - offered.counts[n] : ends[n]] if offered.counts[n] else None
        for n in at
    ]
    kept = Log(
        rollouts=log.rollouts[at],
        propensities=log.propensities[at],
        rewards=np.array([found.records[n].reward for n in at], dtype=np.float64),
        targets=Offered.of(rows, offered.applied[at]),
    )
    return evaluate_rollouts(kept, config, rng=np.random.default_rng(seed))


def _seen(returns: FloatArray) -> tuple[float, float]:
    usable = returns[np.abs(returns) <= LARGEST_REWARD]
    low, high = (float(usable.min()), float(usable.max())) if len(usable) else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _cap(propensities: FloatArray) -> float | None:
    """Return what no weight can be above: one over the smallest propensity of the log."""
    positive = propensities[(propensities > 1e-300) & (propensities <= 1.0 + 1e-9)]
    return max(1.0, 1.0 / float(positive.min())) if len(positive) else None
