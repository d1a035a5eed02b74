"""The price of safety cost: a Lagrange multiplier that follows how far the cost is from its limit.

    error    = (estimate - aim * limit) / limit
    integral = clip(integral + rate * n * error, 0, most)      after n more known costs
    goal     = clip(integral + proportional * error, 0, most)
    value    = value + clip(goal - value, -step * n, step * n)

It aims below the limit, because a cost that oscillates around the limit exceeds it half of the
time. The integral finds the price at which the limit holds; the proportional part responds at once
and damps, where an integral alone overshoots; ``step`` keeps one bad hour from turning the policy
around. Unknown costs neither raise nor lower the price.

Source:
    Tessler et al. 2018, arXiv:1805.11074, equation 10 (the multiplier rises with the violation and
    is projected onto ``[0, most]``); Stooke et al. 2020, arXiv:2007.03964, algorithm 1 (its
    proportional part).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Self

import numpy as np

from tau_live.rl.arrays import FloatArray

_FIELDS = ("value", "integral", "estimate", "seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplierRule:
    """How the multiplier moves.

    Attributes:
        limit: Mean cost of a rollout that must not be exceeded, in ``(0, 1]``.
        aim: Share of the limit that is aimed at, in ``(0, 1]``.
        most: The highest price of a cost of 1, in standard deviations of the returns.
        step: Largest change of the price per rollout of an update, above 0.
        rate: Gain of the integral, per rollout and unit of relative error.
        proportional: Gain of the proportional part.
        memory: Over how many rollouts the cost is averaged, at least 1.
    """

    limit: float
    aim: float = 0.75
    most: float = 20.0
    step: float = 0.05
    rate: float = 0.01
    proportional: float = 0.25
    memory: float = 128.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplier:
    """The price of a cost of 1, and the state of its controller. Frozen.

    Attributes:
        value: In standard deviations of the returns, so that it means the same whatever unit
            rewards have; at least 0.
        integral: The integral part of the price, at least 0.
        estimate: Running mean cost, the newest rollouts weighing most; in ``[0, 1]``.
        seen: How many costs the mean is from, at most the rule's ``memory``.
    """

    value: float = 0.0
    integral: float = 0.0
    estimate: float = 0.0
    seen: float = 0.0

    def update(self, costs: FloatArray, rule: MultiplierRule, *, corrected: float = 0.0) -> Self:
        """Return the multiplier after the costs of more rollouts.

        The estimate depends on their order, but not on how they are cut into updates.

        Args:
            costs: ``[R]``, one for each rollout, in ``[0, 1]``; NaN where it is not known.
            rule: How the price moves.
            corrected: Sum of corrections of costs counted before, above 0 where they were too low;
                it moves the estimate, and the price follows with the next known cost.

        Raises:
            ValueError: A cost is outside ``[0, 1]``.
        """
        known = costs[~np.isnan(costs)]
        if ((known < 0.0) | (known > 1.0)).any():
            raise ValueError(f"costs must be within [0.0, 1.0], got {known.tolist()!r}")
        if not len(known) and not corrected:
            return self
        estimate, seen = self.estimate, self.seen
        estimate = min(max(estimate + corrected / max(seen, 1.0), 0.0), 1.0)
        for cost in known.tolist():
            seen = min(seen + 1.0, rule.memory)
            estimate += (cost - estimate) / seen
        error = (estimate - rule.aim * rule.limit) / rule.limit
        integral = self.integral + rule.rate * len(known) * error
        integral = min(max(integral, 0.0), rule.most)
        goal = min(max(integral + rule.proportional * error, 0.0), rule.most)
        step = rule.step * len(known)
        value = self.value + min(max(goal - self.value, -step), step)
        return type(self)(value=value, integral=integral, estimate=estimate, seen=seen)

    def numbers(self) -> dict[str, float]:
        """Return all numbers by name, to be stored; JSON keeps every bit."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float]) -> Self:
        """Return the multiplier that ``numbers`` gave.

        Raises:
            ValueError: A number is missing, not finite or below 0.
        """
        if set(numbers) != set(_FIELDS):
            raise ValueError(f"a multiplier needs {sorted(_FIELDS)}, got {sorted(numbers)}")
        for name, number in numbers.items():
            if not isfinite(number) or number < 0.0:
                raise ValueError(f"{name} must be finite and at least 0, got {number!r}")
        return cls(**{name: float(number) for name, number in numbers.items()})
