"""What figures have in common: their horizontal axis, their marks, and numbers in words."""

import math
from collections.abc import Callable, Sequence

from tau_live.cli.page.shapes import FLAGS, OPTIONS, Flag, Key, Role, Table, Tick
from tau_live.cli.text import moment, number
from tau_live.reporting.facts import Mark, Mean, Spread, Stretch
from tau_live.reporting.means import thirds_of

ORDER = "rollouts in the order in which they began, with the time (UTC)"
TICKS = 6
DAYS_S = 20 * 86_400.0
"""In less the hour is told beside the day."""

WORDS = {
    "promotion": "version became the champion",
    "rollback": "another version put into service",
    "exposure": "exposure changed",
    "stop": "learner stopped",
    "hold": "gate holds",
    "reset": "gate reset",
    "worse": "an option got worse",
    "better": "an option got better",
}
"""What the kinds of marks mean."""


def places(stretches: Sequence[Stretch]) -> list[float]:
    """Return the middle of each stretch."""
    return [(one.first + one.last) / 2.0 for one in stretches]


def ticks_of(stretches: Sequence[Stretch]) -> list[Tick]:
    """Return a few places with the time at which those rollouts began."""
    if not stretches:
        return []
    some = min(TICKS, len(stretches))
    picked = sorted({round(n * (len(stretches) - 1) / max(1, some - 1)) for n in range(some)})
    began = [one.began_at for one in stretches if one.began_at is not None]
    part = _part(began)
    return [
        Tick(
            x=places(stretches)[n],
            label=f"{places(stretches)[n]:,.0f}\n{moment(stretches[n].began_at)[part]}",
        )
        for n in picked
    ]


def _part(began: Sequence[float]) -> slice:
    """Return which part of a time tells those of an axis apart."""
    if len({moment(at)[:10] for at in began}) <= 1:
        return slice(11, None)
    return slice(5, 16) if max(began) - min(began) < DAYS_S else slice(0, 10)


def shown_marks(marks: Sequence[Mark]) -> tuple[list[Flag], list[Key]]:
    """Return marks as flags, and the legend of their kinds."""
    flags = [Flag(x=mark.place, kind=mark.kind) for mark in marks if mark.place is not None]
    return flags, keys_of(flags)


def keys_of(flags: Sequence[Flag]) -> list[Key]:
    """Return the legend of the kinds of flags that there are."""
    kinds = {flag.kind for flag in flags}
    return [
        Key(label=WORDS[kind], role=FLAGS[kind][0], form=kind) for kind in WORDS if kind in kinds
    ]


def marks_table(marks: Sequence[Mark]) -> list[Table]:
    """Return what happened as a table; none where nothing did."""
    if not marks:
        return []
    rows = [
        (
            moment(mark.at),
            "-" if mark.place is None else f"{mark.place:,.0f}",
            WORDS[mark.kind],
            "all" if mark.point is None else mark.point,
            mark.said,
            mark.who,
        )
        for mark in marks
    ]
    columns = ("when (UTC)", "near rollout#", "what", "point", "reason", "who")
    return [Table(caption="What happened", columns=columns, rows=rows)]


def mean_cells(one: Mean) -> tuple[str, str, str, str]:
    """Return how many, the mean and its interval."""
    return number(one.count), number(one.mean), number(one.lower), number(one.upper)


def spread_cells(one: Spread) -> tuple[str, str, str]:
    """Return how many, the median and the upper end."""
    return number(one.count), number(one.median), number(one.high)


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "-" if value is None else f"{value:.1%}"


def short(value: float | None) -> str:
    """Return a number with three digits that count."""
    return "-" if value is None else f"{value:.3g}"


def said(one: Mean, *, spell: Callable[[float | None], str] = short) -> str:
    """Return a mean with its interval in words."""
    if one.mean is None:
        return "unknown"
    if one.lower is None or one.upper is None:
        return f"{spell(one.mean)} (of {one.count:,})"
    between = f"between {spell(one.lower)} and {spell(one.upper)}"
    return f"{spell(one.mean)} ({between}, of {one.count:,})"


def ends_of(
    what: str, means: Sequence[Mean], *, spell: Callable[[float | None], str] = short
) -> str:
    """Return how something was at first and at last."""
    thirds = thirds_of(means)
    if thirds is None:
        known = [one for one in means if one.mean is not None]
        return f"{what}: {said(known[0], spell=spell) if known else 'unknown'}."
    first, last = (said(one, spell=spell) for one in thirds)
    return f"{what}: {first} in the first third, {last} in the last."


def finding_of(what: str, means: Sequence[Mean]) -> str:
    """Return whether something rose or fell from its first third to its last, as a title.

    A change counts where it is twice its standard error.
    """
    thirds = thirds_of(means)
    if thirds is None:
        known = [one.mean for one in means if one.mean is not None]
        return f"{what} is {short(known[0])}" if known else f"{what} is unknown"
    first, last = (one.mean or 0.0 for one in thirds)
    reach = math.hypot(*map(_reach, thirds))
    if abs(last - first) < reach or last == first:
        return f"{what}: no clear change, {short(first)} at first and {short(last)} lately"
    return f"{what} {'rose' if last > first else 'fell'} from {short(first)} to {short(last)}"


def _reach(one: Mean) -> float:
    """Return twice the standard error."""
    if one.lower is None or one.upper is None:
        return math.inf
    return (one.upper - one.lower) / 2.0


def role_of(place: int) -> Role:
    """Return the colour of an option by its place."""
    return OPTIONS[place % len(OPTIONS)]
