"""Charts as plain data: nothing here knows the library that draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OPTIONS = ("o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8")
"""The roles of the options of a decision point, in their order."""

ROLES = (
    "ink", "muted", "grid", "all", "learner", "control", "good", "doubtful", "bad", *OPTIONS,
)  # fmt: skip
"""The meanings of colours; the style sheet defines them, by day and by night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line with its band, or one of the parts that make up a whole.

    Attributes:
        label: Its label, in the legend too.
        role: Its colour, of ``ROLES``.
        x: ``[N]``; of areas ``[2 * N]``, where each stretch begins and ends; of bars nothing.
        y: ``[N]``; a gap where ``None``; of areas and bars at least 0.
        lower: ``[N]``, of the band; empty for none.
        upper: ``[N]``, likewise.
        dashed: Whether the line is dashed, so that it is distinct without colour.
    """

    label: str
    role: str
    x: Sequence[float] = ()
    y: Sequence[float | None]
    lower: Sequence[float | None] = ()
    upper: Sequence[float | None] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Series over one pair of axes.

    Attributes:
        label: The label of the vertical axis, with its unit.
        series: The series that are drawn.
        scale: Of the axis of values: ``percent`` goes from 0 to 100 %, ``log`` is logarithmic,
            ``from 0`` begins there, ``zero`` has a line there, and ``equal`` has one where both
            axes are equal.
    """

    label: str
    series: Sequence[Series]
    scale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels over the same horizontal axis, one below the other.

    Attributes:
        kind: ``curves`` with bands, stacked ``areas`` of shares, horizontal stacked ``bars``, or
            ``dots`` with intervals; only curves have several panels.
        panels: The panels, from top to bottom.
        x_label: The label of the horizontal axis.
        ticks: Places on it and their labels, of up to two lines; empty for numbers.
        flags: Events: their places on it, and the kind of a ``Mark``, or ``worse`` or ``better``.
        rows: Of bars, their names and whether each is a heading, which has no bar.
    """

    kind: str
    panels: Sequence[Panel]
    x_label: str
    ticks: Sequence[tuple[float, str]] = ()
    flags: Sequence[tuple[float, str]] = ()
    rows: Sequence[tuple[str, bool]] = ()

    def legend(self) -> list[tuple[str, str, str]]:
        """Return its labels, each with its role and with ``line``, ``dash`` or a marker."""
        marker, dashed = MARKERS[self.kind]
        keys = dict.fromkeys(
            (series.label, series.role, dashed if series.dashed else marker)
            for panel in self.panels
            for series in panel.series
        )
        kinds = {kind for _, kind in self.flags}
        flags = [(flag.words, flag.role, flag.marker) for k, flag in FLAGS.items() if k in kinds]
        return [*keys, *flags]


MARKERS: Mapping[str, tuple[str, str]] = {
    "curves": ("line", "dash"),
    "areas": ("s", "s"),
    "bars": ("s", "s"),
    "dots": ("o", "D"),
}
"""The marker of a series, and of a dashed one, by kind of chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers behind a figure; a column whose name ends in ``#`` is set to the right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its explanation and tables.

    Attributes:
        name: Unique on the page, of letters, digits and ``-`` alone.
        title: The finding, as a short sentence.
        subject: Its subject, as a noun.
        text: An explanation of how to read it.
        described: A description for readers who cannot see it.
        chart: The chart; ``None`` where there is nothing to draw.
        tables: The numbers.
    """

    name: str
    title: str
    subject: str
    text: str
    described: str
    chart: Chart | None
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Figures under a heading."""

    name: str
    title: str
    intro: str
    figures: Sequence[Figure]


class FlagKind(NamedTuple):
    """The colour, the form and the meaning of a flag."""

    role: str
    marker: str
    words: str


FLAGS: Mapping[str, FlagKind] = {
    "promotion": FlagKind("good", "^", "version became the champion"),
    "rollback": FlagKind("doubtful", "v", "another version put into service"),
    "exposure": FlagKind("learner", "D", "exposure changed"),
    "stop": FlagKind("bad", "X", "learner stopped"),
    "hold": FlagKind("bad", "s", "gate holds"),
    "reset": FlagKind("good", "o", "gate reset"),
    "worse": FlagKind("bad", "v", "an option got worse"),
    "better": FlagKind("good", "^", "an option got better"),
}
