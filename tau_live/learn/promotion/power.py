"""The power of the promotion test: how many rollouts a proof takes, by simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tau_live.learn.promotion.rules import EVERY, RUNGS
from tau_live.rl.arrays import BoolArray, FloatArray
from tau_live.rl.engine import Engine, InProcess
from tau_live.rl.sequential import Difference
from tau_live.rl.verdict import Rule

HOPELESS = 20
"""Simulated tests after which to give up if all fail: if half of all succeeded, that would happen
once in a million."""

STREAMS = 200
"""Simulated tests; the median then varies by about a tenth between seeds."""

MOST = 1_000_000
"""Rollouts after which a simulated test is given up."""

_CHUNK = 8192


class Stage(NamedTuple):
    """One test.

    Attributes:
        share: Share of rollouts that the learner decides.
        test: Number of the test, from 1; each has a smaller alpha than the one before.
    """

    share: float
    test: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A simulated comparison.

    Attributes:
        difference: The learner's mean reward minus the control's, in units of reward, above 0.
        mean: The control's mean reward, in units of reward.
        spread: Standard deviation of one rollout's reward; ``None`` for the largest that the range
            allows, that of success and failure.
        reward_range: Lowest and highest reward.
        control_share: Share of rollouts that the control decides, in ``(0, 1)``; on the
            ladder also 0, as its rungs below the last keep a control.
        missing: Share of rollouts whose reward never comes, in ``[0, 1)``.
        margin: The lead that the learner must exceed (``TAU_LIVE_RL_PROMOTE_MARGIN``).
        ladder: Whether the point starts in shadow and climbs, as the points of adapters do.
    """

    difference: float
    mean: float
    spread: float | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    control_share: float = 0.5
    missing: float = 0.0
    margin: float = 0.0
    ladder: bool = False

    def __post_init__(self) -> None:
        low, high = self.reward_range
        if not self.difference > self.margin:
            raise ValueError(
                f"difference must be above the promotion margin of {self.margin:g}, "
                f"got {self.difference!r}"
            )
        if not (low < self.mean < high and self.mean + self.difference <= high):
            raise ValueError(
                f"both means must be within the reward range {low:g} to {high:g}, "
                f"got {self.mean:g} and {self.mean + self.difference:g}"
            )
        least = "[0, 1)" if self.ladder else "(0, 1)"
        if not 0.0 <= self.control_share < 1.0 or not (self.ladder or self.control_share):
            raise ValueError(f"control_share must be within {least}, got {self.control_share!r}")
        if not 0.0 <= self.missing < 1.0:
            raise ValueError(f"missing must be within [0, 1), got {self.missing!r}")
        if self.spread is not None and not 0.0 < self.spread <= self._largest_spread(self.mean):
            raise ValueError(
                f"spread must be above 0 and at most {self._largest_spread(self.mean):.3g} at a "
                f"mean of {self.mean:g}, got {self.spread!r}"
            )

    def _largest_spread(self, mean: float) -> float:
        low, high = self.reward_range
        return math.sqrt((mean - low) * (high - mean))

    def rewards(self, rng: np.random.Generator, learner: BoolArray) -> FloatArray:
        """Draw ``[N]`` rewards: beta distributed, or success and failure at the largest spread."""
        low, high = self.reward_range
        rewards = np.empty(len(learner))
        for mean, arm in ((self.mean + self.difference, learner), (self.mean, ~learner)):
            largest = self._largest_spread(mean)
            unit = (mean - low) / (high - low)
            spread = largest if self.spread is None else min(self.spread, largest)
            size = int(arm.sum())
            if spread >= largest:  # also where the mean is the highest reward itself
                rewards[arm] = rng.random(size) < unit
            else:
                precision = (largest / spread) ** 2 - 1.0
                rewards[arm] = rng.beta(unit * precision, (1.0 - unit) * precision, size)
        rewards[rng.random(len(learner)) < self.missing] = np.nan
        return low + (high - low) * rewards

    def stages(self) -> list[Stage]:
        """Return the tests that have to be passed one after the other."""
        top = 1.0 - self.control_share
        if not self.ladder:
            return [Stage(share=top, test=1)]
        shares = [share for share in RUNGS if share < top] or [RUNGS[0]]
        return [Stage(share=share, test=test) for test, share in enumerate(shares, start=2)]


def rollouts_to_prove(
    experiment: Experiment, stage: Stage, rng: np.random.Generator, *, most: int = MOST
) -> int | None:
    """Return after how many rollouts one simulated test proves the difference.

    The bounds are those of the promoter, checked as often.

    Args:
        experiment: The simulated comparison.
        stage: The share of the learner and the number of the test.
        rng: Source of arms, rewards and missing rewards.
        most: Rollouts after which the test is given up.

    Returns:
        A multiple of ``EVERY``; ``None`` where ``most`` rollouts were not enough.
    """
    rule = Rule(margin=experiment.margin, cost_margin=None)
    evidence, count = Difference.within(*experiment.reward_range), 0
    while count < most:
        learner = rng.random(_CHUNK) < stage.share
        rewards = experiment.rewards(rng, learner)
        shares = np.full(_CHUNK, stage.share)
        bounds = evidence.path_bounds(
            rewards, learner=learner, shares=shares, alpha=rule.alpha_of(stage.test), every=EVERY
        )
        enough = bounds.lower > rule.margin
        for arm, known in ((learner, evidence.learner_count), (~learner, evidence.control_count)):
            running = known + np.cumsum(arm & np.isfinite(rewards))
            enough &= running[EVERY - 1 :: EVERY] >= rule.fewest
        if enough.any():
            rollouts = count + int(bounds.rollouts[np.argmax(enough)])
            return rollouts if rollouts <= most else None
        evidence = evidence.including(rewards, learner=learner, shares=shares)
        count += _CHUNK
    return None


class Power(NamedTuple):
    """How many rollouts simulated tests took.

    Attributes:
        stage: The test.
        median: Rollouts after which half of them had proven the difference; ``None`` where fewer
            had after ``most``.
        ninetieth: Rollouts after which nine of ten had; ``None`` likewise.
    """

    stage: Stage
    median: int | None
    ninetieth: int | None


def power_of(
    experiment: Experiment,
    *,
    seed: int = 0,
    streams: int = STREAMS,
    most: int = MOST,
    engine: Engine | None = None,
    advance: Callable[[], None] = lambda: None,
) -> tuple[list[Power], Power]:
    """Simulate many tests, and return how many rollouts each stage and all together took.

    Args:
        experiment: The simulated comparison.
        seed: Seed of the simulation.
        streams: How many tests are simulated.
        most: Rollouts after which one test is given up.
        engine: Simulates them; ``None`` does so here.
        advance: Called after each simulated test of a stage.
    """
    stages = experiment.stages()
    counts = np.full((len(stages), streams), np.inf)
    simulate = partial(_simulated_count, experiment, seed, most)
    tried = min(HOPELESS, streams)
    for columns in (range(tried), range(tried, streams)):
        hopeful = [
            place
            for place in range(len(stages))
            if not columns.start or np.isfinite(counts[place, : columns.start]).any()
        ]
        tests = [(place, stream) for place in hopeful for stream in columns]
        for test, count in zip(tests, (engine or InProcess()).map(simulate, tests), strict=True):
            counts[test] = count
            advance()
    total = counts.sum(axis=0) + (Rule().fewest if experiment.ladder else 0)
    each = [_power(stage, counts[place]) for place, stage in enumerate(stages)]
    return each, _power(stages[-1], total)


def _simulated_count(experiment: Experiment, seed: int, most: int, test: tuple[int, int]) -> float:
    """Return how many rollouts a test took, infinitely many where ``most`` were not enough.

    Args:
        experiment: The simulated comparison.
        seed: Of the simulation.
        most: Rollouts after which the test is given up.
        test: The places of its stage and of its stream; it has a generator of its own.
    """
    place, stream = test
    rng = np.random.default_rng([seed, place, stream])
    count = rollouts_to_prove(experiment, experiment.stages()[place], rng, most=most)
    return math.inf if count is None else count


def _power(stage: Stage, counts: FloatArray) -> Power:
    median, ninetieth = np.quantile(counts, [0.5, 0.9], method="inverted_cdf")
    return Power(
        stage,
        int(median) if np.isfinite(median) else None,
        int(ninetieth) if np.isfinite(ninetieth) else None,
    )
