"""All estimates of a policy from one log with their evidence, or the refusal to give any."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tau_live.rl.engine import Engine, InProcess
from tau_live.rl.evaluation.estimators import (
    Estimator,
    Ratios,
    Support,
    Weights,
    accumulate_weights,
    dm,
    dr,
    ips,
    pdis,
    sndr,
    snips,
    wpdis,
)
from tau_live.rl.evaluation.intervals import Interval, bootstrap, bounds
from tau_live.rl.evaluation.log import Log, Reason, Samples, screen, screen_rollouts

INSUFFICIENT = "insufficient support"

Formula = Callable[[Samples], Ratios]

_ONE_STEP: Mapping[Estimator, Formula] = MappingProxyType(
    {Estimator.IPS: ips, Estimator.SNIPS: snips}
)
_WITH_MODEL: Mapping[Estimator, Formula] = MappingProxyType(
    {**_ONE_STEP, Estimator.DM: dm, Estimator.DR: dr, Estimator.SNDR: sndr}
)
_SEVERAL_STEPS: Mapping[Estimator, Formula] = MappingProxyType(
    {Estimator.PDIS: pdis, Estimator.WPDIS: wpdis}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """How to estimate.

    Attributes:
        reward_range: The least and the largest reward of a decision; over several steps, the least
            and the largest sum of a rollout's rewards. Others are left out and counted.
        weight_cap: Cap of the weights (over several steps, of their products), at least 1; it
            lowers the variance and adds bias. ``None`` caps none; then there is no interval that
            holds for every distribution.
        confidence: Confidence of the two-sided intervals, in ``(0, 1)``.
        replicates: Draws of the bootstrap; 0 does without.
        support: Floors below which there is no estimate.
        engine: Draws the replicates of the bootstrap.
    """

    reward_range: tuple[float, float]
    weight_cap: float | None = None
    confidence: float = 0.95
    replicates: int = 1_000
    support: Support = field(default_factory=Support)
    engine: Engine = field(default_factory=InProcess)

    def __post_init__(self) -> None:
        low, high = self.reward_range
        if not (low < high and np.isfinite([low, high]).all()):
            raise ValueError(f"reward_range must rise and be finite, got {self.reward_range!r}")
        if not self.cap >= 1.0:
            raise ValueError(f"weight_cap must be at least 1, got {self.weight_cap!r}")
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence must be within (0, 1), got {self.confidence!r}")
        if self.replicates < 0:
            raise ValueError(f"replicates must be at least 0, got {self.replicates!r}")

    @property
    def cap(self) -> float:
        """The cap of weights; infinite without one."""
        return np.inf if self.weight_cap is None else self.weight_cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate of one formula, in units of reward, or why it has none.

    Attributes:
        estimator: The formula.
        value: The estimate; ``None`` when refused, as the intervals and the error.
        standard_error: ``None`` with one rollout.
        bootstrap: Percentile interval over rollouts; ``None`` without draws.
        bernstein: Interval that holds at any size and for every distribution in the declared
            range; ``None`` where there is none (see ``bounds``).
        weights: Statistics of its importance weights.
        refused: Why there is no value, in words; empty where there is one.
    """

    estimator: Estimator
    weights: Weights
    value: float | None = None
    standard_error: float | None = None
    bootstrap: Interval | None = None
    bernstein: Interval | None = None
    refused: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """``ok``, or ``insufficient support`` when refused."""
        return INSUFFICIENT if self.refused else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The evaluation of a policy from a log.

    Attributes:
        estimates: By formula. Those that need a reward model are there when the log has one.
        logged: Mean logged reward of the decisions used (over several steps, of the rollouts), the
            value of the policy that made them; ``None`` when there are none.
        weights: Statistics of the importance weights.
        left_out: How many decisions were not used, by reason.
    """

    estimates: Mapping[Estimator, Estimate]
    logged: float | None
    weights: Weights
    left_out: Mapping[Reason, int]


def evaluate(log: Log, config: EvaluationConfig, *, rng: np.random.Generator) -> Evaluation:
    """Return estimates of the mean reward of a decision, each decision taken for itself.

    Where a rollout has several decisions, that is the value of following the target policy in one
    of them and the logged one afterwards; ``evaluate_rollouts`` follows it throughout.

    Args:
        log: ``N`` decisions.
        config: How to estimate.
        rng: Source of the bootstrap's draws.
    """
    samples, left_out = screen(log, config.reward_range)
    formulas = _ONE_STEP if samples.predictions is None else _WITH_MODEL
    with np.errstate(over="ignore", invalid="ignore"):
        weights = Weights.of(samples, config.cap)
    return Evaluation(
        estimates=_estimates(formulas, samples, weights, config=config, rng=rng),
        logged=float(samples.rewards.mean()) if len(samples.rewards) else None,
        weights=weights,
        left_out=left_out,
    )


def evaluate_rollouts(
    log: Log, config: EvaluationConfig, *, rng: np.random.Generator
) -> Evaluation:
    """Return estimates of the mean sum of a rollout's rewards, the target deciding every step.

    Args:
        log: ``N`` decisions, the steps of a rollout in order. An unusable one excludes its whole
            rollout.
        config: How to estimate; the range is that of the sum.
        rng: Source of the bootstrap's draws.
    """
    usable, left_out = screen_rollouts(log, config.reward_range)
    with np.errstate(over="ignore", invalid="ignore"):
        samples = accumulate_weights(usable)
        last = samples.last
        final = Samples(samples.rollouts[last], samples.weights[last], samples.rewards[last])
        weights = Weights.of(final, config.cap)
    returns = samples.totals(samples.rewards)
    return Evaluation(
        estimates=_estimates(_SEVERAL_STEPS, samples, weights, config=config, rng=rng),
        logged=float(returns.mean()) if len(returns) else None,
        weights=weights,
        left_out=left_out,
    )


def _estimates(
    formulas: Mapping[Estimator, Formula],
    samples: Samples,
    weights: Weights,
    *,
    config: EvaluationConfig,
    rng: np.random.Generator,
) -> dict[Estimator, Estimate]:
    shortfalls = config.support.shortfalls(weights, config.cap)
    if shortfalls:
        return {
            name: Estimate(estimator=name, weights=weights, refused=shortfalls) for name in formulas
        }
    cut = samples._replace(weights=np.minimum(samples.weights, config.cap))
    with np.errstate(over="ignore", invalid="ignore"):
        tables = {name: formula(cut) for name, formula in formulas.items()}
        finite = {
            name: estimate for name, estimate in tables.items() if np.isfinite(estimate.value)
        }
        intervals: dict[Estimator, Interval] = {}
        if finite and config.replicates:
            drawn = bootstrap(
                list(finite.values()),
                alpha=1.0 - config.confidence,
                replicates=config.replicates,
                limits=config.reward_range,
                rng=rng,
                engine=config.engine,
            )
            intervals = dict(zip(finite, drawn, strict=True))
        errors = {name: estimate.standard_error for name, estimate in finite.items()}
    _widen(finite, intervals, errors)
    estimates = {}
    for name in formulas:
        if name not in finite:
            why = ("the estimate is not finite",)
            estimates[name] = Estimate(estimator=name, weights=weights, refused=why)
            continue
        estimates[name] = Estimate(
            estimator=name,
            value=finite[name].value,
            standard_error=errors[name] if np.isfinite(errors[name]) else None,
            bootstrap=intervals.get(name),
            bernstein=bounds(
                name, samples, config.reward_range, cap=config.cap, alpha=1.0 - config.confidence
            ),
            weights=weights,
        )
    return estimates


def _widen(
    tables: Mapping[Estimator, Ratios],
    intervals: dict[Estimator, Interval],
    errors: dict[Estimator, float],
) -> None:
    """Widen the interval of the direct method to include that of the doubly robust one.

    Bootstrap draws do not show the bias of the model. Its weighted errors do: they are the
    correction of the doubly robust estimate, so an interval around both holds as often as that
    estimate's. Without that estimate there is no interval.

    Source:
        Dudik et al. 2014, arXiv:1503.02834, section 3 (the correction estimates the bias).
    """
    if Estimator.DM not in tables:
        return
    if Estimator.DR not in tables:
        intervals.pop(Estimator.DM, None)
        errors[Estimator.DM] = np.nan
        return
    bias = tables[Estimator.DM].value - tables[Estimator.DR].value
    errors[Estimator.DM] = float(np.hypot(errors[Estimator.DM], bias))
    if Estimator.DM in intervals and Estimator.DR in intervals:
        lows, highs = zip(intervals[Estimator.DM], intervals[Estimator.DR], strict=True)
        intervals[Estimator.DM] = Interval(min(lows), max(highs))
