"""What an update shows besides a policy: drift, the price of safety, figures for an operator.

Every rollout is seen once, in the order in which rollouts became ready, and what is remembered is
stored with the update that saw it: stopped and started again comes to the same as never stopped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

import numpy as np

from tau_live.gate import State
from tau_live.guard import logger
from tau_live.handed.reading import integer
from tau_live.learning.quality import (
    FEWEST,
    LOOKS,
    TUMBLES,
    Figures,
    Hold,
    Reason,
    below_champion,
    collapses,
    figures,
    missing_rewards,
    rewarded,
    violations,
)
from tau_live.learning.safety_price import Late, multiplier_of, numbers_in, priced
from tau_live.learning.trajectories import Collected
from tau_live.rewards.settling import incurred, reward_range
from tau_live.rl.bounds import Fence, Limits
from tau_live.rl.drift import Alarm, Direction, Drift, DriftRule
from tau_live.rl.ppo import LearnerState, PPOConfig
from tau_live.rl.residuals import forward_residuals
from tau_live.settings import Settings
from tau_live.store.records import LearnableRollout, Monitor

RULE = DriftRule()
KEPT_ALARMS = 10
MOST_STEPS = 4
"""Of a rollout that drift is read from: what longer ones earn hangs more on what the policy has
learned meanwhile than on the world."""
LARGEST = 1e100
"""Of a residual; the square of a larger one is no number any more."""

_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)


class Watched(NamedTuple):
    """What the monitors of a point saw in an update.

    Attributes:
        monitor: To be stored with the update.
        report: For its report.
        alarms: Options that are no longer what they were.
        price: What one unit of safety cost weighs, in units of reward.
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

    def learned(self) -> "Watched":
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
        late: What became known of the cost of others.
    """

    fresh: Sequence[LearnableRollout]
    older: Sequence[LearnableRollout]
    new: Collected
    at: float
    late: Late = Late()


def watched(
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
        before: What they remember.
        seen: The rollouts of the update.
        settings: Bounds, and what rewards are worth.
        state: What the update begins from.
        config: How it learns.
        difference: Lower and upper bound of learner minus control, where they are compared.
    """
    unseen = [one for one in seen.fresh if (one.rollout.ready_seq or 0) > before.watermark]
    fence = _fenced(before, unseen, seen.new)
    limits = fence.limits.spanning(reward_range(settings))
    bounded, beyond = seen.new.within(limits)
    outliers = len({*beyond} & {one.rollout.rollout_id for one in unseen})
    drift, alarms = _drift(before, unseen, bounded, state=state, config=config)
    found_costs = priced(before, unseen, seen.late, settings=settings, at=seen.at)
    multiplier = found_costs.multiplier
    held = integer(before.numbers.get("held"))
    found = _figures(before.point, seen, settings, held=held)
    failing = _failing(found, alarms, settings, difference=difference)
    streaks = _streaks(before, failing)
    hold = next((one for one in failing if streaks[one.reason] >= _looks(one.reason)), None)
    watermark = max((one.rollout.ready_seq or 0 for one in unseen), default=before.watermark)
    doubted = _doubted(before) | {alarm.option for alarm in alarms if is_worse(alarm)}
    said = [{**alarm._asdict(), "ready_seq": watermark} for alarm in alarms]
    monitor = Monitor(
        point=before.point,
        watermark=watermark,
        since=before.watermark if any(map(is_worse, alarms)) else before.since,
        numbers={
            "drift": drift.numbers(),
            "multiplier": multiplier.numbers(),
            "costs": found_costs.numbers,
            "held": watermark if hold else held,
            "streaks": {} if hold else streaks,
            "figures": found.plain(),
            "doubted": sorted(doubted),
            "fence": fence.numbers(),
            "limits": _ends(limits),
            "outliers": fence.outliers(limits),
        },
        alarms=(*before.alarms, *said)[-KEPT_ALARMS:],
    )
    price = multiplier.value * state.unit
    report = {
        **found.plain(),
        "drift": said,
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
        found_costs.costs,
        limits,
        outliers,
        bounded,
    )


def told(monitor: Monitor) -> dict[str, object]:
    """Return what an operator wants to know of a point, as JSON data."""
    found = monitor.numbers.get("figures")
    multiplier = multiplier_of(monitor)
    limits = monitor.numbers.get("limits")
    lowest, highest = limits if isinstance(limits, list) else (None, None)
    return {
        **(dict(found) if isinstance(found, Mapping) else Figures(sources={}).plain()),
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

    def looked(self, status: Mapping[str, object]) -> Hold | None:
        """Return a reason to hold, from what ``status_of`` says; it is given once."""
        if self._limit is None:
            return None
        now = rewarded(status)
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
    unseen: Iterable[LearnableRollout],
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
    ids = {one.rollout.rollout_id for one in unseen}
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
            if decision.rollout_id in ids and abs(residual) <= LARGEST
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
    found = monitor.numbers.get("fence")
    try:
        return Fence.from_numbers(found) if isinstance(found, Mapping) else Fence()
    except ValueError:
        return Fence()


def _fenced(before: Monitor, unseen: Iterable[LearnableRollout], new: Collected) -> Fence:
    """Return how far rewards may reach after rollouts that no update has seen."""
    ids = {one.rollout.rollout_id for one in unseen}
    found = zip(new.rollout_ids, new.extremes(), strict=True)
    return fence_of(before).including(pair for rollout_id, pair in found if rollout_id in ids)


def _ends(limits: Limits) -> list[float] | None:
    return [*limits] if isfinite(limits.high - limits.low) else None


def _figures(point: str, seen: Seen, settings: Settings, *, held: int) -> Figures:
    """Return the figures of the newest rollouts, of those alone that came since the last hold."""
    window = max(settings.window, FEWEST)
    by_id = {one.rollout.rollout_id: one for one in (*seen.older, *seen.fresh)}
    newest = sorted(by_id.values(), key=lambda one: one.rollout.ready_seq or 0)[-window:]
    newest = [one for one in newest if (one.rollout.ready_seq or 0) > held]
    costs = [incurred(one, settings, now=seen.at) for one in newest]
    return figures(newest, point, costs=costs, declared=settings.rewards)


def _failing(
    found: Figures,
    alarms: Iterable[Alarm],
    settings: Settings,
    *,
    difference: tuple[float, float] | None,
) -> list[Hold]:
    holds = [violations(found, settings.cost_limit), below_champion(difference)]
    if settings.drift_holds:
        worse = [alarm for alarm in alarms if alarm.direction is Direction.WORSE]
        holds += [Hold(Reason.DRIFT, f"option {alarm.option!r} became worse") for alarm in worse]
    return [one for one in holds if one is not None] + collapses(found, settings)


def _doubted(before: Monitor) -> frozenset[str]:
    """Return what became worse in updates that were skipped or undone, and so did not doubt it."""
    found = before.numbers.get("doubted")
    return frozenset(map(str, found if isinstance(found, list) else ()))


def _looks(reason: Reason) -> int:
    """Return at how many looks in a row a check must fail; an alarm is raised but once."""
    return 1 if reason is Reason.DRIFT else LOOKS


def _streaks(before: Monitor, failing: Iterable[Hold]) -> dict[str, int]:
    streaks = before.numbers.get("streaks")
    known = streaks if isinstance(streaks, Mapping) else {}
    return {one.reason.value: integer(known.get(one.reason.value)) + 1 for one in failing}


def _tables(value: object) -> dict[str, dict[str, float]]:
    found = value if isinstance(value, Mapping) else {}
    return {str(name): numbers_in(table) for name, table in found.items()}
