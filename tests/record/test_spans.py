"""Spans: what is kept of an event, and under which id."""

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.records import Span
from tau_live.record.spans import span_of
from tests.streams import event


def span(one: ev.Event) -> Span:
    found = span_of(one, rollout_id="r", attempt=1)
    assert found is not None
    return found


NAMES = {
    "turn.start": "agent.turn.2",
    "turn.end": "agent.turn.2",
    "step.start": "step",
    "step.end": "step",
    "model.start": "model",
    "model.end": "model",
    "tool.start": "tool",
    "tool.end": "tool",
    "message": "message.added",
    "handoff": "agent.handoff",
    "run.interrupt": "agent.interrupt",
    "run.resume": "agent.resume",
    "policy": "agent.safety_policy_applied",
    "retry": "agent.retry",
    "context": "agent.context",
    "tau.error": "tau_live.error",
}


@pytest.mark.parametrize("kind", sorted(set(ev.KINDS) - {"decision"}))
def test_every_step_is_a_span_and_nothing_else_is(kind: str) -> None:
    found = span_of(event(ev.KINDS[kind], turn=2, seq=1), rollout_id="r", attempt=1)

    assert (found.name if found else None) == NAMES.get(kind)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (event(ev.ToolStart, call_id="c"), event(ev.ToolEnd, call_id="c")),
        (event(ev.TurnStart, turn=3), event(ev.TurnEnd, turn=3)),
        (event(ev.ModelStart, span_id="s"), event(ev.ModelEnd, span_id="s")),
    ],
)
def test_the_start_and_the_end_of_a_step_are_one_span(start: ev.Event, end: ev.Event) -> None:
    assert span(start).span_id == span(end).span_id
    assert (span(start).ended_at, span(start).status) == (None, "unknown")


def test_the_hosts_own_id_is_kept_verbatim() -> None:
    assert span(event(ev.Message, span_id="host:ü/1", seq=4)).span_id == "host:ü/1"


def test_events_of_two_processes_are_two() -> None:
    first, second = (event(ev.Message, seq=1, pid=pid) for pid in (1, 2))

    assert span(first).span_id != span(second).span_id


def test_events_that_a_host_does_not_count_are_told_apart_by_what_they_say() -> None:
    hello, bye = (event(ev.Message, content=ev.Content(text=text)) for text in ("hello", "bye"))

    ids = {span(one).span_id for one in (hello, bye, replace(hello, at=2.0), hello)}

    assert len(ids) == 3


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "ok"),
        ({"is_error": True}, "error"),
        ({"error": ev.ErrorInfo(type="KeyError")}, "error"),
        ({"is_error": True, "status": ev.Status.CANCELLED}, "cancelled"),
    ],
)
def test_a_step_ends_as_it_did(fields: dict[str, Any], status: str) -> None:
    assert span(event(ev.ToolEnd, call_id="c", **fields)).status == status


@pytest.mark.parametrize(
    ("took_ms", "started_at"),
    [(None, 10.0), (2_500.0, 7.5), (0.0, 10.0), (-1.0, 10.0), (math.nan, 10.0), (math.inf, 10.0)],
)
def test_an_end_without_its_start_began_when_it_says(
    took_ms: float | None, started_at: float
) -> None:
    found = span(event(ev.ModelEnd, at=10.0, span_id="s", duration_ms=took_ms))

    assert (found.started_at, found.ended_at) == (started_at, 10.0)


def test_what_holds_nothing_is_left_out() -> None:
    assert span(event(ev.ToolStart, call_id="c", tool="grep")).attributes == {
        "call_id": "c",
        "tool": "grep",
    }


def test_what_a_span_has_no_place_for_is_an_attribute() -> None:
    told = event(
        ev.ToolEnd,
        call_id="c",
        is_error=False,
        turn=2,
        agent="planner",
        fidelity=ev.Fidelity.END_ONLY,
        error=ev.ErrorInfo(type="KeyError"),
        raw={"x": [1, None]},
    )

    assert span(told).attributes == {
        "call_id": "c",
        "is_error": False,
        "turn": 2,
        "agent": "planner",
        "fidelity": "end_only",
        "error": {"type": "KeyError", "message": "", "fatal": False},
        "raw": {"x": [1, None]},
    }
