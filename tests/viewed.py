"""What the views of a store show: the documentation is made from this, and tests keep it true."""

from collections.abc import Mapping

_AT = "When, in UTC."
_POINT = "The decision point."

VIEWED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "rollouts_in_words": (
        "Rollouts with their reward, the newest first.",
        {
            "rollout_id": "Its id.",
            "name": "What kind of run it is.",
            "host": "The framework that ran it.",
            "status": "Where it stands.",
            "ended_with": "The class of its error, or why it ended.",
            "reward": "What it earned in all; null while unknown.",
            "learning": "Whether it can be learned from, or why not.",
            "decisions": "How many it made.",
            "attempts": "How often it was tried.",
            "started_utc": "When it began.",
            "took_s": "Seconds that it took.",
            "session_id": "What runs of one conversation share.",
            "parent_id": "The rollout inside which it ran.",
        },
    ),
    "decisions_in_words": (
        "Decisions with their options and probabilities, the newest first.",
        {
            "decision_id": "Its id.",
            "rollout_id": "The rollout.",
            "point": _POINT,
            "in_words": "Who chose what, with which probability, and why not the policy.",
            "options_and_probabilities": "What was offered, each with its probability.",
            "chosen": "What the policy chose.",
            "applied": "What the host did.",
            "host_choice": "What the host would have done by itself.",
            "probability": "The propensity of what was applied; null where nobody knows it.",
            "version": "The version that decided; 0 is untrained.",
            "arm": "Who decided the rollout there.",
            "reward": "What its rollout earned in all.",
            "took_ms": "Milliseconds in the host's thread.",
            "at_utc": _AT,
        },
    ),
    "updates_in_words": (
        "Updates and what they made, the newest first.",
        {
            "update_number": "Its number.",
            "point": _POINT,
            "in_words": "The version it made, or why it was skipped.",
            "rollouts": "Rollouts learned from.",
            "decisions": "Decisions learned from.",
            "version": "The version it made.",
            "at_utc": _AT,
        },
    ),
    "versions_in_words": (
        "Versions and whether they decide, the newest first.",
        {
            "version": "Its number.",
            "point": _POINT,
            "in_words": "Whether it decides, is pinned, or is the champion.",
            "parent": "The version it was made from.",
            "rollouts": "Rollouts it was trained on.",
            "algorithm": "What made it.",
            "made_utc": "When it was made.",
        },
    ),
    "drops_in_words": (
        "What was dropped, refused, left out or counted otherwise, by reason.",
        {
            "what": "What became of it.",
            "reason": "Why.",
            "times": "How often.",
            "counter": "The name of the counter; see [the counters](counters.md).",
        },
    ),
    "audit_in_words": (
        "Who changed what, and why, the newest first.",
        {
            "seq": "Its place in the order of arrival.",
            "at_utc": _AT,
            "who": "The operator or the process.",
            "action": "What was done.",
            "point": "The decision point that it concerned.",
            "version": "The version that it concerned.",
            "reason": "Why.",
        },
    ),
    "alerts_in_words": (
        "What somebody was told, the newest first.",
        {
            "seq": "Its place in the order of arrival.",
            "at_utc": _AT,
            "severity": "How bad it is.",
            "kind": "Its name; see [the kinds](alerts.md).",
            "subject": "What it concerns.",
            "sentence": "What happened.",
            "look_at": "The command to look next.",
            "suppressed_before": "Alerts of its kind that came too soon before it.",
        },
    ),
}
"""Every view with a sentence, and each of its columns with another."""
