"""What the JSON of ``tau-live report`` holds."""

from tau_live.cli.json_keys.rows import Keys


def _mean(prefix: str, of: str) -> dict[str, str]:
    return {
        f"{prefix}.count": f"of how many the following is: {of}",
        f"{prefix}.mean": "their mean; null of none",
        f"{prefix}.lower": "of its 95 percent interval; null of fewer than 5, or of the same",
        f"{prefix}.upper": "likewise",
    }


def _spread(prefix: str, of: str) -> dict[str, str]:
    return {
        f"{prefix}.count": f"of how many the following is: {of}",
        f"{prefix}.median": "half are below; null of none",
        f"{prefix}.high": "95 of 100 are below; null of none",
    }


def _answer(prefix: str, question: str) -> dict[str, str]:
    return {
        f"{prefix}.state": f"{question} good, doubtful or bad",
        f"{prefix}.answer": "the same in a word or a few",
        f"{prefix}.said": "in sentences",
    }


_STRETCH: Keys = {
    "stretches[].first": "rollouts that began one after the other: the place of the first",
    "stretches[].last": "the place of the last",
    "stretches[].began_at": "epoch seconds at which the first of them began; null if none did",
    "stretches[].looked_at": "how many of them were looked at: at most 512, evenly spread",
    "stretches[].succeeded": "of these, succeeded",
    "stretches[].failed": "of these, failed",
    "stretches[].cancelled": "of these, cancelled",
    "stretches[].open": "of these, not ended",
    "stretches[].waiting": "of these, ended without a reward so far",
    "stretches[].left_out": "of these, teach nothing for what is wrong with their rewards",
    **_mean("stretches[].reward", "rollouts with a reward"),
    **_spread("stretches[].duration_s", "seconds from start to end of those that ended"),
    **_spread("stretches[].cost_usd", "US dollars of those whose cost is known"),
    **_spread("stretches[].latency_us", "microseconds of a decision in the host's thread"),
}

_POINT: Keys = {
    "points[].point": "the decision point; the busiest first, at most 6",
    "points[].decisions": "its decisions that were looked at",
    "points[].options[]": "what was applied, the most frequent first",
    "points[].stretches[].first": "the stretch, as above",
    "points[].stretches[].last": "likewise",
    **_mean("points[].stretches[].exposure", "assigned rollouts; the mean is the learner's share"),
    "points[].stretches[].share": "mean probability with which the learner would decide",
    **_mean("points[].stretches[].learner", "rewards of rollouts that the learner decided"),
    **_mean("points[].stretches[].control", "rewards of rollouts that the control decided"),
    "points[].stretches[].options.*": "how often each option was applied",
    "points[].contexts[].key": "something that the policy was told; what tells most first",
    "points[].contexts[].information": "how much of the choice it tells, 0 to 1",
    "points[].contexts[].values[].value": "a value that it had, or a range of numbers",
    "points[].contexts[].values[].decisions": "how many decisions had it",
    "points[].contexts[].values[].options.*": "how often each option was applied there",
    "points[].lived": "the newest rewarded rollouts that the following is of, at most 1024",
    "points[].calibration[].expected": "mean value estimate of decisions with about the same",
    **_mean("points[].calibration[].came", "what came after these decisions"),
    **_mean("points[].error", "what came less what was expected, of all of them"),
    "points[].errors[].first": "the same over time: the first rollout, by ready_seq",
    "points[].errors[].last": "the last",
    **_mean("points[].errors[].error", "what came less what was expected"),
    "points[].compared[].version": "the version that decided most of some rollouts",
    "points[].compared[].first": "the first of these rollouts, by ready_seq",
    "points[].compared[].last": "the last",
    "points[].compared[].log": "rollouts before them, to estimate from",
    **_mean("points[].compared[].estimate", "rollouts used; dr, of several steps wpdis"),
    **_mean("points[].compared[].live", "what these rollouts earned at the point"),
    "points[].compared[].refused": "why there is no estimate; null where there is one",
    "points[].alarms[].option": "an option that is no longer what it was",
    "points[].alarms[].direction": "worse or better",
    "points[].alarms[].seen": "its decisions since its chart began",
    "points[].alarms[].since": "how many of them ago the change seems to have begun",
    "points[].alarms[].shift": "estimated change, in standard deviations",
    "points[].alarms[].ready_seq": "the newest rollout that was known then",
}

REPORT: Keys = {
    "at": "epoch seconds of this report",
    "store": "the store's file",
    "rollouts": "how many there are",
    "looked_at": "how many of them were looked at",
    **_answer("summary.on", "is it on:"),
    **_answer("summary.healthy", "is it healthy:"),
    **_answer("summary.learning", "is it learning:"),
    "summary.next[]": "what to do next, the most urgent first",
    "status**": "what `tau-live status --json` prints",
    **_STRETCH,
    "marks[].at": "epoch seconds at which something changed who decides",
    "marks[].place": "about where that is in the order of rollouts; null without any",
    "marks[].kind": "promotion, rollback, exposure, stop, hold or reset",
    "marks[].point": "the decision point; null for the gate, which is of all",
    "marks[].who": "the process or the operator",
    "marks[].said": "what happened, and why",
    **_POINT,
    "points_left_out": "how many less busy points there are",
    "drops.*": "what was dropped or refused, by counter",
    "untaught.*": "rollouts and decisions that taught nothing, by reason",
}
