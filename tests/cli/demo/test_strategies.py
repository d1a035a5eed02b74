import sqlite3
from contextlib import closing

import pytest

from tau_live.cli.demo.corpus import Spelling
from tau_live.cli.demo.questions import Question
from tau_live.cli.demo.strategies import PRICES, Library, Strategy, fill_tables
from tau_live.core.errors import TauLiveError


@pytest.mark.parametrize(
    ("strategy", "text", "name"),
    [
        (Strategy.EXACT, "json.dumps", "json.dumps"),
        (Strategy.EXACT, "copytree", "shutil.copytree"),
        (Strategy.EXACT, " Path.Glob ", "pathlib.Path.glob"),
        (Strategy.EXACT, "copy.copy", "copy.copy"),
        (Strategy.FUZZY, "json.dmups", "json.dumps"),
        (Strategy.FUZZY, "shutil.copytre", "shutil.copytree"),
        (Strategy.FUZZY, "jsn dmps", "json.dumps"),
        (Strategy.WORDS, "serialize object to JSON formatted str", "json.dumps"),
        (Strategy.WORDS, "recursively copying directory trees", "shutil.copytree"),
        (Strategy.TRIGRAMS, "recursivly copy directry tree", "shutil.copytree"),
        (Strategy.CORRECTED, "recrsively cpy drectry tree", "shutil.copytree"),
        (Strategy.CORRECTED, "json.dmups", "json.dumps"),
        (Strategy.CORRECTED, "serialise objct to jsn formated str", "json.dumps"),
    ],
)
def test_finds_what_a_person_would_expect(
    whole: Library, strategy: Strategy, text: str, name: str
) -> None:
    hit = whole.search(strategy, text)

    assert hit is not None
    assert hit.name == name


def test_a_name_that_several_end_with_is_found_with_less_certainty(whole: Library) -> None:
    alone = whole.search(Strategy.EXACT, "copytree")
    shared = whole.search(Strategy.EXACT, "dumps")

    assert alone is not None
    assert shared is not None
    assert (alone.score, alone.margin, alone.matches) == (1.0, 1.0, 1)
    assert shared.score == 1 / shared.matches < 1.0
    assert shared.margin == 0.0


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("text", ["", " ", "?", '"', "''", "* AND (", "§§§§", "a\0b", "x" * 5000])
def test_strange_questions_find_nothing_or_something_but_never_fail(
    whole: Library, strategy: Strategy, text: str
) -> None:
    hit = whole.search(strategy, text)

    assert hit is None or 0.0 <= hit.score <= 1.0


@pytest.mark.slow
def test_scores_and_margins_are_between_0_and_1(library: Library, training: list[Question]) -> None:
    hits = [library.search(strategy, q.text) for q in training for strategy in Strategy]

    for hit in hits:
        if hit is not None:
            assert 0.0 <= hit.score <= 1.0
            assert 0.0 <= hit.margin <= 1.0
            assert hit.matches >= 1


@pytest.mark.slow
def test_a_higher_score_is_more_often_right_for_every_search_that_ranks(
    library: Library, training: list[Question]
) -> None:
    for strategy in set(Strategy) - {Strategy.EXACT}:
        hits = [(library.search(strategy, q.text), q.answers) for q in training]
        found = sorted((hit.score, hit.name in right) for hit, right in hits if hit)
        third = len(found) // 3

        low = sum(is_right for _, is_right in found[:third])
        high = sum(is_right for _, is_right in found[-third:])

        assert high > 1.25 * low, strategy


def test_more_work_has_a_higher_price() -> None:
    assert list(PRICES) == list(Strategy)
    assert sorted(PRICES.values()) == list(PRICES.values())


def test_what_is_seen_of_a_question_is_what_it_looks_like(whole: Library) -> None:
    seen = [
        whole.describe(text) for text in ("json.dmups", "dumps", "jsn dmps", "copy a whole tree")
    ]

    assert [s["shape"] for s in seen] == ["dotted", "one word", "few words", "phrase"]
    assert [s["known_in_names"] for s in seen] == [0.5, 1.0, 0.0, 0.5]


def test_a_search_runs_once_for_each_text(whole: Library) -> None:
    first, second = (whole.search(Strategy.FUZZY, "json.dmups") for _ in range(2))

    assert first is second


def test_an_sqlite_that_refuses_the_tables_is_told_in_one_sentence() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("pragma query_only = 1")

        with pytest.raises(TauLiveError, match=r"needs SQLite 3\.34 or newer with FTS5"):
            fill_tables(database, [])


def test_an_empty_library_finds_nothing() -> None:
    with closing(Library([])) as empty:
        hits = [empty.search(strategy, "json.dumps") for strategy in Strategy]

    assert hits == [None] * len(Strategy)
    assert Spelling([]).rank("json") == []
