"""Garbage in every field of every public call hurts nobody, least of all what comes after it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

import tau_live
from tau_live.runtime.runtime import start
from tests.live.hostile import GARBAGE, WORST, Hostile
from tests.live.running import decisions, gate, integrity, opened, rewards, rollout, rounds

RELAXED = hypothesis_settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def is_one_of(found: object, options: object, default: object) -> bool:
    """Say whether what came back was offered, or is the default, by identity or as nothing."""
    if found is default or found is None or found is options:
        return True
    if type(options) in (list, tuple):
        same = type(found) is str  # a hostile one must not be asked
        return any(found is one or (same and type(one) is str and one == found) for one in options)  # type: ignore[attr-defined]
    return True  # only reading it again could tell


def still_learns(path: Path, start_at: int) -> None:
    """Check that a following good run is stored and learned from."""
    before = gate()
    ids = rounds(8, start=start_at, name="good")
    assert tau_live.flush(30), tau_live.snapshot()
    assert before["state"] == "pass", before
    assert gate()["state"] == "pass"
    with opened(path) as store:
        last = store.rollouts.rollout(ids[-1]).ready_seq
        assert last is not None
        assert store.policies.watermark("model") >= last


def call_decide(inside: tau_live.Run, bad: Any) -> None:
    for options in (bad, [bad, "b"], {"a": bad, "b": None}):
        for default in (None, bad):
            choice = inside.decide("model", options, context=bad, default=default)
            assert is_one_of(choice.option, options, default)
    inside.decide(bad, ["a", "b"], context={"a": bad, "b": 1})
    inside.decide("model", {"a": {"f": bad}, "b": {"f": 1.0}})
    for mask in (bad, [bad, "a"]):
        choice = inside.decide("model", ["a", "b"], default="a", allowed=mask)
        assert choice.option in {"a", "b", None}
    tau_live.decide(bad, bad, context=bad, default=bad)


def call_reward(inside: tau_live.Run, bad: Any) -> None:
    inside.reward(bad)
    inside.reward(1.0, name=bad, source=bad, key=bad, comment=bad)
    for target in ({"run": bad}, {"decision": bad}, {"run": inside, "decision": bad}):
        tau_live.reward(1.0, **target)
    inside.reward(0.5, decision=bad)


def call_run(inside: tau_live.Run, bad: Any) -> None:
    with tau_live.run(bad, key=bad, session=bad, metadata=bad) as run:
        assert tau_live.current() is run
    with tau_live.run("inner", metadata={"a": bad, "b": [bad]}):
        pass

    @tau_live.run(bad, key=lambda _: bad)
    def function(argument: object) -> object:
        return argument

    assert function(bad) is bad


def call_others(inside: tau_live.Run, bad: Any) -> None:
    if type(bad) is not float and type(bad) is not int:  # a number is a timeout
        assert tau_live.attach(bad) is not None
    tau_live.flush(bad if type(bad) in (str, bytes, Hostile) else 0.0)
    json.dumps(tau_live.snapshot(), default=str)


CALLS: list[Callable[[tau_live.Run, Any], None]] = [
    call_decide,
    call_reward,
    call_run,
    call_others,
]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_the_worst_objects_hurt_nobody(
    live: Path, call: Callable[[tau_live.Run, Any], None]
) -> None:
    for bad in WORST:
        with tau_live.run("garbage", key=1) as run:
            call(run, bad)

    still_learns(live, 0)
    assert rollout(live, run.id).status == "succeeded"
    assert integrity(live) == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS[:3], ids=lambda call: call.__name__)
def test_anything_at_all_hurts_nobody(
    live: Path, call: Callable[[tau_live.Run, Any], None]
) -> None:
    @RELAXED
    @given(GARBAGE)
    def check(bad: object) -> None:
        with tau_live.run("garbage") as run:
            call(run, bad)

    check()

    still_learns(live, 0)
    assert integrity(live) == "ok"


def test_a_run_that_raises_a_hostile_error_passes_it_on(live: Path) -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise ValueError

    error = OddError()
    with pytest.raises(OddError) as caught, tau_live.run("odd") as run:
        raise error
    assert tau_live.flush(30)

    assert caught.value is error
    assert rollout(live, run.id).error_type == "OddError"


def test_options_that_cannot_be_read_are_counted_and_not_a_failure(live: Path) -> None:
    with tau_live.run("garbage") as run:
        found = [run.decide("model", Hostile(), default="mine") for _ in range(5)]  # type: ignore[arg-type]
        good = run.decide("model", ["a", "b"])
    assert tau_live.flush(30)

    refused = tau_live.snapshot()["refused"]
    assert {choice.option for choice in found} == {"mine"}
    assert good.source == "policy"
    assert [row.decision_id for row in decisions(live, run.id)] == [good.id]
    assert isinstance(refused, dict)
    assert refused["options_refused"] == 5
    assert gate()["streaks"] == {"collection": 0, "update": 0, "decision": 0}


def test_features_that_are_not_finite_change_no_probability(live: Path) -> None:
    bad = {"x": float("nan"), "y": float("inf"), "z": 1e300}

    with tau_live.run("one", key=1) as run:
        good = run.decide("model", {"a": {"f": 1.0}, "b": {"f": 2.0}})
        odd = run.decide("model", {"a": {"f": 1.0, **bad}, "b": {"f": 2.0, **bad}})
    assert tau_live.flush(30)

    rows = decisions(live, run.id)
    assert (good.source, odd.source) == ("policy", "policy")
    assert rows[0].probabilities == rows[1].probabilities
    assert rewards(live, run.id) == []


def test_settings_that_are_wrong_leave_the_host_alone(path: Path) -> None:
    runtime = start({"TAU_LIVE_RL": "1", "TAU_LIVE_RL_UPDATE_INTERVAL": "many"}, None)

    assert runtime is None
    assert not path.exists()
