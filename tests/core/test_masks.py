"""Masks: what a host's ``allowed`` means, and the host's own choice under one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.offers import (
    LISTED_LIMIT,
    OPTIONS_LIMIT,
    Mask,
    mask_of,
    own_choice,
    read_options,
)
from tau_live.decisions.choice import offer_of
from tau_live.decisions.decider import Decider
from tau_live.rl.features import FrozenRow, copy_row
from tau_live.rl.policy import Policy, PolicyConfig
from tests.live.hostile import Endless, Half, Hostile, HostileMapping, HostileText

NAMES = ["a", "b", "c", "d"]


def as_it_is(_name: str, features: object) -> FrozenRow | None:
    """Read an option's features without looking at them."""
    return copy_row(features) if isinstance(features, dict) else None


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, None),
        (["a", "b"], {"a", "b"}),
        (("a",), {"a"}),
        ({"a", "b"}, {"a", "b"}),
        (iter(["a"]), {"a"}),
        ("a", {"a"}),
        ("ab", {"ab"}),
        (7, {"7"}),
        ([], frozenset()),
        ([1, 2.5], {"1", "2.5"}),
    ],
)
def test_a_mask_is_read_by_name(allowed: object, names: set[str] | None) -> None:
    found = mask_of(allowed)

    assert found == Mask(None if names is None else frozenset(names))


@pytest.mark.parametrize(
    "allowed",
    [True, False, {"a": True}, Endless(), Half(), HostileMapping(a=1), range(LISTED_LIMIT + 1)],
    ids=["true", "false", "mapping", "endless", "half", "hostile mapping", "too long"],
)
def test_what_says_nothing_that_can_be_relied_on_cannot_be_read(allowed: object) -> None:
    assert mask_of(allowed) == Mask(readable=False)


def test_what_is_unsafe_to_explore_is_read_by_name_too() -> None:
    found = mask_of(None, ["b", "z"])

    offer = offer_of(read_options(NAMES), "a", mask=found, read=as_it_is)

    assert (found.names, found.unexplored) == (None, frozenset({"b", "z"}))
    assert offer is not None
    assert (offer.allowed, offer.explored) == (None, (True, False, True, True))


@pytest.mark.parametrize("nothing", [None, [], ["z"]])
def test_where_nothing_offered_is_unsafe_to_explore_all_are_explored(nothing: object) -> None:
    offer = offer_of(read_options(NAMES), "a", mask=mask_of(None, nothing), read=as_it_is)

    assert offer is not None
    assert offer.explored is None


@pytest.mark.parametrize("given", [True, {"a": True}, Endless(), HostileMapping(a=1)], ids=type)
def test_where_it_cannot_be_read_nobody_chooses_but_the_host_within_its_mask(given: object) -> None:
    found = mask_of(["b", "c"], given)

    assert not found.readable
    assert own_choice(NAMES, "a", found).option == "b"


@pytest.mark.parametrize("kind", ["Hostile", "HostileText"])
def test_a_hostile_name_allows_nothing_else(kind: str) -> None:
    found = mask_of([Hostile() if kind == "Hostile" else HostileText("worst")])

    assert found.readable
    assert not any(map(found.allows, NAMES))


@pytest.mark.parametrize(
    ("default", "allowed", "expected"),
    [
        (None, None, "a"),
        ("b", None, "b"),
        ("b", ["b", "c"], "b"),
        ("b", ["d", "c"], "c"),
        (None, ["d", "c"], "c"),
        ("z", ["c"], "c"),
        ("z", ["c", "z"], "z"),
        ("b", [], None),
        ("b", ["z"], None),
    ],
)
def test_the_hosts_own_choice_is_one_that_is_allowed(
    default: str | None, allowed: list[str] | None, expected: str | None
) -> None:
    found = own_choice(iter(NAMES), default, mask_of(allowed))

    assert (found.option, found.source) == (expected, "default")


def test_a_mask_that_cannot_be_read_leaves_the_host_its_own_choice() -> None:
    assert own_choice(NAMES, "b", mask_of({"a": True})).option == "b"


@given(
    st.lists(st.sampled_from(NAMES), unique=True, min_size=1),
    st.none() | st.sampled_from([*NAMES, "z"]),
    st.none() | st.lists(st.sampled_from([*NAMES, "z"])),
)
def test_an_offer_says_what_may_be_chosen_and_what_the_host_does(
    options: list[str], default: str | None, allowed: list[str] | None
) -> None:
    mask = mask_of(allowed)

    found = offer_of(read_options(options), default, mask=mask, read=as_it_is)

    may = [name for name in options if allowed is None or name in allowed]
    if not may:
        assert found is None
        return
    assert found is not None
    assert found.names == tuple(options)
    assert [name for name in found.names if name in found.choosable()] == may
    assert (found.allowed is None) is (may == options)
    assert list(found.choosable()) == may
    assert found.choosable_default() == (default if default in may else None)
    own = own_choice(options, default, mask).option
    assert own == (default if found.own is None else options[found.own])


def test_of_too_many_options_those_not_allowed_are_left_out_first() -> None:
    names = [f"option-{number}" for number in range(OPTIONS_LIMIT + 50)]

    found = offer_of(read_options(names), None, mask=mask_of(names[-3:]), read=as_it_is)

    assert found is not None
    assert found.names == tuple(names[-3:])
    assert found.cut == OPTIONS_LIMIT + 47


@given(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), st.integers(0, 50))
def test_a_masked_option_has_no_probability_and_is_never_drawn(
    allowed: list[bool], number: int
) -> None:
    decider = Decider(Policy.initial(PolicyConfig()), seed=number)

    found = decider.choose(
        f"decision-{number}",
        point="model",
        options=[(name, None) for name in NAMES],
        context={},
        default=1,
        allowed=allowed,
    )

    given_ = np.array(found.probabilities)
    assert allowed[found.place]
    assert (given_[~np.array(allowed)] == 0.0).all()
    assert (given_[np.array(allowed)] > 0.0).all()
    assert given_.sum() == pytest.approx(1.0)
    assert found.propensity == found.probabilities[found.place]
