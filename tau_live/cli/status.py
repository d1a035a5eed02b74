"""``tau-live status``: state, health and next steps on one screen."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tau_live.cli.options import epilog, is_enabled, json_option, open_store, store_option
from tau_live.cli.output import (
    NARROW,
    ago,
    clip,
    console_of,
    facts_of,
    join_texts,
    moment,
    number,
    percent,
    print_json,
    print_on,
    printable,
    safe,
    seconds,
    since,
    status_text,
)
from tau_live.cli.power import curve
from tau_live.core.errors import StoreBusyError
from tau_live.core.sanitize import counts, integer, mapping, real, sequence
from tau_live.operate.report.facts import Answer, Mean, Stretch
from tau_live.operate.report.summary import (
    BAD,
    DOUBTFUL,
    GOOD,
    Glance,
    disabled_plugins,
    fallen,
    faults_of,
    glance_of,
    held_in_memory,
    one_of,
)
from tau_live.operate.status import status_of
from tau_live.operate.stops import ended_by
from tau_live.record.archive import Excess
from tau_live.store.opening import why_unwritable
from tau_live.store.retention import Kept

Fact = tuple[str, object]


def details(status: Mapping[str, object], *, now: float) -> list[Fact]:
    """Return every figure of a status with its name; ``None`` where there is none.

    Args:
        status: The status, as of ``status_of``.
        now: Epoch seconds, UTC.
    """
    counters = mapping(status["counters"])
    late, missing = counters.get("decisions_past_deadline"), mapping(status["rewards_missing"])
    report = mapping(status["last_report"])
    updated = f", {ago(real(report['at']), now=now)}" if report else ""
    since_when = "" if missing.get("since") is None else f", since {_ago(missing, 'since', now)}"
    return [
        ("store", status["store"]),
        ("tau-live", "on" if status["enabled"] else "off in this shell (TAU_LIVE_RL)"),
        *_stop_facts(status, now=now),
        ("rollouts", _counts_text(status["rollouts"])),
        ("wait for a reward", number(real(status["waiting_for_reward"]))),
        (
            "rewards missing",
            f"{missing['missing']} of the newest {missing['settled']}{since_when}"
            if missing
            else None,
        ),
        *(("reward fell", sentence) for sentence in fallen(status)),
        *(("plugin disabled", sentence) for sentence in disabled_plugins(status)),
        ("not learned from", _counts_text(status["not_learned_from"]) or "none"),
        (
            "lost to deadline",
            f"{number(real(late))} decisions: the default was served" if late else None,
        ),
        ("ready to learn", _counts_text(status["ready_to_learn"]) or "none"),
        *(
            (
                f"behind {printable(point)}",
                f"the next update takes {number(real(takes))} rollouts to catch up",
            )
            for point, backlog in mapping(status["behind"]).items()
            for takes in [mapping(backlog)["update_takes"]]
        ),
        ("mean reward", _mean_text(mapping(status["mean_reward"]))),
        *(
            (f"agreement {printable(point)}", _agreement(mapping(shadow)))
            for point, shadow in mapping(status["agreement"]).items()
        ),
        ("last update", f"{last_update(report)}{updated}"),
        *(
            (f"policy {printable(point)}", _serving(mapping(service)))
            for point, service in mapping(status["in_service"]).items()
        ),
        *(
            fact
            for point, monitored in mapping(status["monitors"]).items()
            for fact in _monitor_facts(printable(point), mapping(monitored))
        ),
        *(
            fact
            for point, trial in mapping(status["trials"]).items()
            for fact in _trial_facts(printable(point), mapping(trial), now=now)
        ),
        ("retention", _retention_text(mapping(status["retention"]))),
        ("counters", _counts_text(counters) or "none"),
        *(
            (
                "  last grew",
                f"{name} {'since the previous check' if at is None else since(real(at), now=now)}",
            )
            for name, at in mapping(status["counters_grew"]).items()
        ),
        ("attached", ", ".join(map(str, sequence(status["processes"]))) or "no process"),
        *(
            ("cannot write", f"{process}, for {number(real(silence_s))} s: see its log")
            for process, silence_s in mapping(status["silent"]).items()
        ),
        ("learning now", status["learner"]),
    ]


def _stop_facts(status: Mapping[str, object], *, now: float) -> Iterator[Fact]:
    """Yield the state of the gate and the other stops, each with the command that ends it."""
    gate, killed = mapping(status["gate"]), mapping(status["kill_switch"])
    yield "gate", status_text(gate["state"])
    if gate["state"] != "pass":
        failed = any(counts(gate["streaks"]).values())
        yield "  since", _ago(gate, "since", now)
        yield "  because", str(gate["reason"])
        yield "  last error" if failed else "  detail", str(gate["detail"])
        yield "  then", 'tau-live gate reset --reason "..."'
    if holds := held_in_memory(status):
        yield "held in memory", holds
        yield "  then", "tau-live doctor"
    if killed:
        yield "kill switch", f"on since {_ago(killed, 'at', now)}{_by(killed)}: {killed['reason']}"
        yield "  then", ended_by(str(killed["reason"])).strip("`")
    for part, pause in mapping(status["paused"]).items():
        record = mapping(pause)
        yield part, f"paused since {_ago(record, 'at', now)}{_by(record)}: {record['reason']}"
        yield "  then", f'tau-live resume {part} --reason "..."'


def _ago(record: Mapping[str, object], key: str, now: float) -> str:
    return ago(real(record[key]), now=now)


def _by(record: Mapping[str, object]) -> str:
    return f" by {record['who']}" if record["who"] else ""


def _mean_text(reward: Mapping[str, object]) -> str | None:
    if reward["last"] is None:
        return None
    text = f"{number(real(reward['last']))} (the last {reward['of']})"
    first = real(reward["first"])
    return text if first is None else f"{text}, {number(first)} (the first {reward['of']})"


def _retention_text(retention: Mapping[str, object]) -> str:
    """Return in words the size, the limits, and why they are exceeded."""
    limits = [
        f"at most {number(real(retention[name]))} {name}"
        for name in ("days", "rollouts", "mb")
        if retention[name] is not None
    ]
    used = f"{number(real(retention['used_mb']))} MB, {', '.join(limits) or 'no limit'}"
    beyond = str(excess_of(retention))
    return f"{used}; {beyond}" if beyond else used


def excess_of(retention: Mapping[str, object]) -> Excess:
    """Return the excess over the limits and its reasons, empty in most stores."""
    over = [str(name) for name in sequence(retention["over"])]
    return Excess(over, Kept(**counts(retention["kept"])))


def _monitor_facts(point: str, monitor: Mapping[str, object]) -> list[Fact]:
    share, entropy, low, high, cost, price = (
        real(monitor[name]) or 0.0
        for name in (
            "option_share", "entropy", "lowest_reward", "highest_reward", "cost", "cost_multiplier"
        )
    )  # fmt: skip
    of = f"(the last {number(real(monitor['rollouts']))} rollouts)"
    spread, outliers = real(monitor["reward_spread"]), real(monitor["outliers"])
    parts = ", ".join(
        f"{real(part) or 0.0:.0%} {printable(source)}"
        for source, part in mapping(monitor["sources"]).items()
    )
    costs = f"mean {cost:.3g} over {number(real(monitor['costs']))} rollouts"
    return [
        (
            f"choices {point}",
            "none: never more than one option"
            if monitor["option"] is None
            else f"{share:.0%} {printable(monitor['option'])}, entropy {entropy:.2f} {of}",
        ),
        (
            "  rewards",
            None
            if spread is None
            else f"standard deviation {spread:.3g}, from {parts or 'no source'}",
        ),
        (
            "  outliers",
            f"{number(outliers)}, clipped to {low:.3g} or {high:.3g}" if outliers else None,
        ),
        (
            "  safety cost",
            None if monitor["cost"] is None else f"{costs}, multiplier {price:.3g}",
        ),
        *(
            ("  drift", f"{printable(alarm['option'])} became {alarm['direction']}")
            for alarm in map(mapping, sequence(monitor["drift"]))
        ),
    ]


def _trial_facts(point: str, trial: Mapping[str, object], *, now: float) -> list[Fact]:
    return [
        (f"exposure {point}", _exposure(trial)),
        (f"difference {point}", _difference(trial)),
        ("  counted", counted_of(trial, now=now).removeprefix("; ") or None),
    ]


def last_update(report: Mapping[str, object]) -> str:
    """Return the result of an update in words; without one the report is empty."""
    if not report:
        return "none yet"
    skipped = report.get("ppo_skipped")
    alone = f", from the regressions alone: PPO took no step ({skipped})" if skipped else ""
    what = (
        f"made version {report['version']} from {report['trajectories']} rollouts{alone}"
        if report["executed"]
        else f"skipped: {report['skipped_reason']}"
    )
    return f"#{report['update']} {report['point'] or '(no decision)'}: {what}"


def _agreement(shadow: Mapping[str, object]) -> str:
    habits = (f"{printable(o)} {real(s) or 0:.0%}" for o, s in mapping(shadow["host"]).items())
    return (
        f"{real(shadow['agreement']) or 0:.0%} of the last {shadow['decisions']} in shadow, "
        f"probability {number(real(shadow['probability']))}; the host: {', '.join(habits)}"
    )


def _serving(service: Mapping[str, object]) -> str:
    pinned = ", pinned" if service["pinned"] else ""
    if not service["version"]:
        return f"untrained{pinned}"
    return f"version {service['version']}{pinned}, trained on {service['rollouts']} rollouts"


def _exposure(trial: Mapping[str, object]) -> str:
    """Return in words the learner's exposure, and the number of rollouts of each arm."""
    rollouts = mapping(trial["rollouts"])
    control = "the host" if trial["control"] is None else f"version {trial['control']}"
    kept = f", kept for {trial['kept']} more rollouts" if trial["kept"] else ""
    agreement = real(trial["agreement"])
    agrees = "" if agreement is None else f"; agrees with the host in {agreement:.0%}"
    return (
        f"{percent(real(trial['exposure']) or 0.0)}; "
        f"{rollouts['learner']} rollouts by the learner, "
        f"{rollouts['control']} by the control ({control}{kept}){agrees}"
    )


def _difference(trial: Mapping[str, object]) -> str:
    """Return the difference of the learner in words, with its interval, or why there is none."""
    estimate, lower, upper = _interval(trial)
    text = "unknown" if estimate is None else f"{estimate:+.3g}"
    if lower is not None and upper is not None:
        text += f" (at least {lower:+.3g}, at most {upper:+.3g})"
        text += f", {trial['verdict']}" if trial["verdict"] else ""
    elif estimate is not None:
        text += " (unproven difference of means)"
    return f"{text}; {trial['why']}" if trial["why"] else text


def _interval(trial: Mapping[str, object]) -> Iterator[float | None]:
    return map(real, (mapping(trial["difference"])[end] for end in ("estimate", "lower", "upper")))


def counted_of(trial: Mapping[str, object], *, now: float) -> str:
    """Return in words how many rollouts the evidence is based on, and what delays the others."""
    uncounted, held_up = integer(trial["uncounted"]), mapping(trial["held_up"])
    counted = sum(counts(trial["rollouts"]).values())
    if not uncounted or not held_up:
        return ""
    until = real(held_up["until"])
    waits = "is still open" if held_up["open"] else "waits for its reward"
    by = f" until {moment(until)} UTC at the latest" if until is not None and until > now else ""
    text = f"; {number(counted)} of {number(counted + uncounted)} rollouts counted"
    return f"{text}, the next, {held_up['rollout_id']}, {waits}{by}"


def _counts_text(numbers: object) -> str:
    return ", ".join(f"{number(real(count))} {name}" for name, count in mapping(numbers).items())


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

LABEL = 17
POINTS = 3
"""The number of decision points that are shown, the busiest."""

SPACED = 3
"""The level at which there is an empty line above each answer."""


class Row(NamedTuple):
    """A row of the screen.

    Attributes:
        name: Its subject.
        text: Its text, which is cut to a few lines, and uncut in ``status --all``; or its lines.
        level: 0 is one of the four answers, 1 belongs to one, 2 is left out first.
        style: The style of the text.
        word: The answer.
    """

    name: str
    text: str | Sequence[Text] = ()
    level: int = 1
    style: str = ""
    word: Text | None = None


RowLines = Sequence[tuple[Row, list[Text]]]
"""Rows with their lines."""


def screen_of(glance: Glance, console: Console, *, height: int | None = None) -> RenderableType:
    """Return the screen, with as much on it as fits.

    Args:
        glance: The facts.
        console: The console, whose width counts.
        height: The most lines, though the four answers are never cut; ``None`` is no limit.
    """
    for level in (SPACED, 2, 1):
        screen = _draw(glance, console, level=level)
        if height is None or lines_of(screen, console) <= height:
            return screen
    return _draw(glance, console, level=0)


def lines_of(renderable: RenderableType, console: Console) -> int:
    """Return the number of lines that a renderable takes."""
    return len(console.render_lines(renderable, pad=False))


def heading(what: str, *, at: float, width: int) -> Text:
    """Return the first line: the time, and the store by the end of its path if not all fits."""
    name, path, when = "tau-live · ", printable(what), f"  {moment(at)} UTC"
    has_room = width >= len("tau-live") + 2 * len(when) - 2
    over = len(name + path) - (width - len(when) if has_room else width)
    title = safe(name + (f"…{path[over + 1 :]}" if over > 0 else path), "bold")
    return join_texts(title, safe(when, "dim")) if has_room else title


def _draw(glance: Glance, console: Console, *, level: int) -> Group:
    width = console.width
    room = max(20, width - (LABEL if width >= NARROW else 4))
    rows = [
        (
            row,
            [safe(_clip_lines(row.text, room), row.style)]
            if isinstance(row.text, str)
            else [*row.text],
        )
        for row in _rows(glance, room)
        if row.level <= level
    ]
    draw = _narrow if width < NARROW else _wide
    first = heading(str(glance.status["store"]), at=glance.at, width=width)
    return Group(first, *draw(rows, spaced=level == SPACED))


def _wide(rows: RowLines, *, spaced: bool) -> Iterator[RenderableType]:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=LABEL - 1)
    table.add_column(overflow="fold")
    for row, lines in rows:
        if spaced and not row.level:
            table.add_row("", "")
        if row.word is not None:
            lines[:1] = [join_texts(row.word, safe("  "), *lines) if lines else row.word]
        table.add_row(_label(row), Group(*lines))
    yield table


def _narrow(rows: RowLines, *, spaced: bool) -> Iterator[RenderableType]:
    for row, lines in rows:
        if spaced and not row.level:
            yield ""
        label = _label(row)
        if row.word is not None:
            yield join_texts(label, safe("  "), row.word)
        elif row.level and len(lines) == 1 and len(label) + len(lines[0]) < NARROW // 2:
            yield join_texts(label, safe(": "), lines[0])
            continue
        else:
            yield label
        for part in lines:
            part.overflow = "fold"
            yield Padding(part, (0, 0, 0, 4 if row.level else 2))


def _label(row: Row) -> Text:
    return safe(f"  {row.name}", "dim") if row.level else safe(row.name, "bold")


def _rows(glance: Glance, room: int) -> Iterator[Row]:
    summary = glance.summary
    yield Row("Is it on?", summary.on.sentence, 0, word=_word(summary.on))
    yield from _stops(glance)
    if summary.healthy.state == GOOD:
        yield Row("Is it healthy?", summary.healthy.sentence, 0, word=_word(summary.healthy))
    else:
        yield Row("Is it healthy?", level=0, word=_word(summary.healthy))
        yield from _health(glance, room)
    why = () if summary.learning.state == GOOD else summary.learning.sentence
    yield Row("Is it learning?", why, 0, word=_word(summary.learning))
    yield from _learning(glance, room)
    first, more = summary.next[0], len(summary.next) - 1
    # without quotes, and without the full stop after a command
    step = (first[:-1] if first.endswith("`.") else first).replace("`", "")
    lines = [safe(_clip_lines(step, room, lines=5), "bold")]
    if more:
        lines.append(safe(f"({more} more suggested by tau-live status --all)", "dim"))
    yield Row("What next?", lines, 0)


def _stops(glance: Glance) -> Iterator[Row]:
    """Yield the operators' stops, with the time since each."""
    killed = mapping(glance.status["kill_switch"])
    if killed:
        yield Row("killed", [safe(since(real(killed["at"]), now=glance.at))])
    pauses = [
        f"{part} {since(real(mapping(pause)['at']), now=glance.at)}"
        for part, pause in mapping(glance.status["paused"]).items()
    ]
    if pauses:
        yield Row("paused", ", ".join(pauses))


def _word(answer: Answer) -> Text:
    return safe(answer.answer, STYLES[answer.state])


def _health(glance: Glance, room: int) -> Iterator[Row]:
    gate = mapping(glance.status["gate"])
    held = ""
    if gate["state"] != "pass":
        why = ": ".join(str(gate[name]) for name in ("reason", "detail") if gate[name])
        held = f" since {since(real(gate['since']), now=glance.at)}; {_clip_lines(why, room)}"
    yield Row("gate", [join_texts(status_text(gate["state"]), safe(held))])
    if holds := held_in_memory(glance.status):
        yield Row("held in memory", holds, style="red")
    streaks = ", ".join(
        f"{kind} {count}" for kind, count in counts(gate["streaks"]).items() if count
    )
    style = "yellow" if streaks else ""
    yield Row("failures", [safe(f"{streaks or 'none'} in a row", style)])
    yield Row("dropped", _drops(glance), style="yellow" if glance.drops else "")
    yield from _doubts(glance)


def _doubts(glance: Glance) -> Iterator[Row]:
    """Yield the problems: a word for each, a sentence, and its style."""
    status = glance.status
    for about, sentence in faults_of(status).items():
        yield Row(about, sentence, style="red")
    if missing := mapping(status["rewards_missing"]):
        of = f"{number(real(missing['missing']))} of {number(real(missing['settled']))}"
        at = real(missing["since"])
        when = "" if at is None else f"; since {since(at, now=glance.at)}"
        yield Row("missing", f"{of} of the newest rewards{when}", style="yellow")
    for sentence in fallen(status):
        yield Row("reward fell", sentence, style="yellow")
    for about, sentence in glance.doubts.items():
        yield Row(about, sentence, style="yellow")
    for sentence in disabled_plugins(status):
        yield Row("plugin", sentence, style="red")
    if silent := mapping(status["silent"]):
        each = ", ".join(f"{who} for {seconds(real(s))}" for who, s in silent.items())
        yield Row("cannot write", each, style="red")
    if beyond := str(excess_of(mapping(status["retention"]))):
        yield Row("over retention", beyond, style="yellow")


def _drops(glance: Glance) -> str:
    """Return the recent drops in words, the three largest, and when the last one was."""
    drops, grew = glance.drops, mapping(glance.status["counters_grew"])
    if not drops:
        return "nothing in the last day"
    most = [f"{number(count)} {name}" for name, count in list(drops.items())[:3]]
    rest = sum(list(drops.values())[3:])
    times = [at for name in drops if (at := real(grew.get(name))) is not None]
    last = f"; last {since(max(times), now=glance.at)}" if len(times) == len(drops) else ""
    return ", ".join(most) + (f", {number(rest)} others" if rest else "") + last


def _learning(glance: Glance, room: int) -> Iterator[Row]:
    status, points = glance.status, list(glance.points)
    versions = "; ".join(f"{point}: {_version(status, point)}" for point in points[:POINTS])
    more = f"; {len(points) - POINTS} more" if len(points) > POINTS else ""
    yield Row("versions", f"{versions}{more}" or "none yet")
    report = mapping(status["last_report"])
    when = f", {since(real(report['at']), now=glance.at)}" if report else ""
    yield Row("last update", last_update(report) + when)
    yield Row("rollouts", _rollouts(glance), 2)
    yield from _reward(glance.stretches, room)
    points_by_sentence: dict[str, list[str]] = {}
    for point in points[:POINTS]:
        if trial := mapping(mapping(status["trials"]).get(point)):
            sentence = f"{_verdict(trial)}{counted_of(trial, now=glance.at)}"
            points_by_sentence.setdefault(sentence, []).append(point)
    for sentence, at in points_by_sentence.items():
        yield Row("difference", f"{one_of(at)}: {sentence}", 1 if points[0] in at else 2)
    latest = glance.latest
    if latest is not None:
        where = f" at {latest.point}" if latest.point else ""
        by = "" if latest.who.count(":") > 1 else f" ({latest.who})"  # the gate, in a process
        sentence = f"{since(latest.at, now=glance.at)}{where}: {latest.sentence}{by}"
        yield Row("last change", [safe(_clip_lines(sentence, room, lines=2))])


def _version(status: Mapping[str, object], point: str) -> str:
    """Return in words the version that serves a point, and its exposure."""
    service = mapping(mapping(status["in_service"]).get(point))
    text = (
        f"version {service['version']} (from {service['rollouts']} rollouts)"
        if service.get("version")
        else "untrained"
    )
    pinned = ", pinned" if service.get("pinned") else ""
    trial = mapping(mapping(status["trials"]).get(point))
    decides = f", decides {percent(real(trial['exposure']) or 0.0)}" if trial else ""
    champion = trial.get("champion")
    proven = f", champion: version {champion}" if champion is not None else ""
    return f"{text}{pinned}{decides}{proven}"


def _verdict(trial: Mapping[str, object]) -> str:
    """Return the difference with its interval in words, or why it is unknown."""
    estimate, lower, upper = _interval(trial)
    over = "over the host" if trial["control"] is None else f"over version {trial['control']}"
    if estimate is None:
        text = "not known yet"
    elif lower is None or upper is None:
        text = f"{estimate:+.3g} {over}, unproven difference of means"
    else:
        verdict = str(trial["verdict"])
        if verdict == "wait" and lower > 0.0:
            verdict = "kept" if trial["kept"] else "better"
        text = f"{estimate:+.3g} ({lower:+.3g} to {upper:+.3g}) {over}"
        text += f", {VERDICTS.get(verdict, verdict)}"
    return f"{text}; {trial['why']}" if trial["why"] else text


def _rollouts(glance: Glance) -> str:
    status = glance.status
    ends, waiting = counts(status["rollouts"]), integer(status["waiting_for_reward"])
    lost = ", ".join(f"{number(ends[end])} {end}" for end in ("failed", "cancelled") if ends[end])
    ready = max(counts(status["ready_to_learn"]).values(), default=0)
    rewarded = real(status["last_reward_at"])
    behind = " (the learner is behind)" if status["behind"] else ""
    parts = (
        f"{number(ends['completed'])} ended" + (f" ({lost})" if lost else ""),
        f"{number(ends['open'])} open" if ends["open"] else "",
        f"{number(waiting)} without a reward yet" if waiting else "",
        f"{number(ready)} ready to learn{behind}" if ready else "",
        f"last reward {since(rewarded, now=glance.at)}" if rewarded is not None else "",
    )
    return ", ".join(part for part in parts if part)


def _reward(stretches: Sequence[Stretch], room: int) -> Iterator[Row]:
    means = [stretch.reward for stretch in stretches]
    known = [mean for mean in means if mean.mean is not None]
    if len(known) > 1:
        yield Row("reward", curve(means, width=min(room, 64)), 2)
        ends = f"first {_mean(known[0])}, latest {_mean(known[-1])}"
        yield Row("█ mean ░ 95 %", [safe(ends)])
    elif known:
        yield Row("reward", [safe(f"{_mean(known[0])} mean of {number(known[0].count)}")])
    else:
        yield Row("reward", [safe("none yet")])


def _mean(mean: Mean) -> str:
    if mean.lower is None or mean.upper is None:
        return number(mean.mean)
    return f"{mean.mean:.3g} ({mean.lower:.3g} to {mean.upper:.3g})"


def _clip_lines(text: str, room: int, *, lines: int = 3) -> str:
    return clip(printable(text), lines * room - room // 4)


@click.command(
    epilog=epilog(
        "status",
        "tau-live status",
        "tau-live status --all",
        "tau-live status --json | jq .gate.state",
    )
)
@click.option("--all", "everything", is_flag=True, help="Show every figure, one per line.")
@store_option
@json_option
def status(path: Path | None, as_json: bool, everything: bool) -> None:
    """Show on one screen whether it is on, healthy and learning, and what to do next.

    `tau-live top` keeps it on screen. A running process also publishes it as status.json
    beside the store.
    """
    now = time.time()
    with open_store(path) as (store, settings):
        fails = _failing(settings.store)
        if as_json:
            data = status_of(store, settings, now=now, enabled=is_enabled(), store_fails=fails)
            print_json(data)
            return
        glance = glance_of(store, settings, now=now, enabled=is_enabled(), store_fails=fails)
    console = console_of(sys.stdout.isatty())
    if everything:
        advice = (safe(f"- {step}") for step in glance.summary.next)
        print_on(console, facts_of(details(glance.status, now=now)), "", *advice)
        return
    height = console.height - 1 if sys.stdout.isatty() else None  # the shell takes a line
    print_on(console, screen_of(glance, console, height=height))


def _failing(file: Path) -> str | None:
    """Return why a store cannot be written; ``None`` if it can, or if this user may not."""
    if not (os.access(file, os.W_OK) and os.access(file.absolute().parent, os.W_OK)):
        return None
    error = why_unwritable(file, wait_s=0.1)  # a busy store is one that others write to
    return None if error is None or isinstance(error, StoreBusyError) else str(error)
