"""Charts as SVG elements; the only module that needs matplotlib.

matplotlib's output is adapted to a page with a strict content policy: no style attribute and no
script is left, colours are classes that the page's style sheet fills by day and by night, and texts
stay texts.
"""

import io
import re
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

from tau_live.cli.output import printable
from tau_live.cli.page.chart_types import FLAGS, ROLES, Chart, Series

WIDE_IN, NARROW_IN = 8.0, 4.0
"""The width of a chart for a desktop, and for a telephone."""

CHARACTER_IN = 0.075
"""The approximate width of a label's character."""

AXIS_IN = 0.9
"""The approximate width of the vertical axis with its labels."""

COLOURS = {role: f"#0102{number:02x}" for number, role in enumerate(ROLES)}
"""The colours for matplotlib; no other is ever drawn."""

CLASSES = {colour: role for role, colour in COLOURS.items()}
INK, MUTED, GRID = COLOURS["ink"], COLOURS["muted"], COLOURS["grid"]

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

PRESENTATION = {
    "clip-path", "fill", "fill-opacity", "font-size", "font-weight", "opacity", "stroke",
    "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin",
    "stroke-miterlimit", "stroke-opacity", "stroke-width", "text-anchor",
}  # fmt: skip
"""The style properties that are also presentation attributes, which no content policy forbids."""

REFERENCE = re.compile(r"(?:url\(#|^#)([^)]+)")
"""Matches an id that an attribute refers to."""


def svg_of(chart: Chart, name: str, *, narrow: bool = False) -> ET.Element:
    """Return a chart as an ``svg`` element without a name space, for use in HTML.

    Args:
        chart: The chart to draw.
        name: The prefix of every id in it, so that ids are unique on a page.
        narrow: Whether it is for a narrow screen: with fewer letters of the same size.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the browser has the glyphs that matplotlib's font lacks
        mpl.rcdefaults()  # whatever the user's own matplotlibrc sets
        mpl.rcParams.update({**SETTINGS, "svg.hashsalt": name})
        canvas = Canvas(figsize=(NARROW_IN if narrow else WIDE_IN, 3.0))
        draw = {"curves": _curves, "areas": _areas, "bars": _bars, "dots": _dots}[chart.kind]
        draw(chart, canvas)
        canvas.set_layout_engine("constrained")
        buffer = io.BytesIO()
        FigureCanvasSVG(canvas).print_svg(
            buffer, metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
        )
    return _clean(ET.fromstring(buffer.getvalue()), name)  # noqa: S314 - we have just written it


def _curves(chart: Chart, canvas: Canvas) -> None:
    heights = [2.4] + [1.5] * (len(chart.panels) - 1)
    canvas.set_figheight(sum(heights) + 0.9)
    rows = canvas.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
    for axes, panel in zip(rows[:, 0], chart.panels, strict=True):
        for series in panel.series:
            _line(axes, series)
        axes.set_ylabel(panel.label)
        _scale(axes, panel.scale)
        for x, kind in chart.flags:
            axes.axvline(x, color=COLOURS[FLAGS[kind].role], linewidth=1.0, alpha=0.55, zorder=1)
    for axes in rows[:-1, 0]:
        axes.tick_params(axis="x", length=0)
    _label_x(rows[-1, 0], chart, canvas)
    for x, kind in chart.flags:
        rows[0, 0].plot(
            x, 1.04, marker=FLAGS[kind].marker, markersize=7, color=COLOURS[FLAGS[kind].role],
            transform=rows[0, 0].get_xaxis_transform(), clip_on=False, linestyle="none",
        )  # fmt: skip
    canvas.align_ylabels()


def _scale(axes: Axes, scale: str) -> None:
    if scale == "percent":
        _percent(axes)
        return
    if scale == "log":  # with labels that are plain text
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.12)
    if scale == "from 0":
        axes.set_ylim(bottom=0.0)
    elif scale == "zero":
        axes.axhline(0.0, color=MUTED, linewidth=1.0, dashes=(4, 3))


def _areas(chart: Chart, canvas: Canvas) -> None:
    canvas.set_figheight(3.0)
    axes, [panel] = canvas.subplots(), chart.panels
    edges = np.array(panel.series[0].x)
    shares = [np.repeat(values, 2) for values in _shares(panel.series)]
    seen = np.sum(shares, axis=0) > 0.0
    below = np.zeros(len(edges))
    for part, values in zip(panel.series, shares, strict=True):
        axes.fill_between(
            edges, below, below + values, where=seen, color=COLOURS[part.role], linewidth=0.0
        )
        below = below + values
    _percent(axes)
    axes.margins(x=0.0)
    axes.set(axisbelow=True, ylabel=panel.label)
    _label_x(axes, chart, canvas)


def _bars(chart: Chart, canvas: Canvas) -> None:
    canvas.set_figheight(0.28 * len(chart.rows) + 0.8)
    axes, [panel] = canvas.subplots(), chart.panels
    is_share, is_narrow = panel.scale == "percent", _is_narrow(canvas)
    places = np.arange(len(chart.rows))
    lengths = _shares(panel.series) if is_share else [_floats(part.y) for part in panel.series]
    left = np.zeros(len(chart.rows))
    for part, values in zip(panel.series, lengths, strict=True):
        axes.barh(places, values, left=left, color=COLOURS[part.role], height=0.72)
        left = left + values
    most = 16 if is_narrow else 30  # a longer label is cut; the table has all of it
    axes.set_yticks(places, [_shorten(name, most) for name, _ in chart.rows])
    for label, (_, is_head) in zip(axes.get_yticklabels(), chart.rows, strict=True):
        label.set_fontweight("bold" if is_head else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set(axisbelow=True, ylim=(len(chart.rows) - 0.4, -0.6))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    if is_share:
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(2 if is_narrow else 5))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(3 if is_narrow else 6, integer=True))
        for place, (length, (_, is_head)) in enumerate(zip(left.tolist(), chart.rows, strict=True)):
            if not is_head:
                axes.annotate(
                    f"{length:,.0f}", (length, place), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=9,
                )  # fmt: skip
        axes.margins(x=0.12)
        axes.set_xlim(left=0.0)
    _label_x(axes, chart, canvas)


def _dots(chart: Chart, canvas: Canvas) -> None:
    canvas.set_figheight(3.6)
    axes, [panel] = canvas.subplots(), chart.panels
    for series in panel.series:
        colour, x = COLOURS[series.role], np.array(series.x)
        lower, upper = _floats(series.lower), _floats(series.upper)
        axes.vlines(x, lower, upper, color=colour, linewidth=2.0, alpha=0.6)
        marker = "D" if series.dashed else "o"
        axes.plot(x, _floats(series.y), color=colour, linestyle="none", marker=marker, markersize=7)
    if panel.scale == "equal":
        low = max(axes.get_xlim()[0], axes.get_ylim()[0])
        high = min(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color=MUTED, linewidth=1.0, dashes=(4, 3), zorder=1)
    axes.set_ylabel(panel.label)
    axes.margins(x=0.08)
    _label_x(axes, chart, canvas)
    if chart.ticks:
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)


def _line(axes: Axes, series: Series) -> None:
    colour, x, y = COLOURS[series.role], np.array(series.x), _floats(series.y)
    style = (0, (4, 2)) if series.dashed else "solid"
    if len(series.lower):
        lower, upper = _floats(series.lower), _floats(series.upper)
        axes.fill_between(x, lower, upper, color=colour, alpha=0.18, linewidth=0.0)
    is_single = np.isfinite(y).sum() < 2
    axes.plot(x, y, color=colour, linestyle=style, marker="o" if is_single else "", markersize=5)


def _label_x(axes: Axes, chart: Chart, canvas: Canvas) -> None:
    """Label the horizontal axis, in as many lines as it needs, and its ticks.

    A narrow screen gets as many ticks as fit beside each other.
    """
    across = int((canvas.get_figwidth() - AXIS_IN / 2) / CHARACTER_IN)
    axes.set_xlabel("\n".join(textwrap.wrap(chart.x_label, across)))
    ticks = chart.ticks
    if ticks and _is_narrow(canvas):
        longest = max(len(line) for _, label in ticks for line in label.split("\n"))
        room = max(2, int((NARROW_IN - AXIS_IN) / ((longest + 2) * CHARACTER_IN)))
        ticks = ticks[:: -(-len(ticks) // room)]
    if ticks:
        axes.set_xticks([x for x, _ in ticks], [shown_lines(label) for _, label in ticks])


def _is_narrow(canvas: Canvas) -> bool:
    return bool(canvas.get_figwidth() < WIDE_IN)


def shown_lines(label: str) -> str:
    """Return a label of one or two lines, each safe to draw."""
    return "\n".join(printable(line) for line in label.split("\n")[:2])


def _percent(axes: Axes) -> None:
    axes.set_ylim(0.0, 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def _shares(parts: Sequence[Series]) -> list[np.ndarray]:
    """Return the values of each part, scaled to a sum of 1; 0 where there is nothing."""
    values = np.array([part.y for part in parts], dtype=np.float64)
    total = values.sum(axis=0)
    return list(np.divide(values, total, out=np.zeros_like(values), where=total > 0.0))


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _shorten(text: str, most: int) -> str:
    """Return a label cut to fit beside a bar; wide characters count for two."""
    safe = printable(text)
    widths = np.cumsum([2 if east_asian_width(character) in "WF" else 1 for character in safe])
    if not safe or widths[-1] <= most:
        return safe
    return safe[: int(np.searchsorted(widths, most))] + "…"


def _clean(root: ET.Element, name: str) -> ET.Element:
    """Return matplotlib's output without name spaces, styles, scripts and foreign ids."""
    for parent in list(root.iter()):
        parent.tag = _local(parent.tag)
        for child in list(parent):
            if _local(child.tag) in {"metadata", "style", "script"}:
                parent.remove(child)
    values = [value for element in root.iter() for value in element.attrib.values()]
    used = {name for value in values for name in REFERENCE.findall(value)}
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


def _attributes(raw: Mapping[str, str], used: set[str], name: str) -> dict[str, str]:
    attributes: dict[str, str] = {}
    classes: list[str] = []
    for key, value in {**raw, **_styles(raw.get("style", ""))}.items():
        if key in {"fill", "stroke"} and value.lower() in CLASSES:
            classes.append(f"{key[0]}-{CLASSES[value.lower()]}")
        elif key == "id" and value in used:
            attributes["id"] = f"{name}-{value}"
        elif key == "href":
            attributes["href"] = f"#{name}-{value[1:]}"
        elif key == "clip-path":
            attributes["clip-path"] = value.replace("url(#", f"url(#{name}-")
        elif key not in {"id", "style", "class"}:
            attributes[key] = value
    return {**attributes, **({"class": " ".join(classes)} if classes else {})}


def _styles(style: str) -> dict[str, str]:
    """Return the declarations of a style that may be attributes; of a font its size and weight."""
    styles: dict[str, str] = {}
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key in PRESENTATION:
            styles[key] = value
        elif key == "font":
            words = value.split()
            styles["font-size"] = next(word for word in words if word.endswith("px"))
            styles |= {"font-weight": "700"} if {"bold", "700"} & set(words) else {}
    return styles
