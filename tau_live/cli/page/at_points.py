"""The figures of one decision point: exposure, choices, calibration, off-policy, drift."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tau_live.cli.page.figures import band
from tau_live.cli.page.saying import (
    ORDER,
    WORDS,
    ends_of,
    finding_of,
    keys_of,
    marks_table,
    mean_cells,
    percent,
    places,
    role_of,
    said,
    short,
    shown_marks,
    ticks_of,
)
from tau_live.cli.page.shapes import (
    Areas,
    Bars,
    Curves,
    Dots,
    Figure,
    Flag,
    Key,
    Panel,
    Part,
    Role,
    Section,
    Table,
    Tick,
)
from tau_live.cli.text import number
from tau_live.reporting.facts import Compared, Facts, Mean, Point

LEAST_CHANGE = 0.05
"""A share that changed by less is the same."""

READY = "rollouts in the order in which their reward was known"


def at_point(facts: Facts, point: Point, *, place: int) -> Section:
    """Return what is shown of a decision point; its place among them makes names unique."""
    name = f"point-{place}"
    return Section(
        name=name,
        title=f"Decision point: {point.point}",
        said=f"Based on {point.decisions:,} decisions and the "
        f"{point.lived:,} newest rewarded rollouts.",
        figures=[
            _exposure(facts, point, name),
            _choices(facts, point, name),
            _contexts(point, name),
            _calibration(point, name),
            _compared(point, name),
            _drift(point, name),
        ],
    )


def _exposure(facts: Facts, point: Point, name: str) -> Figure:
    x = places(facts.stretches)
    marks = [mark for mark in facts.marks if mark.point in (None, point.point)]
    flags, keys = shown_marks(marks)
    learner = [one.learner for one in point.stretches]
    control = [one.control for one in point.stretches]
    exposure = [one.exposure for one in point.stretches]
    chart = Curves(
        panels=[
            Panel(
                label="mean reward",
                series=[
                    band("learner", Role.LEARNER, x, learner),
                    band("control", Role.CONTROL, x, control),
                ],
            ),
            Panel(
                label="exposure",
                percent=True,
                series=[band("exposure", Role.LEARNER, x, exposure)],
            ),
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
        flags=flags,
    )
    return Figure(
        name=f"{name}-exposure",
        title=_earned(learner, control),
        subject="Reward and exposure",
        said="Top: mean reward of the learner's rollouts and of the control's (the champion, or "
        "the host's own choice). Bottom: the share of rollouts that the learner decided. Bands are "
        "95 % intervals, each stretch on its own.",
        described=f"{ends_of('Reward of the learner', learner)} "
        f"{ends_of('Of the control', control)} {ends_of('Exposure', exposure, spell=percent)}",
        chart=chart if any(one.count for one in exposure) else None,
        keys=[
            Key(label="learner", role=Role.LEARNER, form="line"),
            Key(label="control", role=Role.CONTROL, form="dash"),
            *keys,
        ],
        tables=[
            Table(
                caption="Reward and exposure by stretch",
                columns=("rollouts", "by the learner#", "learner's mean#", "learner's lower#",
                         "learner's upper#", "by the control#", "control's mean#",
                         "control's lower#", "control's upper#", "exposure#", "assigned with#"),
                rows=[
                    (
                        f"{one.first} to {one.last}", *mean_cells(one.learner),
                        *mean_cells(one.control), percent(one.exposure.mean), percent(one.share),
                    )
                    for one in point.stretches
                ],
            ),
            *marks_table(marks),
        ],
    )  # fmt: skip


def _earned(learner: Sequence[Mean], control: Sequence[Mean]) -> str:
    known = [[one for one in means if one.mean is not None] for means in (learner, control)]
    if not known[0]:
        return "The learner has decided no rewarded rollout"
    if not known[1]:
        return finding_of("The learner's reward", learner)
    ours, theirs = (
        sum(one.count * (one.mean or 0.0) for one in means) / sum(one.count for one in means)
        for means in known
    )
    return f"The learner's rollouts earned {short(ours)}, the control's {short(theirs)}"


def _habit(point: Point) -> str:
    """Return the option whose share grew most from the first third to the last."""
    decided = [one.options for one in point.stretches if sum(one.options.values())]
    if not decided:
        return "Nothing was applied yet"
    third = max(1, len(decided) // 3)
    first, last = _shares(decided[:third]), _shares(decided[-third:])
    option = max(point.options, key=lambda name: last.get(name, 0.0) - first.get(name, 0.0))
    before, after = first.get(option, 0.0), last.get(option, 0.0)
    if after - before < LEAST_CHANGE:
        usual = max(last, key=lambda name: last[name])
        return f"Choices have not changed: {usual} in {last[usual]:.0%}"
    return f"{option} rose from {before:.0%} to {after:.0%} of the choices"


def _shares(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    total = sum((Counter(one) for one in counts), Counter[str]())
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


def _option_keys(point: Point) -> list[Key]:
    return [
        Key(label=option, role=role_of(place), form="box")
        for place, option in enumerate(point.options)
    ]


def _choices(facts: Facts, point: Point, name: str) -> Figure:
    totals = {o: sum(s.options.get(o, 0) for s in point.stretches) for o in point.options}
    seen = sum(totals.values())
    chart = Areas(
        spans=[(one.first, one.last) for one in facts.stretches],
        parts=[
            Part(
                label=option,
                role=role_of(place),
                values=[float(one.options.get(option, 0)) for one in point.stretches],
            )
            for place, option in enumerate(point.options)
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
    )
    return Figure(
        name=f"{name}-choices",
        title=_habit(point),
        subject="Choices over time",
        said="Share of decisions in which each option was applied.",
        described="Overall: "
        + ", ".join(f"{option} {count / seen:.0%}" for option, count in totals.items())
        + "."
        if seen
        else "Nothing was applied yet.",
        chart=chart if seen else None,
        keys=_option_keys(point),
        tables=[
            Table(
                caption="How often each option was applied, by stretch",
                columns=("rollouts", *(f"{option}#" for option in point.options)),
                rows=[
                    (
                        f"{one.first} to {one.last}",
                        *(number(one.options.get(option, 0)) for option in point.options),
                    )
                    for one in point.stretches
                ],
            )
        ],
    )


def _contexts(point: Point, name: str) -> Figure:
    rows: list[str] = []
    heads: list[bool] = []
    counts: list[dict[str, int]] = []
    for habits in point.contexts:
        rows += [habits.key, *(habit.value for habit in habits.values)]
        heads += [True, *(False for _ in habits.values)]
        counts += [{}, *(dict(habit.options) for habit in habits.values)]
    chart = Bars(
        rows=rows,
        heads=heads,
        share=True,
        x_label="share of decisions",
        parts=[
            Part(
                label=option,
                role=role_of(place),
                values=[float(one.get(option, 0)) for one in counts],
            )
            for place, option in enumerate(point.options)
        ],
    )
    told = ", ".join(f"{one.key} ({one.information:.0%})" for one in point.contexts)
    return Figure(
        name=f"{name}-contexts",
        title=f"{point.contexts[0].key} explains {point.contexts[0].information:.0%} of the choice"
        if point.contexts
        else "No context has values to compare",
        subject="Choices by context",
        said="Options applied, by context value. The context that explains most of the choice "
        "comes first: 0 % explains nothing, 100 % everything.",
        described=f"Share of the choice that each explains: {told}."
        if told
        else "No context has few enough values to compare.",
        chart=chart if rows else None,
        keys=_option_keys(point),
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
    chart = Dots(
        series=[
            band("observed", Role.LEARNER, [one.expected for one in bins], [b.came for b in bins])
        ],
        x_label="estimated return (reward from there on)",
        y_label="observed return",
        diagonal=True,
    )
    inside = sum(
        one.came.lower is not None
        and one.came.upper is not None
        and one.came.lower <= one.expected <= one.came.upper
        for one in bins
    )
    return Figure(
        name=f"{name}-calibration",
        title=_bias(point.error),
        subject="Calibration of the value estimate",
        said="Decisions grouped by estimate. On the dashed line the observed return equals the "
        "estimate; above it, the estimate is too low. The estimate is learned and starts at 0.",
        described=f"In {inside} of {len(bins)} groups the estimate is within the 95 % interval of "
        f"the observed return. Observed minus estimated: {said(point.error)}."
        if bins
        else "No decision with a value estimate has a reward yet.",
        chart=chart if bins else None,
        keys=(Key(label="mean, with its 95 % interval", role=Role.LEARNER, form="dot"),),
        tables=[
            Table(
                caption="Estimated and observed return",
                columns=("estimated#", "decisions#", "observed#", "lower#", "upper#"),
                rows=[(number(one.expected), *mean_cells(one.came)) for one in bins],
            )
        ],
    )


def _compared(point: Point, name: str) -> Figure:
    rows = point.compared
    at = [float(n) for n in range(len(rows))]
    chart = Dots(
        series=[
            band("estimated", Role.CONTROL, [x - 0.08 for x in at], [one.estimate for one in rows]),
            band("live", Role.LEARNER, [x + 0.08 for x in at], [one.live for one in rows]),
        ],
        x_label="version, and the rollouts compared",
        y_label="mean reward",
        ticks=[
            Tick(x=x, label=f"version {row.version}\n{row.first:,} to {row.last:,}")
            for x, row in zip(at, rows, strict=True)
        ],
    )
    return Figure(
        name=f"{name}-compared",
        title=_agreement(rows),
        subject="Off-policy against live",
        said="Off-policy estimate from the log before a range of rollouts, and the mean reward "
        "they then earned. Where the log has too little support there is no estimate, as is usual "
        "for runs of many steps. The policy keeps learning, so live may be slightly higher.",
        described=" ".join(_outcome(row) for row in rows) or "Nothing to compare yet.",
        chart=chart if rows else None,
        keys=(
            Key(label="estimated from the log before", role=Role.CONTROL, form="diamond"),
            Key(label="live", role=Role.LEARNER, form="dot"),
        ),
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
        return f"Version {row.version}: no estimate ({row.refused}); live {said(row.live)}."
    return f"Version {row.version}: estimated {said(row.estimate)}, live {said(row.live)}."


def _drift(point: Point, name: str) -> Figure:
    x = [(one.first + one.last) / 2.0 for one in point.errors]
    flags = [
        Flag(x=float(at), kind=str(alarm.get("direction")))
        for alarm in point.alarms
        if isinstance(at := alarm.get("ready_seq"), int | float)
        and alarm.get("direction") in WORDS
        and point.errors
        and point.errors[0].first <= at <= point.errors[-1].last
    ]
    chart = Curves(
        panels=[
            Panel(
                label="observed - estimated",
                zero=True,
                series=[band("error", Role.ALL, x, [one.error for one in point.errors])],
            )
        ],
        x_label=READY,
        flags=flags,
    )
    alarms = [f"{one.get('option')} became {one.get('direction')}" for one in point.alarms]
    return Figure(
        name=f"{name}-drift",
        title="; ".join(alarms) if alarms else "No option has changed",
        subject="Drift",
        said="Observed minus estimated return. Once the estimate is learned, this stays around 0 "
        "while the world stays the same. An alarm means that an option's reward has changed.",
        described=f"{ends_of('Observed minus estimated return', [e.error for e in point.errors])} "
        + (f"Alarms: {'; '.join(alarms)}." if alarms else "No alarm."),
        chart=chart if point.errors else None,
        keys=[
            Key(label="mean, with its 95 % interval", role=Role.ALL, form="line"),
            *keys_of(flags),
        ],
        tables=[
            Table(
                caption="Observed minus estimated return, by stretch",
                columns=("rollouts", "decisions#", "mean#", "lower#", "upper#"),
                rows=[
                    (f"{one.first} to {one.last}", *mean_cells(one.error)) for one in point.errors
                ],
            ),
            Table(
                caption="Alarms",
                columns=("option", "became", "seen by rollout#", "decisions seen#", "shift#"),
                rows=[
                    tuple(
                        _cell(alarm.get(name))
                        for name in ("option", "direction", "ready_seq", "seen", "shift")
                    )
                    for alarm in point.alarms
                ],
            ),
        ],
    )


def _cell(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)
