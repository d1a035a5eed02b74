"""The report begins with a verdict, and the title of a figure is its finding."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tau_live.cli.page.document import verdict_of
from tau_live.cli.page.figures import ends_of, finding_of, overall_sections
from tau_live.core.settings import Settings
from tau_live.learn.promotion.rules import TrialStatus
from tau_live.operate.report.facts import Answer, Facts, Mean
from tau_live.operate.report.report import report_facts
from tau_live.store.sqlite.store import SqliteStore


def means(*values: float, width: float = 0.1) -> list[Mean]:
    return [Mean(count=50, mean=v, lower=v - width, upper=v + width) for v in values]


@pytest.mark.parametrize(
    ("known", "title"),
    [
        pytest.param([], "Reward is unknown", id="nothing"),
        pytest.param(means(0.5), "Reward is 0.5", id="one stretch"),
        pytest.param(means(0.2, 0.5, 0.8), "Reward rose from 0.2 to 0.8", id="up"),
        pytest.param(means(0.8, 0.5, 0.2), "Reward fell from 0.8 to 0.2", id="down"),
        pytest.param(
            means(0.5, 0.1, 0.55),
            "Reward: no clear change, 0.5 at first and 0.55 lately",
            id="within the noise",
        ),
        pytest.param(
            [Mean(count=1, mean=0.0), *means(0.5, 0.9)],
            "Reward: no clear change, 0 at first and 0.9 lately",
            id="without an interval nothing is claimed",
        ),
        pytest.param(
            means(0.5, 0.55, width=0.01), "Reward rose from 0.5 to 0.55", id="small but certain"
        ),
    ],
)
def test_a_change_is_claimed_where_it_is_twice_its_standard_error(
    known: list[Mean], title: str
) -> None:
    assert finding_of("Reward", known) == title


def test_title_and_text_say_the_same_figures() -> None:
    known = means(0.1, 0.3, 0.4, 0.6, 0.7, 0.9)

    assert finding_of("Reward", known) == "Reward rose from 0.2 to 0.8"
    assert ends_of("Reward", known).startswith("Reward: 0.2 (between ")
    assert ", 0.8 (between " in ends_of("Reward", known)


@pytest.fixture(scope="module")
def facts(lived: Path) -> Facts:
    with closing(SqliteStore.open(lived, read_only=True)) as store:
        settings = Settings(store=lived, reward_range=(0.0, 1.0))
        return report_facts(store, settings, now=1e9, enabled=True)


@pytest.mark.parametrize(
    ("untaught", "said"),
    [
        ({"reward_missing": 3}, "not learned from: reward missing (3)"),
        (
            {"reward_missing": 3, "no_room": 2},
            "not learned from: mostly reward missing (3), and 1 other reason",
        ),
        (
            {"no_room": 2, "reward_missing": 3, "mode": 1},
            "not learned from: mostly reward missing (3), and 2 other reasons",
        ),
    ],
)
def test_the_title_of_what_was_not_learned_from_counts_the_reasons_that_it_does_not_name(
    untaught: dict[str, int], said: str, facts: Facts
) -> None:
    [drops] = overall_sections(replace(facts, drops={}, untaught=untaught))[-1].figures

    assert drops.title == f"Nothing was dropped; {said}"


@pytest.mark.parametrize(
    ("lower", "upper", "state", "begins"),
    [
        (0.1, 0.3, "good", "Proven better at model: +0.2 over the control, between +0.1 and +0.3."),
        (-0.1, 0.5, "doubtful", "Not proven yet at model: "),
        (-0.3, -0.1, "bad", "Proven worse at model: "),
        (None, None, "doubtful", "Nothing is compared with a control yet. "),
    ],
)
def test_the_verdict_is_that_of_the_evidence(
    facts: Facts, lower: float | None, upper: float | None, state: str, begins: str
) -> None:
    difference = {"estimate": 0.2, "lower": lower, "upper": upper}
    trials = {"model": TrialStatus(difference=difference)}
    healthy = Answer(state="good", answer="yes", sentence="")
    found = replace(
        facts,
        summary=replace(facts.summary, healthy=healthy),
        status=structs.replace(facts.status, trials=trials),
    )

    assert verdict_of(found)[0] == state
    assert verdict_of(found)[1].startswith(begins)


def test_what_is_broken_comes_before_what_is_proven(facts: Facts) -> None:
    healthy = Answer(state="bad", answer="held", sentence="The gate holds.")

    found = verdict_of(replace(facts, summary=replace(facts.summary, healthy=healthy)))

    assert found == ("bad", "Needs attention. The gate holds.")
