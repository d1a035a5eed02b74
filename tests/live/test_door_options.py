"""Options as hosts have them: lists, mappings, iterators, thousands, none, odd ones."""

from collections import Counter
from pathlib import Path

import pytest

import tau_live
from tau_live.core.offers import OPTIONS_LIMIT
from tau_live.decisions.decider import draw, uniform
from tests.live.running import decisions


class Model:
    """An option that is an object, cannot be hashed, and has a name."""

    __hash__ = None  # type: ignore[assignment]  # as of any class that defines only __eq__

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        raise TypeError("do not compare models")

    def __str__(self) -> str:
        return self.name


def test_options_that_are_objects_come_back_as_they_were(live: Path) -> None:
    models = [Model("small"), Model("large")]

    with tau_live.run("objects") as run:
        choice = run.decide("model", models, default=models[1])
    assert tau_live.flush(30)

    row = decisions(live, run.id)[0]
    assert any(choice.option is model for model in models)
    assert (row.options, row.default) == (("small", "large"), "large")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["a", "b"], ("a", "b")),
        (("a", "b"), ("a", "b")),
        ({"a": None, "b": {"usd": 1.0}}, ("a", "b")),
        (["a", "a", "b"], ("a", "b")),
        ("only", ("only",)),
        ([1, 2.5, None], ("1", "2.5", "None")),
        (range(3), ("0", "1", "2")),
        (7, ("7",)),
    ],
    ids=str,
)
def test_options_of_many_kinds_are_offered_by_name(
    live: Path, options: object, names: tuple[str, ...]
) -> None:
    with tau_live.run("kinds") as run:
        choice = run.decide("model", options)  # type: ignore[arg-type]  # hosts do as they like
    assert tau_live.flush(30)

    row = decisions(live, run.id)[0]
    assert row.options == names
    assert row.applied == str(choice.option)


def test_an_iterator_is_read_only_once(live: Path) -> None:
    with tau_live.run("iterator") as run:
        choice = run.decide("model", (name for name in ("a", "b")))  # type: ignore[arg-type]
    after = run.decide("model", iter(["c", "d"]))  # type: ignore[arg-type]

    assert choice.source == "policy"
    assert choice.option in {"a", "b"}
    assert (after.option, after.source) == ("c", "default")


def test_without_options_nothing_is_chosen(live: Path) -> None:
    with tau_live.run("empty") as run:
        found = [run.decide("model", []), run.decide("model", [], default="d")]
        none = run.decide("model", None)  # type: ignore[arg-type]

    assert [choice.option for choice in (*found, none)] == [None, "d", None]
    assert {choice.source for choice in found} == {"default"}


def test_of_ten_thousand_options_a_bounded_number_is_offered_and_the_rest_counted(
    live: Path,
) -> None:
    names = [f"option-{number}" for number in range(10_000)]

    with tau_live.run("many") as run:
        choice = run.decide("tool", names, default=names[9_000])
    assert tau_live.flush(30)

    row = decisions(live, run.id)[0]
    refused = tau_live.snapshot()["refused"]
    assert choice.option in names
    assert row.options == (*names[:OPTIONS_LIMIT], names[9_000])
    assert isinstance(refused, dict)
    assert refused["options_cut"] == 10_000 - OPTIONS_LIMIT - 1


def test_long_options_that_begin_alike_are_told_apart(live: Path) -> None:
    prompts = ["You are a careful assistant. " * 20 + ending for ending in ("Be brief.", "Think.")]

    with tau_live.run("prompts") as run:
        choice = run.decide("prompt", prompts)
    assert tau_live.flush(30)

    assert len(decisions(live, run.id)[0].options) == 2
    assert choice.option in prompts


def test_a_default_that_is_not_offered_comes_back_only_in_doubt(live: Path) -> None:
    with tau_live.run("foreign") as run:
        choice = run.decide("model", ["a", "b"], default="c")
    after = run.decide("model", ["a", "b"], default="c")
    assert tau_live.flush(30)

    row = decisions(live, run.id)[0]
    assert (choice.option in {"a", "b"}, choice.source) == (True, "policy")
    assert (row.default, row.applied) == (None, choice.option)
    assert (after.option, after.source) == ("c", "default")


def test_options_may_change_at_every_decision(live: Path) -> None:
    with tau_live.run("changing") as run:
        found = [run.decide("tool", [f"t{n}", f"t{n + 1}"]) for n in range(5)]
    assert tau_live.flush(30)

    rows = decisions(live, run.id)
    assert [row.options for row in rows] == [(f"t{n}", f"t{n + 1}") for n in range(5)]
    assert [row.applied for row in rows] == [choice.option for choice in found]
    assert [row.ordinal for row in rows] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_choice_follows_from_seed_id_and_probabilities_alone(live: Path) -> None:
    found = Counter[str]()
    for key in range(50):
        with tau_live.run("draw", key=key) as run:
            choice = run.decide("model", ["a", "b", "c"])
        found[choice.option] += 1
    assert tau_live.flush(30)

    for key in range(50):
        with tau_live.run("draw", key=key) as run:
            pass
        row = decisions(live, run.id)[0]
        assert sum(row.probabilities) == pytest.approx(1.0)
        assert row.options[draw(row.probabilities, uniform(f"0:{row.decision_id}"))] == row.applied
    assert len(found) == 3


def test_a_decision_point_without_a_name_gets_one(live: Path) -> None:
    with tau_live.run("nameless") as run:
        run.decide("", ["a", "b"])
    assert tau_live.flush(30)

    assert [row.point for row in decisions(live, run.id)] == ["unnamed"]
