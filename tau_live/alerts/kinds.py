"""Every kind of alert: what it means, its severity and the command to run next."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Severity(StrEnum):
    """How urgent it is: wake the on-call engineer, look today, or good to know."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Kind(StrEnum):
    """What an operator is alerted about; its name is the heading in the runbook."""

    GATE_HOLD = "gate-hold"
    GATE_RESET = "gate-reset"
    STORE_FAILS = "store-fails"
    KILL_SWITCH_ON = "kill-switch-on"
    EVENTS_DROPPED = "events-dropped"
    REWARDS_MISSING = "rewards-missing"
    REWARD_FELL = "reward-fell"
    OPTION_WORSE = "option-worse"
    CHOICES_COLLAPSED = "choices-collapsed"
    POLICY_PROMOTED = "policy-promoted"
    POLICY_DEMOTED = "policy-demoted"
    EXPOSURE_RAISED = "exposure-raised"
    LEARNER_STOPPED = "learner-stopped"
    LEARNER_BEHIND = "learner-behind"
    PLUGIN_DISABLED = "plugin-disabled"
    TEST = "test"


class About(NamedTuple):
    """What is known of a kind.

    Attributes:
        severity: How urgent it is.
        means: One sentence.
        todo: The command to run next.
    """

    severity: Severity
    means: str
    todo: str


ALERTS: Mapping[Kind, About] = MappingProxyType(
    {
        Kind.GATE_HOLD: About(
            Severity.CRITICAL,
            "The gate holds: nothing is recorded, learned or decided until it is reset.",
            "tau-live gate",
        ),
        Kind.GATE_RESET: About(
            Severity.INFO, "An operator let the gate pass again.", "tau-live gate log"
        ),
        Kind.STORE_FAILS: About(
            Severity.CRITICAL,
            "A process cannot use its store; its host makes its own choices until it works again.",
            "tau-live doctor",
        ),
        Kind.KILL_SWITCH_ON: About(
            Severity.WARNING,
            "The kill switch is on: everything is stopped until it is turned off.",
            "tau-live status",
        ),
        Kind.EVENTS_DROPPED: About(
            Severity.WARNING,
            "Events were dropped before they were stored, so their data is lost.",
            "tau-live status",
        ),
        Kind.REWARDS_MISSING: About(
            Severity.WARNING,
            "Too many rollouts get no reward in time, and nothing is learned from them.",
            "tau-live doctor",
        ),
        Kind.REWARD_FELL: About(
            Severity.WARNING,
            "The mean reward of a decision point is far below what it was.",
            "tau-live status",
        ),
        Kind.OPTION_WORSE: About(
            Severity.WARNING,
            "Drift: an option earns less than it used to, so what was learned of it is doubtful.",
            "tau-live status",
        ),
        Kind.CHOICES_COLLAPSED: About(
            Severity.WARNING,
            "One option is chosen almost always, so nothing more is learned about the others.",
            "tau-live status",
        ),
        Kind.POLICY_PROMOTED: About(
            Severity.INFO,
            "A version was proven better and is now the champion.",
            "tau-live policy list",
        ),
        Kind.POLICY_DEMOTED: About(
            Severity.WARNING,
            "The learner was demoted: to the previous champion, or to a smaller share of rollouts.",
            "tau-live policy list",
        ),
        Kind.EXPOSURE_RAISED: About(
            Severity.INFO, "The learner decides a larger share of rollouts.", "tau-live status"
        ),
        Kind.LEARNER_STOPPED: About(
            Severity.CRITICAL,
            "The learner of a decision point was stopped and decides nothing there.",
            "tau-live status",
        ),
        Kind.LEARNER_BEHIND: About(
            Severity.WARNING,
            "More rollouts wait to be learned from than two of the largest updates take.",
            "tau-live status --all",
        ),
        Kind.PLUGIN_DISABLED: About(
            Severity.WARNING,
            "A plugin is no longer called. If it redacts, no text is kept, and the host makes its "
            "own choices.",
            "tau-live doctor",
        ),
        Kind.TEST: About(
            Severity.INFO, "A test alert, sent by `tau-live alerts test`.", "tau-live alerts"
        ),
    }
)  # fmt: skip
"""Every kind, in the order in which one should read them."""

MOVES: Mapping[str, Kind] = MappingProxyType(
    {
        "gate_reset": Kind.GATE_RESET,
        "champion_frozen": Kind.POLICY_PROMOTED,
        "policy_promote": Kind.POLICY_PROMOTED,
        "policy_freeze": Kind.POLICY_PROMOTED,
        "champion_returned": Kind.POLICY_DEMOTED,
        "policy_reset": Kind.POLICY_DEMOTED,
        "policy_rollback": Kind.POLICY_DEMOTED,
        "exposure_lowered": Kind.POLICY_DEMOTED,
        "exposure_climbed": Kind.EXPOSURE_RAISED,
        "learner_stopped": Kind.LEARNER_STOPPED,
        "policy_stop": Kind.LEARNER_STOPPED,
    }
)
"""What actions in the audit are alerts of."""

EXPOSURE = "policy_exposure"
"""An operator gives the learner another share: what it is an alert of, the shares tell."""
