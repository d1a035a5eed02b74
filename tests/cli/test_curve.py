import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.cli.power import curve
from tau_live.operate.report.facts import Mean

ANY = st.floats(-1e9, 1e9)


def mean(value: float, *ends: float) -> Mean:
    lower, upper = ends or (None, None)
    return Mean(count=9, mean=value, lower=lower, upper=upper)


def drawn(means: list[Mean], *, width: int = 40) -> list[str]:
    return [row.plain for row in curve(means, width=width)]


def test_a_mean_stands_where_its_number_is_and_its_interval_around_it() -> None:
    rows = drawn([mean(0.1, 0.0, 0.3), mean(0.9, 0.6, 1.0)], width=8)

    assert rows == [
        "1 │  ██",
        "  │  ░░",
        "  │░░  ",
        "0 │██  ",
    ]


def test_where_nothing_is_known_nothing_stands() -> None:
    rows = drawn([mean(0.0), Mean(), mean(1.0)], width=6)

    assert [row[3:] for row in rows] == ["  █", "   ", "   ", "█  "]


def test_of_nothing_there_is_no_curve() -> None:
    assert curve([Mean(), Mean()], width=40) == []


def test_where_all_is_the_same_it_is_a_line_in_the_middle() -> None:
    rows = drawn([mean(0.5)] * 3, width=6)

    assert [row[-3:] for row in rows] == ["   ", "███", "   ", "   "]


@pytest.mark.slow
@given(st.lists(ANY, min_size=1, max_size=80), st.integers(12, 200))
def test_it_never_needs_more_room_than_there_is(values: list[float], width: int) -> None:
    rows = drawn([mean(value, value - 1.0, value + 1.0) for value in values], width=width)

    assert len(rows) == 4
    assert max(map(len, rows)) <= max(width, 14)
    assert any(row.endswith("█") for row in rows)
