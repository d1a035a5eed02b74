"""The reference host's lines become events with nothing lost, and garbage costs only itself."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.events import (
    Decision,
    Fidelity,
    Reward,
    RunEnd,
    RunStart,
    ToolEnd,
    TurnEnd,
    decode,
    encode,
)
from tau_live_hooks.tau import TauStream
from tests.hooks.tau_lines import (
    END,
    EVERY,
    RUN,
    SESSION,
    START,
    Line,
    counting,
    heard,
    line_of,
    session,
    sorted_lines,
    tool_start,
)

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@given(LINES)
def test_fault_13_telemetry_is_never_a_decision_nor_a_reward(lines: list[Line]) -> None:
    assert not [event for event in heard(lines) if isinstance(event, (Decision, Reward))]


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
