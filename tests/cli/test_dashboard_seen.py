"""The dashboard, looked at in a real browser and worked by its keyboard alone."""

import io
import json
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tau_live.core.records import Span
from tau_live.store.opening import open_at
from tests.cli import browser as browsers
from tests.cli.browser import Browser
from tests.cli.conftest import Read
from tests.cli.filled import SOLVED
from tests.cli.lived import ATTACK
from tests.cli.served import Served, serving

pytestmark = pytest.mark.slow

DRAWN = "document.querySelectorAll('.drawn .main-svg').length >= 20"
"""All charts of a store with one decision point."""

AXE = """axe.run().then(found => JSON.stringify(found.violations.map(
    fault => [fault.id, fault.nodes.map(node => node.html.slice(0, 200))])))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browsers.found()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browsers.browsing(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def dashboard(lived: Path) -> Iterator[Served]:
    with serving("--store", lived) as served:
        yield served


@pytest.fixture(scope="module")
def rollout(dashboard: Served) -> str:
    """A rollout with a decision."""
    return str(dashboard.read("/training/rollouts", per_page=1)["records"][0]["rollout_id"])


def pages(rollout: str) -> dict[str, str]:
    return {
        "/": DRAWN,
        f"/#/rollouts/{rollout}": "document.querySelector('.waterfall li')",
        f"/#/decisions/{rollout}:attempt-1:decision-1": "document.querySelector('#detail table')",
    }


@pytest.mark.parametrize("width", [340, 1100, 3840])
def test_it_fits_every_screen_without_a_complaint_and_loads_nothing_foreign(
    dashboard: Served, browser: Browser, rollout: str, width: int
) -> None:
    matplotlib = pytest.importorskip("matplotlib.image")
    for path, shown in pages(rollout).items():
        browser.open("about:blank")
        browser.open(f"{dashboard.url}{path}", width=width)
        browser.wait(shown)

        assert browser.complaints() == []
        foreign = [url for url in browser.fetched() if not url.startswith((dashboard.url, "data:"))]
        assert foreign == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        image = matplotlib.imread(io.BytesIO(browser.screenshot()))
        assert image.shape[1] == width
        assert np.unique(image.reshape(-1, image.shape[2]), axis=0).shape[0] > 50


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_violation(
    dashboard: Served, browser: Browser, rollout: str, *, dark: bool
) -> None:
    pytest.importorskip("axe_playwright_python")
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    for path, shown in pages(rollout).items():
        browser.open("about:blank")
        browser.open(f"{dashboard.url}{path}", dark=dark)
        browser.wait(shown)
        browser.ask("Runtime.evaluate", expression=script)

        assert json.loads(browser.evaluate(AXE)) == []
    browser.open(f"{dashboard.url}/", dark=dark)
    browser.wait(DRAWN)
    browser.evaluate("[...document.querySelectorAll('details')].forEach(one => one.open = true)")
    browser.evaluate("[...document.querySelectorAll('button')].at(0).click()")
    browser.ask("Runtime.evaluate", expression=script)
    assert json.loads(browser.evaluate(AXE)) == []


def test_what_is_stored_is_text_and_nothing_else(
    dashboard: Served, browser: Browser, rollout: str
) -> None:
    for path, shown in pages(rollout).items():
        browser.open("about:blank")
        browser.open(f"{dashboard.url}{path}")
        browser.wait(shown)

        assert browser.evaluate("document.body.textContent").count(ATTACK) >= 1 or "roll" in path
        assert browser.evaluate("document.scripts.length") <= 2
        drawn = browser.evaluate(
            "[...document.querySelectorAll('.drawn text')].map(t => t.textContent)"
        )
        assert path != "/" or ATTACK in drawn


def test_it_answers_in_the_order_of_an_operators_questions(
    dashboard: Served, browser: Browser
) -> None:
    browser.open(f"{dashboard.url}/")
    browser.wait("document.querySelectorAll('.card').length === 6")

    heads = browser.evaluate("[...document.querySelectorAll('.card h3')].map(h => h.textContent)")
    answers = browser.evaluate(
        "[...document.querySelectorAll('.card .answer')].map(p => p.lastChild.textContent)"
    )
    summary = dashboard.read("/dashboard/summary")["summary"]
    assert heads == [
        "Is it on?", "Is it healthy?", "Is it learning?", "Better than without?",
        "What does it cost?", "What to do next",
    ]  # fmt: skip
    names = ("on", "healthy", "learning", "better", "cost")
    assert answers == [summary[name]["answer"] for name in names]
    spoken = browser.spoken()
    assert ("main", "") in spoken
    assert not [
        one for one in spoken if one[0] in {"link", "button", "table", "img"} and not one[1]
    ]


def test_a_waterfall_shows_prompts_answers_arguments_and_errors(
    filled: Path, browser: Browser
) -> None:
    texts = {"prompt": "Where is it? <b>", "answer": "In Paris.", "arguments": '{"q": "it"}'}
    attributes: dict[str, object] = {name: {"text": text} for name, text in texts.items()}
    inner = Span(
        rollout_id=SOLVED, attempt=1, span_id="t-2", parent_span_id="t-1", kind="tool",
        name="lookup", status="error", started_at=2.5, ended_at=2.75,
        attributes={**attributes, "error": {"type": "KeyError", "message": "no such city"}},
    )  # fmt: skip
    outer = Span(
        rollout_id=SOLVED, attempt=1, span_id="t-1", kind="turn", name="turn", status="ok",
        attributes={}, started_at=2.0, ended_at=3.0,
    )  # fmt: skip
    with closing(open_at(filled)) as store:
        store.rollouts.add_spans([outer, inner])
    with serving("--store", filled) as served:
        browser.open("about:blank")
        browser.open(f"{served.url}/#/rollouts/{SOLVED}")
        browser.wait("document.querySelector('.waterfall .failed')")
        lines = browser.evaluate(
            "[...document.querySelectorAll('.waterfall summary strong')].map(s => s.textContent)"
        )
        own = "document.querySelector('.waterfall .failed')"
        text = browser.evaluate(f"{own}.textContent")
        left, width = (
            browser.evaluate(f"parseFloat({own}.querySelector('i').style.{side})")
            for side in ("left", "width")
        )

        assert lines.index("turn") + 1 == lines.index("lookup")
        assert [
            part for part in (*texts.values(), "KeyError: no such city") if part not in text
        ] == []
        assert 0.0 <= left <= left + width <= 100.0
        assert browser.complaints() == []


def test_a_link_names_the_store(lived: Path, filled: Path, browser: Browser) -> None:
    with serving("--store", lived, "--store", filled) as served:
        browser.open("about:blank")
        browser.open(f"{served.url}/#/rollouts/{SOLVED}")
        browser.wait("document.querySelector('#detail .problem')")
        choose = "const s = document.getElementById('store'); s.value = '1';"
        browser.evaluate(f"{choose} s.dispatchEvent(new Event('change'))")
        browser.wait("document.querySelector('.waterfall li')")
        link = browser.evaluate("location.href")

        browser.open("about:blank")
        browser.open(link)
        browser.wait("document.querySelector('.waterfall li')")
        assert browser.evaluate("document.getElementById('store').value") == "1"


def test_an_operators_jobs_are_done_by_the_keyboard_alone(
    filled: Path, browser: Browser, read: Read
) -> None:
    def status() -> Any:
        return read("status", "--store", filled)

    def order(button: str, reason: str) -> None:
        browser.tab_to(button)
        browser.enter()
        browser.wait("document.getElementById('asking').open")
        browser.ask("Input.insertText", text=reason)
        browser.enter()
        assert browser.evaluate("document.getElementById('asking').open")  # it asks twice
        browser.wait("document.getElementById('asking-go').textContent.startsWith('Confirm')")
        browser.enter()
        browser.wait("!document.getElementById('asking').open")

    with serving("--store", filled) as served:
        browser.open("about:blank")
        browser.open(f"{served.url}/")
        browser.wait("document.querySelector('#rollout-table a')")
        was = status()["gate"]["state"]
        first = ("Reset the gate", "Hold the gate")[was == "pass"]
        second = ("Hold the gate", "Reset the gate")[was == "pass"]

        order(first, "audit today")
        assert status()["gate"]["state"] != was
        order(second, "audit is over")
        assert status()["gate"]["state"] == was
        order("Pause deciding", "load test")
        assert status()["paused"]["deciding"]["reason"] == "load test"
        order("Roll back model", "too expensive")
        assert read("policy", "list", "--store", filled)
        browser.evaluate("document.querySelector('#search [name=text]').focus()")
        browser.ask("Input.insertText", text=SOLVED)
        browser.enter()
        browser.wait("document.querySelectorAll('#rollout-table tbody tr').length === 1")
        browser.tab_to(SOLVED)
        browser.enter()
        browser.wait("document.activeElement.textContent.startsWith('Rollout')")
        browser.tab_to("why")
        browser.enter()
        browser.wait("document.activeElement.textContent.startsWith('Decision')")
        assert browser.evaluate("location.hash").startswith("#/decisions/")
        browser.tab_to("Back to the overview")
        browser.enter()
        browser.wait("!document.getElementById('overview').hidden")
        assert browser.complaints() == []


def test_a_token_is_asked_for_and_kept_for_the_session(
    lived: Path, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-32-characters-for-tests")
    with serving("--store", lived, "--token-file", file) as served:
        browser.open("about:blank")
        browser.open(f"{served.url}/")
        browser.wait("document.getElementById('asking').open")
        browser.evaluate("document.querySelector('[name=token]').focus()")
        browser.ask("Input.insertText", text=file.read_text())
        browser.enter()

        browser.wait("document.querySelectorAll('.card').length === 6")
        browser.wait("document.querySelector('#rollout-table a')")
