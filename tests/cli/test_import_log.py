"""The command that imports logs; what it does has tests of its own."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold
from tests.cli.test_long_work import rollouts

ROW = {"action": "b", "p": 0.5, "cost": 2, "at": 1}


def log(path: Path, *more: str) -> Path:
    path.write_text("\n".join([json.dumps(ROW), *more, json.dumps({**ROW, "action": "a"})]))
    return path


MAP = ("--point", "ad", "--map", "option=action,propensity=p,reward=-cost", "--options", "a, b")


def test_a_log_becomes_rollouts_in_a_store_that_is_made_for_it(tmp_path: Path, read: Read) -> None:
    store = tmp_path / "new.sqlite"

    done = read("import-log", log(tmp_path / "log.jsonl", "{"), *MAP, "--store", store)

    assert isinstance(done, dict)
    assert (done["decisions"], done["with_propensity"], done["rewards"]) == (2, 2, 2)
    assert done["bad"] == [{"line": 2, "column": "2", "reason": done["bad"][0]["reason"]}]
    assert done["lines_per_s"] > 0.0
    assert rollouts(store) == 2


def test_people_are_told_what_became_of_it(tmp_path: Path, run: Run) -> None:
    told = run("import-log", log(tmp_path / "log.jsonl"), *MAP, "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 0
    assert "with propensity  2" in told.stdout


def test_people_are_shown_each_bad_line_on_a_line(tmp_path: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl", "{", *['{"action": "c"}'] * 12)

    told = run("import-log", file, *MAP, "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 0
    assert "bad: line 3, column action: expected one of 2 options, got 'c'" in told.stderr
    assert "3 more" in told.stderr
    assert "[" not in told.stdout


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"option,propensity,reward\na,0.5,1\n", "line 2, column point: expected a decision point"),
        (b"arm,reward\na,1\n", "line 2, column option: expected an option"),
        (b"\x1f\x8b\x08\x00\xff\xfe\x03", "line 1, column 2: not UTF-8"),
    ],
    ids=["no point", "no option", "compressed"],
)
def test_a_log_of_which_nothing_can_be_read_fails(
    content: bytes, expected: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(content)

    told = run("import-log", file, "--json", "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1
    assert f"no line of '{file}' could be read; {expected}" in told.stderr


def test_a_log_without_any_choice_is_told_to_teach_nothing(tmp_path: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl")

    told = run("import-log", file, *MAP[:4], "--store", tmp_path / "s.sqlite")

    assert "without choice   2" in told.stdout
    assert "say with --options" in told.stderr


def test_strict_ends_with_one_line_that_says_where(tmp_path: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl", '{"action": "c"}')

    told = run("import-log", file, *MAP, "--strict", "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1
    assert "line 2, column action: expected one of 2 options, got 'c'" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--map", "wealth=x"], "'wealth' is none of"),
        (["--at", "soon"], "expected a time"),
        (["--format", "xml"], "xml"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], expected: str, tmp_path: Path, run: Run
) -> None:
    told = run("import-log", log(tmp_path / "log.jsonl"), *arguments)

    assert told.exit_code == 2
    assert expected in told.stderr


def test_a_pipe_is_read_too(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    lines = log(tmp_path / "log.jsonl").read_text()

    told = CliRunner().invoke(main, ["import-log", "-", *MAP, "--store", str(store)], input=lines)

    assert told.exit_code == 0
    assert rollouts(store) == 2


def test_what_cannot_be_read_or_stored_is_one_line(tmp_path: Path, filled: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl")
    absent = run("import-log", "nothing.jsonl", *MAP, "--store", tmp_path / "s.sqlite")
    piped = run("import-log", "-", "--point", "x", "--options", "all", "--store", filled)
    hold(filled)
    held = run("import-log", file, *MAP, "--store", filled)

    assert [one.exit_code for one in (absent, piped, held)] == [1, 1, 1]
    assert "nothing.jsonl" in absent.stderr
    assert "name them" in piped.stderr
    assert "the gate holds" in held.stderr
    assert all(one.stderr.count("\n") == 1 for one in (absent, piped, held))
