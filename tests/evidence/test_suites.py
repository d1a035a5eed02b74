"""Suites: every rule with its text, and those that ship."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import Root
from tau_live.evidence.suites import Output, load_suite, problems_of, reward_of, score, suite_names
from tests.evidence.suites import FOLDER, suites

Change = Callable[[dict[str, Any]], object]


def document() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((FOLDER / "tool-use-smoke-v1.json").read_bytes())
    return found


RULES: dict[str, tuple[Change, str]] = {
    "no id": (lambda own: own.pop("suite_id"), "malformed fixture: missing suite_id"),
    "a blank version": (
        lambda own: own.update(suite_version=" "), "malformed fixture: missing suite_version",
    ),
    "no prompt": (
        lambda own: own["cases"][0].pop("prompt"), "malformed fixture: missing cases/0/prompt",
    ),
    "another family": (
        lambda own: own.update(family="chess"), "unsupported fixture family `chess`",
    ),
    "two of one id": (
        lambda own: own["cases"][1].update(case_id="tool-001"), "duplicate case_id `tool-001`",
    ),
    "seed 0": (
        lambda own: own["cases"][0].update(seed=0), "malformed fixture: missing cases/0/seed",
    ),
    "seed true": (
        lambda own: own["cases"][0].update(seed=True), "malformed fixture: missing cases/0/seed",
    ),
    "a negative weight": (
        lambda own: own["cases"][0]["scoring_rubric"].update(tool_safety=-0.2),
        "scoring_rubric weight `tool_safety` of `tool-001` must be non-negative",
    ),
    "an infinite weight": (
        lambda own: own["cases"][0]["scoring_rubric"].update(tool_safety=float("inf")),
        "scoring_rubric weight `tool_safety` of `tool-001` must be non-negative",
    ),
    "a sum of .9": (
        lambda own: own["cases"][0]["scoring_rubric"].update(tool_safety=0.1),
        "scoring_rubric of `tool-001` must sum to 1.0",
    ),
    "no cases": (
        lambda own: own.update(cases=[]), "benchmark suite must contain at least one case",
    ),
    "an unknown dimension": (
        lambda own: own["cases"][0].update(scoring_rubric={"charm": 1.0}),
        "no scorer for dimension `charm`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_suite_that_breaks_a_rule_is_refused_with_its_text(name: str) -> None:
    change, text = RULES[name]
    own = document()

    change(own)

    assert any(problem.startswith(text) for problem in problems_of(own)), problems_of(own)


def test_suites_that_ship_break_none_and_are_what_the_generator_makes() -> None:
    made = {suite.suite_id: suite for suite in suites()}

    loaded = [load_suite(f"suite:{name}", Root(Path())).suite for name in suite_names()]

    assert {suite.suite_id: suite for suite in loaded} == made
    assert sorted(len(suite.cases) for suite in loaded) == [2, 2, 80, 80]


def test_the_right_tool_earns_most_and_a_risky_one_least() -> None:
    case = load_suite("suite:tool-use-suite-v1", Root(Path())).suite.cases[0]

    rewards = {name: reward_of(case, score(case, Output(text=name))) for name in case.options}

    assert max(rewards, key=rewards.__getitem__) == case.expected_outcome
    assert min(rewards, key=rewards.__getitem__) == "shell"


def test_a_story_that_names_each_step_earns_everything() -> None:
    case = load_suite("suite:reasoning-suite-v1", Root(Path())).suite.cases[0]
    steps = case.expected_outcome.splitlines()

    whole, bare, wrong = (
        reward_of(case, score(case, Output(text=text)))
        for text in (case.expected_outcome, steps[-1], "I cannot tell")
    )

    assert whole == 1.0 and wrong < bare < 1.0


def not_finite(case: object, output: object) -> float:
    """Score nothing."""
    del case, output
    return float("nan")


def test_a_scorer_without_a_finite_number_is_an_error_and_never_a_zero() -> None:
    case = load_suite("suite:tool-use-smoke-v1", Root(Path())).suite.cases[0]
    own = msgspec.structs.replace(case, scoring_rubric={f"{__name__}:not_finite": 1.0})

    with pytest.raises(TauLiveError, match=f"produced non-finite score for `{case.case_id}`"):
        score(own, Output(text="x"))


@pytest.mark.slow
def test_evidence_needs_no_package_of_an_extra() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'pydantic_ai', 'matplotlib')))"
    )
    names = ("cli.bench", "cli.demo.proof", "evidence.kinds", "evidence.promotion")

    done = subprocess.run(
        [sys.executable, "-c", "; ".join([code, *(f"import tau_live.{name}" for name in names)])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
