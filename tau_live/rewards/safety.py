"""What a host's safety rules take away from a reward, last and for good."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tau_live.settings import SafetySettings

SOURCE = "safety"
"""Who gives these rewards; by it they are told from what a host or a user reports."""

PENALTY_TOTAL = "safety.penalty_total"
HARD_GATE_PENALTY = "safety.hard_gate_penalty"
HARD_GATE_TRIGGERED = "safety.hard_gate_triggered"
"""A marker: it is worth 0 and says that the rollout is hard-gated."""

_INJECTION = "prompt_injection."
_LEAK = "secret_leak."


class Part(NamedTuple):
    """A named share of a reward."""

    name: str
    value: float


def penalty(policy: SafetySettings, reason_code: str) -> float:
    """Return what one reason code costs, at least 0."""
    if reason_code in policy.reason_code_penalties:
        return policy.reason_code_penalties[reason_code]
    if reason_code.startswith(_INJECTION):
        return policy.prompt_injection_penalty
    if reason_code.startswith(_LEAK):
        return policy.secret_leak_penalty
    return policy.default_reason_code_penalty


def hard_gates(policy: SafetySettings, blocked_events: int, reason_codes: Iterable[str]) -> bool:
    """Tell whether a rollout with these may be worth no more than the ceiling."""
    return (policy.blocked_event_triggers_hard_gate and blocked_events > 0) or any(
        code in policy.hard_gate_reason_codes or code.startswith(policy.hard_gate_reason_prefixes)
        for code in reason_codes
    )


def penalties(
    policy: SafetySettings, blocked_events: int, reason_codes: Iterable[str]
) -> list[Part]:
    """Return what is taken away from a rollout, as parts that are at most 0; none if nothing.

    Args:
        policy: What each costs.
        blocked_events: How many of its safety events blocked.
        reason_codes: Of all of its safety events; each counts once.

    Source:
        The reference's safety reward policy, SR1 to SR3 in its contract.
    """
    codes = sorted(set(reason_codes))
    if not blocked_events and not codes:
        return []  # as of most rollouts
    total = math.fsum(
        [*(penalty(policy, code) for code in codes), blocked_events * policy.blocked_penalty]
    )
    parts = [Part(PENALTY_TOTAL, -total)] if total > 0.0 else []
    if hard_gates(policy, blocked_events, codes):
        if policy.hard_gate_penalty > 0.0:
            parts.append(Part(HARD_GATE_PENALTY, -policy.hard_gate_penalty))
        parts.append(Part(HARD_GATE_TRIGGERED, 0.0))
    return parts


def settled(values: Sequence[float], penalties: Sequence[Part], *, ceiling: float) -> float:
    """Return what a rollout is worth after safety has spoken; nothing may be added to it.

    The sum of ``values`` and ``penalties``; where the penalties say that the rollout is hard-gated,
    each value is at most ``ceiling``, and so is the sum, even if it is no number.

    Args:
        values: Shares of the reward.
        penalties: As ``SafetyPolicy.penalties`` returns them.
        ceiling: At most 0.

    Raises:
        OverflowError: The sum is no number, and the rollout is not hard-gated.
    """
    gated = any(part.name == HARD_GATE_TRIGGERED for part in penalties)
    taken = [min(0.0, part.value) for part in penalties]
    if not gated:
        return total_of([*values, *taken])
    try:  # min(ceiling, nan) is the ceiling; the other way round it is not
        total = total_of([*(min(ceiling, value) for value in values), *taken])
    except OverflowError:
        return ceiling
    return min(total, ceiling)


def total_of(values: Iterable[float]) -> float:
    """Return the exact sum, rounded once: the order of the values does not matter.

    Raises:
        OverflowError: It is not a finite number.
    """
    try:
        total = math.fsum(values)
    except ValueError as error:  # infinities of both signs
        raise OverflowError(str(error)) from error
    if not math.isfinite(total):
        raise OverflowError(f"the sum is {total!r}")
    return total
