"""The inferred reward is the reference's, and safety has the last word in it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.rewards.inference import Summary, infer

CASES = json.loads((Path(__file__).parents[1] / "golden" / "reference_cases.json").read_text())[
    "reward_inference"
]
SUMMARIES = st.builds(
    Summary,
    has_reply=st.booleans(),
    completed=st.booleans(),
    tool_errors=st.integers(0, 9),
    safety_blocked=st.booleans(),
    turns=st.integers(0, 9),
    input_chars=st.integers(0, 10**6),
    output_chars=st.integers(0, 10**6),
)


def summary(values: list[bool | int]) -> Summary:
    reply, completed, errors, blocked, turns, input_chars, output_chars = values
    return Summary(
        has_reply=bool(reply),
        completed=bool(completed),
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
    found = infer(Summary(has_reply=False, completed=True, turns=4, input_chars=9))

    assert found.composite == 0.25  # RI4 of the contract


@given(SUMMARIES)
def test_the_composite_is_the_clipped_sum_of_its_parts_or_minus_one(given_: Summary) -> None:
    found = infer(given_)

    parts = found.parts()
    confidence, safety = parts.pop("confidence"), parts.pop("safety")
    assert 0.0 <= confidence <= 1.0
    if given_.safety_blocked:
        assert (found.composite, safety) == (-1.0, -1.0)
    else:
        assert found.composite == pytest.approx(max(-1.0, min(1.0, sum(parts.values()))))
        assert safety == 0.0


@given(SUMMARIES.filter(lambda one: one.safety_blocked))
def test_fault_12_nothing_raises_a_blocked_run(given_: Summary) -> None:
    assert infer(given_).composite == -1.0


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_longer_answer_is_never_worth_more(question: int, answer: int, more: int) -> None:
    short, long = (
        infer(Summary(has_reply=True, completed=True, input_chars=question, output_chars=length))
        for length in (answer, answer + more)
    )

    assert long.token_efficiency <= short.token_efficiency
    assert -0.25 <= long.token_efficiency <= 0.25


@pytest.mark.parametrize("name", ["tool_errors", "turns", "input_chars", "output_chars"])
def test_a_negative_count_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
        Summary(has_reply=True, completed=True, **{name: -1})  # type: ignore[arg-type]  # by name
