"""Figures and tables as one HTML file that loads nothing, runs nothing and can be read aloud.

It is built as a tree and written by the standard library, so that no text of a store can become
anything but text.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Protocol
from xml.etree import ElementTree as ET

from tau_live.cli.page.at_points import at_point
from tau_live.cli.page.figures import whole
from tau_live.cli.page.shapes import FLAGS, Chart, Figure, Key, Section, Table
from tau_live.cli.text import moment, number, shown
from tau_live.handed.reading import mapping, real
from tau_live.reporting.facts import Answer, Facts, Summary
from tau_live.reporting.summary import BAD, DOUBTFUL, GOOD

Child = ET.Element | str | None


class Draw(Protocol):
    """Turns a chart into an ``svg`` element, whose ids begin with a name."""

    def __call__(self, chart: Chart, name: str, *, narrow: bool) -> ET.Element:
        """Return the element."""
        ...


SYMBOLS = {"good": "✓", "doubtful": "!", "bad": "✕"}
FORMS = {"^": "M6 1 11 10H1Z", "v": "M1 1H11L6 10Z", "D": "M6 0 11 5.5 6 11 1 5.5Z",
         "X": "M2 0 6 4 10 0 12 2 8 5.5 12 9 10 11 6 7 2 11 0 9 4 5.5 0 2Z",
         "s": "M1 1H11V11H1Z", "o": "M6 0A5.5 5.5 0 1 0 6 11 5.5 5.5 0 1 0 6 0Z"}  # fmt: skip
"""What the flags of a legend look like, in a box of 12 by 11."""


def sections_of(facts: Facts) -> list[Section]:
    """Return everything that the page shows below its summary."""
    first, *others = whole(facts)
    points = [at_point(facts, point, place=n) for n, point in enumerate(facts.points, start=1)]
    return [first, *points, *others]


def page_of(
    facts: Facts, sections: Sequence[Section], draw: Draw, *, tell: Callable[[int], None]
) -> bytes:
    """Return the page.

    Args:
        facts: What it says.
        sections: What it shows.
        draw: Turns charts into elements.
        tell: Told that one more figure is drawn.
    """
    style = files("tau_live.cli.page").joinpath("style.css").read_text(encoding="utf-8")
    root = element(
        "html",
        _head(facts, style),
        element("body", *_body(facts, sections, draw, tell=tell)),
        lang="en",
    )
    written = ET.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{written}\n".encode()


def element(tag: str, *children: Child, **attributes: str) -> ET.Element:
    """Return an element; an underscore in the name of an attribute stands for a hyphen."""
    found = ET.Element(tag, {key.strip("_").replace("_", "-"): v for key, v in attributes.items()})
    for child in children:
        if isinstance(child, ET.Element):
            found.append(child)
        elif child is not None and len(found):
            found[-1].tail = (found[-1].tail or "") + shown(child)
        elif child is not None:
            found.text = (found.text or "") + shown(child)
    return found


def _head(facts: Facts, style: str) -> ET.Element:
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
        element("title", f"tau-live report, {moment(facts.at)} UTC"),
        styled,
    )


def _body(
    facts: Facts, sections: Sequence[Section], draw: Draw, *, tell: Callable[[int], None]
) -> Iterator[ET.Element]:
    yield element("a", "Skip to the figures", href="#reward", class_="skip")
    yield element(
        "header",
        element("h1", "tau-live report"),
        element("p", f"{facts.store} · {moment(facts.at)} UTC · {_looked_at(facts)}"),
    )
    contents = [element("li", element("a", one.title, href=f"#{one.name}")) for one in sections]
    yield element(
        "main",
        _verdict(facts),
        _summary(facts.summary),
        element("nav", element("ul", *contents), aria_label="Contents"),
        *(_section(one, draw, tell=tell) for one in sections),
        _left_out(facts),
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


def _looked_at(facts: Facts) -> str:
    if facts.looked_at >= facts.rollouts:
        return f"{facts.rollouts:,} rollouts"
    return f"{facts.rollouts:,} rollouts, {facts.looked_at:,} of them examined"


def _left_out(facts: Facts) -> ET.Element | None:
    if not facts.points_left_out:
        return None
    return element("p", f"{facts.points_left_out} less busy decision points are not shown.")


def verdict_of(facts: Facts) -> tuple[str, str]:
    """Return what the report comes to, as a state and a sentence."""
    summary = facts.summary
    if summary.healthy.state == BAD:
        return BAD, f"Needs attention. {summary.healthy.said}"
    trials = mapping(facts.status["trials"])
    for point in facts.points:
        difference = mapping(mapping(trials.get(point.point)).get("difference"))
        estimate, lower, upper = (real(difference.get(n)) for n in ("estimate", "lower", "upper"))
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
    return DOUBTFUL, f"Nothing is compared with a control yet. {summary.learning.said}"


def _verdict(facts: Facts) -> ET.Element:
    state, sentence = verdict_of(facts)
    symbol = element("span", SYMBOLS[state], class_="symbol", aria_hidden="true")
    return element("p", symbol, *coded(sentence), class_=f"verdict {state}")


def _summary(summary: Summary) -> ET.Element:
    asked = (
        ("Is it on?", summary.on),
        ("Is it healthy?", summary.healthy),
        ("Is it learning?", summary.learning),
    )
    advice = [element("li", *coded(one)) for one in summary.next]
    return element(
        "section",
        element("h2", "Summary", id="summary"),
        element(
            "div",
            *(_card(question, answer) for question, answer in asked),
            element(
                "div", element("h3", "What to do next?"), element("ol", *advice), class_="card next"
            ),
            class_="cards",
        ),
        aria_labelledby="summary",
    )


def _card(question: str, answer: Answer) -> ET.Element:
    return element(
        "div",
        element("h3", question),
        element(
            "p",
            element("span", SYMBOLS[answer.state], class_="symbol", aria_hidden="true"),
            answer.answer,
            class_="answer",
        ),
        element("p", *coded(answer.said)),
        class_=f"card {answer.state}",
    )


def coded(text: str) -> list[Child]:
    """Return a text in which what stands in backticks is code, which may break behind ``_``."""
    return [_code(part) if place % 2 else part for place, part in enumerate(text.split("`"))]


def _code(text: str) -> ET.Element:
    first, *others = text.split("_")
    rest = [child for part in others for child in ("_", element("wbr"), part)]
    return element("code", first, *rest)


def _section(section: Section, draw: Draw, *, tell: Callable[[int], None]) -> ET.Element:
    figures = []
    for figure in section.figures:
        figures.append(_figure(figure, draw))
        tell(1)
    return element(
        "section",
        element("h2", section.title, id=section.name),
        element("p", section.said),
        *figures,
        aria_labelledby=section.name,
    )


def _figure(figure: Figure, draw: Draw) -> ET.Element:
    name = figure.name
    caption = element(
        "figcaption",
        element("p", figure.subject, id=f"{name}-subject", class_="subject"),
        element("h3", figure.title),
        element("p", figure.said, class_="said"),
    )
    tables = [table for table in figure.tables if table.rows]
    return element(
        "figure",
        caption,
        *([_legend(figure.keys), _drawn(figure, figure.chart, draw)] if figure.chart else []),
        element("p", figure.described, id=f"{name}-described", class_="described"),
        _data(figure, tables) if tables else None,
        aria_labelledby=f"{name}-subject",
        id=f"{name}-figure",
    )


def _drawn(figure: Figure, chart: Chart, draw: Draw) -> ET.Element:
    """Return the chart twice: the style sheet shows the one that suits the screen."""
    wide, narrow = (_image(figure, chart, draw, narrow=one) for one in (False, True))
    return element("div", wide, narrow, class_="drawn")


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


def _legend(keys: Sequence[Key]) -> ET.Element:
    return element("ul", *(element("li", _swatch(key), key.label) for key in keys), class_="legend")


def _swatch(key: Key) -> ET.Element:
    if key.form in {"line", "dash"}:
        dash = {"stroke_dasharray": "6 3"} if key.form == "dash" else {}
        mark = element(
            "path", d="M0 6H24", class_=f"s-{key.role}", stroke_width="3", fill="none", **dash
        )
        return element("svg", mark, viewBox="0 0 24 11", class_="swatch wide", aria_hidden="true")
    forms = {"box": "s", "dot": "o", "diamond": "D"}
    form = FORMS[forms[key.form] if key.form in forms else FLAGS[key.form][1]]
    mark = element("path", d=form, class_=f"f-{key.role}")
    return element("svg", mark, viewBox="0 0 12 11", class_="swatch", aria_hidden="true")


def _data(figure: Figure, tables: Sequence[Table]) -> ET.Element:
    rows = sum(len(table.rows) for table in tables)
    return element(
        "details",
        element("summary", f"Data: {figure.subject} ({number(rows)} rows)"),
        *(_table(table) for table in tables),
    )


def _table(table: Table) -> ET.Element:
    right = [column.endswith("#") for column in table.columns]
    heads = [
        element("th", column.removesuffix("#"), scope="col", **_side(side))
        for column, side in zip(table.columns, right, strict=True)
    ]
    rows = [
        element(
            "tr",
            *(element("td", cell, **_side(side)) for cell, side in zip(row, right, strict=True)),
        )
        for row in table.rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", table.caption),
            element("thead", element("tr", *heads)),
            element("tbody", *rows),
        ),
        class_="scrolled",
        tabindex="0",
        role="region",
        aria_label=table.caption,
    )


def _side(right: bool) -> dict[str, str]:
    return {"class_": "number"} if right else {}
