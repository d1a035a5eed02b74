"""Is what was learned good enough to continue? From figures to a reason for the gate to hold.

Pure. Every check wants enough rollouts, starts anew once it has held the gate, and must fail at
two looks in a row, so that neither a thin window nor one that wavers around a bound holds it, and
a reset is not undone by what had happened before.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, hypot, inf, isfinite, log, sqrt
from typing import NamedTuple

from tau_live.reasons import LEFT_OUT, WhyNot
from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.settings import DeclaredReward, Settings
from tau_live.store.records import LearnableRollout

FEWEST = 64
"""Rollouts before a collapse of choices or rewards is called one."""

FEWEST_COSTS = 20
"""Rollouts with a known cost before any rate of them is believed."""

TUMBLES = 512
"""Rewards that came or stayed away are counted anew after so many."""

LOOKS = 2
"""How many looks in a row must fail."""

DOUBT = 1e-4
"""Chance that a bound is wrong at one look; small, because it is looked at after every update."""

MISSING = f"{LEFT_OUT}{WhyNot.REWARD_MISSING}"
"""The counter of rewards that never came."""

_PROOF = 1.645 + 3.09  # one-sided 95 %, and one failure in 1,000 of a stream that keeps its aim
_BISECTIONS = 60


class Reason(StrEnum):
    """Why the gate holds although nothing fails; its codes."""

    VIOLATIONS = "violations_over_limit"
    CHAMPION = "below_champion"
    MISSING = "rewards_missing"
    COLLAPSED = "choices_collapsed"
    CONSTANT = "rewards_constant"
    SOURCE = "one_reward_source"
    DRIFT = "option_became_worse"


class Hold(NamedTuple):
    """A reason to hold, as a code and in words."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the newest rollouts of a point look like.

    Attributes:
        rollouts: How many.
        decisions: Their decisions with a choice, but for those of the control.
        entropy: Of what was applied, as a share of the most that the options allow; ``None``
            where there was no choice.
        option: The one that was applied most often.
        option_share: How often.
        reward_mean: Of the totals.
        reward_spread: Their standard deviation.
        sources: Whose rewards make up which share of all, signs apart; those of safety left out.
        costs: How many rollouts have a known safety cost.
        cost: Its mean; ``None`` without any.
    """

    rollouts: int = 0
    decisions: int = 0
    entropy: float | None = None
    option: str | None = None
    option_share: float | None = None
    reward_mean: float | None = None
    reward_spread: float | None = None
    sources: Mapping[str, float]
    costs: int = 0
    cost: float | None = None

    def plain(self) -> dict[str, object]:
        """Return them as JSON data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "sources": dict(self.sources)
        }


def figures(
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    costs: Sequence[float | None],
    declared: Sequence[DeclaredReward] = (),
) -> Figures:
    """Return the figures of some rollouts.

    Args:
        rollouts: In any order.
        point: Whose decisions count.
        costs: ``[R]``, the safety cost of each.
        declared: Weights of rewards, and which of them count at all.
    """
    applied, offered = _choices(rollouts, point)
    decisions = applied.total()
    totals = [one.rollout.total_reward or 0.0 for one in rollouts]
    mean, spread = _moments(totals)
    known = [cost for cost in costs if cost is not None]
    most = min(applied.items(), key=lambda pair: (-pair[1], pair[0]), default=None)
    return Figures(
        rollouts=len(rollouts),
        decisions=decisions,
        entropy=_entropy(applied, offered),
        option=most[0] if most else None,
        option_share=most[1] / decisions if most else None,
        reward_mean=mean,
        reward_spread=spread,
        sources=_sources(rollouts, declared),
        costs=len(known),
        cost=fsum(known) / len(known) if known else None,
    )


def _choices(rollouts: Iterable[LearnableRollout], point: str) -> tuple[Counter[str], int]:
    """Count what was applied, but for what the host or a champion chose: they may never vary."""
    applied: Counter[str] = Counter()
    offered: set[str] = set()
    for one in rollouts:
        for decision in one.decisions:
            if decision.point != point or decision.arm == "control":
                continue
            if len(decision.options) > 1 and decision.applied and decision.source != "default":
                applied[decision.applied] += 1
                offered.update(decision.options)
    return applied, len(offered)


def _entropy(applied: Counter[str], offered: int) -> float | None:
    total = applied.total()
    if not total or offered < 2:
        return None
    found = -fsum(count / total * log(count / total) for count in applied.values())
    return min(max(0.0, found / log(offered)), 1.0)  # a sum of nothing is -0.0


def _moments(totals: Sequence[float]) -> tuple[float | None, float | None]:
    """Return mean and standard deviation; ``None`` where they are beyond what a float can hold."""
    if not totals:
        return None, None
    mean = sum(total / len(totals) for total in totals)
    length = hypot(*(total - mean for total in totals)) / sqrt(len(totals))
    return (mean if isfinite(mean) else None), (length if isfinite(length) else None)


def _sources(
    rollouts: Iterable[LearnableRollout], declared: Sequence[DeclaredReward]
) -> dict[str, float]:
    weights = {one.name: 0.0 if one.cost else one.weight for one in declared}
    otherwise = 0.0 if any(not one.cost for one in declared) else 1.0
    sums: dict[str, float] = {}
    for one in rollouts:
        for reward in one.rewards:
            worth = abs((reward.value or 0.0) * weights.get(reward.name, otherwise))
            if reward.source != SAFETY and isfinite(worth):
                sums[reward.source] = sums.get(reward.source, 0.0) + worth
    whole = sum(sums.values())
    if not whole or not isfinite(whole):
        return {}
    return {source: part / whole for source, part in sorted(sums.items())}


def violations(found: Figures, limit: float | None) -> Hold | None:
    """Return that rollouts cost more than they may.

    That is so when the lower bound of the mean cost is above the limit; and, once there are so many
    rollouts that a learner on its aim would almost surely pass, when the upper bound still is: then
    nothing shows that it is safe. With fewer the upper bound tells nothing: it is above any small
    limit while there has not been a single violation.
    """
    if limit is None or found.cost is None or found.costs < FEWEST_COSTS:
        return None
    low = bound(found.cost, found.costs, doubt=DOUBT, upper=False)
    if low > limit:
        words = f"almost certainly above {low:.3g}"
    elif found.costs >= enough_to_prove(limit):
        high = bound(found.cost, found.costs, doubt=0.05, upper=True)
        if high <= limit:
            return None
        words = f"perhaps {high:.3g}"
    else:
        return None
    return Hold(
        Reason.VIOLATIONS,
        f"safety cost {found.cost:.3g} of {found.costs} rollouts, {words}; the limit is {limit:g}",
    )


def enough_to_prove(limit: float, *, aim: float = 0.75) -> int:
    """Return after how many rollouts a mean cost of ``aim * limit`` is surely seen to be below."""
    mean = aim * limit
    return int(_PROOF**2 * mean * (1.0 - mean) / (limit - mean) ** 2) + 1


def bound(mean: float, count: int, *, doubt: float, upper: bool) -> float:
    """Return a bound of what numbers in ``[0, 1]`` are on average; wrong with at most ``doubt``.

    Source:
        Hoeffding 1963, theorem 1 (Chernoff's bound in its sharp form): the chance of a mean so far
        off is at most ``exp(-count * kl(mean, truth))``.
    """
    near, far = mean, 1.0 if upper else 0.0
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2.0
        if count * _divergence(mean, middle) > -log(doubt):
            far = middle
        else:
            near = middle
    return far


def _divergence(mean: float, truth: float) -> float:
    total = 0.0
    for part, whole in ((mean, truth), (1.0 - mean, 1.0 - truth)):
        if part > 0.0:
            total += part * log(part / whole) if whole > 0.0 else inf
    return total


def below_champion(difference: tuple[float, float] | None) -> Hold | None:
    """Return that the learner is worse than the control, as far as the evidence sequence knows.

    Args:
        difference: Lower and upper bound of learner minus control; ``None`` without a comparison.
    """
    if difference is None or difference[1] >= 0.0:
        return None
    return Hold(
        Reason.CHAMPION,
        f"learner minus control is within [{difference[0]:.3g}, {difference[1]:.3g}]",
    )


def rewarded(status: Mapping[str, object]) -> tuple[int, int]:
    """Return for how many rollouts a reward came in time, and for how many none did, so far.

    Both go on growing while old rollouts are forgotten, so two looks can be told apart; the second
    shrinks where a reward comes late after all.

    Args:
        status: What ``status_of`` says.
    """
    counters, came = status.get("counters"), status.get("became_ready")
    missing = counters.get(MISSING, 0) if isinstance(counters, Mapping) else 0
    return came if isinstance(came, int) else 0, missing if isinstance(missing, int) else 0


def missing_rewards(ready: int, missing: int, limit: float | None) -> Hold | None:
    """Return that too many rollouts were left out because their reward never came."""
    total = ready + missing
    if limit is None or total < FEWEST:
        return None
    if bound(missing / total, total, doubt=DOUBT, upper=False) <= limit:
        return None
    return Hold(Reason.MISSING, f"{missing} of {total} rewards are missing; the limit is {limit:g}")


def collapses(found: Figures, settings: Settings) -> list[Hold]:
    """Return which declared bounds of choices and rewards the figures are beyond."""
    holds: list[Hold] = []
    if found.rollouts < FEWEST:
        return holds
    floor, least = settings.entropy_floor, settings.reward_spread_floor
    chosen = found.decisions >= FEWEST
    if chosen and floor is not None and found.entropy is not None and found.entropy < floor:
        words = f"entropy of choices {found.entropy:.3g} is below {floor:g}"
        holds.append(Hold(Reason.COLLAPSED, words))
    most = settings.option_share_limit
    taken = found.option_share
    if chosen and most is not None and taken is not None and taken > most:
        words = f"{found.option!r} is {taken:.0%} of choices, more than {most:.0%}"
        holds.append(Hold(Reason.COLLAPSED, words))
    if least is not None and found.reward_spread is not None and found.reward_spread < least:
        words = f"rewards deviate by {found.reward_spread:.3g}, less than {least:g}"
        holds.append(Hold(Reason.CONSTANT, words))
    share = settings.source_share_limit
    for source, part in found.sources.items():
        if share is not None and part > share:
            words = f"{part:.0%} of rewards come from {source!r}, more than {share:.0%}"
            holds.append(Hold(Reason.SOURCE, words))
    return holds
