"""Logged decisions as an evaluation needs them, wherever they come from."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tau_live.errors import PolicyError
from tau_live.rl.arrays import FloatArray
from tau_live.rl.bounds import is_usable
from tau_live.rl.features import unpack
from tau_live.rl.policy import Policy

_SUM_ROUNDING = 1e-6


class Record(NamedTuple):
    """One decision.

    Attributes:
        rollout: The id of its rollout; the steps of one stand in their order.
        options: ``[A]``, what was offered; empty where that is not known.
        allowed: ``[A]``, which of them might be chosen; ``None`` if all might.
        applied: The index of the one applied; -1 where it is none of them.
        default: The index of the host's own choice; ``None`` if it has none.
        propensity: With which probability the applied one had been chosen; NaN if nobody knows.
        reward: What came after it, before the next step; NaN if nobody knows.
        packed: Its features.
        explored: ``[A]``, false where an option was unsafe to explore; ``None`` if none was.
        logged: ``[A]``, with which probability each would have been chosen; empty if unknown.
        value: What had been expected to come after it; NaN if nothing had.
        version: The version that decided; 0 is the untrained policy.
        place: The ``ready_seq`` of its rollout; 0 in a log from elsewhere.
        total: What its whole rollout was worth; NaN if nobody knows.
        context: What was known, as the host gave it; ``None`` where it was not read.
        features: ``[A]``, of each option, as the host gave them; empty where they were not read.
    """

    rollout: str
    options: tuple[str, ...]
    allowed: tuple[bool, ...] | None
    applied: int
    default: int | None
    propensity: float
    reward: float
    packed: bytes
    explored: tuple[bool, ...] | None = None
    logged: tuple[float, ...] = ()
    value: float = math.nan
    version: int = 0
    place: int = 0
    total: float = math.nan
    context: Mapping[str, object] | None = None
    features: tuple[Mapping[str, object] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """Decisions, and how many were left out before anything was computed.

    Attributes:
        records: In their order.
        left_out: By reason.
        spoilt: Rollouts with a step that was left out: nothing can be said of them as a whole.
    """

    records: list[Record] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    spoilt: set[str] = field(default_factory=set)


Target = Callable[[Record], FloatArray]
"""Returns ``[A]``, with which probability a policy would have chosen each option."""


Function = Callable[[Mapping[str, object], Mapping[str, Mapping[str, object]]], object]
"""A policy of the user's: takes the context and the options with their features, and returns the
option that it takes, or a mapping of options to probabilities."""


def of_function(function: Function, name: str) -> Target:
    """Return the policy that a function of the user's is.

    Raises:
        PolicyError: When it is asked: it raised, or returned neither an option that might be chosen
            nor probabilities of such.
    """

    def chosen(record: Record) -> FloatArray:
        features = record.features or (None,) * len(record.options)
        offered = {
            option: dict(given or {})
            for at, (option, given) in enumerate(zip(record.options, features, strict=True))
            if record.allowed is None or record.allowed[at]
        }
        try:
            found = function(dict(record.context or {}), offered)
        except Exception as error:  # somebody else's code
            raise PolicyError(f"{name} raised {type(error).__name__}: {error}") from error
        given = {found: 1.0} if isinstance(found, str) else found
        if not isinstance(given, Mapping) or not {*given} <= {*offered}:
            raise PolicyError(
                f"{name} must return one of {sorted(offered)}, or their probabilities, "
                f"got {found!r}"
            )
        try:
            shares = np.array([float(given.get(option, 0.0)) for option in record.options])
        except (TypeError, ValueError) as error:
            raise PolicyError(f"{name} must return numbers, got {found!r}") from error
        if not ((shares >= 0.0).all() and abs(float(shares.sum()) - 1.0) <= _SUM_ROUNDING):
            raise PolicyError(f"{name} must return probabilities that sum to 1, got {found!r}")
        return shares

    return chosen


def uniform(record: Record) -> FloatArray:
    """Return the same probability for every option that might be chosen."""
    may = (
        np.ones(len(record.options)) if record.allowed is None else np.array(record.allowed, float)
    )
    shares: FloatArray = may / may.sum()
    return shares


def constant(option: str) -> Target:
    """Return the policy that always takes one option; where it may not be taken, any other."""

    def always(record: Record) -> FloatArray:
        if option not in record.options:
            return uniform(record)
        at = record.options.index(option)
        if record.allowed is not None and not record.allowed[at]:
            return uniform(record)
        found = np.zeros(len(record.options))
        found[at] = 1.0
        return found

    return always


def of_policy(policy: Policy) -> Target:
    """Return a version of ours; its features must be as wide as those of the decisions."""

    def chosen(record: Record) -> FloatArray:
        mask = None if record.allowed is None else np.array(record.allowed, dtype=np.bool_)
        flags = None if record.explored is None else np.array(record.explored, dtype=np.bool_)
        encoded = unpack(record.packed)
        return policy.probabilities(encoded, default=record.default, allowed=mask, explored=flags)

    return chosen


def best_fixed(found: Records) -> str | None:
    """Return the option with the highest self-normalised estimate; ``None`` where there is none.

    Chosen with hindsight from the very log it is then evaluated on, so a little too good.
    """
    weights: dict[str, float] = {}
    earned: dict[str, float] = {}
    for record in found.records:
        if record.applied >= 0 and record.propensity > 0.0 and is_usable(record.reward):
            name = record.options[record.applied]
            weights[name] = weights.get(name, 0.0) + 1.0 / record.propensity
            earned[name] = earned.get(name, 0.0) + record.reward / record.propensity
    means = {name: earned[name] / weights[name] for name in weights}
    return max(means, key=lambda name: (means[name], name), default=None)


def returns_of(found: Records) -> FloatArray:
    """Return ``[N]`` what came after each decision until the end of its rollout."""
    returns = np.array([record.reward for record in found.records], dtype=np.float64)
    after: dict[str, float] = {}
    for at in range(len(returns) - 1, -1, -1):
        rollout = found.records[at].rollout
        returns[at] += after.get(rollout, 0.0)
        after[rollout] = float(returns[at])
    return returns
