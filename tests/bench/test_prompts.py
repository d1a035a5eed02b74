"""The worlds of prompts are what they are said to be, and the peers search them."""

from functools import partial
from itertools import product

import pytest

from tau_live.prompts.demo import PROMPT
from tau_live.prompts.tickets import Rule, reply
from tests.bench.prompt_worlds import FAMILIES, score, world
from tests.bench.prompts import BENCH, Search, by_gepa, by_infer_rules, play

SEEDS = range(3)
EVERY = list(product(FAMILIES, SEEDS))


def written(*rules: Rule) -> str:
    conditions = {rule: f'If it says "{rule.cues[0]}", ' if rule.cues else "" for rule in rules}
    return "\n".join(
        [
            PROMPT,
            *(
                f'Write the amount as in "{rule.value}".'
                if rule.field == "amount"
                else f"{conditions[rule]}{rule.field} is {rule.value}."
                for rule in rules
            ),
        ]
    )


@pytest.mark.parametrize(("family", "seed"), EVERY)
def test_the_rules_of_a_house_are_right_on_rows_not_seen(family: str, seed: int) -> None:
    drawn = world(family, seed)

    found = score(written(*drawn.rules), drawn.test)

    assert found == 1.0 if drawn.rules else found == score(PROMPT, drawn.test) < 0.85


@pytest.mark.parametrize(("family", "seed"), EVERY)
def test_a_world_is_drawn_by_its_seed_and_no_row_is_in_two_sets(family: str, seed: int) -> None:
    drawn = world(family, seed)

    rows = [row["prompt"] for part in (drawn.train, drawn.validate, drawn.test) for row in part]
    assert drawn == world(family, seed) != world(family, seed + 1)
    assert len(set(rows)) == len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_independent_rules_help_one_by_one(seed: int) -> None:
    drawn = world("independent", seed)

    gains = [score(written(rule), drawn.test) - score(PROMPT, drawn.test) for rule in drawn.rules]

    assert min(gains) > 0.0


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_that_belong_together_do_not_help_alone(seed: int) -> None:
    drawn = world("together", seed)
    before = score(PROMPT, drawn.test)

    alone = [score(written(rule), drawn.test) for rule in drawn.rules]

    assert alone == [before] * 4
    assert score(written(*drawn.rules[:2]), drawn.test) > before


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_tempting_rule_helps_on_the_rows_to_learn_from_alone(seed: int, number: int) -> None:
    drawn = world("tempting", seed)
    wrong = drawn.rules[number]._replace(cues=(("company initech", "company vandelay")[number],))

    helped, harmed = (
        score(written(wrong), rows) - score(PROMPT, rows) for rows in (drawn.train, drawn.test)
    )

    assert helped > 0.0 > harmed


@pytest.mark.parametrize("family", ["noisy", "hopeless"])
def test_some_labels_are_wrong(family: str) -> None:
    drawn = world(family, 0)

    wrong = [row for row in drawn.train if reply(row["prompt"], drawn.rules) != row["expected"]]

    assert 0 < len(wrong) < len(drawn.train) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "search"),
    [
        pytest.param("gepa", partial(by_gepa, 8, False), id="GEPA"),
        pytest.param("dspy", by_infer_rules, id="DSPy"),
    ],
)
def test_a_peer_goes_through(peer: str, search: Search) -> None:
    pytest.importorskip(peer)

    figures = play("independent", search, 0, budget=100)

    assert figures["independent"] > 0.0
    assert 60 <= figures["independent, task calls"] < 200
    assert figures["independent, reflections"] > 0


def test_everybody_takes_part_in_every_family() -> None:
    names = [(each.name, each.part) for each in BENCH.contestants]

    assert set(names) == set(product({name for name, _ in names}, FAMILIES))
    assert len(set(names)) == len(names)
