"""Bounds on rewards: which are usable numbers, and how far an outlier may reach."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Self, TypedDict

LARGEST_REWARD = 1e50
"""Nothing is learned from rewards beyond this, either way; within, fourth powers are finite."""

WINDOW = 256
"""How many of the newest rollouts the fence follows."""

FEWEST = 8
"""Rollouts before anything is an outlier."""

SETTLED = 128
"""Rollouts before the fence remembers. Earlier, chance can put enough outliers into the window: at
5 %, the core of the first 16 includes one in 0.9 % of streams, of 128 in one of a million.
Until then updates rebuild the regressions from all rollouts, so an early mistake does not last."""

_CORE = 0.85
_REACH = 2.0


def is_usable(reward: float) -> bool:
    """Whether a reward, a sum of rewards or an estimate of one can be learned from."""
    return -LARGEST_REWARD <= reward <= LARGEST_REWARD  # refuses NaN too


class Limits(NamedTuple):
    """The lowest and the highest reward that counts as it is; infinite where nothing is known."""

    low: float = -inf
    high: float = inf

    def extend_to(self, other: tuple[float, float] | None) -> "Limits":
        """Return limits that also include the range ``other``."""
        return self if other is None else Limits(min(self.low, other[0]), max(self.high, other[1]))


class FenceNumbers(TypedDict):
    """A fence as it is stored."""

    newest: list[float]
    seen: int
    core: list[float] | None
    firm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The range of rewards that have no declared one, estimated from those seen. Frozen.

    The core is the shortest interval that holds 85 % of the newest values. A value further from it
    than twice its width is an outlier, and counts as the farthest value that is none. So 15 % of
    the values, whatever they are, cannot move the fence by more than those two widths: with rewards
    of 0 and 1, a 100 counts as a 1.

    A former core stays inside the core, because a policy that learns makes failures rare: those
    would be outliers just when they have to be noticed. Where 85 % of the values are the same, the
    distance of the others decides (their median, the smallest so far): rare successes count.

    Attributes:
        newest: Two values of each of the newest rollouts: the lowest and the highest return of its
            decisions.
        seen: Rollouts so far.
        core: ``None`` until enough were seen.
        firm: Whether the core was ever wider than a point by itself.

    Source:
        Rousseeuw and Leroy 1988, "A robust scale estimator based on the shortest half" (the core);
        Tukey 1977, "Exploratory Data Analysis" (fences in widths of the middle of the data);
        Dixon 1960, "Simplified estimation from censored normal samples" (winsorising: an outlier
        counts as the nearest value that is none).
    """

    newest: tuple[float, ...] = ()
    seen: int = 0
    core: Limits | None = None
    firm: bool = False

    def including(self, extremes: Iterable[tuple[float, float]]) -> Self:
        """Return the fence after more rollouts; one by one gives the same bits.

        Args:
            extremes: The lowest and the highest value of each, in the order of the store.
        """
        fence = self
        for pair in extremes:
            fence = fence._after(pair)
        return fence

    @property
    def limits(self) -> Limits:
        """The lowest and the highest value that is no outlier."""
        if self.core is None:
            return Limits()
        low, high = self.core
        reach = _REACH * (high - low)
        usual = [value for value in self.newest if low - reach <= value <= high + reach]
        return Limits(min([low, *usual]), max([high, *usual]))

    def outliers(self, limits: Limits) -> int:
        """Return how many of the newest rollouts had a value outside the limits."""
        pairs = zip(self.newest[::2], self.newest[1::2], strict=True)
        return sum(low < limits.low or high > limits.high for low, high in pairs)

    def numbers(self) -> FenceNumbers:
        """Return all numbers by name, to be stored; JSON keeps every bit."""
        core = None if self.core is None else list(self.core)
        return {"newest": list(self.newest), "seen": self.seen, "core": core, "firm": self.firm}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, object]) -> Self:
        """Return the fence that ``numbers`` gave.

        Raises:
            ValueError: A number is missing or not usable.
        """
        newest, seen, core = (numbers.get(name) for name in ("newest", "seen", "core"))
        ends = [] if core is None else core
        if not (isinstance(newest, list) and isinstance(ends, list) and isinstance(seen, int)):
            raise ValueError(f"expected the numbers of a fence, got {sorted(numbers)}")  # noqa: TRY004  # as for any other nonsense
        for value in (*newest, *ends):
            if not (isinstance(value, int | float) and is_usable(value)):
                raise ValueError(f"expected numbers within ±{LARGEST_REWARD:g}, got {value!r}")
        if len(ends) not in (0, 2) or len(newest) % 2:
            raise ValueError(f"expected pairs, got {newest!r} and {ends!r}")
        return cls(
            newest=tuple(map(float, newest)),
            seen=seen,
            core=Limits(float(ends[0]), float(ends[1])) if ends else None,
            firm=bool(numbers.get("firm")),
        )

    def _after(self, extremes: tuple[float, float]) -> Self:
        newest = (*self.newest, *extremes)[-2 * WINDOW :]
        fence = replace(self, newest=newest, seen=self.seen + 1)
        if fence.seen < FEWEST:
            return fence
        bulk = _shortest(sorted(newest))
        remembered = self.core if fence.seen > SETTLED else None
        if remembered is not None and self.firm:
            return replace(fence, core=remembered.extend_to(bulk))
        if bulk.low < bulk.high:
            return replace(fence, core=bulk, firm=True)
        around = _around(bulk.low, newest)
        if remembered is not None and remembered.low <= bulk.low <= remembered.high:
            around = min((remembered, around), key=_width_or_inf)
        return replace(fence, core=around, firm=False)


def _shortest(values: list[float]) -> Limits:
    """Return the shortest interval that holds the core's share of sorted values."""
    count = max(1, int(_CORE * len(values)))
    widths = [values[at + count - 1] - values[at] for at in range(len(values) - count + 1)]
    start = widths.index(min(widths))
    return Limits(values[start], values[start + count - 1])


def _around(bulk: float, values: Iterable[float]) -> Limits:
    """Return the interval from the value ``bulk`` to the one at the median distance from it."""
    others = sorted((abs(value - bulk), value) for value in values if value != bulk)
    other = others[(len(others) - 1) // 2][1] if others else bulk
    return Limits(min(bulk, other), max(bulk, other))


def _width_or_inf(core: Limits) -> float:
    return core.high - core.low or inf
