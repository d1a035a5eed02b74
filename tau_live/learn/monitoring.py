"""Monitors of an update: drift, the price of safety, figures for an operator.

Every rollout is seen once, in the order in which rollouts became ready, and the monitor's state is
stored with the update that saw it: stopping and restarting changes nothing.

The price aims at the mean cost of all rollouts. If only costs counted that are known when an update
learns from their rollouts, a cost that always comes late would never be paid for.

Every check that holds the gate needs enough rollouts, starts anew once it has held the gate, and
must fail at two consecutive checks, so that neither a small window nor one that wavers around a
bound holds it, and earlier rollouts do not undo a reset.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from math import fsum, hypot, inf, isfinite, log, nan, sqrt
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from tau_live.core.guard import logger
from tau_live.core.reasons import LEFT_OUT, WhyNot
from tau_live.core.records import (
    Charged,
    CostsSeen,
    LearnableRollout,
    Monitor,
    MonitorNumbers,
    StoredAlarm,
)
from tau_live.core.reward_rules import SOURCE as SAFETY
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.learn.trajectories import CollectedRollouts
from tau_live.record.rewards import incurred_cost, reward_range
from tau_live.rl.bounds import Fence, Limits
from tau_live.rl.config import PPOConfig
from tau_live.rl.drift import Alarm, Direction, Drift, DriftRule, forward_residuals
from tau_live.rl.multiplier import Multiplier, MultiplierRule
from tau_live.rl.state import MOST_STEPS, LearnerState
from tau_live.rl.throttle import yield_between, yield_gil
from tau_live.store.roles import Store

FEWEST = 64
"""Rollouts before a collapse of choices or rewards is detected."""

FEWEST_COSTS = 20
"""Rollouts with a known cost before their mean is trusted."""

RECOUNT_AFTER = 512
"""Rewards, come or missing, after which counting starts anew."""

LOOKS = 2
"""How many consecutive checks must fail."""

DOUBT = 1e-4
"""Chance that a bound is wrong at one check; small, because every update makes one."""

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


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the newest rollouts of a point.

    Attributes:
        rollouts: How many.
        decisions: Their decisions with a choice, except those of the control.
        entropy: Entropy of the applied options as a share of the largest possible, in ``[0, 1]``;
            ``None`` where there was no choice.
        option: The option applied most often.
        option_share: Its share of the decisions.
        reward_mean: Mean of the rollouts' total rewards.
        reward_spread: Their standard deviation.
        sources: Share of each source in the sum of absolute rewards, safety left out.
        costs: How many rollouts have a known safety cost.
        cost: Mean safety cost; ``None`` without any.
    """

    rollouts: int = 0
    decisions: int = 0
    entropy: float | None = None
    option: str | None = None
    option_share: float | None = None
    reward_mean: float | None = None
    reward_spread: float | None = None
    sources: Mapping[str, float] = msgspec.field(default_factory=dict)
    costs: int = 0
    cost: float | None = None


class OptionAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An option whose reward changed.

    Attributes:
        option: Its name.
        direction: ``worse`` or ``better``.
        seen: Its decisions since its chart began.
        since: How many of its decisions ago the change seems to have started.
        shift: Estimated change, in standard deviations of its residuals.
        ready_seq: The newest rollout at the time of the alarm.
    """

    option: str
    direction: Direction
    seen: int
    since: int
    shift: float
    ready_seq: int


class PointFigures(Figures, frozen=True, kw_only=True):
    """The figures of a decision point, for operators.

    Attributes:
        cost_multiplier: The multiplier of a safety cost.
        lowest_reward: Rewards below it are clipped; ``None`` before there are enough.
        highest_reward: Rewards above it are clipped.
        outliers: How many of the newest rewards are clipped.
        drift: The last alarms, the newest last.
    """

    cost_multiplier: float = 0.0
    lowest_reward: float | None = None
    highest_reward: float | None = None
    outliers: int = 0
    drift: Sequence[OptionAlarm] = ()


def figures(
    rollouts: Sequence[LearnableRollout],
    point: str,
    *,
    costs: Sequence[float | None],
    declared: Sequence[DeclaredReward] = (),
) -> Figures:
    """Return the figures of some rollouts.

    Args:
        rollouts: ``[R]``, in any order.
        point: The point whose decisions count.
        costs: ``[R]``, the safety cost of each.
        declared: Weights of rewards, and which of them count at all.
    """
    applied, offered = _choices(rollouts, point)
    decisions = applied.total()
    earned = (rollout.rollout.total_reward for rollout in rollouts)
    totals = [total for total in earned if total is not None]  # a row may be odd
    mean, spread = _moments(totals)
    known = [cost for cost in costs if cost is not None]
    top = min(applied.items(), key=lambda pair: (-pair[1], pair[0]), default=None)
    return Figures(
        rollouts=len(rollouts),
        decisions=decisions,
        entropy=_entropy(applied, offered),
        option=top[0] if top else None,
        option_share=top[1] / decisions if top else None,
        reward_mean=mean,
        reward_spread=spread,
        sources=_sources(rollouts, declared),
        costs=len(known),
        cost=fsum(known) / len(known) if known else None,
    )


def _choices(rollouts: Iterable[LearnableRollout], point: str) -> tuple[Counter[str], int]:
    """Count the applied options, except choices of the host or a champion, which may not vary."""
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
    """Return mean and standard deviation; ``None`` where one is not finite."""
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
    """Return a hold if rollouts cost more than they may.

    That is so when the lower bound of the mean cost is above the limit; and, once there are so many
    rollouts that a learner on its aim would almost surely pass, when the upper bound still is: then
    there is no evidence of safety. With fewer rollouts the upper bound is above any small limit,
    even without a single violation.
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


def enough_to_prove(limit: float) -> int:
    """Return how many rollouts almost surely prove that a mean of 0.75 ``limit`` is below it."""
    mean = 0.75 * limit
    return int(_PROOF**2 * mean * (1.0 - mean) / (limit - mean) ** 2) + 1


def mean_bound(mean: float, count: int, *, doubt: float, upper: bool) -> float:
    """Return a bound of the expectation of numbers in ``[0, 1]``.

    Args:
        mean: Their sample mean.
        count: How many, at least 1.
        doubt: Probability that the bound is wrong, in ``(0, 1)``.
        upper: Whether to return the upper or the lower bound.

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
    """Return a hold if the confidence sequence proves the learner worse than the control.

    Args:
        difference: Lower and upper bound of learner minus control; ``None`` without a comparison.
    """
    if difference is None or difference[1] >= 0.0:
        return None
    return Hold(
        Reason.CHAMPION,
        f"learner minus control is within [{difference[0]:.3g}, {difference[1]:.3g}]",
    )


def missing_rewards(ready: int, missing: int, limit: float | None) -> Hold | None:
    """Return a hold if too many rollouts were left out because their reward never came."""
    total = ready + missing
    if limit is None or total < FEWEST:
        return None
    if mean_bound(missing / total, total, doubt=DOUBT, upper=False) <= limit:
        return None
    return Hold(Reason.MISSING, f"{missing} of {total} rewards are missing; the limit is {limit:g}")


def collapses(newest: Figures, settings: Settings) -> list[Hold]:
    """Return a hold for each declared bound of choices and rewards that the figures exceed."""
    holds: list[Hold] = []
    if newest.rollouts < FEWEST:
        return holds
    floor, least = settings.entropy_floor, settings.reward_spread_floor
    enough = newest.decisions >= FEWEST
    if enough and floor is not None and newest.entropy is not None and newest.entropy < floor:
        words = f"entropy of choices {newest.entropy:.3g} is below {floor:g}"
        holds.append(Hold(Reason.COLLAPSED, words))
    limit, share = settings.option_share_limit, newest.option_share
    if enough and limit is not None and share is not None and share > limit:
        words = f"{newest.option!r} is {share:.0%} of choices, more than {limit:.0%}"
        holds.append(Hold(Reason.COLLAPSED, words))
    if least is not None and newest.reward_spread is not None and newest.reward_spread < least:
        words = f"rewards deviate by {newest.reward_spread:.3g}, less than {least:g}"
        holds.append(Hold(Reason.CONSTANT, words))
    limit = settings.source_share_limit
    for source, share in newest.sources.items():
        if limit is not None and share > limit:
            words = f"{share:.0%} of rewards come from {source!r}, more than {limit:.0%}"
            holds.append(Hold(Reason.SOURCE, words))
    return holds


def late_costs(
    store: Store, before: Monitor, settings: Settings, *, at: float
) -> Sequence[Charged]:
    """Return the rollouts whose cost may have become known since costs were last counted.

    Args:
        store: Holds the rollouts.
        before: The monitor so far.
        settings: The cost limit, and how long costs are waited for.
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
    before: Monitor,
    unseen: Iterable[LearnableRollout],
    rollouts: "UpdateRollouts",
    settings: Settings,
) -> tuple[Multiplier, dict[str, float], dict[int, float]]:
    """Return the price after the costs that became known.

    Args:
        before: The monitor so far.
        unseen: Rollouts that no update has seen, in order.
        rollouts: The rollouts of the update.
        settings: The limit, and the declared costs.

    Returns:
        The price; the position up to which costs were counted, to be stored, empty without a limit;
        and the costs counted, by ``ready_seq`` of their rollout, to be stored.
    """
    multiplier = multiplier_of(before)
    if settings.cost_limit is None:
        return multiplier, {}, {}
    counted_before = _costs_seen(before)
    at = max(rollouts.at, counted_before.at) if counted_before else rollouts.at
    costs: list[float] = []
    counted: dict[int, float] = {}
    corrected = 0.0
    for rollout in rollouts.late:
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
    return multiplier, {"rewarded": rollouts.newest_reward, "at": at}, counted


def multiplier_of(before: Monitor) -> Multiplier:
    """Return a monitor's stored price; the initial one where that is invalid."""
    try:
        return Multiplier.from_numbers(before.numbers.get("multiplier", {}))
    except ValueError:
        return Multiplier()


def _costs_seen(before: Monitor) -> CostsSeen | None:
    """Return the position up to which costs were counted; ``None`` before there was a limit."""
    numbers = before.numbers.get("costs", {})
    if not {"rewarded", "at"} <= {*numbers}:
        return None
    return CostsSeen(before.watermark, int(numbers["rewarded"]), numbers["at"])


RULE = DriftRule()
KEPT_ALARMS = 10
LARGEST = 1e100
"""Largest residual; the square of a larger one may not be finite."""

_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class MonitorFindings(NamedTuple):
    """The findings of a point's monitors in an update.

    Attributes:
        monitor: The new state of the monitors, to be stored with the update.
        report: Figures for the update's report.
        alarms: Options that have drifted.
        price: Price of one unit of safety cost, in units of reward.
        hold: Why the gate should hold; ``None`` if it should not.
        doubted: Options that became worse and that no kept update has forgotten yet.
        improved: Whether an option became better since the last kept update.
        costs: Costs that the price has counted, by ``ready_seq``, to be stored with the monitor.
        limits: The lowest and the highest that a reward counts as.
        outliers: How many rollouts that no update had seen have rewards beyond the limits.
        new: The usable part of the new rollouts, with rewards within the limits.
    """

    monitor: Monitor
    report: dict[str, object]
    alarms: tuple[Alarm, ...]
    price: float
    hold: Hold | None
    doubted: frozenset[str]
    improved: bool
    costs: Mapping[int, float]
    limits: Limits
    outliers: int
    new: CollectedRollouts

    def with_changes_cleared(self) -> "MonitorFindings":
        """Return the same for an update that was kept, which has followed the options' changes."""
        numbers: MonitorNumbers = {**self.monitor.numbers, "doubted": [], "improved": False}
        return self._replace(monitor=structs.replace(self.monitor, numbers=numbers))


class UpdateRollouts(NamedTuple):
    """The rollouts of an update.

    Attributes:
        fresh: Rollouts never learned from, in order; a skipped update may have seen some of them.
        older: Rollouts that it replays.
        new: The usable part of ``fresh``, with unclipped rewards.
        at: Epoch seconds, when the last of ``fresh`` was known.
        late: Other rollouts whose cost may have become known.
        newest_reward: ``seq`` of the newest reward before the rollouts were read; the next update
            checks later ones again.
    """

    fresh: Sequence[LearnableRollout]
    older: Sequence[LearnableRollout]
    new: CollectedRollouts
    at: float
    late: Sequence[Charged] = ()
    newest_reward: int = 0


def watch_update(
    before: Monitor,
    rollouts: UpdateRollouts,
    *,
    settings: Settings,
    state: LearnerState,
    config: PPOConfig,
    difference: tuple[float, float] | None = None,
) -> MonitorFindings:
    """Return the findings of a point's monitors in an update.

    Args:
        before: The monitor so far.
        rollouts: The rollouts of the update.
        settings: Bounds, and the weights of rewards.
        state: The learner's state before the update.
        config: How the learner learns.
        difference: Lower and upper bound of learner minus control; ``None`` without a comparison.
    """
    unseen = [
        example for example in rollouts.fresh if (example.rollout.ready_seq or 0) > before.watermark
    ]
    ids = {rollout.rollout.rollout_id for rollout in unseen}
    extremes = zip(rollouts.new.rollout_ids, rollouts.new.extremes(), strict=True)
    yield_gil()
    pairs = yield_between(pair for key, pair in extremes if key in ids)
    fence = fence_of(before).including(pairs)
    yield_gil()
    limits = fence.limits.extend_to(reward_range(settings))
    bounded, beyond = rollouts.new.within(limits)
    outliers = len({*beyond} & ids)
    yield_gil()
    drift, alarms = _drift(before, ids, bounded, state=state, config=config)
    multiplier, counted_until, costs = price_of(before, unseen, rollouts, settings)
    held = before.numbers.get("held", 0)
    newest = _figures(before.point, rollouts, settings, held=held)
    failing = _failing(newest, alarms, settings, difference=difference)
    streaks = _streaks(before, failing)
    hold = next(
        (
            failure
            for failure in failing
            # a drift alarm is raised only once
            if failure.reason is Reason.DRIFT or streaks[failure.reason] >= LOOKS
        ),
        None,
    )
    watermark = max(
        (unlearned.rollout.ready_seq or 0 for unlearned in unseen), default=before.watermark
    )
    doubted = _doubted_options(before) | {alarm.option for alarm in alarms if is_worse(alarm)}
    improved = before.numbers.get("improved", False) or not all(map(is_worse, alarms))
    alarm_rows = [_stored_alarm(alarm, ready_seq=watermark) for alarm in alarms]
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
            "figures": structs.asdict(newest),
            "doubted": sorted(doubted),
            "improved": improved,
            "fence": fence.numbers(),
            "limits": (limits.low, limits.high) if isfinite(limits.high - limits.low) else None,
            "outliers": fence.outliers(limits),
        },
        alarms=(*before.alarms, *alarm_rows)[-KEPT_ALARMS:],
    )
    price = multiplier.value * state.unit
    report = {
        **structs.asdict(newest),
        "drift": alarm_rows,
        "cost_multiplier": multiplier.value,
        "cost_price": price,
        "hold": hold.reason.value if hold else None,
    }
    return MonitorFindings(
        monitor,
        {"monitors": report},
        alarms,
        price,
        hold,
        doubted,
        improved,
        costs,
        limits,
        outliers,
        bounded,
    )


def monitor_figures(monitor: Monitor) -> PointFigures:
    """Return a point's figures for operators."""
    lowest, highest = monitor.numbers.get("limits") or (None, None)
    stored = {
        **structs.asdict(_stored_figures(monitor)),
        "cost_multiplier": multiplier_of(monitor).value,
        "lowest_reward": lowest,
        "highest_reward": highest,
        "outliers": monitor.numbers.get("outliers", 0),
        "drift": monitor.alarms,
    }
    return msgspec.convert(stored, PointFigures)


def _stored_figures(monitor: Monitor) -> Figures:
    """Return a monitor's stored figures; empty ones where these are missing or invalid."""
    try:
        return msgspec.convert(monitor.numbers.get("figures", {}), Figures)
    except msgspec.ValidationError:
        return Figures()


class MissingWatch:
    """Counts rewards that came and that are missing, since this process started watching.

    Rollouts that waited for their reward when the gate was reset do not count as missing: a holding
    gate takes no rewards, so they would undo the reset at once.

    Args:
        limit: Largest share of missing rewards, in ``[0, 1]``; ``None`` switches the check off.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._mark: tuple[int, int] | None = None
        self._held = False
        self._forgiven = 0

    def check(
        self, ready: int, missing: int, *, waiting: int = 0, holds: bool = False
    ) -> Hold | None:
        """Return a hold, once, if too many rewards are missing.

        The first two counts keep growing while old rollouts are forgotten, so two checks can be
        compared; ``missing`` shrinks where a reward comes late after all.

        Args:
            ready: For how many rollouts a reward came in time, so far.
            missing: For how many none did.
            waiting: How many ended rollouts wait for one.
            holds: Whether the gate holds.
        """
        if self._limit is None:
            return None
        now = ready, missing
        if self._held and not holds:
            self._mark, self._forgiven = now, waiting
        self._held = holds
        before = self._mark = self._mark or now
        came, lost = max(0, ready - before[0]), max(0, missing - before[1] - self._forgiven)
        hold = missing_rewards(came, lost, self._limit)
        if hold is not None or came + lost >= RECOUNT_AFTER:
            self._forgiven = min(max(0, self._forgiven - (missing - before[1])), waiting)
            self._mark = now
        return hold


def _drift(
    before: Monitor,
    unseen: Container[str],
    new: CollectedRollouts,
    *,
    state: LearnerState,
    config: PPOConfig,
) -> tuple[Drift, tuple[Alarm, ...]]:
    """Return the charts after new rollouts, and their alarms.

    Of each rollout of a few decisions only the last decision is charted: its return depends on no
    other choice of ours, so learning does not look like drift; and the decisions of one rollout
    share its luck, which a chart would count as independent evidence.
    """
    drift = drift_of(before)
    if new.trajectories is None:
        return drift, ()
    try:
        residuals = forward_residuals(state, new.trajectories, config=config).tolist()
    except _ERRORS as error:  # the update finds the rollout that caused it, and leaves it out
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
    """Whether the option earns less than before, so that its estimates are outdated."""
    return alarm.direction is Direction.WORSE


def _stored_alarm(alarm: Alarm, *, ready_seq: int) -> StoredAlarm:
    return {
        "option": alarm.option,
        "direction": "worse" if is_worse(alarm) else "better",
        "seen": alarm.seen,
        "since": alarm.since,
        "shift": alarm.shift,
        "ready_seq": ready_seq,
    }


def drift_of(monitor: Monitor) -> Drift:
    """Return a monitor's stored charts; empty ones where these are missing or invalid."""
    try:
        return Drift.from_numbers(monitor.numbers.get("drift", {}))
    except ValueError:
        return Drift.none()


def fence_of(monitor: Monitor) -> Fence:
    """Return a monitor's stored fence; an empty one where that is missing or invalid."""
    fence = monitor.numbers.get("fence")
    try:
        return Fence() if fence is None else Fence.from_numbers(fence)
    except ValueError:
        return Fence()


def _figures(point: str, rollouts: UpdateRollouts, settings: Settings, *, held: int) -> Figures:
    """Return the figures of the newest rollouts since the last hold."""
    window = max(settings.window, FEWEST)
    by_id = {rollout.rollout.rollout_id: rollout for rollout in (*rollouts.older, *rollouts.fresh)}
    newest = sorted(by_id.values(), key=lambda rollout: rollout.rollout.ready_seq or 0)[-window:]
    newest = [rollout for rollout in newest if (rollout.rollout.ready_seq or 0) > held]
    costs = [incurred_cost(rollout, settings, now=rollouts.at) for rollout in newest]
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
    """Return the options that became worse in skipped or undone updates, which forget nothing."""
    return frozenset(before.numbers.get("doubted", ()))


def _streaks(before: Monitor, failing: Iterable[Hold]) -> dict[str, int]:
    known = before.numbers.get("streaks", {})
    return {hold.reason.value: known.get(hold.reason.value, 0) + 1 for hold in failing}
