"""What the JSON of ``tau-live report`` holds."""

from tau_live.cli.json_keys.rows import Keys


def _mean(prefix: str, of: str) -> dict[str, str]:
    return {
        f"{prefix}.count": f"number of values: {of}",
        f"{prefix}.mean": "mean; null if there are none",
        f"{prefix}.lower": "lower end of the 95 percent interval; null if fewer than 5, or equal",
        f"{prefix}.upper": "likewise",
    }


def _spread(prefix: str, of: str) -> dict[str, str]:
    return {
        f"{prefix}.count": f"number of values: {of}",
        f"{prefix}.median": "median; null if there are none",
        f"{prefix}.high": "95th percentile; null if there are none",
    }


def _answer(prefix: str, question: str) -> dict[str, str]:
    return {
        f"{prefix}.state": f"{question} good, doubtful or bad",
        f"{prefix}.answer": "the answer in a few words",
        f"{prefix}.said": "in sentences",
    }


_STRETCH: Keys = {
    "stretches[].first": "position of the first rollout of the stretch, by start",
    "stretches[].last": "position of the last",
    "stretches[].began_at": "epoch seconds at which the first started; null if none did",
    "stretches[].looked_at": "how many of them were examined: at most 512, evenly spread",
    "stretches[].succeeded": "of these, succeeded",
    "stretches[].failed": "of these, failed",
    "stretches[].cancelled": "of these, cancelled",
    "stretches[].open": "of these, not ended",
    "stretches[].waiting": "of these, ended and without a reward so far",
    "stretches[].left_out": "of these, not learned from because of their rewards",
    **_mean("stretches[].reward", "rollouts with a reward"),
    **_spread("stretches[].duration_s", "duration in seconds of those that ended"),
    **_spread("stretches[].cost_usd", "US dollars of those whose cost is known"),
    **_spread("stretches[].latency_us", "microseconds of a decision in the host's thread"),
}

_POINT: Keys = {
    "points[].point": "the decision point; the busiest first, at most 6",
    "points[].decisions": "its decisions that were examined",
    "points[].options[]": "applied options, most frequent first",
    "points[].stretches[].first": "the stretch, as above",
    "points[].stretches[].last": "likewise",
    **_mean("points[].stretches[].exposure", "assigned rollouts; the mean is the learner's share"),
    "points[].stretches[].share": "mean probability with which the learner would decide",
    **_mean("points[].stretches[].learner", "rewards of rollouts that the learner decided"),
    **_mean("points[].stretches[].control", "rewards of rollouts that the control decided"),
    "points[].stretches[].options.*": "how often each option was applied",
    "points[].contexts[].key": "a context key of the policy; the most informative first",
    "points[].contexts[].information": "how much of the choice it explains, 0 to 1",
    "points[].contexts[].values[].value": "a value, or a range of numbers",
    "points[].contexts[].values[].decisions": "how many decisions had it",
    "points[].contexts[].values[].options.*": "how often each option was applied there",
    "points[].lived": "number of newest rewarded rollouts examined, at most 1024",
    "points[].calibration[].expected": "mean value estimate of decisions with similar estimates",
    **_mean("points[].calibration[].came", "observed return of these decisions"),
    **_mean("points[].error", "observed minus estimated return of all of them"),
    "points[].errors[].first": "the same over time: the first rollout, by ready_seq",
    "points[].errors[].last": "the last",
    **_mean("points[].errors[].error", "observed minus estimated return"),
    "points[].compared[].version": "the version that decided most of a range of rollouts",
    "points[].compared[].first": "the first of these rollouts, by ready_seq",
    "points[].compared[].last": "the last",
    "points[].compared[].log": "rollouts before them, to estimate from",
    **_mean("points[].compared[].estimate", "rollouts used; dr, of several steps wpdis"),
    **_mean("points[].compared[].live", "mean reward of these rollouts at the point"),
    "points[].compared[].refused": "why there is no estimate; null where there is one",
    "points[].alarms[].option": "an option whose reward changed",
    "points[].alarms[].direction": "worse or better",
    "points[].alarms[].seen": "its decisions since its chart started",
    "points[].alarms[].since": "estimated start of the change, in decisions before now",
    "points[].alarms[].shift": "estimated change, in standard deviations",
    "points[].alarms[].ready_seq": "the newest rollout at the time of the alarm",
}

REPORT: Keys = {
    "at": "epoch seconds of this report",
    "store": "the store's file",
    "rollouts": "how many there are",
    "looked_at": "how many of them were examined",
    **_answer("summary.on", "is it on:"),
    **_answer("summary.healthy", "is it healthy:"),
    **_answer("summary.learning", "is it learning:"),
    "summary.next[]": "next steps, most urgent first",
    "status**": "the output of `tau-live status --json`",
    **_STRETCH,
    "marks[].at": "epoch seconds of a change of who decides",
    "marks[].place": "its approximate position among the rollouts; null without any",
    "marks[].kind": "promotion, rollback, exposure, stop, hold or reset",
    "marks[].point": "the decision point; null for the gate",
    "marks[].who": "the process or the operator",
    "marks[].said": "what happened, and why",
    **_POINT,
    "points_left_out": "number of less busy points left out",
    "drops.*": "what was dropped or refused, by counter",
    "untaught.*": "rollouts and decisions not learned from, by reason",
}
