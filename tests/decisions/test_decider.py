"""The decider: what it draws, and that nothing but the decision's own id matters for it."""

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.decisions.decider import Decider, PolicyChoice, draw, uniform
from tau_live.rl.features import unpack
from tau_live.rl.policy import Policy, PolicyConfig

CONFIG = PolicyConfig(epsilon=0.08)
UNTRAINED = Policy.initial(CONFIG)
OPTIONS: list[tuple[str, Mapping[str, object] | None]] = [
    ("small", {"usd": 0.1}),
    ("middle", {"usd": 0.5}),
    ("large", {"usd": 2.0}),
    ("none", None),
]
CHI_SQUARE_3_999 = 16.266
"""The 99.9th percentile of chi-square with 3 degrees of freedom (Pearson and Hartley, table 8)."""


def trained(seed: int = 0, scale: float = 3.0) -> Policy:
    rng = np.random.default_rng(seed)
    return replace(UNTRAINED, weights=scale * rng.normal(size=CONFIG.cross_width), rollouts=64)


def chosen(decider: Decider, id_: str) -> PolicyChoice:
    return decider.choose(
        id_, point="model", options=OPTIONS, context={"words": 120, "lang": "de"}, default=1
    )


def chi_square(counts: Counter[int], probabilities: tuple[float, ...], total: int) -> float:
    return sum(
        (counts[place] - total * probability) ** 2 / (total * probability)
        for place, probability in enumerate(probabilities)
    )


def test_choices_follow_the_probabilities_that_are_logged() -> None:
    decider = Decider(UNTRAINED, seed=7)
    total = 2_000

    found = [chosen(decider, f"decision-{number}") for number in range(total)]

    probabilities = found[0].probabilities
    counts = Counter(one.place for one in found)
    assert {one.probabilities for one in found} == {probabilities}
    assert sum(probabilities) == pytest.approx(1.0)
    assert chi_square(counts, probabilities, total) < CHI_SQUARE_3_999
    assert all(one.propensity == probabilities[one.place] for one in found)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_drawn_follows_the_probabilities(seed: int) -> None:
    probabilities = (0.02, 0.08, 0.3, 0.6)
    total = 20_000

    counts = Counter(draw(probabilities, uniform(f"{seed}:{n}")) for n in range(total))

    assert chi_square(counts, probabilities, total) < CHI_SQUARE_3_999


def test_numbers_are_uniform() -> None:
    found = np.sort([uniform(f"key-{number}") for number in range(10_000)])

    distance = np.abs(found - (np.arange(10_000) + 0.5) / 10_000).max()
    assert distance < 1.95 / math.sqrt(10_000)  # Kolmogorov-Smirnov at 0.1 %
    assert found[0] >= 0.0
    assert found[-1] < 1.0


@settings(max_examples=30)
@given(st.text())
def test_any_key_gives_a_number(key: str) -> None:
    assert 0.0 <= uniform(key) < 1.0


@pytest.mark.parametrize(
    ("probabilities", "at", "expected"),
    [
        ((0.25, 0.75), 0.0, 0),
        ((0.25, 0.75), 0.25, 1),
        ((0.0, 1.0), 0.0, 1),
        ((1.0, 0.0), 1.0 - 2**-53, 0),
        ((0.5, 0.5 - 2**-40, 0.0), 1.0 - 2**-53, 1),
        ((1.0,), 0.5, 0),
    ],
)
def test_an_option_without_a_share_is_never_drawn(
    probabilities: tuple[float, ...], at: float, expected: int
) -> None:
    assert draw(probabilities, at) == expected


def test_the_seed_and_the_id_alone_decide_in_any_order() -> None:
    ids = [f"decision-{number}" for number in range(200)]
    decider = Decider(UNTRAINED, seed=7)

    forwards = {id_: chosen(decider, id_) for id_ in ids}
    backwards = {id_: chosen(Decider(UNTRAINED, seed=7), id_) for id_ in reversed(ids)}

    assert forwards == backwards


def test_another_seed_chooses_otherwise() -> None:
    ids = [f"decision-{number}" for number in range(200)]

    first, second = (
        [chosen(Decider(UNTRAINED, seed=seed), id_).place for id_ in ids] for seed in (7, 8)
    )

    assert first != second


@pytest.mark.parametrize("scale", [0.0, 3.0, 1e6])
def test_every_option_keeps_its_floor(scale: float) -> None:
    decider = Decider(UNTRAINED, seed=7)
    decider.serve("model", 1, trained(scale=scale))

    found = chosen(decider, "decision")

    assert min(found.probabilities) >= CONFIG.epsilon / len(OPTIONS)
    assert sum(found.probabilities) == pytest.approx(1.0)
    assert math.isfinite(found.value)


def test_the_hosts_own_choice_is_preferred_at_first() -> None:
    found = chosen(Decider(UNTRAINED, seed=7), "decision")

    assert max(found.probabilities) == found.probabilities[1]
    assert found.version == 0


def test_what_was_logged_can_be_computed_again() -> None:
    decider = Decider(UNTRAINED, seed=7)
    policy = trained()
    decider.serve("model", 4, policy)

    found = chosen(decider, "decision")

    again = policy.probabilities(unpack(found.encoded), default=1)
    assert tuple(again.tolist()) == found.probabilities
    assert policy.judge(unpack(found.encoded)).value == found.value
    assert found.version == 4


def test_a_version_serves_its_own_point_until_it_is_withdrawn() -> None:
    decider = Decider(UNTRAINED, seed=7)
    decider.serve("model", 4, trained())
    decider.serve("tools", 5, trained(1))

    before = (chosen(decider, "decision").version, decider.versions())
    decider.withdraw("model")
    decider.withdraw("nothing")

    assert before == (4, {"model": 4, "tools": 5})
    assert chosen(decider, "decision").version == 0
    assert decider.versions() == {"tools": 5}


def test_a_plugins_answer_takes_the_place_of_ours() -> None:
    ours = chosen(Decider(UNTRAINED, seed=7), "decision")

    theirs = ours.with_answer(2, 0.25)

    assert (theirs.place, theirs.propensity, theirs.probabilities) == (2, 0.25, ())
    assert (theirs.value, theirs.encoded) == (ours.value, ours.encoded)


@pytest.mark.parametrize("probability", [None, 0.0, -0.5, 1.5, math.nan, math.inf])
def test_a_plugins_answer_without_a_probability_has_none(probability: float | None) -> None:
    ours = chosen(Decider(UNTRAINED, seed=7), "decision")

    assert ours.with_answer(0, probability).propensity is None


def test_policies_are_swapped_while_many_threads_decide() -> None:
    decider = Decider(UNTRAINED, seed=7)
    policies = [UNTRAINED, trained(1), trained(2)]
    alone = []
    for version, policy in enumerate(policies):
        decider.serve("model", version, policy)
        alone.append({f"d{n}": chosen(decider, f"d{n}") for n in range(50)})
    together = threading.Barrier(8)
    found: list[list[tuple[str, PolicyChoice]]] = [[] for _ in range(8)]

    def decides(number: int) -> None:
        for turn in range(50):
            if turn % 10 == 0:
                together.wait(30.0)
                version = (number + turn // 10) % 3
                decider.serve("model", version, policies[version])
            found[number].append((f"d{turn}", chosen(decider, f"d{turn}")))

    threads = [threading.Thread(target=decides, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)

    decided = [one for of_one in found for one in of_one]
    assert len(decided) == 8 * 50
    assert all(one == alone[one.version][id_] for id_, one in decided)


def test_no_change_is_lost_when_many_make_one() -> None:
    decider = Decider(UNTRAINED, seed=7)
    together = threading.Barrier(8)

    def serves(number: int) -> None:
        together.wait(30.0)
        for turn in range(100):
            decider.serve(f"{number}-{turn}", 1, UNTRAINED)

    threads = [threading.Thread(target=serves, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)

    assert len(decider.versions()) == 800


GARBAGE: dict[str, object] = {
    "nan": math.nan,
    "inf": -math.inf,
    "huge": 10**400,
    "object": object(),
    "bytes": b"\xff",
    "surrogate": "\ud800",
    "long": "x " * 50_000,
    "nested": {"a": [1, {"b": None}]},
    "list": [1, None, "a", object()],
    "none": None,
    "": "",
    "\ud800": 1.0,
}


def test_garbage_does_not_keep_it_from_choosing() -> None:
    decider = Decider(UNTRAINED, seed=7)
    decider.serve("model", 1, trained())

    found = decider.choose(
        "\ud800",
        point="model",
        options=[("\ud800", GARBAGE), ("", None), ("", {})],
        context=GARBAGE,
        default=None,
    )

    assert 0 <= found.place < 3
    assert sum(found.probabilities) == pytest.approx(1.0)
    assert math.isfinite(found.value)


def test_a_single_option_is_chosen_with_certainty() -> None:
    found = Decider(UNTRAINED, seed=7).choose(
        "decision", point="model", options=[("only", None)], context={}, default=None
    )

    assert (found.place, found.propensity) == (0, 1.0)
