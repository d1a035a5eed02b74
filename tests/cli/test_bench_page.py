"""The page of ``tau-live bench report``: what the reports say, and nothing that somebody put in."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tau_live.evidence.artifacts import Names
from tau_live.evidence.codes import REASONS
from tau_live.evidence.proving import prove
from tau_live.evidence.suites import parse_suite, suite_bytes
from tests.cli import browser as browsers
from tests.cli.conftest import Run
from tests.cli.test_keys import undocumented
from tests.cli.test_report_seen import CONTRAST
from tests.cli.test_schemas import faults
from tests.evidence.projects import RIGHT, RUN, frozen, proved, settings_of, smaller

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.slow

ATTACK = '<script src="http://evil.example/x.js">alert(1)</script>&"\'\x1b[2J'
NAMES = Names(RUN)
PAGE = f"tasks/reports/m24-benchmark-page-{RUN}.html"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with a proof that passes, and its page."""
    folder = tmp_path_factory.mktemp("project")
    proved(folder)
    written(folder)
    return folder


def written(folder: Path, *more: str) -> Any:
    """Write the page of a project, and return what the command did."""
    return CliRunner().invoke(
        main, ["bench", "report", "--run-id", RUN, "--root", str(folder), *more]
    )


def tree(text: str) -> ET.Element:
    """Return a page as a tree, which its void elements keep from being XML."""
    return ET.fromstring(re.sub(r"<(meta|wbr)([^>]*)>", r"<\1\2/>", text.split("\n", 1)[1]))


def cells(text: str, caption: str) -> list[list[str]]:
    """Return the cells of the table with a caption."""
    (table,) = [
        one
        for one in tree(text).iter("table")
        if "".join(one.find("caption").itertext()) == caption  # type: ignore[union-attr]  # each has one
    ]
    return [["".join(td.itertext()) for td in row.findall("td")] for row in table.iter("tr")][1:]


def report(folder: Path, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((folder / NAMES.report(kind)).read_text())
    return found


def shown(value: object) -> str:
    """Return a figure as the page shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def six_digits(value: float | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shown(value)


def test_every_figure_is_that_of_the_reports(project: Path) -> None:
    text = (project / PAGE).read_text()
    own = report(project, "significance")["significance"]
    sides = [report(project, role)["metrics"] for role in ("baseline", "trained")]

    compared = dict(cells(text, "The comparison"))
    roles = {row[0]: row[1:] for row in cells(text, "Rewards and costs")}
    unpaired = dict(cells(text, "Figures that ignore pairs, for comparison only"))

    scalars = {name: value for name, value in own.items() if not isinstance(value, dict | list)}
    assert compared == {n: shown(v) for n, v in scalars.items() if n != "interpretation"}
    assert unpaired == {
        f"{part} {name}".strip(): shown(value)
        for part, figures in {"": own["unpaired_reference"], **own["unpaired_reference"]}.items()
        if isinstance(figures, dict)
        for name, value in figures.items()
        if not isinstance(value, dict)
    }
    for name in sides[0].keys() - {"dimensions"}:
        assert roles[name.replace("_", " ")] == [six_digits(side[name]) for side in sides]
    for name in sides[0]["dimensions"]:
        assert roles[f"score: {name}"] == [six_digits(side["dimensions"][name]) for side in sides]
    assert own["interpretation"] in text


def test_every_pair_is_there_and_their_mean_is_that_of_the_report(project: Path) -> None:
    rows = cells((project / PAGE).read_text(), "Mean rewards by case")
    own = report(project, "significance")["significance"]

    differences = [float(row[3]) for row in rows]

    assert len(rows) == own["pairs"] == 80
    assert differences == sorted(differences)
    assert sum(differences) / len(rows) == pytest.approx(own["mean_delta"], rel=1e-5)


def test_every_criterion_shows_what_it_asks_for_and_what_there_is(project: Path) -> None:
    rows = cells((project / PAGE).read_text(), "Criteria")
    own = report(project, "significance")["significance"]
    inputs = json.loads((project / NAMES.inputs).read_text())

    assert len(rows) == len(REASONS)
    assert {row[0] for row in rows} == {*inputs["criteria"], "delta_ci_low"}
    assert all(row[3] == "✓met" for row in rows)
    measured = {row[0]: row[2] for row in rows}
    assert measured["min_reward_delta"] == shown(own["mean_delta"])
    assert measured["max_p_value"] == shown(own["p_value"])
    assert measured["delta_ci_low"] == shown(own["delta_ci_low"])
    assert measured["max_safety_regression"] == shown(own["safety_upper_bound"])


def test_every_file_has_its_digest_and_the_command_that_checks_it(project: Path) -> None:
    text = (project / PAGE).read_text()
    proof = json.loads((project / NAMES.proof).read_text())

    rows = {row[1]: row[2:] for row in cells(text, "Files")}

    for file in proof["artifacts"].values():
        assert rows[file["path"]] == [file["sha256"], "yes"]
    assert rows[proof["benchmark_suite"]["fixture_path"]][0] == proof["benchmark_suite"]["sha256"]
    assert proof["proof_sha256"] in text
    assert f"tau-live bench validate {NAMES.proof}" in text


def test_the_page_is_one_file_that_loads_nothing_and_the_same_twice(project: Path) -> None:
    text = (project / PAGE).read_text()

    again = written(project, "--output", str(project / "again.html"))

    assert again.exit_code == 0
    assert (project / "again.html").read_text() == text
    assert not re.findall(r"<(?:script|link|img|iframe|object|style )", text)
    assert not re.findall(r"<[^>]*\s(?:style|src|on\w+)=", text)
    assert not re.findall(r"(?:href|url)[=(]\s*[\"']?(?!#|\"#)", text)
    assert "Passed: every criterion" in text


def test_a_run_without_a_proof_has_a_page(project: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(project, tmp_path / "copy")
    (folder / NAMES.proof).unlink()

    result = written(folder)

    assert result.exit_code == 0, result.output
    text = (folder / PAGE).read_text()
    assert "There is no proof yet" in text
    assert f"tau-live bench validate {NAMES.report('significance')}" in text


def test_json_says_where_the_page_is(project: Path) -> None:
    found = json.loads(written(project, "--json").stdout)

    assert undocumented("bench report", found) == (set(), set())
    assert faults("bench report", found) == []
    assert found["page"] == str(project / PAGE)


def test_a_report_that_was_edited_is_called_not_valid_and_never_shown(
    project: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(project, tmp_path / "copy")
    path = folder / NAMES.report("significance")
    document = json.loads(path.read_text())
    document["significance"]["mean_delta"] = 0.987654
    path.write_text(json.dumps(document))

    result = written(folder)

    assert result.exit_code == 1
    assert "is not valid" in result.stderr
    text = (folder / PAGE).read_text()
    assert "Not valid: these files are not what their records" in text
    assert "delta_mismatch" in text
    assert ["mean_delta", "0.987654"] not in cells(text, "The comparison")
    assert "Passed" not in text


def test_what_somebody_has_put_in_is_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / smaller(tmp_path, 24)
    suite = json.loads(path.read_text())
    suite["suite_id"] = f"tools {ATTACK}"
    for number, case in enumerate(suite["cases"]):
        case["case_id"] = f"{number} {ATTACK}"
    path.write_bytes(suite_bytes(parse_suite(json.dumps(suite).encode(), path.name)))
    settings, bad = settings_of(tmp_path), "python:tests.evidence.projects:unreachable"
    root = frozen(tmp_path, suite=path.name, baseline=RIGHT, trained=bad)
    prove(root, RUN, settings=settings, workers=8)

    result = written(tmp_path)

    assert result.exit_code == 0, result.output
    text = (tmp_path / PAGE).read_text()
    assert "<script" not in text
    assert "\x1b" not in text
    safe = ATTACK.replace("\x1b", "\\x1b")
    whole = "".join(tree(text).itertext())
    assert whole.count(safe) > 24
    rows = cells(text, "Episodes that are not scored")
    records = (tmp_path / NAMES.records("trained")).read_text().splitlines()
    missing = [one for one in map(json.loads, records) if one["status"] == "missing"]
    assert [row[5] for row in rows] == [one["error"] for one in missing]
    assert "too_many_missing" in text
    assert all(REASONS["too_many_missing"].means in whole for _ in rows[:1])


def test_a_run_that_is_not_compared_is_one_line(tmp_path: Path, run: Run) -> None:
    frozen(tmp_path / "project")

    result = run("bench", "report", "--run-id", RUN, "--root", tmp_path / "project")
    without = run("bench", "report", "--run-id", "../../etc/passwd", "--root", tmp_path)

    assert (result.exit_code, without.exit_code) == (1, 2)
    assert result.stderr.count("\n") == 1
    assert "artifact_missing" in result.stderr


# In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    program = browsers.found()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browsers.browsing(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_it_opens_from_disk_and_nothing_sticks_out(
    project: Path, browser: browsers.Browser, width: int
) -> None:
    page = project / PAGE

    browser.open(page, width=width)

    assert browser.complaints() == []
    assert browser.fetched() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_by_day_and_by_night(
    project: Path, browser: browsers.Browser, dark: bool
) -> None:
    browser.open(project / PAGE, dark=dark)

    assert browser.evaluate(CONTRAST) == []


def test_what_is_printed_is_light_and_has_all_tables(
    project: Path, browser: browsers.Browser
) -> None:
    browser.open(project / PAGE, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}

    browser.ask("Emulation.setEmulatedMedia", media="print", features=[dark])

    try:
        assert browser.evaluate(CONTRAST) == []
        row = "document.querySelector('#differences-figure tbody tr')"
        assert browser.evaluate(f"{row}.getBoundingClientRect().height") > 0
    finally:
        browser.ask("Emulation.setEmulatedMedia", media="")
