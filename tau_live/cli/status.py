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
    prompt_text,
    safe,
    seconds,
    since,
    status_text,
    suggest,
)
from tau_live.cli.power import curve
from tau_live.core.errors import StoreBusyError
from tau_live.core.sanitize import JsonObject, real
from tau_live.learn.monitoring import PointFigures
from tau_live.learn.promotion.outcomes import Agreement
from tau_live.learn.promotion.rules import TrialStatus
from tau_live.operate.records import (
    MeanReward,
    RetentionStatus,
    RewardsMissing,
    ServingVersion,
    SpoolStatus,
    Status,
)
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
    hosts_in_words,
    one_of,
)
from tau_live.operate.status import status_of
from tau_live.operate.stops import Stop, ended_by
from tau_live.record.archive import Excess
from tau_live.store.opening import why_unwritable

Fact = tuple[str, object]


def details(status: Status, *, now: float) -> list[Fact]:
    """Return every figure of a status with its name; ``None`` where there is none.

    Args:
        status: The status, as of ``status_of``.
        now: Epoch seconds, UTC.
    """
    late, report = status.counters.get("decisions_past_deadline"), status.last_report
    updated = f", {ago(real(report['at']), now=now)}" if report else ""
    return [
        ("store", status.store),
        ("tau-live", "on" if status.enabled else "off in this shell (TAU_LIVE_RL)"),
        *_stop_facts(status, now=now),
        ("rollouts", _counts_text(status.rollouts)),
        ("wait for a reward", number(status.waiting_for_reward)),
        ("rewards missing", _missing_text(status.rewards_missing, now=now)),
        *(("reward fell", sentence) for sentence in fallen(status)),
        *(("plugin disabled", sentence) for sentence in disabled_plugins(status)),
        ("not learned from", _counts_text(status.not_learned_from) or "none"),
        (
            "lost to deadline",
            f"{number(late)} decisions: the default was served" if late else None,
        ),
        ("ready to learn", _counts_text(status.ready_to_learn) or "none"),
        *(
            (
                f"behind {printable(point)}",
                f"the next update takes {number(backlog.update_takes)} rollouts to catch up",
            )
            for point, backlog in status.behind.items()
        ),
        ("mean reward", _mean_text(status.mean_reward)),
        *(
            (f"agreement {printable(point)}", _agreement(shadow))
            for point, shadow in status.agreement.items()
        ),
        ("last update", f"{last_update(report)}{updated}"),
        *(
            (f"policy {printable(point)}", _serving(service))
            for point, service in status.in_service.items()
        ),
        *(
            fact
            for point, figures in status.monitors.items()
            for fact in _monitor_facts(printable(point), figures)
        ),
        *(
            fact
            for point, trial in status.trials.items()
            for fact in _trial_facts(printable(point), trial, now=now)
        ),
        *(
            (f"prompt {printable(version)}", prompt_text(prompt))
            for version, prompt in status.prompts.items()
        ),
        ("retention", _retention_text(status.retention)),
        ("spool", spool_text(status.spool, now=now) if status.spool else None),
        ("counters", _counts_text(status.counters) or "none"),
        *(
            (
                "  last grew",
                f"{name} {'since the previous check' if at is None else since(at, now=now)}",
            )
            for name, at in status.counters_grew.items()
        ),
        ("attached", ", ".join(status.processes) or "no process"),
        *(
            ("cannot write", f"{process}, for {number(silence_s)} s: see its log")
            for process, silence_s in status.silent.items()
        ),
        ("learning now", status.learner),
    ]


def _stop_facts(status: Status, *, now: float) -> Iterator[Fact]:
    """Yield the state of the gate and the other stops, each with the command that ends it."""
    gate, killed = status.gate, status.kill_switch
    yield "gate", status_text(gate.state)
    if gate.holds:
        yield "  since", ago(gate.since, now=now)
        yield "  because", str(gate.reason)
        yield "  last error" if any(gate.streaks.values()) else "  detail", str(gate.detail)
        yield "  then", suggest('tau-live gate reset --reason "..."')
    if holds := held_in_memory(status):
        yield "held in memory", holds
        yield "  then", suggest("tau-live doctor")
    if hosts := hosts_in_words(status):
        yield "holding alone", hosts
        yield "  then", suggest("tau-live gate")
    if killed:
        yield "kill switch", f"on since {_stop_text(killed, now=now)}"
        yield "  then", suggest(ended_by(killed.reason).strip("`"))
    for part, pause in status.paused.items():
        yield part, f"paused since {_stop_text(pause, now=now)}"
        yield "  then", suggest(f'tau-live resume {part} --reason "..."')


def _stop_text(stop: Stop, *, now: float) -> str:
    by = f" by {stop.who}" if stop.who else ""
    return f"{ago(stop.at, now=now)}{by}: {stop.reason}"


def _missing_text(rewards: RewardsMissing | None, *, now: float) -> str | None:
    if rewards is None:
        return None
    since_when = "" if rewards.since is None else f", since {ago(rewards.since, now=now)}"
    return f"{rewards.missing} of the newest {rewards.settled}{since_when}"


def _mean_text(reward: MeanReward) -> str | None:
    if reward.last is None:
        return None
    text = f"{number(reward.last)} (the last {reward.of})"
    return (
        text if reward.first is None else f"{text}, {number(reward.first)} (the first {reward.of})"
    )


def spool_text(spool: SpoolStatus, *, now: float) -> str:
    """Return what the spool of this host has yet to send, in words."""
    oldest = f", the oldest of {ago(spool.oldest_at, now=now)}" if spool.oldest_at else ""
    heard = f"heard {ago(spool.heard_at, now=now)}" if spool.heard_at else "never heard"
    return f"{number(spool.unsent)} rollouts to be sent{oldest}; the database was {heard}"


def _retention_text(retention: RetentionStatus) -> str:
    """Return in words the size, the limits, and why they are exceeded."""
    limits = {"days": retention.days, "rollouts": retention.rollouts, "mb": retention.mb}
    most = [f"at most {number(most)} {name}" for name, most in limits.items() if most is not None]
    used = f"{number(retention.used_mb)} MB, {', '.join(most) or 'no limit'}"
    beyond = str(Excess(retention.over, retention.kept))
    return f"{used}; {beyond}" if beyond else used


def _monitor_facts(point: str, figures: PointFigures) -> Iterator[Fact]:
    if figures.option is None:
        yield f"choices {point}", "none: never more than one option"
    else:
        share, entropy = figures.option_share or 0.0, figures.entropy or 0.0
        of = f"(the last {number(figures.rollouts)} rollouts)"
        option = printable(figures.option)
        yield f"choices {point}", f"{share:.0%} {option}, entropy {entropy:.2f} {of}"
    if figures.reward_spread is not None:
        parts = ", ".join(
            f"{part:.0%} {printable(source)}" for source, part in figures.sources.items()
        )
        spread = f"standard deviation {figures.reward_spread:.3g}"
        yield "  rewards", f"{spread}, from {parts or 'no source'}"
    if figures.outliers:
        low, high = figures.lowest_reward or 0.0, figures.highest_reward or 0.0
        yield "  outliers", f"{number(figures.outliers)}, clipped to {low:.3g} or {high:.3g}"
    if figures.cost is not None:
        costs = f"mean {figures.cost:.3g} over {number(figures.costs)} rollouts"
        yield "  safety cost", f"{costs}, multiplier {figures.cost_multiplier:.3g}"
    for alarm in figures.drift:
        yield "  drift", f"{printable(alarm.option)} became {alarm.direction}"


def _trial_facts(point: str, trial: TrialStatus, *, now: float) -> list[Fact]:
    return [
        (f"exposure {point}", _exposure(trial)),
        (f"difference {point}", _difference(trial)),
        ("  counted", counted_of(trial, now=now).removeprefix("; ") or None),
    ]


def last_update(report: JsonObject | None) -> str:
    """Return the result of an update in words, from its report."""
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


def _agreement(shadow: Agreement) -> str:
    habits = (f"{printable(option)} {share:.0%}" for option, share in shadow.host.items())
    return (
        f"{shadow.agreement:.0%} of the last {shadow.decisions} in shadow, "
        f"probability {number(shadow.probability)}; the host: {', '.join(habits)}"
    )


def _serving(service: ServingVersion) -> str:
    pinned = ", pinned" if service.pinned else ""
    if not service.version:
        return f"untrained{pinned}"
    return f"version {service.version}{pinned}, trained on {service.rollouts} rollouts"


def _exposure(trial: TrialStatus) -> str:
    """Return in words the learner's exposure, and the number of rollouts of each arm."""
    control = "the host" if trial.control is None else f"version {trial.control}"
    kept = f", kept for {trial.kept} more rollouts" if trial.kept else ""
    agreement = trial.agreement
    agrees = "" if agreement is None else f"; agrees with the host in {agreement:.0%}"
    return (
        f"{percent(trial.exposure)}; "
        f"{trial.rollouts['learner']} rollouts by the learner, "
        f"{trial.rollouts['control']} by the control ({control}{kept}){agrees}"
    )


def _difference(trial: TrialStatus) -> str:
    """Return the difference of the learner in words, with its interval, or why there is none."""
    estimate, (lower, upper) = trial.difference["estimate"], trial.bounds
    text = "unknown" if estimate is None else f"{estimate:+.3g}"
    if lower is not None and upper is not None:
        text += f" (at least {lower:+.3g}, at most {upper:+.3g})"
        text += f", {trial.verdict}" if trial.verdict else ""
    elif estimate is not None:
        text += " (unproven difference of means)"
    return f"{text}; {trial.why}" if trial.why else text


def counted_of(trial: TrialStatus, *, now: float) -> str:
    """Return in words how many rollouts the evidence is based on, and what delays the others."""
    uncounted, held_up, counted = trial.uncounted, trial.held_up, sum(trial.rollouts.values())
    if not uncounted or held_up is None:
        return ""
    until = held_up.until
    waits = "is still open" if held_up.open else "waits for its reward"
    by = f" until {moment(until)} UTC at the latest" if until is not None and until > now else ""
    text = f"; {number(counted)} of {number(counted + uncounted)} rollouts counted"
    return f"{text}, the next, {held_up.rollout_id}, {waits}{by}"


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number(count)} {name}" for name, count in counts.items())


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
    first = heading(glance.status.store, at=glance.at, width=width)
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
    first, more = suggest(summary.next[0]), len(summary.next) - 1
    # without quotes, and without the full stop after a command
    step = (first[:-1] if first.endswith("`.") else first).replace("`", "")
    lines = [safe(_clip_lines(step, room, lines=5), "bold")]
    if more:
        everything = suggest("tau-live status --all")
        lines.append(safe(f"({more} more suggested by {everything})", "dim"))
    yield Row("What next?", lines, 0)


def _stops(glance: Glance) -> Iterator[Row]:
    """Yield the operators' stops, with the time since each."""
    killed, paused = glance.status.kill_switch, glance.status.paused
    if killed:
        yield Row("killed", [safe(since(killed.at, now=glance.at))])
    if paused:
        pauses = (f"{part} {since(pause.at, now=glance.at)}" for part, pause in paused.items())
        yield Row("paused", ", ".join(pauses))


def _word(answer: Answer) -> Text:
    return safe(answer.answer, STYLES[answer.state])


def _health(glance: Glance, room: int) -> Iterator[Row]:
    gate = glance.status.gate
    held = ""
    if gate.holds:
        why = ": ".join(text for text in (gate.reason, gate.detail) if text)
        held = f" since {since(gate.since, now=glance.at)}; {_clip_lines(why, room)}"
    yield Row("gate", [join_texts(status_text(gate.state), safe(held))])
    if holds := held_in_memory(glance.status):
        yield Row("held in memory", holds, style="red")
    if hosts := hosts_in_words(glance.status):
        yield Row("holding alone", hosts, style="red")
    streaks = ", ".join(f"{kind} {count}" for kind, count in gate.streaks.items() if count)
    style = "yellow" if streaks else ""
    yield Row("failures", [safe(f"{streaks or 'none'} in a row", style)])
    yield Row("dropped", _drops(glance), style="yellow" if glance.drops else "")
    yield from _doubts(glance)


def _doubts(glance: Glance) -> Iterator[Row]:
    """Yield the problems: a word for each, a sentence, and its style."""
    status = glance.status
    for about, sentence in faults_of(status).items():
        yield Row(about, sentence, style="red")
    if missing := status.rewards_missing:
        of = f"{number(missing.missing)} of {number(missing.settled)}"
        at = missing.since
        when = "" if at is None else f"; since {since(at, now=glance.at)}"
        yield Row("missing", f"{of} of the newest rewards{when}", style="yellow")
    for sentence in fallen(status):
        yield Row("reward fell", sentence, style="yellow")
    for about, sentence in glance.doubts.items():
        yield Row(about, sentence, style="yellow")
    for sentence in disabled_plugins(status):
        yield Row("plugin", sentence, style="red")
    if status.silent:
        each = ", ".join(f"{who} for {seconds(s)}" for who, s in status.silent.items())
        yield Row("cannot write", each, style="red")
    if beyond := str(Excess(status.retention.over, status.retention.kept)):
        yield Row("over retention", beyond, style="yellow")


def _drops(glance: Glance) -> str:
    """Return the recent drops in words, the three largest, and when the last one was."""
    drops, grew = glance.drops, glance.status.counters_grew
    if not drops:
        return "nothing in the last day"
    most = [f"{number(count)} {name}" for name, count in list(drops.items())[:3]]
    rest = sum(list(drops.values())[3:])
    times = [at for name in drops if (at := grew.get(name)) is not None]
    last = f"; last {since(max(times), now=glance.at)}" if len(times) == len(drops) else ""
    return ", ".join(most) + (f", {number(rest)} others" if rest else "") + last


def _learning(glance: Glance, room: int) -> Iterator[Row]:
    status, points = glance.status, list(glance.points)
    versions = "; ".join(f"{point}: {_version(status, point)}" for point in points[:POINTS])
    more = f"; {len(points) - POINTS} more" if len(points) > POINTS else ""
    yield Row("versions", f"{versions}{more}" or "none yet")
    report = status.last_report
    when = f", {since(real(report['at']), now=glance.at)}" if report else ""
    yield Row("last update", last_update(report) + when)
    yield Row("rollouts", _rollouts(glance), 2)
    yield from _reward(glance.stretches, room)
    points_by_sentence: dict[str, list[str]] = {}
    for point in points[:POINTS]:
        if trial := status.trials.get(point):
            sentence = f"{verdict_text(trial)}{counted_of(trial, now=glance.at)}"
            points_by_sentence.setdefault(sentence, []).append(point)
    for sentence, at in points_by_sentence.items():
        yield Row("difference", f"{one_of(at)}: {sentence}", 1 if points[0] in at else 2)
    for version, prompt in status.prompts.items():
        if prompt.state not in {"retired", "withdrawn"}:
            yield Row("prompt", f"{version}: {prompt_text(prompt)}")
    latest = glance.latest
    if latest is not None:
        where = f" at {latest.point}" if latest.point else ""
        by = "" if latest.who.count(":") > 1 else f" ({latest.who})"  # the gate, in a process
        sentence = f"{since(latest.at, now=glance.at)}{where}: {latest.sentence}{by}"
        yield Row("last change", [safe(_clip_lines(sentence, room, lines=2))])


def _version(status: Status, point: str) -> str:
    """Return in words the version that serves a point, and its exposure."""
    service, trial = status.in_service.get(point), status.trials.get(point)
    text = "untrained"
    if service is not None and service.version:
        text = f"version {service.version} (from {service.rollouts} rollouts)"
    pinned = ", pinned" if service is not None and service.pinned else ""
    if trial is None:
        return f"{text}{pinned}"
    champion = trial.champion
    proven = f", champion: version {champion}" if champion is not None else ""
    return f"{text}{pinned}, decides {percent(trial.exposure)}{proven}"


def verdict_text(trial: TrialStatus) -> str:
    """Return the difference of a trial with its interval in words, or why it is unknown."""
    estimate, (lower, upper) = trial.difference["estimate"], trial.bounds
    over = "over the host" if trial.control is None else f"over version {trial.control}"
    if estimate is None:
        text = "not known yet"
    elif lower is None or upper is None:
        text = f"{estimate:+.3g} {over}, unproven difference of means"
    else:
        verdict = str(trial.verdict)
        if verdict == "wait" and lower > 0.0:
            verdict = "kept" if trial.kept else "better"
        text = f"{estimate:+.3g} ({lower:+.3g} to {upper:+.3g}) {over}"
        text += f", {VERDICTS.get(verdict, verdict)}"
    return f"{text}; {trial.why}" if trial.why else text


def _rollouts(glance: Glance) -> str:
    status = glance.status
    ends, waiting = status.rollouts, status.waiting_for_reward
    lost = ", ".join(f"{number(ends[end])} {end}" for end in ("failed", "cancelled") if ends[end])
    ready = max(status.ready_to_learn.values(), default=0)
    rewarded = status.last_reward_at
    behind = " (the learner is behind)" if status.behind else ""
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
        advice = (safe(f"- {suggest(step)}") for step in glance.summary.next)
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
