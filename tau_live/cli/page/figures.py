"""The figures about all rollouts: reward and exposure, cost and latency, drops."""

import math
from collections.abc import Callable, Sequence

from tau_live.cli.output import moment, number, seconds
from tau_live.cli.page.chart_types import (
    FLAGS,
    OPTIONS,
    Chart,
    Figure,
    Panel,
    Section,
    Series,
    Table,
)
from tau_live.operate.report.choices import thirds_of
from tau_live.operate.report.facts import Facts, Mark, Mean, Spread, Stretch

ORDER = "rollouts in the order in which they began, with the time (UTC)"


def places(stretches: Sequence[Stretch]) -> list[float]:
    """Return the middle of each stretch."""
    return [(stretch.first + stretch.last) / 2.0 for stretch in stretches]


def ticks_of(stretches: Sequence[Stretch]) -> list[tuple[float, str]]:
    """Return a few places, each labelled with the start of the rollouts there."""
    if not stretches:
        return []
    some = min(6, len(stretches))
    picked = sorted({round(n * (len(stretches) - 1) / max(1, some - 1)) for n in range(some)})
    began = [stretch.began_at for stretch in stretches if stretch.began_at is not None]
    part = slice(5, 16)  # of a time, what distinguishes the ticks of an axis
    if len({moment(at)[:10] for at in began}) <= 1:
        part = slice(11, None)
    # In a span of fewer than 20 days the hour is shown beside the day.
    elif max(began) - min(began) >= 20 * 86_400.0:
        part = slice(0, 10)
    x = places(stretches)
    return [(x[n], f"{x[n]:,.0f}\n{moment(stretches[n].began_at)[part]}") for n in picked]


def flags_of(marks: Sequence[Mark]) -> list[tuple[float, str]]:
    """Return the places and kinds of marks."""
    return [(mark.place, mark.kind) for mark in marks if mark.place is not None]


def marks_table(marks: Sequence[Mark]) -> list[Table]:
    """Return the marks as a table; none where there is no mark."""
    if not marks:
        return []
    rows = [
        (
            moment(mark.at),
            "-" if mark.place is None else f"{mark.place:,.0f}",
            FLAGS[mark.kind].words,
            "all" if mark.point is None else mark.point,
            mark.sentence,
            mark.who,
        )
        for mark in marks
    ]
    columns = ("when (UTC)", "near rollout#", "what", "point", "reason", "who")
    return [Table(caption="What happened", columns=columns, rows=rows)]


def mean_cells(mean: Mean) -> tuple[str, str, str, str]:
    """Return the count, the mean and its interval as cells."""
    return number(mean.count), number(mean.mean), number(mean.lower), number(mean.upper)


def spread_cells(spread: Spread) -> tuple[str, str, str]:
    """Return the count, the median and the 95th percentile as cells."""
    return number(spread.count), number(spread.median), number(spread.high)


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "-" if value is None else f"{value:.1%}"


def short(value: float | None) -> str:
    """Return a number with three significant digits."""
    return "-" if value is None else f"{value:.3g}"


def mean_text(mean: Mean, *, spell: Callable[[float | None], str] = short) -> str:
    """Return a mean with its interval in words."""
    if mean.mean is None:
        return "unknown"
    if mean.lower is None or mean.upper is None:
        return f"{spell(mean.mean)} (of {mean.count:,})"
    between = f"between {spell(mean.lower)} and {spell(mean.upper)}"
    return f"{spell(mean.mean)} ({between}, of {mean.count:,})"


def ends_of(
    what: str, means: Sequence[Mean], *, spell: Callable[[float | None], str] = short
) -> str:
    """Return a sentence with a quantity's mean in its first and in its last third."""
    thirds = thirds_of(means)
    if thirds is None:
        known = [mean for mean in means if mean.mean is not None]
        return f"{what}: {mean_text(known[0], spell=spell) if known else 'unknown'}."
    first, last = (mean_text(third, spell=spell) for third in thirds)
    return f"{what}: {first} in the first third, {last} in the last."


def finding_of(what: str, means: Sequence[Mean]) -> str:
    """Return a title that tells whether a quantity rose or fell from its first third to its last.

    A change counts where it is twice its standard error.
    """
    thirds = thirds_of(means)
    if thirds is None:
        known = [mean.mean for mean in means if mean.mean is not None]
        return f"{what} is {short(known[0])}" if known else f"{what} is unknown"
    first, last = (third.mean or 0.0 for third in thirds)
    reach = math.hypot(*map(_reach, thirds))
    if abs(last - first) < reach or last == first:
        return f"{what}: no clear change, {short(first)} at first and {short(last)} lately"
    return f"{what} {'rose' if last > first else 'fell'} from {short(first)} to {short(last)}"


def _reach(mean: Mean) -> float:
    """Return twice the standard error."""
    if mean.lower is None or mean.upper is None:
        return math.inf
    return (mean.upper - mean.lower) / 2.0


def role_of(index: int) -> str:
    """Return the role of an option by its index."""
    return OPTIONS[index % len(OPTIONS)]


def overall_sections(facts: Facts) -> list[Section]:
    """Return the sections that are about all rollouts."""
    return [
        Section(
            name="reward",
            title="Reward",
            intro="Rewards of all rollouts, and how they ended.",
            figures=[_reward(facts)],
        ),
        Section(
            name="cost",
            title="Cost and latency",
            intro="Cost and duration of rollouts, and latency of decisions.",
            figures=[_costs(facts), _latency(facts)],
        ),
        Section(
            name="drops",
            title="Drops",
            intro="What was dropped, and what was not learned from.",
            figures=[_drops(facts)],
        ),
    ]


def band(label: str, role: str, x: Sequence[float], means: Sequence[Mean]) -> Series:
    """Return a line of means with its band."""
    return Series(
        label=label,
        role=role,
        x=x,
        y=[mean.mean for mean in means],
        lower=[mean.lower for mean in means],
        upper=[mean.upper for mean in means],
        dashed=role == "control",
    )


def _reward(facts: Facts) -> Figure:
    x, means = places(facts.stretches), [stretch.reward for stretch in facts.stretches]
    unrewarded = [_share(of.waiting + of.left_out, of) for of in facts.stretches]
    failed = [_share(stretch.failed, stretch) for stretch in facts.stretches]
    shares = [
        Series(label="failed", role="bad", x=x, y=failed),
        Series(label="ended without a reward", role="doubtful", x=x, y=unrewarded, dashed=True),
    ]
    chart = Chart(
        kind="curves",
        panels=[
            Panel(
                label="mean reward", series=[band("mean reward of all rollouts", "all", x, means)]
            ),
            Panel(label="share", scale="percent", series=shares),
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
        flags=flags_of(facts.marks),
    )
    is_known = any(mean.count for mean in means)
    return Figure(
        name="reward",
        title=finding_of("Mean reward", means),
        subject="Reward over time",
        text="Top: mean reward, with the 95 % interval of each stretch. Bottom: the share of "
        "rollouts that failed, and the share still without a reward.",
        described=ends_of("Mean reward", means) if is_known else "No rollout has a reward yet.",
        chart=chart if facts.stretches else None,
        tables=[
            Table(
                caption="Rewards and ends by stretch",
                columns=("rollouts", "began (UTC)", "examined#", "rewarded#", "mean#", "lower#",
                         "upper#", "failed#", "without a reward#", "open#"),
                rows=[
                    (
                        f"{stretch.first} to {stretch.last}", moment(stretch.began_at),
                        number(stretch.looked_at),
                        *mean_cells(stretch.reward), number(stretch.failed),
                        number(stretch.waiting + stretch.left_out), number(stretch.open),
                    )
                    for stretch in facts.stretches
                ],
            ),
            *marks_table(facts.marks),
        ],
    )  # fmt: skip


def _costs(facts: Facts) -> Figure:
    spreads = [stretch.cost_usd for stretch in facts.stretches]
    is_known = any(spread.count for spread in spreads)
    chart = Chart(
        kind="curves",
        panels=[Panel(label="US dollars", series=_lines(facts, spreads), scale="from 0")],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
    )
    nothing = "No rollout's cost is known"
    return Figure(
        name="costs",
        title=_latest(spreads, "A rollout costs", lambda usd: f"${usd:.2g}") or nothing,
        subject="Cost of a rollout",
        text="Of rollouts whose cost is known: unknown is not zero.",
        described=_ends(spreads, "A rollout", " US dollars") if is_known else nothing,
        chart=chart if is_known else None,
        tables=[
            Table(
                caption="Cost of a rollout by stretch",
                columns=("rollouts", "known#", "median#", "95th percentile#"),
                rows=[
                    (f"{stretch.first} to {stretch.last}", *spread_cells(stretch.cost_usd))
                    for stretch in facts.stretches
                ],
            )
        ],
    )


def _latency(facts: Facts) -> Figure:
    durations = [stretch.duration_s for stretch in facts.stretches]
    deciding = [stretch.latency_us for stretch in facts.stretches]
    is_known = any(spread.count for spread in (*durations, *deciding))
    chart = Chart(
        kind="curves",
        panels=[
            Panel(label="rollout, s", scale="log", series=_lines(facts, durations)),
            Panel(label="decision, µs", scale="log", series=_lines(facts, deciding)),
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
    )
    return Figure(
        name="latency",
        title=_latest(durations, "A rollout takes", seconds)
        + _latest(deciding, ", a decision", _microseconds)
        or "Nothing has ended yet",
        subject="Duration",
        text="Top: rollouts from start to end. Bottom: one decision in the host's thread. Both "
        "axes are logarithmic.",
        described=_ends(durations, "A rollout", " s") + " " + _ends(deciding, "A decision", " µs")
        if is_known
        else "Nothing has ended yet.",
        chart=chart if is_known else None,
        tables=[
            Table(
                caption="Durations by stretch",
                columns=("rollouts", "ended#", "median#", "95th percentile#", "decisions#",
                         "median, µs#", "95th percentile, µs#"),
                rows=[
                    (
                        f"{stretch.first} to {stretch.last}", number(stretch.duration_s.count),
                        seconds(stretch.duration_s.median), seconds(stretch.duration_s.high),
                        *spread_cells(stretch.latency_us),
                    )
                    for stretch in facts.stretches
                ],
            )
        ],
    )  # fmt: skip


def _lines(facts: Facts, spreads: Sequence[Spread]) -> list[Series]:
    """Return the lines of numbers above 0, which alone a logarithmic axis can show."""
    lines = [
        ("median", "all", [spread.median for spread in spreads]),
        ("95th percentile", "muted", [spread.high for spread in spreads]),
    ]
    return [
        Series(
            label=label,
            role=role,
            x=places(facts.stretches),
            y=[None if value is None or value <= 0.0 else value for value in values],
            dashed=role == "muted",
        )
        for label, role, values in lines
    ]


def _drops(facts: Facts) -> Figure:
    parts = [("Dropped or refused", facts.drops), ("Not learned from", facts.untaught)]
    rows: list[tuple[str, bool]] = []
    lengths: list[tuple[float, float]] = []
    for index, (title, counts) in enumerate(parts):
        if counts:
            rows += [(title, True), *((name.replace("_", " "), False) for name in counts)]
            lengths += [(0.0, 0.0), *((c * (1 - index), c * index) for c in counts.values())]
    series = [
        Series(label="dropped or refused", role="bad", y=[dropped for dropped, _ in lengths]),
        Series(label="not learned from", role="doubtful", y=[untaught for _, untaught in lengths]),
    ]
    chart = Chart(
        kind="bars", panels=[Panel(label="", series=series)], x_label="how often", rows=rows
    )
    return Figure(
        name="drops",
        title=_losses_title(facts),
        subject="Dropped, or not learned from",
        text="Counted since the store was created. The pages Counters and Reasons of the "
        "documentation explain each.",
        described="; ".join(
            f"{title}: " + (", ".join(f"{n.replace('_', ' ')} {c:,}" for n, c in counts.items()))
            for title, counts in parts
            if counts
        )
        or "Nothing was dropped or left out.",
        chart=chart if rows else None,
        tables=[
            Table(
                caption="Counts",
                columns=("what", "name", "how often#"),
                rows=[
                    (title, name, number(count))
                    for title, counts in parts
                    for name, count in counts.items()
                ],
            )
        ],
    )


def _ends(spreads: Sequence[Spread], what: str, unit: str) -> str:
    known = [spread for spread in spreads if spread.median is not None]
    if not known:
        return f"{what}: nothing is known."
    first, last = known[0], known[-1]
    return (
        f"{what} took a median of {number(first.median)}{unit} in the first stretch and "
        f"{number(last.median)}{unit} in the last, with a 95th percentile of "
        f"{number(last.high)}{unit}."
    )


def _latest(spreads: Sequence[Spread], what: str, spell: Callable[[float], str]) -> str:
    """Return the newest median as part of a title; empty where none is known."""
    known = [spread.median for spread in spreads if spread.median is not None]
    return f"{what} {spell(known[-1])}" if known else ""


def _microseconds(value: float) -> str:
    return seconds(value / 1e6) if value >= 1000.0 else f"{value:.0f} µs"


def _losses_title(facts: Facts) -> str:
    dropped = sum(facts.drops.values())
    if not dropped and not facts.untaught:
        return "Nothing was dropped, and everything was learned from"
    lost = f"{dropped:,} dropped or refused" if dropped else "Nothing was dropped"
    if not facts.untaught:
        return lost
    # Some reasons are of rollouts and some of decisions: a sum of them means nothing.
    why, count = max(facts.untaught.items(), key=lambda item: item[1])
    main, others = f"{why.replace('_', ' ')} ({count:,})", len(facts.untaught) - 1
    if not others:
        return f"{lost}; not learned from: {main}"
    return f"{lost}; not learned from: mostly {main}, and {others} other reason{'s'[: others > 1]}"


def _share(count: int, stretch: Stretch) -> float | None:
    ended = stretch.succeeded + stretch.failed + stretch.cancelled
    return count / ended if ended else None
