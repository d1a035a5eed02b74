"""What a decision, a run or an adapter may take of the host, and what is counted beyond that."""

import time
from pathlib import Path

import numpy
import pytest

import tau_live
from tau_live.core import events as ev
from tests.live.running import counters, done, gate, process

BOUND_S = 0.25  # five times what is promised: the machine may be shared


def refused() -> dict[str, int]:
    """Return what was refused, by reason."""
    found = tau_live.snapshot()["refused"]
    assert isinstance(found, dict)
    return found


@pytest.mark.timed
@pytest.mark.parametrize(
    "row",
    [
        pytest.param({f"f{n}": float(n) for n in range(1_000)}, id="numbers"),
        pytest.param({f"f{n}": f"some words of {n}" for n in range(1_000)}, id="texts"),
        pytest.param({f"f{n}": [f"m{k}" for k in range(100)] for n in range(10)}, id="members"),
        pytest.param(dict.fromkeys(map(str, range(300_000)), 1.0), id="very many"),
    ],
)
def test_features_beyond_what_a_decision_may_have_are_cut_and_counted(
    live: Path, row: dict[str, object]
) -> None:
    options = {f"o{n}": dict(row) if len(row) < 2_000 else row for n in range(256)}
    with tau_live.run("wide") as run:
        began = time.thread_time()
        choice = run.decide("model", options)
        took = time.thread_time() - began

    assert choice.source == "policy"
    assert took < BOUND_S
    assert refused()["features_cut"] > 0


def test_decisions_that_are_not_stored_are_counted(live: Path) -> None:
    with tau_live.run("over") as run:
        nothing = run.decide("model", [])
    late = run.decide("model", ["a", "b"], default="b")

    assert (nothing.option, late.option, late.id) == (None, "b", "")
    assert refused()["decisions_of_nothing"] == 1
    assert refused()["decisions_not_recorded"] == 1


def test_a_run_that_is_left_twice_is_over_once(live: Path) -> None:
    context = tau_live.run("twice")
    context.__enter__()

    context.__exit__(None, None, None)
    context.__exit__(None, None, None)

    assert tau_live.current() is None


def test_what_adapters_tell_that_is_no_event_is_counted(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    bad = [
        "an event",
        None,
        ev.RunStart(host="h", run_id=["r"], at=1.0),  # type: ignore[arg-type]
        ev.RunStart(host="h", run_id="r", at=float("nan")),
        ev.RunStart(host="h", run_id="r", at=10**400),
    ]

    taken = [runtime.emit(event) for event in bad]  # type: ignore[arg-type]
    good = runtime.emit(ev.RunStart(host="h", run_id="r", at=1.0))
    assert tau_live.flush(30)

    assert (taken, good) == ([False] * len(bad), True)
    assert refused()["events_malformed"] == len(bad)
    assert gate()["streaks"] == {"collection": 0, "update": 0, "decision": 0}


def test_a_reward_that_was_there_already_is_counted(live: Path) -> None:
    with tau_live.run("again", key=1) as run:
        for _ in range(3):
            run.reward(1.0, name="same")
    tau_live.flush(30)
    tau_live.detach()

    assert counters(live)["duplicate_rewards"] == 2


ROOM = """
import sys, tau_live

def agent():
    with tau_live.run("agent") as run:
        run.decide("model", ["a", "b"], default="b", context={"x": 1.0})
        run.reward(1.0)

def below(frames, call):
    return call() if not frames else below(frames - 1, call)

agent()
for call in (agent, tau_live.flush, tau_live.snapshot, lambda: tau_live.reward(1, run="live-a")):
    for room in range(6, 70):
        below(sys.getrecursionlimit() - room - 3, call)
gate = tau_live.snapshot()["gate"]
print(gate["state"], sum(gate["streaks"].values()), tau_live.current())
"""


@pytest.mark.slow
def test_a_stack_that_is_all_but_used_up_fails_nobody(path: Path) -> None:
    with process(ROOM, path) as deep:
        assert done(deep) == "pass 0 None\n"


def test_arrays_as_options_take_a_moment(live: Path) -> None:
    rows = numpy.zeros((1_000, 1_000))
    began = time.thread_time()

    choice = tau_live.decide("model", [*rows])

    assert time.thread_time() - began < 1.0
    assert choice.option is not None


def test_a_run_that_is_not_recorded_has_no_id(live: Path) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    with tau_live.run("recorded") as run:
        assert run.id
    runtime._gate.hold("tried", at=time.time())

    with tau_live.run("held") as run:
        assert run.id == ""
        assert not run.reward(1.0)
