"""The reasons why something is not learned from, each with a sentence for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

LEFT_OUT = "left_out_"
"""Prefix of the counters of rollouts and decisions left out of learning; the reason follows."""

CRITIC_ONLY = "critic_only_"
"""Prefix of the counters of decisions that taught the critic alone; the reason follows."""

DROPPED = "dropped_"
"""Prefix of the counters of events dropped before they were stored; the reason follows."""

FOREIGN_DEFAULT = "defaults_not_offered_"
"""Prefix of the counters of decisions whose default was not an option; the point follows."""

RERUNS = "reruns_after_end"
"""Counts attempts at succeeded rollouts, most often new runs under an old key."""

STORE_FAILED = "dropped_store_failed"
"""Counts what was not taken because the store could not be written: an unwanted loss."""

UNWRITTEN = "dropped_unwritten"
QUEUE_FULL = "dropped_queue_full"
_INTENDED_DROPS = frozenset({"dropped_paused", "dropped_closed"})
_NOT_STORED = ("events_refused_", "events_malformed", "decisions_not_recorded")
_REFUSED = (
    "rewards_refused", "rewards_without", "rewards_not_declared", "refused_", "options_", "masks_",
    "host_objects_",
)  # fmt: skip

WHILE_HELD = "_while_held"
"""Suffix of the counters of what a hold kept out."""


def lost_events(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of events that were dropped unintentionally."""
    return {
        name: count
        for name, count in counters.items()
        if count and name.startswith(DROPPED) and name not in _INTENDED_DROPS
    }


def drops_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of drops and refusals, the largest first."""
    drops = lost_events(counters) | {
        name: count
        for name, count in counters.items()
        if count and (name.startswith(_NOT_STORED + _REFUSED) or name.endswith(WHILE_HELD))
    }
    return dict(sorted(drops.items(), key=lambda drop: (-drop[1], drop[0])))


class WhyNot(StrEnum):
    """Why a rollout, or one decision of it, is not learned from."""

    REWARD_NOT_DUE = "reward_not_due"
    REWARD_MISSING = "reward_missing"
    REWARD_OUT_OF_RANGE = "reward_out_of_range"
    REWARD_NOT_FINITE = "reward_not_finite"
    NO_REWARD = "no_reward"
    TRIED_AGAIN = "tried_again"
    EVENTS_DROPPED = "events_dropped"
    NO_USABLE_DECISIONS = "no_usable_decisions"
    BREAKS_UPDATE = "breaks_update"
    MASK_MISSING = "mask_missing"
    MASK_DAMAGED = "mask_damaged"
    APPLIED_UNKNOWN = "applied_unknown"
    APPLIED_MASKED = "applied_masked"
    APPLIED_DIFFERS = "applied_differs"
    OPTIONS_REPEATED = "options_repeated"
    NO_PROPENSITY = "no_propensity"
    ZERO_PROPENSITY = "zero_propensity"
    PROPENSITY_OUT_OF_RANGE = "propensity_out_of_range"
    VALUE_NOT_FINITE = "value_not_finite"
    NO_FEATURES = "no_features"
    FEATURES_DAMAGED = "features_damaged"
    FEATURES_OF_ANOTHER_WIDTH = "features_of_another_width"
    EARLIER_ATTEMPT = "earlier_attempt"
    ONE_OPTION = "one_option"
    TOO_OLD = "too_old"
    ARRIVED_LATE = "arrived_late"
    SOURCE_OVER_CAP = "source_over_cap"
    NO_ROOM = "no_room"


SENTENCES: Mapping[WhyNot, str] = MappingProxyType(
    {
        WhyNot.REWARD_NOT_DUE: "The rollout still waits for its reward: unknown is not zero.",
        WhyNot.REWARD_MISSING: "No reward came before its deadline, and it has no default.",
        WhyNot.REWARD_OUT_OF_RANGE: "A reward was outside the range that was declared for it.",
        WhyNot.REWARD_NOT_FINITE: "The rewards do not add up to a number within 1e50.",
        WhyNot.NO_REWARD: "No numeric reward was given.",
        WhyNot.TRIED_AGAIN: "The rollout is being retried.",
        WhyNot.EVENTS_DROPPED: "Events of the rollout were lost on the way to the store.",
        WhyNot.NO_USABLE_DECISIONS: "None of the rollout's decisions at the point is usable.",
        WhyNot.BREAKS_UPDATE: "An update fails with this rollout and succeeds without it.",
        WhyNot.MASK_MISSING: (
            "The allowed options are unknown: none is listed, or one had the "
            "probability 0 without being marked as not allowed."
        ),
        WhyNot.MASK_DAMAGED: "The allowed options are not among the options offered.",
        WhyNot.APPLIED_UNKNOWN: "The applied option is unknown.",
        WhyNot.APPLIED_MASKED: "The host applied an option that was not allowed.",
        WhyNot.APPLIED_DIFFERS: (
            "The host applied another option than the one chosen, or chose by itself: what its "
            "choice was based on is unknown."
        ),
        WhyNot.OPTIONS_REPEATED: "Two options have the same name.",
        WhyNot.NO_PROPENSITY: "The probability with which the option was chosen is unknown.",
        WhyNot.ZERO_PROPENSITY: "The applied option was recorded with the probability 0.",
        WhyNot.PROPENSITY_OUT_OF_RANGE: "The propensity is not a valid probability.",
        WhyNot.VALUE_NOT_FINITE: "The value estimate is not a number within 1e50.",
        WhyNot.NO_FEATURES: "The policy's input was not stored.",
        WhyNot.FEATURES_DAMAGED: "The stored features cannot be read.",
        WhyNot.FEATURES_OF_ANOTHER_WIDTH: "The features belong to a policy of another shape.",
        WhyNot.EARLIER_ATTEMPT: "The run was retried later; only its last attempt counts.",
        WhyNot.ONE_OPTION: "There was no choice: only one option was allowed.",
        WhyNot.SOURCE_OVER_CAP: (
            "Too many rollouts of the update have rewards from the same source; others of that "
            "source were learned from (TAU_LIVE_RL_SOURCE_CAPS)."
        ),
        WhyNot.TOO_OLD: (
            "The version that decided is older than the lag bound allows; the rollout trains "
            "the regressions and the critic, not the actor."
        ),
        WhyNot.ARRIVED_LATE: (
            "The rollout came out of a host's spool too long after its end (TAU_LIVE_RL_STALE_S), "
            "or after more versions made since then than the lag bound allows; it is evidence of "
            "trials, and nothing is learned from it."
        ),
        WhyNot.NO_ROOM: (
            "Update after update was skipped, and the next one that was kept had no room for all "
            "of their rollouts (TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE)."
        ),
    }
)
"""The meaning of each reason."""


PAUSED = "paused"
"""The stored reason why a decision is the host's own while deciding is paused."""


PERMIT_OVER = "permit_over"
"""The stored reason why it is the host's own when the database was not heard for too long."""


class Part(StrEnum):
    """A part of tau-live that can be paused by itself."""

    COLLECTION = "collection"
    LEARNING = "learning"
    DECIDING = "deciding"


MEANS: Mapping[Part, str] = MappingProxyType(
    {
        Part.COLLECTION: (
            "new runs are neither recorded nor decided; runs in progress continue to their end, "
            "and rewards are accepted"
        ),
        Part.LEARNING: (
            "no updates; rollouts are kept and learned from later, and the serving version is "
            "still compared with the control"
        ),
        Part.DECIDING: "the host's own choice is served, and recorded as `paused`",
    }
)
"""The effect of pausing each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A part that is paused until an operator resumes it.

    Attributes:
        part: What is paused.
        reason: Why.
        who: Who paused it.
        at: Since when; epoch seconds, UTC.
    """

    part: Part
    reason: str
    who: str
    at: float
