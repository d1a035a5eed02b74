"""What is done on the roadmap follows from proofs that are there."""

from pathlib import Path

import msgspec
import pytest

from tests.docs.conftest import ROOT
from tests.roadmap import (
    BLOCKS,
    Exit,
    Issue,
    Stage,
    Tracker,
    check,
    gaps,
    is_there,
    main,
    stages_of,
    standings,
    status,
    tracker_text,
    with_blocks,
)

TOML = """
[[stage]]
title = "First"
objective = "Begin."
issues = [7]
entry = []
[[stage.exit]]
claim = "It runs."
proof = "tests/test_it.py::test_it_runs"
"""
PAGE = "# Roadmap\n" + "".join(f"<!-- {name}:BEGIN -->\n<!-- {name}:END -->\n" for name in BLOCKS)


def stage(claim: str, *, entry: tuple[int | str, ...] = (), issues: tuple[int, ...] = ()) -> Stage:
    return Stage(claim, "Why.", issues, entry, [Exit(claim, f"docs/{claim}.md")])


def made(folder: Path, toml: str = TOML) -> Path:
    """Make a repository with a roadmap and one test."""
    (folder / "docs").mkdir()
    (folder / "tests").mkdir()
    (folder / "docs/roadmap.toml").write_text(toml)
    (folder / "docs/roadmap.md").write_text(PAGE)
    (folder / "tests/test_it.py").write_text("def test_it_runs():\n    pass\n")
    return folder


@pytest.mark.slow
def test_the_page_is_what_the_proofs_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, f"run `poe generate`\n{capsys.readouterr().out}"


def test_the_stages_are_those_of_the_programme() -> None:
    stages = stages_of(ROOT)

    assert len(stages) == 6
    assert all(number == 0 or one.entry for number, one in enumerate(stages))


@pytest.mark.slow
def test_it_is_written_the_same_twice_and_then_it_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made(tmp_path)
    page = root / "docs/roadmap.md"

    assert main([], root=root) == 0
    first = page.read_text()
    assert main([], root=root) == 0
    assert main(["--check"], root=root) == 0

    assert page.read_text() == first
    assert "| 0 First #7 | Begin. | - | 1 of 1 | done |" in first
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_test_that_was_renamed_fails_the_check_naming_claim_and_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made(tmp_path)
    main([], root=root)
    before = (root / "docs/roadmap.md").read_text()
    (root / "tests/test_it.py").write_text("def test_it_is_renamed():\n    pass\n")

    assert main(["--check"], root=root) == 1

    printed = capsys.readouterr().out
    assert "-- met: It runs. `tests/test_it.py::test_it_runs`" in printed
    assert "\nStage 0: First: It runs. `tests/test_it.py::test_it_runs` is not there.\n" in printed
    assert (root / "docs/roadmap.md").read_text() == before
    assert main(["--check", "--quiet"], root=root) == 1
    assert capsys.readouterr().out == ""


def test_a_stage_is_done_with_its_claims_and_with_what_it_builds_on() -> None:
    stages = [stage("a"), stage("b", entry=(0,)), stage("c", entry=("a",)), stage("d", entry=(1,))]

    found = {one.number: one.done for one in standings(stages, {"a", "c", "d"})}

    assert found == {0: True, 1: False, 2: True, 3: False}  # d waits for b


def test_what_is_open_is_listed_with_its_stage() -> None:
    found = standings([stage("a"), stage("b")], {"a"})

    assert [*gaps(found)] == ["- Stage 1: b: b `docs/b.md` is not there."]
    assert [*gaps(standings([stage("a")], {"a"}))] == ["Nothing."]
    assert "- met: a `docs/a.md`" in [*status(found)]
    assert "- open: b `docs/b.md`" in [*status(found)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            ("issues = [7]", 'state = "done"'), "unknown field `state`", id="typed as done"
        ),
        pytest.param(("entry = []", "entry = [0]"), "builds on 0", id="builds on itself"),
        pytest.param(("entry = []", 'entry = ["It flies."]'), "'It flies.'", id="no such claim"),
        pytest.param(('claim = "It runs."', 'claim = " "'), "regex", id="a claim of nothing"),
        pytest.param(
            ("[[stage]]", TOML + "[[stage]]"), "each claim must be there once", id="twice"
        ),
    ],
)
def test_what_is_no_roadmap_is_refused(
    change: tuple[str, str], problem: str, tmp_path: Path
) -> None:
    root = made(tmp_path, TOML.replace(*change))

    with pytest.raises((ValueError, msgspec.ValidationError), match=problem):
        stages_of(root)


@pytest.mark.parametrize(
    ("proof", "there"),
    [
        ("tests/test_it.py::test_it_runs", True),
        ("tests/test_it.py::test_it_runs[two]", True),
        ("tests/test_it.py::test_it_runs[three]", False),
        ("tests/test_it.py::test_it", False),
        ("docs/roadmap.toml", True),
        ("docs/empty.md", False),
        ("docs/broken.json", False),
        ("docs", False),
        ("docs/gone.md", False),
        ("python -c pass", True),
        ("python -c 'raise SystemExit(3)'", False),
    ],
)
def test_a_proof_is_there_or_it_is_not(proof: str, there: bool, tmp_path: Path) -> None:
    root = made(tmp_path)
    (root / "docs/empty.md").write_text("\n")
    (root / "docs/broken.json").write_text("{")
    tests = {"tests/test_it.py::test_it_runs[one]", "tests/test_it.py::test_it_runs[two]"}

    assert is_there(proof, tests, root) is there


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="the markers of ROADMAP_GAP_STATUS are missing"):
        with_blocks(PAGE.partition("<!-- ROADMAP_GAP")[0], dict.fromkeys(BLOCKS, iter(())))


def test_a_page_that_is_right_has_nothing_to_say() -> None:
    assert [*check(PAGE, PAGE)] == []


def test_issues_that_say_something_else_are_named() -> None:
    tracker = Tracker("open", [Issue(2, "closed")])
    found = standings([stage("a", issues=(1,)), stage("b", issues=(2, 3))], {"a"})

    assert [*tracker_text(found, tracker)] == [
        "Stage 0: a: done, 1 of 1 claims met",
        "- #1 is open, and the stage is done",
        "Stage 1: b: open, 0 of 1 claims met",
        "- [ ] b `docs/b.md`",
        "- #2 is closed, and the stage is open",
    ]


@pytest.mark.slow
def test_the_text_for_trackers_follows_a_fixture_and_changes_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made(tmp_path)
    fixture = tmp_path / "issues.json"
    fixture.write_text('{"default_state": "open", "issues": [{"number": 7, "state": "closed"}]}')

    assert main(["--tracker", "--fixture", str(fixture)], root=root) == 0

    assert capsys.readouterr().out == "Stage 0: First: done, 1 of 1 claims met\n"
    assert (root / "docs/roadmap.md").read_text() == PAGE
