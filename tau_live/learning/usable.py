"""What may be learned from: the only place where that is decided, for rollouts and decisions.

Rewards are judged before, when they are joined (``rewards.join``), with the same reasons.
"""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from tau_live.collection.event_rows import DROPPED
from tau_live.reasons import WhyNot
from tau_live.rl.arrays import BoolArray
from tau_live.rl.bounds import is_usable
from tau_live.rl.features import Encoded, unpack
from tau_live.rollouts import ROLLOUT_ENDS, Decision, Rollout

LEAST_PROPENSITY = 1e-300
"""Below, an importance weight would not be finite."""

MOST_PROPENSITY = 1.0 + 1e-9
"""A certain choice may be above 1 by a rounding error."""

HOSTS_OWN = frozenset({WhyNot.APPLIED_DIFFERS, WhyNot.NO_PROPENSITY})
"""What is wrong with a host's own choice; behind a setting it may teach the critic all the same."""


class Step(NamedTuple):
    """A decision that may be learned from.

    Attributes:
        decision: As it is stored.
        encoded: What the policy saw.
        allowed: ``[A]``, which options might be chosen; ``None`` if all might.
        explored: ``[A]``, false where an option was unsafe to explore; ``None`` if none was.
        propensity: NaN where it may teach the critic only.
        critic_only: Why it may teach no more; ``None`` where it may.
    """

    decision: Decision
    encoded: Encoded
    allowed: BoolArray | None
    explored: BoolArray | None
    propensity: float
    critic_only: WhyNot | None


def own_reward(rollout: Rollout) -> float | None:
    """Return what came for the run itself; ``None`` before it is ready."""
    return rollout.total_reward if rollout.run_reward is None else rollout.run_reward


def why_not_all(rollout: Rollout) -> WhyNot | None:
    """Return why a rollout may not be learned from at all; ``None`` when it may."""
    if rollout.status not in ROLLOUT_ENDS:
        return WhyNot.TRIED_AGAIN
    if rollout.metadata.get(DROPPED):
        return WhyNot.EVENTS_DROPPED
    if rollout.total_reward is None:
        return WhyNot.NO_REWARD
    if not is_usable(rollout.total_reward):
        return WhyNot.REWARD_NOT_FINITE
    return None


def step_of(
    decision: Decision, *, last_attempt: int, width: int, learn_from_host: bool = False
) -> Step | WhyNot:
    """Return a decision as a step, or why it is none.

    Args:
        decision: As it is stored.
        last_attempt: The attempt of its rollout that counts.
        width: How wide the policy's features are.
        learn_from_host: Whether a host's own choice may teach the critic.
    """
    reasons = why_not(decision)
    critic_only = (
        reasons[0] if reasons and learn_from_host and HOSTS_OWN.issuperset(reasons) else None
    )
    if reasons and critic_only is None:
        return reasons[0]
    if decision.attempt != last_attempt:
        return WhyNot.EARLIER_ATTEMPT
    mask = mask_of(decision)
    if (len(decision.options) if mask is None else int(mask.sum())) == 1:
        return WhyNot.ONE_OPTION
    encoded = encoded_of(decision, width=width)
    if isinstance(encoded, WhyNot):
        return encoded
    propensity = nan if critic_only else decision.propensity or 0.0
    return Step(decision, encoded, mask, explored_of(decision), propensity, critic_only)


def why_not(decision: Decision) -> list[WhyNot]:
    """Return everything for which a decision by itself may not be learned from."""
    propensity, options, allowed = decision.propensity, decision.options, decision.allowed
    applied = decision.applied
    checks = (
        (WhyNot.MASK_MISSING, _lacks_mask(decision)),
        (WhyNot.MASK_DAMAGED, allowed is not None and not {*allowed} <= {*options}),
        (WhyNot.APPLIED_UNKNOWN, applied is None or applied not in options),
        (WhyNot.APPLIED_MASKED, allowed is not None and applied not in allowed),
        (WhyNot.OPTIONS_REPEATED, len(set(options)) < len(options)),
        (WhyNot.VALUE_NOT_FINITE, not is_usable(decision.value or 0.0)),
        (WhyNot.NO_FEATURES, not decision.encoded),
        (WhyNot.APPLIED_DIFFERS, applied != decision.chosen),
        (WhyNot.NO_PROPENSITY, propensity is None),
        (WhyNot.ZERO_PROPENSITY, propensity == 0.0),
        (WhyNot.PROPENSITY_OUT_OF_RANGE, propensity is not None and not _weighs(propensity)),
    )
    return [reason for reason, fails in checks if fails]


def mask_of(decision: Decision) -> BoolArray | None:
    """Return ``[A]`` which options might be chosen; ``None`` if all might."""
    if decision.allowed is None:
        return None
    names = {*decision.allowed}
    return np.array([name in names for name in decision.options], dtype=np.bool_)


def explored_of(decision: Decision) -> BoolArray | None:
    """Return ``[A]`` which options were explored; ``None`` if none was unsafe to explore."""
    if decision.exploit_only is None:
        return None
    names = {*decision.exploit_only}
    return np.array([name not in names for name in decision.options], dtype=np.bool_)


def encoded_of(decision: Decision, *, width: int) -> Encoded | WhyNot:
    """Return what the policy saw of a decision, or why that cannot be told."""
    if not decision.encoded:
        return WhyNot.NO_FEATURES
    try:
        encoded = unpack(decision.encoded)
    except ValueError:
        return WhyNot.FEATURES_DAMAGED
    if encoded.options != len(decision.options):
        return WhyNot.FEATURES_DAMAGED
    return encoded if encoded.width == width else WhyNot.FEATURES_OF_ANOTHER_WIDTH


def last_attempt(decisions: Sequence[Decision]) -> int:
    """Return the attempt that counts: the last with a decision at any point."""
    return max((decision.attempt for decision in decisions), default=0)


def _lacks_mask(decision: Decision) -> bool:
    if not decision.options:
        return True
    if decision.allowed is not None or len(decision.probabilities) != len(decision.options):
        return False
    if 0.0 not in decision.probabilities:  # as usual, and sooner known
        return False
    held = decision.exploit_only or ()  # without a floor theirs may have come to nothing
    named = zip(decision.options, decision.probabilities, strict=True)
    return any(probability == 0.0 and name not in held for name, probability in named)


def _weighs(propensity: float) -> bool:
    return LEAST_PROPENSITY <= propensity <= MOST_PROPENSITY
