"""Where a run of the reference host begins, what belongs to it, and how it ends."""

import pytest

from tau_live.core.events import (
    Context,
    Fidelity,
    Message,
    Policy,
    RunEnd,
    RunStart,
    Status,
    ToolEnd,
    ToolStart,
    TurnStart,
)
from tau_live.core.records import Reason
from tests.hooks.tau_lines import (
    ALERT,
    END,
    NEWER,
    NEXT,
    REPLAN,
    RUN,
    START,
    UNKNOWN,
    Line,
    cost,
    ends,
    heard,
    reply,
    safety,
    session,
    text,
    tool_end,
    tool_start,
    turn,
    turn_end,
    user,
)


def test_fault_2_the_users_message_before_the_start_is_the_runs_input() -> None:
    events = heard([user("what is it?"), START, turn(1), reply("this"), turn_end(1), END])

    message, start = events[0], events[1]
    assert isinstance(message, Message)
    assert isinstance(start, RunStart)
    assert message.run_id == start.run_id == "s#1"
    assert text(start.input) == "what is it?"
    assert start.fidelity is Fidelity.NATIVE
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert text(end.output) == "this"
    assert (end.status, end.reason, end.turns) == (Status.OK, Reason.COMPLETED, 1)
    assert end.usage == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def test_fault_3_every_run_of_a_session_ends_as_it_ended() -> None:
    assert ends(heard(session())) == [
        ("s#1", Status.OK, Reason.COMPLETED),
        ("s#2", Status.OK, Reason.COMPLETED),
        ("s#3", Status.OK, Reason.COMPLETED),
        ("s#4", Status.CANCELLED, Reason.SAFETY_BLOCKED),
        ("s#5", Status.ERROR, Reason.ERROR),
        ("s#6", Status.OK, Reason.COMPLETED),
        ("s#7", Status.CANCELLED, Reason.SAFETY_BLOCKED),
        ("s#8", Status.LIMIT, Reason.LIMIT),
        ("s#9", Status.UNKNOWN, Reason.ABANDONED),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([], (Status.ERROR, Reason.ERROR), id="nothing is known"),
        pytest.param([turn_end(1)], (Status.ERROR, Reason.ERROR), id="between two turns"),
        pytest.param(
            [safety("outbound_http_payload", "block")],
            (Status.CANCELLED, Reason.SAFETY_BLOCKED),
            id="blocked at the last",
        ),
        pytest.param(
            [safety("tool_output", "block"), tool_end("c", is_error=True), turn_end(1)],
            (Status.ERROR, Reason.ERROR),
            id="blocked, but it went on",
        ),
        *(
            pytest.param(
                [safety("tool_output", "block"), line],
                (Status.ERROR, Reason.ERROR),
                id=f"blocked, then {line['type']}",
            )
            for line in (reply("x"), tool_start("a"), tool_end("a"), turn(2), turn_end(1))
        ),
        pytest.param(
            [safety("outbound_http_payload", "warn")], (Status.ERROR, Reason.ERROR), id="warned"
        ),
        pytest.param([cost(1.5, 1.5)], (Status.LIMIT, Reason.LIMIT), id="out of budget"),
        pytest.param([ALERT], (Status.LIMIT, Reason.LIMIT), id="alerted at all of the budget"),
        pytest.param([cost(1.0, 1.5)], (Status.ERROR, Reason.ERROR), id="within the budget"),
        pytest.param([cost(9.0, None)], (Status.ERROR, Reason.ERROR), id="no budget"),
        pytest.param([NEWER[-1]], (Status.ERROR, Reason.ERROR), id="gave up"),
    ],
)
def test_how_a_run_without_an_end_ended(lines: list[Line], expected: tuple[Status, Reason]) -> None:
    events = heard([*RUN, *lines, *NEXT])

    assert ends(events) == [("s#1", *expected), ("s#2", Status.OK, Reason.COMPLETED)]


def test_what_the_host_gave_up_with_is_its_error() -> None:
    events = heard([*RUN, NEWER[-1], *NEXT])

    error = next(event.error for event in events if isinstance(event, RunEnd))
    assert error is not None
    assert (error.type, error.message, error.fatal) == ("graceful_termination", "gave up", True)


def test_a_run_ends_when_the_next_start_comes_even_if_the_message_was_lost() -> None:
    assert ends(heard([*RUN, START, END])) == [
        ("s#1", Status.ERROR, Reason.ERROR),
        ("s#2", Status.OK, Reason.COMPLETED),
    ]


def test_the_safety_policys_word_on_the_next_prompt_ends_the_run_before() -> None:
    events = heard([*RUN, safety("inbound_message", "warn"), *NEXT])

    policy = next(event for event in events if isinstance(event, Policy))
    assert policy.run_id == "s#2"
    assert [run for run, _, _ in ends(events)] == ["s#1", "s#2"]


def test_a_blocked_prompt_is_a_run_of_its_own() -> None:
    events = heard([*RUN, END, safety("inbound_message", "block"), *NEXT])

    assert ends(events)[1] == ("s#2", Status.CANCELLED, Reason.SAFETY_BLOCKED)
    assert [run for run, _, _ in ends(events)] == ["s#1", "s#2", "s#3"]


def test_the_message_that_a_replan_writes_belongs_to_the_run() -> None:
    lines = [*RUN, turn_end(1), REPLAN, user("another way!"), turn(2), END]

    events = heard(lines)

    assert {event.run_id for event in events} == {"s#1"}
    message = next(event for event in events if event.raw.get("synthetic"))
    assert text(getattr(message, "content", None)) == "another way!"
    start = next(event for event in events if isinstance(event, RunStart))
    assert text(start.input) == "a"


def test_the_message_that_a_replan_writes_is_told_at_once() -> None:
    events = heard([*RUN, REPLAN, user("another way!")], end=False)

    assert isinstance(events[-1], Message)
    assert events[-1].run_id == "s#1"


def test_a_replan_whose_line_was_lost_still_stays_in_its_run() -> None:
    events = heard([*RUN, turn_end(1), user("another way!"), turn(2), END])

    assert ends(events) == [("s#1", Status.OK, Reason.COMPLETED)]


@pytest.mark.parametrize("turns", [[], [turn_end(1), turn(2)]], ids=["one turn", "two"])
def test_a_prompt_whose_start_was_lost_is_told_by_its_first_turn(turns: list[Line]) -> None:
    events = heard([*RUN, *turns, user("b"), turn(1), END])

    assert ends(events) == [
        ("s#1", Status.ERROR, Reason.ERROR),
        ("s#2", Status.OK, Reason.COMPLETED),
    ]
    start = [event for event in events if isinstance(event, RunStart)][1]
    assert (text(start.input), start.fidelity) == ("b", Fidelity.INFERRED)


def test_tools_are_paired_by_their_call_whatever_the_order() -> None:
    lines = [*RUN, tool_start("a"), tool_start("b"), tool_end("b"), turn_end(1), tool_end("a")]

    events = heard(lines)

    starts = {e.call_id: e.span_id for e in events if isinstance(e, ToolStart)}
    finals = {e.call_id: (e.span_id, e.parent_span_id) for e in events if isinstance(e, ToolEnd)}
    assert finals == {call: (span, "agent.turn.1") for call, span in starts.items()}


def test_a_call_id_that_is_used_again_is_another_span() -> None:
    lines = [*RUN, tool_start("a"), tool_end("a"), tool_start("a"), tool_end("a")]

    spans = [e.span_id for e in heard(lines) if isinstance(e, (ToolStart, ToolEnd))]

    assert spans == ["a", "a", "a#2", "a#2"]


def test_turns_are_spans_named_as_in_the_host() -> None:
    spans = [e.span_id for e in heard(RUN) if isinstance(e, TurnStart)]

    assert spans == ["agent.turn.1"]


def test_a_tail_that_begins_in_the_middle_of_a_run_says_so() -> None:
    events = heard([turn(3), tool_end("c"), END])

    start = events[0]
    assert isinstance(start, RunStart)
    assert start.fidelity is Fidelity.INFERRED
    assert ends(events) == [("s#1", Status.OK, Reason.COMPLETED)]
    tool = next(event for event in events if isinstance(event, ToolEnd))
    assert tool.fidelity is Fidelity.END_ONLY


def test_what_comes_after_the_end_still_belongs_to_the_run() -> None:
    events = heard([*RUN, END, UNKNOWN, tool_end("c"), *NEXT])

    late = [event.run_id for event in events if isinstance(event, (Context, ToolEnd))]
    assert late == ["s#1", "s#1"]
