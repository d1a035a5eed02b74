"""What the views of a store show: the documentation is made from this, and tests keep it true."""

from collections.abc import Mapping

_AT = "When, in UTC."
_POINT = "The decision point."

VIEWED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "spans": (
        "The recorded steps of each attempt, and a span for its run and for each of its decisions.",
        {
            "seq": "The `seq` of a step in `recorded_spans`; 0 of runs and decisions.",
            "rollout_seq": "The `seq` of its rollout.",
            "attempt": "The number of the attempt.",
            "span_id": "The host's own id of a step; `{rollout_id}:attempt-{attempt}` of a run; "
            "its id of a decision.",
            "parent_span_id": "Its parent; the run, if it has no other; null of a run.",
            "kind": "`run`, `decision`, or what kind of step.",
            "name": "Its name; of a run the rollout's, of a decision the decision point.",
            "status": "`ok`, `error`, `cancelled` and so on; `unknown` while it is open.",
            "attributes": "JSON. Of a run: `attempt_status`, and `error` if it has a message. Of a "
            "decision what is known of `applied`, `chosen`, `default`, `source`, `why_not`, "
            "`propensity` to 12 places, `policy_version` and `arm`.",
            "started_at": "Epoch seconds, UTC; a decision's end less its latency.",
            "ended_at": "Epoch seconds, UTC; null while it is open.",
            "reported": "1 while only its start is known, 2 if only its end is, else 3.",
            "rollout_id": "The rollout.",
            "ordinal": "The ordinal of a decision; 0 of a run; null of a step.",
        },
    ),
    "rollouts_in_words": (
        "Rollouts with their reward, the newest first.",
        {
            "rollout_id": "Its id.",
            "name": "The kind of run.",
            "host": "The framework that ran it.",
            "status": "Its status.",
            "ended_with": "The class of its error, or why it ended.",
            "reward": "Its total reward; null while unknown.",
            "learning": "Whether it can be learned from, or why not.",
            "decisions": "How many it made.",
            "attempts": "How many attempts it had.",
            "started_utc": "When it began.",
            "took_s": "Its duration in seconds.",
            "session_id": "The id that the runs of one conversation share.",
            "parent_id": "Its parent rollout.",
        },
    ),
    "decisions_in_words": (
        "Decisions with their options and probabilities, the newest first.",
        {
            "decision_id": "Its id.",
            "rollout_id": "The rollout.",
            "point": _POINT,
            "in_words": "The choice, its probability, and why the policy did not make it.",
            "options_and_probabilities": "The options, each with its probability.",
            "chosen": "The policy's choice.",
            "applied": "The option that the host applied.",
            "host_choice": "The host's own choice.",
            "probability": "The propensity of the applied option; null if unknown.",
            "version": "The version that decided; 0 is untrained.",
            "arm": "Who decided the rollout there.",
            "reward": "The total reward of its rollout.",
            "took_ms": "Milliseconds in the host's thread.",
            "at_utc": _AT,
        },
    ),
    "updates_in_words": (
        "Updates and the versions they made, the newest first.",
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
            "parent": "Its parent version.",
            "rollouts": "Rollouts it was trained on.",
            "algorithm": "The algorithm that made it.",
            "made_utc": "When it was made.",
        },
    ),
    "drops_in_words": (
        "What was dropped, refused, left out or otherwise counted, by reason.",
        {
            "what": "What happened to it.",
            "reason": "Why.",
            "times": "How often.",
            "counter": "The name of the counter; see [the counters](counters.md).",
        },
    ),
    "audit_in_words": (
        "Who changed what, and why, the newest first.",
        {
            "seq": "Its place in order of arrival.",
            "at_utc": _AT,
            "who": "The operator or the process.",
            "action": "What was done.",
            "point": "The decision point that it concerned.",
            "version": "The version that it concerned.",
            "reason": "Why.",
        },
    ),
    "alerts_in_words": (
        "Alerts raised, the newest first.",
        {
            "seq": "Its place in order of arrival.",
            "at_utc": _AT,
            "severity": "How urgent it is.",
            "kind": "Its name; see [the kinds](alerts.md).",
            "subject": "What it concerns.",
            "sentence": "What happened.",
            "look_at": "The command to run next.",
        },
    ),
}
"""Every view with a sentence, and each of its columns with another."""
