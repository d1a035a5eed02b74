import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.cli.demo.corpus import Entry, words_of
from tau_live.cli.demo.questions import (
    SHARES,
    Pool,
    Question,
    QuestionKind,
    Split,
    dotted_ends,
    misspelt,
    questions,
    shorten,
    split_entries,
)

pytestmark = pytest.mark.slow

WORDS = st.text(string.ascii_lowercase, min_size=4, max_size=20)


def is_inside(short: str, long: str) -> bool:
    """Tell whether the letters of ``short`` come in ``long`` in that order."""
    letters = iter(long)
    return all(letter in letters for letter in short)


def test_the_parts_share_no_entry_and_lose_none(entries: list[Entry], parts: Split) -> None:
    pools = [parts.training.entries, parts.held_out.entries]
    pools += [parts.training.hidden, parts.held_out.hidden]

    assert sorted(e.name for pool in pools for e in pool) == sorted(e.name for e in entries)
    assert set(parts.indexed) == {*parts.training.entries, *parts.held_out.entries}
    assert all(len(pool) > 100 for pool in pools)


def test_what_shares_a_summary_is_not_on_both_sides(parts: Split) -> None:
    sides = [
        {e.summary.lower() for e in (*pool.entries, *pool.hidden)}
        for pool in (parts.training, parts.held_out)
    ]

    assert sides[0].isdisjoint(sides[1])


def test_no_right_answer_of_a_held_out_question_is_one_of_training(
    training: list[Question], held_out: list[Question], parts: Split
) -> None:
    learned = {name for question in training for name in question.answers}
    measured = {name for question in held_out for name in question.answers}

    assert learned.isdisjoint(measured)
    assert measured <= {e.name for e in parts.held_out.entries}


def test_every_kind_is_asked_about_as_often_as_was_meant(parts: Split) -> None:
    asked = questions(parts.training, count=1000, seed=5)

    shares = {kind: sum(q.kind is kind for q in asked) / len(asked) for kind in QuestionKind}
    assert sum(SHARES.values()) == pytest.approx(1.0)
    assert shares == pytest.approx(SHARES, abs=0.05)  # four standard errors


def test_the_same_seed_asks_the_same_and_another_asks_otherwise(
    entries: list[Entry], parts: Split, training: list[Question]
) -> None:
    again = questions(split_entries(entries, seed=0).training, count=300, seed=0)
    other = questions(parts.training, count=300, seed=1)

    assert again == training
    assert {q.text for q in other} != {q.text for q in training}


def test_a_longer_list_begins_with_other_questions_but_asks_each_entry_once(parts: Split) -> None:
    asked = questions(parts.training, count=600, seed=0)

    first_answers = [min(q.answers) for q in asked if q.answers]
    assert len(set(first_answers)) >= 0.99 * len(first_answers)  # some share a summary


def test_only_what_is_not_indexed_cannot_be_answered(
    training: list[Question], parts: Split
) -> None:
    indexed = {e.name for e in parts.indexed}

    for question in training:
        assert (question.kind is QuestionKind.UNANSWERABLE) == (not question.answers)
        assert question.answers <= indexed


def test_a_question_in_words_does_not_name_its_answer(training: list[Question]) -> None:
    for question in training:
        if question.kind is QuestionKind.PHRASE:
            words = set(question.text.split())
            for answer in question.answers:
                last = answer.rpartition(".")[2]
                shared = words & set(words_of(last))
                assert len(question.answers) > 1 or not shared, question


def test_a_question_by_name_has_one_answer_only(parts: Split, training: list[Question]) -> None:
    names = [e.name for e in parts.indexed]

    for question in training:
        if question.kind is QuestionKind.NAME:
            meant = [n for n in names if n == question.text or n.endswith("." + question.text)]
            whole = [n for n in meant if n == question.text]
            assert (whole or meant) == list(question.answers)


def test_a_pool_that_no_question_can_be_made_from_is_refused(parts: Split) -> None:
    empty = Pool(entries=(), hidden=(), everything=parts.indexed)

    with pytest.raises(ValueError, match="found none"):
        questions(empty, count=1, seed=0)


@given(WORDS, st.integers())
def test_a_misspelling_moves_one_letter_at_most_and_spares_the_ends(word: str, seed: int) -> None:
    wrong = misspelt(word, random.Random(seed))

    assert abs(len(wrong) - len(word)) <= 1
    assert wrong[0] == word[0]
    kept = sum(a == b for a, b in zip(word, wrong, strict=False))
    kept_from_behind = sum(a == b for a, b in zip(word[::-1], wrong[::-1], strict=False))
    assert kept + kept_from_behind >= len(word) - 2


@given(WORDS, st.booleans())
def test_a_shortened_word_keeps_the_order_of_its_letters(word: str, cut: bool) -> None:
    short = shorten(word, cut=cut)

    assert 1 <= len(short) <= len(word)
    assert short[0] == word[0]
    assert is_inside(short, word)


def test_dotted_ends_grow_from_the_last_part_to_the_whole_name() -> None:
    assert dotted_ends("a.b.c") == ["c", "b.c", "a.b.c"]
