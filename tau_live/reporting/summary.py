"""The four answers on one screen: is it on, is it healthy, is it learning, what to do next."""

from collections.abc import Iterator, Mapping, Sequence

from tau_live.reporting.facts import Answer, Point, Stretch, Summary

GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"
DROPPED = ("dropped_", "events_refused_", "events_malformed", "decisions_not_recorded")
REFUSED = ("rewards_refused", "rewards_without", "refused_", "options_", "masks_", "host_objects_")
HELD = ("_while_held",)


def summary_of(
    status: Mapping[str, object], stretches: Sequence[Stretch], points: Sequence[Point]
) -> Summary:
    """Return what an operator asks first.

    Args:
        status: What ``status_of`` says.
        stretches: All rollouts, in the order in which they began.
        points: The decision points.
    """
    return Summary(
        on=_on(status),
        healthy=_healthy(status),
        learning=_learning(status, points),
        next=list(_next(status, stretches)) or ["Nothing: it goes on by itself."],
    )


def drops_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of what was dropped or refused, the largest first."""
    found = {
        name: count
        for name, count in counters.items()
        if count and (name.startswith(DROPPED + REFUSED) or name.endswith(HELD))
    }
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _on(status: Mapping[str, object]) -> Answer:
    processes = _sequence(status["processes"])
    attached = f"{len(processes)} attached process{'' if len(processes) == 1 else 'es'}"
    if _mapping(status["gate"])["state"] != "pass":
        return Answer(state=BAD, answer="held", said="The gate holds: the host does all by itself.")
    if processes:
        return Answer(state=GOOD, answer="on", said=f"{attached}.")
    if status["enabled"]:
        said = "TAU_LIVE_RL is on in this shell, but no process is attached now."
        return Answer(state=GOOD, answer="on, idle", said=said)
    said = "No process is attached, and TAU_LIVE_RL is off in the shell that made this report."
    return Answer(state=DOUBTFUL, answer="off here", said=said)


def _healthy(status: Mapping[str, object]) -> Answer:
    gate = _mapping(status["gate"])
    if gate["state"] != "pass":
        said = f"The gate holds because of {gate['reason']}: {gate['detail'] or 'no detail'}."
        return Answer(state=BAD, answer="no", said=said)
    streaks = {name: count for name, count in _counts(gate["streaks"]).items() if count}
    drops = sum(drops_of(_counts(status["counters"])).values())
    silent = _mapping(status["silent"])
    doubts = [f"{count} {name} failures in a row." for name, count in streaks.items()]
    if silent:
        doubts.append(f"Cannot write: {_listed(sorted(silent))}.")
    if drops:
        doubts.append(f"{drops:,} events, decisions or rewards were dropped or refused so far.")
    if _over(status):
        doubts.append(f"Beyond the limits of retention: {_listed(_over(status))}.")
    if doubts:
        return Answer(state=DOUBTFUL, answer="look closer", said=" ".join(doubts))
    return Answer(state=GOOD, answer="yes", said="The gate passes, and nothing was dropped.")


def _learning(status: Mapping[str, object], points: Sequence[Point]) -> Answer:
    versions = [
        _int(_mapping(one).get("version")) for one in _mapping(status["in_service"]).values()
    ]
    if not any(versions):
        report = _mapping(status["last_report"])
        skipped = f" The last update was skipped: {report['skipped_reason']}." if report else ""
        said = f"No version has been made yet.{skipped}"
        return Answer(state=DOUBTFUL, answer="not yet", said=said)
    lifts = [said for point in points for said in _lift(point.point, status)]
    newest = f"Newest version in service: {max(versions)}."
    reward = _mapping(status["mean_reward"])
    first, last = _float(reward["first"]), _float(reward["last"])
    if first is not None and last is not None:
        means = f"{first:.3g}, of the last {last:.3g}"
        newest += f" Mean reward of the first {reward['of']} rollouts {means}."
    state, answer = _verdict(points, status)
    return Answer(state=state, answer=answer, said=" ".join([newest, *lifts[:3]]))


def _verdict(points: Sequence[Point], status: Mapping[str, object]) -> tuple[str, str]:
    trials = [_mapping(_mapping(status["trials"]).get(one.point)) for one in points]
    lifts = [_mapping(one.get("lift")) for one in trials]
    uppers, lowers = ([_float(one.get(end)) for one in lifts] for end in ("upper", "lower"))
    if any(upper is not None and upper < 0.0 for upper in uppers):
        return BAD, "yes, but worse"
    if any(lower is not None and lower > 0.0 for lower in lowers):
        return GOOD, "yes, and better"
    return GOOD, "yes"


def _lift(point: str, status: Mapping[str, object]) -> Iterator[str]:
    trial = _mapping(_mapping(status["trials"]).get(point))
    lift = _mapping(trial.get("lift"))
    estimate, lower, upper = (_float(lift.get(name)) for name in ("estimate", "lower", "upper"))
    if estimate is None:
        return
    over = "the host's own choice" if trial["control"] is None else f"version {trial['control']}"
    proven = (
        f"between {lower:+.3g} and {upper:+.3g} at all times"
        if lower is not None and upper is not None
        else "a mere difference of means"
    )
    yield f"At {point} the lift over {over} is {estimate:+.3g} ({proven})."


def _next(status: Mapping[str, object], stretches: Sequence[Stretch]) -> Iterator[str]:
    gate, rollouts = _mapping(status["gate"]), _counts(status["rollouts"])
    counters = _counts(status["counters"])
    if gate["state"] != "pass":
        yield (
            "Read why it holds (`tau-live gate log`), mend that, then "
            '`tau-live gate reset --reason "..."`.'
        )
    if status["silent"]:
        yield "Read the log of the processes that cannot write; `tau-live doctor` may know why."
    if not any(rollouts.values()):
        yield "Run your agent with `TAU_LIVE_RL=1`, or try `tau-live demo`."
        return
    if not status["enabled"] and not _sequence(status["processes"]):
        yield "Set `TAU_LIVE_RL=1` where your agent runs."
    yield from _about_rewards(stretches)
    if any(name.startswith("dropped_") for name in counters):
        yield "Events were dropped: see `TAU_LIVE_RL_QUEUE_LIMIT`, and the counters below."
    yield from _about_trials(status)
    if _over(status):
        yield "`tau-live gc` forgets what is beyond the limits; it says what keeps the rest."


def _about_rewards(stretches: Sequence[Stretch]) -> Iterator[str]:
    rewarded = sum(one.reward.count for one in stretches)
    ended = sum(one.succeeded + one.failed + one.cancelled for one in stretches)
    if ended and not rewarded:
        yield "No rollout has a reward: give one with `run.reward(...)` or `tau-live reward`."
    elif ended >= 64 and rewarded < 0.5 * ended:
        yield "Fewer than half of the rollouts have a reward: look at whoever gives them."


def _about_trials(status: Mapping[str, object]) -> Iterator[str]:
    for point, one in _mapping(status["trials"]).items():
        trial = _mapping(one)
        if trial["stopped"] is not None:
            yield f"The learner of {point} is stopped: `tau-live policy exposure` starts it again."
        elif isinstance(trial["why"], str) and "range" in trial["why"]:
            yield f"Declare the range of the reward, so that the lift at {point} can be proven."
    for point, one in _mapping(status["monitors"]).items():
        worse = [
            str(alarm["option"])
            for alarm in map(_mapping, _sequence(_mapping(one)["drift"]))
            if alarm.get("direction") == "worse"
        ]
        if _mapping(one)["reward_spread"] == 0.0:
            yield f"The newest rewards at {point} are all the same, which teaches nothing."
        if worse:
            yield f"Look at what became worse at {point}: {_listed(sorted(set(worse)))}."


def _over(status: Mapping[str, object]) -> list[str]:
    return [str(one) for one in _sequence(_mapping(status["retention"])["over"])]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _counts(value: object) -> dict[str, int]:
    return {name: _int(count) for name, count in _mapping(value).items()}


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
