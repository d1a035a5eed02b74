"""Sequential test of the learner against the control, valid after every rollout.

A confidence sequence holds at all times at once, so one may look as often as one likes and stop
when one likes. These are empirical-Bernstein sequences for means that may change over time: with a
prediction ``y[t]`` and ``x[t] - y[t] >= -1``,

    M[t] = mean over k of exp(bet[k] * sum(x - E[x | past]) - psi(bet[k]) * sum((x - y)**2)),
    psi(bet) = -log(1 - bet) - bet,

is a supermartingale that starts at 1, so it reaches ``1 / alpha`` with probability at most
``alpha``. Mixing over fixed bets, instead of plugging in one bet that shrinks with time, gives
every rollout the same weight, so the bound is on the plain average difference so far and not mostly
on that of a learner's first attempts. It is also sharper: to prove a difference of 0.10 at half
share, the plug-in needed 4.1 times as many rollouts (3,964 against 968, median of 60, Bernoulli
rewards, alpha 0.03).

Source:
    Howard, Ramdas, McAuliffe and Sekhon 2021, arXiv:1810.08240, theorem 4 (the sequence, for
    averages that change) and section 3 (mixtures); Waudby-Smith and Ramdas 2024, arXiv:2010.09686,
    theorem 2 (predictable plug-ins); Waudby-Smith et al. 2022, arXiv:2210.10768 (importance
    weights).
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray

_BETS = (0.8, 0.4, 0.2, 0.1, 0.05, 0.025, 0.0125, 0.00625)
_STEPS = 8  # of Newton's; 5 reach the last digit for sums of squares up to 1e7


def radius(squares: FloatArray, *, alpha: float) -> FloatArray:
    """Return the bound that a sum's excess over its expectation ever passes with at most ``alpha``.

    The root ``s`` of ``mean(exp(bets * s - psi(bets) * squares)) = 1 / alpha``, found from above by
    Newton's method: the logarithm of the left side is convex in ``s``, so each step ends at or
    above the root, and the result errs on the safe side.

    Args:
        squares: ``[...]``, sums of squared distances from the predictions, at least 0.
        alpha: Probability of error, in ``(0, 1)``.

    Returns:
        ``[...]``, above 0.

    Raises:
        ValueError: ``alpha`` is not within its range.
    """
    if not 0.0 < alpha < 1.0:  # also refuses NaN
        raise ValueError(f"alpha must be within (0, 1), got {alpha!r}")
    bets = np.array(_BETS)
    losses = (-np.log1p(-bets) - bets) * np.asarray(squares)[..., None]
    goal = np.log(len(bets)) - np.log(alpha)
    radii: FloatArray = ((goal + losses) / bets).min(axis=-1)
    for _ in range(_STEPS):
        logs = bets * radii[..., None] - losses
        highest = logs.max(axis=-1)
        terms = np.exp(logs - highest[..., None])
        total = terms.sum(axis=-1)
        radii = radii - (np.log(total) + highest - goal) * total / (terms @ bets)
    return radii


class Interval(NamedTuple):
    """Bounds that hold at all times, each on its own, and the estimate between them.

    Attributes:
        lower: Not above the truth, except with probability ``alpha``.
        estimate: The point estimate; the middle of the range while there is no evidence.
        upper: Not below the truth, except with probability ``alpha``.
    """

    lower: float
    estimate: float
    upper: float


class Bounds(NamedTuple):
    """Bounds after each of several looks; ``[M]`` each."""

    rollouts: FloatArray
    lower: FloatArray
    upper: FloatArray


class Difference(NamedTuple):
    """Evidence about the learner's mean minus the control's; storable as it is.

    Each rollout is assigned to the learner with a known probability ``p``, its share. With the
    arms' means so far, ``m1`` and ``m0``, and ``c = (1 - p) * m1 + p * m0``,

        h = (learner - p) * (R - c),    E[h | past] = p * (1 - p) * (mu1 - mu0),

    which is the doubly robust importance-weighted difference times ``p * (1 - p)``. It stays within
    the width of the range however small a share is, and a rollout counts by how much it can tell,
    so shares may change over time, as long as they do not depend on later rollouts. Each side
    divides ``h`` by its own predictable bound. The bounds are on the average of ``mu1 - mu0`` over
    the rollouts, weighted like this; with one share and a settled ``c`` that is the plain average.
    Rollouts with a share of 0 or 1 tell nothing.

    Known rollouts until a difference is proven (median of 100, successes at a rate of 0.5 in the
    control, alpha 0.012): at half share 336 for 0.20, 1,216 for 0.10, 4,380 for 0.05; at shares of
    0.25 or 0.80 about 1.5 times, at 0.05 or 0.95 about 6 times as many.

    Attributes:
        lowest: Lower end of the declared range, in units of the numbers.
        highest: Upper end of the declared range, above ``lowest``.
        learner_count: Rollouts of the learner with a known number.
        learner_total: Sum of their numbers, the range scaled to ``[0, 1]``.
        control_count: Rollouts of the control with a known number.
        control_total: Sum of their numbers, scaled alike.
        rising_total: Sum of ``h`` over its bound, for the lower bound.
        rising_weight: Sum of ``p * (1 - p)`` over that bound.
        rising_square: Sum of squared distances from the predictions.
        falling_total: The same for the upper bound.
        falling_weight: The same for the upper bound.
        falling_square: The same for the upper bound.
    """

    lowest: float
    highest: float
    learner_count: float = 0.0
    learner_total: float = 0.0
    control_count: float = 0.0
    control_total: float = 0.0
    rising_total: float = 0.0
    rising_weight: float = 0.0
    rising_square: float = 0.0
    falling_total: float = 0.0
    falling_weight: float = 0.0
    falling_square: float = 0.0

    @classmethod
    def within(cls, lowest: float, highest: float) -> Self:
        """Return the evidence before any rollout.

        Raises:
            ValueError: The range is empty or not finite.
        """
        return cls(*_checked_range(lowest, highest))

    def including(self, values: FloatArray, *, learner: BoolArray, shares: FloatArray) -> Self:
        """Return the evidence with more rollouts; one by one gives the same bits.

        Rollouts must come in an order that does not depend on their numbers, such as that in which
        they began: if failures are counted at once and successes late, the failures are
        counted against whichever arm has more of them.

        Args:
            values: ``[N]``; values that are not finite or outside the declared range are left out.
            learner: ``[N]``, whether the learner decided the rollout.
            shares: ``[N]``, the probability of the learner's assignment, in ``[0, 1]``.

        Raises:
            ValueError: The lengths differ, a share is not a probability, or an arm decided that
                could not have been assigned.
        """
        paths = self._paths(values, learner, shares)
        return self._replace(**{name: float(path[-1]) for name, path in paths.items()})

    def path_bounds(
        self,
        values: FloatArray,
        *,
        learner: BoolArray,
        shares: FloatArray,
        alpha: float,
        every: int,
    ) -> Bounds:
        """Return the bounds that ``interval`` would give as more rollouts come, at regular looks.

        Args:
            values: As in ``including``.
            learner: As in ``including``.
            shares: As in ``including``.
            alpha: Probability of error of each bound, in ``(0, 1)``.
            every: Rollouts from one look to the next, at least 1.

        Raises:
            ValueError: As in ``including`` and ``radius``.
        """
        paths = self._paths(values, learner, shares)
        at = np.arange(every, len(values) + 1, every)
        looks = {name: path[at] for name, path in paths.items()}
        width = self.highest - self.lowest
        lower, upper = (_lower_bound(looks, side, width, alpha) for side in ("rising", "falling"))
        return Bounds(at.astype(np.float64), lower, -upper)

    def interval(self, *, alpha: float) -> Interval:
        """Return the bounds of the learner's mean minus the control's.

        Raises:
            ValueError: As in ``radius``.
        """
        now = {name: np.array([number]) for name, number in self._asdict().items()}
        width = self.highest - self.lowest
        lower, upper = (_lower_bound(now, side, width, alpha)[0] for side in ("rising", "falling"))
        weight = self.rising_weight
        estimate = width * self.rising_total / weight if weight else 0.0
        return Interval(float(lower), max(-width, min(width, estimate)), float(-upper))

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float]) -> Self:
        """Return what ``_asdict()`` gave.

        Raises:
            ValueError: A number is missing, not finite or impossible.
        """
        signed = ("lowest", "highest", "rising_total", "falling_total")
        return cls(**_checked_numbers(numbers, cls._fields, signed=signed))

    def _paths(
        self, values: FloatArray, learner: BoolArray, shares: FloatArray
    ) -> dict[str, FloatArray]:
        """Return ``[N+1]`` each running number, before the first rollout and after each."""
        _check_assignment(values, learner, shares)
        known, units = _units(values, self.lowest, self.highest)
        paths: dict[str, FloatArray] = {}
        for arm, ours in (("learner", known & learner), ("control", known & ~learner)):
            paths[f"{arm}_count"] = _running_sums(
                getattr(self, f"{arm}_count"), ours.astype(np.float64)
            )
            paths[f"{arm}_total"] = _running_sums(getattr(self, f"{arm}_total"), ours * units)
        learner_means, control_means = _arm_means(paths)
        center = (1.0 - shares) * learner_means + shares * control_means
        overlap = shares * (1.0 - shares)
        gains = (learner - shares) * (units - center)
        expected = overlap * (learner_means - control_means)
        useful = known & (overlap > 0.0)
        for side, sign, below in (("rising", 1.0, center), ("falling", -1.0, 1.0 - center)):
            worst = np.maximum((1.0 - shares) * below, shares * (1.0 - below))
            bound = np.where(useful, worst + np.maximum(sign * expected, 0.0), 1.0)
            for name, step in (
                ("total", sign * gains / bound),
                ("weight", overlap / bound),
                ("square", np.square((gains - expected) / bound)),
            ):
                field = f"{side}_{name}"
                paths[field] = _running_sums(getattr(self, field), np.where(useful, step, 0.0))
        return paths


def _arm_means(paths: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return ``[N]`` the arms' means before each rollout, shrunk a little to the common mean."""
    before = {name: path[:-1] for name, path in paths.items()}
    total = before["learner_total"] + before["control_total"] + 0.5
    pooled = total / (before["learner_count"] + before["control_count"] + 1.0)
    learner = (before["learner_total"] + pooled) / (before["learner_count"] + 1.0)
    control = (before["control_total"] + pooled) / (before["control_count"] + 1.0)
    return learner, control


def _lower_bound(
    numbers: Mapping[str, FloatArray], side: str, width: float, alpha: float
) -> FloatArray:
    """Return ``[M]`` the lower bound of the learner's lead, or with ``falling`` of its lag."""
    total, weight = numbers[f"{side}_total"], numbers[f"{side}_weight"]
    proven = total - radius(numbers[f"{side}_square"], alpha=alpha)
    lead = np.divide(proven, weight, out=np.full_like(proven, -1.0), where=weight > 0.0)
    return width * np.clip(lead, -1.0, 1.0)


def _running_sums(start: float, steps: FloatArray) -> FloatArray:
    """Return ``[N+1]`` running sums, added one after the other whatever ``N`` is."""
    return np.add.accumulate(np.append(start, steps))


def _units(values: FloatArray, lowest: float, highest: float) -> tuple[BoolArray, FloatArray]:
    """Return ``[N]`` which values are known, and ``[N]`` all scaled to ``[0, 1]``, others as 0."""
    known = (values >= lowest) & (values <= highest)  # NaN compares false
    return known, (np.where(known, values, lowest) - lowest) / (highest - lowest)


def _check_assignment(values: FloatArray, learner: BoolArray, shares: FloatArray) -> None:
    if not values.shape == learner.shape == shares.shape or values.ndim != 1:
        raise ValueError(
            f"expected three [N] arrays, got {values.shape}, {learner.shape}, {shares.shape}"
        )
    if not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise ValueError("every share must be a probability within [0, 1]")
    if (np.where(learner, shares, 1.0 - shares) == 0.0).any():
        raise ValueError("a rollout went to an arm whose share was 0")


def _checked_range(lowest: float, highest: float) -> tuple[float, float]:
    if not (np.isfinite([lowest, highest]).all() and lowest < highest):
        raise ValueError(f"expected a finite range, got {lowest!r} to {highest!r}")
    return float(lowest), float(highest)


def _checked_numbers(
    numbers: Mapping[str, float], fields: tuple[str, ...], *, signed: tuple[str, ...]
) -> dict[str, float]:
    if set(numbers) != set(fields):
        raise ValueError(f"expected the numbers {sorted(fields)}, got {sorted(numbers)}")
    checked = {name: float(numbers[name]) for name in fields}
    for name, number in checked.items():
        if not np.isfinite(number) or (number < 0.0 and name not in signed):
            raise ValueError(f"{name} must be finite and possible, got {number!r}")
    _checked_range(checked["lowest"], checked["highest"])
    return checked
