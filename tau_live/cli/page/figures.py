"""The figures about all rollouts: reward and exposure, cost and latency, drops."""

from collections.abc import Callable, Sequence

from tau_live.cli.page.saying import (
    ORDER,
    ends_of,
    finding_of,
    marks_table,
    mean_cells,
    places,
    shown_marks,
    spread_cells,
    ticks_of,
)
from tau_live.cli.page.shapes import (
    Bars,
    Curves,
    Figure,
    Key,
    Panel,
    Part,
    Role,
    Section,
    Series,
    Table,
)
from tau_live.cli.text import moment, number, seconds
from tau_live.reporting.facts import Facts, Mean, Spread, Stretch


def whole(facts: Facts) -> list[Section]:
    """Return the sections that are about all rollouts."""
    return [
        Section(
            name="reward",
            title="Reward",
            said="Rewards of all rollouts, and how they ended.",
            figures=[_reward(facts)],
        ),
        Section(
            name="cost",
            title="Cost and latency",
            said="Cost and duration of rollouts, and latency of decisions.",
            figures=[_cost(facts), _latency(facts)],
        ),
        Section(
            name="drops",
            title="Drops",
            said="What was dropped, and what was not learned from.",
            figures=[_drops(facts)],
        ),
    ]


def band(label: str, role: Role, x: Sequence[float], means: Sequence[Mean]) -> Series:
    """Return a line of means with its band."""
    return Series(
        label=label,
        role=role,
        x=x,
        y=[one.mean for one in means],
        lower=[one.lower for one in means],
        upper=[one.upper for one in means],
        dashed=role is Role.CONTROL,
    )


def _reward(facts: Facts) -> Figure:
    x, means = places(facts.stretches), [one.reward for one in facts.stretches]
    unrewarded = [_unrewarded(one) for one in facts.stretches]
    failed = [_share(one.failed, one) for one in facts.stretches]
    flags, keys = shown_marks(facts.marks)
    chart = Curves(
        panels=[
            Panel(label="mean reward", series=[band("reward", Role.ALL, x, means)]),
            Panel(
                label="share",
                percent=True,
                series=[
                    Series(label="failed", role=Role.BAD, x=x, y=failed),
                    Series(
                        label="ended without a reward",
                        role=Role.DOUBTFUL,
                        x=x,
                        y=unrewarded,
                        dashed=True,
                    ),
                ],
            ),
        ],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
        flags=flags,
    )
    is_known = any(one.count for one in means)
    return Figure(
        name="reward",
        title=finding_of("Mean reward", means),
        subject="Reward over time",
        said="Top: mean reward, with the 95 % interval of each stretch. Bottom: the share of "
        "rollouts that failed, and the share still without a reward.",
        described=ends_of("Mean reward", means) if is_known else "No rollout has a reward yet.",
        chart=chart if facts.stretches else None,
        keys=[
            Key(label="mean reward of all rollouts", role=Role.ALL, form="line"),
            Key(label="failed", role=Role.BAD, form="line"),
            Key(label="ended without a reward", role=Role.DOUBTFUL, form="dash"),
            *keys,
        ],
        tables=[
            Table(
                caption="Rewards and ends by stretch",
                columns=("rollouts", "began (UTC)", "examined#", "rewarded#", "mean#", "lower#",
                         "upper#", "failed#", "without a reward#", "open#"),
                rows=[
                    (
                        f"{one.first} to {one.last}", moment(one.began_at), number(one.looked_at),
                        *mean_cells(one.reward), number(one.failed),
                        number(one.waiting + one.left_out), number(one.open),
                    )
                    for one in facts.stretches
                ],
            ),
            *marks_table(facts.marks),
        ],
    )  # fmt: skip


def _cost(facts: Facts) -> Figure:
    spreads = [one.cost_usd for one in facts.stretches]
    return _spreads(
        facts,
        spreads,
        name="costs",
        title="Cost of a rollout",
        label="US dollars",
        nothing="No rollout's cost is known",
    )


def _latency(facts: Facts) -> Figure:
    x = places(facts.stretches)
    durations = [one.duration_s for one in facts.stretches]
    deciding = [one.latency_us for one in facts.stretches]
    is_known = any(one.count for one in (*durations, *deciding))
    chart = Curves(
        panels=[
            Panel(label="rollout, s", log=True, series=_lines(x, durations)),
            Panel(label="decision, µs", log=True, series=_lines(x, deciding)),
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
        said="Top: rollouts from start to end. Bottom: one decision in the host's thread. Both "
        "axes are logarithmic.",
        described=_ends(durations, "A rollout", " s") + " " + _ends(deciding, "A decision", " µs")
        if is_known
        else "Nothing has ended yet.",
        chart=chart if is_known else None,
        keys=SPREAD_KEYS,
        tables=[
            Table(
                caption="Durations by stretch",
                columns=("rollouts", "ended#", "median#", "95th percentile#", "decisions#",
                         "median, µs#", "95th percentile, µs#"),
                rows=[
                    (
                        f"{one.first} to {one.last}", number(one.duration_s.count),
                        seconds(one.duration_s.median), seconds(one.duration_s.high),
                        *spread_cells(one.latency_us),
                    )
                    for one in facts.stretches
                ],
            )
        ],
    )  # fmt: skip


SPREAD_KEYS = (
    Key(label="median", role=Role.ALL, form="line"),
    Key(label="95th percentile", role=Role.MUTED, form="dash"),
)


def _spreads(  # what it is called, all keyword-only but the first two
    facts: Facts, spreads: Sequence[Spread], *, name: str, title: str, label: str, nothing: str
) -> Figure:
    x = places(facts.stretches)
    is_known = any(one.count for one in spreads)
    chart = Curves(
        panels=[Panel(label=label, series=_lines(x, spreads), from_zero=True)],
        x_label=ORDER,
        ticks=ticks_of(facts.stretches),
    )
    return Figure(
        name=name,
        title=_latest(spreads, "A rollout costs", _dollars) or nothing,
        subject=title,
        said="Of rollouts whose cost is known: unknown is not zero.",
        described=_ends(spreads, "A rollout", " US dollars") if is_known else nothing,
        chart=chart if is_known else None,
        keys=SPREAD_KEYS,
        tables=[
            Table(
                caption=f"{title} by stretch",
                columns=("rollouts", "known#", "median#", "95th percentile#"),
                rows=[
                    (f"{one.first} to {one.last}", *spread_cells(spread))
                    for one, spread in zip(facts.stretches, spreads, strict=True)
                ],
            )
        ],
    )


def _lines(x: Sequence[float], spreads: Sequence[Spread]) -> list[Series]:
    return [
        Series(label="median", role=Role.ALL, x=x, y=[_above_0(one.median) for one in spreads]),
        Series(
            label="95th percentile",
            role=Role.MUTED,
            x=x,
            y=[_above_0(one.high) for one in spreads],
            dashed=True,
        ),
    ]


def _above_0(value: float | None) -> float | None:
    """Return a number that an axis of powers can show."""
    return value if value is None or value > 0.0 else None


def _drops(facts: Facts) -> Figure:
    parts = [("Dropped or refused", facts.drops, 0), ("Not learned from", facts.untaught, 1)]
    names: list[str] = []
    heads: list[bool] = []
    lengths: list[tuple[float, float]] = []
    for title, counts, place in parts:
        if counts:
            names += [title, *(name.replace("_", " ") for name in counts)]
            heads += [True, *(False for _ in counts)]
            lengths += [(0.0, 0.0), *((c * (1 - place), c * place) for c in counts.values())]
    chart = Bars(
        rows=names,
        heads=heads,
        share=False,
        x_label="how often",
        parts=[
            Part(label=title, role=role, values=[pair[place] for pair in lengths])
            for (title, _, place), role in zip(parts, (Role.BAD, Role.DOUBTFUL), strict=True)
        ],
    )
    return Figure(
        name="drops",
        title=_lost(facts),
        subject="Dropped, or not learned from",
        said="Counted since the store was created. The pages Counters and Reasons of the "
        "documentation explain each.",
        described="; ".join(
            f"{title}: " + (", ".join(f"{n.replace('_', ' ')} {c:,}" for n, c in counts.items()))
            for title, counts, _ in parts
            if counts
        )
        or "Nothing was dropped or left out.",
        chart=chart if names else None,
        keys=(
            Key(label="dropped or refused", role=Role.BAD, form="box"),
            Key(label="not learned from", role=Role.DOUBTFUL, form="box"),
        ),
        tables=[
            Table(
                caption="Counts",
                columns=("what", "name", "how often#"),
                rows=[
                    (title, name, number(count))
                    for title, counts, _ in parts
                    for name, count in counts.items()
                ],
            )
        ],
    )


def _ends(spreads: Sequence[Spread], what: str, unit: str) -> str:
    known = [one for one in spreads if one.median is not None]
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
    known = [one.median for one in spreads if one.median is not None]
    return f"{what} {spell(known[-1])}" if known else ""


def _microseconds(value: float) -> str:
    return seconds(value / 1e6) if value >= 1000.0 else f"{value:.0f} µs"


def _dollars(value: float) -> str:
    return f"${value:.2g}"


def _lost(facts: Facts) -> str:
    dropped = sum(facts.drops.values())
    if not dropped and not facts.untaught:
        return "Nothing was dropped, and everything was learned from"
    lost = f"{dropped:,} dropped or refused" if dropped else "Nothing was dropped"
    if not facts.untaught:
        return lost
    # Some reasons are of rollouts and some of decisions: no sum of them means anything.
    why, most = max(facts.untaught.items(), key=lambda one: one[1])
    named, others = f"{why.replace('_', ' ')} ({most:,})", len(facts.untaught) - 1
    if not others:
        return f"{lost}; not learned from: {named}"
    return f"{lost}; not learned from: mostly {named}, and {others} other reason{'s'[: others > 1]}"


def _unrewarded(one: Stretch) -> float | None:
    return _share(one.waiting + one.left_out, one)


def _share(count: int, one: Stretch) -> float | None:
    ended = one.succeeded + one.failed + one.cancelled
    return count / ended if ended else None
