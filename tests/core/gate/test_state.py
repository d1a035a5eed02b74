"""The gate as a value: a small table, and what no sequence of events can do to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.gate import Gate, GateRow, HoldReason, Kind, State

C, U, D = Kind.COLLECTION, Kind.UPDATE, Kind.DECISION


def after(limit: int, *events: str) -> Gate:
    """Return a gate after events like ``-collection``, ``+update``, ``hold`` and ``reset``."""
    gate = Gate(limit=limit)
    for at, event in enumerate(events, start=1):
        if event == "hold":
            gate = gate.hold(HoldReason.OPERATOR, at)
        elif event == "reset":
            gate = gate.reset(at)
        elif event[0] == "-":
            gate = gate.after_failure(Kind(event[1:]), f"error {at}", at)
        else:
            gate = gate.after_success(Kind(event[1:]))
    return gate


@pytest.mark.parametrize(
    ("events", "state", "reason", "streaks"),
    [
        ((), "pass", None, {}),
        (("-update",), "pass", None, {U: 1}),
        (("-update", "-update"), "hold", "update_failures", {U: 2}),
        (("-update", "+update", "-update"), "pass", None, {U: 1}),
        (("-update", "+collection", "-update"), "hold", "update_failures", {U: 2}),
        (("-update", "-collection"), "pass", None, {U: 1, C: 1}),
        (("-decision", "-decision"), "hold", "decision_failures", {D: 2}),
        (("-collection", "-collection", "-update"), "hold", "collection_failures", {C: 2}),
        (("-collection", "-collection", "+collection"), "hold", "collection_failures", {C: 2}),
        (("-collection", "hold"), "hold", "operator", {C: 1}),
        (("hold", "-collection", "+collection"), "hold", "operator", {}),
        (("hold", "reset"), "pass", None, {}),
        (("-collection", "reset"), "pass", None, {}),
        (("-update", "-update", "reset", "-update"), "pass", None, {U: 1}),
    ],
)
def test_the_table_of_a_gate_with_a_limit_of_two(
    events: tuple[str, ...], state: str, reason: str | None, streaks: dict[Kind, int]
) -> None:
    gate = after(2, *events)

    assert (gate.state, gate.reason, gate.streaks) == (state, reason, streaks)


def test_it_says_since_when_it_is_so_and_why() -> None:
    held = after(2, "-update", "-update", "-update")
    passing = held.reset(9.0)

    assert (held.since, held.detail) == (2, "error 2")
    assert (passing.since, passing.detail, passing.reason) == (9.0, None, None)


def test_an_error_that_is_over_is_no_longer_shown() -> None:
    assert after(3, "-update", "+update").detail is None
    assert after(3, "-update", "-collection", "+update").detail == "error 2"


def test_a_reset_of_a_passing_gate_does_not_change_since_when_it_passes() -> None:
    assert after(2, "hold", "reset", "-update", "reset").since == 2


@given(st.lists(st.sampled_from(["hold", *(sign + kind for kind in Kind for sign in "+-")])))
def test_only_a_reset_ends_a_hold(events: list[str]) -> None:
    held = Gate(limit=2).hold("drift", 1.0, detail="first")

    gate = held
    for event in events:
        if event == "hold":
            gate = gate.hold("another", 2.0)
        else:
            kind = Kind(event[1:])
            gate = (
                gate.after_failure(kind, "later", 2.0)
                if event[0] == "-"
                else gate.after_success(kind)
            )

    assert gate == held


@given(st.lists(st.sampled_from([sign + kind for kind in Kind for sign in "+-"]), max_size=12))
def test_fault_6_a_kind_holds_by_its_own_streak_whatever_the_others_do(events: list[str]) -> None:
    gate, trailing = after(3, *events), {}
    for kind in Kind:
        own = [event[0] for event in events if event[1:] == kind]
        trailing[kind] = "".join(own)

    assert (gate.state is State.HOLD) == any("---" in signs for signs in trailing.values())


@given(
    st.lists(st.sampled_from(["hold", "reset", *(s + kind for kind in Kind for s in "+-")])),
    st.integers(1, 4),
)
def test_a_row_says_everything(events: list[str], limit: int) -> None:
    gate = after(limit, *events)

    assert Gate.from_row(gate.to_row(), limit=limit) == gate


def test_a_state_that_nobody_knows_is_a_hold() -> None:
    row = GateRow(state="ajar", reason=None, detail=None, since=0.0, streaks={"odd": 3}, revision=7)

    gate = Gate.from_row(row, limit=3)

    assert not gate.passes
    assert gate.streaks == {}


def test_a_text_can_always_be_stored() -> None:
    gate = Gate(limit=1).after_failure(C, "\udcff" + "x" * 10_000, 1.0)

    assert gate.detail == "?" + "x" * 499


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        Gate(limit=0)
