"""The facts of a report, from a store of any size in bounded time and memory.

What can be drawn is bounded, so what is read is: some hundred rollouts of each stretch, and the
newest of each decision point.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tau_live.reasons import drops_of
from tau_live.reporting.choices import grouped
from tau_live.reporting.compared import PARTS
from tau_live.reporting.facts import Facts, Point
from tau_live.reporting.lived import Lived, lived
from tau_live.reporting.marks import marks_of
from tau_live.reporting.stretches import Surveyor, cuts_of, nothing_decided, surveyed
from tau_live.reporting.summary import summary_of
from tau_live.rewards.settling import reward_range
from tau_live.settings import Settings
from tau_live.status import COUNTED, not_learned_from, status_of
from tau_live.store.roles import Store

__all__ = ["POINTS", "report_facts"]

POINTS = 6
"""So many decision points are shown, the busiest."""


def report_facts(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool,
    tell: Callable[[int], None] = lambda _: None,
    expect: Callable[[int], None] = lambda _: None,
) -> Facts:
    """Return everything that a report says.

    Args:
        store: The store; nothing is written.
        settings: Where checkpoints are, and what rewards are worth.
        now: Epoch seconds, UTC.
        enabled: Whether tau-live is switched on here.
        tell: Told how many more steps are done.
        expect: Told how many steps there will be, before the first.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    status = status_of(store, settings, now=now, enabled=enabled)
    total = sum(store.rollouts.counts_by_status().values())
    cuts, ready = cuts_of(store, total), set(store.rewards.ready_points())
    expect(len(cuts) + PARTS * min(POINTS, len(ready)))
    seen = surveyed(store, cuts, within=reward_range(settings), tell=tell)
    ranked = sorted(seen.tallies, key=lambda point: (-seen.tallies[point].decisions, point))
    points = []
    for point in ranked[:POINTS]:
        found = lived(store, settings, point, tell=tell) if point in ready else Lived()
        alarms = store.monitors.monitor(point).alarms
        points.append(_point(point, seen, found, alarms=alarms))
    return Facts(
        at=now,
        store=str(settings.store),
        rollouts=total,
        looked_at=sum(one.looked_at for one in seen.stretches),
        summary=summary_of(
            status, seen.stretches, [one.point for one in points], settings=settings
        ),
        status=status,
        stretches=seen.stretches,
        marks=marks_of(store, seen.stretches),
        points=points,
        points_left_out=max(0, len(ranked) - POINTS),
        drops=drops_of(store.counters.counts()),
        untaught=not_learned_from(store.counters.counts(), store.rewards.waiting(limit=COUNTED)),
    )


def _point(
    point: str, seen: Surveyor, found: Lived, *, alarms: Sequence[Mapping[str, object]]
) -> Point:
    tally = seen.tallies[point]
    named = tally.options()
    decided = [
        here.get(point) or nothing_decided(whole)
        for here, whole in zip(seen.decided, seen.stretches, strict=True)
    ]
    return Point(
        point=point,
        decisions=tally.decisions,
        options=named,
        stretches=[replace(one, options=grouped(one.options, named)) for one in decided],
        contexts=tally.habits(),
        lived=found.rollouts,
        calibration=found.calibration,
        error=found.error,
        errors=found.errors,
        compared=found.compared,
        alarms=[dict(alarm) for alarm in alarms],
    )
