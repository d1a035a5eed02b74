"""Logs that cannot be read, or only partly: what is told, and that nothing else is raised."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tau_live.core.errors import LogError
from tau_live.learn.evaluation.files import lines_of, records_of
from tau_live.rl.features import encode, pack
from tests.learn.test_evaluating import as_csv, made, quiet

NEEDS = "option,propensity,reward\n"
WRONG = [
    ("log.csv", "option,reward\na,1\n", ":1: no column 'propensity'; its columns: "),
    ("log.csv", "option,option,propensity,reward\n", ":1: column 'option' appears twice"),
    ("log.csv", NEEDS + "a,0.5,1\na,0.5\n", ":3: expected 3 columns, got 2"),
    ("log.csv", NEEDS + "a,x,1\n", ":2: column 'propensity': expected a number, got 'x'"),
    ("log.csv", NEEDS + "\na,0.5,?\n", ":3: column 'reward': expected a number, got '?'"),
    ("log.csv", NEEDS + ",0.5,1\n", ":2: column 'option': expected a name, got ''"),
    ("log.csv", NEEDS + 'a,0.5,"1\n', ":2: not CSV: unexpected end of data"),
    ("log.csv", NEEDS, ": no decisions found"),
    ("log.csv", "", ": no decisions found"),
    ("log.jsonl", "{}\n", ":1: no column 'option'; its columns: none"),
    ("log.jsonl", "[1]\n", ":1: expected an object, got list"),
    ("log.jsonl", '{"option": "a", "propensity": 1, "reward": 1}\n{"op', ":2: not JSON: "),
    ("log.jsonl", '{"option": 1, "propensity": [], "reward": 1}',
     ":1: column 'propensity': expected a number"),
    ("log.jsonl", '{"option": {}, "propensity": 1, "reward": 1}',
     ":1: column 'option': expected a name"),
    ("log.jsonl", '{"option": "a", "propensity": 1, "reward": 1, "options": 3}',
     ":1: column 'options': expected a list of names, or names with objects of features, got 3"),
    ("log.jsonl", '{"option": "a", "propensity": 1, "reward": 1, "options": ["a", "a"]}',
     ":1: column 'options': expected every option once, got ['a', 'a']"),
    ("log.jsonl", '{"option": "a", "propensity": 1, "reward": 1, "context": 3}',
     ":1: column 'context': expected an object, got 3"),
    ("log.txt", "a", ": expected a name that ends in .csv, .jsonl, .ndjson"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), WRONG)
def test_what_is_wrong_is_told_with_its_line_and_column(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(LogError) as caught:
        records_of(path, tell=quiet)

    assert str(caught.value).startswith(f"{path}{said}")


def test_what_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(NEEDS.encode() + b"a,0.5,1\n\xff,0.5,1\n")

    with pytest.raises(LogError, match=r"log\.csv:3: not UTF-8"):
        records_of(path, tell=quiet)


def test_a_mark_of_byte_order_and_quoted_newlines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbf" + NEEDS.encode() + b'"a\nb",0.5,1\r\nc,0.5,x\r\n')

    lines = list(lines_of(path))

    assert [line.number for line in lines] == [2, 4]
    with pytest.raises(LogError, match=r":4: column 'reward'"):
        records_of(path, tell=quiet)


def test_context_can_be_chosen(tmp_path: Path) -> None:
    path = as_csv(tmp_path, made(3))

    found = records_of(path, context=["words"], tell=quiet)

    words = float(str(made(3)[0]["words"]))
    expected = pack(encode({"words": words}, [(name, None) for name in found.records[0].options]))
    assert found.records[0].packed == expected
    with pytest.raises(LogError, match=":2: no context column 'length'"):
        records_of(path, context=["length"], tell=quiet)


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_file_is_read_or_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    for name in ("log.csv", "log.jsonl"):
        (tmp_path / name).write_bytes(NEEDS.encode() + data if name == "log.csv" else data)
        try:
            found = records_of(tmp_path / name, tell=quiet)
        except LogError as error:
            assert name in str(error)
        else:
            assert found.records
