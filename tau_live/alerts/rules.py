"""Which alerts follow from the state of a store. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import NamedTuple

from tau_live.alerts.kinds import EXPOSURE, MOVES, Kind
from tau_live.handed.reading import integer, mapping, real, sequence
from tau_live.learning.learner import LARGER
from tau_live.learning.quality import FEWEST, missing_rewards
from tau_live.pauses import Part
from tau_live.reasons import DROPPED, lost_events
from tau_live.rl.drift import Direction
from tau_live.settings import Settings
from tau_live.store.alert_log import Noted
from tau_live.store.records import AuditEntry
from tau_live.switch import KILL
from tau_live.trials.rules import Move

AUDIT = ("audit", "")
"""Where it is noted up to which line the audit has been read."""

MISSING_SHARE = 0.5
"""Of rewards that never come, where ``TAU_LIVE_RL_MISSING_REWARD_LIMIT`` says nothing."""

SAME_CHOICES = 256
"""So many choices of one option alone are a collapse, where no setting bounds them."""

STILL_SAME = 0.95
"""A collapse lasts until another option has more than the rest of it: a good policy explores
little, so that by chance all are the same now, and one is not the next moment."""

FALL, CERTAIN, FALL_OF_LEVEL = 0.5, 8.0, 0.05
"""A reward fell by at least half a standard deviation, by eight standard errors, and by a twentieth
of what it was."""

SETTLED = 10
"""After so many times the rollouts of a mean what it fell to is what it is."""

_SINCE = "since "
"""Begins the mark of rewards that are missing."""

NotedAll = Mapping[tuple[str, str], Noted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something that was found.

    Attributes:
        kind: What it is.
        subject: What it concerns; empty for all of it.
        mark: Tells one occurrence from the next.
        sentence: What happened; empty where it is only to be noted.
        facts: The numbers behind it.
        at: Epoch seconds; ``None`` for now.
        lasts: Whether it is told later if it lasts until then, and is over once it is not found.
        grows: Whether it is told by the next one, with its numbers, if it may not be told now.
    """

    kind: Kind
    subject: str = ""
    mark: str
    sentence: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None
    lasts: bool = False
    grows: bool = False


class _Usual(NamedTuple):
    """What the mean reward of a point is when all is well, as a mark holds it.

    Attributes:
        mean: The highest that was seen.
        spread: The standard deviation of rewards then.
        at: How many rollouts had become ready when it fell; ``None`` while it has not.
        to: What it fell to.
    """

    mean: float
    spread: float
    at: int | None = None
    to: float | None = None


def found_in(status: Mapping[str, object], noted: NotedAll, settings: Settings) -> list[Found]:
    """Return what ``status_of`` says that somebody should hear of.

    Args:
        status: What it says.
        noted: What was noted before; some things are told by how much they grew since.
        settings: Bounds.
    """
    return [
        *_gate(mapping(status.get("gate"))),
        *_kill_switch(mapping(status.get("kill_switch"))),
        *_drops(mapping(status.get("counters")), noted),
        *_missing(status, settings),
        *_points(mapping(status.get("monitors")), noted, settings),
        *_behind(status, noted, settings),
        *_fallen(status, noted),
        *_plugins(status),
    ]


def moves(entries: Sequence[AuditEntry]) -> list[Found]:
    """Return what lines of the audit say that somebody should hear of."""
    return [
        Found(
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
    """Return what an order says of itself, without what only `policy undo` needs."""
    return {name: value for name, value in details.items() if name not in {"before", "after"}}


def _kind_of(entry: AuditEntry) -> Kind | None:
    """Return what a line of the audit is an alert of; an operator's share goes up or down."""
    if entry.action != EXPOSURE:
        return MOVES.get(entry.action)
    share, was = (real(entry.details.get(name)) or 0.0 for name in ("share", "share_was"))
    if share == was:
        return None
    return Kind.EXPOSURE_RAISED if share > was else Kind.POLICY_DEMOTED


def _sentence(entry: AuditEntry) -> str:
    point = entry.details.get("point")
    where = f" at {point!r}" if point else ""
    if entry.action in frozenset(Move):
        return f"{entry.action.replace('_', ' ').capitalize()}{where} on evidence: {entry.reason}."
    return f"{entry.action.replace('_', ' ').capitalize()}{where} by {entry.who}: {entry.reason}."


def _gate(gate: Mapping[str, object]) -> Iterator[Found]:
    if gate.get("state") == "hold":
        since = gate.get("since")
        why = ": ".join(str(gate[name]) for name in ("reason", "detail") if gate.get(name))
        yield Found(
            kind=Kind.GATE_HOLD,
            mark=str(since),
            sentence=f"The gate holds: {why}.",
            facts={name: gate.get(name) for name in ("reason", "detail", "since", "streaks")},
            at=real(since) or None,
            lasts=True,
        )


def _kill_switch(killed: Mapping[str, object]) -> Iterator[Found]:
    if killed:
        inside = str(killed.get("reason")).startswith(KILL)  # in ever more processes
        by = f" ({killed['who']})" if killed.get("who") else ""
        yield Found(
            kind=Kind.KILL_SWITCH_ON,
            mark=KILL if inside else str(killed.get("at")),
            sentence=f"The kill switch is on: {killed.get('reason')}{by}.",
            facts=killed,
            at=real(killed.get("at")) or None,
            lasts=True,
        )


def _drops(counters: Mapping[str, object], noted: NotedAll) -> Iterator[Found]:
    lost = lost_events({name: integer(value) for name, value in counters.items()})
    by_reason = {name.removeprefix(DROPPED): value for name, value in lost.items()}
    total = sum(lost.values())
    new = total - _marked(noted, Kind.EVENTS_DROPPED)
    if new > 0:
        words = "event was" if new == 1 else "events were"
        since = "since the last such alert"
        yield Found(
            kind=Kind.EVENTS_DROPPED,
            mark=str(total),
            sentence=f"{new} {words} dropped {since}; their data is lost.",
            facts={"dropped": new, "total": total, "by_reason": by_reason},
            grows=True,
        )


def _missing(status: Mapping[str, object], settings: Settings) -> Iterator[Found]:
    found = mapping(status.get("rewards_missing"))
    if found:
        missing, settled = integer(found.get("missing")), integer(found.get("settled"))
        limit, since = _limit(settings), real(found.get("since"))
        at = real(status.get("at")) or 0.0 if since is None else since
        yield Found(
            kind=Kind.REWARDS_MISSING,
            mark=f"{_SINCE}{int(at)}",
            sentence=f"{missing} of the newest {settled} rewards are missing; "
            f"the limit is {limit:g}.",
            facts={"missing": missing, "settled": settled, "limit": limit},
            lasts=True,
        )


def missing_now(
    missing: int, settled: int, noted: NotedAll, settings: Settings
) -> dict[str, object] | None:
    """Return since when too many rewards are missing, and of how many; ``None`` if they are not.

    Once so, it is over when fewer than half as many are.

    Args:
        missing: Of the newest rollouts that wait for no reward, those without one.
        settled: How many these are.
        noted: What was noted by whoever looked last.
        settings: How many may be missing.
    """
    known = noted.get((Kind.REWARDS_MISSING.value, ""))
    mark = known.mark if known is not None else ""
    since = mark.removeprefix(_SINCE) if mark.startswith(_SINCE) else ""
    lasts = bool(since) and 2 * missing >= _limit(settings) * settled
    if missing_rewards(settled - missing, missing, _limit(settings)) is None and not lasts:
        return None
    at = float(since) if since.isdecimal() else None
    return {"since": at, "missing": missing, "settled": settled}


def _limit(settings: Settings) -> float:
    return settings.missing_reward_limit or MISSING_SHARE


def _points(monitors: Mapping[str, object], noted: NotedAll, settings: Settings) -> Iterator[Found]:
    for point, found in monitors.items():
        figures = mapping(found)
        was = noted.get((Kind.CHOICES_COLLAPSED.value, point))
        yield from _collapse(point, figures, settings, lasts=was is not None and bool(was.mark))
        yield from _worse(point, figures)


def _collapse(
    point: str, figures: Mapping[str, object], settings: Settings, *, lasts: bool
) -> Iterator[Found]:
    if integer(figures.get("decisions")) < FEWEST or figures.get("entropy") is None:
        return
    entropy, share = (real(figures.get(name)) or 0.0 for name in ("entropy", "option_share"))
    choices, option = integer(figures.get("decisions")), figures.get("option")
    floor, most = settings.entropy_floor, settings.option_share_limit
    if floor is None and most is None:
        collapsed = share >= (STILL_SAME if lasts else 1.0) and choices >= SAME_CHOICES
    else:
        wider = STILL_SAME if lasts else 1.0
        collapsed = entropy * wider < (floor or 0.0) or (most is not None and share > most * wider)
    if collapsed:
        yield Found(
            kind=Kind.CHOICES_COLLAPSED,
            subject=point,
            mark="collapsed",
            sentence=f"{option!r} is {share:.0%} of the newest {choices} choices at {point!r}.",
            facts={
                "point": point, "option": option, "option_share": share, "entropy": entropy,
                "decisions": choices, "entropy_floor": floor, "option_share_limit": most,
            },
            lasts=True,
        )  # fmt: skip


def _worse(point: str, figures: Mapping[str, object]) -> Iterator[Found]:
    alarms = figures.get("drift")
    newest: dict[str, Mapping[str, object]] = {}
    for alarm in map(mapping, alarms if isinstance(alarms, list) else ()):
        if alarm.get("direction") == Direction.WORSE.value:
            newest[str(alarm.get("option"))] = alarm
    for option, alarm in newest.items():
        shift, since = real(alarm.get("shift")) or 0.0, alarm.get("since")
        yield Found(
            kind=Kind.OPTION_WORSE,
            subject=f"{point}: {option}",
            mark=str(alarm.get("ready_seq")),
            sentence=(
                f"Option {option!r} at {point!r} became worse by {abs(shift):.2g} standard "
                f"deviations, about {since} of its decisions ago."
            ),
            facts={"point": point, **alarm},
        )


def _behind(status: Mapping[str, object], noted: NotedAll, settings: Settings) -> Iterator[Found]:
    """Yield the points where the learner falls behind; nothing where an operator paused it."""
    if Part.LEARNING.value in mapping(status.get("paused")):
        return
    most = 2 * LARGER * settings.max_rollouts_per_update
    for point, found in mapping(status.get("behind")).items():
        ready = integer(mapping(found).get("ready"))
        was = noted.get((Kind.LEARNER_BEHIND.value, point))
        if ready > (most // 2 if was is not None and was.mark else most):
            yield Found(
                kind=Kind.LEARNER_BEHIND,
                subject=point,
                mark="behind",
                sentence=f"{ready} rollouts of {point!r} wait to be learned from.",
                facts={"point": point, "ready": ready, "limit": most},
                lasts=True,
            )


def _fallen(status: Mapping[str, object], noted: NotedAll) -> Iterator[Found]:
    """Yield where the mean reward fell, and note what it was before."""
    ready = integer(status.get("became_ready"))
    for point, found in mapping(status.get("monitors")).items():
        figures = mapping(found)
        count = integer(figures.get("rollouts"))
        mean, spread = real(figures.get("reward_mean")), real(figures.get("reward_spread"))
        if mean is None or spread is None or count < FEWEST:
            continue
        known = noted.get((Kind.REWARD_FELL.value, point))
        was = _usual(known)
        if was is None or (was.at is None and mean > was.mean):
            yield _reward(point, _Usual(mean, spread))
            continue
        margin = _margin(max(spread, was.spread), count, near=was.mean)
        if was.at is None and was.mean - mean > margin:
            yield _reward(point, was._replace(at=ready, to=mean), count=count)
        elif was.at is not None and known is not None and not known.told:
            yield _reward(point, was, count=count)
        elif was.at is not None and was.mean - mean < margin / 2.0:
            yield _reward(point, was._replace(at=None, to=None))
        elif was.at is not None and ready - was.at > SETTLED * count:
            yield _reward(point, _Usual(mean, spread))


def _reward(point: str, usual: "_Usual", *, count: int = 0) -> Found:
    return Found(
        kind=Kind.REWARD_FELL,
        subject=point,
        mark=" ".join("-" if number is None else repr(number) for number in usual),
        sentence=(
            f"The mean reward at {point!r} fell from {usual.mean:.3g} to {usual.to:.3g} "
            f"(the newest {count} rollouts)."
            if count
            else ""
        ),
        facts={"point": point, "was": usual.mean, "is": usual.to, "rollouts": count},
        lasts=True,
    )


def _margin(spread: float, count: int, *, near: float) -> float:
    """Return how far a mean must fall: more than chance moves the largest of many of them."""
    return max(spread * max(FALL, CERTAIN / sqrt(count)), FALL_OF_LEVEL * abs(near))


def _usual(known: Noted | None) -> "_Usual | None":
    words = known.mark.split() if known else []
    try:
        mean, spread, at, to = (None if word == "-" else float(word) for word in words)
    except ValueError:  # nothing, or somebody has spoiled it
        return None
    if mean is None or spread is None:
        return None
    return _Usual(mean, spread, None if at is None else int(at), to)


def fallen_now(noted: NotedAll) -> dict[str, dict[str, float]]:
    """Return by point from what to what the mean reward fell, while that lasts.

    Args:
        noted: What was noted by whoever looked last.
    """
    usual = {point: _usual(one) for (kind, point), one in noted.items() if kind == Kind.REWARD_FELL}
    return {
        point: {"was": one.mean, "fell_to": one.to}
        for point, one in sorted(usual.items())
        if one is not None and one.to is not None
    }


def _plugins(status: Mapping[str, object]) -> Iterator[Found]:
    """Yield each plugin that is not called any more, in whichever process."""
    disabled = map(mapping, sequence(status.get("plugins_disabled")))
    for plugin, one in {str(one.get("plugin")): one for one in disabled}.items():
        yield Found(
            kind=Kind.PLUGIN_DISABLED,
            subject=plugin,
            mark="disabled",
            sentence=f"Plugin {plugin!r} is disabled: {one.get('problem')}.",
            facts=one,
            lasts=True,
        )


def _marked(noted: NotedAll, kind: Kind) -> int:
    """Return the number that was noted of a kind; 0 without any."""
    known = noted.get((kind.value, ""))
    words = [word for word in known.mark.split() if word.isdecimal()] if known else []
    return int(words[0]) if words else 0
