"""Rows of tables and JSON lines, and how little a bad one costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.record.recording import Line
from tau_live.runtime.importing.rows import BadRow, NumberedRow, json_rows, table_rows


@given(st.lists(st.lists(st.text("ab\",\n'; ", max_size=6), min_size=2, max_size=2), max_size=6))
def test_a_table_comes_back_as_it_was_written(rows: list[list[str]]) -> None:
    quoted = [[*map(_quoted, row)] for row in [["x", "y"], *rows]]
    data = "\n".join(",".join(row) for row in quoted).encode()
    lines = [Line(n, part) for n, part in enumerate(data.split(b"\n"), start=1)]

    found = list(table_rows(lines))

    assert [list(row.row.values()) for row in found if isinstance(row, NumberedRow)] == rows
    assert not [row for row in found if isinstance(row, BadRow)]


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def test_a_quote_that_is_never_closed_costs_its_own_line_alone() -> None:
    lines = [Line(n, part) for n, part in enumerate((b"x,y", b'1,"2', b"3,4", b"5"), start=1)]

    found = list(table_rows(lines))

    assert [(row.line, type(row)) for row in found] == [
        (2, BadRow),
        (3, NumberedRow),
        (4, BadRow),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b"1\t2\t3", id="too many cells"),
        pytest.param(b'"1"2\t3', id="text behind a quote"),
        pytest.param(b"\xff\t3", id="not UTF-8"),
        pytest.param(b"x" * 140_000 + b"\t2", id="a cell beyond all measure"),
    ],
)
def test_a_bad_row_of_a_table_costs_no_other(bad: bytes) -> None:
    data = (b"x\ty", b'5" wide\t2', bad, b'4\t"two', b'lines"', b"", b"6\t7")
    lines = [Line(n, part) for n, part in enumerate(data, start=1)]

    found = list(table_rows(lines))

    rows = [(row.line, dict(row.row)) for row in found if isinstance(row, NumberedRow)]
    assert rows == [
        (2, {"x": '5" wide', "y": "2"}),
        (4, {"x": "4", "y": "two\nlines"}),
        (7, {"x": "6", "y": "7"}),
    ]
    assert [row.line for row in found if isinstance(row, BadRow)] == [3]


def test_a_line_that_is_too_long_is_one_bad_line() -> None:
    lines = [Line(1, b"", too_long=True), Line(2, b"{}")]

    assert [type(row) for row in json_rows(lines)] == [BadRow, NumberedRow]
