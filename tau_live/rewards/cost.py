"""The safety cost of a rollout, apart from its reward.

A cost is never a part of the total (``rewards.join``), and nothing waits for it. Its scale is the
share of the worst: 0 is safe, 1 is as bad as it was declared to get.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tau_live.rewards.safety import HARD_GATE_TRIGGERED
from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.rollouts import Reward
from tau_live.settings import DeclaredReward, HardGateCost


class Cost(NamedTuple):
    """What a rollout cost in safety.

    Attributes:
        value: In ``[0, 1]``; ``None`` when nothing about it is known: unknown is not zero.
        critical: Whether any of it is a critical violation.
    """

    value: float | None
    critical: bool


UNKNOWN = Cost(None, False)


def cost_of(  # everything that it depends on, and it must depend on nothing else
    rewards: Sequence[Reward],
    declared: Sequence[DeclaredReward],
    *,
    hard_gate: HardGateCost = HardGateCost.NO,
    ended_at: float | None = None,
    now: float = math.inf,
    deadline_s: float | None = None,
) -> Cost:
    """Return what a rollout cost: the worst of what was declared to be a cost, whoever said so.

    A value is divided by the highest that its declaration allows (1 without a range); what is
    outside counts as the end that it is beyond, and what is no number is not known. Several
    values count as their greatest: two violations in one rollout are one rollout that violates.

    A declared cost that has not come counts as its default once its deadline is over; one without
    a default is not known. Where only some are known, those count.

    Args:
        rewards: All that were given for the rollout and its decisions, in any order.
        declared: What is expected; only those that are costs matter.
        hard_gate: What the host's own safety rules count when they trigger the hard gate. Only
            rollouts that did are marked, so ``cost`` and ``critical`` are the operator's word that
            the host reports every safety event: where no cost is declared, an unmarked rollout
            then costs 0 and is not unknown.
        ended_at: Epoch seconds; ``None`` takes every deadline for over.
        now: Epoch seconds.
        deadline_s: For what is declared without a deadline; ``None`` waits for ever.
    """
    costs = [one for one in declared if one.cost]
    found = [_declared(one, rewards) for one in costs]
    known = [cost for cost in found if cost.value is not None]
    for one, cost in zip(costs, found, strict=True):
        wait_s = deadline_s if one.deadline_s is None else one.deadline_s
        over = ended_at is None or (wait_s is not None and ended_at + wait_s <= now)
        if cost.value is None and one.default is not None and over:
            known.append(_scaled(one, one.default))
    if hard_gate is not HardGateCost.NO:
        gated = any(one.source == SAFETY and one.name == HARD_GATE_TRIGGERED for one in rewards)
        if gated:
            known.append(Cost(1.0, hard_gate is HardGateCost.CRITICAL))
        elif not costs:
            known.append(Cost(0.0, False))
    if not known:
        return UNKNOWN
    worst = max(cost.value or 0.0 for cost in known)
    return Cost(worst, any(cost.critical for cost in known))


def _declared(one: DeclaredReward, rewards: Sequence[Reward]) -> Cost:
    values = [
        reward.value
        for reward in rewards
        if reward.name == one.name and reward.value is not None and not math.isnan(reward.value)
    ]
    return _scaled(one, max(values)) if values else UNKNOWN


def _scaled(one: DeclaredReward, value: float) -> Cost:
    _, high = one.bounds
    critical = one.critical is not None and value >= one.critical
    return Cost(min(max(value, 0.0) / high, 1.0), critical)
