"""``tau-live why`` in words: each of its sentences is true of the decision."""

import pytest
from msgspec.structs import replace

from tau_live.cli.why import NOT_OURS, sentences
from tau_live.core.records import Decision, Rollout
from tau_live.operate.why import Credit, Recomputed, Why
from tests.contracts.making import decision, reward, rollout

RUN = "live-1"
WAITING = Credit(state="waiting", why="The rollout still waits.")


def made(**changes: object) -> Decision:
    """Return a decision of the learner, which took its favourite."""
    known: dict[str, object] = {
        "chosen": "small",
        "applied": "small",
        "default": "large",
        "probabilities": (0.8, 0.2),
        "propensity": 0.8,
        "arm": "learner",
        "policy_version": 7,
    }
    return replace(decision(1, RUN), **{**known, **changes})


def explained(
    one: Decision,
    *,
    credit: Credit = WAITING,
    terms: dict[str, list[float]] | None = None,
    run: Rollout | None = None,
) -> str:
    why = Why(
        decision=one,
        rollout=run or replace(rollout(RUN), name="triage"),
        gate="pass",
        recomputed=Recomputed(terms or {}),
        rewards=[reward(0.5, RUN)],
        credit=credit,
    )
    return "\n".join(sentences(why))


def test_it_says_what_was_chosen_among_what_and_how_sure() -> None:
    said = explained(made())

    assert "A run of triage had to choose at model between small and large." in said
    assert "with version 7 of what it has learned, chose small, and the agent did that." in said
    assert "The agent's own choice would have been large." in said
    assert "It was fairly sure: small had 80%, large 20%." in said
    assert "It did not explore: it took its favourite." in said


@pytest.mark.parametrize(
    ("applied", "expected"),
    [("small", "and the agent did that."), (None, "but what the agent did is unknown."),
     ("large", "but the agent did large instead.")],
)  # fmt: skip
def test_it_says_that_it_was_done_only_where_it_was(applied: str | None, expected: str) -> None:
    assert f"chose small, {expected}" in explained(made(applied=applied))


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ((0.99, 0.01), "It was nearly sure: small had 99%"),
        ((0.7, 0.3), "It leaned that way: small had 70%"),
        ((0.55, 0.45), "It had almost no preference: small had 55%"),
        ((0.2, 0.8), "It preferred another: small had 20%, large 80%."),
    ],
)
def test_how_sure_it_was_follows_the_odds(probabilities: tuple[float, ...], expected: str) -> None:
    assert expected in explained(made(probabilities=probabilities))


def test_what_was_not_its_favourite_was_explored_on_purpose() -> None:
    said = explained(made(probabilities=(0.2, 0.8)))

    assert "It explored on purpose: large was its favourite" in said


def test_what_only_doubt_speaks_for_was_explored_on_purpose_too() -> None:
    terms = {"ridge estimate": [1.0, 2.0], "uncertainty bonus": [3.0, 0.0]}

    said = explained(made(), terms=terms)

    assert "what it knows favours large, but so little is known about small" in said


def test_what_is_not_allowed_cannot_be_what_it_would_have_taken() -> None:
    one = made(options=("small", "large", "huge"), allowed=("small", "large"),
               probabilities=(0.8, 0.2, 0.0))  # fmt: skip
    terms = {"ridge estimate": [2.0, 1.0, 9.0], "uncertainty bonus": [0.0, 0.0, 0.0]}

    said = explained(one, terms=terms)

    assert "between small and large (1 more was not allowed this time)." in said
    assert "It did not explore" in said


@pytest.mark.parametrize("reason", NOT_OURS)
def test_why_the_hosts_choice_was_served_is_said_without_its_code(reason: str) -> None:
    one = made(applied="large", source="default", why_not=reason, arm="control")

    said = explained(one)

    assert f"The agent took large, its own choice, because {NOT_OURS[reason]}." in said
    assert "tau-live would have taken small." in said
    assert "It did not explore, because the choice was not tau-live's." in said


def test_an_error_is_named() -> None:
    one = made(chosen=None, applied="large", why_not="error: LookupError", probabilities=())

    assert "because tau-live failed (LookupError)." in explained(one)


def test_a_reason_that_nobody_knows_is_said_as_it_is() -> None:
    assert "because too late." in explained(made(why_not="too late"))


def test_what_was_done_is_not_made_up() -> None:
    said = explained(made(applied=None, why_not="not_asked"))

    assert "The agent took its own choice, because the agent did not need" in said


def test_what_was_imported_is_not_taken_for_ours() -> None:
    said = explained(made(source="import", chosen=None, probabilities=()))

    assert "It was decided elsewhere, and imported: small was taken." in said
    assert "tau-live" not in said


@pytest.mark.parametrize(
    ("advantage", "update", "expected"),
    [
        (0.25, 3, "0.25 better than expected, which made such a choice more likely, in upd"),
        (-0.25, None, "0.25 worse than expected, which makes such a choice less likely, once"),
        (0.0, 3, "exactly as expected, so nothing changes."),
    ],
)
def test_what_came_of_it_follows_the_advantage(
    advantage: float, update: int | None, expected: str
) -> None:
    credit = Credit(state="learned", reward=0.5, return_=0.5, advantage=advantage, update=update)

    assert expected in explained(made(), credit=credit)


def test_what_waits_says_for_what() -> None:
    said = explained(made())

    assert "It was rewarded with 0.5 (solved, by user). It waits to be learned from: the" in said


def test_many_options_with_long_names_stay_short() -> None:
    names = tuple(f"{n}-{'x' * 500}" for n in range(200))
    one = made(options=names, chosen=names[0], applied=names[0], default=names[1],
               probabilities=tuple([1.0 / 200] * 200))  # fmt: skip

    said = explained(one)

    assert "and 194 more" in said
    assert len(said) < 1_500


def test_where_there_was_one_option_it_had_nothing_to_choose() -> None:
    one = made(options=("small",), probabilities=(1.0,), default=None)

    assert "came to model, where only small was allowed." in explained(one)
