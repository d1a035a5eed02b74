"""What is declared in tables of its own: the rewards that are expected, the price of safety."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tau_live.errors import SettingsError
from tau_live.settings.kinds import (
    Kind,
    as_table,
    choice,
    flag,
    names,
    number,
    optional,
    span,
)
from tau_live.settings.rows import made, rows_of, setting, settle

_LONGEST_S = 1e9


_FINITE = number(expects="a finite number")
SECONDS = number(above=0.0, most=_LONGEST_S, expects="seconds above 0 and at most 1e9")
_CAP = number(above=0.0, most=1.0, expects="shares above 0 and at most 1")
_PENALTY = number(least=0.0, expects="finite and non-negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredReward:
    """A reward that an operator expects, and what it counts for."""

    name: str
    weight: float = setting(1.0, _FINITE, "Its weight in the total.")
    primary: bool = setting(False, flag(), "Whether the rollout's success is read from it.")
    deadline_s: float | None = setting(
        None, optional(SECONDS), "Its deadline; none means REWARD_DEADLINE_S."
    )
    default: float | None = setting(
        None,
        optional(_FINITE),
        "The value after the deadline; without one the rollout is left out.",
    )
    range: tuple[float, float] | None = setting(
        None, optional(span()), "Its lowest and highest value, if known."
    )
    cost: bool = setting(
        False, flag(), "Whether it is a safety cost, in [0, 1] unless it has a range."
    )
    critical: float | None = setting(
        None, optional(_FINITE), "A cost of at least this value is a critical violation."
    )

    sources: tuple[str, ...] = setting(
        (), names(), "Sources that may give it, as names or patterns; none means REWARD_SOURCES."
    )

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise SettingsError(f"a reward's name must not be blank, got {self.name!r}")
        settle(self, f"the {{}} of reward {self.name!r}")
        self._check_cost()
        low, high = self.bounds
        for name, value in (("default", self.default), ("critical value", self.critical)):
            if value is not None and not low <= value <= high:
                raise SettingsError(
                    f"the {name} of reward {self.name!r} must be in its range "
                    f"[{low}, {high}], got {value!r}"
                )

    def _check_cost(self) -> None:
        for wrong, said in (
            (self.critical is not None and not self.cost, "is critical, so it must be a cost"),
            (self.cost and self.primary, "is a cost, so it cannot be primary"),
            (self.cost and self.weight != 1.0, "is a cost, so it cannot have a weight"),
            (self.cost and self.bounds[0] < 0.0, "is a cost, so its range cannot begin below 0"),
            (self.critical == 0.0, "cannot be critical at 0, which is no cost at all"),
        ):
            if wrong:
                raise SettingsError(f"reward {self.name!r} {said}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Its lowest and highest value; a cost without a range is in ``[0, 1]``."""
        return self.range or ((0.0, 1.0) if self.cost else (-math.inf, math.inf))

    def allows(self, value: float) -> bool:
        """Say whether the reward can be so much."""
        low, high = self.bounds
        return low <= value <= high


def _declared(name: object, raw: object) -> DeclaredReward:
    given = {str(key).replace("-", "_"): value for key, value in as_table(raw).items()}
    known = [row.field for row in rows_of(DeclaredReward)]
    for key in given.keys() - set(known):
        raise SettingsError(
            f"reward {name!r} cannot have a {key!r}, only {', '.join(known)}"
        )  # refused, not warned about: a misspelt weight would be learned with
    return made(DeclaredReward, {"name": str(name), **given})


def parsed_rewards(raw: object) -> tuple[DeclaredReward, ...]:
    """Return the rewards that a table declares by name.

    Raises:
        ValueError: It is no such table, one of them is wrong, or several are primary.
    """
    if isinstance(raw, tuple) and all(isinstance(one, DeclaredReward) for one in raw):
        rewards = raw
    else:
        try:
            rewards = tuple(_declared(name, one) for name, one in as_table(raw).items())
        except SettingsError as error:
            raise ValueError(f"is wrong: {error}") from None
    primary = [reward.name for reward in rewards if reward.primary]
    if len(primary) > 1:
        raise ValueError(f"must have at most one primary reward, got {', '.join(primary)}")
    return rewards


def tables_of(rewards: tuple[DeclaredReward, ...]) -> dict[str, dict[str, object]]:
    """Return the tables that would declare these rewards; ``parsed_rewards`` undoes it."""
    return {
        reward.name: {
            row.field.replace("_", "-"): getattr(reward, row.field)
            for row in rows_of(DeclaredReward)
            if getattr(reward, row.field) not in (None, ())
        }
        for reward in rewards
    }


def _parsed_penalties(raw: object) -> Mapping[str, float]:
    table = as_table(raw)
    return MappingProxyType({str(code): _PENALTY.parse(table[code]) for code in table})


def parsed_caps(raw: object) -> Mapping[str, float]:
    """Return a table of sources and shares above 0 and at most 1.

    Raises:
        ValueError: It is no such table.
    """
    table = as_table(raw)
    return MappingProxyType({str(source): _CAP.parse(table[source]) for source in table})


class HardGateCost(StrEnum):
    """What a hard-gated rollout is in the safety cost, apart from its reward.

    ``no``: nothing; ``cost``: it costs 1 and, where no cost is declared, every other rollout 0;
    ``critical``: the same, and a critical violation.
    """

    NO = "no"
    COST = "cost"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """What a violated safety policy costs; the reference's defaults.

    Source: reference-live-loop, SR1 and SR4.
    """

    blocked_penalty: float = setting(1.0, _PENALTY, "Cost of each blocked event.")
    default_reason_code_penalty: float = setting(0.25, _PENALTY, "Cost of any other reason code.")
    prompt_injection_penalty: float = setting(1.0, _PENALTY, "Cost of a prompt_injection.* code.")
    secret_leak_penalty: float = setting(1.5, _PENALTY, "Cost of a secret_leak.* code.")
    reason_code_penalties: Mapping[str, float] = setting(
        MappingProxyType({}),
        Kind("a table of reason codes and penalties", _parsed_penalties),
        "Costs of single reason codes; they take precedence.",
    )
    hard_gate_reason_codes: tuple[str, ...] = setting(
        ("prompt_injection.system_prompt_exfiltration", "secret_leak.redaction_failed"),
        names(),
        "Reason codes that trigger the hard gate.",
    )
    hard_gate_reason_prefixes: tuple[str, ...] = setting(
        ("secret_leak.",), names(), "Prefixes of reason codes that trigger the hard gate."
    )
    hard_gate_reward_ceiling: float = setting(
        0.0,
        number(most=0.0, expects="finite and <= 0"),
        "The largest reward when the hard gate is triggered.",
    )
    hard_gate_penalty: float = setting(1.0, _PENALTY, "Cost of triggering the hard gate.")
    blocked_event_triggers_hard_gate: bool = setting(
        True, flag(), "Whether a blocked event triggers the hard gate."
    )
    reject_rollout_on_hard_gate: bool = setting(
        False, flag(), "Whether a rollout that triggers it fails."
    )
    hard_gate_cost: HardGateCost = setting(  # noqa: RUF009 - it is immutable
        HardGateCost.NO,
        choice(HardGateCost),
        "Whether triggering it is a safety cost, apart from the reward.",
    )

    def __post_init__(self) -> None:
        settle(self, "safety_reward.{}")
