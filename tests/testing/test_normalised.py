"""What is left of recorded events is the same whenever the same was played."""

import random
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.testing.golden import Row, normalise

STEPS = ("run.start", "turn.start", "tool.start", "tool.end", "turn.end", "run.end")


def run(number: int, *, parent: str | None = None) -> list[Row]:
    """One run as a host tells it, with ids made at random."""
    run_id = str(uuid.uuid4())
    call = f"call_{uuid.uuid4().hex}"
    text = f"number {number} called {call}"
    return [
        {
            "event": event,
            "host": "bakery",
            "run_id": run_id,
            "parent_run_id": parent,
            "execution": f"{random.random()}",
            "call_id": call if event.startswith("tool") else None,
            "input": {"text": text, "chars": len(text), "sha256": uuid.uuid4().hex},
            "duration_ms": random.random() if event.endswith("end") else None,
            "host_version": "1.0",
            "error": {"message": f"at 0x{random.getrandbits(40):010x} in /tmp/x/{number}.py"},
        }
        for event in STEPS
    ]


def interleaved(runs: Sequence[Sequence[Row]], order: random.Random) -> list[Row]:
    """Return the events of runs in some order in which each run's own are in theirs."""
    left = [[*rows] for rows in runs]
    found: list[Row] = []
    while left:
        rows = order.choice(left)
        found.append(rows.pop(0))
        left = [rows for rows in left if rows]
    return found


def played(seed: int) -> list[Row]:
    outer = run(0)
    return interleaved(
        [outer, run(1, parent=str(outer[0]["run_id"])), run(2), run(2)], random.Random(seed)
    )


@pytest.mark.slow
@given(st.integers(), st.integers())
def test_two_plays_of_the_same_give_the_same(first: int, second: int) -> None:
    assert normalise(played(first)) == normalise(played(second))


def test_links_between_events_stay() -> None:
    rows = normalise(played(1))
    inner = [row for row in rows if row["parent_run_id"]]

    assert {row["parent_run_id"] for row in inner} <= {row["run_id"] for row in rows}
    assert len({row["run_id"] for row in rows}) == 4
    assert [row["event"] for row in inner] == [*STEPS]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        pytest.param("2026-01-31T10:20:30.123Z", "some time", id="a time"),
        pytest.param("in /usr/lib/python3/x.py:12", "in a path:12", id="a path"),
        pytest.param("01ARZ3NDEKTSV4RRFFQ69G5FAV", "id-1", id="a ULID"),
        pytest.param("call_0123456789abcdef0123", "call_id-1", id="behind a prefix"),
        pytest.param("openai:gpt-5", "openai:gpt-5", id="a model"),
        pytest.param("call-0-1", "call-0-1", id="an id that says something"),
        pytest.param("deadbeef", "deadbeef", id="a short one"),
    ],
)
def test_a_text_is_left_as_it_is_but_for_what_is_random(said: str, left: str) -> None:
    [row] = normalise([{"event": "message", "host": "h", "run_id": "r", "role": said}])

    assert row["role"] == left


def test_tools_that_ran_at_once_are_told_one_after_the_other() -> None:
    def tool(event: str, call: str) -> Row:
        return {"event": event, "host": "h", "run_id": "r", "call_id": call}

    told = [("tool.start", "a"), ("tool.start", "b"), ("tool.end", "b"), ("tool.end", "a")]

    rows = normalise(tool(*one) for one in told)

    assert [(row["event"], row["call_id"]) for row in rows] == [
        ("tool.start", "a"),
        ("tool.end", "a"),
        ("tool.start", "b"),
        ("tool.end", "b"),
    ]


def asked_for(*calls: str) -> Row:
    told = [{"id": call, "name": "look"} for call in calls]
    return {"event": "model.end", "host": "h", "run_id": "r", "tool_calls": told}


def branch(number: int) -> list[Row]:
    """A step that asks for nothing and runs a tool in a thread of its own."""
    step, row = uuid.uuid4().hex, {"host": "h", "run_id": "r"}
    within = {"call_id": f"call-{number}", "span_id": f"tool-{number}", "raw": {"step": step}}
    asks = {"parent_span_id": f"tool-{number}", "span_id": uuid.uuid4().hex}
    return [
        {"event": "step.start", "span_id": step, "name": "tools", **row},
        {"event": "tool.start", **within, **row},
        {"event": "model.start", **asks, **row},
        {"event": "model.end", **asks, **row},
        {"event": "tool.end", **within, **row},
        {"event": "step.end", "span_id": step, "name": "tools", **row},
    ]


@given(st.integers())
def test_what_ran_at_once_stands_as_the_model_asked_for_it(seed: int) -> None:
    together = interleaved([branch(number) for number in range(3)], random.Random(seed))

    rows = normalise([asked_for("call-2", "call-0", "call-1"), *together])

    assert [row["event"] for row in rows[1:]] == [row["event"] for row in branch(0)] * 3
    assert [row["call_id"] for row in rows if row["event"] == "tool.start"] == [
        "call-2",
        "call-0",
        "call-1",
    ]


@given(st.permutations(range(3)))
def test_tools_that_are_told_only_when_they_are_over_stand_in_the_same_order(
    order: list[int],
) -> None:
    rows = normalise([asked_for("call-0"), *(row for one in order for row in branch(one)[1:2])])

    assert [row["call_id"] for row in rows[1:]] == ["call-1", "call-2", "call-0"]


def test_what_began_before_stands_first_and_what_goes_on_last() -> None:
    def step(event: str, name: str) -> Row:
        return {"event": event, "host": "h", "run_id": "r", "span_id": name, "name": name}

    told = [("step.start", "a"), ("step.end", "z"), ("step.start", "b"), ("step.end", "b")]

    rows = normalise(step(*one) for one in told)

    assert [(row["event"], row["name"]) for row in rows] == [
        ("step.end", "z"),
        ("step.start", "b"),
        ("step.end", "b"),
        ("step.start", "a"),
    ]


def numbered(run_id: str, text: str, parent: str | None = None) -> list[Row]:
    row: Row = {"host": "h", "run_id": run_id, "parent_run_id": parent, "input": f"{run_id} {text}"}
    return [{"event": "run.start", **row}, {"event": "run.end", **row}]


@pytest.mark.slow
@given(st.permutations(range(1, 13)), st.integers())
def test_runs_that_are_only_numbered_are_numbered_in_their_order(
    numbers: list[int], seed: int
) -> None:
    def play(numbers: Sequence[int], order: random.Random) -> list[Row]:
        runs = [numbered(f"cook/s#{numbers[one]}", f"{one:02}") for one in range(10)]
        outer = f"cook/s#{numbers[0]}"
        runs += [
            numbered(f"{outer}>help#{numbers[one]}", f"{one}", parent=outer) for one in (10, 11)
        ]
        return normalise(interleaved(runs, order), stream="s")

    found = play(numbers, random.Random(seed))

    assert found == play(range(1, 13), random.Random(0))
    assert list(dict.fromkeys(row["run_id"] for row in found))[:4] == [
        "cook/s#1",
        "cook/s#1>help#1",
        "cook/s#1>help#2",
        "cook/s#2",
    ]
    assert all(str(row["input"]).startswith(f"{row['run_id']} ") for row in found)


def test_a_run_whose_own_id_ends_in_a_number_keeps_it() -> None:
    rows = normalise(numbered("shop/order#17", "hello"), stream="golden")

    assert {row["run_id"] for row in rows} == {"shop/order#17"}
