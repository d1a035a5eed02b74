"""Rewards of the public door: before, during, after, from elsewhere, again, and wrong ones."""

from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import Content, Settings
from tests.live.running import (
    counters,
    decisions,
    done,
    opened,
    process,
    rewards,
    rollout,
    rollouts,
    rounds,
)

REWARD = """
import sys, tau_live
taken = tau_live.reward(float(sys.argv[2]), **{sys.argv[3]: sys.argv[1]}, name="late")
assert tau_live.flush(30)
print(taken)
"""

DECIDES = """
import tau_live
with tau_live.run("triage", key="shared") as run:
    choice = run.decide("model", ["a", "b"])
assert tau_live.reward(0.25, decision=choice, name="here")
assert tau_live.flush(30)
print(run.id, choice.option)
"""


def test_a_reward_may_come_before_during_and_after_its_run(live: Path) -> None:
    run_id = rollout_id_of("tau_live", "triage/1")

    early = tau_live.reward(1.0, run=run_id, name="early")
    with tau_live.run("triage", key=1) as run:
        during = tau_live.reward(2.0, name="during")
    after = run.reward(3.0, name="after")
    assert tau_live.flush(30)

    assert run.id == run_id
    assert (early, during, after) == (True, True, True)
    assert {r.name: r.value for r in rewards(live, run_id)} == {
        "early": 1.0,
        "during": 2.0,
        "after": 3.0,
    }
    assert rollout(live, run_id).total_reward == 6.0


def test_the_total_of_a_run_includes_what_its_decisions_earned(live: Path) -> None:
    with tau_live.run("triage", key=1) as run:
        choice = run.decide("model", ["small", "large"])
        run.reward(0.25, name="model", decision=choice)
        run.reward(0.5, name="sent")
    assert tau_live.flush(30)

    found = rollout(live, run.id)
    assert (found.total_reward, found.run_reward) == (0.75, 0.5)
    mean = tau_live.snapshot()["mean_reward"]
    assert mean == {"of": 100, "first": None, "last": 0.75}


def test_rewards_of_decisions_alone_are_not_taken_for_constant(live: Path) -> None:
    for value in (0.0, 1.0):
        with tau_live.run("triage") as run:
            run.reward(value, decision=run.decide("model", ["small", "large"]))
    assert tau_live.flush(30)

    assert sorted(one.total_reward or 0.0 for one in rollouts(live)) == [0.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["run", "decision"])
def test_a_reward_may_come_from_another_process_after_a_restart(
    live: Path, settings: Settings, by: str
) -> None:
    with tau_live.run("triage", key=1) as run:
        choice = run.decide("model", ["a", "b"])
    tau_live.detach()

    with process(REWARD, live, run.id if by == "run" else choice.id, 0.5, by) as other:
        taken = done(other).strip()
    assert tau_live.attach(settings) is not None
    tau_live.reward(0.25, **{by: run.id if by == "run" else choice.id}, name="back")
    assert tau_live.flush(30)

    found = rewards(live, run.id)
    assert taken == "True"
    assert [(r.name, r.value) for r in found] == [("late", 0.5), ("back", 0.25)]
    assert {r.decision_id for r in found} == {None if by == "run" else choice.id}
    assert rollout(live, run.id).ready_seq is not None


@pytest.mark.slow
def test_two_processes_with_one_key_reward_each_its_own_decision(live: Path) -> None:
    with tau_live.run("triage", key="shared") as run:
        mine = run.decide("model", ["a", "b"])
    assert tau_live.flush(30)

    with process(DECIDES, live) as other:
        theirs_in, _ = done(other).split()
    tau_live.reward(0.75, decision=mine, name="there")
    assert tau_live.flush(30)

    rows = decisions(live, run.id)
    by_decision = {r.decision_id: r.name for r in rewards(live, run.id)}
    assert theirs_in == run.id
    assert [row.attempt for row in rows] == [1, 2]
    assert by_decision == {rows[0].decision_id: "there", rows[1].decision_id: "here"}


def test_truths_and_comments_are_rewards_too(path: Path, settings: Settings, live: Path) -> None:
    tau_live.detach()
    assert tau_live.attach(replace(settings, content=Content.REDACTED)) is not None

    with tau_live.run("triage", key=1) as run:
        run.reward(True, name="solved")
        run.reward("well done", name="said")
        run.reward(0.5, name="rated", comment="so so")
        run.reward("first", name="both", comment="second")
    assert tau_live.flush(30)

    found = {r.name: (r.value, r.label, r.comment) for r in rewards(live, run.id)}
    assert found == {
        "solved": (1.0, "true", None),
        "said": (None, None, "well done"),
        "rated": (0.5, None, "so so"),
        "both": (None, None, "first\nsecond"),
    }


def test_the_same_again_is_nothing_new_and_another_value_replaces(live: Path) -> None:
    with tau_live.run("triage", key=1) as run:
        for value in (1.0, 1.0, 0.25):
            run.reward(value, name="solved")
        run.reward(1.0, name="solved", source="user")
        run.reward(1.0, name="solved", key="second")
    assert tau_live.flush(30)

    found = {(r.source, r.key): r.value for r in rewards(live, run.id)}
    assert found == {("api", ""): 0.25, ("user", ""): 1.0, ("api", "second"): 1.0}
    assert counters(live)["conflicting_rewards"] == 1


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), None, object(), [], {}, 10**400, 1j, b"1"]
)
def test_what_is_no_reward_is_refused_counted_and_logged_once(
    live: Path, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    with tau_live.run("triage", key=1) as run:
        taken = run.reward(value, name="solved")
        run.reward(value, name="solved")
    assert tau_live.flush(30)

    refused = tau_live.snapshot()["refused"]
    assert isinstance(refused, dict)
    assert (taken, refused["rewards_refused"], rewards(live, run.id)) == (False, 2, [])
    lines = [line.getMessage() for line in caplog.records if "reward_refused" in line.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("event='reward_refused' name='solved' counter='rewards_refused' got")


@pytest.mark.parametrize("target", [{}, {"run": ""}, {"decision": "nonsense"}, {"decision": 3}])
def test_a_reward_for_nothing_is_refused_and_counted(live: Path, target: dict[str, object]) -> None:
    taken = tau_live.reward(1.0, **target)  # type: ignore[arg-type]  # hosts do as they like

    refused = tau_live.snapshot()["refused"]
    assert isinstance(refused, dict)
    assert (taken, refused["rewards_without_target"]) == (False, 1)


@pytest.mark.slow
def test_decisions_that_are_rewarded_are_learned_from(live: Path) -> None:
    for key in range(16):
        with tau_live.run("triage", key=key) as run:
            choice = run.decide("model", ["small", "large"])
            run.reward(0.0)
        tau_live.reward(float(choice.option == "large"), decision=choice.id, name="step")
    assert tau_live.flush(30)

    with opened(live) as store:
        executed = [update for update in store.policies.updates() if update.executed]
    assert executed
    assert executed[0].report["mean_reward"] != 0.0


def test_rewarded_rollouts_are_learned_from_in_time_for_the_next(live: Path) -> None:
    rounds(16)

    assert tau_live.flush(30)

    serving = tau_live.snapshot()["policies_in_service"]
    with opened(live) as store:
        newest = store.policies.in_service()["model"].version
    with tau_live.run("triage", key="next") as run:
        choice = run.decide("model", ["small", "large"])
    assert newest >= 1
    assert serving == {"model": newest}
    assert choice.policy_version == newest
