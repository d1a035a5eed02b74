"""The page of ``tau-live report``, looked at in a real browser."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tests.cli import browser as browsers
from tests.cli.browser import Browser
from tests.cli.lived import ATTACK

pytestmark = pytest.mark.slow

FIGURES = 10
"""Of one decision point and of the whole."""

TITLES = {
    "Reward over time", "Reward and exposure", "Choices over time", "Choices by context",
    "Calibration of the value estimate", "Off-policy against live", "Drift", "Cost of a rollout",
    "Duration", "Dropped, or not learned from",
}  # fmt: skip
CONTRAST = """(() => {
    const light = colour => {
        const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(part => part / 255)
            .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
        for (let at = node; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (!colour.endsWith(", 0)")) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const found = [];
    for (const node of document.querySelectorAll("p, li, a, h1, h2, h3, summary, td, th, text")) {
        const drawn = node.tagName === "text";
        const own = light(getComputedStyle(node)[drawn ? "fill" : "color"]);
        const under = light(behind(node));
        const ratio = (Math.max(own, under) + 0.05) / (Math.min(own, under) + 0.05);
        if (ratio < 4.5) found.push([node.tagName, node.textContent, ratio]);
    }
    return found;
})()"""
"""What is harder to read than WCAG 2.2, 1.4.3, allows."""


SHOWN = """[...document.querySelectorAll("figure svg[role=img]")]
    .filter(one => one.getBoundingClientRect().width).map(one => one.getAttribute("class"))"""
OUTSIDE = """[...document.querySelectorAll(".drawn text")].filter(one => {
    const own = one.getBoundingClientRect(), whole = one.closest("svg").getBoundingClientRect();
    return own.width && (own.left < whole.left - 1 || own.right > whole.right + 1);
}).map(one => one.textContent)"""
"""Texts of charts that stick out of them."""

LETTERS = """[...document.querySelectorAll(".drawn text")]
    .filter(one => one.getBoundingClientRect().width)
    .map(one => [parseFloat(getComputedStyle(one).fontSize), one.getScreenCTM()])
    .map(([size, to]) => size * Math.hypot(to.a, to.b))"""
"""How large the letters of charts are, in pixels."""


@pytest.fixture(scope="module")
def page(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    path = tmp_path_factory.mktemp("page") / "report.html"
    result = CliRunner().invoke(main, ["report", "--html", str(path), "--store", str(lived)])
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browsers.found()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browsers.browsing(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


def test_it_opens_from_disk_without_a_complaint_and_loads_nothing(
    page: Path, browser: Browser
) -> None:
    browser.open(page)

    assert browser.complaints() == []
    assert browser.fetched() == [page.as_uri()]
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.querySelectorAll('figure').length") == FIGURES
    assert browser.evaluate(SHOWN) == ["wide"] * FIGURES


def test_its_policy_refuses_styles_and_scripts_that_somebody_puts_into_it(
    page: Path, browser: Browser, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.html"
    more = '<p id="red" style="color:red">x</p><script>document.title = "run"</script>'
    changed.write_text(page.read_text().replace("<main>", f"<main>{more}"))

    browser.open(changed)

    assert browser.evaluate("document.title").startswith("tau-live report")
    assert browser.evaluate("getComputedStyle(red).color") != "rgb(255, 0, 0)"
    assert len(browser.complaints()) == 2


def test_what_is_stored_is_text_and_nothing_else(page: Path, browser: Browser) -> None:
    browser.open(page)

    assert browser.evaluate("document.body.textContent").count(ATTACK) > 8
    drawn = browser.evaluate("[...document.querySelectorAll('svg text')].map(t => t.textContent)")
    assert ATTACK in drawn
    assert not [text for text in drawn if "\\" in text]  # nothing was taken for mathematics


def test_everything_has_a_name_that_is_read_aloud(page: Path, browser: Browser) -> None:
    browser.open(page)

    spoken = browser.spoken()

    figures = [name for role, name in spoken if role == "figure"]
    images = [name for role, name in spoken if role in {"img", "image"}]
    assert set(figures) == set(images) == TITLES
    assert not [one for one in spoken if one[0] in {"link", "region", "table"} and not one[1]]
    assert ("main", "") in spoken
    heads = "[...table.querySelectorAll('th')].map(head => head.textContent)"
    columns = browser.evaluate(f"[...document.querySelectorAll('table')].map(table => {heads})")
    assert all(len(names) == len(set(names)) for names in columns)
    described = "document.getElementById(svg.getAttribute('aria-describedby')).textContent.length"
    lengths = f"[...document.querySelectorAll('figure svg[role=img]')].map(svg => {described})"
    assert min(browser.evaluate(lengths)) > 20


def test_ids_are_there_once_and_what_refers_to_one_finds_it(page: Path, browser: Browser) -> None:
    browser.open(page)

    ids = browser.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    used = browser.evaluate(
        "[...document.querySelectorAll('use, a')].map(one => one.getAttribute('href').slice(1))"
    )

    assert len(ids) == len(set(ids))
    assert set(used) <= set(ids)


def test_light_and_dark_differ_and_both_can_be_read(page: Path, browser: Browser) -> None:
    browser.open(page)
    light, hard_by_day = browser.screenshot(), browser.evaluate(CONTRAST)
    browser.show(dark=True)
    dark, hard_by_night = browser.screenshot(), browser.evaluate(CONTRAST)

    assert (hard_by_day, hard_by_night) == ([], [])
    assert brightness(light) > 0.85
    assert brightness(dark) < 0.25


def test_the_keyboard_reaches_and_opens_every_table(page: Path, browser: Browser) -> None:
    browser.open(page)
    total = browser.evaluate("document.querySelectorAll('details').length")

    for _ in range(80):
        browser.press("Tab", code=9)
        if browser.evaluate("document.activeElement.matches('summary')"):
            assert browser.evaluate("document.activeElement.matches(':focus-visible')")
            browser.press("Enter", code=13, text="\r")

    assert total == FIGURES
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == total
    rows = browser.evaluate("document.querySelectorAll('details[open] tbody tr').length")
    assert rows > 50


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_nothing_sticks_out_of_a_narrow_or_a_wide_window(
    page: Path, browser: Browser, width: int
) -> None:
    browser.open(page, width=width)

    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [340, 400, 640])
def test_on_a_narrow_screen_every_chart_is_whole_and_its_letters_can_be_read(
    page: Path, browser: Browser, width: int
) -> None:
    browser.open(page, width=width)

    beyond = browser.evaluate(
        "[...document.querySelectorAll('.drawn')].map(one => one.scrollWidth - one.clientWidth)"
    )
    outside = browser.evaluate(OUTSIDE)
    letters = browser.evaluate(LETTERS)

    assert browser.evaluate(SHOWN) == ["narrow"] * FIGURES
    assert beyond == [0] * FIGURES
    assert outside == []
    assert min(letters) >= 8.0
    images = [name for role, name in browser.spoken() if role in {"img", "image"}]
    assert sorted(images) == sorted(TITLES), "each is read aloud once"


def test_the_contents_stay_in_view(page: Path, browser: Browser) -> None:
    browser.open(page)

    browser.evaluate("document.querySelector('#drops').scrollIntoView()")

    top, heading = (
        browser.evaluate(f"document.querySelector('{one}').getBoundingClientRect().top")
        for one in ("nav", "#drops")
    )
    assert top == 0
    assert heading >= browser.evaluate("document.querySelector('nav').offsetHeight")


def test_the_four_answers_fit_on_one_screen(page: Path, browser: Browser) -> None:
    browser.open(page)

    bottoms = browser.evaluate(
        "[...document.querySelectorAll('.card')].map(one => one.getBoundingClientRect().bottom)"
    )

    assert len(bottoms) == 4
    assert max(bottoms) < 900


def brightness(png: bytes) -> float:
    from PIL import Image

    return float(np.asarray(Image.open(io.BytesIO(png)).convert("L")).mean() / 255.0)
