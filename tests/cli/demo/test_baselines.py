import random

import pytest

from tau_live.cli.demo.agent import (
    ACCEPT,
    GIVE_UP,
    MARGINS,
    SCORES,
    Comparison,
    Episode,
    Stage,
    best_cascade,
    best_of,
    cascade,
    compare_baselines,
    play,
)
from tau_live.cli.demo.questions import Question
from tau_live.cli.demo.strategies import Library, Strategy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def comparison(training: list[Question], held_out: list[Question], library: Library) -> Comparison:
    return compare_baselines(training, held_out, library)


def adaptive(episode: Episode) -> str:
    """Choose as somebody would who looks at the question and at what was found."""
    context, offered = episode.context(), episode.options()
    first = "words" if context["shape"] == "phrase" else "exact"
    if not episode.findings:
        return first
    best = best_of(episode.findings)
    if best is not None and best[1].score >= 0.9:
        return ACCEPT
    dearer = "corrected" if context["shape"] != "dotted" else "fuzzy"
    if dearer in offered:
        return dearer
    return ACCEPT if ACCEPT in offered else GIVE_UP


def test_no_policy_earns_more_than_the_oracle_and_no_fixed_one_more_than_hindsight(
    comparison: Comparison,
) -> None:
    bound, hindsight = comparison.oracle.reward, comparison.tuned_in_hindsight.reward

    assert bound >= hindsight >= comparison.tuned_in_training.reward
    assert all(hindsight >= result.reward for result in comparison.fixed.values())
    assert comparison.oracle.success >= max(r.success for r in comparison.fixed.values())


def test_the_task_leaves_room_between_fixed_searches_cascades_and_the_bound(
    comparison: Comparison,
) -> None:
    best_fixed = max(result.reward for result in comparison.fixed.values())

    assert comparison.host_default.reward < best_fixed
    assert comparison.tuned_in_training.reward > best_fixed
    assert comparison.oracle.reward > comparison.tuned_in_hindsight.reward + 0.15


def test_looking_at_the_question_beats_every_fixed_search(
    held_out: list[Question], library: Library, comparison: Comparison
) -> None:
    result = play(held_out, library, adaptive)

    assert result.reward > max(r.reward for r in comparison.fixed.values()) + 0.05
    assert result.reward < comparison.oracle.reward


def test_a_fixed_search_is_what_an_agent_earns_that_always_searches_so(
    held_out: list[Question], library: Library, comparison: Comparison
) -> None:
    for strategy in Strategy:

        def always(episode: Episode, strategy: Strategy = strategy) -> str:
            if not episode.findings:
                return strategy
            return ACCEPT if ACCEPT in episode.options() else GIVE_UP

        assert play(held_out, library, always) == pytest.approx(comparison.fixed[strategy])


def test_the_default_is_the_fixed_search_by_words(comparison: Comparison) -> None:
    assert comparison.host_default == pytest.approx(comparison.fixed[Strategy.WORDS])


def test_the_tuned_cascade_earns_what_it_says_and_no_other_drawn_at_random_earns_more(
    training: list[Question], library: Library
) -> None:
    rng = random.Random(0)

    tuned, reward = best_cascade(training, library)

    assert cascade(training, library, stages=tuned).reward == pytest.approx(reward)
    for _ in range(300):
        order = rng.sample(list(Strategy), rng.randint(1, 3))
        stages = [Stage(s, rng.choice(SCORES), rng.choice(MARGINS)) for s in order]
        assert cascade(training, library, stages=stages).reward <= reward + 1e-9
