"""The summary: is it on, is it healthy, is it learning, what to do next.

The same figures as in a report, of fewer rollouts, so that a screen can refresh once a second at
little cost.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, isfinite, log10

from tau_live.core.reasons import QUEUE_FULL, RERUNS, WHILE_HELD, drops_of, lost_events
from tau_live.core.settings import Settings
from tau_live.learn.monitoring import PointFigures
from tau_live.learn.promotion.rules import NO_CONTROL, NO_RANGE, OUTSIDE_SHARE, TrialStatus
from tau_live.operate.alert_rules import is_recent
from tau_live.operate.records import RewardSpan, RewardsSeen, Status
from tau_live.operate.report.choices import thirds_of
from tau_live.operate.report.facts import Answer, Mark, Stretch, Summary
from tau_live.operate.report.stretches import cuts_of, marks_of, stretch_of
from tau_live.operate.status import status_of
from tau_live.operate.stops import ended_by
from tau_live.record.rewards import reward_range
from tau_live.rl.drift import Direction
from tau_live.rl.verdict import Verdict
from tau_live.store.roles import Store


def span_around(lowest: float, highest: float) -> tuple[float, float]:
    """Return a range of round numbers that holds the rewards between two numbers, to propose."""
    for low, high in ((0.0, 1.0), (-1.0, 1.0)):
        if low <= lowest and highest <= high:
            return low, high
    if lowest == highest:  # one value does not tell the width of the range
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    if not isfinite(highest - lowest):
        return lowest, highest
    step = 10.0 ** floor(log10(highest - lowest))
    return floor(lowest / step) * step, ceil(highest / step) * step


def range_advice(seen: RewardsSeen, settings: Settings) -> str:
    """Return how to declare the range of rewards, with a proposal that holds those seen.

    Args:
        seen: The range of the newest rewards.
        settings: Which rewards are declared.
    """
    each = [
        f"`range = [{_range_text(seen.names.get(reward.name), ', ')}]` for `{reward.name}`"
        for reward in settings.rewards
        if not reward.cost and reward.range is None
    ]
    if each and settings.reward_range is None:
        return f"{', '.join(each)}, in [tool.tau-live.rewards]"
    return f"`export TAU_LIVE_RL_REWARD_RANGE={_range_text(seen, ',')}`"


def _range_text(seen: RewardsSeen | RewardSpan | None, between: str) -> str:
    """Return the range to propose for the values seen, as text."""
    if seen is None or seen.lowest is None or seen.highest is None:
        return f"low{between}high"
    return between.join(f"{end:g}" for end in span_around(seen.lowest, seen.highest))


def outside_range(seen: RewardsSeen, settings: Settings) -> str:
    """Return, in words, how many of the newest rewards are outside their range; empty if few."""
    span = reward_range(settings)
    if span is None or seen.outside <= OUTSIDE_SHARE * seen.of:
        return ""
    return (
        f"{seen.outside:,} of the newest {seen.of:,} rewards are outside the range from "
        f"{span[0]:g} to {span[1]:g}: they go from {seen.lowest or 0.0:.3g} to "
        f"{seen.highest or 0.0:.3g}"
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
    status: Status,
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


def _answer(*cases: tuple[object, str, str, str]) -> Answer:
    """Return the first answer whose condition holds: its state, its words and its sentence."""
    return next(
        Answer(state=state, answer=answer, sentence=sentence)
        for holds, state, answer, sentence in cases
        if holds
    )


def points_of(status: Status) -> list[str]:
    """Return the decision points of a status, the one with most rollouts first."""
    seen = {
        point: sum(status.trials[point].rollouts.values()) if point in status.trials else 0
        for point in {*status.trials, *status.in_service, *status.monitors}
    }
    return sorted(seen, key=lambda point: (-seen[point], point))


def recent_drops(status: Status) -> dict[str, int]:
    """Return the counters of drops and refusals that grew recently, largest first."""
    return {
        name: count
        for name, count in drops_of(status.counters).items()
        if is_recent(status.counters_grew.get(name), now=status.at)
    }


def _on(status: Status) -> Answer:
    held, silent, processes = held_in_memory(status), status.silent, status.processes
    parts = [f"{part}: {pause}" for part, pause in status.paused.items()]
    return _answer(
        (status.kill_switch, BAD, "killed", f"The kill switch is on: {status.kill_switch}."),
        (status.gate.holds, BAD, "held", "The gate holds: the host makes its own choices."),
        (held, BAD, "held", f"{held}: the host makes its own choices there."),
        (parts, DOUBTFUL, "paused", f"Paused: {'; '.join(parts)}."),
        (processes, GOOD, "on", f"{_processes(len(processes), 'attached ')}."),
        (
            silent,
            BAD,
            "cut off",
            f"{_processes(len(silent), 'attached ')} cannot write to the store.",
        ),
        (
            status.enabled,
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


_MOST_HOSTS = 3


def held_in_memory(status: Status) -> str:
    """Return, in words, how many processes hold in memory, why and since when; empty if none."""
    holds = status.held_in_memory
    if not holds:
        return ""
    verb = "holds" if len(holds) == 1 else "hold"
    why = ", ".join(sorted({hold.reason for hold in holds}))
    since = _utc(min(hold.since for hold in holds))
    return f"{_processes(len(holds))} {verb} in memory because of {why}, since {since}"


def hosts_in_words(status: Status) -> str:
    """Return, in words, which processes of a fleet hold alone, and why; empty if none does."""
    holds = status.hosts_holding
    if not holds:
        return ""
    verb = "holds" if len(holds) == 1 else "hold"
    hosts = ", ".join(sorted({hold.host for hold in holds})[:_MOST_HOSTS])
    more = "" if len(holds) <= _MOST_HOSTS else ", ..."
    why = ", ".join(sorted({hold.reason for hold in holds}))
    return f"{_processes(len(holds))} {verb} alone because of {why}, on {hosts}{more}"


def _healthy(status: Status, settings: Settings) -> Answer:
    gate, held, faults = status.gate, held_in_memory(status), faults_of(status)
    doubts = [*_doubts(status, settings)]
    but = " except what a hold keeps out" if recent_drops(status) else ""
    long_ago = _unwanted_drops(drops_of(status.counters))
    when = " in the last day" if long_ago else ""
    return _answer(
        (
            status.gate.holds,
            BAD,
            "no",
            f"The gate holds because of {gate.reason}: {gate.detail or 'no detail'}.",
        ),
        (held, BAD, "no", f"{held}, and cannot store anything."),
        (faults, BAD, "no", " ".join(f"{fault}." for fault in faults.values())),
        (doubts, DOUBTFUL, "look closer", " ".join(doubts)),
        (True, GOOD, "yes", f"The gate passes; nothing was dropped{when}{but}."),
    )


def _doubts(status: Status, settings: Settings) -> Iterator[str]:
    for name, count in status.gate.streaks.items():
        if count:
            yield f"{count} {name} failures in a row."
    if hosts := hosts_in_words(status):
        yield f"{hosts}."
    if status.silent:
        yield f"Cannot write: {', '.join(sorted(status.silent))}."
    if rewards := status.rewards_missing:
        since = "" if rewards.since is None else f" since {_utc(rewards.since)}"
        never_came = f"{rewards.missing:,} of {rewards.settled:,}"
        yield f"Rewards are missing{since}: {never_came}, the newest that were due, never came."
    yield from fallen(status)
    yield from disabled_plugins(status)
    yield from (f"{sentence}." for sentence in doubts_of(status, settings).values())
    if drops := _unwanted_drops(recent_drops(status)):
        yield (
            f"{sum(drops.values()):,} events, decisions or rewards were dropped or refused "
            f"so far, {_last(drops, status)}."
        )
    if status.retention.over:
        yield f"Beyond the limits of retention: {', '.join(status.retention.over)}."


def doubts_of(status: Status, settings: Settings) -> dict[str, str]:
    """Return further doubts about the health of a store, by subject."""
    kept_out = recent_drops(status).get(REWARDS_HELD_BACK, 0)
    reruns = status.counters.get(RERUNS, 0)
    has_recent = is_recent(status.counters_grew.get(RERUNS), now=status.at)
    left_out = [
        f"At {point} {trial.why}"
        for point, trial in status.trials.items()
        if trial.verdict == Verdict.OUT_OF_RANGE
    ]
    doubts = {
        "range": outside_range(status.rewards_seen, settings) or "; ".join(left_out),
        "rewards": f"{kept_out:,} rewards came during a hold and were not recorded"
        if kept_out
        else "",
        "keys": f"{reruns:,} runs had the key of a run that had succeeded, so nothing is learned "
        "from them"
        if reruns >= MANY_RERUNS and has_recent
        else "",
    }
    return {about: sentence for about, sentence in doubts.items() if sentence}


def faults_of(status: Status) -> dict[str, str]:
    """Return certain faults of a store, by subject."""
    stopped = [
        f"at {point}: {trial.stopped}"
        for point, trial in status.trials.items()
        if trial.stopped is not None
    ]
    fails = status.store_fails
    faults = {
        "store fails": f"The store cannot be written: {fails}" if fails else "",
        "stopped": f"The learner is stopped {'; '.join(stopped)}" if stopped else "",
    }
    return {about: sentence for about, sentence in faults.items() if sentence}


def fallen(status: Status) -> Iterator[str]:
    """Yield where the mean reward fell, while that lasts."""
    for point, fall in status.reward_fell.items():
        yield f"The mean reward at {point} fell from {fall.was:.3g} to {fall.fell_to:.3g}."


def disabled_plugins(status: Status) -> Iterator[str]:
    """Yield the disabled plugins, each with its consequence."""
    rows = status.plugins_disabled
    for plugin in sorted({row.plugin for row in rows}):
        same = [row for row in rows if row.plugin == plugin]
        redacts = any(hook in {"redact", "redact_text"} for row in same for hook in row.hooks)
        effect = ": no text is kept, and the host makes its own choices" if redacts else ""
        where = f"{_processes(len(same))} ({same[0].problem})"
        yield f"Plugin {plugin} is disabled in {where}{effect}."


def _last(drops: Mapping[str, int], status: Status) -> str:
    """Return when the last of these drops was, as far as known."""
    times = [status.counters_grew.get(name) for name in drops]
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


def _waits_for(status: Status, due: int) -> str:
    """Return how far the first update is, and when the last reward came."""
    ready, at = status.ready_to_learn, status.last_reward_at
    each = [f"{count:,} of {due:,} at {point}" for point, count in ready.items() if count < due]
    waits = f" An update waits for rewarded rollouts: {', '.join(each)}." if each else ""
    waiting = status.waiting_for_reward
    more = f" {waiting:,} rollouts wait for a reward." if waiting else ""
    return waits + more + (f" The last reward came at {_utc(at)}." if at is not None else "")


def _learning(
    status: Status,
    points: Sequence[str],
    stretches: Sequence[Stretch],
    *,
    due: int,
) -> Answer:
    versions = [service.version for service in status.in_service.values()]
    if versions and not any(versions):
        sentence = "Every decision point was rolled back to the untrained policy."
        return Answer(state=DOUBTFUL, answer="rolled back", sentence=sentence)
    if not versions:
        report = status.last_report
        skipped = f" The last update was skipped: {report['skipped_reason']}." if report else ""
        sentence = f"No version yet.{skipped}{_waits_for(status, due)}"
        return Answer(state=DOUBTFUL, answer="not yet", sentence=sentence)
    trials = {point: status.trials[point] for point in points if point in status.trials}
    points_by_sentence: dict[str, list[str]] = {}
    for point, trial in trials.items():
        points_by_sentence.setdefault(_difference(trial), []).append(point)
    differences = [
        f"At {one_of(at)} {sentence}" for sentence, at in points_by_sentence.items() if sentence
    ]
    newest = f"Version in service: {max(versions)}."
    if thirds := thirds_of([stretch.reward for stretch in stretches]):
        first, last = (f"{third.mean:.3g}" for third in thirds)
        newest += f" Mean reward of the first third of rollouts {first}, of the last {last}."
    bounds = [trial.bounds for trial in trials.values()]
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


def _stops(status: Status) -> list[str]:
    """Return what stops learning now, the strongest first."""
    causes = (
        ("the kill switch is on", status.kill_switch),
        ("the gate holds", status.gate.holds),
        ("a process holds in memory", status.held_in_memory),
        ("it is paused", "learning" in status.paused),
    )
    return [cause for cause, holds in causes if holds]


def _difference(trial: TrialStatus) -> str:
    estimate, (lower, upper) = trial.difference["estimate"], trial.bounds
    if estimate is None:
        return ""
    over = "the host's own choice" if trial.control is None else f"version {trial.control}"
    proven = (
        f"between {lower:+.3g} and {upper:+.3g} however often you look"
        if lower is not None and upper is not None
        else "unproven difference of means"
    )
    return f"the difference over {over} is {estimate:+.3g} ({proven})."


def _next(status: Status, stretches: Sequence[Stretch], settings: Settings) -> Iterator[str]:
    yield from _about_stops(status)
    if not any(status.rollouts.values()):
        yield "Run your agent with `TAU_LIVE_RL=1`, or try `TAU_LIVE_RL=1 tau-live demo`."
        return
    if status.plugins_disabled:
        yield "Fix the disabled plugin and restart the process: `tau-live doctor`."
    for point in status.reward_fell:
        yield (
            f"Find out why the reward at {point} fell: `tau-live rollouts --limit 20`, and "
            "`tau-live report --html report.html` shows since when."
        )
    if keys := doubts_of(status, settings).get("keys"):
        yield f"{keys}: give each run a `key` of its own, or none."
    yield from _about_rewards(status, stretches)
    yield from _about_learning(status, stretches, settings)
    yield from _about_drops(recent_drops(status))
    yield from _about_trials(status, settings)
    if status.retention.over:
        yield (
            "`tau-live gc` deletes what is beyond the limits and reports why the others are kept."
        )
    # last: there are rollouts, so it was set where they were made
    if not status.enabled and not status.processes:
        yield (
            "Set `TAU_LIVE_RL=1` where your agent runs: "
            "`TAU_LIVE_RL=1 tau-live run -- python my_agent.py`."
        )


def _about_learning(
    status: Status, stretches: Sequence[Stretch], settings: Settings
) -> Iterator[str]:
    rewarded = status.rollouts["completed"] and any(stretch.reward.count for stretch in stretches)
    decides = (
        points_of(status)
        or status.ready_to_learn
        or status.waiting_for_reward
        or status.not_learned_from
        or status.agreement
    )
    if rewarded and not decides:
        yield (
            "Runs are recorded, but none has a decision, so there is nothing to learn: "
            "see what could be decided with `tau-live init --dry-run`."
        )
    ready = max(status.ready_to_learn.values(), default=0)
    waits = ready >= 2 * settings.update_interval and not status.processes
    if waits and not _stops(status):
        yield (
            f"{ready:,} rollouts wait to be learned from, and no process runs "
            "(a short program should call `tau_live.flush(timeout_s=60)` before it ends): "
            "`TAU_LIVE_RL=1 tau-live learn --once`."
        )


def _about_drops(drops: Mapping[str, int]) -> Iterator[str]:
    lost = lost_events(drops)
    if lost:
        keeps = ", and a larger `TAU_LIVE_RL_QUEUE_LIMIT` keeps more" if QUEUE_FULL in lost else ""
        yield f"Events were dropped: `tau-live status --all` counts them by cause{keeps}."
    if late := drops.get(REWARDS_HELD_BACK):
        yield (
            f"Send the {late:,} rewards again that came during a hold: "
            "`tau_live.reward` returned False for them; the same reward twice counts once."
        )
    if not lost and (refused := _unwanted_drops(drops)):
        yield (
            f"Look at what was refused, mainly {next(iter(refused))}: "
            "`tau-live doctor` has the details, docs/howto/runbook.md a fix for each counter."
        )


def _about_stops(status: Status) -> Iterator[str]:
    if status.kill_switch:
        by = ended_by(status.kill_switch.reason)
        yield f"Fix the cause, then turn the kill switch off: {by}."
    if status.gate.holds:
        yield (
            "Find out why it holds (`tau-live gate log`), fix the cause, then "
            '`tau-live gate reset --reason "..."`.'
        )
    if status.silent or status.held_in_memory or status.store_fails:
        yield "Find out why the store cannot be written: `tau-live doctor`."
    if status.paused:
        parts = " ".join(status.paused)
        yield f'Resume it when the reason is gone: `tau-live resume {parts} --reason "..."`.'


def _about_rewards(status: Status, stretches: Sequence[Stretch]) -> Iterator[str]:
    rewarded = sum(stretch.reward.count for stretch in stretches)
    ended = sum(stretch.succeeded + stretch.failed + stretch.cancelled for stretch in stretches)
    if ended and not rewarded:
        yield (
            "No rollout has a reward: give one with `run.reward(...)`, or "
            "`tau-live reward 1 --run ID`."
        )
    elif status.rewards_missing:
        yield (
            "Find out why rewards are missing: `tau-live doctor`, and rewards-missing in "
            "docs/howto/runbook.md."
        )
    elif ended >= 64 and rewarded < 0.5 * ended:
        yield (
            "Fewer than half of the rollouts have a reward: check the code that sends them; "
            "`tau-live doctor` lists the sources."
        )


def _about_trials(status: Status, settings: Settings) -> Iterator[str]:
    for point, monitor in status.monitors.items():
        if monitor.reward_spread == 0.0:
            yield (
                f"The newest rewards at {point} are all the same, so there is nothing to learn: "
                "check one with `tau-live rollouts --limit 1`."
            )
    how = range_advice(status.rewards_seen, settings)
    if outside := outside_range(status.rewards_seen, settings):
        yield (
            f"{outside}. Nothing is claimed from those. If they are right: {how}; if not, find "
            "their source."
        )
    for point, trial in status.trials.items():
        yield from _about_trial(point, trial, how)
    yield from _about_waiting(status, deadlines(settings))
    for point, monitor in status.monitors.items():
        yield from _about_monitor(point, monitor)


def _about_trial(point: str, trial: TrialStatus, how: str) -> Iterator[str]:
    """Yield advice on who decides at a point.

    Args:
        point: The decision point.
        trial: The facts of its trial.
        how: How to declare the range of rewards, in words.
    """
    _, upper = trial.bounds
    some = f'`tau-live policy exposure {shlex.quote(point)} 5% --reason "..."`'
    if trial.stopped is not None:
        yield f"The learner of {point} is stopped; to start it again: {some}."
    elif upper is not None and upper < 0.0:
        yield (
            f"The learner of {point} is worse than the control: "
            f'`tau-live policy rollback {shlex.quote(point)} --reason "..."`.'
        )
    elif trial.why == NO_RANGE:
        yield (
            "Declare the lowest and highest reward possible, so that the difference can be "
            f"proven; for what came so far: {how}."
        )
    elif trial.verdict == Verdict.OUT_OF_RANGE:
        yield (
            f"Nothing is claimed at {point} while rewards are outside their declared "
            "range: fix their unit, or the range; `tau-live doctor` counts them."
        )
    elif trial.why == NO_CONTROL and trial.champion is None:
        yield (
            "Reserve a tenth of the rollouts as a control to compare with "
            "(each choice needs its `default`): `export TAU_LIVE_RL_CONTROL_SHARE=0.1`."
        )
    if trial.exposure == 0.0 and trial.stopped is None:
        climbs = "once the range is declared" if trial.why == NO_RANGE else "on evidence"
        yield (
            f"The learner of {point} is in shadow: it decides nothing yet, and climbs "
            f"{climbs}. To let it decide some rollouts now: {some}."
        )


def _about_waiting(status: Status, setting: str) -> Iterator[str]:
    """Yield where a comparison is held up by the wait for a reward.

    Args:
        status: The result of ``status_of``.
        setting: The names of the settings that bound the wait.
    """
    for point, trial in status.trials.items():
        held_up, uncounted = trial.held_up, trial.uncounted
        counted = sum(trial.rollouts.values())
        if held_up is None or held_up.until is None or held_up.until <= status.at:
            continue
        # only mentioned if many rollouts wait behind it
        if uncounted > max(32, counted // 10):
            yield (
                f"The comparison at {point} has counted {counted:,} of {counted + uncounted:,} "
                f"rollouts: it is waiting for the reward of {held_up.rollout_id} until "
                f"{_utc(held_up.until)} at the latest. Send the missing rewards, or shorten "
                f"{setting}."
            )


def _about_monitor(point: str, monitor: PointFigures) -> Iterator[str]:
    if monitor.outliers:
        low, high = monitor.lowest_reward or 0.0, monitor.highest_reward or 0.0
        yield (
            f"{monitor.outliers} of the newest rewards at {point} are far beyond the others "
            f"and count as {low:.3g} or {high:.3g}. If they are real, declare the range: "
            "`export TAU_LIVE_RL_REWARD_RANGE=low,high`; if not, find their source."
        )
    worse = {alarm.option for alarm in monitor.drift if alarm.direction is Direction.WORSE}
    if worse:
        yield (
            f"Look at the options that became worse at {point}, {', '.join(sorted(worse))}: "
            "`tau-live report --html report.html`."
        )


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
    status: Status
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
