"""Safety takes away from a reward last, and nothing gives it back."""

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.errors import SettingsError
from tau_live.core.reward_rules import (
    HARD_GATE_PENALTY,
    HARD_GATE_TRIGGERED,
    PENALTY_TOTAL,
    Part,
    hard_gates,
    penalties,
    penalty,
    total_after_safety,
    total_of,
)
from tau_live.core.settings.tables import SafetySettings

CODES = [
    "prompt_injection.ignore_instructions",
    "prompt_injection.system_prompt_exfiltration",
    "secret_leak.openai_api_key",
    "secret_leak.redaction_failed",
    "own.rule",
]
POLICIES = st.builds(
    SafetySettings,
    blocked_penalty=st.floats(0, 5),
    default_reason_code_penalty=st.floats(0, 5),
    secret_leak_penalty=st.floats(0, 5),
    reason_code_penalties=st.dictionaries(st.sampled_from(CODES), st.floats(0, 5), max_size=2),
    hard_gate_reward_ceiling=st.floats(-5, 0),
    hard_gate_penalty=st.floats(0, 5),
    blocked_event_triggers_hard_gate=st.booleans(),
)
FOUND = st.tuples(st.integers(0, 3), st.lists(st.sampled_from(CODES), max_size=4))
ANY_VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=6)


@given(POLICIES, FOUND, ANY_VALUES)
def test_fault_12_a_hard_gated_rollout_is_never_worth_more_than_the_ceiling(
    policy: SafetySettings, found: tuple[int, list[str]], values: list[float]
) -> None:
    blocked, codes = found
    ceiling = policy.hard_gate_reward_ceiling
    if not hard_gates(policy, blocked, codes):
        return

    total = total_after_safety(values, penalties(policy, blocked, codes), ceiling=ceiling)

    assert total <= ceiling


@given(POLICIES, FOUND, st.lists(st.floats(-5, 5), max_size=6))
def test_safety_never_makes_a_rollout_worth_more(
    policy: SafetySettings, found: tuple[int, list[str]], values: list[float]
) -> None:
    taken = penalties(policy, *found)

    total = total_after_safety(values, taken, ceiling=policy.hard_gate_reward_ceiling)

    assert total <= math.fsum(values)


@given(st.lists(st.floats(-5, 5), max_size=6), st.lists(st.floats(-5, 5), max_size=3))
def test_a_penalty_that_is_above_zero_gives_nothing(
    values: list[float], above: list[float]
) -> None:
    penalties = [Part(PENALTY_TOTAL, value) for value in above]

    assert total_after_safety(values, penalties, ceiling=0.0) <= math.fsum(values)


@given(POLICIES, FOUND)
def test_the_penalty_is_the_sum_over_distinct_codes_and_blocked_events(
    policy: SafetySettings, found: tuple[int, list[str]]
) -> None:
    blocked, codes = found

    parts = dict(penalties(policy, blocked, [*codes, *codes]))

    expected = sum(penalty(policy, code) for code in set(codes)) + blocked * policy.blocked_penalty
    assert -parts.get(PENALTY_TOTAL, 0.0) == pytest.approx(expected)
    assert (HARD_GATE_TRIGGERED in parts) == hard_gates(policy, blocked, codes)


@pytest.mark.parametrize(
    ("code", "cost"),
    [
        pytest.param("own.rule", 0.25, id="the default"),
        pytest.param("prompt_injection.role_spoofing", 1.0, id="an injection"),
        pytest.param("secret_leak.jwt_token", 1.5, id="a leak"),
        pytest.param("secret_leak.slack_token", 0.5, id="one of its own goes before its prefix"),
    ],
)
def test_what_a_reason_code_costs(code: str, cost: float) -> None:
    policy = SafetySettings(reason_code_penalties={"secret_leak.slack_token": 0.5})

    assert penalty(policy, code) == cost  # SR1 and SR2 of the contract


@pytest.mark.parametrize(
    ("blocked", "codes", "parts"),
    [
        pytest.param(0, [], [], id="nothing happened"),
        pytest.param(0, ["own.rule"], [Part(PENALTY_TOTAL, -0.25)], id="a warning"),
        pytest.param(
            1,
            ["prompt_injection.role_spoofing"],
            [
                Part(PENALTY_TOTAL, -2.0),
                Part(HARD_GATE_PENALTY, -1.0),
                Part(HARD_GATE_TRIGGERED, 0.0),
            ],
            id="blocked",
        ),
        pytest.param(
            0,
            ["secret_leak.jwt_token"],
            [
                Part(PENALTY_TOTAL, -1.5),
                Part(HARD_GATE_PENALTY, -1.0),
                Part(HARD_GATE_TRIGGERED, 0.0),
            ],
            id="a leak gates without being blocked",
        ),
    ],
)
def test_the_parts_by_the_references_defaults(
    blocked: int, codes: list[str], parts: list[Part]
) -> None:
    assert penalties(SafetySettings(), blocked, codes) == parts


def test_a_blocked_event_gates_only_if_it_is_to() -> None:
    policy = SafetySettings(blocked_event_triggers_hard_gate=False)

    assert penalties(policy, 1, []) == [Part(PENALTY_TOTAL, -1.0)]


@pytest.mark.parametrize(
    "name", [one.name for one in fields(SafetySettings) if one.name.endswith("_penalty")]
)
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_penalty_is_finite_and_not_negative(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match=rf"safety_reward\.{name} must be finite and non-neg"):
        SafetySettings(**{name: value})  # type: ignore[arg-type]  # a float field by its name


@pytest.mark.parametrize("value", [0.1, math.nan, -math.inf])
def test_the_ceiling_is_finite_and_not_above_zero(value: float) -> None:
    with pytest.raises(SettingsError, match="hard_gate_reward_ceiling must be finite and <= 0"):
        SafetySettings(hard_gate_reward_ceiling=value)


def test_a_penalty_by_code_is_checked_and_a_blank_prefix_refused() -> None:
    with pytest.raises(SettingsError, match="reason_code_penalties must be finite"):
        SafetySettings(reason_code_penalties={"a": -1.0})
    with pytest.raises(SettingsError, match="hard_gate_reason_prefixes must be"):
        SafetySettings(hard_gate_reason_prefixes=(" ",))


def test_what_is_no_number_counts_as_the_ceiling_once_gated() -> None:
    penalties = [Part(HARD_GATE_TRIGGERED, 0.0), Part(PENALTY_TOTAL, -1.0)]

    assert total_after_safety([math.nan, math.inf], penalties, ceiling=-0.5) == -2.0


@given(st.permutations([1e16, 1.0, -1e16, 0.1, 1e-9]))
def test_the_order_of_a_sum_does_not_matter(values: list[float]) -> None:
    assert total_of(values) == total_of([1e16, 1.0, -1e16, 0.1, 1e-9])


@pytest.mark.parametrize("values", [[math.nan], [math.inf, -math.inf], [1e308, 1e308]])
def test_a_sum_that_is_no_number_is_an_error(values: list[float]) -> None:
    with pytest.raises(OverflowError):
        total_of(values)
