"""Events: the vocabulary, and a JSON form in which nothing is lost."""

import inspect
import json
import math
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from tau_live.core import events as ev
from tau_live.core import records
from tau_live.core.errors import EventError
from tau_live.core.events import PromptArm

VOCABULARY = {
    *("run.start", "run.end", "turn.start", "turn.end", "model.start", "model.end"),
    *("tool.start", "tool.end", "message", "handoff", "run.interrupt", "run.resume"),
    *("policy", "retry", "context", "decision", "reward", "tau.error"),
    *("step.start", "step.end"),
}
"""contracts/hosts.md, "The normalised vocabulary", and a host's own steps, its "spans"."""

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CONTENT = st.builds(
    ev.Content, text=st.none() | TEXT, chars=st.none() | st.integers(), sha256=st.none() | TEXT
)
BY_TYPE: Mapping[object, st.SearchStrategy[Any]] = {
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(),
    float: FINITE,
    bytes: st.binary(max_size=8),
    ev.Status: st.sampled_from(ev.Status),
    ev.Fidelity: st.sampled_from(ev.Fidelity),
    records.Reason: st.sampled_from(records.Reason),
    ev.Content: CONTENT,
    ev.ErrorInfo: st.builds(ev.ErrorInfo, type=TEXT, message=TEXT, fatal=st.booleans()),
    tuple[str, ...]: st.lists(TEXT, max_size=3).map(tuple),
    tuple[float, ...]: st.lists(FINITE, max_size=3).map(tuple),
    tuple[ev.ToolCall, ...]: st.lists(
        st.builds(ev.ToolCall, id=TEXT, name=TEXT, args=st.none() | CONTENT), max_size=2
    ).map(tuple),
    tuple[PromptArm, ...]: st.lists(
        st.builds(PromptArm, version=TEXT, offered=st.booleans(), share=FINITE), max_size=2
    ).map(tuple),
    Mapping[str, object]: st.dictionaries(TEXT, JSON, max_size=3),
    Mapping[str, float]: st.dictionaries(TEXT, FINITE, max_size=3),
}


def of_type(hint: object) -> st.SearchStrategy[Any]:
    for known, strategy in BY_TYPE.items():
        if hint == known:
            return strategy
        if hint == known | None:  # type: ignore[operator]  # every known type has a union
            return st.none() | strategy
    raise AssertionError(f"no strategy for {hint!r}")


def events_of(kind: type[ev.Event]) -> st.SearchStrategy[ev.Event]:
    hints = get_type_hints(kind)
    drawn = {f.name: of_type(hints[f.name]) for f in fields(kind) if f.name not in ("event", "v")}
    return st.builds(kind, **drawn)


EVENTS = st.sampled_from(list(ev.KINDS.values())).flatmap(events_of)


def a_tool_end(**changes: Any) -> ev.ToolEnd:
    return replace(ev.ToolEnd(host="h", run_id="r", at=1.5, tool="grep", call_id="c"), **changes)


@pytest.mark.slow
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(EVENTS)
def test_what_was_encoded_is_decoded_as_it_was(event: ev.Event) -> None:
    found = ev.decode(ev.encode(event))

    assert found == event
    assert type(found) is type(event)


@given(EVENTS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_event_is_one_line(event: ev.Event) -> None:
    line = ev.encode(event)

    assert b"\n" not in line
    assert b"\r" not in line


def test_a_negative_zero_keeps_its_sign() -> None:
    event = a_tool_end(at=-0.0, raw={"x": [-0.0]})

    found = ev.decode(ev.encode(event))

    assert math.copysign(1.0, found.at) == -1.0
    assert "-0.0" in repr(found.raw)


def test_integers_of_any_size_and_bytes_come_back() -> None:
    decision = ev.Decision(
        host="h",
        run_id="r",
        at=0.0,
        ordinal=2**80,
        point="p",
        options=("a",),
        encoded=bytes(range(256)),
        raw={"big": -(2**200)},
    )

    found = ev.decode(ev.encode(decision))

    assert found == decision


@pytest.mark.parametrize("kind", ev.KINDS)
def test_a_line_may_be_text_or_bytes(kind: str) -> None:
    line = json.dumps(
        {"event": kind, "host": "h", "run_id": "r", "at": 1}
        | ({"ordinal": 1, "point": "p", "options": ["a"]} if kind == "decision" else {})
    )

    assert ev.decode(line) == ev.decode(line.encode())
    assert ev.decode(line).event == kind


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda number: a_tool_end(at=number),
        lambda number: a_tool_end(duration_ms=number),
        lambda number: a_tool_end(raw={"deep": [{"er": number}]}),
        lambda number: ev.RunEnd(host="h", run_id="r", at=1.0, usage={"input": number}),
        lambda number: ev.Reward(host="h", run_id="r", at=1.0, value=number),
    ],
)
def test_a_number_that_json_cannot_say_is_refused(place: Any, number: float) -> None:
    event = place(number)

    with pytest.raises(EventError, match="cannot write"):
        ev.encode(event)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({"a": (1, 2)}, id="a tuple would come back as a list"),
        pytest.param({"a": {1, 2}}, id="a set likewise"),
        pytest.param({"a": {1: 2}}, id="a number as a key would come back as text"),
        pytest.param({"a": b"x"}, id="bytes likewise"),
        pytest.param({"a": object()}, id="an object has no form"),
        pytest.param({"a": "\ud800"}, id="half a surrogate pair is no text"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(raw: dict[str, object]) -> None:
    event = a_tool_end(raw=raw)

    with pytest.raises(EventError, match=r"cannot write a tool\.end event"):
        ev.encode(event)


def test_what_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)

    with pytest.raises(EventError, match="cannot write"):
        ev.encode(a_tool_end(raw={"loop": loop}))


def test_a_refusal_names_the_field() -> None:
    with pytest.raises(EventError, match="JSON has no form for duration_ms"):
        ev.encode(a_tool_end(duration_ms=math.nan))


def test_any_mapping_may_hold_the_open_ended_fields() -> None:
    from types import MappingProxyType

    event = a_tool_end(raw=MappingProxyType({"a": MappingProxyType({"b": 1})}))

    found = ev.decode(ev.encode(event))

    assert found.raw == {"a": {"b": 1}}


LINE = ev.encode(a_tool_end(raw={"a": [1.5, None, "ü"]}))
GARBAGE = [
    *(b"", b" ", b"null", b"[]", b"{}", b'"x"', b"1", b"\x00", b"\xff\xfe", b"{", b"["),
    *(b"[" * 100_000, b'{"event":' * 50_000, LINE + LINE, LINE + b"x", b"\xef\xbb\xbf" + LINE),
    *("\ud800", '{"event":"\ud800"}'),
]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_an_event_error(line: bytes | str) -> None:
    with pytest.raises(EventError):
        ev.decode(line)


@pytest.mark.parametrize("length", range(len(LINE)))
def test_a_truncated_line_is_an_event_error(length: int) -> None:
    with pytest.raises(EventError):
        ev.decode(LINE[:length])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(LINE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_an_event_or_an_event_error(place: int, byte: int) -> None:
    line = bytearray(LINE)
    line[place] = byte

    try:
        found = ev.decode(bytes(line))
    except EventError:
        return

    assert isinstance(found, ev.Event)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"event": "run.starts"}, "unknown event 'run.starts'"),
        ({"event": 1}, "not an event"),
        ({"event": None}, "not an event"),
        ({"v": ev.VERSION + 1}, "unsupported event version 2, expected 1"),
        ({"v": 0}, "unsupported event version 0"),
        ({"v": "1"}, "not an event"),
        ({"at": None}, "not an event"),
        ({"at": "now"}, "not an event"),
        ({"at": True}, "not an event"),
        ({"host": 1}, "not an event"),
        ({"run_id": None}, "not an event"),
        ({"status": "fine"}, "not an event"),
        ({"fidelity": None}, "not an event"),
        ({"error": "boom"}, "not an event"),
        ({"error": {}}, "not an event"),
        ({"attempt": 1.5}, "not an event"),
        ({"raw": []}, "not an event"),
        ({"is_error": "yes"}, "not an event"),
        ({"result": {"text": 1}}, "not an event"),
    ],
)
def test_a_line_that_does_not_fit_is_an_event_error(change: dict[str, object], says: str) -> None:
    line = json.dumps(json.loads(LINE) | change)

    with pytest.raises(EventError, match=re.escape(says)):
        ev.decode(line)


@pytest.mark.parametrize("missing", ["event", "host", "run_id", "at"])
def test_a_line_without_an_id_or_a_time_is_an_event_error(missing: str) -> None:
    found = json.loads(LINE)
    del found[missing]

    with pytest.raises(EventError):
        ev.decode(json.dumps(found))


def test_a_number_beyond_floats_is_an_event_error() -> None:
    with pytest.raises(EventError):
        ev.decode(LINE.replace(b'"at":1.5', b'"at":1e999'))


def test_fields_that_are_not_known_yet_are_passed_over() -> None:
    line = json.dumps(json.loads(LINE) | {"mood": "fine"})

    assert ev.decode(line) == ev.decode(LINE)


def test_the_kinds_are_the_vocabulary() -> None:
    assert set(ev.KINDS) == VOCABULARY


def test_every_kind_stands_under_its_own_name() -> None:
    names = {name: fields(ev.KINDS[name])[0].default for name in ev.KINDS}

    assert names == {name: name for name in VOCABULARY}


DOCUMENTED: Mapping[type, tuple[type, ...]] = {
    ev.Decision: (records.Decision,),
    ev.Reward: (records.Reward,),
}
"""Where the fields are described that an event shares with what is stored of it."""


@pytest.mark.parametrize(
    "kind", [*ev.KINDS.values(), ev.Event, ev.Content, ev.ErrorInfo, ev.ToolCall]
)
def test_every_field_is_documented(kind: type) -> None:
    envelope = () if kind is ev.Event else (ev.Event,)
    told = "\n".join(
        inspect.cleandoc(str(c.__doc__)) for c in (kind, *DOCUMENTED.get(kind, ()), *envelope)
    )

    missing = [f.name for f in fields(kind) if f"\n    {f.name}: " not in told]

    assert missing == []
