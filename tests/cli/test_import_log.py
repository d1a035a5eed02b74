"""The command that imports logs; what it does has tests of its own."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold
from tests.cli.test_long_work import rollouts
from tests.live.running import exported

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
        (b"hello\n", "line 1, column option: the table has no such column"),
        (b"hello\n\n\nworld\n\n\n", "line 4, column option: expected an option"),
    ],
    ids=["no point", "no option", "compressed", "one line", "blank lines between"],
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


def tables(folder: Path) -> dict[str, Path]:
    """Write the same 20 rows as JSON Lines, Parquet, and Arrow, with the types of a table."""
    began = datetime(2024, 5, 1, tzinfo=UTC)
    times = [began + timedelta(seconds=n) for n in range(20)]
    known = {
        "action": ["a", "b"] * 10,
        "p": [0.5] * 20,
        "context": [{"kind": "sum", "size": n} for n in range(20)],
        "options": [["a", "b"]] * 20,
    }
    scores = [n / 20 for n in range(20)]
    typed = {
        "score": [math.nan, *scores[1:]],
        "time": pa.array(times, pa.timestamp("ns", "UTC")),
    }
    rows = pa.table(known).to_pylist()
    for row, score, at in zip(rows, [None, *scores[1:]], times, strict=True):
        row |= {"score": score, "time": at.timestamp()}
    table = pa.table(known | typed)
    names = ("log.jsonl", "log.parquet", "file.arrow", "stream.arrow")
    found = {name: folder / name for name in names}
    found["log.jsonl"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(table, found["log.parquet"])
    with pa.ipc.new_file(found["file.arrow"], table.schema) as file:
        file.write_table(table)
    with pa.ipc.new_stream(found["stream.arrow"], table.schema) as stream:
        stream.write_table(table)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log.parquet", "file.arrow", "stream.arrow"])
def test_a_table_of_parquet_or_arrow_becomes_the_same_rollouts_as_its_rows_in_json(
    name: str, tmp_path: Path, read: Read
) -> None:
    files = tables(tmp_path)
    fields = "option=action,at=time,propensity=p,reward=score"
    more = ("--point", "ad", "--map", fields, "--stream", "log")

    expected = read("import-log", files["log.jsonl"], *more, "--store", tmp_path / "json.sqlite")
    done = read("import-log", files[name], *more, "--store", tmp_path / "s.sqlite")

    assert isinstance(done, dict)
    assert isinstance(expected, dict)
    own = {"format": files[name].suffix[1:], "lines_per_s": done["lines_per_s"]}
    assert done == {**expected, **own}
    assert (done["lines"], done["rewards"], done["rollouts"]) == (20, 19, 20)
    assert exported(tmp_path / "s.sqlite") == exported(tmp_path / "json.sqlite")


@pytest.mark.parametrize("content", [b"PAR1 and nothing more", b"ARROW1 and nothing more"])
def test_a_table_that_is_damaged_fails(content: bytes, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "log"
    file.write_bytes(content)

    told = run("import-log", file, *MAP, "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 1
    assert f"cannot read table '{file}'" in told.stderr


@pytest.mark.slow
def test_a_table_without_the_option_fails(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "log.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3]}), file)

    told = run("import-log", file, *MAP, "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 1
    assert "line 1, column action: expected an option, got nothing" in told.stderr


def test_a_log_without_any_choice_is_told_to_teach_nothing(tmp_path: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl")

    told = run("import-log", file, *MAP[:4], "--store", tmp_path / "s.sqlite")

    assert "without choice   2" in told.stdout
    assert "give the options with --options" in told.stderr


def test_strict_ends_with_one_line_that_says_where(tmp_path: Path, run: Run) -> None:
    file = log(tmp_path / "log.jsonl", '{"action": "c"}')

    told = run("import-log", file, *MAP, "--strict", "--store", tmp_path / "s.sqlite")

    assert told.exit_code == 1
    assert told.stderr.count("\n") == 1
    assert "line 2, column action: expected one of 2 options, got 'c'" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--map", "wealth=x"], "'wealth' is not one of"),
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
