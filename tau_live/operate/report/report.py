"""The facts of a report, from a store of any size in bounded time and memory.

A drawing shows a bounded number of facts, so only these are read: some hundred rollouts of each
stretch, and the newest of each decision point.
"""

from collections.abc import Callable
from dataclasses import replace

from tau_live.core.reasons import drops_of
from tau_live.core.settings import Settings
from tau_live.operate.report.choices import PARTS, group_options
from tau_live.operate.report.facts import Decided, Facts, Point
from tau_live.operate.report.stretches import cuts_of, marks_of, survey, with_recent
from tau_live.operate.report.summary import summary_of
from tau_live.operate.status import COUNTED, not_learned_from, status_of
from tau_live.record.rewards import reward_range
from tau_live.store.roles import Store

POINTS = 6
"""How many decision points are shown, the busiest."""


def report_facts(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool,
    tell: Callable[[int], None] = lambda _: None,
    expect: Callable[[int], None] = lambda _: None,
) -> Facts:
    """Return the facts of a report.

    Args:
        store: The store; nothing is written.
        settings: The weights of rewards.
        now: Epoch seconds, UTC.
        enabled: Whether tau-live is switched on here.
        tell: Called with the number of further steps done.
        expect: Called with the number of steps, before the first.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    status = status_of(store, settings, now=now, enabled=enabled)
    total = sum(store.rollouts.counts_by_status().values())
    cuts, ready = cuts_of(store, total), set(store.rewards.ready_points())
    expect(len(cuts) + PARTS * min(POINTS, len(ready)))
    stretches, decided, tallies = survey(store, cuts, within=reward_range(settings), tell=tell)
    ranked = sorted(tallies, key=lambda point: (-tallies[point].decisions, point))
    points = []
    for name in ranked[:POINTS]:
        options = tallies[name].options()
        own = [
            by_point.get(name) or Decided(first=stretch.first, last=stretch.last)
            for by_point, stretch in zip(decided, stretches, strict=True)
        ]
        point = Point(
            point=name,
            decisions=tallies[name].decisions,
            options=options,
            stretches=[replace(part, options=group_options(part.options, options)) for part in own],
            contexts=tallies[name].habits(),
            alarms=status.monitors[name].drift if name in status.monitors else (),
        )
        is_ready = name in ready
        points.append(with_recent(point, store, settings, tell=tell) if is_ready else point)
    return Facts(
        at=now,
        store=str(settings.store),
        rollouts=total,
        looked_at=sum(stretch.looked_at for stretch in stretches),
        summary=summary_of(status, stretches, [point.point for point in points], settings=settings),
        status=status,
        stretches=stretches,
        marks=marks_of(store, stretches),
        points=points,
        points_left_out=max(0, len(ranked) - POINTS),
        drops=drops_of(store.counters.counts()),
        untaught=not_learned_from(store.counters.counts(), store.rewards.waiting(limit=COUNTED)),
    )
