"""Off is off, and an unclear word is off with a warning (law 1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.switch import switched_on


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE", "On", " yes "])
def test_a_truthy_word_switches_on(word: str) -> None:
    switch = switched_on({"TAU_LIVE_RL": word})

    assert switch.on
    assert switch.warnings == ()


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "OFF", "", "  "])
def test_a_falsy_word_or_a_blank_is_off(word: str) -> None:
    switch = switched_on({"TAU_LIVE_RL": word})

    assert not switch.on
    assert switch.warnings == ()


def test_fault_17_it_is_off_by_default() -> None:
    switch = switched_on({})

    assert not switch
    assert switch.warnings == ()


@given(st.text())
def test_anything_else_is_off_with_one_clear_warning(word: str) -> None:
    known = {"1", "true", "yes", "on", "0", "false", "no", "off", ""}

    switch = switched_on({"TAU_LIVE_RL": word})

    if word.strip().lower() not in known:
        assert not switch
        (warning,) = switch.warnings
        assert warning.startswith("TAU_LIVE_RL must be one of")
        assert "\n" not in warning


def test_the_reference_s_name_still_switches_on_with_one_deprecation_warning() -> None:
    switch = switched_on({"TAU_LIVE_RL_ENABLED": "true"})

    assert switch
    assert switch.warnings == ("TAU_LIVE_RL_ENABLED is deprecated; set TAU_LIVE_RL instead",)


def test_the_new_name_wins_over_the_old_one() -> None:
    switch = switched_on({"TAU_LIVE_RL": "0", "TAU_LIVE_RL_ENABLED": "1"})

    assert not switch


@pytest.mark.parametrize("word", ["1", "yes", "stop", "customers see nonsense"])
def test_whatever_kills_keeps_it_off_and_says_so(word: str) -> None:
    found = switched_on({"TAU_LIVE_RL": "1", "TAU_LIVE_RL_KILL": word})

    assert not found
    assert found.warnings == (
        f"TAU_LIVE_RL_KILL is {word!r}: tau-live stays off until it is unset",
    )


@pytest.mark.parametrize("word", ["", " ", "0", "No", "false", "off"])
def test_a_falsy_word_does_not_kill(word: str) -> None:
    assert switched_on({"TAU_LIVE_RL": "1", "TAU_LIVE_RL_KILL": word})


def test_what_is_off_needs_no_killing() -> None:
    assert switched_on({"TAU_LIVE_RL_KILL": "1"}).warnings == ()
