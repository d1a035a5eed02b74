"""Charts as SVG elements; the only module that needs matplotlib.

What matplotlib writes is made fit for a page with a strict content policy: no style attribute and
no script is left, colours are classes that the page's style sheet fills by day and by night, and
texts stay texts.
"""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from unicodedata import east_asian_width
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from tau_live.cli.page.shapes import (
    FLAGS,
    Areas,
    Bars,
    Chart,
    Curves,
    Dots,
    Flag,
    Part,
    Role,
    Series,
    Tick,
)
from tau_live.cli.text import shown

WIDE_IN, NARROW_IN = 8.0, 4.0
"""How wide a chart is drawn for a desk, and for a telephone."""

LONGEST, LONGEST_NARROW = 30, 16
"""A label beside a bar is cut behind so many characters; the table has all of it."""

CHARACTER_IN = 0.075
"""About as wide is a character of a label."""

AXIS_IN = 0.9
"""About as much of the width is the vertical axis with its labels."""

COLOURS = {role: f"#0102{number:02x}" for number, role in enumerate(Role)}
"""What matplotlib is told; no other colour is ever drawn."""

CLASSES = {colour: role.value for role, colour in COLOURS.items()}
INK, MUTED, GRID = COLOURS[Role.INK], COLOURS[Role.MUTED], COLOURS[Role.GRID]

SETTINGS: Mapping[str, object] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "path.simplify": True,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
}

PASSED = {
    "fill", "fill-opacity", "opacity", "stroke", "stroke-dasharray", "stroke-dashoffset",
    "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "stroke-width",
    "text-anchor",
}  # fmt: skip
"""What of a style is a presentation attribute, too, which no content policy forbids."""


def svg_of(chart: Chart, name: str, *, narrow: bool = False) -> ET.Element:
    """Return a chart as an ``svg`` element without a name space, fit to stand in HTML.

    Args:
        chart: What to draw.
        name: Begins every id in it, so that none is twice on a page.
        narrow: Whether it is for a narrow screen: as large letters, and fewer of them.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that matplotlib's font lacks the browser's has
        mpl.rcdefaults()  # whatever the user's own matplotlibrc says
        mpl.rcParams.update({**SETTINGS, "svg.hashsalt": name})
        canvas = Canvas(figsize=(NARROW_IN if narrow else WIDE_IN, 3.0))
        draw(chart, canvas)
        written = io.BytesIO()
        FigureCanvasSVG(canvas).print_svg(
            written, metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
        )
    return _cleaned(ET.fromstring(written.getvalue()), name)  # noqa: S314 - we have just written it


def draw(chart: Chart, canvas: Canvas) -> None:
    """Draw a chart."""
    match chart:
        case Curves():
            _curves(chart, canvas)
        case Areas():
            _areas(chart, canvas)
        case Bars():
            _bars(chart, canvas)
        case Dots():
            _marked(chart, canvas)
    canvas.set_layout_engine("constrained")


def _curves(chart: Curves, canvas: Canvas) -> None:
    heights = [2.4] + [1.5] * (len(chart.panels) - 1)
    canvas.set_figheight(sum(heights) + 0.9)
    rows = canvas.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
    for axes, panel in zip(rows[:, 0], chart.panels, strict=True):
        for series in panel.series:
            _line(axes, series)
        axes.set_ylabel(panel.label)
        if panel.log:
            _powers(axes)
        if panel.percent:
            _percent(axes)
        else:
            axes.margins(y=0.12)
        if panel.from_zero:
            axes.set_ylim(bottom=0.0)
        if panel.zero:
            axes.axhline(0.0, color=MUTED, linewidth=1.0, dashes=(4, 3))
        _flagged(axes, chart.flags)
    for axes in rows[:-1, 0]:
        axes.tick_params(axis="x", length=0)
    _labelled(rows[-1, 0], chart.x_label, chart.ticks, canvas=canvas)
    _glyphs(rows[0, 0], chart.flags)
    canvas.align_ylabels()


def _areas(chart: Areas, canvas: Canvas) -> None:
    canvas.set_figheight(3.0)
    axes = canvas.subplots()
    edges = np.ravel([(first - 0.5, last + 0.5) for first, last in chart.spans])
    shares = [np.repeat(values, 2) for values in _shares(chart.parts)]
    seen = np.sum(shares, axis=0) > 0.0
    below = np.zeros(len(edges))
    for part, values in zip(chart.parts, shares, strict=True):
        axes.fill_between(
            edges, below, below + values, where=seen, color=COLOURS[part.role], linewidth=0.0
        )
        below = below + values
    _percent(axes)
    axes.set_axisbelow(True)
    axes.margins(x=0.0)
    axes.set_ylabel("share of decisions")
    _labelled(axes, chart.x_label, chart.ticks, canvas=canvas)


def _bars(chart: Bars, canvas: Canvas) -> None:
    canvas.set_figheight(0.28 * len(chart.rows) + 0.8)
    axes = canvas.subplots()
    places = np.arange(len(chart.rows))
    values = _shares(chart.parts) if chart.share else [np.array(p.values) for p in chart.parts]
    left = np.zeros(len(chart.rows))
    for part, lengths in zip(chart.parts, values, strict=True):
        axes.barh(places, lengths, left=left, color=COLOURS[part.role], height=0.72)
        left = left + lengths
    most = LONGEST_NARROW if _is_narrow(canvas) else LONGEST
    axes.set_yticks(places, [_cut(row, most) for row in chart.rows])
    for label, head in zip(axes.get_yticklabels(), chart.heads, strict=True):
        label.set_fontweight("bold" if head else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(chart.rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    if chart.share:
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(2 if _is_narrow(canvas) else 5))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(3 if _is_narrow(canvas) else 6, integer=True))
        _named(axes, left, chart.heads)
    _across(axes, chart.x_label, canvas)


def _marked(chart: Dots, canvas: Canvas) -> None:
    canvas.set_figheight(3.6)
    axes = canvas.subplots()
    for series in chart.series:
        _dots(axes, series)
    if chart.diagonal:
        low = max(axes.get_xlim()[0], axes.get_ylim()[0])
        high = min(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.set_ylabel(chart.y_label)
    axes.margins(x=0.08)
    _labelled(axes, chart.x_label, chart.ticks, canvas=canvas)
    if chart.ticks:
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)


def _line(axes: Axes, series: Series) -> None:
    colour, x, y = COLOURS[series.role], np.array(series.x), _floats(series.y)
    style = (0, (4, 2)) if series.dashed else "solid"
    if len(series.lower):
        lower, upper = _floats(series.lower), _floats(series.upper)
        axes.fill_between(x, lower, upper, color=colour, alpha=0.18, linewidth=0.0)
    alone = np.isfinite(y).sum() < 2
    axes.plot(x, y, color=colour, linestyle=style, marker="o" if alone else "", markersize=5)


def _dots(axes: Axes, series: Series) -> None:
    colour, x, y = COLOURS[series.role], np.array(series.x), _floats(series.y)
    lower = _floats(series.lower) if len(series.lower) else y
    upper = _floats(series.upper) if len(series.upper) else y
    axes.vlines(x, lower, upper, color=colour, linewidth=2.0, alpha=0.6)
    marker = "D" if series.dashed else "o"
    axes.plot(x, y, color=colour, linestyle="none", marker=marker, markersize=7)


def _flagged(axes: Axes, flags: Sequence[Flag]) -> None:
    for flag in flags:
        colour = COLOURS[FLAGS[flag.kind][0]]
        axes.axvline(flag.x, color=colour, linewidth=1.0, alpha=0.55, zorder=1)


def _glyphs(axes: Axes, flags: Sequence[Flag]) -> None:
    across = axes.get_xaxis_transform()
    for flag in flags:
        role, marker = FLAGS[flag.kind]
        axes.plot(
            flag.x, 1.04, marker=marker, markersize=7, color=COLOURS[role],
            transform=across, clip_on=False, linestyle="none",
        )  # fmt: skip


def _powers(axes: Axes) -> None:
    """Make the axis logarithmic, with labels that are plain text."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _labelled(axes: Axes, label: str, ticks: Sequence[Tick], *, canvas: Canvas) -> None:
    _across(axes, label, canvas)
    ticks = _fitting(ticks) if _is_narrow(canvas) else ticks
    if ticks:
        axes.set_xticks([tick.x for tick in ticks], [shown_lines(tick.label) for tick in ticks])


def _across(axes: Axes, label: str, canvas: Canvas) -> None:
    """Name the horizontal axis, in as many lines as there have to be."""
    room = int((canvas.get_figwidth() - AXIS_IN / 2) / CHARACTER_IN)
    axes.set_xlabel("\n".join(textwrap.wrap(label, room)))


def _fitting(ticks: Sequence[Tick]) -> Sequence[Tick]:
    """Return as many of the ticks as find room beside each other on a narrow screen."""
    longest = max((len(line) for tick in ticks for line in tick.label.split("\n")), default=1)
    room = max(2, int((NARROW_IN - AXIS_IN) / ((longest + 2) * CHARACTER_IN)))
    return ticks[:: -(-len(ticks) // room)] if ticks else ticks


def _is_narrow(canvas: Canvas) -> bool:
    return bool(canvas.get_figwidth() < WIDE_IN)


def shown_lines(label: str) -> str:
    """Return a label of one or two lines, each safe to draw."""
    return "\n".join(shown(line) for line in label.split("\n")[:2])


def _percent(axes: Axes) -> None:
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def _named(axes: Axes, lengths: np.ndarray, heads: Sequence[bool]) -> None:
    for place, (length, head) in enumerate(zip(lengths.tolist(), heads, strict=True)):
        if not head:
            axes.annotate(
                f"{length:,.0f}", (length, place), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=9,
            )  # fmt: skip
    axes.margins(x=0.12)
    axes.set_xlim(left=0.0)


def _shares(parts: Sequence[Part]) -> list[np.ndarray]:
    values = np.array([part.values for part in parts], dtype=np.float64)
    total = values.sum(axis=0)
    shares = np.divide(values, total, out=np.zeros_like(values), where=total > 0.0)
    return list(shares)


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _cut(text: str, most: int) -> str:
    """Return a label that has room beside a bar; wide characters count for two."""
    safe = shown(text)
    widths = np.cumsum([2 if east_asian_width(character) in "WF" else 1 for character in safe])
    if not safe or widths[-1] <= most:
        return safe
    return safe[: int(np.searchsorted(widths, most))] + "…"


def _cleaned(root: ET.Element, name: str) -> ET.Element:
    """Return what matplotlib wrote without name spaces, styles, scripts and foreign ids."""
    for parent in list(root.iter()):
        parent.tag = _local(parent.tag)
        for child in list(parent):
            if _local(child.tag) in {"metadata", "style", "script"}:
                parent.remove(child)
    used = {value for element in root.iter() for value in _references(element)}
    for element in root.iter():
        attributes = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(_attributes(attributes, used, name))
        if element.tag != "text":
            element.text = element.tail = None
    box = root.get("viewBox", f"0 0 {WIDE_IN * 72:g} 200")
    root.attrib.clear()
    root.set("viewBox", box)
    return root


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _references(element: ET.Element) -> list[str]:
    """Return the ids that an element refers to."""
    values = list(element.attrib.values()) + element.get("style", "").split(";")
    urls = [value.split("url(#", 1)[1].split(")")[0] for value in values if "url(#" in value]
    links = [value[1:] for key, value in element.attrib.items() if _local(key) == "href"]
    return urls + links


def _attributes(said: Mapping[str, str], used: set[str], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    classes: list[str] = []
    for key, value in {**said, **_styles(said.get("style", ""))}.items():
        if key in {"fill", "stroke"} and value.lower() in CLASSES:
            classes.append(f"{key[0]}-{CLASSES[value.lower()]}")
        elif key == "id" and value in used:
            found["id"] = f"{name}-{value}"
        elif key == "href":
            found["href"] = f"#{name}-{value[1:]}"
        elif key == "clip-path":
            found["clip-path"] = value.replace("url(#", f"url(#{name}-")
        elif key not in {"id", "style", "class"}:
            found[key] = value
    return {**found, **({"class": " ".join(classes)} if classes else {})}


def _styles(style: str) -> dict[str, str]:
    """Return what a style says, as far as it may be an attribute; of a font its size and weight."""
    found: dict[str, str] = {}
    for one in style.split(";"):
        key, _, value = (part.strip() for part in one.partition(":"))
        if key in PASSED:
            found[key] = value
        elif key == "font":
            words = value.split()
            found["font-size"] = next(word for word in words if word.endswith("px"))
            found |= {"font-weight": "700"} if {"bold", "700"} & set(words) else {}
        elif key in {"font-size", "font-weight", "clip-path"}:
            found[key] = value
    return found
