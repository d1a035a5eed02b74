"""Figures and tables as one HTML file that loads nothing, runs nothing and can be read aloud.

It is built as a tree and written by the standard library, so that no text of a store can become
anything but text.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from xml.etree import ElementTree as ET

from tau_live.cli.output import moment, number, printable
from tau_live.cli.page.chart_types import Chart, Figure, Section, Table
from tau_live.cli.page.figures import overall_sections
from tau_live.cli.page.points import point_section
from tau_live.operate.report.facts import Facts, Summary
from tau_live.operate.report.summary import BAD, DOUBTFUL, GOOD

Child = ET.Element | str | None


Draw = Callable[..., ET.Element]
"""Turns a chart into an ``svg`` element whose ids begin with a name; ``narrow`` for telephones."""

SYMBOLS = {"good": "✓", "doubtful": "!", "bad": "✕"}
FORMS = {"^": "M6 1 11 10H1Z", "v": "M1 1H11L6 10Z", "D": "M6 0 11 5.5 6 11 1 5.5Z",
         "X": "M2 0 6 4 10 0 12 2 8 5.5 12 9 10 11 6 7 2 11 0 9 4 5.5 0 2Z",
         "s": "M1 1H11V11H1Z", "o": "M6 0A5.5 5.5 0 1 0 6 11 5.5 5.5 0 1 0 6 0Z"}  # fmt: skip
"""The shapes of the flags of a legend, in a box of 12 by 11."""


def sections_of(facts: Facts) -> list[Section]:
    """Return everything that the page shows below its summary."""
    first, *others = overall_sections(facts)
    points = [
        point_section(facts, point, number=n) for n, point in enumerate(facts.points, start=1)
    ]
    return [first, *points, *others]


def page_of(
    facts: Facts, sections: Sequence[Section], draw: Draw, *, advance: Callable[[int], None]
) -> bytes:
    """Return the page.

    Args:
        facts: Its facts.
        sections: Its sections.
        draw: Turns charts into elements.
        advance: Called with 1 after each figure is drawn.
    """
    body = _body(facts, sections, draw, advance=advance)
    return html_of(f"tau-live report, {moment(facts.at)} UTC", body)


def html_of(title: str, body: Iterable[ET.Element]) -> bytes:
    """Return a page with the style of all pages, whose policy refuses every other one."""
    style = files("tau_live.cli.page").joinpath("style.css").read_text(encoding="utf-8")
    root = element("html", _head(title, style), element("body", *body), lang="en")
    html = ET.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{html}\n".encode()


def element(tag: str, *children: Child, **attributes: str) -> ET.Element:
    """Return an element; an underscore in the name of an attribute stands for a hyphen."""
    node = ET.Element(tag, {key.strip("_").replace("_", "-"): v for key, v in attributes.items()})
    for child in children:
        if isinstance(child, ET.Element):
            node.append(child)
        elif child is not None and len(node):
            node[-1].tail = (node[-1].tail or "") + printable(child)
        elif child is not None:
            node.text = (node.text or "") + printable(child)
    return node


def _head(title: str, style: str) -> ET.Element:
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    styled = ET.Element("style")
    styled.text = style
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        styled,
    )


def _body(
    facts: Facts, sections: Sequence[Section], draw: Draw, *, advance: Callable[[int], None]
) -> Iterator[ET.Element]:
    is_part = facts.looked_at < facts.rollouts
    some = f", {facts.looked_at:,} of them examined" if is_part else ""
    more = f"{facts.points_left_out} less busy decision points are not shown."
    yield element("a", "Skip to the figures", href="#reward", class_="skip")
    yield element(
        "header",
        element("h1", "tau-live report"),
        element("p", f"{facts.store} · {moment(facts.at)} UTC · {facts.rollouts:,} rollouts{some}"),
    )
    contents = [
        element("li", element("a", section.title, href=f"#{section.name}")) for section in sections
    ]
    yield element(
        "main",
        _verdict(facts),
        _summary(facts.summary),
        element("nav", element("ul", *contents), aria_label="Contents"),
        *(_section(section, draw, advance=advance) for section in sections),
        element("p", more) if facts.points_left_out else None,
    )
    yield element(
        "footer",
        element(
            "p",
            "Made by ",
            element("code", "tau-live report"),
            ". This file is self-contained: it loads and runs nothing. It may contain what your "
            "agent saw, so it is as private as the store.",
        ),
    )


def verdict_of(facts: Facts) -> tuple[str, str]:
    """Return the verdict of the report, as a state and a sentence."""
    summary = facts.summary
    if summary.healthy.state == BAD:
        return BAD, f"Needs attention. {summary.healthy.sentence}"
    for point in facts.points:
        trial = facts.status.trials.get(point.point)
        if trial is None:
            continue
        estimate, (lower, upper) = trial.difference["estimate"], trial.bounds
        if estimate is None or lower is None or upper is None:
            continue
        bounds = f"{estimate:+.3g} over the control, between {lower:+.3g} and {upper:+.3g}"
        if lower > 0.0:
            return GOOD, f"Proven better at {point.point}: {bounds}."
        if upper < 0.0:
            return BAD, f"Proven worse at {point.point}: {bounds}."
        return DOUBTFUL, f"Not proven yet at {point.point}: {bounds}."
    if not facts.rollouts:
        return DOUBTFUL, "Nothing is recorded yet."
    return DOUBTFUL, f"Nothing is compared with a control yet. {summary.learning.sentence}"


def _verdict(facts: Facts) -> ET.Element:
    state, sentence = verdict_of(facts)
    return verdict_element(state, sentence)


def verdict_element(state: str, sentence: str) -> ET.Element:
    """Return a verdict with the symbol of its state."""
    return element("p", symbol_element(state), *with_code(sentence), class_=f"verdict {state}")


def symbol_element(state: str) -> ET.Element:
    """Return the symbol of a state, which is not read aloud."""
    return element("span", SYMBOLS[state], class_="symbol", aria_hidden="true")


def card_element(state: str, heading: str, answer: str, sentence: str) -> ET.Element:
    """Return an answer with its state under a heading."""
    return element(
        "div",
        element("h3", heading),
        element("p", symbol_element(state), answer, class_="answer"),
        element("p", *with_code(sentence)),
        class_=f"card {state}",
    )


def _summary(summary: Summary) -> ET.Element:
    answers = {
        "Is it on?": summary.on,
        "Is it healthy?": summary.healthy,
        "Is it learning?": summary.learning,
    }
    cards = [
        card_element(answer.state, question, answer.answer, answer.sentence)
        for question, answer in answers.items()
    ]
    advice = [element("li", *with_code(step)) for step in summary.next]
    return element(
        "section",
        element("h2", "Summary", id="summary"),
        element(
            "div",
            *cards,
            element(
                "div", element("h3", "What to do next?"), element("ol", *advice), class_="card next"
            ),
            class_="cards",
        ),
        aria_labelledby="summary",
    )


def with_code(text: str) -> list[Child]:
    """Return a text with the parts in backticks as code, which may break after ``_``."""
    return [_code(part) if index % 2 else part for index, part in enumerate(text.split("`"))]


def _code(text: str) -> ET.Element:
    first, *others = text.split("_")
    rest = [child for part in others for child in ("_", element("wbr"), part)]
    return element("code", first, *rest)


def _section(section: Section, draw: Draw, *, advance: Callable[[int], None]) -> ET.Element:
    figures = []
    for figure in section.figures:
        figures.append(figure_element(figure, draw))
        advance(1)
    return section_element(section.name, section.title, element("p", section.intro), *figures)


def section_element(name: str, title: str, *parts: ET.Element | None) -> ET.Element:
    """Return parts under a heading with an id."""
    return element("section", element("h2", title, id=name), *parts, aria_labelledby=name)


def figure_element(figure: Figure, draw: Draw) -> ET.Element:
    """Return a figure: its finding, its chart, the same in words, and its data."""
    name = figure.name
    caption = element(
        "figcaption",
        element("p", figure.subject, id=f"{name}-subject", class_="subject"),
        element("h3", figure.title),
        element("p", figure.text, class_="sentence"),
    )
    drawn: list[ET.Element] = []
    if chart := figure.chart:  # twice: the style sheet shows the one that fits the screen
        keys = [element("li", _swatch(role, form), label) for label, role, form in chart.legend()]
        images = [_image(figure, chart, draw, narrow=narrow) for narrow in (False, True)]
        drawn = [element("ul", *keys, class_="legend"), element("div", *images, class_="drawn")]
    tables = [table for table in figure.tables if table.rows]
    return element(
        "figure",
        caption,
        *drawn,
        element("p", figure.described, id=f"{name}-described", class_="described"),
        _data(figure, tables) if tables else None,
        aria_labelledby=f"{name}-subject",
        id=f"{name}-figure",
    )


def _image(figure: Figure, chart: Chart, draw: Draw, *, narrow: bool) -> ET.Element:
    name = f"{figure.name}-narrow" if narrow else figure.name
    svg = draw(chart, name, narrow=narrow)
    svg.insert(0, element("title", figure.subject, id=f"{name}-svg-title"))
    svg.insert(1, element("desc", figure.described, id=f"{name}-svg-desc"))
    svg.set("role", "img")
    svg.set("class", "narrow" if narrow else "wide")
    svg.set("aria-labelledby", f"{name}-svg-title")
    svg.set("aria-describedby", f"{name}-svg-desc")
    return svg


def _swatch(role: str, form: str) -> ET.Element:
    if form in {"line", "dash"}:
        dash = {"stroke_dasharray": "6 3"} if form == "dash" else {}
        mark = element(
            "path", d="M0 6H24", class_=f"s-{role}", stroke_width="3", fill="none", **dash
        )
        return element("svg", mark, viewBox="0 0 24 11", class_="swatch wide", aria_hidden="true")
    mark = element("path", d=FORMS[form], class_=f"f-{role}")
    return element("svg", mark, viewBox="0 0 12 11", class_="swatch", aria_hidden="true")


def _data(figure: Figure, tables: Sequence[Table]) -> ET.Element:
    rows = sum(len(table.rows) for table in tables)
    return element(
        "details",
        element("summary", f"Data: {figure.subject} ({number(rows)} rows)"),
        *(table_element(table.caption, table.columns, table.rows) for table in tables),
    )


def table_element(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Child]]
) -> ET.Element:
    """Return a table; a column whose name ends in ``#`` is set to the right."""
    sides: list[dict[str, str]] = [
        {"class_": "number"} if column.endswith("#") else {} for column in columns
    ]
    heads = [
        element("th", column.removesuffix("#"), scope="col", **side)
        for column, side in zip(columns, sides, strict=True)
    ]
    cells = [
        element(
            "tr",
            *(element("td", cell, **side) for cell, side in zip(row, sides, strict=True)),
        )
        for row in rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *heads)),
            element("tbody", *cells),
        ),
        class_="scrolled",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
