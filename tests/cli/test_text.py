import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.cli.output import as_json, duration, moment, number, printable, seconds, since, when


@given(st.text())
def test_what_is_shown_is_printable_and_on_one_line(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_what_is_printable_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_nothing_has_no_sign() -> None:
    assert (number(-0.0), number(-0.25), number(0)) == ("0", "-0.25", "0")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "-"), (float("nan"), "-"), (0.0, "0 ms"), (0.0124, "12 ms"), (0.9999, "1.0 s"),
        (119.0, "119.0 s"), (600.0, "10.0 min"), (7200.0, "2.0 h"), (864_000.0, "10.0 d"),
    ],
)  # fmt: skip
def test_a_duration_has_the_unit_that_suits_it(given: float | None, expected: str) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("30d", 2_592_000.0), ("1.5h", 5400.0), (" 15 M ", 900.0), ("2w", 1_209_600.0)],
)
def test_a_length_of_time_is_read(given: str, expected: float) -> None:
    assert duration(given) == expected


@pytest.mark.parametrize("given", ["", "30", "d", "-1d", "1d2h", "infd", "1e3s"])
def test_what_is_no_length_of_time_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(given)


@pytest.mark.parametrize(
    "given", ["2023-11-14T22:13:20", "2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00"]
)
def test_a_time_is_in_utc_unless_it_says_otherwise(given: str) -> None:
    assert when(given) == 1_700_000_000.0


@pytest.mark.parametrize("at", [1e300, -1e300, float("inf")])
def test_a_time_that_no_calendar_has_is_shown_as_a_number(at: float) -> None:
    assert moment(at) == str(at)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_one_ascii_line_whatever_is_in_it(value: object) -> None:
    text = as_json(value)

    assert text.isascii()
    assert "\n" not in text
    assert not {"NaN", "Infinity"} & set(text.replace(",", " ").split())


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(70.0, "30.0 s ago", id="it has been"),
        pytest.param(101.0, "0 ms ago", id="clocks differ a little"),
        pytest.param(100.0 + 3 * 86_400.0, "3.0 d ahead of this clock", id="a clock is wrong"),
    ],
)
def test_what_a_wrong_clock_wrote_is_not_said_to_be_new(at: float, expected: str) -> None:
    assert since(at, now=100.0) == expected
