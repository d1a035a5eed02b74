import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.cli.demo.agent import (
    ACCEPT,
    GIVE_UP,
    MAX_SEARCHES,
    Episode,
    best_of,
    default_choice,
)
from tau_live.cli.demo.questions import Question, QuestionKind
from tau_live.cli.demo.strategies import PRICES, Hit, Library, Strategy

ASKED = Question(text="jsn dmps", kind=QuestionKind.SHORT_NAME, answers=frozenset({"json.dumps"}))
UNANSWERABLE = Question(text="jsn dmps", kind=QuestionKind.UNANSWERABLE, answers=frozenset())

RIGHT = Hit("json.dumps", 0.9, 0.3, 4)
OTHER = Hit("json.load", 0.4, 0.1, 4)


class Scripted(Library):
    """A library whose hits are given."""

    def __init__(self, hits: dict[Strategy, Hit]) -> None:
        self._scripted = hits

    def search(self, strategy: Strategy, text: str) -> Hit | None:
        return self._scripted.get(strategy)

    def describe(self, text: str) -> dict[str, float | str]:
        return {"shape": "few words", "words": float(len(text.split()))}


LIBRARY = Scripted({Strategy.FUZZY: RIGHT, Strategy.WORDS: OTHER, Strategy.CORRECTED: RIGHT})


def played(question: Question, *options: str) -> Episode:
    episode = Episode(question, LIBRARY)
    for option in options:
        episode.choose(option)
    return episode


def test_at_first_every_search_is_offered_at_its_price_and_nothing_can_be_accepted() -> None:
    offered = Episode(ASKED, LIBRARY).options()

    prices = {strategy.value: {"cost": price} for strategy, price in PRICES.items()}
    assert offered == {**prices, GIVE_UP: {"cost": 0.0}}


def test_a_search_is_not_offered_twice_and_a_hit_can_be_accepted() -> None:
    offered = played(ASKED, "fuzzy").options()

    assert "fuzzy" not in offered
    assert offered[ACCEPT] == {"cost": 0.0}


def test_a_search_without_a_hit_leaves_nothing_to_accept() -> None:
    assert ACCEPT not in played(ASKED, "exact").options()


def test_after_the_last_search_only_an_end_is_offered() -> None:
    episode = played(ASKED, *list(Strategy)[:MAX_SEARCHES])

    assert set(episode.options()) == {ACCEPT, GIVE_UP}


@pytest.mark.parametrize(
    ("question", "options", "reward", "succeeded"),
    [
        pytest.param(ASKED, ["fuzzy", ACCEPT], 1.0 - 0.14, True, id="right"),
        pytest.param(ASKED, ["words", ACCEPT], -0.5 - 0.02, False, id="wrong"),
        pytest.param(ASKED, ["words", "exact", GIVE_UP], -0.02 - 0.01, False, id="gave up"),
        pytest.param(ASKED, ["words", "fuzzy", ACCEPT], 1 - 0.16, True, id="the better of two"),
        pytest.param(UNANSWERABLE, [GIVE_UP], 0.2, True, id="rightly gave up"),
        pytest.param(UNANSWERABLE, ["fuzzy", ACCEPT], -0.5 - 0.14, False, id="nothing to find"),
    ],
)
def test_the_reward_is_what_the_end_is_worth_less_what_was_spent(
    question: Question, options: list[str], reward: float, succeeded: bool
) -> None:
    episode = played(question, *options)

    assert episode.is_over
    assert episode.result().reward == pytest.approx(reward)
    assert episode.result().success is succeeded


def test_there_is_no_reward_before_the_end() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        played(ASKED, "fuzzy").result()


@pytest.mark.parametrize("option", ["fuzzy", ACCEPT, "teleport"])
def test_what_is_not_offered_cannot_be_chosen(option: str) -> None:
    ended = played(ASKED, "fuzzy", ACCEPT)

    with pytest.raises(ValueError, match="expected one of"):
        ended.choose(option)


@pytest.mark.slow
@given(st.data())
def test_any_way_through_ends_in_time_within_its_bounds(data: st.DataObject) -> None:
    hits = data.draw(st.sets(st.sampled_from(Strategy)))
    question = data.draw(st.sampled_from([ASKED, UNANSWERABLE]))
    episode = Episode(question, Scripted({s: LIBRARY.search(s, "") or OTHER for s in hits}))
    chosen: list[str] = []

    while not episode.is_over:
        chosen.append(data.draw(st.sampled_from(list(episode.options()))))
        episode.choose(chosen[-1])

    assert len(set(chosen)) == len(chosen) <= MAX_SEARCHES + 1
    assert episode.cost == pytest.approx(sum(PRICES[Strategy(s)] for s in chosen[:-1]))
    assert -1.0 <= episode.result().reward <= 1.0
    assert episode.options() == {}


def test_the_context_says_what_the_searches_brought() -> None:
    context = played(ASKED, "exact", "words", "fuzzy").context()

    assert context == {
        "shape": "few words",
        "words": 2.0,
        "step": 3.0,
        "exact_found": 0.0,
        "words_found": 1.0,
        "words_score": 0.4,
        "words_margin": 0.1,
        "fuzzy_found": 1.0,
        "fuzzy_score": 0.9,
        "fuzzy_margin": 0.3,
        "best_by": "fuzzy",
        "best_score": 0.9,
        "best_margin": 0.3,
        "agreeing": 1.0,
    }


def test_the_context_does_not_know_what_would_be_right() -> None:
    ways = [[], ["words"], ["words", "fuzzy"], ["words", "fuzzy", ACCEPT]]

    contexts = [
        [played(question, *way).context() for way in ways] for question in (ASKED, UNANSWERABLE)
    ]

    assert contexts[0] == contexts[1]


def test_two_searches_that_agree_outvote_one_with_a_higher_score() -> None:
    lone = Hit("a.b", 1.0, 1.0, 1)
    two = {Strategy.EXACT: lone, Strategy.WORDS: OTHER}

    assert best_of({**two, Strategy.TRIGRAMS: OTHER}) == (Strategy.WORDS, OTHER)
    assert best_of(two) == (Strategy.EXACT, lone)
    assert best_of({Strategy.EXACT: None}) is None


def test_the_default_accepts_what_words_find_and_gives_up_where_they_find_nothing() -> None:
    found, empty = Episode(ASKED, LIBRARY), Episode(ASKED, Scripted({}))

    choices = []
    for episode in (found, empty):
        while not episode.is_over:
            choices.append(default_choice(episode))
            episode.choose(choices[-1])

    assert choices == ["words", ACCEPT, "words", GIVE_UP]
