"""What is left of recorded events is the same whenever the same was played."""

import random
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.testing.normalised import Row, normalised

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


@given(st.integers(), st.integers())
def test_two_plays_of_the_same_give_the_same(first: int, second: int) -> None:
    assert normalised(played(first)) == normalised(played(second))


def test_links_between_events_stay() -> None:
    rows = normalised(played(1))
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
    [row] = normalised([{"event": "message", "host": "h", "run_id": "r", "role": said}])

    assert row["role"] == left


def test_tools_that_ran_at_once_are_told_one_after_the_other() -> None:
    def tool(event: str, call: str) -> Row:
        return {"event": event, "host": "h", "run_id": "r", "call_id": call}

    told = [("tool.start", "a"), ("tool.start", "b"), ("tool.end", "b"), ("tool.end", "a")]

    rows = normalised(tool(*one) for one in told)

    assert [(row["event"], row["call_id"]) for row in rows] == [
        ("tool.start", "a"),
        ("tool.end", "a"),
        ("tool.start", "b"),
        ("tool.end", "b"),
    ]
