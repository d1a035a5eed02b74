import json

import pytest

from tau_live.operate.report.choices import (
    CELLS,
    KEYS,
    MOST_VALUES,
    OPTIONS,
    OTHERS,
    VALUES,
    Tally,
    group_options,
)
from tau_live.store.records import Choice


def tally(*told: tuple[str | None, object]) -> Tally:
    found = Tally()
    for number, (applied, context) in enumerate(told):
        text = context if isinstance(context, str) else json.dumps(context)
        found.add(Choice(number, "model", applied, 1.0, text))
    return found


def test_what_decides_alone_tells_everything_and_what_does_not_nothing() -> None:
    found = tally(
        *(("ab"[n % 2], {"decides": "xy"[n % 2], "idle": "xy"[n // 2 % 2]}) for n in range(400))
    )

    decides, idle = found.habits()

    assert decides.key == "decides"
    assert decides.information == pytest.approx(1.0, abs=0.01)
    assert (idle.key, idle.information) == ("idle", 0.0)
    assert [(one.value, one.options) for one in decides.values] == [
        ("x", {"a": 200, "b": 0}),
        ("y", {"a": 0, "b": 200}),
    ]


def test_numbers_become_four_ranges_of_about_as_many() -> None:
    found = tally(*(("ab"[n > 70], {"size": n}) for n in range(100)))

    (size,) = found.habits()

    assert [one.decisions for one in size.values] == [25, 25, 25, 25]
    assert size.values[0].value == "0 to 24.75"
    assert size.values[3].options == {"a": 0, "b": 25}


def test_few_numbers_stay_what_they_are() -> None:
    (level,) = tally(*(("a" if n % 3 else "b", {"level": n % 3}) for n in range(60))).habits()

    assert [one.value for one in level.values] == ["0", "1", "2"]


def test_what_has_one_value_or_too_many_is_not_shown() -> None:
    found = tally(
        *(("ab"[n % 2], {"same": "x", "id": f"{n}"}) for n in range(MOST_VALUES * OPTIONS * 2))
    )

    assert found.habits() == []


@pytest.mark.parametrize("value", [0, "x"], ids=["numbers", "words"])
def test_of_more_keys_than_are_looked_at_the_first_ones_are(value: object) -> None:
    told = {f"key-{n:02}": value for n in range(2 * KEYS)}
    other = {**told, "key-00": 1 if value == 0 else "y"}

    (first,) = tally(*(("ab"[n % 2], (told, other)[n % 2]) for n in range(400))).habits()

    assert first.key == "key-00"
    assert first.information == pytest.approx(1.0, abs=0.01)
    assert sum(one.decisions for one in first.values) == 400


def test_where_there_are_too_many_pairs_the_first_are_counted_to_the_end() -> None:
    cells = [(f"{n % 20}", f"option-{n // 20}") for n in range(2 * CELLS)]

    (word,) = tally(*((option, {"word": value}) for value, option in cells * 3)).habits()

    assert sum(one.decisions for one in word.values) == 3 * VALUES * (CELLS // 20 + 1)


def test_rare_options_are_counted_together() -> None:
    found = tally(*((f"option-{n:02}", {}) for n in range(20) for _ in range(20 - n)))

    options = found.options()

    assert len(options) == OPTIONS
    assert options[0] == "option-00"
    assert options[-1] == OTHERS
    assert sum(group_options(found.applied, options).values()) == found.decisions


@pytest.mark.parametrize("context", ["", "[]", "nothing", '{"a": NaN}', '{"a": null, "b": [1]}'])
def test_a_context_that_says_nothing_is_passed_over(context: str) -> None:
    found = tally(*([("a", context), ("b", context)] * 20))

    assert found.habits() == []
    assert found.decisions == 40


def test_what_nobody_knows_was_applied_is_counted_and_no_choice() -> None:
    found = tally((None, {"lang": "de"}), ("a", {"lang": "de"}))

    assert (found.decisions, found.options()) == (2, ["a"])
