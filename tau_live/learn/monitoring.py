"""Monitors of an update: drift, the price of safety, figures for an operator.

Every rollout is seen once, in the order in which rollouts became ready, and what is remembered is
stored with the update that saw it: stopped and started again comes to the same as never stopped.

The price aims at the mean cost of all rollouts. If only those counted whose cost is there when an
update learns from them, a cost that always comes late would never be paid for.

Every check for which the gate holds wants enough rollouts, starts anew once it has held the gate,
and must fail at two looks in a row, so that neither a thin window nor one that wavers around a
bound holds it, and a reset is not undone by what had happened before.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import fsum, hypot, inf, isfinite, log, nan, sqrt
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from tau_live.core.gate import State
from tau_live.core.guard import logger
from tau_live.core.reasons import LEFT_OUT, WhyNot
from tau_live.core.records import Charged, CostsSeen, LearnableRollout, Monitor
from tau_live.core.sanitize import integer
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.trajectories import Collected
from tau_live.record.reward_rules import SOURCE as SAFETY
from tau_live.record.rewards import incurred_cost, reward_range
from tau_live.rl.bounds import Fence, Limits
from tau_live.rl.config import PPOConfig
from tau_live.rl.drift import Alarm, Direction, Drift, DriftRule, forward_residuals
from tau_live.rl.multiplier import Multiplier, MultiplierRule
from tau_live.rl.state import LearnerState
from tau_live.store.roles import Store

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
    """Figures of the newest rollouts of a point.

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
    totals = [rollout.rollout.total_reward or 0.0 for rollout in rollouts]
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
    for rollout in rollouts:
        for decision in rollout.decisions:
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
    entropy = -fsum(count / total * log(count / total) for count in applied.values())
    return min(max(0.0, entropy / log(offered)), 1.0)  # a sum of nothing is -0.0


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
    weights = {reward.name: 0.0 if reward.cost else reward.weight for reward in declared}
    otherwise = 0.0 if any(not reward.cost for reward in declared) else 1.0
    sums: dict[str, float] = {}
    for rollout in rollouts:
        for reward in rollout.rewards:
            worth = abs((reward.value or 0.0) * weights.get(reward.name, otherwise))
            if reward.source != SAFETY and isfinite(worth):
                sums[reward.source] = sums.get(reward.source, 0.0) + worth
    whole = sum(sums.values())
    if not whole or not isfinite(whole):
        return {}
    return {source: part / whole for source, part in sorted(sums.items())}


def violations(newest: Figures, limit: float | None) -> Hold | None:
    """Return that rollouts cost more than they may.

    That is so when the lower bound of the mean cost is above the limit; and, once there are so many
    rollouts that a learner on its aim would almost surely pass, when the upper bound still is: then
    nothing shows that it is safe. With fewer the upper bound tells nothing: it is above any small
    limit while there has not been a single violation.
    """
    if limit is None or newest.cost is None or newest.costs < FEWEST_COSTS:
        return None
    low = mean_bound(newest.cost, newest.costs, doubt=DOUBT, upper=False)
    if low > limit:
        words = f"almost certainly above {low:.3g}"
    elif newest.costs >= enough_to_prove(limit):
        high = mean_bound(newest.cost, newest.costs, doubt=0.05, upper=True)
        if high <= limit:
            return None
        words = f"perhaps {high:.3g}"
    else:
        return None
    return Hold(
        Reason.VIOLATIONS,
        f"safety cost {newest.cost:.3g} of {newest.costs} rollouts, {words}; "
        f"the limit is {limit:g}",
    )


def enough_to_prove(limit: float, *, aim: float = 0.75) -> int:
    """Return after how many rollouts a mean cost of ``aim * limit`` is surely seen to be below."""
    mean = aim * limit
    return int(_PROOF**2 * mean * (1.0 - mean) / (limit - mean) ** 2) + 1


def mean_bound(mean: float, count: int, *, doubt: float, upper: bool) -> float:
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


def reward_counts(status: Mapping[str, object]) -> tuple[int, int]:
    """Return for how many rollouts a reward came in time, and for how many none did, so far.

    Both go on growing while old rollouts are forgotten, so two looks can be distinguished; the
    second shrinks where a reward comes late after all.

    Args:
        status: The result of ``status_of``.
    """
    counters, came = status.get("counters"), status.get("became_ready")
    missing = counters.get(MISSING, 0) if isinstance(counters, Mapping) else 0
    return came if isinstance(came, int) else 0, missing if isinstance(missing, int) else 0


def missing_rewards(ready: int, missing: int, limit: float | None) -> Hold | None:
    """Return that too many rollouts were left out because their reward never came."""
    total = ready + missing
    if limit is None or total < FEWEST:
        return None
    if mean_bound(missing / total, total, doubt=DOUBT, upper=False) <= limit:
        return None
    return Hold(Reason.MISSING, f"{missing} of {total} rewards are missing; the limit is {limit:g}")


def collapses(newest: Figures, settings: Settings) -> list[Hold]:
    """Return which declared bounds of choices and rewards the figures are beyond."""
    holds: list[Hold] = []
    if newest.rollouts < FEWEST:
        return holds
    floor, least = settings.entropy_floor, settings.reward_spread_floor
    chosen = newest.decisions >= FEWEST
    if chosen and floor is not None and newest.entropy is not None and newest.entropy < floor:
        words = f"entropy of choices {newest.entropy:.3g} is below {floor:g}"
        holds.append(Hold(Reason.COLLAPSED, words))
    most = settings.option_share_limit
    taken = newest.option_share
    if chosen and most is not None and taken is not None and taken > most:
        words = f"{newest.option!r} is {taken:.0%} of choices, more than {most:.0%}"
        holds.append(Hold(Reason.COLLAPSED, words))
    if least is not None and newest.reward_spread is not None and newest.reward_spread < least:
        words = f"rewards deviate by {newest.reward_spread:.3g}, less than {least:g}"
        holds.append(Hold(Reason.CONSTANT, words))
    share = settings.source_share_limit
    for source, part in newest.sources.items():
        if share is not None and part > share:
            words = f"{part:.0%} of rewards come from {source!r}, more than {share:.0%}"
            holds.append(Hold(Reason.SOURCE, words))
    return holds


def late_costs(
    store: Store, before: Monitor, settings: Settings, *, at: float
) -> Sequence[Charged]:
    """Return the rollouts whose cost may have become known since costs were last counted.

    Args:
        store: Where the rollouts are.
        before: The monitor so far.
        settings: Whether there is a limit, and how long costs are waited for.
        at: Epoch seconds, when the last rollout of the update was known.
    """
    seen = _costs_seen(before)
    if settings.cost_limit is None or seen is None:
        return ()
    waits = {
        settings.reward_deadline_s if reward.deadline_s is None else reward.deadline_s
        for reward in settings.rewards
        if reward.cost and reward.default is not None
    }
    return store.monitors.cost_candidates(
        before.point, seen, at=max(at, seen.at), waits=sorted(waits)
    )


def price_of(
    before: Monitor, unseen: Iterable[LearnableRollout], seen: "Seen", settings: Settings
) -> tuple[Multiplier, dict[str, float], dict[int, float]]:
    """Return the price after the costs that became known.

    Args:
        before: The monitor so far.
        unseen: Rollouts that no update has seen, in their order.
        seen: The rollouts of the update.
        settings: The limit, and what rollouts cost.

    Returns:
        The price; up to where costs were counted, to be stored, empty without a limit; and by
        ``ready_seq`` what has been counted of rollouts, to be stored.
    """
    multiplier = multiplier_of(before)
    if settings.cost_limit is None:
        return multiplier, {}, {}
    counted_before = _costs_seen(before)
    at = max(seen.at, counted_before.at) if counted_before else seen.at
    costs: list[float] = []
    counted: dict[int, float] = {}
    corrected = 0.0
    for rollout in seen.charged:
        cost = incurred_cost(
            LearnableRollout(rollout.rollout, [], rollout.rewards), settings, now=at
        )
        if cost is None or cost == rollout.counted:
            continue
        counted[rollout.rollout.ready_seq or 0] = cost
        if rollout.counted is None:
            costs.append(cost)
        else:
            corrected += cost - rollout.counted
    for fresh in unseen:
        cost = incurred_cost(fresh, settings, now=at)
        costs.append(nan if cost is None else cost)
        if cost is not None:
            counted[fresh.rollout.ready_seq or 0] = cost
    rule = MultiplierRule(limit=settings.cost_limit)
    multiplier = multiplier.update(np.array(costs), rule, corrected=corrected)
    return multiplier, {"rewarded": seen.rewarded, "at": at}, counted


def multiplier_of(before: Monitor) -> Multiplier:
    """Return the price that a monitor remembers; none where it remembers nonsense."""
    try:
        return Multiplier.from_numbers(numbers_in(before.numbers.get("multiplier")))
    except ValueError:
        return Multiplier()


def _costs_seen(before: Monitor) -> CostsSeen | None:
    """Return up to where costs were counted; ``None`` where there was no limit until now."""
    numbers = numbers_in(before.numbers.get("costs"))
    if not {"rewarded", "at"} <= {*numbers}:
        return None
    return CostsSeen(before.watermark, int(numbers["rewarded"]), numbers["at"])


def numbers_in(value: object) -> dict[str, float]:
    """Return the numbers of a stored table by name; none where it is no table."""
    table = value if isinstance(value, Mapping) else {}
    return {str(name): part for name, part in table.items() if isinstance(part, int | float)}


RULE = DriftRule()
KEPT_ALARMS = 10
MOST_STEPS = 4
"""Of a rollout that drift is read from: what longer ones earn hangs more on what the policy has
learned meanwhile than on the world."""
LARGEST = 1e100
"""Of a residual; the square of a larger one is no number any more."""

_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class Watched(NamedTuple):
    """The findings of a point's monitors in an update.

    Attributes:
        monitor: To be stored with the update.
        report: For its report.
        alarms: Options that are no longer what they were.
        price: Price of one unit of safety cost, in units of reward.
        hold: Why the gate should hold; ``None`` if it need not.
        doubted: Options that became worse and that no update has doubted yet.
        costs: What the price has counted of rollouts, to be stored with the monitor.
        limits: The lowest and the highest that a reward counts as.
        outliers: Rollouts that no update has seen and that had rewards beyond these.
        new: What can be learned from, with rewards within the limits.
    """

    monitor: Monitor
    report: dict[str, object]
    alarms: tuple[Alarm, ...]
    price: float
    hold: Hold | None
    doubted: frozenset[str]
    costs: Mapping[int, float]
    limits: Limits
    outliers: int
    new: Collected

    def without_doubt(self) -> "Watched":
        """Return the same for an update that was kept: it has doubted what it had to."""
        numbers = {**self.monitor.numbers, "doubted": []}
        return self._replace(monitor=replace(self.monitor, numbers=numbers))


class Seen(NamedTuple):
    """The rollouts of an update.

    Attributes:
        fresh: Those it takes, in their order; some of them were seen by an update that was skipped.
        older: Those it replays.
        new: What of ``fresh`` can be learned from, with rewards as they came.
        at: Epoch seconds, when the last of ``fresh`` was known.
        charged: Others whose cost may have become known.
        rewarded: The ``seq`` of the newest reward that was there before the rollouts were read:
            what came in between is looked at by the next update too.
    """

    fresh: Sequence[LearnableRollout]
    older: Sequence[LearnableRollout]
    new: Collected
    at: float
    charged: Sequence[Charged] = ()
    rewarded: int = 0


def watch_update(
    before: Monitor,
    seen: Seen,
    *,
    settings: Settings,
    state: LearnerState,
    config: PPOConfig,
    difference: tuple[float, float] | None = None,
) -> Watched:
    """Return what the monitors of a point see in an update.

    Args:
        before: The monitor so far.
        seen: The rollouts of the update.
        settings: Bounds, and what rewards are worth.
        state: The learner's state before the update.
        config: How it learns.
        difference: Lower and upper bound of learner minus control, where they are compared.
    """
    unseen = [
        example for example in seen.fresh if (example.rollout.ready_seq or 0) > before.watermark
    ]
    ids = {rollout.rollout.rollout_id for rollout in unseen}
    extremes = zip(seen.new.rollout_ids, seen.new.extremes(), strict=True)
    fence = fence_of(before).including(pair for key, pair in extremes if key in ids)
    limits = fence.limits.spanning(reward_range(settings))
    bounded, beyond = seen.new.within(limits)
    outliers = len({*beyond} & ids)
    drift, alarms = _drift(before, ids, bounded, state=state, config=config)
    multiplier, counted_until, costs = price_of(before, unseen, seen, settings)
    held = integer(before.numbers.get("held"))
    newest = _figures(before.point, seen, settings, held=held)
    failing = _failing(newest, alarms, settings, difference=difference)
    streaks = _streaks(before, failing)
    hold = next(
        (
            failure
            for failure in failing
            # an alarm of drift is raised but once
            if failure.reason is Reason.DRIFT or streaks[failure.reason] >= LOOKS
        ),
        None,
    )
    watermark = max(
        (unlearned.rollout.ready_seq or 0 for unlearned in unseen), default=before.watermark
    )
    doubted = _doubted_options(before) | {alarm.option for alarm in alarms if is_worse(alarm)}
    alarm_rows = [{**alarm._asdict(), "ready_seq": watermark} for alarm in alarms]
    monitor = Monitor(
        point=before.point,
        watermark=watermark,
        since=before.watermark if any(map(is_worse, alarms)) else before.since,
        numbers={
            "drift": drift.numbers(),
            "multiplier": multiplier.numbers(),
            "costs": counted_until,
            "held": watermark if hold else held,
            "streaks": {} if hold else streaks,
            "figures": newest.plain(),
            "doubted": sorted(doubted),
            "fence": fence.numbers(),
            "limits": [*limits] if isfinite(limits.high - limits.low) else None,
            "outliers": fence.outliers(limits),
        },
        alarms=(*before.alarms, *alarm_rows)[-KEPT_ALARMS:],
    )
    price = multiplier.value * state.unit
    report = {
        **newest.plain(),
        "drift": alarm_rows,
        "cost_multiplier": multiplier.value,
        "cost_price": price,
        "hold": hold.reason.value if hold else None,
    }
    return Watched(
        monitor,
        {"monitors": report},
        alarms,
        price,
        hold,
        doubted,
        costs,
        limits,
        outliers,
        bounded,
    )


def monitor_figures(monitor: Monitor) -> dict[str, object]:
    """Return what an operator wants to know of a point, as JSON data."""
    figures_stored = monitor.numbers.get("figures")
    multiplier = multiplier_of(monitor)
    limits = monitor.numbers.get("limits")
    lowest, highest = limits if isinstance(limits, list) else (None, None)
    return {
        **(
            dict(figures_stored)
            if isinstance(figures_stored, Mapping)
            else Figures(sources={}).plain()
        ),
        "cost_multiplier": multiplier.value,
        "lowest_reward": lowest,
        "highest_reward": highest,
        "outliers": integer(monitor.numbers.get("outliers")),
        "drift": [dict(alarm) for alarm in monitor.alarms],
    }


class MissingWatch:
    """Counts rewards that came and that stayed away, since this process began to look.

    What waited for its reward when the gate was reset is not held against what comes after: while
    it held no reward was taken, so a reset would be undone at once by what had happened before.

    Args:
        limit: The share that may stay away; ``None`` counts nothing.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._mark: tuple[int, int] | None = None
        self._held = False
        self._forgiven = 0

    def check(self, status: Mapping[str, object]) -> Hold | None:
        """Return a reason to hold, from what ``status_of`` says; it is given once."""
        if self._limit is None:
            return None
        now = reward_counts(status)
        self._notice_reset(status, now)
        before = self._mark = self._mark or now
        ready, lost = max(0, now[0] - before[0]), max(0, now[1] - before[1] - self._forgiven)
        hold = missing_rewards(ready, lost, self._limit)
        if hold is not None or ready + lost >= TUMBLES:
            self._forgiven = max(0, self._forgiven - (now[1] - before[1]))
            self._forgiven = min(self._forgiven, integer(status["waiting_for_reward"]))
            self._mark = now
        return hold

    def _notice_reset(self, status: Mapping[str, object], now: tuple[int, int]) -> None:
        gate = status.get("gate")
        holds = isinstance(gate, Mapping) and gate.get("state") == State.HOLD
        if self._held and not holds:
            self._mark, self._forgiven = now, integer(status["waiting_for_reward"])
        self._held = holds


def _drift(
    before: Monitor,
    unseen: Container[str],
    new: Collected,
    *,
    state: LearnerState,
    config: PPOConfig,
) -> tuple[Drift, tuple[Alarm, ...]]:
    """Return the charts after new rollouts, and what they alarm about.

    Of each rollout of a few decisions the last one is charted: what came after it hangs on no other
    choice of ours, so it is not taken for a change of the world that the policy learns; and the
    decisions of one rollout share its luck, which a chart would take for evidence.
    """
    drift = drift_of(before)
    if new.trajectories is None:
        return drift, ()
    try:
        residuals = forward_residuals(state, new.trajectories, config=config).tolist()
    except _ERRORS as error:  # the update finds out which rollout it is, and leaves that out
        logger().warning("drift_not_watched", point=before.point, error=str(error))
        return drift, ()
    lengths = new.trajectories.length
    ends = (np.cumsum(lengths) - 1)[lengths <= MOST_STEPS]
    last = ((new.decisions[end], residuals[end]) for end in ends.tolist())
    return drift.including(
        (
            (decision.applied or "", residual)
            for decision, residual in last
            if decision.rollout_id in unseen and abs(residual) <= LARGEST
        ),
        RULE,
    )


def is_worse(alarm: Alarm) -> bool:
    """Say whether what was learned of an option does not hold any more: it earns less."""
    return alarm.direction is Direction.WORSE


def drift_of(monitor: Monitor) -> Drift:
    """Return the charts that a monitor remembers; none where it remembers none, or nonsense."""
    try:
        return Drift.from_numbers(_tables(monitor.numbers.get("drift")))
    except ValueError:
        return Drift.none()


def fence_of(monitor: Monitor) -> Fence:
    """Return how far rewards may reach; nothing where a monitor remembers none, or nonsense."""
    fence = monitor.numbers.get("fence")
    try:
        return Fence.from_numbers(fence) if isinstance(fence, Mapping) else Fence()
    except ValueError:
        return Fence()


def _figures(point: str, seen: Seen, settings: Settings, *, held: int) -> Figures:
    """Return the figures of the newest rollouts, of those alone that came since the last hold."""
    window = max(settings.window, FEWEST)
    by_id = {rollout.rollout.rollout_id: rollout for rollout in (*seen.older, *seen.fresh)}
    newest = sorted(by_id.values(), key=lambda rollout: rollout.rollout.ready_seq or 0)[-window:]
    newest = [rollout for rollout in newest if (rollout.rollout.ready_seq or 0) > held]
    costs = [incurred_cost(rollout, settings, now=seen.at) for rollout in newest]
    return figures(newest, point, costs=costs, declared=settings.rewards)


def _failing(
    newest: Figures,
    alarms: Iterable[Alarm],
    settings: Settings,
    *,
    difference: tuple[float, float] | None,
) -> list[Hold]:
    holds = [violations(newest, settings.cost_limit), below_champion(difference)]
    if settings.drift_holds:
        worse = filter(is_worse, alarms)
        holds += [Hold(Reason.DRIFT, f"option {alarm.option!r} became worse") for alarm in worse]
    return [hold for hold in holds if hold is not None] + collapses(newest, settings)


def _doubted_options(before: Monitor) -> frozenset[str]:
    """Return what became worse in updates that were skipped or undone, and so did not doubt it."""
    options = before.numbers.get("doubted")
    return frozenset(map(str, options if isinstance(options, list) else ()))


def _streaks(before: Monitor, failing: Iterable[Hold]) -> dict[str, int]:
    streaks = before.numbers.get("streaks")
    known = streaks if isinstance(streaks, Mapping) else {}
    return {hold.reason.value: integer(known.get(hold.reason.value)) + 1 for hold in failing}


def _tables(value: object) -> dict[str, dict[str, float]]:
    tables = value if isinstance(value, Mapping) else {}
    return {str(name): numbers_in(table) for name, table in tables.items()}
