"""What can be drawn, as plain data: nothing here knows the library that draws it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a colour stands for; the style sheet says which it is, by day and by night."""

    INK = "ink"
    MUTED = "muted"
    GRID = "grid"
    ALL = "all"
    LEARNER = "learner"
    CONTROL = "control"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    O1 = "o1"
    O2 = "o2"
    O3 = "o3"
    O4 = "o4"
    O5 = "o5"
    O6 = "o6"
    O7 = "o7"
    O8 = "o8"


OPTIONS = (Role.O1, Role.O2, Role.O3, Role.O4, Role.O5, Role.O6, Role.O7, Role.O8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line with its band.

    Attributes:
        label: What it shows.
        role: Its colour.
        x: ``[N]``.
        y: ``[N]``; a gap where ``None``.
        lower: ``[N]``, of the band; empty for none.
        upper: ``[N]``, likewise.
        dashed: Whether the line is dashed, so that it can be told without colour.
    """

    label: str
    role: Role
    x: Sequence[float]
    y: Sequence[float | None]
    lower: Sequence[float | None] = ()
    upper: Sequence[float | None] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines over one vertical axis.

    Attributes:
        label: What the axis shows, with its unit.
        series: The lines.
        percent: Whether the axis goes from 0 to 100 %.
        zero: Whether there is a line at 0.
        from_zero: Whether the axis begins there.
        log: Whether the axis is logarithmic.
    """

    label: str
    series: Sequence[Series]
    percent: bool = False
    zero: bool = False
    from_zero: bool = False
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on the horizontal axis, in up to two lines."""

    x: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Something that happened.

    Attributes:
        x: Where.
        kind: The kind of a ``Mark``, or ``worse`` or ``better``.
    """

    x: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Panels over the same horizontal axis, one below the other."""

    panels: Sequence[Panel]
    x_label: str
    ticks: Sequence[Tick] = ()
    flags: Sequence[Flag] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of several that make up a whole.

    Attributes:
        label: What it is.
        role: Its colour.
        values: ``[N]``, at least 0.
    """

    label: str
    role: Role
    values: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Shares over time, stacked.

    Attributes:
        spans: ``[N]``, from where to where each stretch goes.
        parts: Scaled to a sum of 1; a gap where there is nothing.
        x_label: What the horizontal axis shows.
        ticks: Of the horizontal axis.
    """

    spans: Sequence[tuple[float, float]]
    parts: Sequence[Part]
    x_label: str
    ticks: Sequence[Tick] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars, stacked.

    Attributes:
        rows: ``[N]`` names; one in capitals has no bar and heads those below it.
        heads: Which of them are headings.
        parts: What the bars are made of.
        share: Whether each bar is scaled to 100 %.
        x_label: What the length shows.
    """

    rows: Sequence[str]
    heads: Sequence[bool]
    parts: Sequence[Part]
    share: bool
    x_label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Means with intervals, over numbers or names.

    Attributes:
        series: What is compared; each has ``[N]`` points.
        x_label: What the horizontal axis shows.
        y_label: What the vertical one does.
        diagonal: Whether both should be equal, and a line says so.
        ticks: Of the horizontal axis; empty for numbers.
    """

    series: Sequence[Series]
    x_label: str
    y_label: str
    diagonal: bool = False
    ticks: Sequence[Tick] = ()


Chart = Curves | Areas | Bars | Dots


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A line of a legend.

    Attributes:
        label: What it means.
        role: Its colour.
        form: ``line``, ``dash``, ``box``, ``dot`` or the kind of a flag.
    """

    label: str
    role: Role
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers behind a figure; a column whose name ends in ``#`` is set to the right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with everything that is said of it.

    Attributes:
        name: Unique on the page, of letters, digits and ``-`` alone.
        title: The finding, as a short sentence.
        subject: What it shows, as a noun.
        said: How to read it, for everybody.
        described: What is to be seen in it, for those who do not see it.
        chart: What is drawn; ``None`` where there is nothing to draw.
        keys: The legend.
        tables: The numbers.
    """

    name: str
    title: str
    subject: str
    said: str
    described: str
    chart: Chart | None
    keys: Sequence[Key]
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Figures under a heading."""

    name: str
    title: str
    said: str
    figures: Sequence[Figure]


FLAGS: dict[str, tuple[Role, str]] = {
    "promotion": (Role.GOOD, "^"),
    "rollback": (Role.DOUBTFUL, "v"),
    "exposure": (Role.LEARNER, "D"),
    "stop": (Role.BAD, "X"),
    "hold": (Role.BAD, "s"),
    "reset": (Role.GOOD, "o"),
    "worse": (Role.BAD, "v"),
    "better": (Role.GOOD, "^"),
}
"""The colour and the form of a flag."""
