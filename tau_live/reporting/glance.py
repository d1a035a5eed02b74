"""What an operator sees at a glance, from a store of any size in a few milliseconds.

The same figures as in a report, of fewer rollouts: whoever looks once a second must not be felt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tau_live.reporting.facts import Mark, Stretch, Summary
from tau_live.reporting.marks import marks_of
from tau_live.reporting.stretches import cuts_of, glanced
from tau_live.reporting.summary import doubts_of, drops_lately, points_of, summary_of
from tau_live.rewards.settling import reward_range
from tau_live.settings import Settings
from tau_live.status import status_of
from tau_live.store.roles import Store

STRETCHES = 24
"""So many points of the reward curve find room beside each other on a narrow screen."""

EACH = 64
"""So many rollouts of each are looked at; a mean of theirs is known to an eighth of their standard
deviation, about what a cell of the screen can show."""

LOOKED_AT = 64
"""So many of the newest lines of the audit are looked at for what changed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Everything that is on the screen.

    Attributes:
        at: Epoch seconds, UTC.
        summary: The four answers.
        status: What ``tau-live status --json`` says.
        stretches: All rollouts, in the order in which they began: the reward curve.
        points: The decision points, the busiest first.
        drops: What was dropped or refused, by counter that grew lately, the largest first.
        doubts: What to doubt of its health, each by a word for what it concerns.
        latest: What last changed who decides, or whether anybody may; ``None`` if nothing did.
    """

    at: float
    summary: Summary
    status: Mapping[str, object]
    stretches: Sequence[Stretch]
    points: Sequence[str]
    drops: Mapping[str, int]
    doubts: Mapping[str, str]
    latest: Mark | None


def glance_of(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool,
    store_fails: str | None = None,
) -> Glance:
    """Return what an operator sees at a glance.

    Args:
        store: The store; nothing is written.
        settings: Where it is, and what rewards are worth.
        now: Epoch seconds, UTC.
        enabled: Whether tau-live is switched on here.
        store_fails: Why the store cannot be written; ``None`` where nobody has tried.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    status = status_of(store, settings, now=now, enabled=enabled, store_fails=store_fails)
    total = sum(store.rollouts.counts_by_status().values())
    cuts = cuts_of(store, total, most=STRETCHES, each=EACH)
    stretches = glanced(store, cuts, within=reward_range(settings))
    points, marks = points_of(status), marks_of(store, stretches, look=LOOKED_AT)
    return Glance(
        at=now,
        summary=summary_of(status, stretches, points, settings=settings),
        status=status,
        stretches=stretches,
        points=points,
        drops=drops_lately(status),
        doubts=doubts_of(status, settings),
        latest=marks[-1] if marks else None,
    )
