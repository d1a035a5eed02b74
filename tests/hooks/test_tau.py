"""The reference host's lines become events: in its real order, with nothing lost."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.events import (
    Content,
    Context,
    Decision,
    Event,
    Fidelity,
    Message,
    ModelEnd,
    Policy,
    Reason,
    Retry,
    Reward,
    RunEnd,
    RunStart,
    Status,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnStart,
    decode,
    encode,
)
from tau_live_hooks.tau import TauStream

SESSION = Path(__file__).parents[1] / "golden" / "tau_session.jsonl"
Line = dict[str, object]

START: Line = {"type": "agent_start"}
END: Line = {"type": "agent_end", "new_messages": 2}
UNKNOWN: Line = {"type": "unknown_event"}


def user(text: str) -> Line:
    return {"type": "message_added", "role": "user", "text": text, "tool_calls": 0}


def reply(text: str) -> Line:
    return {"type": "message_added", "role": "assistant", "text": text, "tool_calls": 0}


def turn(number: int) -> Line:
    return {"type": "turn_start", "turn": number}


def turn_end(number: int) -> Line:
    return {
        "type": "turn_end",
        "turn": number,
        "tool_results": 0,
        "request_duration_ms": 5,
        "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        "finish_reason": None,
    }


def safety(stage: str, mode: str) -> Line:
    return {
        "type": "safety_policy_applied",
        "stage": stage,
        "mode": mode,
        "blocked": mode == "block",
        "matched_rules": ["r"],
        "reason_codes": ["prompt_injection.explicit_marker"],
    }


def tool_start(id_: str) -> Line:
    return {
        "type": "tool_execution_start",
        "tool_call_id": id_,
        "tool_name": "t",
        "arguments": {"a": [1, None]},
    }


def tool_end(id_: str, is_error: bool = False) -> Line:
    return {
        "type": "tool_execution_end",
        "tool_call_id": id_,
        "tool_name": "t",
        "is_error": is_error,
        "content": "said",
    }


def cost(cumulative: float, budget: float | None) -> Line:
    return {
        "type": "cost_updated",
        "turn": 1,
        "turn_cost_usd": 0.5,
        "cumulative_cost_usd": cumulative,
        "budget_usd": budget,
    }


REPLAN: Line = {"type": "replan_triggered", "turn": 1, "reason": "all failed"}
ALERT: Line = {
    "type": "cost_budget_alert",
    "turn": 1,
    "threshold_percent": 100,
    "cumulative_cost_usd": 1.5,
    "budget_usd": 1.5,
}
NEWER: list[Line] = [
    {
        "type": "tool_health_report",
        "tool_name": "t",
        "success_rate": 0.5,
        "avg_latency_ms": 3.5,
        "consecutive_failures": 2,
    },
    {"type": "circuit_breaker_tripped", "tool_name": "t", "reason": "five failures"},
    {
        "type": "context_compaction_triggered",
        "tier": "warn",
        "messages_before": 40,
        "messages_after": 12,
        "estimated_tokens_freed": 900,
    },
    {"type": "failure_detected", "signal": {"kind": "repeated_tool_call", "count": 3}},
    {"type": "recovery_attempted", "strategy": "replan", "attempt": 1},
    {"type": "escalation_required", "message": "need a person"},
    {"type": "graceful_termination", "summary": "gave up"},
]
EVERY: list[Line] = [
    *(START, END, turn(1), turn_end(1), user("hi"), reply("yes"), REPLAN, ALERT, UNKNOWN),
    *(
        tool_start("c"),
        tool_end("c"),
        tool_end("d", is_error=True),
        cost(0.5, None),
        cost(1.5, 1.5),
    ),
    *(safety("inbound_message", "block"), safety("inbound_message", "warn")),
    *(safety("tool_output", "block"), safety("outbound_http_payload", "block")),
    *NEWER,
]


def counting() -> Callable[[], float]:
    seconds = count(1)
    return lambda: float(next(seconds))


def heard(lines: Iterable[Line | bytes], *, end: bool = True) -> list[Event]:
    stream = TauStream("s", clock=counting())
    events = [event for line in lines for event in stream.events(line)]
    return events + (stream.end() if end else [])


def session() -> list[Line]:
    return [json.loads(line) for line in SESSION.read_bytes().splitlines()]


def ends(events: Iterable[Event]) -> list[tuple[str, Status | None, Reason | None]]:
    return [(e.run_id, e.status, e.reason) for e in events if isinstance(e, RunEnd)]


def text(content: Content | None) -> str:
    assert content is not None
    assert content.text is not None
    return content.text


def line_of(event: Event) -> Line | None:
    """Return the host's line that an event came from; the inverse of the adapter.

    ``None`` for what the adapter said by itself.
    """
    raw = {name: value for name, value in event.raw.items() if name != "synthetic"}
    if isinstance(event, (RunStart, RunEnd)):
        if event.fidelity is Fidelity.INFERRED:
            return None
        return {"type": "agent_start" if isinstance(event, RunStart) else "agent_end", **raw}
    found = _step_of(event)
    return {**found, **raw}


def _step_of(event: Event) -> Line:
    if isinstance(event, TurnStart):
        return {"type": "turn_start", "turn": event.turn}
    if isinstance(event, TurnEnd):
        return {
            "type": "turn_end",
            "turn": event.turn,
            "tool_results": event.tool_calls,
            "request_duration_ms": event.duration_ms,
            "usage": event.usage,
            "finish_reason": event.finish_reason,
        }
    if isinstance(event, Message):
        return {
            "type": "message_added",
            "role": event.role,
            "text": text(event.content),
            "tool_calls": event.tool_calls,
        }
    if isinstance(event, (ToolStart, ToolEnd)):
        return _tool_of(event)
    return _other_of(event)


def _tool_of(event: ToolStart | ToolEnd) -> Line:
    common: Line = {"tool_call_id": event.call_id, "tool_name": event.tool}
    if isinstance(event, ToolStart):
        arguments = json.loads(text(event.args))
        return {"type": "tool_execution_start", **common, "arguments": arguments}
    content = json.loads(text(event.result))
    return {
        "type": "tool_execution_end",
        **common,
        "is_error": event.is_error,
        "content": content,
    }


def _other_of(event: Event) -> Line:
    if isinstance(event, ModelEnd):
        return {"type": "cost_updated", "turn": event.turn, "turn_cost_usd": event.cost_usd}
    if isinstance(event, Policy) and event.stage == "cost_budget":
        return {"type": "cost_budget_alert", "turn": event.turn}
    if isinstance(event, Policy):
        return {
            "type": "safety_policy_applied",
            "stage": event.stage,
            "mode": event.mode,
            "blocked": event.blocked,
            "matched_rules": [*event.rules],
            "reason_codes": [*event.reason_codes],
        }
    return _rest_of(event)


def _rest_of(event: Event) -> Line:
    if isinstance(event, Retry) and event.what == "plan":
        return {"type": "replan_triggered", "turn": event.turn, "reason": event.reason}
    if isinstance(event, Retry):
        return {"type": "recovery_attempted", "attempt": event.number}
    assert isinstance(event, Context)
    if event.op == "compact":
        return {
            "type": "context_compaction_triggered",
            "messages_before": event.before,
            "messages_after": event.after,
        }
    return {"type": event.op}


def sorted_lines(lines: Iterable[Line]) -> list[str]:
    same = (json.loads(json.dumps(line), parse_int=float) for line in lines)
    return sorted(json.dumps(line, sort_keys=True) for line in same)


LINES = st.lists(st.sampled_from(EVERY), max_size=30)


def test_no_field_of_a_session_is_lost() -> None:
    found = [line for event in heard(session()) if (line := line_of(event)) is not None]

    assert found == session()


@given(LINES)
def test_no_field_of_any_line_is_lost(lines: list[Line]) -> None:
    stream = TauStream("s", clock=counting())

    events = [event for line in lines for event in stream.events(line)] + stream.end()

    found = [line for event in events if (line := line_of(event)) is not None]
    left_out = [END] * stream.bad.get("agent_end without a run", 0)
    assert sorted_lines([*found, *left_out]) == sorted_lines(lines)


@given(LINES)
def test_every_run_starts_once_and_ends_once_and_is_of_one_piece(lines: list[Line]) -> None:
    events = heard(lines)

    starts = Counter(event.run_id for event in events if isinstance(event, RunStart))
    finals = Counter(event.run_id for event in events if isinstance(event, RunEnd))
    runs = [f"s#{number}" for number in range(1, len(starts) + 1)]
    assert starts == finals == Counter(runs)
    assert {event.run_id for event in events} == set(runs)
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]


@given(LINES)
def test_a_span_id_names_one_span(lines: list[Line]) -> None:
    events = heard(lines)

    begun = Counter(
        (event.run_id, event.span_id)
        for event in events
        if event.span_id is not None
        and not (isinstance(event, (ToolEnd, TurnEnd)) and event.fidelity is Fidelity.NATIVE)
    )
    assert not [key for key, number in begun.items() if number > 1]


@given(LINES)
def test_every_event_can_be_written_and_read_back(lines: list[Line]) -> None:
    for event in heard(lines):
        assert decode(encode(event)) == event


@given(LINES, st.randoms(use_true_random=False))
def test_garbage_between_the_lines_changes_nothing(lines: list[Line], random: Random) -> None:
    mixed: list[Line | bytes] = []
    for line in lines:
        mixed += [random.choice(GARBAGE), line, random.choice(GARBAGE)]

    assert heard(mixed) == heard(lines)


GARBAGE: list[Line | bytes] = [
    b"",
    b"\n",
    b"{",
    b"\xff\xfe",
    b"[1]",
    b"null",
    b'"agent_start"',
    b"{}",
    b'{"type": null}',
    b'{"type": {"type": "agent_start"}}',
    b'{"type": "no such type"}',
    b'{"type": "turn_start"}',
    b'{"type": "turn_start", "turn": -1}',
    b'{"type": "turn_start", "turn": 1e400}',
    b'{"type": "turn_start", "turn": "1"}',
    b'{"type": "turn_start", "turn": 99999999999999999999999999}',
    b'{"type": "agent_end"}',
    b'{"type": "message_added", "role": "user", "text": 5}',
    b'{"type": "message_added", "role": null, "text": "x"}',
    b'{"type": "tool_execution_end", "tool_call_id": "c", "tool_name": "t"}',
    b'{"type": "cost_updated", "turn": 1, "turn_cost_usd": NaN, "cumulative_cost_usd": 1}',
    b'{"type": "safety_policy_applied", "stage": "x", "mode": "y", "blocked": "no"}',
    b"[" * 100_000,
    b'{"type": "unknown_event", "x": ' + b"[" * 100_000,
    {"type": "unknown_event", "x": {1, 2}, "y": object()},
    {"type": 7},
    {7: "type"},  # type: ignore[dict-item]  # on purpose
]

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(EVERY), st.text(max_size=3), ANY_JSON), max_size=8))
def test_a_line_with_any_field_replaced_never_raises(
    lines: list[tuple[Line, str, object]],
) -> None:
    spoilt = [{**line, sorted(line)[len(name) % len(line)]: value} for line, name, value in lines]

    for event in heard(spoilt):
        assert decode(encode(event)).run_id == event.run_id


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes_are_counted_and_left_out(lines: list[bytes]) -> None:
    stream = TauStream("s", clock=counting())

    for line in lines:
        stream.events(line)

    assert sum(stream.bad.values()) == sum(bool(line.strip()) for line in lines)


def test_what_is_wrong_with_a_line_is_said() -> None:
    stream = TauStream("s", clock=counting())

    for line in (b"{", b"[]", b'{"type": "x"}', b'{"type": "turn_start"}', END):
        assert stream.events(line) == []

    assert stream.bad == {
        "not JSON": 1,
        "not an object": 1,
        "unknown type": 1,
        "malformed turn_start": 1,
        "agent_end without a run": 1,
    }


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


@given(LINES)
def test_fault_13_telemetry_is_never_a_decision_nor_a_reward(lines: list[Line]) -> None:
    assert not [event for event in heard(lines) if isinstance(event, (Decision, Reward))]


RUN = [user("a"), START, turn(1)]
NEXT = [user("b"), START, turn(1), END]


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


def test_a_replan_whose_line_was_lost_still_stays_in_its_run() -> None:
    events = heard([*RUN, turn_end(1), user("another way!"), turn(2), END])

    assert ends(events) == [("s#1", Status.OK, Reason.COMPLETED)]


def test_a_prompt_whose_start_was_lost_is_told_by_its_first_turn() -> None:
    events = heard([*RUN, turn_end(1), turn(2), user("b"), turn(1), END])

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


@pytest.mark.parametrize(
    ("stamp", "at"),
    [
        ({"timestamp_unix_ms": 1_781_000_000_500}, 1_781_000_000.5),
        ({"timestamp": 1_781_000_000.5}, 1_781_000_000.5),
        ({"timestamp": 1_781_000_000_500}, 1_781_000_000.5),
        ({"ts": "2026-06-09T12:26:40.5+02:00"}, 1_781_000_800.5),
        ({"ts": "2026-06-09T10:26:40.5"}, 1_781_000_800.5),
        ({"timestamp_unix_ms": -5}, 1.0),
        ({"timestamp": True}, 1.0),
        ({"timestamp": "soon"}, 1.0),
        ({"timestamp": 10**40}, 1.0),
        ({"ts": [1]}, 1.0),
        ({}, 1.0),
    ],
)
def test_the_time_is_the_lines_own_or_the_clocks(stamp: Line, at: float) -> None:
    (event,) = heard([{**START, **stamp}], end=False)

    assert event.at == pytest.approx(at, abs=1e-6)


def test_a_run_lasts_as_long_as_its_lines_say() -> None:
    end = next(event for event in heard(session()) if isinstance(event, RunEnd))

    lines = session()[:14]
    first, last = lines[0]["timestamp_unix_ms"], lines[-1]["timestamp_unix_ms"]
    assert isinstance(first, int)
    assert isinstance(last, int)
    assert end.duration_ms == pytest.approx(last - first)


def test_the_same_lines_give_the_same_events() -> None:
    lines = SESSION.read_bytes().splitlines()

    assert heard(lines) == heard(lines) == heard(session())


@pytest.mark.slow
def test_an_endless_run_is_remembered_only_in_part() -> None:
    stream = TauStream("s", clock=counting())
    for line in RUN:
        stream.events(line)

    for number in range(6_000):
        stream.events(tool_start(f"call {number}"))

    run = stream._run
    assert run is not None
    assert len(run.tools) == len(run.names) == 4_096
