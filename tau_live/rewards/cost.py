"""What a rollout cost in safety, apart from its reward."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tau_live.rewards.safety import HARD_GATE_TRIGGERED, SOURCE
from tau_live.rollouts import Reward
from tau_live.settings import DeclaredReward


class Cost(NamedTuple):
    """What a rollout cost.

    Attributes:
        value: At least 0; ``None`` where nobody said.
        critical: Whether it violated what must never be violated.
    """

    value: float | None
    critical: bool


def cost_of(rewards: Sequence[Reward], declared: Sequence[DeclaredReward]) -> Cost:  # noqa: ARG001
    """Return what a rollout cost, as far as its rewards tell."""
    found = [one for one in rewards if one.source == SOURCE and one.value is not None]
    value = math.fsum(max(0.0, -(one.value or 0.0)) for one in found) if found else None
    return Cost(value, any(one.name == HARD_GATE_TRIGGERED for one in found))
