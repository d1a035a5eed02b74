"""The figures of one decision point: exposure, choices, calibration, off-policy, drift."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tau_live.cli.output import number
from tau_live.cli.page.chart_types import Chart, Figure, Panel, Section, Series, Table
from tau_live.cli.page.figures import (
    ORDER,
    band,
    ends_of,
    finding_of,
    flags_of,
    marks_table,
    mean_cells,
    mean_text,
    percent,
    places,
    role_of,
    short,
    ticks_of,
)
from tau_live.operate.report.facts import Compared, Facts, Mean, Point


def point_section(facts: Facts, point: Point, *, number: int) -> Section:
    """Return the section of a decision point; its number makes names unique."""
    name = f"point-{number}"
    return Section(
        name=name,
        title=f"Decision point: {point.point}",
        intro=f"Based on {point.decisions:,} decisions and the "
        f"{point.lived:,} newest rewarded rollouts.",
        figures=[
            _exposure(facts, point, name),
            _choices(facts, point, name),
            _contexts(point, name),
            _calibration(point, name),
            _comparison(point, name),
            _drift(point, name),
        ],
    )


def _exposure(facts: Facts, point: Point, name: str) -> Figure:
    x = places(facts.stretches)
    marks = [mark for mark in facts.marks if mark.point in (None, point.point)]
    learner = [stretch.learner for stretch in point.stretches]
    control = [stretch.control for stretch in point.stretches]
    exposure = [stretch.exposure for stretch in point.stretches]
    chart = Chart(
        kind="curves",
        panels=[
            Panel(
                label="mean reward",
                series=[
                    band("learner", "learner", x, learner),
                    band("control", "control", x, control),
                ],
            ),
            Panel(
                label="exposure",
                scale="percent",
                series=[band("learner", "learner", x, exposure)],
            ),
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
        flags=flags_of(marks),
    )
    return Figure(
        name=f"{name}-exposure",
        title=_reward_title(learner, control),
        subject="Reward and exposure",
        text="Top: mean reward of the learner's rollouts and of the control's (the champion, or "
        "the host's own choice). Bottom: the share of rollouts that the learner decided. Bands are "
        "95 % intervals, each stretch on its own.",
        described=f"{ends_of('Reward of the learner', learner)} "
        f"{ends_of('Of the control', control)} {ends_of('Exposure', exposure, spell=percent)}",
        chart=chart if any(mean.count for mean in exposure) else None,
        tables=[
            Table(
                caption="Reward and exposure by stretch",
                columns=("rollouts", "by the learner#", "learner's mean#", "learner's lower#",
                         "learner's upper#", "by the control#", "control's mean#",
                         "control's lower#", "control's upper#", "exposure#", "assigned with#"),
                rows=[
                    (
                        f"{stretch.first} to {stretch.last}", *mean_cells(stretch.learner),
                        *mean_cells(stretch.control), percent(stretch.exposure.mean),
                        percent(stretch.share),
                    )
                    for stretch in point.stretches
                ],
            ),
            *marks_table(marks),
        ],
    )  # fmt: skip


def _reward_title(learner: Sequence[Mean], control: Sequence[Mean]) -> str:
    known = [[mean for mean in means if mean.mean is not None] for means in (learner, control)]
    if not known[0]:
        return "The learner has decided no rewarded rollout"
    if not known[1]:
        return finding_of("The learner's reward", learner)
    ours, theirs = (
        sum(mean.count * (mean.mean or 0.0) for mean in means) / sum(mean.count for mean in means)
        for means in known
    )
    return f"The learner's rollouts earned {short(ours)}, the control's {short(theirs)}"


def _choices_title(point: Point) -> str:
    """Return the change of the option whose share grew most from the first third to the last."""
    decided = [stretch.options for stretch in point.stretches if sum(stretch.options.values())]
    if not decided:
        return "Nothing was applied yet"
    third = max(1, len(decided) // 3)
    first, last = _shares(decided[:third]), _shares(decided[-third:])
    option = max(point.options, key=lambda name: last.get(name, 0.0) - first.get(name, 0.0))
    before, after = first.get(option, 0.0), last.get(option, 0.0)
    # A smaller change counts as none.
    if after - before < 0.05:
        usual = max(last, key=lambda name: last[name])
        return f"Choices have not changed: {usual} in {last[usual]:.0%}"
    return f"{option} rose from {before:.0%} to {after:.0%} of the choices"


def _shares(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    total = sum((Counter(count) for count in counts), Counter[str]())
    return {name: count / total.total() for name, count in total.items()}


def _bias(error: Mean) -> str:
    if error.mean is None or error.lower is None or error.upper is None:
        return "The value estimate cannot be checked yet"
    if error.lower <= 0.0 <= error.upper:
        return "The value estimate is right on average"
    return f"The value estimate is {abs(error.mean):.2g} too {'low' if error.mean > 0 else 'high'}"


def _agreement(rows: Sequence[Compared]) -> str:
    pairs = [
        (row.estimate, row.live) for row in rows if row.estimate.mean is not None and row.live.count
    ]
    if not pairs:
        return "No version has both an off-policy estimate and live rewards"
    agree = sum(
        (a.lower is None or b.upper is None or a.lower <= b.upper)
        and (b.lower is None or a.upper is None or b.lower <= a.upper)
        for a, b in pairs
    )
    return f"Off-policy estimates agree with live rewards in {agree} of {len(pairs)} comparisons"


def _parts(
    point: Point, counts: Sequence[Mapping[str, int]], x: Sequence[float] = ()
) -> list[Series]:
    """Return a series for each option: how often it was applied."""
    return [
        Series(
            label=option,
            role=role_of(index),
            x=x,
            y=[float(count.get(option, 0)) for count in counts],
        )
        for index, option in enumerate(point.options)
    ]


def _choices(facts: Facts, point: Point, name: str) -> Figure:
    counts = [stretch.options for stretch in point.stretches]
    totals = {option: sum(count.get(option, 0) for count in counts) for option in point.options}
    seen = sum(totals.values())
    edges = [edge for of in facts.stretches for edge in (of.first - 0.5, of.last + 0.5)]
    chart = Chart(
        kind="areas",
        panels=[Panel(label="share of decisions", series=_parts(point, counts, edges))],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
    )
    return Figure(
        name=f"{name}-choices",
        title=_choices_title(point),
        subject="Choices over time",
        text="Share of decisions in which each option was applied.",
        described="Overall: "
        + ", ".join(f"{option} {count / seen:.0%}" for option, count in totals.items())
        + "."
        if seen
        else "Nothing was applied yet.",
        chart=chart if seen else None,
        tables=[
            Table(
                caption="How often each option was applied, by stretch",
                columns=("rollouts", *(f"{option}#" for option in point.options)),
                rows=[
                    (
                        f"{stretch.first} to {stretch.last}",
                        *(number(stretch.options.get(option, 0)) for option in point.options),
                    )
                    for stretch in point.stretches
                ],
            )
        ],
    )


def _contexts(point: Point, name: str) -> Figure:
    rows: list[tuple[str, bool]] = []
    counts: list[Mapping[str, int]] = []
    for habits in point.contexts:
        rows += [(habits.key, True), *((habit.value, False) for habit in habits.values)]
        counts += [{}, *(habit.options for habit in habits.values)]
    chart = Chart(
        kind="bars",
        panels=[Panel(label="", scale="percent", series=_parts(point, counts))],
        x_label="share of decisions",
        rows=rows,
    )
    explained = ", ".join(
        f"{context.key} ({context.information:.0%})" for context in point.contexts
    )
    return Figure(
        name=f"{name}-contexts",
        title=f"{point.contexts[0].key} explains {point.contexts[0].information:.0%} of the choice"
        if point.contexts
        else "No context has values to compare",
        subject="Choices by context",
        text="Options applied, by context value. The context that explains most of the choice "
        "comes first: 0 % explains nothing, 100 % everything.",
        described=f"Share of the choice that each explains: {explained}."
        if explained
        else "No context has few enough values to compare.",
        chart=chart if rows else None,
        tables=[
            Table(
                caption=f"By {habits.key}, which explains {habits.information:.0%} of the choice",
                columns=(habits.key, "decisions#", *(f"{option}#" for option in point.options)),
                rows=[
                    (
                        habit.value,
                        number(habit.decisions),
                        *(number(habit.options.get(option, 0)) for option in point.options),
                    )
                    for habit in habits.values
                ],
            )
            for habits in point.contexts
        ],
    )


def _calibration(point: Point, name: str) -> Figure:
    bins = point.calibration
    label, x = "mean, with its 95 % interval", [group.expected for group in bins]
    observed = band(label, "learner", x, [group.came for group in bins])
    chart = Chart(
        kind="dots",
        panels=[Panel(label="observed return", scale="equal", series=[observed])],
        x_label="estimated return (reward from there on)",
    )
    inside = sum(
        group.came.lower is not None
        and group.came.upper is not None
        and group.came.lower <= group.expected <= group.came.upper
        for group in bins
    )
    return Figure(
        name=f"{name}-calibration",
        title=_bias(point.error),
        subject="Calibration of the value estimate",
        text="Decisions grouped by estimate. On the dashed line the observed return equals the "
        "estimate; above it, the estimate is too low. The estimate is learned and starts at 0.",
        described=f"In {inside} of {len(bins)} groups the estimate is within the 95 % interval of "
        f"the observed return. Observed minus estimated: {mean_text(point.error)}."
        if bins
        else "No decision with a value estimate has a reward yet.",
        chart=chart if bins else None,
        tables=[
            Table(
                caption="Estimated and observed return",
                columns=("estimated#", "decisions#", "observed#", "lower#", "upper#"),
                rows=[(number(group.expected), *mean_cells(group.came)) for group in bins],
            )
        ],
    )


def _comparison(point: Point, name: str) -> Figure:
    rows = point.compared
    at = [float(n) for n in range(len(rows))]
    series = [
        band(
            "estimated from the log before",
            "control",
            [x - 0.08 for x in at],
            [row.estimate for row in rows],
        ),
        band("live", "learner", [x + 0.08 for x in at], [row.live for row in rows]),
    ]
    chart = Chart(
        kind="dots",
        panels=[Panel(label="mean reward", series=series)],
        x_label="version, and the rollouts compared",
        ticks=[
            (x, f"version {row.version}\n{row.first:,} to {row.last:,}")
            for x, row in zip(at, rows, strict=True)
        ],
    )
    return Figure(
        name=f"{name}-compared",
        title=_agreement(rows),
        subject="Off-policy against live",
        text="Off-policy estimate from the log before a range of rollouts, and the mean reward "
        "they then earned. Where the log has too little support there is no estimate, as is usual "
        "for runs of many steps. The policy keeps learning, so live may be slightly higher.",
        described=" ".join(_outcome(row) for row in rows) or "Nothing to compare yet.",
        chart=chart if rows else None,
        tables=[
            Table(
                caption="Estimated and live",
                columns=("version#", "rollouts", "log#", "estimate#", "its lower#", "its upper#",
                         "live#", "live lower#", "live upper#", "why not"),
                rows=[
                    (
                        number(row.version), f"{row.first} to {row.last}", number(row.log),
                        *mean_cells(row.estimate)[1:], *mean_cells(row.live)[1:],
                        row.refused or "-",
                    )
                    for row in rows
                ],
            )
        ],
    )  # fmt: skip


def _outcome(row: Compared) -> str:
    if row.refused is not None:
        return f"Version {row.version}: no estimate ({row.refused}); live {mean_text(row.live)}."
    return (
        f"Version {row.version}: estimated {mean_text(row.estimate)}, live {mean_text(row.live)}."
    )


def _drift(point: Point, name: str) -> Figure:
    x = [(error.first + error.last) / 2.0 for error in point.errors]
    flags = [
        (float(alarm.ready_seq), alarm.direction.value)
        for alarm in point.alarms
        if point.errors and point.errors[0].first <= alarm.ready_seq <= point.errors[-1].last
    ]
    errors = band("mean, with its 95 % interval", "all", x, [error.error for error in point.errors])
    chart = Chart(
        kind="curves",
        panels=[Panel(label="observed - estimated", scale="zero", series=[errors])],
        x_label="rollouts in the order in which their reward was known",
        flags=flags,
    )
    alarms = [f"{alarm.option} became {alarm.direction}" for alarm in point.alarms]
    return Figure(
        name=f"{name}-drift",
        title="; ".join(alarms) if alarms else "No option has changed",
        subject="Drift",
        text="Observed minus estimated return. Once the estimate is learned, this stays around 0 "
        "while the world stays the same. An alarm means that an option's reward has changed.",
        described=f"{ends_of('Observed minus estimated return', [e.error for e in point.errors])} "
        + (f"Alarms: {'; '.join(alarms)}." if alarms else "No alarm."),
        chart=chart if point.errors else None,
        tables=[
            Table(
                caption="Observed minus estimated return, by stretch",
                columns=("rollouts", "decisions#", "mean#", "lower#", "upper#"),
                rows=[
                    (f"{error.first} to {error.last}", *mean_cells(error.error))
                    for error in point.errors
                ],
            ),
            Table(
                caption="Alarms",
                columns=("option", "became", "seen by rollout#", "decisions seen#", "shift#"),
                rows=[
                    (
                        alarm.option,
                        alarm.direction.value,
                        number(alarm.ready_seq),
                        number(alarm.seen),
                        number(alarm.shift),
                    )
                    for alarm in point.alarms
                ],
            ),
        ],
    )
