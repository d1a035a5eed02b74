"""The verdict of the evidence on a learner: promote, wait, give up, or stop it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf, pi
from typing import NamedTuple, Self

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray
from tau_live.rl.sequential import Difference, Interval


class Verdict(StrEnum):
    """The verdict on a learner."""

    WAIT = "wait"
    PROMOTE = "promote"
    FUTILE = "futile"
    UNSAFE = "unsafe"
    UNEQUAL_MISSING = "unequal_missing"
    OUT_OF_RANGE = "out_of_range"
    """Set by the caller that counts the rewards; never follows from the evidence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Requirements for the promotion of a learner.

    Attributes:
        alpha: Probability that any learner that is not better is ever promoted, over all tests
            together, in ``(0, 1)``. At 0.02 the first test may err once in 82, and did so in at
            most 6 of 1,000 A/A streams of 20,000 rollouts, looked at after every 8.
        margin: The lead that the learner must exceed, in units of reward.
        cost_margin: The learner's largest extra cost, in units of cost, at least 0; ``None`` where
            no cost is ever reported.
        missing_margin: By how much the shares of missing rewards may differ, in ``[0, 1]``.
        fewest: Known rewards that each arm needs before a promotion or ``futile``, at least 1.
    """

    alpha: float = 0.02
    margin: float = 0.0
    cost_margin: float | None = 0.05
    missing_margin: float = 0.02
    fewest: int = 50

    def alpha_of(self, test: int) -> float:
        """Return the alpha of the ``test``-th test, from 1; those of all tests sum to ``alpha``."""
        return self.alpha * 6.0 / (pi * test) ** 2


class Outcomes(NamedTuple):
    """Rollouts whose rewards have come or are overdue, in the order in which they began.

    Attributes:
        rewards: ``[N]``; values that are not finite or outside the declared range are missing.
        costs: ``[N]``, safety costs; the same.
        learner: ``[N]``, whether the learner decided the rollout.
        shares: ``[N]``, the probability of the learner's assignment, in ``[0, 1]``.
    """

    rewards: FloatArray
    costs: FloatArray
    learner: BoolArray
    shares: FloatArray


class Finding(NamedTuple):
    """A verdict with the numbers behind it.

    Attributes:
        verdict: The verdict.
        difference: Learner's reward minus control's.
        cost: Learner's cost minus control's.
        missing: Learner's share of missing rewards minus control's.
        learner: Known rewards of the learner.
        control: Known rewards of the control.
        test: Number of the test, from 1.
        alpha: Error probability: each bound of ``difference`` and ``cost`` fails with at most this,
            each of ``missing`` with half of it.
    """

    verdict: Verdict
    difference: Interval
    cost: Interval
    missing: Interval
    learner: int
    control: int
    test: int
    alpha: float


class Evidence(NamedTuple):
    """Evidence about a learner and its control since their test began. Frozen, storable.

    Attributes:
        test: Number of the test, from 1; each has a smaller alpha than the one before.
        reward: Evidence from the rewards that came.
        cost: Evidence from the costs that came.
        missing: Evidence from missing rewards, a missing one counting as 1, a known one as 0.
    """

    test: int
    reward: Difference
    cost: Difference
    missing: Difference

    @classmethod
    def none(cls, *, rewards: tuple[float, float], costs: tuple[float, float] = (0.0, 1.0)) -> Self:
        """Return the evidence before the first rollout of the first test.

        Args:
            rewards: Lowest and highest reward possible, as declared.
            costs: Lowest and highest cost possible.

        Raises:
            ValueError: A range is empty or not finite.
        """
        return cls(
            1, Difference.within(*rewards), Difference.within(*costs), Difference.within(0.0, 1.0)
        )

    def including(self, outcomes: Outcomes) -> Self:
        """Return the evidence with more rollouts; one by one gives the same bits.

        A rollout without a reward counts as missing and not as a reward of 0.

        Raises:
            ValueError: As in ``Difference.including``.
        """
        arms, shares = outcomes.learner, outcomes.shares
        rewards = outcomes.rewards
        missing = ~((rewards >= self.reward.lowest) & (rewards <= self.reward.highest))
        absent = missing.astype(np.float64)
        return self._replace(
            reward=self.reward.including(rewards, learner=arms, shares=shares),
            cost=self.cost.including(outcomes.costs, learner=arms, shares=shares),
            missing=self.missing.including(absent, learner=arms, shares=shares),
        )

    def finding(self, rule: Rule) -> Finding:
        """Return the verdict that the evidence allows.

        ``unsafe`` and ``unequal_missing`` need proof that a margin is exceeded and come first.
        ``promote`` needs proof that the difference is above its margin and that the cost is not;
        ``futile`` needs proof that the difference is below its margin. Else: ``wait``.
        """
        alpha = rule.alpha_of(self.test)
        finding = Finding(
            verdict=Verdict.WAIT,
            difference=self.reward.interval(alpha=alpha),
            cost=self.cost.interval(alpha=alpha),
            missing=self.missing.interval(alpha=alpha / 2.0),
            learner=int(self.reward.learner_count),
            control=int(self.reward.control_count),
            test=self.test,
            alpha=alpha,
        )
        return finding._replace(verdict=_verdict(finding, rule))

    def restart(self) -> Self:
        """Return the empty evidence of the next test, which has a smaller alpha.

        For a new champion, a new rung, a control that changed, or a test that drift voided.
        """
        ranges = (
            (difference.lowest, difference.highest)
            for difference in (self.reward, self.cost, self.missing)
        )
        return type(self)(self.test + 1, *(Difference.within(*range_) for range_ in ranges))

    def numbers(self) -> dict[str, float]:
        """Return all numbers by name, to be stored; JSON keeps every bit."""
        numbers: dict[str, float] = {"test": self.test}
        for name, difference in zip(self._fields[1:], self[1:], strict=True):
            numbers |= {f"{name}_{field}": number for field, number in difference._asdict().items()}
        return numbers

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float]) -> Self:
        """Return the evidence that ``numbers`` gave.

        Raises:
            ValueError: A number is missing, not finite or impossible.
        """
        test = numbers.get("test", 0)
        if not 1 <= test < inf or test != int(test):
            raise ValueError(f"test must be a whole number from 1, got {test!r}")
        return cls(int(test), *(_difference(numbers, name) for name in cls._fields[1:]))


def _verdict(finding: Finding, rule: Rule) -> Verdict:
    if rule.cost_margin is not None and finding.cost.lower > rule.cost_margin:
        return Verdict.UNSAFE
    if max(finding.missing.lower, -finding.missing.upper) > rule.missing_margin:
        return Verdict.UNEQUAL_MISSING
    if min(finding.learner, finding.control) < rule.fewest:
        return Verdict.WAIT
    if finding.difference.upper < rule.margin:
        return Verdict.FUTILE
    harmless = rule.cost_margin is None or finding.cost.upper < rule.cost_margin
    return Verdict.PROMOTE if harmless and finding.difference.lower > rule.margin else Verdict.WAIT


def _difference(numbers: Mapping[str, float], name: str) -> Difference:
    start = f"{name}_"
    return Difference.from_numbers(
        {key.removeprefix(start): n for key, n in numbers.items() if key.startswith(start)}
    )
