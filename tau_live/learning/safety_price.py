"""What rollouts cost, as the price of safety counts it: each once, whenever its cost becomes known.

The price aims at the mean cost of all rollouts. If only those counted whose cost is there when an
update learns from them, a cost that always comes late would never be paid for.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from tau_live.rewards.settling import incurred
from tau_live.rl.multiplier import Multiplier, MultiplierRule
from tau_live.settings import Settings
from tau_live.store.records import Charged, CostsSeen, LearnableRollout, Monitor
from tau_live.store.roles import Store


class Late(NamedTuple):
    """What may have become known of rollouts that were seen before.

    Attributes:
        charged: Those rollouts.
        rewarded: The ``seq`` of the newest reward that was there when the update began.
    """

    charged: Sequence[Charged] = ()
    rewarded: int = 0


class Priced(NamedTuple):
    """The price after more rollouts.

    Attributes:
        multiplier: The price.
        numbers: Up to where costs were counted, to be stored; empty without a limit.
        costs: By ``ready_seq``, what has been counted of rollouts, to be stored.
    """

    multiplier: Multiplier
    numbers: dict[str, float]
    costs: dict[int, float]


def late_of(store: Store, before: Monitor, settings: Settings, *, at: float, rewarded: int) -> Late:
    """Return what may have become known since costs were last counted.

    Args:
        store: Where the rollouts are.
        before: What was counted.
        settings: Whether there is a limit, and how long costs are waited for.
        at: Epoch seconds, when the last rollout of the update was known.
        rewarded: The newest reward, as it was before the rollouts of the update were read: what
            comes in between is looked at by the next update too.
    """
    seen = _seen(before)
    if settings.cost_limit is None or seen is None:
        return Late(rewarded=rewarded)
    waits = {
        settings.reward_deadline_s if one.deadline_s is None else one.deadline_s
        for one in settings.rewards
        if one.cost and one.default is not None
    }
    found = store.monitors.charged(before.point, seen, at=max(at, seen.at), waits=sorted(waits))
    return Late(found, rewarded)


def priced(
    before: Monitor,
    unseen: Iterable[LearnableRollout],
    late: Late,
    *,
    settings: Settings,
    at: float,
) -> Priced:
    """Return the price after the costs that became known.

    Args:
        before: What was counted.
        unseen: Rollouts that no update has seen, in their order.
        late: What may have become known of others.
        settings: The limit, and what rollouts cost.
        at: Epoch seconds, when the last of ``unseen`` was known.
    """
    multiplier = multiplier_of(before)
    if settings.cost_limit is None:
        return Priced(multiplier, {}, {})
    seen = _seen(before)
    at = max(at, seen.at) if seen else at
    costs: list[float] = []
    counted: dict[int, float] = {}
    corrected = 0.0
    for one in late.charged:
        cost = incurred(LearnableRollout(one.rollout, [], one.rewards), settings, now=at)
        if cost is None or cost == one.counted:
            continue
        counted[one.rollout.ready_seq or 0] = cost
        if one.counted is None:
            costs.append(cost)
        else:
            corrected += cost - one.counted
    for fresh in unseen:
        cost = incurred(fresh, settings, now=at)
        costs.append(nan if cost is None else cost)
        if cost is not None:
            counted[fresh.rollout.ready_seq or 0] = cost
    rule = MultiplierRule(limit=settings.cost_limit)
    multiplier = multiplier.updated(np.array(costs), rule, corrected=corrected)
    return Priced(multiplier, {"rewarded": late.rewarded, "at": at}, counted)


def multiplier_of(before: Monitor) -> Multiplier:
    """Return the price that a monitor remembers; none where it remembers nonsense."""
    try:
        return Multiplier.from_numbers(numbers_in(before.numbers.get("multiplier")))
    except ValueError:
        return Multiplier()


def _seen(before: Monitor) -> CostsSeen | None:
    """Return up to where costs were counted; ``None`` where there was no limit until now."""
    numbers = numbers_in(before.numbers.get("costs"))
    if not {"rewarded", "at"} <= {*numbers}:
        return None
    return CostsSeen(before.watermark, int(numbers["rewarded"]), numbers["at"])


def numbers_in(value: object) -> dict[str, float]:
    """Return the numbers of a stored table by name; none where it is no table."""
    found = value if isinstance(value, Mapping) else {}
    return {str(name): part for name, part in found.items() if isinstance(part, int | float)}
