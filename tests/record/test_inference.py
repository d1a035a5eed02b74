"""The inferred reward is the reference's, and safety has the last word in it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.hookspecs import RolloutSummary
from tau_live.core.reward_rules import infer
from tests.plugged import SUMMARY

CASES = json.loads((Path(__file__).parents[1] / "golden" / "reference_cases.json").read_text())[
    "reward_inference"
]
SUMMARIES = st.builds(
    RolloutSummary,
    rollout_id=st.just("live-1"),
    host=st.just("test"),
    status=st.just(SUMMARY.status),
    has_assistant_reply=st.booleans(),
    session_completed=st.booleans(),
    tool_errors=st.integers(0, 9),
    safety_blocked=st.booleans(),
    turns=st.integers(0, 9),
    input_chars=st.integers(0, 10**6),
    output_chars=st.integers(0, 10**6),
)


def summary(values: list[bool | int]) -> RolloutSummary:
    reply, completed, errors, blocked, turns, input_chars, output_chars = values
    return replace(
        SUMMARY,
        has_assistant_reply=bool(reply),
        session_completed=bool(completed),
        tool_errors=errors,
        safety_blocked=bool(blocked),
        turns=turns,
        input_chars=input_chars,
        output_chars=output_chars,
    )


@pytest.mark.parametrize("case", CASES["cases"])
def test_equals_the_references_numbers(case: dict[str, object]) -> None:
    values = case["input"]
    assert isinstance(values, list)

    found = infer(summary(values))._asdict()

    expected = {name: value for name, value in case.items() if name != "input"}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_no_reply_in_four_turns() -> None:
    found = infer(
        replace(SUMMARY, has_assistant_reply=False, session_completed=True, turns=4, input_chars=9)
    )

    assert found.composite == 0.25  # RI4 of the contract


@given(SUMMARIES)
def test_the_composite_is_the_clipped_sum_of_its_parts_or_minus_one(given_: RolloutSummary) -> None:
    found = infer(given_)

    parts = {name: value for name, value in found._asdict().items() if name != "composite"}
    confidence, safety = parts.pop("confidence"), parts.pop("safety")
    assert 0.0 <= confidence <= 1.0
    if given_.safety_blocked:
        assert (found.composite, safety) == (-1.0, -1.0)
    else:
        assert found.composite == pytest.approx(max(-1.0, min(1.0, sum(parts.values()))))
        assert safety == 0.0


@given(SUMMARIES.filter(lambda one: one.safety_blocked))
def test_fault_12_nothing_raises_a_blocked_run(given_: RolloutSummary) -> None:
    assert infer(given_).composite == -1.0


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_longer_answer_is_never_worth_more(question: int, answer: int, more: int) -> None:
    short, long = (
        infer(
            replace(
                SUMMARY,
                has_assistant_reply=True,
                session_completed=True,
                input_chars=question,
                output_chars=length,
            )
        )
        for length in (answer, answer + more)
    )

    assert long.token_efficiency <= short.token_efficiency
    assert -0.25 <= long.token_efficiency <= 0.25
