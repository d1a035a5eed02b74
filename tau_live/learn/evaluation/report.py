"""All estimates of a policy with their evidence, or why there are none."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tau_live.learn.evaluation.model import predictions
from tau_live.learn.evaluation.records import (
    Record,
    Records,
    Target,
    misreported_option,
    returns_of,
    unexplored_share,
    without_support,
)
from tau_live.rl.arrays import FloatArray, IntArray
from tau_live.rl.bounds import LARGEST_REWARD
from tau_live.rl.engine import Engine, InProcess
from tau_live.rl.evaluation.log import Log, Offered
from tau_live.rl.evaluation.report import Evaluation, EvaluationConfig, evaluate, evaluate_rollouts

PASSES = 4
"""How often ``tell`` is called for each decision."""

Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """How to evaluate.

    Attributes:
        reward_range: The least and the largest reward; ``None`` takes those observed.
        weight_cap: Cap of the weights, at least 1, which adds bias; ``None`` caps none.
        confidence: Confidence of the two-sided intervals, in ``(0, 1)``.
        replicates: Draws of the bootstrap; 0 does without.
        seed: Seed of the bootstrap.
        engine: Draws its replicates.
    """

    reward_range: tuple[float, float] | None = None
    weight_cap: float | None = None
    confidence: float = 0.95
    replicates: int = 1_000
    seed: int = 0
    engine: Engine = field(default_factory=InProcess)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The evaluation of a policy from a log.

    Attributes:
        decisions: Value of one decision by the policy, followed by the logged ones.
        rollouts: Value of whole rollouts, every step by the policy; ``None`` where all have one
            step.
        reward_range: The least and the largest reward.
        observed: Whether that range is observed rather than declared: then the intervals that hold
            for every distribution hold only if no reward can be further out.
        left_out: How many decisions (or rollouts) were left out before, by reason.
        read: How many decisions there were.
        unexplored: In how many decisions the policy would choose an option that was not explored
            and hardly ever chosen.
    """

    decisions: Evaluation
    rollouts: Evaluation | None
    reward_range: tuple[float, float]
    observed: bool
    left_out: dict[str, int]
    read: int
    unexplored: int = 0

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why there is no estimate at all, in words; empty where there is one."""
        sections = [self.decisions, *([self.rollouts] if self.rollouts else [])]
        whys = [
            next((estimate.refused for estimate in section.estimates.values()), ())
            for section in sections
        ]
        has_estimate = any(
            not estimate.refused for section in sections for estimate in section.estimates.values()
        )
        return () if has_estimate else whys[0]


def report_of(log_records: Records, target: Target, request: EvalRequest, *, tell: Tell) -> Report:
    """Return the evaluation of a policy on logged decisions.

    Args:
        log_records: The decisions.
        target: The policy.
        request: How to evaluate.
        tell: Called with the number of further decisions done, ``PASSES`` times for each.

    Raises:
        ValueError: A value of ``request`` is out of range, or the features do not fit the policy.
    """
    records = log_records.records
    returns = returns_of(log_records)
    known = [record for record in records if record.options]
    targets: list[FloatArray | None] = []
    for record in records:
        targets.append(target(record) if record.options else None)
        tell(1)
    places = np.array([bool(record.options) for record in records], dtype=np.bool_)
    bounds = request.reward_range or _observed_range(returns)
    expected = iter(predictions(known, returns[places], reward_range=bounds, tell=tell))
    modelled = [next(expected) if record.options else None for record in records]
    log = _log(records, returns, Offered.of(targets, _applied_options(records), modelled))
    several = len({record.rollout for record in records}) < len(records)
    misreported = misreported_option(records)
    return _report(log_records, targets, log, request, misreported=misreported, whole=several)


def joint_report(
    parts: Sequence[tuple[Records, Target]], request: EvalRequest, *, tell: Tell
) -> Report:
    """Return the joint evaluation of policies for several points on their logged decisions.

    A rollout is weighted by the product over all of its decisions at these points, and earns its
    total at the end; points at which it did not decide do not count. There is no reward model: it
    would have to know what the other points do.

    Args:
        parts: The decisions of each point, and the policy for it.
        request: How to evaluate; the range is that of totals.
        tell: As in ``report_of``.

    Raises:
        ValueError: As for ``report_of``.
    """
    rows: list[tuple[Record, FloatArray | None]] = []
    why: str | None = None
    for log_records, target in parts:
        for record in log_records.records:
            rows.append((record, target(record) if record.options else None))
            tell(PASSES)
        why = why or misreported_option(log_records.records)
    rows.sort(key=lambda row: row[0].rollout)  # stable: the steps of a point stay in their order
    records = [record for record, _ in rows]
    targets = [target for _, target in rows]
    is_last = [
        n + 1 == len(records) or records[n + 1].rollout != record.rollout
        for n, record in enumerate(records)
    ]
    merged = Records(
        [
            record._replace(reward=record.total if last else 0.0)
            for record, last in zip(records, is_last, strict=True)
        ],
        left_out=sum((part.left_out for part, _ in parts), Counter()),
        incomplete={rollout for part, _ in parts for rollout in part.incomplete},
    )
    totals = np.array([record.total for record in records], dtype=np.float64)
    log = _log(records, totals, Offered.of(targets, _applied_options(records)))
    return _report(merged, targets, log, request, misreported=why, whole=True)


def _applied_options(records: Sequence[Record]) -> IntArray:
    return np.array([record.applied for record in records], dtype=np.int64)


def _log(records: Sequence[Record], rewards: FloatArray, offered: Offered) -> Log:
    return Log(
        rollouts=np.array([record.rollout for record in records], dtype=np.str_),
        propensities=np.array([record.propensity for record in records], dtype=np.float64),
        rewards=rewards,
        targets=offered,
    )


def _report(
    log_records: Records,
    targets: Sequence[FloatArray | None],
    log: Log,
    request: EvalRequest,
    *,
    misreported: str | None,
    whole: bool,
) -> Report:
    """Return the report on decisions, and with ``whole`` on their rollouts.

    Args:
        log_records: ``N`` decisions, each with the reward before the next step.
        targets: ``[N]`` of ``[A]``, the policy's probabilities; ``None`` where unknown.
        log: The same decisions, each with its return.
        request: How to evaluate.
        misreported: Why the logged propensities cannot be right; ``None`` where they may be.
        whole: Whether rollouts are evaluated too.
    """
    records = log_records.records
    config = EvaluationConfig(
        reward_range=request.reward_range or _observed_range(log.rewards),
        weight_cap=request.weight_cap or _cap(log.propensities),
        confidence=request.confidence,
        replicates=request.replicates,
        engine=request.engine,
    )
    unexplored, lacking = unexplored_share(records, targets)
    why = lacking or misreported
    rollouts = None
    if whole:
        at = [n for n, record in enumerate(records) if record.rollout not in log_records.incomplete]
        complete = [records[n] for n in at]
        rewards = np.array([record.reward for record in complete], dtype=np.float64)
        offered = Offered.of([targets[n] for n in at], _applied_options(complete))
        rollouts = evaluate_rollouts(
            _log(complete, rewards, offered),
            replace(config, weight_cap=request.weight_cap),
            rng=np.random.default_rng(request.seed),
        )
    return Report(
        decisions=without_support(
            evaluate(log, config, rng=np.random.default_rng(request.seed)), why
        ),
        rollouts=None if rollouts is None else without_support(rollouts, why),
        reward_range=config.reward_range,
        observed=request.reward_range is None,
        left_out=dict(sorted(log_records.left_out.items())),
        read=len(records) + log_records.left_out.total(),
        unexplored=unexplored,
    )


def _observed_range(returns: FloatArray) -> tuple[float, float]:
    usable = returns[np.abs(returns) <= LARGEST_REWARD]
    low, high = (float(usable.min()), float(usable.max())) if len(usable) else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _cap(propensities: FloatArray) -> float | None:
    """Return the largest possible weight: one over the smallest propensity of the log."""
    positive = propensities[(propensities > 1e-300) & (propensities <= 1.0 + 1e-9)]
    return max(1.0, 1.0 / float(positive.min())) if len(positive) else None
