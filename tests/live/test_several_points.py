"""Several decision points in one run: each step gets the return after its own time."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np

import tau_live
from tau_live.core.settings import Settings
from tau_live.learn.trajectories import trajectories_of
from tau_live.record.rewards import outcome_of
from tests.live.running import counters, opened


def returns_at(path: Path, point: str) -> list[float]:
    """Return what came after each decision at a point, of all rollouts that are ready."""
    settings = Settings(store=path)
    with opened(path) as store:
        ready = store.rewards.ready_rollouts(point, after=0, limit=10)
    found = trajectories_of(
        ready,
        point,
        versions=[],
        discount=1.0,
        outcome=lambda known: outcome_of(known.rewards, known.rollout, settings),
    )
    assert found.trajectories is not None
    returns: list[float] = np.cumsum(found.trajectories.reward[::-1])[::-1].tolist()
    return returns


def test_rewards_between_decisions_are_credited_to_those_before_them(live: Path) -> None:
    with tau_live.run("credit") as run:
        run.decide("model", ["a", "b"])
        tool = run.decide("tool", ["c", "d"])
        run.reward(1.0, name="half way")
        tau_live.reward(0.5, decision=tool, name="tool")
        run.decide("model", ["a", "b"])
        tau_live.reward(4.0, name="nearly")
        run.decide("prompt", ["e", "f"])
        run.reward(8.0, name="end")
    tau_live.reward(16.0, run=run, name="afterwards")
    assert tau_live.flush(30)

    assert returns_at(live, "model") == [29.5, 28.0]
    assert returns_at(live, "tool") == [29.5]
    assert returns_at(live, "prompt") == [24.0]


def test_a_reward_for_an_earlier_decision_that_comes_late_is_not_a_later_ones(live: Path) -> None:
    with tau_live.run("credit") as run:
        first = run.decide("model", ["a", "b"])
        run.decide("tool", ["c", "d"])
        run.decide("model", ["a", "b"])
        run.reward(1.0)
    tau_live.reward(2.0, decision=first, name="late")
    assert tau_live.flush(30)

    assert returns_at(live, "model") == [3.0, 1.0]
    assert returns_at(live, "tool") == [1.0]


def test_points_that_decide_at_once_share_the_run(live: Path) -> None:
    together = threading.Barrier(3)
    chosen: list[tau_live.Choice] = []

    def decide(point: str) -> None:
        for _ in range(5):
            together.wait(30)
            choice = run.decide(point, ["a", "b"])
            assert tau_live.reward(1.0, decision=choice, name=f"{point} {choice.id}")
            chosen.append(choice)

    with tau_live.run("credit") as run:
        threads = [threading.Thread(target=decide, args=(point,)) for point in ("x", "y", "z")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert tau_live.flush(30)

    with opened(live) as store:
        made = store.decisions.decisions(run.id)
    assert len(made) == len(chosen) == 15
    for point in ("x", "y", "z"):
        mine = [d.ordinal for d in made if d.point == point]
        assert returns_at(live, point) == [float(sum(d.ordinal >= at for d in made)) for at in mine]


def test_each_point_has_its_own_versions_and_a_single_option_is_not_trained_on(
    path: Path, settings: Settings, live: Path
) -> None:
    tau_live.detach()
    tau_live.attach(replace(settings, update_interval=8))

    for key in range(16):
        with tau_live.run("credit", key=key) as run:
            run.decide("only", ["one"])
            choice = run.decide("model", ["a", "b"])
            other = run.decide("tool", ["c", "d"], allowed=["c"])
            run.reward(float(choice.option == "a"))
        assert (other.option, other.probability) == ("c", 1.0)
    assert tau_live.flush(30)

    with opened(path) as store:
        updates = store.policies.updates()
        serving = store.policies.in_service()
        assert len(store.decisions.decisions(run.id)) == 3
    assert set(serving) == {"model"}
    assert {one.skipped_reason for one in updates if one.point in {"only", "tool"}} == {
        "no usable decisions"
    }
    assert counters(path)["left_out_one_option"] == 32


def contexts(path: Path, run_id: str) -> list[dict[str, object]]:
    with opened(path) as store:
        return [dict(decision.context) for decision in store.decisions.decisions(run_id)]


def test_a_decision_sees_what_its_run_chose_before_at_other_points(live: Path) -> None:
    with tau_live.run("agent") as run:
        model = run.decide("model", ["a", "b"], context={"kind": "mail"})
        run.decide("model", ["a"], context={"kind": "talk"})
        run.decide("tool", ["c", "d"], context={"kind": "mail", "chosen at model": "mine"})
        run.decide("tool", ["d"])
        run.decide("answer", ["e", "f"])
    with tau_live.run("agent") as other:
        other.decide("answer", ["e", "f"])
    assert tau_live.flush(30)

    assert model.option in {"a", "b"}
    assert contexts(live, run.id) == [
        {"kind": "mail"},
        {"kind": "talk"},
        {"chosen at model": "mine", "kind": "mail"},
        {"chosen at model": "a"},
        {"chosen at model": "a", "chosen at tool": "d"},
    ]
    assert contexts(live, other.id) == [{}]


def test_a_setting_takes_earlier_choices_out(path: Path, settings: Settings, live: Path) -> None:
    tau_live.detach()
    tau_live.attach(replace(settings, earlier_choices=False))

    with tau_live.run("agent") as run:
        run.decide("model", ["a", "b"])
        run.decide("tool", ["c", "d"])
    assert tau_live.flush(30)

    assert contexts(path, run.id) == [{}, {}]
