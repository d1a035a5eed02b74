"""The alerts that follow from the status of a store. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import asdict

from tau_live.core.prompts import POOL
from tau_live.core.reasons import (
    DROPPED,
    FOREIGN_DEFAULT,
    LEFT_OUT,
    RERUNS,
    Part,
    WhyNot,
    drops_of,
    lost_events,
)
from tau_live.core.records import AuditEntry
from tau_live.core.sanitize import JsonObject, real
from tau_live.core.settings import Settings
from tau_live.core.switch import KILL
from tau_live.learn.learner import CATCH_UP_FACTOR
from tau_live.learn.monitoring import FEWEST, PointFigures, missing_rewards
from tau_live.learn.promotion.rules import Move
from tau_live.operate.records import GateStatus, HostHold, RewardFall, RewardsMissing, Status
from tau_live.operate.stops import Stop
from tau_live.rl.drift import Direction


class Severity(StrEnum):
    """How urgent an alert is: wake the on-call engineer, look today, or good to know."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class AlertKind(StrEnum):
    """The kind of an alert; its name is the heading in the runbook."""

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
    PROMPT_WITHDRAWN = "prompt-withdrawn"
    EXPERIENCE_WITHDRAWN = "experience-withdrawn"
    LESSONS_QUARANTINED = "lessons-quarantined"
    LEARNER_BEHIND = "learner-behind"
    PLUGIN_DISABLED = "plugin-disabled"
    TEST = "test"


class About(NamedTuple):
    """The severity of a kind of alert, its meaning and the next command.

    Attributes:
        severity: How urgent it is.
        means: One sentence.
        todo: The command to run next.
    """

    severity: Severity
    means: str
    todo: str


ALERTS: Mapping[AlertKind, About] = MappingProxyType(
    {
        AlertKind.GATE_HOLD: About(
            Severity.CRITICAL,
            "The gate holds: nothing is recorded, learned or decided until it is reset.",
            "tau-live gate",
        ),
        AlertKind.GATE_RESET: About(
            Severity.INFO, "An operator let the gate pass again.", "tau-live gate log"
        ),
        AlertKind.STORE_FAILS: About(
            Severity.CRITICAL,
            "A process cannot use its store; its host makes its own choices until it works again.",
            "tau-live doctor",
        ),
        AlertKind.KILL_SWITCH_ON: About(
            Severity.WARNING,
            "The kill switch is on: everything is stopped until it is turned off.",
            "tau-live status",
        ),
        AlertKind.EVENTS_DROPPED: About(
            Severity.WARNING,
            "Events were dropped before they were stored, so their data is lost.",
            "tau-live status",
        ),
        AlertKind.REWARDS_MISSING: About(
            Severity.WARNING,
            "Too many rollouts get no reward in time, and nothing is learned from them.",
            "tau-live doctor",
        ),
        AlertKind.REWARD_FELL: About(
            Severity.WARNING,
            "The mean reward of a decision point is far below what it was.",
            "tau-live status",
        ),
        AlertKind.OPTION_WORSE: About(
            Severity.WARNING,
            "Drift: an option earns less than it used to, so what was learned of it is doubtful.",
            "tau-live status",
        ),
        AlertKind.CHOICES_COLLAPSED: About(
            Severity.WARNING,
            "One option is chosen almost always, so nothing more is learned about the others.",
            "tau-live status",
        ),
        AlertKind.POLICY_PROMOTED: About(
            Severity.INFO,
            "A version, or a prompt, was proven better and is now the champion.",
            "tau-live policy list",
        ),
        AlertKind.POLICY_DEMOTED: About(
            Severity.WARNING,
            "The learner was demoted: to the previous champion, or to a smaller share of rollouts.",
            "tau-live policy list",
        ),
        AlertKind.EXPOSURE_RAISED: About(
            Severity.INFO, "The learner decides a larger share of rollouts.", "tau-live status"
        ),
        AlertKind.LEARNER_STOPPED: About(
            Severity.CRITICAL,
            "The learner of a decision point was stopped and decides nothing there.",
            "tau-live status",
        ),
        AlertKind.PROMPT_WITHDRAWN: About(
            Severity.WARNING,
            "A prompt from `tau-live optimize` was proven worse or unsafe here, and is withdrawn.",
            "tau-live optimize prompts",
        ),
        AlertKind.EXPERIENCE_WITHDRAWN: About(
            Severity.WARNING,
            "A pool of lessons was proven worse or unsafe here, and is withdrawn.",
            "tau-live experience list",
        ),
        AlertKind.LESSONS_QUARANTINED: About(
            Severity.WARNING,
            "Records of lessons were changed by somebody without the key; they are not used.",
            "tau-live experience quarantine list",
        ),
        AlertKind.LEARNER_BEHIND: About(
            Severity.WARNING,
            "More rollouts wait to be learned from than two of the largest updates take.",
            "tau-live status --all",
        ),
        AlertKind.PLUGIN_DISABLED: About(
            Severity.WARNING,
            "A plugin is no longer called. If it redacts, no text is kept, and the host makes its "
            "own choices.",
            "tau-live doctor",
        ),
        AlertKind.TEST: About(
            Severity.INFO, "A test alert, sent by `tau-live alerts test`.", "tau-live alerts"
        ),
    }
)  # fmt: skip
"""Every kind, in the order in which one should read them."""

MOVES: Mapping[str, AlertKind] = MappingProxyType(
    {
        "gate_reset": AlertKind.GATE_RESET,
        "champion_frozen": AlertKind.POLICY_PROMOTED,
        "policy_promote": AlertKind.POLICY_PROMOTED,
        "policy_freeze": AlertKind.POLICY_PROMOTED,
        "champion_returned": AlertKind.POLICY_DEMOTED,
        "policy_reset": AlertKind.POLICY_DEMOTED,
        "policy_rollback": AlertKind.POLICY_DEMOTED,
        "exposure_lowered": AlertKind.POLICY_DEMOTED,
        "exposure_climbed": AlertKind.EXPOSURE_RAISED,
        "learner_stopped": AlertKind.LEARNER_STOPPED,
        "policy_stop": AlertKind.LEARNER_STOPPED,
        "prompt_withdrawn": AlertKind.PROMPT_WITHDRAWN,
        "lessons_quarantined": AlertKind.LESSONS_QUARANTINED,
        "prompt_champion": AlertKind.POLICY_PROMOTED,
    }
)
"""The kind of alert of each action in the audit."""


AUDIT = ("audit", "")
"""The key of the note on the last line of the audit that was read."""


STILL_SAME = 0.95
"""The share of one option above which a collapse lasts: a good policy explores little, so by chance
its choices may all be the same at one check and not at the next."""

FALL, CERTAIN, FALL_OF_LEVEL = 0.5, 8.0, 0.05
"""A fall of the mean reward is at least half a standard deviation, eight standard errors, and a
twentieth of the usual mean."""


_SINCE = "since "
"""Prefix of the mark of missing rewards."""

Notes = Mapping[tuple[str, str], str]
"""The mark of each condition and counter as of the last check, by kind and subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that an operator may be alerted about.

    Attributes:
        kind: The kind of the alert.
        subject: The point, option or plugin that it concerns; empty for the whole store.
        mark: Tells one occurrence from the next.
        sentence: What happened; empty where there is only a mark to note.
        facts: The numbers behind it.
        at: Epoch seconds; ``None`` for now.
    """

    kind: AlertKind
    subject: str = ""
    mark: str
    sentence: str = ""
    facts: JsonObject = field(default_factory=dict)
    at: float | None = None


class _RewardLevel(NamedTuple):
    """The usual mean reward of a point, as a mark holds it.

    Attributes:
        mean: The highest mean so far.
        spread: The standard deviation of rewards at that time.
        at: How many rollouts had become ready when it fell; ``None`` while it has not.
        to: The mean that it fell to; ``None`` while it has not.
    """

    mean: float
    spread: float
    at: int | None = None
    to: float | None = None


def incidents_in(status: Status, notes: Notes, settings: Settings) -> list[Incident]:
    """Return the incidents in the status of a store.

    Args:
        status: The result of ``status_of``, or of ``alert_facts``.
        notes: The notes of earlier checks; some incidents are growth since then.
        settings: Bounds.
    """
    return [
        *_gate(status.gate),
        *map(_host_hold, status.hosts_holding),
        *_kill_switch(status.kill_switch),
        *_drops(status, notes),
        *_missing(status, settings),
        *_points(status.monitors, notes, settings),
        *_behind(status, notes, settings),
        *_reward_falls(status, notes),
        *_disabled_plugins(status),
    ]


def moves(entries: Sequence[AuditEntry]) -> list[Incident]:
    """Return the incidents in lines of the audit."""
    return [
        Incident(
            kind=kind,
            subject=str(entry.details.get("point", "")),
            mark=str(entry.seq),
            sentence=_sentence(entry),
            facts={"action": entry.action, "who": entry.who, **_without_states(entry.details)},
            at=entry.at,
        )
        for entry in entries
        if (kind := _kind_of(entry)) is not None and not entry.details.get("idempotent")
    ]


def _without_states(details: Mapping[str, object]) -> dict[str, object]:
    """Return the details of an order, without those that only `policy undo` needs."""
    return {name: value for name, value in details.items() if name not in {"before", "after"}}


def _kind_of(entry: AuditEntry) -> AlertKind | None:
    """Return the kind of alert of a line of the audit; ``None`` if it raises none."""
    if entry.action == "prompt_withdrawn" and POOL in str(entry.details.get("point")):
        return AlertKind.EXPERIENCE_WITHDRAWN
    if entry.action != "policy_exposure":
        return MOVES.get(entry.action)
    share, before = (real(entry.details.get(name)) or 0.0 for name in ("share", "share_was"))
    if share == before:
        return None
    return AlertKind.EXPOSURE_RAISED if share > before else AlertKind.POLICY_DEMOTED


def _sentence(entry: AuditEntry) -> str:
    point = entry.details.get("point")
    where = f" at {point!r}" if point else ""
    if entry.action in frozenset(Move):
        return f"{entry.action.replace('_', ' ').capitalize()}{where} on evidence: {entry.reason}."
    return f"{entry.action.replace('_', ' ').capitalize()}{where} by {entry.who}: {entry.reason}."


def _gate(gate: GateStatus) -> Iterator[Incident]:
    if gate.holds:
        why = ": ".join(text for text in (gate.reason, gate.detail) if text)
        yield Incident(
            kind=AlertKind.GATE_HOLD,
            mark=str(gate.since),
            sentence=f"The gate holds: {why}.",
            facts={
                "reason": gate.reason, "detail": gate.detail, "since": gate.since,
                "streaks": gate.streaks,
            },
            at=gate.since,
        )  # fmt: skip


def _host_hold(hold: HostHold) -> Incident:
    why = ": ".join(text for text in (hold.reason, hold.detail) if text)
    return Incident(
        kind=AlertKind.GATE_HOLD,
        subject=hold.process,
        mark=str(hold.since),
        sentence=f"{hold.process} holds itself, and no other: {why}.",
        facts=asdict(hold),
        at=hold.since,
    )


def _kill_switch(killed: Stop | None) -> Iterator[Incident]:
    if killed is not None:
        by_variable = killed.reason.startswith(KILL)  # in a changing set of processes
        yield Incident(
            kind=AlertKind.KILL_SWITCH_ON,
            mark=KILL if by_variable else str(killed.at),
            sentence=f"The kill switch is on: {killed}.",
            facts=asdict(killed),
            at=killed.at or None,
        )


def _drops(status: Status, notes: Notes) -> Iterator[Incident]:
    """Yield an incident while events are being dropped, until none was for ten minutes."""
    lost, times = lost_events(status.counters), growth_times(status.counters, notes)
    grown = {name: at for name, at in times.items() if name in lost}
    if any(at is None or status.at - at < 600.0 for at in grown.values()):
        dropped = sum(max(0, lost[name] - _last_mark(notes, name)[0]) for name in grown)
        words = "event was" if dropped == 1 else "events were"
        yield Incident(
            kind=AlertKind.EVENTS_DROPPED,
            mark="dropping",
            sentence=f"{dropped} {words} dropped since the last check; their data is lost.",
            facts={
                "dropped": dropped,
                "total": sum(lost.values()),
                "by_reason": {name.removeprefix(DROPPED): lost[name] for name in lost},
            },
        )


def _missing(status: Status, settings: Settings) -> Iterator[Incident]:
    rewards, limit = status.rewards_missing, _limit(settings)
    if rewards is not None:
        at = status.at if rewards.since is None else rewards.since
        yield Incident(
            kind=AlertKind.REWARDS_MISSING,
            mark=f"{_SINCE}{int(at)}",
            sentence=f"{rewards.missing} of the newest {rewards.settled} rewards are missing; "
            f"the limit is {limit:g}.",
            facts={"missing": rewards.missing, "settled": rewards.settled, "limit": limit},
        )


def missing_now(
    missing: int, settled: int, notes: Notes, settings: Settings
) -> RewardsMissing | None:
    """Return since when too many rewards are missing, and of how many; ``None`` if they are not.

    The condition ends when the share of missing rewards is below half the limit.

    Args:
        missing: How many of the newest settled rollouts have no reward.
        settled: How many of the newest rollouts no longer wait for a reward.
        notes: The notes of the last check.
        settings: The limit of missing rewards.
    """
    mark = notes.get((AlertKind.REWARDS_MISSING.value, ""), "")
    since = mark.removeprefix(_SINCE) if mark.startswith(_SINCE) else ""
    lasts = bool(since) and 2 * missing >= _limit(settings) * settled
    if missing_rewards(settled - missing, missing, _limit(settings)) is None and not lasts:
        return None
    at = float(since) if since.isdecimal() else None
    return RewardsMissing(since=at, missing=missing, settled=settled)


def _limit(settings: Settings) -> float:
    # the default where `TAU_LIVE_RL_MISSING_REWARD_LIMIT` is not set
    return settings.missing_reward_limit or 0.5


def _points(
    monitors: Mapping[str, PointFigures], notes: Notes, settings: Settings
) -> Iterator[Incident]:
    for point, figures in monitors.items():
        mark = notes.get((AlertKind.CHOICES_COLLAPSED.value, point))
        yield from _collapse(point, figures, settings, lasts=bool(mark))
        yield from _worse_options(point, figures)


def _collapse(
    point: str, figures: PointFigures, settings: Settings, *, lasts: bool
) -> Iterator[Incident]:
    choices, entropy, share = figures.decisions, figures.entropy, figures.option_share
    if choices < FEWEST or entropy is None or share is None:
        return
    floor, most = settings.entropy_floor, settings.option_share_limit
    if floor is None and most is None:
        # without a setting, 256 choices of one option alone are a collapse
        collapsed = share >= (STILL_SAME if lasts else 1.0) and choices >= 256
    else:
        wider = STILL_SAME if lasts else 1.0
        collapsed = entropy * wider < (floor or 0.0) or (most is not None and share > most * wider)
    if collapsed:
        yield Incident(
            kind=AlertKind.CHOICES_COLLAPSED,
            subject=point,
            mark="collapsed",
            sentence=(
                f"{figures.option!r} is {share:.0%} of the newest {choices} choices at {point!r}."
            ),
            facts={
                "point": point, "option": figures.option, "option_share": share, "entropy": entropy,
                "decisions": choices, "entropy_floor": floor, "option_share_limit": most,
            },
        )  # fmt: skip


def _worse_options(point: str, figures: PointFigures) -> Iterator[Incident]:
    worse = (alarm for alarm in figures.drift if alarm.direction is Direction.WORSE)
    for option, alarm in {alarm.option: alarm for alarm in worse}.items():  # the newest of each
        yield Incident(
            kind=AlertKind.OPTION_WORSE,
            subject=f"{point}: {option}",
            mark=str(alarm.ready_seq),
            sentence=(
                f"Option {option!r} at {point!r} became worse by {abs(alarm.shift):.2g} standard "
                f"deviations, about {alarm.since} of its decisions ago."
            ),
            facts={"point": point, **asdict(alarm)},
        )


def _behind(status: Status, notes: Notes, settings: Settings) -> Iterator[Incident]:
    """Yield the points where the learner is behind; none while learning is paused."""
    if Part.LEARNING.value in status.paused:
        return
    most = 2 * CATCH_UP_FACTOR * settings.max_rollouts_per_update
    for point, backlog in status.behind.items():
        lasts = bool(notes.get((AlertKind.LEARNER_BEHIND.value, point)))
        if backlog.ready > (most // 2 if lasts else most):
            yield Incident(
                kind=AlertKind.LEARNER_BEHIND,
                subject=point,
                mark="behind",
                sentence=f"{backlog.ready} rollouts of {point!r} wait to be learned from.",
                facts={"point": point, "ready": backlog.ready, "limit": most},
            )


def _reward_falls(status: Status, notes: Notes) -> Iterator[Incident]:
    """Yield where the mean reward fell, and the usual means to note."""
    ready = status.became_ready
    for point, figures in status.monitors.items():
        count, mean, spread = figures.rollouts, figures.reward_mean, figures.reward_spread
        if mean is None or spread is None or count < FEWEST:
            continue
        level = _reward_level(notes.get((AlertKind.REWARD_FELL.value, point), ""))
        if level is None or (level.at is None and mean > level.mean):
            yield _reward(point, _RewardLevel(mean, spread))
            continue
        margin = _margin(max(spread, level.spread), count, near=level.mean)
        if level.at is None and level.mean - mean > margin:
            yield _reward(point, level._replace(at=ready, to=mean), count=count)
        elif level.at is not None and level.mean - mean < margin / 2.0:
            yield _reward(point, level._replace(at=None, to=None))
        # after ten times the rollouts of a mean, the lower level is the usual one
        elif level.at is not None and ready - level.at > 10 * count:
            yield _reward(point, _RewardLevel(mean, spread))


def _reward(point: str, usual: "_RewardLevel", *, count: int = 0) -> Incident:
    return Incident(
        kind=AlertKind.REWARD_FELL,
        subject=point,
        mark=" ".join("-" if number is None else repr(number) for number in usual),
        sentence=(
            f"The mean reward at {point!r} fell from {usual.mean:.3g} to {usual.to:.3g} "
            f"(the newest {count} rollouts)."
            if count
            else ""
        ),
        facts={"point": point, "was": usual.mean, "is": usual.to, "rollouts": count},
    )


def _margin(spread: float, count: int, *, near: float) -> float:
    """Return how far a mean must fall: more than chance moves the highest of many means."""
    return max(spread * max(FALL, CERTAIN / sqrt(count)), FALL_OF_LEVEL * abs(near))


def _reward_level(mark: str) -> "_RewardLevel | None":
    try:
        mean, spread, at, to = (None if word == "-" else float(word) for word in mark.split())
    except ValueError:  # no mark, or an edited one
        return None
    if mean is None or spread is None:
        return None
    return _RewardLevel(mean, spread, None if at is None else int(at), to)


def reward_falls(notes: Notes) -> dict[str, RewardFall]:
    """Return, by point, the mean reward before and after a fall that lasts.

    Args:
        notes: The notes of the last check.
    """
    fell = AlertKind.REWARD_FELL
    levels = {point: _reward_level(mark) for (kind, point), mark in notes.items() if kind == fell}
    return {
        point: RewardFall(was=level.mean, fell_to=level.to)
        for point, level in sorted(levels.items())
        if level is not None and level.to is not None
    }


def _disabled_plugins(status: Status) -> Iterator[Incident]:
    """Yield each plugin that a process no longer calls."""
    disabled = status.plugins_disabled
    for plugin, report in {report.plugin: report for report in disabled}.items():
        yield Incident(
            kind=AlertKind.PLUGIN_DISABLED,
            subject=plugin,
            mark="disabled",
            sentence=f"Plugin {plugin!r} is disabled: {report.problem}.",
            facts=asdict(report),
        )


GREW = "grew"
"""The kind of the notes about counters; the subject is the counter's name."""

RESOLUTION_S = 60.0
"""How often a counter that grows all the time is noted at most."""

RECENT_S = 86_400.0
"""How long ago counts as recent."""

_MISSED = tuple(
    f"{LEFT_OUT}{reason}" for reason in (WhyNot.REWARD_MISSING, WhyNot.REWARD_OUT_OF_RANGE)
)


def marks(counters: Mapping[str, int], notes: Notes, *, now: float) -> dict[str, str]:
    """Return the notes to write now, by counter: its value, and when that was seen.

    Args:
        counters: The counters.
        notes: The notes of earlier checks.
        now: Epoch seconds.
    """
    changed: dict[str, str] = {}
    for name, value in _watched_counters(counters).items():
        before, at = _last_mark(notes, name)
        if value < before:  # restored, or started anew
            changed[name] = f"{value} {now if at is None else at}"
        elif value > before and not (at is not None and 0.0 <= now - at < RESOLUTION_S):
            changed[name] = f"{value} {now}"
    return changed


def growth_times(counters: Mapping[str, int], notes: Notes) -> dict[str, float | None]:
    """Return when each counter of drops last grew, as of the last check.

    Args:
        counters: The counters.
        notes: The notes of earlier checks.

    Returns:
        Epoch seconds by counter, late by at most the time between checks; ``None`` where it grew
        since the last check, however long ago that is.
    """
    times: dict[str, float | None] = {}
    for name, value in _watched_counters(counters).items():
        before, at = _last_mark(notes, name)
        times[name] = at if value <= before else None
    return times


def is_recent(at: float | None, *, now: float) -> bool:
    """Whether a time is within the last day; an unknown one may be just now."""
    return at is None or now - at < RECENT_S


def _watched_counters(counters: Mapping[str, int]) -> dict[str, int]:
    drops = drops_of(counters)
    return drops | {
        name: count
        for name, count in counters.items()
        if count and (name in (RERUNS, *_MISSED) or name.startswith(FOREIGN_DEFAULT))
    }


def _last_mark(notes: Notes, name: str) -> tuple[int, float | None]:
    try:
        value, at = notes.get((GREW, name), "0 ").split(" ")
        return int(value), float(at) if at else None
    except ValueError:  # an edited mark
        return 0, None
