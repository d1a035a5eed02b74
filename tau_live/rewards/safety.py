"""What a host's safety rules take away from a reward, last and for good."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tau_live.errors import SettingsError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyPolicy:
    """What a safety rule that matched costs.

    Attributes:
        blocked_penalty: For each blocked event.
        default_reason_code_penalty: For each reason code that has no penalty of its own.
        prompt_injection_penalty: For each that begins with ``prompt_injection.``.
        secret_leak_penalty: For each that begins with ``secret_leak.``.
        reason_code_penalties: By reason code; goes before the others.
        hard_gate_reason_codes: Each of these hard-gates the rollout.
        hard_gate_reason_prefixes: As does each code that begins so.
        hard_gate_reward_ceiling: At most 0; a hard-gated rollout is worth no more.
        hard_gate_penalty: Taken away besides.
        blocked_event_triggers_hard_gate: Whether a blocked event hard-gates too.
        reject_rollout_on_hard_gate: Whether a hard-gated rollout is to be marked as failed.

    Raises:
        SettingsError: A penalty is negative or not finite, the ceiling is above 0 or not finite, or
            a prefix is blank.
    """

    blocked_penalty: float = 1.0
    default_reason_code_penalty: float = 0.25
    prompt_injection_penalty: float = 1.0
    secret_leak_penalty: float = 1.5
    reason_code_penalties: Mapping[str, float] = field(default_factory=dict)
    hard_gate_reason_codes: frozenset[str] = frozenset(
        {"prompt_injection.system_prompt_exfiltration", "secret_leak.redaction_failed"}
    )
    hard_gate_reason_prefixes: tuple[str, ...] = (_LEAK,)
    hard_gate_reward_ceiling: float = 0.0
    hard_gate_penalty: float = 1.0
    blocked_event_triggers_hard_gate: bool = True
    reject_rollout_on_hard_gate: bool = False

    def __post_init__(self) -> None:
        penalties = {
            "blocked_penalty": self.blocked_penalty,
            "default_reason_code_penalty": self.default_reason_code_penalty,
            "prompt_injection_penalty": self.prompt_injection_penalty,
            "secret_leak_penalty": self.secret_leak_penalty,
            "hard_gate_penalty": self.hard_gate_penalty,
            **{f"reason_code_penalties.{k}": v for k, v in self.reason_code_penalties.items()},
        }
        for name, penalty in penalties.items():
            if not 0.0 <= penalty < math.inf:
                raise SettingsError(
                    f"safety_reward.{name} must be finite and non-negative, got {penalty!r}"
                )
        ceiling = self.hard_gate_reward_ceiling
        if not -math.inf < ceiling <= 0.0:
            raise SettingsError(
                f"safety_reward.hard_gate_reward_ceiling must be finite and <= 0, got {ceiling!r}"
            )
        if not all(prefix.strip() for prefix in self.hard_gate_reason_prefixes):
            raise SettingsError(
                "safety_reward.hard_gate_reason_prefixes must not be blank, "
                f"got {self.hard_gate_reason_prefixes!r}"
            )

    def penalty(self, reason_code: str) -> float:
        """Return what one reason code costs, at least 0."""
        if reason_code in self.reason_code_penalties:
            return self.reason_code_penalties[reason_code]
        if reason_code.startswith(_INJECTION):
            return self.prompt_injection_penalty
        if reason_code.startswith(_LEAK):
            return self.secret_leak_penalty
        return self.default_reason_code_penalty

    def hard_gates(self, blocked_events: int, reason_codes: Iterable[str]) -> bool:
        """Tell whether a rollout with these may be worth no more than the ceiling."""
        return (self.blocked_event_triggers_hard_gate and blocked_events > 0) or any(
            code in self.hard_gate_reason_codes or code.startswith(self.hard_gate_reason_prefixes)
            for code in reason_codes
        )

    def penalties(self, blocked_events: int, reason_codes: Iterable[str]) -> list[Part]:
        """Return what is taken away from a rollout, as parts that are at most 0; none if nothing.

        Args:
            blocked_events: How many of its safety events blocked.
            reason_codes: Of all of its safety events; each counts once.

        Source:
            The reference's safety reward policy, SR1 to SR3 in its contract.
        """
        codes = sorted(set(reason_codes))
        total = math.fsum([*map(self.penalty, codes), blocked_events * self.blocked_penalty])
        parts = [Part(PENALTY_TOTAL, -total)] if total > 0.0 else []
        if self.hard_gates(blocked_events, codes):
            if self.hard_gate_penalty > 0.0:
                parts.append(Part(HARD_GATE_PENALTY, -self.hard_gate_penalty))
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
