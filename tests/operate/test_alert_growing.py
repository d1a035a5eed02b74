"""When a counter last grew, from what was noted of it: old drops are no news, and new ones are."""

from hypothesis import given
from hypothesis import strategies as st

from tau_live.operate.alert_rules import (
    GREW,
    RECENT_S,
    RESOLUTION_S,
    growth_times,
    is_recent,
    marks,
)

DROPS = "dropped_queue_full"


def looked(
    values: list[tuple[float, int]], noted: dict[tuple[str, str], str] | None = None
) -> dict[tuple[str, str], str]:
    """Return what is noted after looks at a counter at these times."""
    noted = {} if noted is None else noted
    for at, value in values:
        for name, mark in marks({DROPS: value}, noted, now=at).items():
            noted[GREW, name] = mark
    return noted


def test_a_counter_that_stays_keeps_the_time_at_which_it_grew() -> None:
    noted = looked([(100.0, 3), (200.0, 3), (900_000.0, 3)])

    assert growth_times({DROPS: 3}, noted) == {DROPS: 100.0}
    assert not is_recent(100.0, now=100.0 + RECENT_S)
    assert is_recent(100.0, now=99.0 + RECENT_S)


def test_what_grew_since_somebody_looked_may_have_been_just_now() -> None:
    assert growth_times({DROPS: 4}, looked([(100.0, 3)])) == {DROPS: None}
    assert is_recent(None, now=1e9)


def test_a_counter_that_grows_all_the_time_is_noted_once_a_minute() -> None:
    noted = looked([(1_000.0, 1)])

    assert marks({DROPS: 2}, noted, now=1_000.0 + RESOLUTION_S / 2) == {}
    assert marks({DROPS: 2}, noted, now=1_000.0 + RESOLUTION_S) == {DROPS: "2 1060.0"}
    assert marks({DROPS: 2}, noted, now=10.0) == {DROPS: "2 10.0"}, "the clock was set back"


def test_what_is_no_drop_is_not_watched_and_nothing_is_noted_of_zero() -> None:
    counters = {"duplicate_spans": 9, DROPS: 0, "defaults_not_offered_model": 1}

    assert marks(counters, {}, now=5.0).keys() == {"defaults_not_offered_model"}
    assert growth_times(counters, {}).keys() == {"defaults_not_offered_model"}


def test_a_mark_that_somebody_has_spoiled_is_none() -> None:
    noted = {(GREW, DROPS): "many"}

    assert growth_times({DROPS: 3}, noted) == {DROPS: None}
    assert marks({DROPS: 3}, noted, now=7.0) == {DROPS: "3 7.0"}


def test_a_counter_that_shrank_is_followed_without_being_news() -> None:
    noted = looked([(100.0, 9), (500.0, 4)])

    assert growth_times({DROPS: 4}, noted) == {DROPS: 100.0}
    assert growth_times({DROPS: 5}, noted) == {DROPS: None}


@given(st.lists(st.tuples(st.floats(0.0, 300.0), st.integers(0, 3)), min_size=1))
def test_the_time_is_never_before_that_of_the_last_growth_nor_a_minute_behind_a_look(
    steps: list[tuple[float, int]],
) -> None:
    at, value, last = 1_000.0, 0, 0.0
    noted: dict[tuple[str, str], str] = {}
    for pause, more in steps:
        at, value = at + pause, value + more
        last = at if more else last
        looked([(at, value)], noted)

    looked([(at + 2 * RESOLUTION_S, value)], noted)

    found = growth_times({DROPS: value}, noted)
    assert found.keys() == ({DROPS} if value else set())
    known = found.get(DROPS, 0.0)
    assert known is not None, "whoever looks a while later has noted all"
    assert not value or last - RESOLUTION_S <= known <= at + 2 * RESOLUTION_S
