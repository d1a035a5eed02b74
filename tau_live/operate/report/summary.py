"""The summary: is it on, is it healthy, is it learning, what to do next.

The same figures as in a report, of fewer rollouts, so that a screen can refresh once a second at
little cost.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

from tau_live.core.reasons import QUEUE_FULL, RERUNS, WHILE_HELD, drops_of, lost_events
from tau_live.core.sanitize import counts, integer, mapping, real, sequence
from tau_live.core.settings import Settings
from tau_live.learn.promotion.rules import NO_CONTROL, NO_RANGE, OUTSIDE_SHARE
from tau_live.operate.alert_rules import is_recent
from tau_live.operate.report.choices import thirds_of
from tau_live.operate.report.facts import Answer, Mark, Stretch, Summary
from tau_live.operate.report.stretches import cuts_of, marks_of, stretch_of
from tau_live.operate.status import status_of
from tau_live.operate.stops import ended_by
from tau_live.record.rewards import reward_range
from tau_live.rl.verdict import Verdict
from tau_live.store.roles import Store


def span_around(lowest: float, highest: float) -> tuple[float, float]:
    """Return a range of round numbers that holds the rewards between two numbers, to propose."""
    for low, high in ((0.0, 1.0), (-1.0, 1.0)):
        if low <= lowest and highest <= high:
            return low, high
    if lowest == highest:  # one value does not tell the width of the range
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    step = 10.0 ** floor(log10(highest - lowest))
    return floor(lowest / step) * step, ceil(highest / step) * step


def range_advice(status: Mapping[str, object], settings: Settings) -> str:
    """Return how to declare the range of rewards, with a proposal that holds those seen.

    Args:
        status: The result of ``status_of``.
        settings: Which rewards are declared.
    """
    seen = mapping(status["rewards_seen"])
    names = mapping(seen.get("names"))
    each = [
        f"`range = [{_range_text(names.get(reward.name), ', ')}]` for `{reward.name}`"
        for reward in settings.rewards
        if not reward.cost and reward.range is None
    ]
    if each:
        return f"{', '.join(each)}, in [tool.tau-live.rewards]"
    return f"`export TAU_LIVE_RL_REWARD_RANGE={_range_text(seen, ',')}`"


def _range_text(seen: object, between: str) -> str:
    """Return the range to propose for the values seen, as text."""
    low, high = (real(mapping(seen).get(name)) for name in ("lowest", "highest"))
    if low is None or high is None:
        return f"low{between}high"
    return between.join(f"{end:g}" for end in span_around(low, high))


def outside_range(status: Mapping[str, object], settings: Settings) -> str:
    """Return, in words, how many of the newest rewards are outside their range; empty if few."""
    seen, span = mapping(status["rewards_seen"]), reward_range(settings)
    outside, total = integer(seen["outside"]), integer(seen["of"])
    if span is None or outside <= OUTSIDE_SHARE * total:
        return ""
    low, high = real(seen["lowest"]) or 0.0, real(seen["highest"]) or 0.0
    return (
        f"{outside:,} of the newest {total:,} rewards are outside the range from {span[0]:g} to "
        f"{span[1]:g}: they go from {low:.3g} to {high:.3g}"
    )


def deadlines(settings: Settings) -> str:
    """Return the names of the settings that bound the wait for a reward."""
    expected = [reward for reward in settings.rewards if not reward.cost]
    awaited = [reward for reward in expected if reward.primary] or expected
    own = [
        f"`deadline-s` of reward `{reward.name}`"
        for reward in awaited
        if reward.deadline_s is not None
    ]
    if len(own) < max(len(awaited), 1):
        own.append("`TAU_LIVE_RL_REWARD_DEADLINE_S`")
    return " and ".join(own)


GOOD, DOUBTFUL, BAD = "good", "doubtful", "bad"
MANY_RERUNS = 8
"""Reruns from which on they are no accident, such as a job that a queue delivered twice."""


REWARDS_HELD_BACK = "rewards_not_taken_while_held"


def summary_of(
    status: Mapping[str, object],
    stretches: Sequence[Stretch],
    points: Sequence[str],
    *,
    settings: Settings,
) -> Summary:
    """Return the answers that an operator needs first.

    Args:
        status: The result of ``status_of``.
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


def _sentences(*cases: tuple[object, str]) -> list[str]:
    """Return the sentences whose condition holds, in order."""
    return [sentence for holds, sentence in cases if holds]


def _answer(*cases: tuple[object, str, str, str]) -> Answer:
    """Return the first answer whose condition holds: its state, its words and its sentence."""
    return next(
        Answer(state=state, answer=answer, sentence=sentence)
        for holds, state, answer, sentence in cases
        if holds
    )


def _trials(status: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return {point: mapping(trial) for point, trial in mapping(status["trials"]).items()}


def _is_held(status: Mapping[str, object]) -> bool:
    return mapping(status["gate"])["state"] != "pass"


def points_of(status: Mapping[str, object]) -> list[str]:
    """Return the decision points of a status, the one with most rollouts first."""
    trials = mapping(status["trials"])
    seen = {
        point: sum(counts(mapping(trials.get(point)).get("rollouts")).values())
        for point in {*trials, *mapping(status["in_service"]), *mapping(status["monitors"])}
    }
    return sorted(seen, key=lambda point: (-seen[point], point))


def recent_drops(status: Mapping[str, object]) -> dict[str, int]:
    """Return the counters of drops and refusals that grew recently, largest first."""
    grew, now = mapping(status["counters_grew"]), real(status["at"]) or 0.0
    return {
        name: count
        for name, count in drops_of(counts(status["counters"])).items()
        if is_recent(real(grew.get(name)), now=now)
    }


def _on(status: Mapping[str, object]) -> Answer:
    killed, paused = mapping(status["kill_switch"]), mapping(status["paused"])
    held, silent = held_in_memory(status), mapping(status["silent"])
    processes = sequence(status["processes"])
    parts = [f"{part}: {mapping(pause)['reason']}{_by(pause)}" for part, pause in paused.items()]
    return _answer(
        (killed, BAD, "killed", f"The kill switch is on: {killed.get('reason')}{_by(killed)}."),
        (_is_held(status), BAD, "held", "The gate holds: the host makes its own choices."),
        (held, BAD, "held", f"{held}: the host makes its own choices there."),
        (paused, DOUBTFUL, "paused", f"Paused: {'; '.join(parts)}."),
        (processes, GOOD, "on", f"{_processes(len(processes), 'attached ')}."),
        (
            silent,
            BAD,
            "cut off",
            f"{_processes(len(silent), 'attached ')} cannot write to the store.",
        ),
        (
            status["enabled"],
            DOUBTFUL,
            "on, idle",
            "TAU_LIVE_RL is on in this shell, but no process is attached.",
        ),
        (
            True,
            DOUBTFUL,
            "off here",
            "No process is attached, and TAU_LIVE_RL is off in this shell.",
        ),
    )


def _processes(count: int, which: str = "") -> str:
    return f"{count} {which}process{'' if count == 1 else 'es'}"


def held_in_memory(status: Mapping[str, object]) -> str:
    """Return, in words, how many processes hold in memory, why and since when; empty if none."""
    holds = [mapping(hold) for hold in sequence(status["held_in_memory"])]
    if not holds:
        return ""
    verb = "holds" if len(holds) == 1 else "hold"
    why = ", ".join(sorted({str(hold["reason"]) for hold in holds}))
    since = _utc(min(real(hold["since"]) or 0.0 for hold in holds))
    return f"{_processes(len(holds))} {verb} in memory because of {why}, since {since}"


def _by(record: object) -> str:
    who = mapping(record).get("who")
    return f" ({who})" if who else ""


def _healthy(status: Mapping[str, object], settings: Settings) -> Answer:
    gate, held, faults = mapping(status["gate"]), held_in_memory(status), faults_of(status)
    doubts = _doubts(status, settings)
    but = " except what a hold keeps out" if recent_drops(status) else ""
    long_ago = _unwanted_drops(drops_of(counts(status["counters"])))
    when = " in the last day" if long_ago else ""
    return _answer(
        (
            _is_held(status),
            BAD,
            "no",
            f"The gate holds because of {gate['reason']}: {gate['detail'] or 'no detail'}.",
        ),
        (held, BAD, "no", f"{held}, and cannot store anything."),
        (faults, BAD, "no", " ".join(f"{fault}." for fault in faults.values())),
        (doubts, DOUBTFUL, "look closer", " ".join(doubts)),
        (True, GOOD, "yes", f"The gate passes; nothing was dropped{when}{but}."),
    )


def _doubts(status: Mapping[str, object], settings: Settings) -> list[str]:
    streaks = counts(mapping(status["gate"])["streaks"])
    drops = _unwanted_drops(recent_drops(status))
    silent, missing = mapping(status["silent"]), mapping(status["rewards_missing"])
    at = real(missing.get("since"))
    since = "" if at is None else f" since {_utc(at)}"
    never_came = f"{integer(missing.get('missing')):,} of {integer(missing.get('settled')):,}"
    return [
        *(f"{count} {name} failures in a row." for name, count in streaks.items() if count),
        *_sentences(
            (silent, f"Cannot write: {', '.join(sorted(silent))}."),
            (
                missing,
                f"Rewards are missing{since}: {never_came}, the newest that were due, never came.",
            ),
        ),
        *fallen(status),
        *disabled_plugins(status),
        *(f"{sentence}." for sentence in doubts_of(status, settings).values()),
        *_sentences(
            (
                drops,
                (
                    f"{sum(drops.values()):,} events, decisions or rewards were dropped or refused "
                    f"so far, {_last(drops, status)}."
                ),
            ),
            (_over(status), f"Beyond the limits of retention: {', '.join(_over(status))}."),
        ),
    ]


def doubts_of(status: Mapping[str, object], settings: Settings) -> dict[str, str]:
    """Return further doubts about the health of a store, by subject."""
    kept_out = recent_drops(status).get(REWARDS_HELD_BACK, 0)
    grew, reruns = mapping(status["counters_grew"]), counts(status["counters"]).get(RERUNS, 0)
    has_recent = is_recent(real(grew.get(RERUNS)), now=real(status["at"]) or 0.0)
    left_out = [
        f"At {point} {trial['why']}"
        for point, trial in _trials(status).items()
        if trial["verdict"] == Verdict.OUT_OF_RANGE
    ]
    doubts = {
        "range": outside_range(status, settings) or "; ".join(left_out),
        "rewards": f"{kept_out:,} rewards came during a hold and were not recorded"
        if kept_out
        else "",
        "keys": f"{reruns:,} runs had the key of a run that had succeeded, so nothing is learned "
        "from them"
        if reruns >= MANY_RERUNS and has_recent
        else "",
    }
    return {about: sentence for about, sentence in doubts.items() if sentence}


def faults_of(status: Mapping[str, object]) -> dict[str, str]:
    """Return certain faults of a store, by subject."""
    stopped = [
        f"at {point}: {trial['stopped']}"
        for point, trial in _trials(status).items()
        if trial["stopped"] is not None
    ]
    fails = status["store_fails"]
    faults = {
        "store fails": f"The store cannot be written: {fails}" if fails else "",
        "stopped": f"The learner is stopped {'; '.join(stopped)}" if stopped else "",
    }
    return {about: sentence for about, sentence in faults.items() if sentence}


def fallen(status: Mapping[str, object]) -> Iterator[str]:
    """Yield where the mean reward fell, while that lasts."""
    for point, fall in mapping(status["reward_fell"]).items():
        was, now = (real(mapping(fall)[name]) or 0.0 for name in ("was", "fell_to"))
        yield f"The mean reward at {point} fell from {was:.3g} to {now:.3g}."


def disabled_plugins(status: Mapping[str, object]) -> Iterator[str]:
    """Yield the disabled plugins, each with its consequence."""
    rows = [mapping(row) for row in sequence(status["plugins_disabled"])]
    for plugin in sorted({str(row["plugin"]) for row in rows}):
        same = [row for row in rows if row["plugin"] == plugin]
        redacts = any(
            hook in {"redact", "redact_text"} for row in same for hook in sequence(row["hooks"])
        )
        effect = ": no text is kept, and the host makes its own choices" if redacts else ""
        where = f"{_processes(len(same))} ({same[0]['problem']})"
        yield f"Plugin {plugin} is disabled in {where}{effect}."


def _last(drops: Mapping[str, int], status: Mapping[str, object]) -> str:
    """Return when the last of these drops was, as far as known."""
    grew = mapping(status["counters_grew"])
    times = [real(grew.get(name)) for name in drops]
    known = [at for at in times if at is not None]
    if len(known) < len(times):
        return "the last since the previous check"
    return f"the last at {_utc(max(known, default=0.0))}"


def _utc(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return str(at)


def _unwanted_drops(drops: Mapping[str, int]) -> dict[str, int]:
    """Return the drops except those that a hold, a pause or the kill switch causes."""
    wanted = ("decisions_not_recorded",) if drops.get("runs_not_recorded_while_held") else ()
    return {
        name: count
        for name, count in drops.items()
        if not name.endswith(WHILE_HELD) and name not in wanted
    }


def _waits_for(status: Mapping[str, object], due: int) -> str:
    """Return how far the first update is, and when the last reward came."""
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
        integer(mapping(service).get("version"))
        for service in mapping(status["in_service"]).values()
    ]
    if versions and not any(versions):
        sentence = "Every decision point was rolled back to the untrained policy."
        return Answer(state=DOUBTFUL, answer="rolled back", sentence=sentence)
    if not versions:
        report = mapping(status["last_report"])
        skipped = f" The last update was skipped: {report['skipped_reason']}." if report else ""
        sentence = f"No version yet.{skipped}{_waits_for(status, due)}"
        return Answer(state=DOUBTFUL, answer="not yet", sentence=sentence)
    points_by_sentence: dict[str, list[str]] = {}
    for point in points:
        points_by_sentence.setdefault(_difference(point, status), []).append(point)
    differences = [
        f"At {one_of(at)} {sentence}" for sentence, at in points_by_sentence.items() if sentence
    ]
    newest = f"Version in service: {max(versions)}."
    if thirds := thirds_of([stretch.reward for stretch in stretches]):
        first, last = (f"{third.mean:.3g}" for third in thirds)
        newest += f" Mean reward of the first third of rollouts {first}, of the last {last}."
    bounds = [_bounds(_trials(status).get(point, {})) for point in points]
    is_worse = any(upper is not None and upper < 0.0 for _, upper in bounds)
    is_better = any(lower is not None and lower > 0.0 for lower, _ in bounds)
    answer = "yes, but worse" if is_worse else "yes, and better" if is_better else "yes"
    stops, sentence = _stops(status), " ".join([newest, *differences[:3]])
    return _answer(
        (stops, DOUBTFUL, f"{answer}, but not while {''.join(stops[:1])}", sentence),
        (True, BAD if is_worse else GOOD, answer, sentence),
    )


def one_of(points: Sequence[str]) -> str:
    """Return the points of a difference; a difference shared by several is of the whole run."""
    named = ", ".join(points)
    return named if len(points) == 1 else f"{named} (one difference, of the whole run)"


def _stops(status: Mapping[str, object]) -> list[str]:
    """Return what stops learning now, the strongest first."""
    return _sentences(
        (status["kill_switch"], "the kill switch is on"),
        (_is_held(status), "the gate holds"),
        (status["held_in_memory"], "a process holds in memory"),
        ("learning" in mapping(status["paused"]), "it is paused"),
    )


def _bounds(trial: Mapping[str, object]) -> tuple[float | None, float | None]:
    """Return the bounds of the difference of a trial."""
    difference = mapping(trial.get("difference"))
    return real(difference.get("lower")), real(difference.get("upper"))


def _difference(point: str, status: Mapping[str, object]) -> str:
    trial = _trials(status).get(point, {})
    lower, upper = _bounds(trial)
    estimate = real(mapping(trial.get("difference")).get("estimate"))
    if estimate is None:
        return ""
    over = "the host's own choice" if trial["control"] is None else f"version {trial['control']}"
    proven = (
        f"between {lower:+.3g} and {upper:+.3g} however often you look"
        if lower is not None and upper is not None
        else "unproven difference of means"
    )
    return f"the difference over {over} is {estimate:+.3g} ({proven})."


def _next(
    status: Mapping[str, object], stretches: Sequence[Stretch], settings: Settings
) -> list[str]:
    rollouts = counts(status["rollouts"])
    if not any(rollouts.values()):
        return [
            *_about_stops(status),
            "Run your agent with `TAU_LIVE_RL=1`, or try `TAU_LIVE_RL=1 tau-live demo`.",
        ]
    keys = doubts_of(status, settings).get("keys")
    rewarded = rollouts.get("completed") and any(stretch.reward.count for stretch in stretches)
    signs = ("ready_to_learn", "waiting_for_reward", "not_learned_from", "agreement")
    decides = points_of(status) or any(status[sign] for sign in signs)
    ready = max(counts(status["ready_to_learn"]).values(), default=0)
    waits = ready >= 2 * settings.update_interval and not sequence(status["processes"])
    return [
        *_about_stops(status),
        *_sentences(
            (
                status["plugins_disabled"],
                ("Fix the disabled plugin and restart the process: `tau-live doctor`."),
            )
        ),
        *(
            f"Find out why the reward at {point} fell: `tau-live rollouts --limit 20`, and "
            "`tau-live report --html report.html` shows since when."
            for point in mapping(status["reward_fell"])
        ),
        *_sentences((keys, f"{keys}: give each run a `key` of its own, or none.")),
        *_about_rewards(status, stretches),
        *_sentences(
            (
                rewarded and not decides,
                (
                    "Runs are recorded, but none has a decision, so there is nothing to learn: "
                    "see what could be decided with `tau-live init --dry-run`."
                ),
            ),
            (
                waits and not _stops(status),
                (
                    f"{ready:,} rollouts wait to be learned from, and no process runs "
                    "(a short program should call `tau_live.flush(timeout_s=60)` before it ends): "
                    "`TAU_LIVE_RL=1 tau-live learn --once`."
                ),
            ),
        ),
        *_about_drops(recent_drops(status)),
        *_about_trials(status, settings),
        *_sentences(
            (
                _over(status),
                (
                    "`tau-live gc` deletes what is beyond the limits and reports why the others "
                    "are kept."
                ),
            ),
            (  # last: there are rollouts, so it was set where they were made
                not status["enabled"] and not sequence(status["processes"]),
                (
                    "Set `TAU_LIVE_RL=1` where your agent runs: "
                    "`TAU_LIVE_RL=1 tau-live run -- python my_agent.py`."
                ),
            ),
        ),
    ]


def _about_drops(drops: Mapping[str, int]) -> list[str]:
    lost, late = lost_events(drops), drops.get(REWARDS_HELD_BACK, 0)
    keeps = ", and a larger `TAU_LIVE_RL_QUEUE_LIMIT` keeps more" if QUEUE_FULL in lost else ""
    refused = {} if lost else _unwanted_drops(drops)
    return _sentences(
        (
            lost,
            f"Events were dropped: `tau-live status --all` counts them by cause{keeps}.",
        ),
        (
            late,
            (
                f"Send the {late:,} rewards again that came during a hold: "
                "`tau_live.reward` returned False for them; the same reward twice counts once."
            ),
        ),
        (
            refused,
            (
                f"Look at what was refused, mainly {next(iter(refused), '')}: "
                "`tau-live doctor` has the details, docs/howto/runbook.md a fix for each counter."
            ),
        ),
    )


def _about_stops(status: Mapping[str, object]) -> list[str]:
    killed, parts = mapping(status["kill_switch"]), " ".join(mapping(status["paused"]))
    return _sentences(
        (
            killed,
            (
                "Fix the cause, then turn the kill switch off: "
                f"{ended_by(str(killed.get('reason', '')))}."
            ),
        ),
        (
            _is_held(status),
            (
                "Find out why it holds (`tau-live gate log`), fix the cause, then "
                '`tau-live gate reset --reason "..."`.'
            ),
        ),
        (
            status["silent"] or status["held_in_memory"] or status["store_fails"],
            "Find out why the store cannot be written: `tau-live doctor`.",
        ),
        (
            parts,
            f'Resume it when the reason is gone: `tau-live resume {parts} --reason "..."`.',
        ),
    )


def _about_rewards(status: Mapping[str, object], stretches: Sequence[Stretch]) -> list[str]:
    rewarded = sum(stretch.reward.count for stretch in stretches)
    ended = sum(stretch.succeeded + stretch.failed + stretch.cancelled for stretch in stretches)
    return _sentences(
        (
            ended and not rewarded,
            (
                "No rollout has a reward: give one with `run.reward(...)`, or "
                "`tau-live reward 1 --run ID`."
            ),
        ),
        (
            mapping(status["rewards_missing"]),
            (
                "Find out why rewards are missing: `tau-live doctor`, and rewards-missing in "
                "docs/howto/runbook.md."
            ),
        ),
        (
            ended >= 64 and rewarded < 0.5 * ended,
            (
                "Fewer than half of the rollouts have a reward: check the code that sends them; "
                "`tau-live doctor` lists the sources."
            ),
        ),
    )[:1]


def _about_trials(status: Mapping[str, object], settings: Settings) -> Iterator[str]:
    monitors = {point: mapping(monitor) for point, monitor in mapping(status["monitors"]).items()}
    for point, monitor in monitors.items():
        if monitor["reward_spread"] == 0.0:
            yield (
                f"The newest rewards at {point} are all the same, so there is nothing to learn: "
                "check one with `tau-live rollouts --limit 1`."
            )
    outside, how = outside_range(status, settings), range_advice(status, settings)
    yield from _sentences(
        (
            outside,
            (
                f"{outside}. Nothing is claimed from those. If they are right: {how}; if not, find "
                "their source."
            ),
        )
    )
    for point, trial in _trials(status).items():
        yield from _about_trial(point, trial, how)
    yield from _about_waiting(status, deadlines(settings))
    for point, monitor in monitors.items():
        yield from _about_monitor(point, monitor)


def _about_trial(point: str, trial: Mapping[str, object], how: str) -> list[str]:
    """Return advice on who decides at a point.

    Args:
        point: The decision point.
        trial: The facts of its trial.
        how: How to declare the range of rewards, in words.
    """
    _, upper = _bounds(trial)
    change = f'{shlex.quote(point)} --reason "..."'
    some = f"`tau-live policy exposure {change.replace(' --reason', ' 5% --reason')}`"
    in_shadow = trial["exposure"] == 0.0 and trial["stopped"] is None
    climbs = "once the range is declared" if trial["why"] == NO_RANGE else "on evidence"
    return [
        *_sentences(
            (
                trial["stopped"] is not None,
                f"The learner of {point} is stopped; to start it again: {some}.",
            ),
            (
                upper is not None and upper < 0.0,
                (
                    f"The learner of {point} is worse than the control: "
                    f"`tau-live policy rollback {change}`."
                ),
            ),
            (
                trial["why"] == NO_RANGE,
                (
                    "Declare the lowest and highest reward possible, so that the difference can be "
                    f"proven; for what came so far: {how}."
                ),
            ),
            (
                trial["verdict"] == Verdict.OUT_OF_RANGE,
                (
                    f"Nothing is claimed at {point} while rewards are outside their declared "
                    "range: fix their unit, or the range; `tau-live doctor` counts them."
                ),
            ),
            (
                trial["why"] == NO_CONTROL and trial["champion"] is None,
                (
                    "Reserve a tenth of the rollouts as a control to compare with "
                    "(each choice needs its `default`): `export TAU_LIVE_RL_CONTROL_SHARE=0.1`."
                ),
            ),
        )[:1],
        *_sentences(
            (
                in_shadow,
                (
                    f"The learner of {point} is in shadow: it decides nothing yet, and climbs "
                    f"{climbs}. To let it decide some rollouts now: {some}."
                ),
            )
        ),
    ]


def _about_waiting(status: Mapping[str, object], setting: str) -> Iterator[str]:
    """Yield where a comparison is held up by the wait for a reward.

    Args:
        status: The result of ``status_of``.
        setting: The names of the settings that bound the wait.
    """
    now = real(status["at"]) or 0.0
    for point, trial in _trials(status).items():
        held_up, uncounted = mapping(trial["held_up"]), integer(trial["uncounted"])
        until, counted = real(held_up.get("until")), sum(counts(trial["rollouts"]).values())
        # only mentioned if many rollouts wait behind it
        if until is not None and until > now and uncounted > max(32, counted // 10):
            yield (
                f"The comparison at {point} has counted {counted:,} of {counted + uncounted:,} "
                f"rollouts: it is waiting for the reward of {held_up['rollout_id']} until "
                f"{_utc(until)} at the latest. Send the missing rewards, or shorten {setting}."
            )


def _about_monitor(point: str, monitor: Mapping[str, object]) -> list[str]:
    alarms = [mapping(alarm) for alarm in sequence(monitor["drift"])]
    worse = {str(alarm["option"]) for alarm in alarms if alarm.get("direction") == "worse"}
    outliers = integer(monitor["outliers"])
    low, high = (
        real(monitor.get("lowest_reward")) or 0.0,
        real(monitor.get("highest_reward")) or 0.0,
    )
    return _sentences(
        (
            outliers,
            (
                f"{outliers} of the newest rewards at {point} are far beyond the others and count "
                f"as {low:.3g} or {high:.3g}. If they are real, declare the range: "
                "`export TAU_LIVE_RL_REWARD_RANGE=low,high`; if not, find their source."
            ),
        ),
        (
            worse,
            (
                f"Look at the options that became worse at {point}, {', '.join(sorted(worse))}: "
                "`tau-live report --html report.html`."
            ),
        ),
    )


def _over(status: Mapping[str, object]) -> list[str]:
    return [str(limit) for limit in sequence(mapping(status["retention"])["over"])]


STRETCHES = 24
"""How many points of the reward curve fit on a narrow screen."""

EACH = 64
"""Most rollouts of a stretch that are examined; their mean is known to an eighth of their standard
deviation, about as much as a cell of the screen can show."""

LOOKED_AT = 64
"""How many of the newest lines of the audit are read for the last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The contents of the status screen.

    Attributes:
        at: Epoch seconds, UTC.
        summary: The four answers.
        status: The output of ``tau-live status --json``.
        stretches: All rollouts, in the order in which they began: the reward curve.
        points: The decision points, the busiest first.
        drops: Dropped or refused events, by counter that grew recently, the largest first.
        doubts: Doubts about its health, by subject.
        latest: The last change of who decides, or hold or reset of the gate; ``None`` if none.
    """

    at: float
    summary: Summary
    status: Mapping[str, object]
    stretches: Sequence[Stretch]
    points: Sequence[str]
    drops: Mapping[str, int]
    doubts: Mapping[str, str]
    latest: Mark | None


def glance_of(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool,
    store_fails: str | None = None,
) -> Glance:
    """Return the facts of the status screen.

    Args:
        store: The store; nothing is written.
        settings: Its address, and the weights of rewards.
        now: Epoch seconds, UTC.
        enabled: Whether tau-live is switched on here.
        store_fails: Why the store cannot be written; ``None`` if it can, or nobody has tried.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    status = status_of(store, settings, now=now, enabled=enabled, store_fails=store_fails)
    total = sum(store.rollouts.counts_by_status().values())
    stretches = [
        stretch_of(cut, store.surveys.rollouts(cut.seqs), (), within=reward_range(settings))
        for cut in cuts_of(store, total, most=STRETCHES, each=EACH)
    ]
    points, marks = points_of(status), marks_of(store, stretches, limit=LOOKED_AT)
    return Glance(
        at=now,
        summary=summary_of(status, stretches, points, settings=settings),
        status=status,
        stretches=stretches,
        points=points,
        drops=recent_drops(status),
        doubts=doubts_of(status, settings),
        latest=marks[-1] if marks else None,
    )
