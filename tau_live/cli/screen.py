"""One screen: is it on, is it healthy, is it learning, what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tau_live.cli.curve import curve
from tau_live.cli.details import counted_of, excess_of, last_update
from tau_live.cli.output import NARROW, joined, safe, styled
from tau_live.cli.text import clipped, moment, number, percent, seconds, shown, since
from tau_live.handed.reading import counts, integer, mapping, real
from tau_live.reporting.facts import Answer, Mean, Stretch
from tau_live.reporting.glance import Glance
from tau_live.reporting.summary import (
    BAD,
    DOUBTFUL,
    GOOD,
    disabled_plugins,
    fallen,
    faults_of,
    held_in_memory,
    one_of,
)

STYLES: Mapping[str, str] = {GOOD: "bold green", DOUBTFUL: "bold yellow", BAD: "bold red"}
VERDICTS: Mapping[str, str] = {
    "promote": "proven better",
    "better": "proven better, but not yet enough for a promotion",
    "kept": "proven better",
    "wait": "not proven yet",
    "futile": "practically proven no better",
    "unsafe": "safety cost too high",
    "unequal_missing": "rewards missing unevenly",
    "out_of_range": "rewards outside their range",
}
"""Each verdict in words."""

WIDEST = 64
"""So wide the reward curve is at most."""

LABEL = 17
POINTS = 3
"""So many decision points are shown, the busiest."""

DROPS = 3
LINES = 3
"""So many lines one thing may take; what is longer is cut, and whole in ``status --all``."""

SPACED = 3
"""On this level there is an empty line above each answer."""


class Row(NamedTuple):
    """One thing that is said.

    Attributes:
        name: What it is about.
        said: Line by line.
        level: 0 is one of the four answers, 1 belongs to one, 2 is left out first.
        word: The answer.
    """

    name: str
    said: Sequence[Text]
    level: int = 1
    word: Text | None = None


def screen_of(glance: Glance, console: Console, *, height: int | None = None) -> RenderableType:
    """Return the screen, with as much on it as there is room for.

    Args:
        glance: What there is to see.
        console: How wide it is.
        height: So many lines at most, as far as the four answers find room; ``None`` is no limit.
    """
    for level in (SPACED, 2, 1):
        found = _drawn(glance, console, level=level)
        if height is None or lines_of(found, console) <= height:
            return found
    return _drawn(glance, console, level=0)


def lines_of(found: RenderableType, console: Console) -> int:
    """Return how many lines something takes."""
    return len(console.render_lines(found, pad=False))


def heading(what: str, *, at: float, width: int) -> Text:
    """Return the first line: what is looked at, and when."""
    when = f"{moment(at)} UTC"
    room = width - len(when) - 2
    if room < len("tau-live") + len(when):
        return safe(_named(what, width), "bold")
    return joined(safe(_named(what, room), "bold"), safe(f"  {when}", "dim"))


def _named(what: str, room: int) -> str:
    """Return the name with what is looked at, whose end tells one from another."""
    name, path = "tau-live · ", shown(what)
    over = len(name + path) - room
    return name + (f"…{path[over + 1 :]}" if over > 0 else path)


def _drawn(glance: Glance, console: Console, *, level: int) -> Group:
    width = console.width
    rows = [row for row in _rows(glance, width=width) if row.level <= level]
    first = heading(str(glance.status["store"]), at=glance.at, width=width)
    spaced = level == SPACED
    told = _narrow(rows, spaced=spaced) if width < NARROW else [_wide(rows, spaced=spaced)]
    return Group(first, *told)


def _wide(rows: Sequence[Row], *, spaced: bool) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=LABEL - 1)
    table.add_column(overflow="fold")
    for row in rows:
        if spaced and not row.level:
            table.add_row("", "")
        said = list(row.said)
        if row.word is not None:
            said = [joined(row.word, safe("  "), said[0])] if said else [row.word]
        table.add_row(_label(row), Group(*said))
    return table


def _narrow(rows: Sequence[Row], *, spaced: bool) -> Iterator[RenderableType]:
    for row in rows:
        if spaced and not row.level:
            yield ""
        label, said = _label(row), list(row.said)
        if row.word is not None:
            yield joined(label, safe("  "), row.word)
        elif row.level and len(said) == 1 and len(label) + len(said[0]) < NARROW // 2:
            yield joined(label, safe(": "), said[0])
            continue
        else:
            yield label
        for part in said:
            part.overflow = "fold"
            yield Padding(part, (0, 0, 0, 4 if row.level else 2))


def _label(row: Row) -> Text:
    return safe(f"  {row.name}", "dim") if row.level else safe(row.name, "bold")


def _rows(glance: Glance, *, width: int) -> Iterator[Row]:
    room = max(20, width - (LABEL if width >= NARROW else 4))
    summary = glance.summary
    yield Row("Is it on?", [safe(_cut(summary.on.said, room))], 0, _word(summary.on))
    yield from _stops(glance, room)
    is_well = summary.healthy.state == GOOD
    well = [safe(_cut(summary.healthy.said, room))] if is_well else []
    yield Row("Is it healthy?", well, 0, _word(summary.healthy))
    yield from () if is_well else _health(glance, room)
    why = [safe(_cut(summary.learning.said, room))] if summary.learning.state != GOOD else []
    yield Row("Is it learning?", why, 0, _word(summary.learning))
    yield from _learning(glance, room)
    yield Row("What next?", list(_next(summary.next, room)), 0)


def _stops(glance: Glance, room: int) -> Iterator[Row]:
    """Yield since when what an operator stopped has been so."""
    killed = mapping(glance.status["kill_switch"])
    if killed:
        yield Row("killed", [safe(_ago(real(killed["at"]), glance.at))])
    since = [
        f"{part} {_ago(real(mapping(pause)['at']), glance.at)}"
        for part, pause in mapping(glance.status["paused"]).items()
    ]
    if since:
        yield Row("paused", [safe(_cut(", ".join(since), room))])


def _word(answer: Answer) -> Text:
    return safe(answer.answer, STYLES[answer.state])


def _next(advice: Sequence[str], room: int) -> Iterator[Text]:
    yield safe(_cut(_unquoted(advice[0]), room, lines=5), "bold")
    if len(advice) > 1:
        yield safe(f"({len(advice) - 1} more suggested by tau-live status --all)", "dim")


def _unquoted(advice: str) -> str:
    """Return an advice without quotes, and its last command without the stop behind it."""
    return (advice[:-1] if advice.endswith("`.") else advice).replace("`", "")


def _health(glance: Glance, room: int) -> Iterator[Row]:
    gate = mapping(glance.status["gate"])
    held = ""
    if gate["state"] != "pass":
        why = ": ".join(str(gate[name]) for name in ("reason", "detail") if gate[name])
        held = f" since {_ago(real(gate['since']), glance.at)}; {_cut(why, room)}"
    yield Row("gate", [joined(styled(gate["state"]), safe(held))])
    holds = held_in_memory(glance.status)
    if holds:
        yield Row("held in memory", [safe(_cut(holds, room), "red")])
    streaks = {kind: count for kind, count in counts(gate["streaks"]).items() if count}
    said = ", ".join(f"{kind} {count}" for kind, count in streaks.items())
    told = f"{said} in a row" if said else "none in a row"
    yield Row("failures", [safe(told, "yellow" if said else "")])
    dropped = safe(_cut(_drops(glance), room), "yellow" if glance.drops else "")
    yield Row("dropped", [dropped])
    for name, said, style in _doubts(glance):
        yield Row(name, [safe(_cut(said, room), style)])


def _doubts(glance: Glance) -> Iterator[tuple[str, str, str]]:
    """Yield what is not as it should be: a word for it, what is said, and in which style."""
    status = glance.status
    for about, told in faults_of(status).items():
        yield about, told, "red"
    missing = mapping(status["rewards_missing"])
    if missing:
        of = f"{number(real(missing['missing']))} of {number(real(missing['settled']))}"
        since = real(missing["since"])
        when = "" if since is None else f"; since {_ago(since, glance.at)}"
        told = f"{of} of the newest rewards{when}"
        yield "missing", told, "yellow"
    for told in fallen(status):
        yield "reward fell", told, "yellow"
    for about, told in glance.doubts.items():
        yield about, told, "yellow"
    for told in disabled_plugins(status):
        yield "plugin", told, "red"
    silent = mapping(status["silent"])
    if silent:
        told = ", ".join(f"{who} for {seconds(real(s))}" for who, s in silent.items())
        yield "cannot write", told, "red"
    beyond = str(excess_of(mapping(status["retention"])))
    if beyond:
        yield "over retention", beyond, "yellow"


def _drops(glance: Glance) -> str:
    """Return in words what was dropped lately, and when the last of it was."""
    drops, grew = glance.drops, mapping(glance.status["counters_grew"])
    if not drops:
        return "nothing in the last day"
    most = [f"{number(count)} {name}" for name, count in list(drops.items())[:DROPS]]
    rest = sum(list(drops.values())[DROPS:])
    times = [at for name in drops if (at := real(grew.get(name))) is not None]
    last = f"; last {_ago(max(times), glance.at)}" if len(times) == len(drops) else ""
    return ", ".join(most) + (f", {number(rest)} others" if rest else "") + last


def _learning(glance: Glance, room: int) -> Iterator[Row]:
    status, points = glance.status, list(glance.points)
    versions = [f"{one}: {_version(status, one)}" for one in points[:POINTS]]
    yield Row("versions", [safe(_cut(_listed(versions, points), room))])
    report = mapping(status["last_report"])
    when = f", {_ago(real(report['at']), glance.at)}" if report else ""
    yield Row("last update", [safe(_cut(last_update(report) + when, room))])
    yield Row("rollouts", [safe(_cut(_rollouts(glance), room))], 2)
    yield from _reward(glance.stretches, room)
    for told, at in _differences(glance, points[:POINTS]).items():
        level = 1 if points[0] in at else 2
        yield Row("difference", [safe(_cut(f"{one_of(at)}: {told}", room))], level)
    latest = glance.latest
    if latest is not None:
        where = f" at {latest.point}" if latest.point else ""
        by = "" if latest.who.count(":") > 1 else f" ({latest.who})"  # the gate, in a process
        told = f"{_ago(latest.at, glance.at)}{where}: {latest.said}{by}"
        yield Row("last change", [safe(_cut(told, room, lines=2))])


def _listed(said: Sequence[str], points: Sequence[str]) -> str:
    more = len(points) - len(said)
    return "; ".join(said) + (f"; {more} more" if more else "") if said else "none yet"


def _version(status: Mapping[str, object], point: str) -> str:
    """Return in words what serves a point, and how much that decides."""
    one = mapping(mapping(status["in_service"]).get(point))
    told = (
        f"version {one['version']} (from {one['rollouts']} rollouts)"
        if one.get("version")
        else "untrained"
    )
    pinned = ", pinned" if one.get("pinned") else ""
    trial = mapping(mapping(status["trials"]).get(point))
    decides = f", decides {percent(real(trial['exposure']) or 0.0)}" if trial else ""
    champion = trial.get("champion")
    proven = f", champion: version {champion}" if champion is not None else ""
    return f"{told}{pinned}{decides}{proven}"


def _differences(glance: Glance, points: Sequence[str]) -> dict[str, list[str]]:
    """Return what is said of differences, each with the points that it is said of."""
    found: dict[str, list[str]] = {}
    for point in points:
        trial = mapping(mapping(glance.status["trials"]).get(point))
        if trial:
            told = f"{_difference(trial)}{counted_of(trial, now=glance.at)}"
            found.setdefault(told, []).append(point)
    return found


def _difference(trial: Mapping[str, object]) -> str:
    """Return the difference with its interval in words, or what keeps it unknown."""
    found = mapping(trial["difference"])
    estimate, lower, upper = (real(found[name]) for name in ("estimate", "lower", "upper"))
    over = "over the host" if trial["control"] is None else f"over version {trial['control']}"
    if estimate is None:
        told = "not known yet"
    elif lower is None or upper is None:
        told = f"{estimate:+.3g} {over}, unproven difference of means"
    else:
        verdict = str(trial["verdict"])
        if verdict == "wait" and lower > 0.0:
            verdict = "kept" if trial["kept"] else "better"
        told = f"{estimate:+.3g} ({lower:+.3g} to {upper:+.3g}) {over}"
        told += f", {VERDICTS.get(verdict, verdict)}"
    return f"{told}; {trial['why']}" if trial["why"] else told


def _rollouts(glance: Glance) -> str:
    status = glance.status
    ends, waiting = counts(status["rollouts"]), integer(status["waiting_for_reward"])
    lost = (f"{number(ends[end])} {end}" for end in ("failed", "cancelled") if ends[end])
    told = ", ".join(lost)
    ready = max(counts(status["ready_to_learn"]).values(), default=0)
    rewarded = real(status["last_reward_at"])
    behind = " (the learner is behind)" if status["behind"] else ""
    parts = (
        f"{number(ends['completed'])} ended" + (f" ({told})" if told else ""),
        f"{number(ends['open'])} open" if ends["open"] else "",
        f"{number(waiting)} without a reward yet" if waiting else "",
        f"{number(ready)} ready to learn{behind}" if ready else "",
        f"last reward {_ago(rewarded, glance.at)}" if rewarded is not None else "",
    )
    return ", ".join(part for part in parts if part)


def _reward(stretches: Sequence[Stretch], room: int) -> Iterator[Row]:
    means = [one.reward for one in stretches]
    known = [one for one in means if one.mean is not None]
    if len(known) > 1:
        yield Row("reward", curve(means, width=min(room, WIDEST)), 2)
        ends = f"first {_mean(known[0])}, latest {_mean(known[-1])}"
        yield Row("█ mean ░ 95 %", [safe(ends)])
    elif known:
        yield Row("reward", [safe(f"{_mean(known[0])} mean of {number(known[0].count)}")])
    else:
        yield Row("reward", [safe("none yet")])


def _mean(one: Mean) -> str:
    if one.lower is None or one.upper is None:
        return number(one.mean)
    return f"{one.mean:.3g} ({one.lower:.3g} to {one.upper:.3g})"


def _ago(at: float | None, now: float) -> str:
    return "-" if at is None else since(at, now=now)


def _cut(text: str, room: int, *, lines: int = LINES) -> str:
    return clipped(shown(text), lines * room - room // 4)
