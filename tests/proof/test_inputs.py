"""The fuzzing reports the faults that it finds, and every callable function has a case."""

import random
from typing import Any

import pytest

from tests.proof.inputs_live import Live
from tests.proof.inputs_surface import GOOD, Called, missing, surface
from tests.proof.inputs_tally import Tally
from tests.proof.inputs_values import CATALOGUE, HUGE, Values, state_of


def test_everything_that_can_be_called_has_good_values_and_every_case_its_call() -> None:
    assert missing(surface()) == []
    assert Live(Tally(), 1).uncovered() == []
    assert {"tau_live.decide", "Run.reward", "Runtime.emit", "PendingDecision.settle"} <= {
        *surface()
    }


def test_an_argument_that_nobody_knows_is_missing() -> None:
    new = {"tau_live.new": Called("tau_live.new", print, ("brand_new", next(iter(GOOD))))}

    assert missing(new) == ["tau_live.new: brand_new"]


def raises(_: object) -> None:
    raise LookupError


def mutates(given: list[Any]) -> None:
    given.append(given)


@pytest.mark.parametrize(("call", "kind"), [(raises, "raised"), (mutates, "mutated")])
def test_what_is_wrong_is_told_with_its_case(call: Any, kind: str) -> None:
    tally = Tally()
    tally.case = "--only 7"

    tally.timed(call, ["a"])

    assert tally.wrong[kind] == 1
    assert tally.words[0].startswith(f"{kind}: --only 7")


def test_the_same_seed_makes_the_same_values() -> None:
    first, second = (Values(random.Random(3)) for _ in range(2))

    assert [first.any().name for _ in range(50)] == [second.any().name for _ in range(50)]


@pytest.mark.parametrize(
    "name", [name for name in CATALOGUE if name not in HUGE and "__del__" not in name][::20]
)
def test_looking_at_a_value_changes_nothing(name: str) -> None:
    value = CATALOGUE[name]()

    assert state_of(value) == state_of(value)
