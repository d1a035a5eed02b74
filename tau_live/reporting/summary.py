"""The summary: is it on, is it healthy, is it learning, what to do next."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from tau_live.alerts.growing import lately
from tau_live.handed.reading import counts, integer, mapping, real, sequence
from tau_live.operators.kill_switch import ended_by
from tau_live.reasons import QUEUE_FULL, RERUNS, WHILE_HELD, drops_of, lost_events
from tau_live.reporting.declared import deadlines, outside_range, range_advice
from tau_live.reporting.facts import Answer, Stretch, Summary
from tau_live.reporting.means import thirds_of
from tau_live.rl.verdict import Verdict
from tau_live.settings import Settings
from tau_live.trials.facts import NO_CONTROL, NO_RANGE

GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"
MANY_RERUNS = 8
"""So many are no accident, such as a job that a queue delivered twice."""

HELD_UP = 32
"""How many rollouts may wait behind another before the summary mentions it."""

REDACTS = frozenset({"redact", "redact_text"})
REWARDS_HELD_BACK = "rewards_not_taken_while_held"
HELD_BACK = "runs_not_recorded_while_held"


def summary_of(
    status: Mapping[str, object],
    stretches: Sequence[Stretch],
    points: Sequence[str],
    *,
    settings: Settings,
) -> Summary:
    """Return the answers that an operator needs first.

    Args:
        status: What ``status_of`` says.
        stretches: All rollouts, in the order in which they began.
        points: The decision points, the busiest first.
        settings: How many rollouts make an update.
    """
    return Summary(
        on=_on(status),
        healthy=_healthy(status, settings),
        learning=_learning(status, points, stretches, due=settings.update_interval),
        next=[*dict.fromkeys(_next(status, stretches, settings))] or ["Nothing to do."],
    )


def points_of(status: Mapping[str, object]) -> list[str]:
    """Return the decision points that status knows, the one with most rollouts first."""
    trials = mapping(status["trials"])
    seen = {
        point: sum(counts(mapping(trials.get(point)).get("rollouts")).values())
        for point in {*trials, *mapping(status["in_service"]), *mapping(status["monitors"])}
    }
    return sorted(seen, key=lambda point: (-seen[point], point))


def drops_lately(status: Mapping[str, object]) -> dict[str, int]:
    """Return the counters of what was dropped or refused and that grew lately, largest first."""
    grew, now = mapping(status["counters_grew"]), real(status["at"]) or 0.0
    return {
        name: count
        for name, count in drops_of(counts(status["counters"])).items()
        if lately(real(grew.get(name)), now=now)
    }


def _on(status: Mapping[str, object]) -> Answer:
    return _stopped(status) or _attached(status)


def _stopped(status: Mapping[str, object]) -> Answer | None:
    """Return what keeps it from acting; ``None`` if nothing does."""
    killed, paused = mapping(status["kill_switch"]), mapping(status["paused"])
    if killed:
        said = f"The kill switch is on: {killed['reason']}{_by(killed)}."
        return Answer(state=BAD, answer="killed", said=said)
    if mapping(status["gate"])["state"] != "pass":
        return Answer(
            state=BAD, answer="held", said="The gate holds: the host makes its own choices."
        )
    if held := held_in_memory(status):
        return Answer(
            state=BAD, answer="held", said=f"{held}: the host makes its own choices there."
        )
    if paused:
        each = (f"{part}: {mapping(one)['reason']}{_by(one)}" for part, one in paused.items())
        return Answer(state=DOUBTFUL, answer="paused", said=f"Paused: {'; '.join(each)}.")
    return None


def _attached(status: Mapping[str, object]) -> Answer:
    processes, silent = sequence(status["processes"]), mapping(status["silent"])
    if processes:
        return Answer(state=GOOD, answer="on", said=f"{_processes(len(processes), 'attached ')}.")
    if silent:
        said = f"{_processes(len(silent), 'attached ')} cannot write to the store."
        return Answer(state=BAD, answer="cut off", said=said)
    if status["enabled"]:
        said = "TAU_LIVE_RL is on in this shell, but no process is attached."
        return Answer(state=DOUBTFUL, answer="on, idle", said=said)
    said = "No process is attached, and TAU_LIVE_RL is off in this shell."
    return Answer(state=DOUBTFUL, answer="off here", said=said)


def _processes(count: int, which: str = "") -> str:
    return f"{count} {which}process{'' if count == 1 else 'es'}"


def held_in_memory(status: Mapping[str, object]) -> str:
    """Return how many processes hold although the store does not say so, why and since when."""
    holds = [mapping(one) for one in sequence(status["held_in_memory"])]
    if not holds:
        return ""
    verb = "holds" if len(holds) == 1 else "hold"
    why = _listed(sorted({str(one["reason"]) for one in holds}))
    since = _utc(min(real(one["since"]) or 0.0 for one in holds))
    return f"{_processes(len(holds))} {verb} in memory because of {why}, since {since}"


def _by(said: object) -> str:
    who = mapping(said).get("who")
    return f" ({who})" if who else ""


def _healthy(status: Mapping[str, object], settings: Settings) -> Answer:
    gate = mapping(status["gate"])
    if gate["state"] != "pass":
        said = f"The gate holds because of {gate['reason']}: {gate['detail'] or 'no detail'}."
        return Answer(state=BAD, answer="no", said=said)
    if held := held_in_memory(status):
        return Answer(state=BAD, answer="no", said=f"{held}, and cannot store anything.")
    if faults := faults_of(status):
        said = " ".join(f"{one}." for one in faults.values())
        return Answer(state=BAD, answer="no", said=said)
    streaks = {name: count for name, count in counts(gate["streaks"]).items() if count}
    recent = drops_lately(status)
    drops = _unwanted(recent)
    silent = mapping(status["silent"])
    doubts = [f"{count} {name} failures in a row." for name, count in streaks.items()]
    if silent:
        doubts.append(f"Cannot write: {_listed(sorted(silent))}.")
    doubts += [*_missing(status), *fallen(status), *disabled_plugins(status)]
    doubts += [f"{said}." for said in doubts_of(status, settings).values()]
    if drops:
        what = f"{sum(drops.values()):,} events, decisions or rewards"
        doubts.append(f"{what} were dropped or refused so far, {_last(drops, status)}.")
    if _over(status):
        doubts.append(f"Beyond the limits of retention: {_listed(_over(status))}.")
    if doubts:
        return Answer(state=DOUBTFUL, answer="look closer", said=" ".join(doubts))
    but = " except what a hold keeps out" if recent else ""
    long_ago = _unwanted(drops_of(counts(status["counters"])))
    when = " in the last day" if long_ago else ""
    said = f"The gate passes; nothing was dropped{when}{but}."
    return Answer(state=GOOD, answer="yes", said=said)


def doubts_of(status: Mapping[str, object], settings: Settings) -> dict[str, str]:
    """Return what else to doubt of its health, each by a word for what it concerns."""
    found = {
        "range": outside_range(status, settings) or _left_out(status),
        "rewards": _kept_out(status),
        "keys": _repeated(status),
    }
    return {about: said for about, said in found.items() if said}


def _kept_out(status: Mapping[str, object]) -> str:
    """Return how many rewards a hold has kept out lately."""
    lost = drops_lately(status).get(REWARDS_HELD_BACK, 0)
    return f"{lost:,} rewards came during a hold and were not recorded" if lost else ""


def _repeated(status: Mapping[str, object]) -> str:
    """Return how many runs had the key of one that had succeeded, if some had lately."""
    grew, runs = mapping(status["counters_grew"]), counts(status["counters"]).get(RERUNS, 0)
    if runs < MANY_RERUNS or not lately(real(grew.get(RERUNS)), now=real(status["at"]) or 0.0):
        return ""
    return f"{runs:,} runs had the key of a run that had succeeded, so nothing is learned from them"


def _left_out(status: Mapping[str, object]) -> str:
    """Return where rewards outside their own range keep a difference from being claimed."""
    trials = {point: mapping(one) for point, one in mapping(status["trials"]).items()}
    said = (
        f"At {point} {one['why']}"
        for point, one in trials.items()
        if one["verdict"] == Verdict.OUT_OF_RANGE
    )
    return "; ".join(said)


def faults_of(status: Mapping[str, object]) -> dict[str, str]:
    """Return what is wrong for certain, each by a word for what it concerns."""
    trials = {point: mapping(one) for point, one in mapping(status["trials"]).items()}
    stopped = [
        f"at {point}: {one['stopped']}"
        for point, one in trials.items()
        if one["stopped"] is not None
    ]
    fails = status["store_fails"]
    found = {
        "store fails": f"The store cannot be written: {fails}" if fails else "",
        "stopped": f"The learner is stopped {'; '.join(stopped)}" if stopped else "",
    }
    return {about: said for about, said in found.items() if said}


def _missing(status: Mapping[str, object]) -> Iterator[str]:
    """Yield that too many rewards do not come, while that lasts."""
    missing = mapping(status["rewards_missing"])
    if missing:
        at = real(missing["since"])
        since = "" if at is None else f" since {_utc(at)}"
        of = f"{integer(missing['missing']):,} of {integer(missing['settled']):,}"
        yield f"Rewards are missing{since}: {of}, the newest that were due, never came."


def fallen(status: Mapping[str, object]) -> Iterator[str]:
    """Yield where the mean reward fell, while that lasts."""
    for point, one in mapping(status["reward_fell"]).items():
        was, now = (real(mapping(one)[name]) or 0.0 for name in ("was", "fell_to"))
        yield f"The mean reward at {point} fell from {was:.3g} to {now:.3g}."


def disabled_plugins(status: Mapping[str, object]) -> Iterator[str]:
    """Yield which plugins are not called any more, and what follows from it."""
    found = [mapping(one) for one in sequence(status["plugins_disabled"])]
    for plugin in sorted({str(one["plugin"]) for one in found}):
        same = [one for one in found if one["plugin"] == plugin]
        blind = any(str(hook) in REDACTS for one in same for hook in sequence(one["hooks"]))
        then = ": no text is kept, and the host makes its own choices" if blind else ""
        where = f"{_processes(len(same))} ({same[0]['problem']})"
        yield f"Plugin {plugin} is disabled in {where}{then}."


def _last(drops: Mapping[str, int], status: Mapping[str, object]) -> str:
    """Return when the last of them was, as far as known."""
    grew = mapping(status["counters_grew"])
    times = [real(grew.get(name)) for name in drops]
    known = [at for at in times if at is not None]
    if len(known) < len(times):
        return "the last since the previous check"
    return f"the last at {_utc(max(known))}"


def _utc(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return str(at)


def _unwanted(drops: Mapping[str, int]) -> dict[str, int]:
    """Return the unwanted drops; a hold, a pause or the kill switch causes wanted ones."""
    wanted = ("decisions_not_recorded",) if drops.get(HELD_BACK) else ()
    return {
        name: count
        for name, count in drops.items()
        if not name.endswith(WHILE_HELD) and name not in wanted
    }


def _waits_for(status: Mapping[str, object], due: int) -> str:
    """Return how far it is to the first update, and when the last reward came."""
    ready, at = counts(status["ready_to_learn"]), real(status["last_reward_at"])
    each = [f"{count:,} of {due:,} at {point}" for point, count in ready.items() if count < due]
    waits = f" An update waits for rewarded rollouts: {', '.join(each)}." if each else ""
    waiting = integer(status["waiting_for_reward"])
    more = f" {waiting:,} rollouts wait for a reward." if waiting else ""
    return waits + more + (f" The last reward came at {_utc(at)}." if at is not None else "")


def _learning(
    status: Mapping[str, object],
    points: Sequence[str],
    stretches: Sequence[Stretch],
    *,
    due: int,
) -> Answer:
    versions = [
        integer(mapping(one).get("version")) for one in mapping(status["in_service"]).values()
    ]
    if versions and not any(versions):
        said = "Every decision point was rolled back to the untrained policy."
        return Answer(state=DOUBTFUL, answer="rolled back", said=said)
    if not versions:
        report = mapping(status["last_report"])
        skipped = f" The last update was skipped: {report['skipped_reason']}." if report else ""
        said = f"No version yet.{skipped}{_waits_for(status, due)}"
        return Answer(state=DOUBTFUL, answer="not yet", said=said)
    told: dict[str, list[str]] = {}
    for point in points:
        for said in _difference(point, status):
            told.setdefault(said, []).append(point)
    differences = [f"At {one_of(at)} {said}" for said, at in told.items()]
    newest = f"Version in service: {max(versions)}."
    if thirds := thirds_of([one.reward for one in stretches]):
        first, last = (f"{one.mean:.3g}" for one in thirds)
        newest += f" Mean reward of the first third of rollouts {first}, of the last {last}."
    state, answer = _verdict(points, status)
    rests = _rests(status)
    if rests:
        state, answer = DOUBTFUL, f"{answer}, but {rests}"
    return Answer(state=state, answer=answer, said=" ".join([newest, *differences[:3]]))


def one_of(points: Sequence[str]) -> str:
    """Return the points that a difference is said of; the same for several is that of the run."""
    named = ", ".join(points)
    return named if len(points) == 1 else f"{named} (one difference, of the whole run)"


def _rests(status: Mapping[str, object]) -> str:
    """Return what keeps it from learning now; empty if nothing does."""
    if status["kill_switch"]:
        return "not while the kill switch is on"
    if mapping(status["gate"])["state"] != "pass":
        return "not while the gate holds"
    if status["held_in_memory"]:
        return "not while a process holds in memory"
    return "not while it is paused" if "learning" in mapping(status["paused"]) else ""


def _verdict(points: Sequence[str], status: Mapping[str, object]) -> tuple[str, str]:
    bounds = [_bounds(mapping(mapping(status["trials"]).get(point))) for point in points]
    if any(upper is not None and upper < 0.0 for _, upper in bounds):
        return BAD, "yes, but worse"
    if any(lower is not None and lower > 0.0 for lower, _ in bounds):
        return GOOD, "yes, and better"
    return GOOD, "yes"


def _bounds(trial: Mapping[str, object]) -> tuple[float | None, float | None]:
    """Return between what the difference of a trial is."""
    difference = mapping(trial.get("difference"))
    return real(difference.get("lower")), real(difference.get("upper"))


def _difference(point: str, status: Mapping[str, object]) -> Iterator[str]:
    trial = mapping(mapping(status["trials"]).get(point))
    difference = mapping(trial.get("difference"))
    estimate, lower, upper = (real(difference.get(name)) for name in ("estimate", "lower", "upper"))
    if estimate is None:
        return
    over = "the host's own choice" if trial["control"] is None else f"version {trial['control']}"
    proven = (
        f"between {lower:+.3g} and {upper:+.3g} however often you look"
        if lower is not None and upper is not None
        else "unproven difference of means"
    )
    yield f"the difference over {over} is {estimate:+.3g} ({proven})."


def _next(
    status: Mapping[str, object], stretches: Sequence[Stretch], settings: Settings
) -> Iterator[str]:
    rollouts, drops = counts(status["rollouts"]), drops_lately(status)
    yield from _about_stops(status)
    if not any(rollouts.values()):
        yield "Run your agent with `TAU_LIVE_RL=1`, or try `TAU_LIVE_RL=1 tau-live demo`."
        return
    yield from _about_alerts(status)
    if repeated := _repeated(status):
        yield f"{repeated}: give each run a `key` of its own, or none."
    yield from _about_rewards(status, stretches)
    if rollouts.get("completed") and any(one.reward.count for one in stretches):
        yield from _about_decisions(status)
    yield from _about_learner(status, due=2 * settings.update_interval)
    yield from _about_drops(drops)
    yield from _about_trials(status, settings)
    if _over(status):
        yield "`tau-live gc` deletes what is beyond the limits and reports why the others are kept."
    if not status["enabled"] and not sequence(status["processes"]):
        yield (  # last: rollouts are there, so it was set where they were made
            "Set `TAU_LIVE_RL=1` where your agent runs: "
            "`TAU_LIVE_RL=1 tau-live run -- python my_agent.py`."
        )


def _about_drops(drops: Mapping[str, int]) -> Iterator[str]:
    lost = lost_events(drops)
    if lost:
        keeps = ", and a larger `TAU_LIVE_RL_QUEUE_LIMIT` keeps more" if QUEUE_FULL in lost else ""
        yield f"Events were dropped: `tau-live status --all` counts them by cause{keeps}."
    if late := drops.get(REWARDS_HELD_BACK):
        yield (
            f"Send the {late:,} rewards again that came during a hold: `tau_live.reward` returned "
            "False for them; the same reward twice counts once."
        )
    if refused := ({} if lost_events(drops) else _unwanted(drops)):
        yield (
            f"Look at what was refused, mainly {next(iter(refused))}: `tau-live doctor` has the "
            "details, docs/howto/runbook.md a fix for each counter."
        )


def _about_stops(status: Mapping[str, object]) -> Iterator[str]:
    if status["kill_switch"]:
        ended = ended_by(str(mapping(status["kill_switch"])["reason"]))
        yield f"Fix the cause, then turn the kill switch off: {ended}."
    if mapping(status["gate"])["state"] != "pass":
        yield (
            "Find out why it holds (`tau-live gate log`), fix the cause, then "
            '`tau-live gate reset --reason "..."`.'
        )
    if status["silent"] or status["held_in_memory"] or status["store_fails"]:
        yield "Find out why the store cannot be written: `tau-live doctor`."
    parts = " ".join(mapping(status["paused"]))
    if parts:
        yield f'Resume it when the reason is gone: `tau-live resume {parts} --reason "..."`.'


def _about_alerts(status: Mapping[str, object]) -> Iterator[str]:
    if status["plugins_disabled"]:
        yield "Fix the disabled plugin and restart the process: `tau-live doctor`."
    for point in mapping(status["reward_fell"]):
        yield (
            f"Find out why the reward at {point} fell: `tau-live rollouts --limit 20`, and "
            "`tau-live report --html report.html` shows since when."
        )


def _about_rewards(status: Mapping[str, object], stretches: Sequence[Stretch]) -> Iterator[str]:
    rewarded = sum(one.reward.count for one in stretches)
    ended = sum(one.succeeded + one.failed + one.cancelled for one in stretches)
    if ended and not rewarded:
        yield (
            "No rollout has a reward: give one with `run.reward(...)`, or "
            "`tau-live reward 1 --run ID`."
        )
    elif mapping(status["rewards_missing"]):
        yield (
            "Find out why rewards are missing: `tau-live doctor`, and rewards-missing in "
            "docs/howto/runbook.md."
        )
    elif ended >= 64 and rewarded < 0.5 * ended:
        yield (
            "Fewer than half of the rollouts have a reward: check the code that sends them; "
            "`tau-live doctor` lists the sources."
        )


def _about_decisions(status: Mapping[str, object]) -> Iterator[str]:
    signs = ("ready_to_learn", "waiting_for_reward", "not_learned_from", "agreement")
    if not points_of(status) and not any(status[sign] for sign in signs):
        yield (
            "Runs are recorded, but none has a decision, so there is nothing to learn: "
            "see what could be decided with `tau-live init --dry-run`."
        )


def _about_learner(status: Mapping[str, object], *, due: int) -> Iterator[str]:
    ready = max(counts(status["ready_to_learn"]).values(), default=0)
    if ready >= due and not sequence(status["processes"]) and not _rests(status):
        yield (
            f"{ready:,} rollouts wait to be learned from, and no process runs "
            "(a short program should call `tau_live.flush(timeout_s=60)` before it ends): "
            "`TAU_LIVE_RL=1 tau-live learn --once`."
        )


def _about_trials(status: Mapping[str, object], settings: Settings) -> Iterator[str]:
    yield from _about_equal_rewards(status)
    if outside := outside_range(status, settings):
        yield (
            f"{outside}. Nothing is claimed from those. If they are right: "
            f"{range_advice(status, settings)}; if not, find their source."
        )
    for point, one in mapping(status["trials"]).items():
        yield from _about_trial(point, mapping(one), range_advice(status, settings))
    yield from _about_waiting(status, deadlines(settings))
    yield from _about_monitors(status)


def _about_trial(point: str, trial: Mapping[str, object], how: str) -> Iterator[str]:
    """Yield what to do about who decides at a point.

    Args:
        point: The decision point.
        trial: What is told of it.
        how: How to declare the range of rewards.
    """
    _, upper = _bounds(trial)
    change = f'{shlex.quote(point)} --reason "..."'
    some = f"`tau-live policy exposure {change.replace(' --reason', ' 5% --reason')}`"
    if trial["stopped"] is not None:
        yield f"The learner of {point} is stopped; to start it again: {some}."
    elif upper is not None and upper < 0.0:
        yield (
            f"The learner of {point} is worse than the control: "
            f"`tau-live policy rollback {change}`."
        )
    elif trial["why"] == NO_RANGE:
        yield (
            "Declare the lowest and highest reward possible, so that the difference can be "
            f"proven; for what came so far: {how}."
        )
    elif trial["verdict"] == Verdict.OUT_OF_RANGE:
        yield (
            f"Nothing is claimed at {point} while rewards are outside their declared range: fix "
            "their unit, or the range; `tau-live doctor` counts them."
        )
    elif trial["why"] == NO_CONTROL and trial["champion"] is None:
        yield (
            "Reserve a tenth of the rollouts as a control to compare with "
            "(each choice needs its `default`): `export TAU_LIVE_RL_CONTROL_SHARE=0.1`."
        )
    if trial["exposure"] == 0.0 and trial["stopped"] is None:
        climbs = "once the range is declared" if trial["why"] == NO_RANGE else "on evidence"
        yield (
            f"The learner of {point} is in shadow: it decides nothing yet, and climbs "
            f"{climbs}. To let it decide some rollouts now: {some}."
        )


def _about_waiting(status: Mapping[str, object], setting: str) -> Iterator[str]:
    """Yield where a comparison stands still because a reward is awaited.

    Args:
        status: What ``status_of`` says.
        setting: What says how long that is.
    """
    now = real(status["at"]) or 0.0
    for point, one in mapping(status["trials"]).items():
        trial = mapping(one)
        held_up, uncounted = mapping(trial["held_up"]), integer(trial["uncounted"])
        until, counted = real(held_up.get("until")), sum(counts(trial["rollouts"]).values())
        if until is not None and until > now and uncounted > max(HELD_UP, counted // 10):
            yield (
                f"The comparison at {point} has counted {counted:,} of {counted + uncounted:,} "
                f"rollouts: it is waiting for the reward of {held_up['rollout_id']} until "
                f"{_utc(until)} at the latest. Send the missing rewards, or shorten {setting}."
            )


def _about_equal_rewards(status: Mapping[str, object]) -> Iterator[str]:
    for point, one in mapping(status["monitors"]).items():
        if mapping(one)["reward_spread"] == 0.0:
            yield (
                f"The newest rewards at {point} are all the same, so there is nothing to learn: "
                "check one with `tau-live rollouts --limit 1`."
            )


def _about_monitors(status: Mapping[str, object]) -> Iterator[str]:
    for point, one in mapping(status["monitors"]).items():
        worse = [
            str(alarm["option"])
            for alarm in map(mapping, sequence(mapping(one)["drift"]))
            if alarm.get("direction") == "worse"
        ]
        if outliers := integer(mapping(one)["outliers"]):
            low, high = (mapping(one)[name] for name in ("lowest_reward", "highest_reward"))
            yield (
                f"{outliers} of the newest rewards at {point} are far beyond the others and count "
                f"as {low:.3g} or {high:.3g}. If they are real, declare the range: "
                "`export TAU_LIVE_RL_REWARD_RANGE=low,high`; if not, find their source."
            )
        if worse:
            yield (
                f"Look at the options that became worse at {point}, {_listed(sorted(set(worse)))}: "
                "`tau-live report --html report.html`."
            )


def _over(status: Mapping[str, object]) -> list[str]:
    return [str(one) for one in sequence(mapping(status["retention"])["over"])]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
